#!/bin/sh
# Train on data of one's own, and score before and after: docs/studies/own-data.md.
#   SENTCLI_DATA=... docs/results/own/run.sh DIR [START...]
# A run whose line stands here is not made again; remove the line, or the file, to make its model. A run again goes on.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=$1
shift
mkdir -p "$out"
cd "$out"
[ -d data ] || python "$here/split.py" "$SENTCLI_DATA" data

run() { # start name method rate steps every
    sentcli train --method "$3" -m "$1" $pooling --data "data/$2-train.csv" --dev "data/$2-dev.csv" \
        --batch-size 64 --learning-rate "$4" --max-steps "$5" --eval-every "$6" --seeds 42,43 --no-leak \
        --save-every 0 --resume -o "$1-$2" --results "$here/$1-$2.jsonl"
    sentcli evaluate "data/$2-test.csv" -m "$1" -m "$1-$2/seed=42" -m "$1-$2/seed=43" $scored \
        --group "trained=*seed=*" --json "$here/$1-$2-test.json"
    sentcli sts-eval -m "$1" -m "$1-$2/seed=42" -m "$1-$2/seed=43" $scored --data "$SENTCLI_DATA/senteval" \
        --json "$here/$1-$2-sts.json"
}

for start in ${*:-sentcli-bert-mini minilm}; do
    if [ "$start" = minilm ]; then
        pooling="--pooling own" scored="" rate=2e-5 # a model's own pooling is what evaluations take unasked
    else
        pooling="--pooling mean" scored="--pooling mean" rate=1e-4
    fi
    run "$start" quora simcse $rate 180 60
    run "$start" sick simcse $rate 30 15
    run "$start" mrpc online-contrastive 2e-5 110 55
done
