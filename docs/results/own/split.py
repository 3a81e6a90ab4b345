"""Cut the data of the study of own data: ``python docs/results/own/split.py $SENTCLI_DATA DIR``.

Quora's duplicates, and the training splits of SICK and MRPC, are cut by text and not by row: rows that share a text,
also over other rows, stay in one file, so that no text of a dev or test file is in the training file.
"""

import csv
import random
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

Row = tuple[str, ...]
DATA, OUT = Path(sys.argv[1]), Path(sys.argv[2])


def read(*path: str) -> list[list[str]]:
    """Return the rows of a tab-separated file without its header."""
    with DATA.joinpath(*path).open(encoding="utf-8-sig", newline="") as handle:
        return list(csv.reader(handle, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]


def groups_of(rows: Sequence[Row], texts: int) -> list[list[Row]]:
    """Return groups of rows that share no text, in a fixed random order; the first `texts` columns are texts."""
    numbers: dict[str, int] = defaultdict(lambda: len(numbers))
    edges = np.array([[numbers[row[0]], numbers[text]] for row in rows for text in row[1:texts]])
    graph = coo_array((np.ones(len(edges)), edges.T), shape=(len(numbers), len(numbers)))
    _, component = connected_components(graph, directed=False)
    groups: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        groups[component[numbers[row[0]]]].append(row)
    ordered = list(groups.values())
    random.Random(0).shuffle(ordered)
    return ordered


def write(name: str, columns: Row, rows: Sequence[Row], texts: int = 2, **sizes: int) -> None:
    """Write parts of at least so many rows each, and the rest as the training file."""
    groups = groups_of(rows, texts)
    for part, size in (*sizes.items(), ("train", len(rows))):
        chosen: list[Row] = []
        while groups and len(chosen) < size:
            chosen += groups.pop()
        write_part(f"{name}-{part}.csv", columns, chosen)


def write_part(name: str, columns: Row, rows: Sequence[Row]) -> None:
    """Write a table."""
    with (OUT / name).open("w", encoding="utf-8", newline="") as handle:
        csv.writer(handle).writerows([columns, *rows])
    print(f"{name}: {len(rows)} rows")


def sick_triplets() -> list[Row]:
    """Return sentences with one that they entail, and the least related of those that they do not."""
    entailed, others = defaultdict(list), defaultdict(list)
    for _, first, second, score, judgement in read("senteval", "SICK", "SICK_train.txt"):
        (entailed if judgement == "ENTAILMENT" else others)[first].append((float(score), second))
        if judgement != "ENTAILMENT":
            others[second].append((float(score), first))
    both = sorted(entailed.keys() & others.keys())
    return [(anchor, max(entailed[anchor])[1], min(others[anchor])[1]) for anchor in both]


def mrpc(split: str) -> list[Row]:
    """Return the pairs and labels of a split."""
    return [(row[3], row[4], row[0]) for row in read("senteval", "MRPC", f"msr_paraphrase_{split}.txt")]


OUT.mkdir(parents=True, exist_ok=True)
QUORA = [(row[1], row[2]) for row in read("pairs", "quora_pairs.tsv") if row[1] != row[2]]
LABELLED = ("sentence1", "sentence2", "label")
write("quora", ("anchor", "positive"), QUORA, dev=1000, test=2000)
write("sick", ("anchor", "positive", "negative"), sick_triplets(), 3, dev=150, test=300)
write("mrpc", LABELLED, mrpc("train"), dev=500)
write_part("mrpc-test.csv", LABELLED, mrpc("test"))
