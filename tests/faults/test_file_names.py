"""Files whose names are no UTF-8, as file systems of Linux allow, are read, and what is written of them is text."""

import json
import shutil

import pytest

from tests.conftest import WORDS

NOUNS = WORDS[:36]
ROWS = [(f"the {noun} sat {number}", f"a {noun} ran {number}", number) for number, noun in enumerate(NOUNS)]
NAME = "b\udcff"
TEXT = "b\\udcff"
"""The name as JSON, pages and cards have it."""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A file of each kind and a set."""
    folder = tmp_path_factory.mktemp("names")
    tables = {
        "scored": ("sentence1,sentence2,score", [(one, two, number % 6) for one, two, number in ROWS]),
        "binary": ("sentence1,sentence2,label", [(one, two, number % 2) for one, two, number in ROWS]),
        "labels": ("text,label", [(one, number % 3) for one, _, number in ROWS]),
        "triplets": ("anchor,positive,negative", [(one, two, f"the river {number}") for one, two, number in ROWS]),
        "pairs": ("anchor,positive", [(one, two) for one, two, _ in ROWS]),
    }
    for kind, (header, rows) in tables.items():
        lines = [header, *(",".join(map(str, row)) for row in rows)]
        (folder / f"{NAME}-{kind}.csv").write_text("\n".join(lines) + "\n")
    (folder / f"{NAME}.txt").write_text("".join(f"the {noun} sat on the mat\n" for noun in NOUNS))
    (folder / f"{NAME}-set" / "qrels").mkdir(parents=True)
    documents = [{"_id": f"d{number}", "text": one} for one, _, number in ROWS]
    queries = [{"_id": f"q{number}", "text": two} for _, two, number in ROWS[:12]]
    for file, records in (("corpus", documents), ("queries", queries)):
        path = folder / f"{NAME}-set" / f"{file}.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    judged = "".join(f"q{number}\td{number}\t1\n" for number in range(12))
    (folder / f"{NAME}-set" / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
    return folder


@pytest.fixture
def here(inputs, tmp_path, monkeypatch):
    """The current folder, which has the files."""
    shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


SCORED = {
    **{kind: f"evaluate {NAME}-{kind}.csv" for kind in ("scored", "binary", "labels", "triplets", "pairs")},
    "set": f"evaluate {NAME}-set",
    "sts-eval": f"sts-eval --pairs {NAME}-scored.csv",
    "beir": f"retrieve --beir {NAME}-set",
    "in-domain": f"retrieve --in-domain {NAME}-scored.csv",
}


@pytest.mark.parametrize("command", SCORED.values(), ids=SCORED)
def test_scores_are_written_and_read_again(command, here, invoke, tiny_bert):
    invoke(*command.split(), "-m", tiny_bert, "--json", "scores.json", check=0)
    written = json.loads((here / "scores.json").read_text("utf-8"))
    assert TEXT in json.dumps(written, ensure_ascii=False).encode("utf-8").decode().replace("\\\\", "\\")
    invoke("report", "scores.json", "-o", "page.md", check=0)


@pytest.mark.slow
def test_a_study_is_trained_and_reported(here, invoke, tiny_bert):
    (here / "sweep.toml").write_text("[[grid]]\nbatch_size = [4, 8]\n")
    words = ["train", "--method", "simcse", "-m", tiny_bert, "--data", f"{NAME}.txt", "--dev", f"{NAME}-scored.csv"]
    words += ["--max-steps", 1, "--sweep", "sweep.toml", "-o", "study"]
    invoke(*words, check=0)
    done = invoke(*words, "--resume", check=0)
    assert "step 1" not in done.stderr, "a finished run was made again"
    invoke("analyze", "sweep", "study/results.jsonl", "-o", "sweep", check=0)
    invoke("report", "study", "-o", "page.html", check=0)


@pytest.mark.slow
def test_a_model_its_vectors_and_pages(here, invoke, tiny_bert):
    words = ["train", "--method", "simcse", "-m", tiny_bert, "--data", f"{NAME}.txt", "--max-steps", 1, "-o", "model"]
    invoke(*words, "--batch-size", 4, check=0)
    assert f"{TEXT}.txt" in (here / "model" / "README.md").read_text("utf-8")
    invoke("encode", f"{NAME}.txt", "-m", "model", "-o", "vectors", check=0)
    invoke("encode", f"{NAME}.txt", "-m", "model", "-o", "vectors", "--update", check=0)
    invoke("index", "vectors", "--type", "hnsw", check=0)
    invoke("report", "model", "--texts", f"{NAME}.txt", "-o", "page.html", check=0)
    invoke("analyze", "duplicates", f"{NAME}.txt", "-m", "model", "-o", "duplicates", check=0)
    invoke("analyze", "similarity", "--pairs", f"{NAME}-scored.csv", "-m", "model", "-o", "similarity", check=0)
