#!/bin/sh
# Install what heed needs to build and test, where it is missing. Debian and Ubuntu: by apt-get, as root or through sudo.
# Elsewhere, or without the right to: say what is missing and stop.
set -eu

#   package               what it gives                     what for
needed="
    gcc                   gcc                               compiler (clang will do as well)
    libc6-dev             /usr/include/stdio.h              C library headers
    meson                 meson                             build
    ninja-build           ninja                             build
    pkg-config            pkg-config                        build
    libdlpack-dev         /usr/include/dlpack/dlpack.h      tensor type of the API
    libprotobuf-c-dev     libprotobuf-c.pc                  reading ONNX files
    protobuf-c-compiler   protoc-c                          reading ONNX files
    libzip-dev            libzip.pc                         .npz files (command line)
    libcjson-dev          libcjson.pc                       JSON (command line)
    libcmocka-dev         cmocka.pc                         tests
    python3-venv          python3-venv                      demo and tests of the command line
"

is_there() {
    case $1 in
    /*) [ -e "$1" ] ;;
    *.pc) command -v pkg-config >/dev/null 2>&1 && pkg-config --exists "${1%.pc}" ;;
    python3-venv) python3 -c 'import venv, ensurepip' >/dev/null 2>&1 ;;
    *) command -v "$1" >/dev/null 2>&1 ;;
    esac
}

missing=$(echo "$needed" | while read -r package gives _; do
    [ -z "$package" ] || is_there "$gives" || printf '%s ' "$package"
done)
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    echo "heed needs these packages (Debian names), which are not here: $missing" >&2
    exit 1
fi
as_root=
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        echo "heed needs these packages; run as root: apt-get install $missing" >&2
        exit 1
    fi
    as_root=sudo
fi
echo "Installing: $missing"
$as_root apt-get update -qq
# shellcheck disable=SC2086
DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $missing >/dev/null
