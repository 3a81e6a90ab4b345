#!/bin/sh
# The main job on real input: train, encode, score, search. `make demo` runs it; results go to demo-output/.
set -eu
cd "$(dirname "$0")/.."
out=demo-output
rm -rf "$out"

say() { printf '\n\033[1m# %s\033[0m\n' "$1"; }
run() {
    printf '$ %s\n' "$*"
    "$@"
}

say "Text: the docstrings of the installed Python standard library, and the project's own documentation"
run python demo/prepare.py "$out"

say "Before training: all-MiniLM-L6-v2 by its [CLS] vector, which its authors never tuned"
run sentcli retrieve --model minilm --pooling cls --beir "$out/docs" --json "$out/before.json"
if [ -n "${SENTCLI_DATA:-}" ]; then
    run sentcli sts-eval --model minilm --pooling cls --data "$SENTCLI_DATA/senteval" --tasks STSBenchmark
fi

say "Train: SimCSE on the docstrings, no labels"
run sentcli train --method simcse --model minilm --pooling cls --data "$out/stdlib.txt" -o "$out/model" \
    --max-steps 50 --batch-size 64 --learning-rate 3e-5

say "After training"
run sentcli retrieve --model "$out/model" --beir "$out/docs" --json "$out/after.json"
if [ -n "${SENTCLI_DATA:-}" ]; then
    run sentcli sts-eval --model "$out/model" --data "$SENTCLI_DATA/senteval" --tasks STSBenchmark
fi

say "Encode the documentation once, then search it"
run sentcli encode "$out/docs/corpus.jsonl" -o "$out/vectors" --model "$out/model"
run sentcli retrieve --model "$out/model" --corpus "$out/vectors" --top-k 3 \
    --query "my job was killed, can I go on where it stopped" --query "which checkpoint is kept"

say "In short"
python - "$out/before.json" "$out/after.json" <<'PYTHON'
import json
import sys

before, after = (json.load(open(path))["results"]["docs"] for path in sys.argv[1:])
for metric in ("ndcg@10", "mrr@10", "recall@5"):
    print(f"documentation search, {metric}: {before[metric]:.4f} before training, {after[metric]:.4f} after")
PYTHON
