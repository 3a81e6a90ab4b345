#!/bin/sh
# Train on the structure of a corpus, and search it before and after: docs/studies/own-data.md.
#   SENTCLI_DATA=... docs/results/structure/run.sh DIR [START...]
# Half of the queries chooses the weights, the other half tests them, and the other way round; the two runs of a way
# are joined, so that every query is scored by weights that it did not choose. Of minilm on Cranfield no result is kept.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=$1
shift
mkdir -p "$out"
cd "$out"
[ -d scifact-a ] || python "$here/halves.py" "$SENTCLI_DATA/retrieval" .

chosen_and_tested() { # start set half-that-chooses half-that-tests way options...
    start=$1 set=$2 chooses=$3 tests=$4 way=$5
    shift 5
    model=$start-$set-$way-$chooses
    sentcli train --method simcse -m "$start" $trained "$@" --data "$set-$chooses/corpus.jsonl" --dev "$set-$chooses" \
        --dev-limit 60 --batch-size 32 --save-every 0 --resume -o "$model" --json "$model.json"
    sentcli retrieve -m "$model" $scored --beir "$set-$tests" --search dense,rrf --top-k 100 --overwrite --run "runs/$model"
}

for start in ${*:-sentcli-bert-mini minilm}; do
    if [ "$start" = minilm ]; then
        sets="cacm cranfield" scored="" trained="--pooling own --learning-rate 2e-5 --max-steps 40 --eval-every 20"
    else
        sets="cacm cranfield scifact" scored="--pooling mean" trained="--pooling mean --learning-rate 1e-4 --max-steps 120 --eval-every 40"
    fi
    for set in $sets; do
        sentcli retrieve -m "$start" $scored --beir "$SENTCLI_DATA/retrieval/$set" --search dense,bm25,rrf --top-k 100 \
            --overwrite --run "runs/$start-$set"
        for way in titles crops; do
            if [ "$way" = titles ]; then options="--pair-fields title,text"; else options="--set views=crops"; fi
            chosen_and_tested "$start" "$set" a b "$way" $options
            chosen_and_tested "$start" "$set" b a "$way" $options
            for search in dense rrf; do
                cat "runs/$start-$set-$way-a/$set-b.$search.trec" "runs/$start-$set-$way-b/$set-a.$search.trec" \
                    > "runs/$start-$set/$way.$search.trec"
            done
        done
        (cd "runs/$start-$set" && sentcli retrieve --beir "$SENTCLI_DATA/retrieval/$set" --json "$here/$start-$set.json" \
            --from-run "$set.dense.trec" --from-run titles.dense.trec --from-run crops.dense.trec \
            --from-run "$set.bm25.trec" --from-run "$set.rrf.trec" --from-run titles.rrf.trec --from-run crops.rrf.trec)
    done
done
