"""What `run.sh` of this folder computes: ``parts SET...`` trains each part alone, ``powers SET...`` weights tokens."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from sentcli import SentenceEncoder, console
from sentcli.adapting.candidates import CONTRAST, HELD, READ, Candidate
from sentcli.adapting.folder import work_folder
from sentcli.adapting.material import in_memory, read_material
from sentcli.adapting.options import AdaptOptions
from sentcli.adapting.token_weights import POWERS, inverse_document_frequencies, write_weighted
from sentcli.adapting.work import Work
from sentcli.corpora.move_set import given_set
from sentcli.evaluation.retrieval import RetrievalSet
from sentcli.evaluation.retrieval_tasks import RetrievalTask, score_run
from sentcli.evaluation.significance import RESAMPLES

HERE = Path(__file__).parent
DATA = Path(os.environ.get("SENTCLI_DATA", "")) / "retrieval"
PARTS = HERE / "parts.jsonl"
POWERS_FILE = HERE / "powers.jsonl"
STEPS = 40
"""The steps of each training."""
POWER = 0.5
"""The power of the idf in the weights of tokens."""
METRIC = "ndcg@10"
DEPTH = 100
"""The first documents that are scored."""


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


def run_parts(name: str) -> None:
    """Train each part from all-MiniLM-L6-v2 on the documents of a set, and keep the scores of all judged queries."""
    folder = f"{DATA / name}"
    judged = given_set(folder)
    options = AdaptOptions(dev=folder)
    output = Path("study") / "adapt" / f"{name}-parts"
    with work_folder(output, [folder], [], resume=True, overwrite=True) as place:
        material = read_material([folder], options, place)
        work = Work("minilm", material, place, "auto", None, options.seed)
        task = RetrievalTask.of_own(name, in_memory(judged), RESAMPLES)
        rows, count = work.triplets(work.start)
        pairs = without_negatives(rows)
        structure = replace(CONTRAST, name="structure")

        def trained(candidate: Candidate, number: int, data: Path) -> str:
            start = work.start
            if candidate.reads_first:
                start = work.train(work.reading_request(start, STEPS), "language modelling")
            request = work.request(candidate, start, work.start, data, f"first-{number}", STEPS)
            return work.train(request, candidate.name)

        models = {
            "start": work.start,
            "weights of tokens": work.weighted(POWER),
            "structure": trained(structure, 0, pairs),
            "mined negatives": trained(CONTRAST, 1, rows),
            "margins": trained(HELD, 2, rows),
            "language modelling": trained(READ, 3, rows),
        }
        records = []
        for part, model in models.items():
            (score,) = work.score(model, [task])
            values = np.round(score.item_values[METRIC], 5).tolist()
            records.append({"set": name, "part": part, "rows": count, "steps": STEPS, "values": values})
            console.note(f"{name}, {part}: {score.value:.4f}")
        append(PARTS, records)


def parts(names: list[str]) -> None:
    """Run the parts on the sets that are not yet in the results."""
    done = {record["set"] for record in read(PARTS)}
    for name in names:
        if name not in done:
            run_parts(name)


def powers(names: list[str]) -> None:
    """Score the weights of tokens at each power, in queries, documents and both, on the sets not yet in the results."""
    done = {record["set"] for record in read(POWERS_FILE)}
    for name in names:
        if name not in done:
            run_powers(name)


def run_powers(name: str) -> None:
    """Search a set with the vectors of the start and of its weightings on either side."""
    judged = given_set(f"{DATA / name}")
    texts = list(judged.queries.values())
    documents = list(judged.texts())
    queries_of, documents_of = {}, {}
    start = SentenceEncoder.load("minilm", backend="torch")
    rarities = inverse_document_frequencies(start, documents)
    with TemporaryDirectory() as folder:
        for power in (0.0, *POWERS):
            place = Path(folder) / f"{power:g}"
            write_weighted("minilm", rarities, power, place)
            encoder = SentenceEncoder.load(place, backend="torch")
            queries_of[power] = encoder.encode(texts)
            documents_of[power] = encoder.encode(documents, progress=True)
    records = []
    for power in (0.0, *POWERS):
        for side, pair in (("both", (power, power)), ("queries", (power, 0.0)), ("documents", (0.0, power))):
            run = nearest(judged, queries_of[pair[0]], documents_of[pair[1]])
            values = np.round(score_run(judged, run, DEPTH).item_values[METRIC], 5).tolist()
            records.append({"set": name, "power": power, "side": side, "values": values})
            console.note(f"{name}, power {power:g}, {side}: {np.mean(values):.4f}")
    append(POWERS_FILE, records)


def nearest(judged: RetrievalSet, queries: np.ndarray, documents: np.ndarray) -> dict[str, dict[str, float]]:
    """Return the similarities of the first documents of each query."""
    run = {}
    for query, vector in zip(judged.queries, queries, strict=True):
        similarities = documents @ vector
        first = np.argsort(-similarities, kind="stable")[:DEPTH]
        run[query] = {judged.ids[row]: float(similarities[row]) for row in first}
    return run


def read(path: Path) -> list[dict]:
    """Return the records of a file; none if there is no such file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def append(path: Path, records: list[dict]) -> None:
    """Add records to a file."""
    with path.open("a") as handle:
        handle.writelines(json.dumps(record) + "\n" for record in records)


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    {"parts": parts, "powers": powers}[command](arguments)
