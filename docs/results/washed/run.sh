#!/usr/bin/env bash
# The study from a washed start, docs/studies/washed.md: run.sh STEP, in the order wash, untrained, choose, rates, methods,
# others, effects, controls, second-wash, lengths, doses, scores, further, compare. All goes to study/washed/.
# Interrupt a step at any time and start it again; start a step of training twice, and two cores share its runs. A run
# whose line is in docs/results/washed/runs.jsonl is not made again: remove its line first to make its model. The doses
# were made on a GPU, with JOBS=5 beside each other.
set -euo pipefail
cd "$(dirname "$0")/../../.."
step=$1
here=docs/results/washed
study="python $here/study.py"
corpus=$SENTCLI_DATA/corpus
general=()
for file in "$corpus"/general/*.txt.gz; do   # wiki_science is held out
  [[ $file == *wiki_science* ]] || general+=("$file")
done
text=(--data "$corpus/wiki.txt" "${general[@]}")
mini=study/washed/mini
doses=(862 3447 6894 13788)
dev=(--eval-data "$SENTCLI_DATA/senteval")
training=(--batch-size 64 --max-length 32 --max-steps 250 --eval-every 125 --save-every 0 --set precision=bf16
  --set keep_start=false --set warmup_steps=0)

sweep() {                     # NAME, further options
  sentcli train --sweep "$here/$1.toml" --results "$here/runs.jsonl" -o "study/washed/$1" --resume \
    -m study/washed/start "${dev[@]}" "${training[@]}" "${@:2}"
}

wash() {                      # STEPS, SEED, NAME
  sentcli train --method mlm -m minilm --pooling cls "${text[@]}" \
    --eval-text "$corpus/general/wiki_science.txt.gz" --batch-size 64 --max-length 64 --max-steps "$1" \
    --eval-every "$1" --learning-rate 5e-4 --set precision=bf16 --seed "$2" \
    --save-every 100 -o "study/washed/$3" --json "$here/$3.json" --resume
}

case $step in
  wash)
    for steps in 100 300 900; do wash $steps 1 wash-$steps; done
    ;;
  untrained)                  # the starts as they are, whitened, and weighted words, which need no model
    sentcli train --sweep $here/raw.toml --results $here/raw.jsonl -o study/washed/raw --resume "${dev[@]}"
    sentcli train --sweep $here/whitened.toml --results $here/whitened.jsonl -o study/washed/whitened --resume \
      "${text[@]}" --limit 20000 "${dev[@]}"
    sentcli train --sweep $here/words.toml --results $here/words.jsonl -o study/washed/words --resume \
      -m minilm "${text[@]}" "${dev[@]}"
    ;;
  choose) ln -sfn "$($study choose)" study/washed/start ;;
  rates | methods | others | effects | lengths) sweep "$step" "${text[@]}" ;;
  second-wash)                # a second one of the length that was chosen
    wash "$(readlink study/washed/start | tr -dc 0-9)" 2 wash-second
    sentcli train --sweep $here/raw-second.toml --results $here/raw.jsonl -o study/washed/raw --resume "${dev[@]}"
    sweep second-wash "${text[@]}"
    ;;
  controls)
    sweep controls "${text[@]}"
    [[ -f study/washed/random-pairs.csv ]] ||
      $study pair-randomly study/washed/random-pairs.csv "$corpus/wiki.txt" "${general[@]}"
    sweep random-pairs --data study/washed/random-pairs.csv
    ;;
  doses)                      # sentcli-bert-mini after a quarter of a pass over its text, after one, two and four
    [[ -d $mini ]] || python models/sentcli-bert-mini/make.py prepare "$corpus" $mini
    printf '%s\n' "${doses[@]}" | xargs -n 1 -P "${JOBS:-1}" bash $here/run.sh dose
    seq "${JOBS:-1}" | xargs -n 1 -P "${JOBS:-1}" bash $here/run.sh dose-runs
    models=(-m sentcli-bert-mini)
    for steps in "${doses[@]}"; do models+=(-m $mini-$steps); done
    for pooling in cls mean first-last-avg; do
      sentcli analyze similarity "${models[@]}" --split dev --pooling $pooling --data "$SENTCLI_DATA/senteval" \
        -o study/washed/doses-$pooling --overwrite
      cp study/washed/doses-$pooling/follows.csv $here/doses-$pooling.csv
    done
    ;;
  dose)                       # of the given number of steps
    sentcli train --method mlm -m $mini/start --data $mini/train.txt --eval-text $mini/held-out.txt --batch-size 128 \
      --max-steps "$2" --learning-rate 1e-3 --set warmup_share=0.05 --set precision=bf16 --eval-every 500 \
      --save-every 1000 -o "$mini-$2" --json "$here/mini-$2.json" --resume
    ;;
  dose-runs) sweep doses "${text[@]}" ;;
  scores)                     # the seven STS tasks and STS-B's pairs as a retrieval set, of every model that has none
    mapfile -t models < <($study models)
    ((${#models[@]} > 1)) || exit 0
    sentcli sts-eval "${models[@]}" --data "$SENTCLI_DATA/senteval" --json study/washed/sts.json
    sentcli retrieve "${models[@]}" --in-domain "$SENTCLI_DATA/senteval/STS/STSBenchmark/sts-test.csv" \
      --json study/washed/in-domain.json
    $study keep study/washed/sts.json study/washed/in-domain.json
    ;;
  further)                    # seven transfer tasks and the geometry, of one seed of each method that has none
    mapfile -t models < <($study models --further)
    ((${#models[@]} > 1)) || exit 0
    sentcli senteval "${models[@]}" --data "$SENTCLI_DATA/senteval" --protocol fast --json study/washed/transfer.json
    sentcli analyze geometry "${models[@]}" --data "$SENTCLI_DATA/senteval" --no-sts -o study/washed/geometry --overwrite
    $study keep-further study/washed/transfer.json study/washed/geometry/geometry.csv
    ;;
  compare) $study compare > $here/compared.json ;;
  *)
    echo "no step $step" >&2
    exit 2
    ;;
esac
