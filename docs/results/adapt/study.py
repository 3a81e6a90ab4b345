"""What ``run.sh parts`` of this folder computes: each part of adapt alone, on the sets that are named."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from sentcli import console
from sentcli.adapting.candidates import CONTRAST, HELD, READ, Candidate
from sentcli.adapting.folder import work_folder
from sentcli.adapting.material import Material, in_memory, read_material
from sentcli.adapting.options import AdaptOptions
from sentcli.adapting.work import Work
from sentcli.evaluation.retrieval import RetrievalSet
from sentcli.evaluation.retrieval_tasks import RetrievalTask
from sentcli.evaluation.significance import RESAMPLES
from sentcli.migrating.sets import given_set

HERE = Path(__file__).parent
DATA = Path(os.environ.get("SENTCLI_DATA", "")) / "retrieval"
PARTS = HERE / "parts.jsonl"
STEPS = 20
"""The steps of each training."""
POWER = 0.5
"""The power of the idf in the weights of tokens."""
METRIC = "ndcg@10"
WITHOUT_QUERIES = ("npl",)
"""The sets of whose documents no query can be made: each is one sentence without a title."""


def without_negatives(rows: Path) -> Path:
    """Write the rows of training without their negatives, and return the file."""
    path = rows.with_name("rows-pairs.jsonl")
    lines = []
    for line in rows.read_text().splitlines():
        row = json.loads(line)
        del row["negative"]
        lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    path.write_text("".join(lines))
    return path


def read(name: str, judged: RetrievalSet, place: Path) -> Material:
    """Return the queries of training that are made of the documents of a set, or its documents alone."""
    if name in WITHOUT_QUERIES:
        return Material(tuple(judged.texts()), (), (), judged, judged, 0, {}, judged.digest)
    folder = f"{DATA / name}"
    return read_material([folder], AdaptOptions(dev=folder), place)


def trained(work: Work) -> dict[str, str]:
    """Train each part from the start, and return the folder of each model."""
    rows, _ = work.triplets(work.start)

    def model(candidate: Candidate, data: Path) -> str:
        start = work.start
        if candidate.reads_first:
            start = work.train(work.reading_request(start, STEPS), "language modelling")
        request = work.request(candidate, start, work.start, data, candidate.name.replace(" ", "-"), STEPS)
        return work.train(request, candidate.name)

    return {
        "structure": model(replace(CONTRAST, name="structure"), without_negatives(rows)),
        "mined negatives": model(CONTRAST, rows),
        "margins": model(HELD, rows),
        "language modelling": model(READ, rows),
    }


def run_parts(name: str) -> None:
    """Change all-MiniLM-L6-v2 by each part with the documents of a set, and keep the scores of all judged queries.

    Training and scores are in bf16 where the processor computes in it, as adapt trains and chooses.
    """
    folder = f"{DATA / name}"
    judged = given_set(folder)
    output = Path("study") / "adapt" / f"{name}-parts"
    with work_folder(output, [folder], [], resume=True, overwrite=True) as place:
        material = read(name, judged, place)
        work = Work("minilm", material, place)
        models = {"start": work.start, "weights of tokens": work.weighted(POWER)}
        if material.queries:
            models |= trained(work)
        task = RetrievalTask.of_own(name, in_memory(judged), RESAMPLES)
        records = []
        for part, model in models.items():
            (score,) = work.score(model, [task], work.precision)
            values = np.round(score.item_values[METRIC], 5).tolist()
            records.append({"set": name, "part": part, "steps": STEPS, "values": values})
            console.note(f"{name}, {part}: {score.value:.4f}")
        append(records)


def finished() -> set[str]:
    """Return the names of the sets that are in the results."""
    if not PARTS.exists():
        return set()
    return {json.loads(line)["set"] for line in PARTS.read_text().splitlines()}


def append(records: list[dict]) -> None:
    """Add records to the results."""
    with PARTS.open("a") as handle:
        handle.writelines(json.dumps(record) + "\n" for record in records)


if __name__ == "__main__":
    for wanted in sys.argv[1:]:
        if wanted not in finished():
            run_parts(wanted)
