"""A static student of MiniLM: what it finds and how fast it is, beside its teacher and model2vec's own distillation.

    pip install "model2vec==0.10.0" "skeletoken<0.7"
    SENTCLI_DATA=... python benchmarks/static_student.py --work FOLDER [--sets cranfield,npl,scifact] [--text own,wiki]

The text of a set is its documents, whole and cut into sentences, one a line; the second row of a set learnt from
``wiki.txt``, which has nothing of it. model2vec distils the same teacher with its defaults. All are scored by
``sentcli evaluate`` on the same queries, so that the intervals are those of paired differences; a model that is in
FOLDER already is not made again.

Claims: nDCG@10, mean of the sets: 0.06 above model2vec, and 80 % of the teacher's; 50 x the teacher's speed.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

from common import data_folder, machine, report_pairs, seconds

import sentcli
from sentcli import SentenceEncoder
from sentcli.zoo import resolve

TEACHER = "minilm"
OWN, WIKI, PEER = "own documents", "wiki.txt", "model2vec"
FOLDERS = {"own": OWN, "wiki": WIKI}


def lines_of(folder: Path) -> list[str]:
    """Return the documents of a set, whole and cut into sentences."""
    lines: dict[str, None] = {}
    for row in (folder / "corpus.jsonl").read_text("utf-8").splitlines():
        document = json.loads(row)
        parts = [document.get("title") or "", *re.split(r"(?<=[.!?])\s+", document["text"])]
        lines[" ".join(" ".join(parts).split())] = None
        for part in parts:
            lines[" ".join(part.split())] = None
    return [line for line in lines if line]


def peer_model(work: Path) -> Path:
    """Return the folder of model2vec's distillation."""
    folder = work / PEER
    if not folder.exists():
        from model2vec.distill import distill

        distill(str(resolve(TEACHER)[0]), device="cpu").save_pretrained(str(folder))
    return folder


def student(work: Path, name: str, text: Path, settings: list[str]) -> Path:
    """Train a student on a text; one that is finished is taken as it is."""
    folder = work / f"student-{name}"
    sentcli.train(
        folder, method="static", teacher=[TEACHER], data=[str(text)], set=settings, resume=True, save_every=0, quiet=True
    )
    return folder


def scores(models: dict[str, Path | str], folder: Path) -> dict[str, Any]:
    """Return nDCG@10 of each model, and its difference from model2vec's with 95 % from and to."""
    names = [str(model) for model in models.values()]
    documents = sentcli.evaluate([str(folder)], model=names, quiet=True).to_dict()
    found = {}
    for label, name in zip(models, names, strict=True):
        (document,) = [part for part in documents if part["model"] == name]
        found[label] = document["results"][folder.name]
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--sets", default="cranfield,npl,scifact")
    parser.add_argument("--text", default="own,wiki")
    parser.add_argument("--set", action="append", default=[])
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    print(machine(), flush=True)
    print(json.dumps(options.set))
    for name in options.sets.split(","):
        folder = data_folder() / "retrieval" / name
        text = options.work / f"{name}.txt"
        text.write_text("\n".join(lines_of(folder)) + "\n", "utf-8")
        print(name, student(options.work, name, text, options.set), flush=True)


if __name__ == "__main__":
    main()
