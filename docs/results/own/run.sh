#!/bin/sh
# Train on data of one's own, and score before and after: docs/studies/own-data.md.
#   SENTCLI_DATA=... docs/results/own/run.sh DIR
set -eu
out=$1
here=$(cd "$(dirname "$0")" && pwd)
python "$here/split.py" "$SENTCLI_DATA" "$out/data"
cd "$out"

run() { # start pooling name method rate steps every
    sentcli train --method "$4" -m "$1" --pooling "$2" --data "data/$3-train.csv" --dev "data/$3-dev.csv" \
        --batch-size 64 --learning-rate "$5" --max-steps "$6" --eval-every "$7" --seeds 42,43 --no-leak \
        --save-every 0 -o "$1-$3" --results "$here/$1-$3.jsonl"
}

run sentcli-bert-mini mean quora simcse 1e-4 180 60
run sentcli-bert-mini mean mrpc online-contrastive 5e-5 110 55
run sentcli-bert-mini mean sick simcse 1e-4 30 15
run minilm own quora simcse 2e-5 180 60
run minilm own mrpc online-contrastive 2e-5 110 55
run minilm own sick simcse 2e-5 30 15

for start in sentcli-bert-mini minilm; do
    pooling=$([ "$start" = minilm ] || echo "--pooling mean")
    for name in quora mrpc sick; do
        sentcli evaluate "data/$name-test.csv" -m "$start" -m "$start-$name/seed=42" -m "$start-$name/seed=43" \
            $pooling --group "trained=*seed=*" --json "$here/$start-$name-test.json"
        sentcli sts-eval -m "$start" -m "$start-$name/seed=42" -m "$start-$name/seed=43" $pooling \
            --data "$SENTCLI_DATA/senteval" --json "$here/$start-$name-sts.json"
    done
done
