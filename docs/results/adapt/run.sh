#!/usr/bin/env bash
# The study of adapt, docs/studies/adapting.md: run.sh STEP, one of adapt, parts. A step may be interrupted and
# goes on. The models go to study/adapt/, the results beside this file. SETS names some of the sets; BUDGET is adapt's.
# The budget is measured: nothing else may run beside it.
set -euo pipefail
cd "$(dirname "$0")/../../.."
here=docs/results/adapt
mkdir -p study
ln -sfn "$SENTCLI_DATA" study/data   # so that the results name no folder of this machine
export SENTCLI_CACHE=$PWD/study/cache   # what other commands have kept would make a run shorter
data=study/data/retrieval
keep=study/data/senteval/STS/STSBenchmark/sts-dev.csv
sets=${SETS:-time cacm cranfield lisa negconstraint scifact npl}

# adapt refuses npl, of whose documents no query can be made: each is one sentence without a title.
case $1 in
  adapt)
    for set in $sets; do
      [[ -s $here/$set.json || $set == npl ]] && continue
      resume=()
      [[ -d study/adapt/$set.adapting ]] && resume=(--resume)
      status=0
      sentcli adapt "$data/$set" -m minilm -o "study/adapt/$set" --dev "$data/$set" --keep "$keep" \
        --budget "${BUDGET:-15m}" --json "$here/$set.json" "${resume[@]}" || status=$?
      [[ $status == 0 || $status == 3 ]]   # 3: the start is kept
    done
    ;;
  parts) python $here/study.py $sets ;;
esac
