#!/usr/bin/env bash
# RankCSE and SimCSE++ beside SimCSE from the washed start, docs/studies/washed.md: run.sh STEP, on a GPU (DEVICE=cuda) or a
# processor; in the order start, rates, choose, methods. The start is washed as the one of that study, on the same
# text and with the same seed. JOBS processes share the runs of a step. The models go to study/later/, the results to
# rates.jsonl and runs.jsonl beside this file. The rates were found on a GPU (H100), all else was made on a processor.
set -euo pipefail
cd "$(dirname "$0")/../../.."
here=docs/results/later
step=$1
corpus=$SENTCLI_DATA/corpus
device=${DEVICE:-auto}
general=()
for file in "$corpus"/general/*.txt.gz; do   # wiki_science is held out
  [[ $file == *wiki_science* ]] || general+=("$file")
done
text=(--data "$corpus/wiki.txt" "${general[@]}")
training=(--eval-data "$SENTCLI_DATA/senteval" --batch-size 64 --max-length 32 --max-steps 250 --eval-every 125
  --save-every 0 --set precision=bf16 --set keep_start=false --set warmup_steps=0 --device "$device")

sweep() {                     # SWEEP, RESULTS, further options
  for _ in $(seq "${JOBS:-1}"); do
    sentcli train --sweep "$1" --results "$here/$2" -o "study/later/$(basename "$1" .toml)" --resume -q \
      -m study/later/start "${text[@]}" "${training[@]}" "${@:3}" &
    sleep 1
  done
  wait
}

case $step in
  start)                      # the start, and the teacher of RankCSE: another seed of SimCSE
    sentcli train --method mlm -m minilm --pooling cls "${text[@]}" \
      --eval-text "$corpus/general/wiki_science.txt.gz" --batch-size 64 --max-length 64 --max-steps 900 \
      --eval-every 900 --learning-rate 5e-4 --set precision=bf16 --seed 1 --save-every 100 -o study/later/start \
      --json $here/wash.json --device "$device" --resume
    sentcli train --method simcse -m study/later/start "${text[@]}" "${training[@]}" --learning-rate 1e-4 --seed 41 \
      -o study/later/teacher --json $here/teacher.json --resume
    ;;
  rates)
    sweep $here/rates-plus-plus.toml rates.jsonl
    sweep $here/rates-rankcse.toml rates.jsonl --teacher study/later/teacher
    ;;
  choose) python $here/study.py ;;   # the sweeps of the best rates
  methods)
    sweep $here/methods.toml runs.jsonl --sts
    sweep $here/plus-plus.toml runs.jsonl --sts
    sweep $here/rankcse.toml runs.jsonl --sts --teacher study/later/teacher
    ;;
esac
