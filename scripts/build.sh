#!/bin/sh
# Configure (once) and build. Quiet unless something goes wrong.
#     scripts/build.sh BUILD_DIR [meson option ...]
set -eu
cd "$(dirname "$0")/.."
build=$1
shift
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if [ ! -f "$build/build.ninja" ]; then
    echo "Configuring in $build/"
    meson setup "$build" "$@" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
fi
echo "Building in $build/"
ninja -C "$build" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
# Warnings of heed's own code are news; keep them in sight.
grep -A3 'warning:' "$log" || true
