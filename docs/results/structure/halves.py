"""Cut the queries of a retrieval set in two halves: ``python halves.py $SENTCLI_DATA/retrieval DIR``.

The ids of the first half of each set stand in ``halves.json``; where a set is not in it, its judged queries are drawn
and added. ``DIR/SET-a`` and ``DIR/SET-b`` are sets in BEIR layout on the same corpus.
"""

import csv
import json
import random
import sys
from pathlib import Path

SETS = ("scifact", "cranfield", "cacm")
DATA, OUT = Path(sys.argv[1]), Path(sys.argv[2])
KEPT = Path(__file__).with_name("halves.json")
halves: dict[str, list[str]] = json.loads(KEPT.read_text()) if KEPT.exists() else {}

for name in SETS:
    with (DATA / name / "qrels" / "test.tsv").open(newline="") as handle:
        header, *judgements = csv.reader(handle, delimiter="\t")
    judged = sorted({row[0] for row in judgements})
    first = set(halves.setdefault(name, sorted(random.Random(0).sample(judged, len(judged) // 2))))
    for half in "ab":
        folder = OUT / f"{name}-{half}"
        (folder / "qrels").mkdir(parents=True)
        for file in ("corpus.jsonl", "queries.jsonl"):
            (folder / file).symlink_to((DATA / name / file).resolve())
        rows = [row for row in judgements if (row[0] in first) == (half == "a")]
        with (folder / "qrels" / "test.tsv").open("w", newline="") as handle:
            csv.writer(handle, delimiter="\t").writerows([header, *rows])
        print(f"{name}-{half}: {len({row[0] for row in rows})} queries, {len(rows)} judgements")
KEPT.write_text(json.dumps(halves, indent=1) + "\n")
