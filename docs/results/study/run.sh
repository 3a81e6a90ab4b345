#!/usr/bin/env bash
# The runs of the study in docs/studies/results.md: run.sh STEP, with the steps rates, methods, shares, stage1, stages, ablations,
# baselines, whitening and words, and then transfer, retrieval and analyses of their models. All goes to study/.
# Interrupt a step at any time and start it again; start a step of training twice, and two cores share its runs.
# A run whose line is in docs/results/study/STEP.jsonl is not made again: remove that file first to make its models.
set -euo pipefail
cd "$(dirname "$0")/../../.."
step=$1
text=(--data "$SENTCLI_DATA"/corpus/wiki.txt "$SENTCLI_DATA"/corpus/general/*.txt.gz)
start=(-m sentcli-bert-mini --eval-data "$SENTCLI_DATA/senteval")
training=(--batch-size 64 --max-length 32 --eval-every 125 --save-every 0 --set precision=bf16 --set keep_start=false)

sweep() {
  sentcli train --sweep "docs/results/study/$1.toml" --results "docs/results/study/$1.jsonl" -o "study/$1" --resume \
    "${start[@]}" "${@:2}"
}

name_encoders() {             # short names for the start, whitened too, and for a model of each method
  encoders=()
  mkdir -p study/models
  local name folder
  for name in start-{cls,first-last-avg} whitened-first-last-avg \
    simcse informin-cl mirror-bert infocse whitenedcse micse ct is-bert; do
    case $name in
      start-*) folder=baselines/method=first-last-avg,pooling=${name#start-} ;;
      whitened-*) folder=whitening/method=whitening,pooling=${name#whitened-} ;;
      *) folder=$(cd study && echo "methods/method=$name,"*seed=42) ;;
    esac
    ln -sfn "../$folder" "study/models/$name"
    encoders+=(-m "study/models/$name")
  done
}

case $step in
  rates) sweep rates "${text[@]}" "${training[@]}" --pooling cls --max-steps 250 ;;
  methods | shares | ablations | stages) sweep "$step" "${text[@]}" "${training[@]}" --pooling cls --max-steps 250 --sts ;;
  baselines) sweep baselines --sts ;;
  words) python docs/results/study/words.py "$SENTCLI_DATA/senteval" > docs/results/study/words.json ;;
  whitening) sweep whitening "${text[@]}" --limit 20000 --sts ;;
  stage1)
    sentcli train --method infocse --stage pretrain "${text[@]}" -m sentcli-bert-mini --batch-size 128 \
      --max-length 32 --max-steps 600 --learning-rate 5e-4 --set precision=bf16 -o study/stage1 --resume \
      --set warmup_share=0.05 --set weight_decay=0 --set tie=false --aux-init copy-top # not the defaults
    ;;
  transfer)
    name_encoders
    sentcli senteval "${encoders[@]}" --data "$SENTCLI_DATA/senteval" --protocol fast \
      --json docs/results/study/transfer.json
    python docs/results/study/trec.py "$SENTCLI_DATA/senteval" \
      study/models/{start-cls,start-first-last-avg,simcse,micse,ct,is-bert}
    ;;
  retrieval)
    name_encoders
    sentcli retrieve "${encoders[@]}" --in-domain "$SENTCLI_DATA/senteval/STS/STSBenchmark/sts-test.csv" \
      --json docs/results/study/in-domain.json
    sets=()
    for name in scifact cranfield npl cacm time lisa negconstraint; do
      sets+=(--beir "$SENTCLI_DATA/retrieval/$name")
    done
    sentcli retrieve "${encoders[@]}" "${sets[@]}" --max-length 32 --json docs/results/study/beir.json
    ;;
  analyses)                   # follows.csv and geometry.csv, and three of the figures, are kept in docs/results
    name_encoders
    sentcli analyze similarity "${encoders[@]}" --data "$SENTCLI_DATA/senteval" --split dev -o study/similarity
    sentcli analyze geometry "${encoders[@]}" --data "$SENTCLI_DATA/senteval" -o study/geometry
    sentcli analyze low-shot docs/results/study/{methods,shares}.jsonl -o study/low-shot
    sentcli analyze sweep docs/results/study/rates.jsonl -o study/learning-rates
    sentcli analyze map "$SENTCLI_DATA/corpus/wiki.txt" -m study/models/start-cls -m study/models/simcse \
      -m study/models/is-bert -m study/models/whitened-first-last-avg -o study/map
    sentcli analyze compare study/models/simcse study/models/is-bert --texts "$SENTCLI_DATA/corpus/wiki.txt" \
      --limit 5000 -o study/compare
    ;;
  *)
    echo "no step $step" >&2
    exit 2
    ;;
esac
