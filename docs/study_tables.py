"""What the tables of the studies share: cells, rows and printed scores."""

import json
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sentcli.evaluation.published import published
from sentcli.training.records import Summary

RESULTS = Path(__file__).parent / "results"
TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSBenchmark", "SICKRelatedness")
AVERAGE = "STS average"
PUBLISHED = {
    **dict.fromkeys(("start-first-last-avg", "raw first-last-avg"), "first-last-avg-bert-base"),
    **dict.fromkeys(("whitened-first-last-avg", "whitened first-last-avg"), "bert-whitening-bert-base"),
    "ct": "ct-bert-base-rescored",  # by SimCSE's authors, in the way of all others
}
"""What the printed scores of a row are called, where it is not ``NAME-bert-base``."""


def markdown(head: Iterable[Any], rows: Iterable[Iterable[Any]]) -> str:
    """Return a table; the first column is text."""
    lines = [list(map(str, head)), *([str(cell) for cell in row] for row in rows)]
    rule = ["---", *("---:" for _ in lines[0][1:])]
    return "".join(f"| {' | '.join(line)} |\n" for line in (lines[0], rule, *lines[1:]))


def spread(summary: Summary, key: str) -> str:
    """Return mean and standard deviation."""
    values = [run[key] for run in summary.runs]
    return "-" if None in values else over_seeds(values)


def over_seeds(values: list[float], digits: int = 2) -> str:
    """Return the mean, and the standard deviation if there are several."""
    sd = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.{digits}f}{sd}"


def shared_words() -> list[str]:
    """Return the row of the share of content words in common: STS-B dev, the tasks, their average."""
    words = json.loads((RESULTS / "study" / "words.json").read_text("utf-8"))
    scores = [words["best_dev_spearman"], *(words["sts"][task] for task in TASKS), words["sts_average"]]
    return ["shared content words, no model", "-", *(f"{score:.2f}" for score in scores)]


def printed(name: str) -> float | None:
    """Return the STS average that is published for BERT-base, if there is one."""
    system = published().get(PUBLISHED.get(name, f"{name}-bert-base"))
    return system.scores[AVERAGE] if system else None
