"""The tables of docs/studies/adapting.md, from docs/results/adapt/."""

import json
import math
from collections.abc import Sequence

import numpy as np
from study_tables import RESULTS, markdown

from sentcli.adapting.contest import WEIGHTED
from sentcli.evaluation.differences import LEVEL, Difference
from sentcli.evaluation.significance import compare_means, corrected

ADAPT = RESULTS / "adapt"
BEFORE = {
    "weights of tokens": "start",
    "structure": "start",
    "mined negatives": "structure",
    "margins": "mined negatives",
    "language modelling": "margins",
}
"""What each part is added to."""


def adaptations() -> str:
    """Return what ``adapt`` did on each set, and the mean over sets."""
    rows = []
    found: dict[str, Difference] = {}
    for path in sorted(ADAPT.glob("*.json")):
        record = json.loads(path.read_text("utf-8"))
        results = record["results"]
        difference = Difference(results["difference"], *results["interval"])
        found[path.stem] = difference
        taken = "yes" if results["adopted"] else "no"
        minutes = f"{record['elapsed_seconds'] / 60:.0f}"
        scores = [f"{results['start']:.3f}", f"{results['value']:.3f}"]
        chosen = results["chosen"].replace(WEIGHTED, "weights")
        cells = [path.stem, chosen, results["queries"], *scores, cell(difference, 4)]
        cells += [f"{results['smallest']:.3f}", f"{results['keep']['difference']:+.2f}", minutes, taken]
        rows.append(cells)
    mean = cell(pooled(list(found.values())), 4)
    rows.append([f"mean of {len(found)}", "", "", "", "", mean, "", "", "", ""])
    head = ["set", "chosen", "queries", "start", "chosen", "difference", "smallest", "STS-B dev", "minutes", "taken"]
    return markdown(head, rows)


def parts() -> str:
    """Return what each part brings on each set; a star marks p below 0.05 after Holm's correction of the table."""
    values: dict[str, dict[str, np.ndarray]] = {}
    for record in lines("parts.jsonl"):
        values.setdefault(record["set"], {})[record["part"]] = np.array(record["values"])
    found: dict[tuple[str, str], Difference] = {}
    for name, of_part in values.items():
        for part, before in BEFORE.items():
            if part in of_part:
                found[name, part] = compare_means(of_part[part], of_part[before])
    found = dict(zip(found, corrected(list(found.values())), strict=True))
    rows = []
    for part, before in BEFORE.items():
        cells = [f"{part}, from {before}"]
        known = []
        for name in values:
            if (name, part) not in found:
                cells.append("-")
                continue
            star = "*" if found[name, part].p_holm < 1 - LEVEL else ""
            cells.append(cell(found[name, part]) + star)
            known.append(found[name, part])
        cells.append(cell(pooled(known)))
        rows.append(cells)
    return markdown(["part", *values, "mean"], rows)


def pooled(differences: Sequence[Difference]) -> Difference:
    """Return the mean over sets, whose interval has the sets' own widths as errors that are independent."""
    mean = sum(each.difference for each in differences) / len(differences)
    half = math.hypot(*((each.high - each.low) / 2 for each in differences)) / len(differences)
    return Difference(mean, mean - half, mean + half)


def cell(difference: Difference, digits: int = 3) -> str:
    """Return a difference with its interval."""
    low, high = f"{difference.low:+.{digits}f}", f"{difference.high:+.{digits}f}"
    return f"{difference.difference:+.{digits}f} ({low} to {high})"


def lines(file: str) -> list[dict]:
    """Return the records of a file of the study."""
    return [json.loads(line) for line in (ADAPT / file).read_text("utf-8").splitlines()]
