"""What `run.sh` of this folder computes beside the command: ``parts SET...`` trains each part alone, ``tables`` prints."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from sentcli import console
from sentcli.adapting.candidates import CONTRAST, HELD, READ, Candidate
from sentcli.adapting.folder import work_folder
from sentcli.adapting.material import in_memory, read_material
from sentcli.adapting.options import AdaptOptions
from sentcli.adapting.work import Work
from sentcli.corpora.move_set import given_set
from sentcli.evaluation import significance
from sentcli.evaluation.retrieval_tasks import RetrievalTask
from sentcli.evaluation.significance import RESAMPLES, holm, mean_replicates, paired_bootstrap

HERE = Path(__file__).parent
DATA = Path(os.environ.get("SENTCLI_DATA", "")) / "retrieval"
PARTS = HERE / "parts.jsonl"
STEPS = 40
"""The steps of each training."""
POWER = 0.5
"""The power of the idf in the weights of tokens."""
METRIC = "ndcg@10"
BEFORE = {
    "weights": "start",
    "structure": "start",
    "mined negatives": "structure",
    "margins": "mined negatives",
    "language modelling": "margins",
}
"""What each part is added to."""


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
            "weights": work.weighted(POWER),
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
        with PARTS.open("a") as handle:
            handle.writelines(json.dumps(record) + "\n" for record in records)


def parts(names: list[str]) -> None:
    """Run the parts on the sets that are not yet in the results."""
    done = {record["set"] for record in read_parts()}
    for name in names:
        if name not in done:
            run_parts(name)


def read_parts() -> list[dict]:
    """Return what is in `PARTS`."""
    if not PARTS.exists():
        return []
    return [json.loads(line) for line in PARTS.read_text().splitlines()]


def adaptations() -> dict[str, dict]:
    """Return the results of adapt by the name of the set."""
    found = {}
    for path in sorted(HERE.glob("*.json")):
        found[path.stem] = json.loads(path.read_text())
    return found


def pooled(differences: list[float], intervals: list[tuple[float, float]]) -> str:
    """Return the mean over sets with its 95 % interval, whose variance is that of the sets' intervals."""
    errors = [(high - low) / 2 for low, high in intervals]
    mean = sum(differences) / len(differences)
    error = sum(error**2 for error in errors) ** 0.5 / len(errors)
    return f"{mean:+.4f} ({mean - error:+.4f} to {mean + error:+.4f})"


def adapt_table() -> None:
    """Print what adapt did on each set."""
    print("| set | queries that judge | chosen | start | best | difference | smallest | STS-B dev | minutes | taken |")
    print("| --- | ---: | --- | ---: | ---: | --- | ---: | ---: | ---: | --- |")
    differences, intervals = [], []
    for name, record in adaptations().items():
        results = record["results"]
        low, high = results["interval"]
        differences.append(results["difference"])
        intervals.append((low, high))
        taken = "yes" if results["adopted"] else "no"
        cells = [name, str(results["queries"]), results["chosen"], f"{results['start']:.3f}", f"{results['value']:.3f}"]
        cells += [f"{results['difference']:+.4f} ({low:+.4f} to {high:+.4f})", f"{results['smallest']:.4f}"]
        cells += [f"{results['keep']['difference']:+.4f}", f"{record['seconds'] / 60:.0f}", taken]
        print(f"| {' | '.join(cells)} |")
    print(f"| mean of {len(differences)} |  |  |  |  | {pooled(differences, intervals)} |  |  |  |  |")


def parts_table() -> None:
    """Print what each part brings on each set, with p corrected for all of the table (Holm)."""
    values: dict[str, dict[str, np.ndarray]] = {}
    for record in read_parts():
        values.setdefault(record["set"], {})[record["part"]] = np.array(record["values"])
    compared = {}
    for name, of_part in values.items():
        for part, before in BEFORE.items():
            with_part, without = of_part[part], of_part[before]
            samples = mean_replicates(with_part), mean_replicates(without)
            compared[name, part] = paired_bootstrap(with_part.mean(), without.mean(), *samples)
    corrected = dict(zip(compared, holm([difference.p for difference in compared.values()]), strict=True))
    print(f"| part, added to | {' | '.join(values)} | mean |")
    print("| --- |" + " --- |" * (len(values) + 1))
    for part, before in BEFORE.items():
        cells = []
        for name in values:
            difference = compared[name, part]
            interval = f"({difference.low:+.3f} to {difference.high:+.3f})"
            mark = "*" if corrected[name, part] < 1 - significance.LEVEL else ""
            cells.append(f"{difference.difference:+.3f} {interval}{mark}")
        of_sets = [compared[name, part] for name in values]
        mean = pooled([each.difference for each in of_sets], [(each.low, each.high) for each in of_sets])
        print(f"| {part}, {before} | {' | '.join(cells)} | {mean} |")


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "parts":
        parts(arguments)
    else:
        adapt_table()
        print()
        parts_table()
