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

say "Train all-MiniLM-L6-v2 on the titles and texts of the documentation; 40 questions about it choose the weights"
run sentcli train --method simcse --model minilm --data "$out/docs/corpus.jsonl" --pair-fields title,text \
    --dev "$out/docs" --batch-size 16 --learning-rate 5e-5 --max-steps 30 --max-length 128 --eval-every 10 -o "$out/model" --json "$out/train.json"

say "The model beside its start: on these questions, and on general sentences"
run sentcli evaluate "$out/docs" -m minilm -m "$out/model"
if [ -n "${SENTCLI_DATA:-}" ]; then
    run sentcli sts-eval -m minilm -m "$out/model" --data "$SENTCLI_DATA/senteval" --tasks STSBenchmark
fi

say "Encode the documentation once, then search it"
run sentcli encode "$out/docs/corpus.jsonl" -o "$out/vectors" --model "$out/model"
run sentcli retrieve --model "$out/model" --corpus "$out/vectors" --top-k 3 \
    --query "my job was killed, can I go on where it stopped" --query "which checkpoint is kept"

say "In short"
python - "$out/train.json" <<'PYTHON'
import json
import sys

dev = json.load(open(sys.argv[1]))["results"]["dev"]
print(f"documentation search, {dev['metric']}: {dev['start']:.4f} before training, {dev['best']:.4f} after {dev['best_step']} steps")
PYTHON
