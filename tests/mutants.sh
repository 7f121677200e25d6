#!/bin/sh
# Do the tests notice? Plants one fault after the other in a copy of the tree, builds it, and runs the kernel and attention
# tests and `heed check` over tests/data/models. Each fault must be caught by the tests, and by a model where it can show.
# Not part of `make test`: it builds heed once per fault. The last line is "N passed, N failed".
#     tests/mutants.sh
set -eu
cd "$(dirname "$0")/.."
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -z | xargs -0 tar -cf - --ignore-failed-read | tar -xf - -C "$copy"
meson setup "$copy/build" "$copy" >/dev/null
passed=0
failed=0

# name | does a model show it | file | sed expression
faults='
scale times 1.3             |yes|src/attention/problem.c|s/(float) (1 \/ sqrt((double) d.head_dim)) : d.scale/1.3f * (float) (1 \/ sqrt((double) d.head_dim)) : 1.3f * d.scale/
mask dropped                |yes|src/attention/tiles.c|s/\.mask_kind = c->mask,/.mask_kind = HEED_TILE_MASK_NONE,/
heads of a group reversed   |yes|src/attention/tiles.c|s/\.k = heed_array_at(&p->k, size, u->b, u->g, 0)/.k = heed_array_at(\&p->k, size, u->b, c->heads_kv - 1 - u->g, 0)/
causal offset one too large |yes|src/attention/problem.c|s/wide at = (wide) i + offset;/wide at = (wide) i + offset + 1;/
last key skipped            |yes|src/attention/tiles.c|s/tile.key_begin = lo, tile.key_end = hi;/tile.key_begin = lo, tile.key_end = hi > lo ? hi - 1 : hi;/
'

verdict() {
    if [ "$2" = caught ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
    printf '%-30s %-10s %s\n' "$1" "$2" "$3"
}

echo "$faults" | grep '|' >"$copy/faults"
while IFS='|' read -r name shows file edit; do
    cp "$file" "$copy/$file"
    sed -i "$edit" "$copy/$file"
    if cmp -s "$file" "$copy/$file"; then
        verdict "$name" 'not planted' "$file has changed: mend this script"
        continue
    fi
    ninja -C "$copy/build" >"$copy/log" 2>&1 || { verdict "$name" 'not built' "$(grep -m1 error "$copy/log")"; continue; }
    if meson test -C "$copy/build" --no-rebuild --suite kernels --suite attention >"$copy/log" 2>&1 </dev/null; then
        verdict "$name" survived 'kernel and attention tests'
    else
        verdict "$name" caught "$(sed -n 's/^ *[0-9]*\/[0-9]* *[a-z]*:*\([a-z]*\) \/ \([a-z ]*[a-z]\) *FAIL.*/\1 \2/p' "$copy/log" | paste -sd, )"
    fi
    [ "$shows" = yes ] || { cp "$file" "$copy/$file"; continue; }
    if "$copy/build/tools/heed" check --all "$copy/tests/data/models" >"$copy/log" 2>&1 </dev/null; then
        verdict "$name" survived 'heed check'
    else
        verdict "$name" caught "heed check: $(tail -n 1 "$copy/log")"
    fi
    cp "$file" "$copy/$file"
done <"$copy/faults"

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
