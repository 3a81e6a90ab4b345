"""The tables of docs/studies/adapting.md, from docs/results/adapt/."""

import json
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import permutation_test
from study_tables import RESULTS, markdown

from sentcli.adapting.contest import WEIGHTED
from sentcli.evaluation.significance import LEVEL, holm, mean_interval

ADAPT = RESULTS / "adapt"
SIGNS = 9999
"""Random signs of the differences; the smallest p is 0.0002, which Holm's correction of the table leaves below 0.05."""
BEFORE = {
    "weights of tokens": "start",
    "structure": "start",
    "mined negatives": "structure",
    "margins": "mined negatives",
    "language modelling": "margins",
}
"""What each part is added to."""


class Difference(NamedTuple):
    """The difference of two means with its interval, and p where it was tested."""

    difference: float
    low: float
    high: float
    p: float


def adaptations() -> str:
    """Return what ``adapt`` did on each set, and the mean over sets."""
    rows = []
    found: dict[str, Difference] = {}
    for path in sorted(ADAPT.glob("*.json")):
        record = json.loads(path.read_text("utf-8"))
        results = record["results"]
        difference = Difference(results["difference"], *results["interval"], p=math.nan)
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
                found[name, part] = compared(of_part[part], of_part[before])
    corrected = dict(zip(found, holm([difference.p for difference in found.values()]), strict=True))
    rows = []
    for part, before in BEFORE.items():
        cells = [f"{part}, from {before}"]
        known = []
        for name in values:
            if (name, part) not in found:
                cells.append("-")
                continue
            star = "*" if corrected[name, part] < 1 - LEVEL else ""
            cells.append(cell(found[name, part]) + star)
            known.append(found[name, part])
        cells.append(cell(pooled(known)))
        rows.append(cells)
    return markdown(["part", *values, "mean"], rows)


def compared(values: np.ndarray, before: np.ndarray) -> Difference:
    """Return the difference of the means of two systems over the same queries, and the p of a test of random signs."""
    differences = values - before
    test = permutation_test((differences,), np.mean, permutation_type="samples", n_resamples=SIGNS, rng=0)
    return Difference(differences.mean(), *mean_interval(differences), p=test.pvalue)


def pooled(differences: Sequence[Difference]) -> Difference:
    """Return the mean over sets, whose interval has the sets' own widths as errors that are independent."""
    mean = sum(each.difference for each in differences) / len(differences)
    half = math.hypot(*((each.high - each.low) / 2 for each in differences)) / len(differences)
    return Difference(mean, mean - half, mean + half, p=math.nan)


def cell(difference: Difference, digits: int = 3) -> str:
    """Return a difference with its interval."""
    low, high = f"{difference.low:+.{digits}f}", f"{difference.high:+.{digits}f}"
    return f"{difference.difference:+.{digits}f} ({low} to {high})"


def lines(file: str) -> list[dict]:
    """Return the records of a file of the study."""
    return [json.loads(line) for line in (ADAPT / file).read_text("utf-8").splitlines()]
