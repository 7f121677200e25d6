#!/bin/sh
# Only heed_* is exported, and all that the public headers promise is there.
#     tests/symbols.sh LIBHEED.so INCLUDE_DIR
set -eu
exported=$(nm -D --defined-only "$1" | awk '{print $3}' | sed 's/@.*//' | sort -u)
strangers=$(echo "$exported" | grep -v '^heed_' || true)
[ -z "$strangers" ] || { echo "exported but not of the API: $strangers" >&2; exit 1; }
promised=$(cat "$2"/heed/*.h | sed -n 's/^HEED_API .*[ *]\(heed_[a-z0-9_]*\)(.*/\1/p' | sort -u)
[ "$(echo "$promised" | wc -l)" -ge 30 ] || { echo "the headers could not be read" >&2; exit 1; }
difference=$(printf '%s\n' "$promised" "$exported" | sort | uniq -u)
[ -z "$difference" ] || { echo "declared or exported, but not both: $difference" >&2; exit 1; }
echo "$(echo "$exported" | wc -l) symbols, all heed_*, all declared"
