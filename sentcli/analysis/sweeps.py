"""Scores of many training runs against what was varied: shares of the training set, hyper-parameters, seeds."""

from __future__ import annotations

import statistics
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pandas as pd

from sentcli.errors import DataError, InputError, nearest

SCORES = {"sts_average": "STS average (Spearman × 100)", "best_dev_spearman": "STS-B dev (Spearman × 100)"}
SUBSET = ("limit", "fraction", "subset_seed")
"""What a sweep varies when it varies the training set."""
SEEDS = ("seed", "subset_seed")


@dataclass(frozen=True)
class FinishedRun:
    """One finished run."""

    record: Mapping[str, Any]
    """Its line of ``results.jsonl``."""

    @property
    def point(self) -> dict[str, Any]:
        """What its sweep varied, without seeds, and the method."""
        varied = {key: value for key, value in self.record["point"].items() if key not in SEEDS}
        return {"method": self.record["method"], **varied}

    @property
    def sentences(self) -> int:
        """That it was trained on."""
        return sum(int(file["sentences"]) for file in self.record["identity"]["data"])

    def score(self, key: str) -> float | None:
        """Return a result, times 100."""
        value = self.record["results"].get(key)
        return float(value) if isinstance(value, int | float) else None

    def setting(self, key: str) -> Any:
        """Return a setting by name, ``section.name`` for those of an objective; None if the run has none.

        What the sweep varied comes first, then what all runs have: settings, subset, and objectives of the method.
        """
        identity = self.record["identity"]
        places = self.record["point"], identity.get("settings", {}), identity.get("subset", {}), identity["method"]
        for place in places:
            value: Any = place.get(key)
            if value is None and "." in key:
                section, name = key.split(".", 1)
                inner = place.get(section)
                value = inner.get(name) if isinstance(inner, Mapping) else None
            if value is not None and not isinstance(value, Mapping):
                return value
        return None


def read_runs(paths: Sequence[Path]) -> list[FinishedRun]:
    """Read finished runs, each once.

    Args:
        paths: files of results, or folders of sweeps with such a file.

    Raises:
        InputError: if there is none; DataError if a line is no record.
    """
    from sentcli.training.sweep import RESULTS, read_results

    records: dict[str, dict[str, Any]] = {}
    for path in paths:
        file = path / RESULTS if path.is_dir() else path
        if not file.exists():
            problem = (
                f"{path} has no {RESULTS}: it is not the folder of a sweep" if path.is_dir() else f"no file {path}"
            )
            raise InputError(f"{problem}; train --seeds or --sweep writes one")
        read = read_results(file)
        if not read:
            raise InputError(f"{file} is empty: no run of the sweep has finished")
        for record in read.values():
            if missing := [key for key in ("point", "method", "identity", "results") if key not in record]:
                raise DataError(file, f"not records of runs: {missing[0]!r} is missing")
        records |= read
    return [FinishedRun(record) for record in records.values()]


def low_shot(runs: Sequence[FinishedRun]) -> pd.DataFrame:
    """Return scores over the number of training sentences (miCSE, figs. 3 and 4); see `_points`.

    Raises:
        InputError: if all runs were trained on the same number of sentences.
    """
    points = _points((system, run.sentences, run) for system, run in _systems(runs, SUBSET))
    if not points["system"].duplicated().any():
        raise InputError(
            "all runs of a system were trained on the same number of sentences: sweep fraction or limit for low-shot "
            "curves"
        )
    return points


def over(runs: Sequence[FinishedRun], key: str) -> pd.DataFrame:
    """Return scores over a setting; what else was varied makes a system of its own; see `_points`.

    Systems in which it has one value are left out, which may be all of them.

    Raises:
        InputError: if no run has such a setting.
    """
    if key not in ("method", "model", "seed") and all(run.setting(key) is None for run in runs):
        known = sorted({name for run in runs for name in (*run.point, *run.record["identity"].get("settings", {}))})
        raise InputError(f"--x {key}: no run has this setting{nearest(key, known)}")
    having = [run for run in runs if run.setting(key) is not None]
    points = _points((system, run.setting(key), run) for system, run in _systems(having, (key,)))
    return points[points["system"].duplicated(keep=False)]


def varied(runs: Sequence[FinishedRun]) -> list[str]:
    """Return the settings that runs of a method differ in, in the order of the sweeps; a default counts as a value."""
    differing = _differing(runs)
    keys = dict.fromkeys(key for run in runs for key in run.point)
    return [key for key in keys if any(key in settings for settings in differing.values())]


def _differing(runs: Iterable[FinishedRun]) -> dict[str, set[str]]:
    """Return the settings in which the runs of a method differ, by method; a default counts as a value."""
    by_method: dict[str, list[FinishedRun]] = {}
    for run in runs:
        by_method.setdefault(run.record["method"], []).append(run)
    differing = {}
    for method, own in by_method.items():
        keys = {key for run in own for key in run.point} - {"method"}
        differing[method] = {key for key in keys if len({repr(run.setting(key)) for run in own}) > 1}
    return differing


def _systems(runs: Sequence[FinishedRun], without: Iterable[str]) -> Iterator[tuple[str, FinishedRun]]:
    """Yield every run with the name of its system: the method and what else its runs differ in."""
    differing = _differing(runs)
    for run in runs:
        method = run.record["method"]
        shown = differing[method].difference(without)
        yield ", ".join([method, *(f"{key} {value}" for key, value in run.point.items() if key in shown)]), run


def _points(placed: Iterable[tuple[str, Any, FinishedRun]]) -> pd.DataFrame:
    """Return a row for each system and value, in its order.

    Columns are system, value, runs, and for each of `SCORES` its mean over the runs (seeds) and, with ``_sd`` behind
    the name, their sample standard deviation. A score is missing where a run lacks it, a deviation for a single run.
    """
    groups: dict[str, dict[Any, list[FinishedRun]]] = {}
    for system, x, run in placed:
        groups.setdefault(system, {}).setdefault(tuple(x) if isinstance(x, list) else x, []).append(run)
    rows: list[dict[str, Any]] = []
    for system, by_value in groups.items():
        for x in sorted(by_value, key=_order):
            rows.append({"system": system, "value": x, "runs": len(by_value[x]), **_means(by_value[x])})
    columns = ["system", "value", "runs", *(f"{score}{end}" for score in SCORES for end in ("", "_sd"))]
    frame = pd.DataFrame(rows, columns=columns)
    frame["value"] = pd.Series([row["value"] for row in rows], dtype=object)  # 1 and 0.1 stay what they are
    return frame.astype({column: float for column in columns[3:]})


def _order(value: Any) -> tuple[bool, float, str]:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return not number, float(value) if number else 0.0, str(value)


def _means(runs: Sequence[FinishedRun]) -> dict[str, float]:
    """Return mean and deviation of the scores that all runs have."""
    means = {}
    for score in SCORES:
        values = [value for run in runs if (value := run.score(score)) is not None]
        if len(values) == len(runs):
            means[score] = statistics.fmean(values)
            if len(values) > 1:
                means[f"{score}_sd"] = statistics.stdev(values)
    return means


def published_low_shot() -> pd.DataFrame:
    """Return what papers print over shares of their training set, from ``models/low_shot.toml``.

    A row for each system and share: name, title, share, mean and sd, which is missing where it is not printed.
    """
    from sentcli.zoo import models_folder

    table = tomllib.loads((models_folder() / "low_shot.toml").read_text("utf-8"))
    return pd.DataFrame(
        {"name": row["name"], "title": row["title"], "share": share, "mean": mean, "sd": sd}
        for row in table["system"]
        for share, mean, sd in zip_longest(row["shares"], row["mean"], row.get("sd", ()))
    )
