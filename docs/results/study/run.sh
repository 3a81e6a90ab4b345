#!/usr/bin/env bash
# The runs of the study in docs/results.md: run.sh STEP, with the steps rates, methods, shares, stage1, stages, ablations,
# baselines, whitening, and then transfer, retrieval and analyses of their models. All goes to study/. Interrupt a step
# at any time and start it again; start a step of training twice, and two cores share its runs.
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
  whitening) sweep whitening "${text[@]}" --limit 20000 --sts ;;
  stage1)
    sentcli train --method infocse --stage pretrain "${text[@]}" -m sentcli-bert-mini --batch-size 128 \
      --max-length 32 --max-steps 600 --learning-rate 5e-4 --set warmup_share=0.05 --set precision=bf16 -o study/stage1 --resume
    ;;
  transfer)
    name_encoders
    for protocol in fast lbfgs; do
      sentcli senteval "${encoders[@]}" --data "$SENTCLI_DATA/senteval" --protocol $protocol \
        --json "docs/results/study/$step-$protocol.json"
    done
    ;;
  retrieval)
    name_encoders
    sentcli retrieve "${encoders[@]}" --in-domain "$SENTCLI_DATA/senteval/STS/STSBenchmark/sts-test.csv" \
      --json docs/results/study/in-domain.json
    sentcli retrieve "${encoders[@]}" --max-length 32 --json docs/results/study/beir.json --beir scifact \
      --beir cranfield --beir npl --beir cacm --beir time --beir lisa --beir negconstraint
    ;;
  analyses)
    name_encoders
    sentcli analyze similarity "${encoders[@]}" --data "$SENTCLI_DATA/senteval" --split dev -o study/similarity \
      --json docs/results/study/similarity.json
    sentcli analyze geometry "${encoders[@]}" --data "$SENTCLI_DATA/senteval" -o study/geometry \
      --json docs/results/study/geometry.json
    sentcli analyze compare study/models/simcse study/models/is-bert --texts "$SENTCLI_DATA/corpus/wiki.txt" \
      --limit 5000 -o study/compare
    sentcli analyze low-shot docs/results/study/{methods,shares}.jsonl -o study/low-shot
    sentcli analyze sweep docs/results/study/rates.jsonl -o study/rates-figure
    ;;
  *)
    echo "no step $step" >&2
    exit 2
    ;;
esac
