"""Small retrieval sets in BEIR layout."""

import json

import pytest

CORPUS = [
    {"_id": "d1", "title": "Cat", "text": "the cat sat on the mat"},
    {"_id": "d2", "title": "", "text": "a red fish swam"},
    {"_id": "d3", "text": "the old man sees a bird"},
    {"_id": "q1", "title": None, "text": "big dog"},
    {"_id": 5, "title": "Tree", "text": ""},
]
QUERIES = [
    {"_id": "q1", "text": "big dog"},
    {"_id": "q2", "text": "the red fish"},
    {"_id": "unjudged", "text": "house"},
]
QRELS = "query-id\tcorpus-id\tscore\nq1\tq1\t1\nq1\td1\t2\nq2\td2\t1\nq2\td3\t0\n"


def write_set(folder, corpus=CORPUS, queries=QUERIES, qrels=QRELS, split="test"):
    """Write a BEIR folder; parts given as None are left out."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for part, rows in (("corpus", corpus), ("queries", queries)):
        if rows is not None:
            lines = rows if isinstance(rows, str) else "".join(json.dumps(row) + "\n" for row in rows)
            (folder / f"{part}.jsonl").write_text(lines, "utf-8")
    if qrels is not None:
        (folder / "qrels" / f"{split}.tsv").write_text(qrels, "utf-8")
    return folder


@pytest.fixture
def make_set(tmp_path):
    """Write a set below the test's folder; see `write_set`."""
    return lambda name="tiny", **parts: write_set(tmp_path / name, **parts)
