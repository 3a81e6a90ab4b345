"""A positive stays the text that the user gave; what only looks like it is a copy, which is no negative of it."""

import json

import pytest

pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")

PAIRS = [
    ("how large is the table", "Die Maße des Tisches"),
    ("two to the third", "2³ is the result"),
    ("two to the third", "23 is the result"),
    ("which unit", "Set API_KEY  in upper case"),
    ("in the corpus", "the cat sat on the mat"),
]
COPIES = ["Die Masse des Tisches", "23 is the result", "set api_key in upper case", "the cat sat on the mat"]


@pytest.mark.slow
@pytest.mark.parametrize("search", ["dense", "bm25"])
def test_a_positive_stays_what_it_was_and_its_copies_are_no_negatives(invoke, tiny_bert, tmp_path, search):
    pairs, corpus, output = (tmp_path / name for name in ("pairs.jsonl", "corpus.jsonl", "mined.jsonl"))
    pairs.write_text("".join(json.dumps({"question": q, "answer": a}) + "\n" for q, a in PAIRS))
    texts = [*COPIES, *(f"the dog {number} ran in upper case to two tables in the corpus" for number in range(20))]
    corpus.write_text("".join(json.dumps({"id": f"d{n}", "text": text}) + "\n" for n, text in enumerate(texts)))
    options = ("--pair-fields", "question,answer", "--ranks", "1-24", "--negatives", "2", "--search", search)
    loose = ("--below", "1", "--near", "1", "--backend", "torch")
    invoke("data", "mine", pairs, "--corpus", corpus, "-m", tiny_bert, "-o", output, *options, *loose, check=0)
    rows = list(map(json.loads, output.read_text().splitlines()))
    found = [(row["anchor"], row["positive"]) for row in rows]
    assert found and set(found) <= set(PAIRS) and len(set(found)) == len(found)
    if search == "dense":
        assert sorted(found) == sorted(PAIRS)
    ids = {row["positive"]: row["positive_id"] for row in rows}
    assert {text for text, key in ids.items() if key is not None} <= {"23 is the result", "the cat sat on the mat"}
    for row in rows:
        own_copies = {"Die Maße des Tisches": "d0", "2³ is the result": "d1", "23 is the result": "d1"}
        own_copies |= {"Set API_KEY  in upper case": "d2", "the cat sat on the mat": "d3"}
        assert own_copies[row["positive"]] not in row["negative_ids"]
