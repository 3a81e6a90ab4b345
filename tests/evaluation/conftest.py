"""Small retrieval sets in BEIR layout, and the files of the transfer tasks."""

import json

import pytest

from sentcli.evaluation import transfer_data
from sentcli.evaluation.scores import ModelScores, TaskScore

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


def write_downstream(folder):
    """Write a small SentEval ``downstream`` folder with every task, and return it."""

    def write(name, text, encoding="utf-8"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode(encoding))

    good = [f"a good , fine film {'very ' * (n % 5)}number {n}" for n in range(40)]
    bad = [f"a bad and dull one {'most ' * (n % 7)}number {n}" for n in range(40)]
    for name, (positive, negative) in {
        "MR": ("rt-polarity.pos", "rt-polarity.neg"),
        "CR": ("custrev.pos", "custrev.neg"),
        "SUBJ": ("subj.objective", "subj.subjective"),
        "MPQA": ("mpqa.pos", "mpqa.neg"),
    }.items():
        write(f"{name}/{positive}", "\n".join([*good, "caf\xe9 \x85 au lait", ""]) + "\n", "latin-1")
        write(f"{name}/{negative}", "\n".join(bad) + "\n", "latin-1")
    classes = transfer_data.LAYOUTS["TREC"].classes
    questions = "".join(f"{c}:x what is the {c.lower()} of {n} ?\n" for n in range(12) for c in classes)
    write("TREC/train_5500.label", questions, "latin-1")
    write("TREC/TREC_10.label", questions[: questions.index("\n", 900) + 1], "latin-1")
    for split in ("train", "dev", "test"):
        write(f"SST/binary/sentiment-{split}", "".join(f"{g}\t1\n{b}\t0\n" for g, b in zip(good, bad, strict=True)))
        write(f"SST/fine/sentiment-{split}", "".join(f"{n % 5} {text}\n" for n, text in enumerate(good + bad)))
    pairs = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n" + "".join(
        f"{n % 2}\t{n}\t{n}\t{good[n]}\t{(good if n % 2 else bad)[n]}\n" for n in range(40)
    )
    for split in ("train", "test"):
        write(f"MRPC/msr_paraphrase_{split}.txt", "\ufeff" + pairs)
    sick = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n" + "".join(
        f"{n}\t{good[n]}\t{bad[n]}\t3.2\t{transfer_data.LAYOUTS['SICKEntailment'].classes[n % 3]}\n" for n in range(40)
    )
    for name in ("SICK_train.txt", "SICK_trial.txt", "SICK_test_annotated.txt"):
        write(f"SICK/{name}", sick)
    return folder


def scored_model(kind, scores, intervals=None, environment=None, model="a"):
    """The scores of a model on tasks of a kind, with intervals by task."""
    tasks = []
    for task, value in scores.items():
        of_task = {kind.main: intervals[task]} if task in (intervals or {}) else {}
        tasks.append(TaskScore(task, kind.name, {kind.main: value}, (kind.main,), intervals=of_task))
    return ModelScores(kind.command, model, {}, tuple(tasks), environment or {})
