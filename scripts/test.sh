#!/bin/sh
# Run all tests of a build, then check model folders. The last line is "N passed, N failed".
#     scripts/test.sh BUILD_DIR [MODELS_DIR ...]
set -eu
cd "$(dirname "$0")/.."
build=$1
shift
passed=0
failed=0

meson test -C "$build" --no-rebuild --print-errorlogs || true
counts=$(python3 scripts/count_tests.py "$build/meson-logs/testlog.json")
passed=$((passed + ${counts% *}))
failed=$((failed + ${counts#* }))

for dir in tests/data/models "$@"; do
    echo
    echo "Models in $dir"
    log=$(mktemp)
    "$build/tools/heed" check --all "$dir" >"$log" 2>&1 || true
    cat "$log"
    # Its last line is "N passed, N failed" too; a run that died before it is one failure.
    last=$(tail -n 1 "$log")
    rm -f "$log"
    case $last in
    *' passed, '*' failed'*)
        passed=$((passed + ${last%% *}))
        last=${last#*, }
        failed=$((failed + ${last%% *}))
        ;;
    *) failed=$((failed + 1)) ;;
    esac
done

echo
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
