"""Scores of many training runs over what was varied: shares of the training set, hyper-parameters, seeds."""

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

SCORE_TITLES = {
    "sts_average": "STS average (Spearman × 100)",
    "best_dev_spearman": "STS-B dev (Spearman × 100)",
    "best_dev": "the dev set of --dev (× 100)",
}
SUBSET = ("limit", "fraction", "subset_seed")
"""Settings that vary the training set."""
SEEDS = ("seed", "subset_seed")
RECIPE = "recipe"


@dataclass(frozen=True)
class FinishedRun:
    """One finished run."""

    record: Mapping[str, Any]
    """The line of the run in ``results.jsonl``."""

    @property
    def point(self) -> dict[str, Any]:
        """The method and the settings that its sweep varied, without seeds."""
        varied = {key: value for key, value in self.record["point"].items() if key not in SEEDS}
        return {"method": self.record["method"], **varied}

    @property
    def facts(self) -> dict[str, Any]:
        """What decides the training besides its seed."""
        from sentcli.training.records import facts_of

        return facts_of(self.record)

    @property
    def sentences(self) -> int:
        """The number of sentences that it was trained on."""
        return sum(int(file["sentences"]) for file in self.record["identity"]["data"])

    def score(self, key: str) -> float | None:
        """Return a result times 100, or None."""
        results = self.record["results"]
        dev = results.get("dev")
        value = results.get(key)
        scale = 1
        if key == "best_dev" and dev:
            value = dev.get("best")
            if dev.get("metric") != "spearman":
                scale = 100
        if not isinstance(value, int | float):
            return None
        return scale * float(value)

    def setting(self, key: str) -> Any:
        """Return a setting by name, or ``section.name`` for those of an objective; None if the run has no such setting.

        The settings that the sweep varied come first, then those of training, subset and method.
        """
        identity = self.record["identity"]
        section, _, name = key.partition(".")
        for source in (
            self.record["point"],
            identity.get("settings", {}),
            identity.get("subset", {}),
            identity["method"],
        ):
            value = source.get(key)
            inner = source.get(section)
            if value is None and name and isinstance(inner, Mapping):
                value = inner.get(name)
            if value is not None and not isinstance(value, Mapping):
                return value
        return None


def read_runs(paths: Sequence[Path]) -> list[FinishedRun]:
    """Read finished runs, each once.

    Args:
        paths: files of results, or folders of sweeps that have such a file.

    Raises:
        InputError: if a file is missing or empty; DataError if a line is not the record of a run.
    """
    from sentcli.training.records import RESULTS_FILE, read_results

    records: dict[str, dict[str, Any]] = {}
    for path in paths:
        file = path
        problem = f"no file {path}"
        if path.is_dir():
            file = path / RESULTS_FILE
            problem = f"{path} has no {RESULTS_FILE}: it is not the folder of a sweep"
        if not file.exists():
            raise InputError(f"{problem}; train --seeds or --sweep writes one")
        file_records = read_results(file)
        if not file_records:
            raise InputError(f"{file} is empty: no run of the sweep has finished")
        for record in file_records.values():
            _check_record(record, file)
        records |= file_records
    return [FinishedRun(record) for record in records.values()]


def _check_record(record: Mapping[str, Any], file: Path) -> None:
    """Raise a DataError if a line of a file of results is not the record of a run."""
    for key in ("point", "method", "identity", "results"):
        if key not in record:
            raise DataError(file, f"not records of runs: {key!r} is missing")
    for key in ("data", "method"):
        if key not in record["identity"]:
            raise DataError(file, f"not records of runs: {f'identity.{key}'!r} is missing")


def low_shot(runs: Sequence[FinishedRun]) -> pd.DataFrame:
    """Return scores over the number of training sentences (miCSE, figs. 3 and 4); see `_points`.

    A paper has a recipe for each size, so that the recipe is part of a system's name only where a system would have two
    recipes of one size.

    Raises:
        InputError: if all runs were trained on the same number of sentences.
    """
    systems = list(_systems(runs, (*SUBSET, RECIPE)))
    recipes: dict[tuple[str, int], Any] = {}
    for system, run in systems:
        recipe = run.point.get(RECIPE)
        if recipes.setdefault((system, run.sentences), recipe) != recipe:
            systems = list(_systems(runs, SUBSET))
            break
    points = _points((system, run.sentences, run) for system, run in systems)
    if not points["system"].duplicated().any():
        raise InputError(
            "all runs of a system were trained on the same number of sentences: sweep fraction or limit for low-shot "
            "curves"
        )
    return points


def over(runs: Sequence[FinishedRun], key: str) -> pd.DataFrame:
    """Return scores over a setting; each combination of other varied settings is a system of its own; see `_points`.

    Systems in which the setting has only one value are left out, which may be all of them.

    Raises:
        InputError: if no run has such a setting.
    """
    with_setting = [run for run in runs if run.setting(key) is not None]
    if not with_setting and key not in ("method", "model", "seed"):
        names: set[str] = set()
        for run in runs:
            names.update(run.point, run.record["identity"].get("settings", {}))
        raise InputError(f"--x {key}: no run has this setting{nearest(key, sorted(names))}")
    systems = _systems(with_setting, (key,))
    points = _points((system, run.setting(key), run) for system, run in systems)
    return points[points["system"].duplicated(keep=False)]


def varied(runs: Sequence[FinishedRun]) -> list[str]:
    """Return the settings in which runs of a method differ, in the order of the sweeps; a default counts as a value."""
    differing = set().union(*_differing(runs).values())
    return [key for key in _keys(runs) if key in differing]


def _keys(runs: Iterable[FinishedRun]) -> dict[str, None]:
    """Return the settings that the sweeps of runs varied, in their order, with the method."""
    keys: dict[str, None] = {}
    for run in runs:
        keys |= dict.fromkeys(run.point)
    return keys


def _differing(runs: Iterable[FinishedRun]) -> dict[str, set[str]]:
    """Return the settings in which the runs of a method differ, by method; a default counts as a value."""
    by_method: dict[str, list[FinishedRun]] = {}
    for run in runs:
        by_method.setdefault(run.record["method"], []).append(run)
    differing: dict[str, set[str]] = {}
    for method, of_method in by_method.items():
        differing[method] = set()
        for key in _keys(of_method):
            values = {repr(run.setting(key)) for run in of_method}
            if key != "method" and len(values) > 1:
                differing[method].add(key)
    return differing


def _systems(runs: Sequence[FinishedRun], without: Iterable[str]) -> Iterator[tuple[str, FinishedRun]]:
    """Yield every run with the name of its system: the method and the settings in which the method's runs differ."""
    differing = _differing(runs)
    for run in runs:
        method = run.record["method"]
        shown = differing[method].difference(without)
        parts = [method]
        for key, value in run.point.items():
            if key in shown:
                parts.append(f"{key} {value}")
        yield ", ".join(parts), run


def _points(placed: Iterable[tuple[str, Any, FinishedRun]]) -> pd.DataFrame:
    """Return a row for each system and value, ordered by value.

    The columns are system, value, runs (their number), and for each of `SCORE_TITLES` its mean over the runs and, with
    the suffix ``_sd``, the sample standard deviation. A score is missing if one of the runs does not have it, and the
    deviation is missing for a single run.
    """
    groups: dict[str, dict[Any, list[FinishedRun]]] = {}
    for system, value, run in _told_apart(placed):
        by_value = groups.setdefault(system, {})
        by_value.setdefault(value, []).append(run)
    rows = []
    values = []
    for system, by_value in groups.items():
        for value in sorted(by_value, key=_order):
            runs = by_value[value]
            rows.append({"system": system, "runs": len(runs), **_means(runs)})
            values.append(value)
    scores = []
    for score in SCORE_TITLES:
        scores += [score, f"{score}_sd"]
    frame = pd.DataFrame(rows, columns=["system", "value", "runs", *scores])
    frame["value"] = pd.Series(values, dtype=object)  # keeps integers beside floats
    return frame.astype(dict.fromkeys(scores, float))


def _told_apart(placed: Iterable[tuple[str, Any, FinishedRun]]) -> Iterator[tuple[str, Any, FinishedRun]]:
    """Yield every run with its system and value; a system that has two trainings at one value becomes several.

    Their names say in what they differ. Values are those that a dictionary may have as keys.
    """
    from sentcli.seeds import by_setting, told_apart

    points: dict[tuple[str, Any], list[FinishedRun]] = {}
    for system, value, run in placed:
        hashable = tuple(value) if isinstance(value, list) else value
        points.setdefault((system, hashable), []).append(run)
    apart: dict[str, set[str]] = {}  # the settings that tell the trainings of a system apart
    for (system, _), runs in points.items():
        for settings in told_apart([run.facts for run in runs]):
            apart.setdefault(system, set()).update(settings)
    for (system, value), runs in points.items():
        for run in runs:
            facts = run.facts
            settings = by_setting(facts, list(facts))
            parts = [system]
            for key in sorted(apart[system]):
                parts.append(f"{key} {settings.get(key)}")
            yield ", ".join(parts), value, run


def _order(value: Any) -> tuple[bool, float, str]:
    """Return by what values of a setting are ordered: numbers first, then words."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return False, float(value), str(value)
    return True, 0.0, str(value)


def _means(runs: Sequence[FinishedRun]) -> dict[str, float]:
    """Return mean and standard deviation of each score that all runs have."""
    means = {}
    for score in SCORE_TITLES:
        values = []
        for run in runs:
            value = run.score(score)
            if value is not None:
                values.append(value)
        if len(values) == len(runs):
            means[score] = statistics.fmean(values)
            if len(values) > 1:
                means[f"{score}_sd"] = statistics.stdev(values)
    return means


def published_low_shot() -> pd.DataFrame:
    """Return the published scores over shares of the training set, from ``models/low_shot.toml``.

    There is a row for each system and share with name, title, share, mean and sd, which may be missing.
    """
    from sentcli.zoo import models_folder

    table = tomllib.loads((models_folder() / "low_shot.toml").read_text("utf-8"))
    rows = []
    for system in table["system"]:
        about = {"name": system["name"], "title": system["title"]}
        for share, mean, sd in zip_longest(system["shares"], system["mean"], system.get("sd", ())):
            rows.append({**about, "share": share, "mean": mean, "sd": sd})
    return pd.DataFrame(rows)
