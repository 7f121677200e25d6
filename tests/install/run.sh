#!/bin/sh
# Install a build into a scratch folder and build the examples against it through pkg-config, as a user would; run them.
#     tests/install/run.sh BUILD_DIR
set -eu
cd "$(dirname "$0")/../.."
build=$(cd "$1" && pwd)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

DESTDIR=$root meson install -C "$build" --no-rebuild >/dev/null
pc=$(find "$root" -name heed.pc)
lib=$(dirname "$(dirname "$pc")")
PKG_CONFIG_PATH=$(dirname "$pc")
PKG_CONFIG_SYSROOT_DIR=$root
export PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR

for example in examples/*.c; do
    [ "$(wc -l <"$example")" -lt 80 ] || { echo "$example: 80 lines or more" >&2; exit 1; }
    program=$root/$(basename "$example" .c)
    # shellcheck disable=SC2046
    ${CC:-cc} -std=c11 -Wall -Wextra -Wpedantic -Werror "$example" -o "$program" $(pkg-config --cflags --libs heed) -lm
done
LD_LIBRARY_PATH=$lib "$root/attention"
LD_LIBRARY_PATH=$lib "$root/model" "$(find tests/data/models -name model.onnx | sort | head -n 1)"
