"""Small real inputs of the frozen commands, cut from the data that `SENTCLI_DATA` names, and one tiny model."""

from __future__ import annotations

import csv
import itertools
import json
import shutil
from pathlib import Path

from tests.conftest import save_backbone

STS = "STS/STSBenchmark"
TEXTS = 400
PAIRS = 120
SWEEP = """
[[grid]]
method = ["simcse", "informin-cl"]
fraction = [0.5, 1.0]
"""


def write_inputs(data: Path, folder: Path) -> None:
    """Write what the commands read into a folder: texts, tables of every kind, retrieval sets, STS-B, CR and a model.

    Args:
        data: the folder that `SENTCLI_DATA` names.
        folder: an empty folder.
    """
    texts = _texts(data)
    (folder / "texts.txt").write_text("\n".join(texts) + "\n", "utf-8")
    _write_rows(folder / "rows.csv", texts)
    with (folder / "holes.jsonl").open("w", encoding="utf-8") as file:
        for number, text in enumerate(texts[:30]):
            row = {"id": f"r{number}", "text": None if number % 7 == 3 else text, "year": 1990 + number % 5}
            file.write(json.dumps(row) + "\n")
    _write_pairs(data, folder, texts)
    _write_set(data / "retrieval" / "scifact", folder / "scifact", 25)
    _write_set(data / "retrieval" / "cacm", folder / "cacm", 25)
    for task in (STS, "CR", "TREC"):
        shutil.copytree(data / "senteval" / task, folder / "senteval" / task)
    (folder / "sweep.toml").write_text(SWEEP, "utf-8")
    save_backbone(folder / "tiny")


def _texts(data: Path) -> list[str]:
    with (data / "corpus" / "wiki.txt").open(encoding="utf-8") as file:
        lines = (line.strip() for line in file)
        return list(itertools.islice((line for line in lines if line), TEXTS))


def _write_rows(path: Path, texts: list[str]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "text", "topic", "year", "price"])
        for number, text in enumerate(texts):
            writer.writerow([f"doc{number}", text, ["art", "law", "sea"][number % 3], 1990 + number % 20, number / 4])


def _write_pairs(data: Path, folder: Path, texts: list[str]) -> None:
    """Write one table for each kind of labelled data."""
    rows = (data / "senteval" / STS / "sts-dev.csv").read_text("utf-8").splitlines()[:PAIRS]
    fields = [row.split("\t") for row in rows]
    tables = {
        "scored.tsv": (["sentence1", "sentence2", "score"], [[row[5], row[6], row[4]] for row in fields]),
        "binary.tsv": (
            ["sentence1", "sentence2", "label"],
            [[row[5], row[6], str(int(float(row[4]) >= 3))] for row in fields],
        ),
        "positives.tsv": (["anchor", "positive"], [[row[5], row[6]] for row in fields if float(row[4]) >= 3]),
        "triplets.tsv": (
            ["anchor", "positive", "negative"],
            [[row[5], row[6], text] for row, text in zip(fields, texts, strict=False)],
        ),
        "labels.tsv": (
            ["text", "label"],
            [[row[5], ["low", "middle", "high"][min(2, int(float(row[4]) // 2))]] for row in fields],
        ),
    }
    for name, (head, lines) in tables.items():
        body = "\n".join("\t".join(line) for line in [head, *lines])
        (folder / name).write_text(body + "\n", "utf-8")


def _write_set(source: Path, folder: Path, queries: int) -> None:
    """Write the first judged queries of a retrieval set with their documents and as many others."""
    head, *judgements = (source / "qrels" / "test.tsv").read_text("utf-8").splitlines()
    chosen = list(dict.fromkeys(line.split("\t")[0] for line in judgements))[:queries]
    judged = [line for line in judgements if line.split("\t")[0] in chosen]
    relevant = {line.split("\t")[1] for line in judged}
    (folder / "qrels").mkdir(parents=True)
    (folder / "qrels" / "test.tsv").write_text("\n".join([head, *judged]) + "\n", "utf-8")
    documents = (source / "corpus.jsonl").read_text("utf-8").splitlines()
    kept = [line for number, line in enumerate(documents) if number < 150 or json.loads(line)["_id"] in relevant]
    (folder / "corpus.jsonl").write_text("\n".join(kept) + "\n", "utf-8")
    lines = []
    for number, line in enumerate((source / "queries.jsonl").read_text("utf-8").splitlines()):
        query = json.loads(line)
        if query["_id"] in chosen:
            lines.append(json.dumps({**query, "language": ["en", "fr"][number % 2]}))
    (folder / "queries.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
