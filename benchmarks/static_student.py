"""A static student of MiniLM: what it finds and how fast it is, beside its teacher and model2vec's own distillation.

    pip install "model2vec==0.10.0" "skeletoken<0.7"
    SENTCLI_DATA=... python benchmarks/static_student.py --work FOLDER [--sets cranfield,npl,scifact] [--wiki-lines N]

The text of a set is its documents, whole and cut into sentences, one a line; with --wiki-lines, another student learns
from lines of ``wiki.txt``, which has nothing of any set. model2vec distils the same teacher with its defaults. All are
scored by ``sentcli evaluate`` on the same queries, so that the intervals are those of paired differences; a model that
is in FOLDER already is not made again.

Claims: nDCG@10, mean of the sets: 0.06 above model2vec, and 80 % of the teacher's; 50 x the teacher's speed.
"""

import argparse
import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

from common import data_folder, machine, seconds

import sentcli
from sentcli import SentenceEncoder
from sentcli.zoo import resolve

TEACHER = "minilm"
OWN, WIKI, PEER = "static, own documents", "static, wiki.txt", "model2vec"
SPEED_LINES = 2_000
"""The lines of wiki.txt whose encoding is timed."""


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


def text_file(work: Path, name: str, lines: list[str]) -> Path:
    """Write lines into a file of the folder."""
    path = work / f"{name}.txt"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def peer_model(work: Path) -> Path:
    """Return the folder of model2vec's distillation."""
    folder = work / PEER
    if not folder.exists():
        from model2vec.distill import distill

        distill(str(resolve(TEACHER)[0]), device="cpu").save_pretrained(str(folder))
    return folder


def student(work: Path, name: str, text: Path, settings: list[str]) -> Path:
    """Train a student on a text; one that is there is taken as it is."""
    folder = work / f"student-{name}"
    if not (folder / "model.safetensors").exists():
        sentcli.train(
            folder,
            method="static",
            teacher=[TEACHER],
            data=[str(text)],
            set=settings,
            resume=True,
            save_every=0,
            quiet=True,
        )
    return folder


def found(models: dict[str, Path | str], files: list[Path]) -> dict[str, dict[str, Any]]:
    """Return the scores of each model on each file, and under ``less`` what it has more than model2vec."""
    names = [str(model) for model in models.values()]
    documents = sentcli.evaluate([str(file) for file in files], model=names, quiet=True).to_dict()
    by_name = {document["model"]: document for document in documents}
    rows: dict[str, dict[str, Any]] = {}
    for label, name in zip(models, names, strict=True):
        document = by_name[name]
        rows[label] = {**document["results"], "less": document.get("compared", {}).get("tasks", {})}
    return rows


def encoding_seconds(models: dict[str, Path | str], texts: list[str], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each model for the same texts, in turn; model2vec encodes by itself."""
    from model2vec import StaticModel

    work: dict[str, Callable[[], object]] = {}
    for label, model in models.items():
        if label == PEER:
            peer = StaticModel.from_pretrained(str(model))
            work[label] = partial(peer.encode, texts, use_multiprocessing=False)
        else:
            work[label] = partial(SentenceEncoder.load(str(model)).encode, texts)
    times: dict[str, list[float]] = {label: [] for label in work}
    for _ in range(rounds):
        for label, encode in work.items():
            times[label].append(seconds(encode))
    return times


def retrieval_rows(sets: list[Path], models: dict[str, dict[str, Path | str]]) -> dict[str, list[float]]:
    """Print a row for each set and model, and return nDCG@10 of each model on all sets."""
    print("| set | model | nDCG@10 | above model2vec (95 %) | of the teacher's |\n|---|---|---|---|---|")
    values: dict[str, list[float]] = {}
    for folder in sets:
        rows = found(models[folder.name], [folder])
        teacher = rows[TEACHER][folder.name]["value"]
        for label, row in rows.items():
            value = row[folder.name]["value"]
            values.setdefault(label, []).append(value)
            cell = ""
            if row["less"]:
                less = row["less"][folder.name]
                cell = f"{less['difference']:+.3f} ({less['low']:+.3f} to {less['high']:+.3f})"
            print(f"| {folder.name} | {label} | {value:.4f} | {cell} | {value / teacher:.0%} |", flush=True)
    return values


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--sets", default="cranfield,npl,scifact")
    parser.add_argument("--wiki-lines", type=int, default=0, help="of wiki.txt; 0 leaves the row out")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--train-only", action="store_true")
    options = parser.parse_args()
    work, data = options.work, data_folder()
    work.mkdir(parents=True, exist_ok=True)
    print(machine(), flush=True)
    peer = peer_model(work)
    sets = [data / "retrieval" / name for name in options.sets.split(",") if name]
    shared: dict[str, Path | str] = {PEER: peer, TEACHER: TEACHER}
    if options.wiki_lines:
        lines = (data / "corpus" / "wiki.txt").read_text("utf-8").splitlines()[: options.wiki_lines]
        shared[WIKI] = student(work, "wiki", text_file(work, "wiki", lines), options.set)
    models = {}
    for folder in sets:
        text = text_file(work, folder.name, lines_of(folder))
        models[folder.name] = {**shared, OWN: student(work, folder.name, text, options.set)}
    if options.train_only:
        return
    values = retrieval_rows(sets, models)
    means = {label: mean(row) for label, row in values.items()}
    for label, value in means.items():
        more, share = value - means[PEER], value / means[TEACHER]
        print(f"| mean | {label} | {value:.4f} | {more:+.3f} | {share:.0%} |")
    every: dict[str, Path | str] = dict(shared)
    for folder in sets:
        every[f"{OWN} of {folder.name}"] = models[folder.name][OWN]
    folder = data / "senteval" / "STS" / "STSBenchmark"
    files = [folder / "sts-dev.csv", folder / "sts-test.csv"]
    texts = (data / "corpus" / "wiki.txt").read_text("utf-8").splitlines()[:SPEED_LINES]
    times = encoding_seconds(every, texts, options.rounds)
    print("\n| model | STS-B dev | STS-B test | x the teacher's speed |\n|---|---|---|---|")
    for label, row in found(every, files).items():
        ratio = median(slow / fast for slow, fast in zip(times[TEACHER], times[label], strict=True))
        cells = " | ".join(f"{row[file.name]['value']:.2f}" for file in files)
        print(f"| {label} | {cells} | {ratio:.1f} |", flush=True)


if __name__ == "__main__":
    main()
