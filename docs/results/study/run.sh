#!/usr/bin/env bash
# The runs of the study in docs/results.md: run.sh STEP, with the steps rates, methods, shares, stage1, stages, ablations,
# baselines, whitening. The runs go to study/. Interrupt a step at any time and start it again; start it twice,
# and two cores share its runs.
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

case $step in
  rates) sweep rates "${text[@]}" "${training[@]}" --pooling cls --max-steps 250 ;;
  methods | shares | ablations | stages) sweep "$step" "${text[@]}" "${training[@]}" --pooling cls --max-steps 250 --sts ;;
  baselines) sweep baselines --sts ;;
  whitening) sweep whitening "${text[@]}" --limit 20000 --sts ;;
  stage1)
    sentcli train --method infocse --stage pretrain "${text[@]}" -m sentcli-bert-mini --batch-size 128 \
      --max-steps 1000 --learning-rate 5e-4 --set warmup_share=0.05 --set precision=bf16 -o study/stage1 --resume
    ;;
esac
