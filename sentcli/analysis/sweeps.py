"""Scores of many training runs against what was varied: shares of the training set, hyper-parameters, seeds."""

from __future__ import annotations

import statistics
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentcli.errors import DataError, InputError, nearest

SCORES = {"sts_average": "STS average (Spearman × 100)", "best_dev_spearman": "STS-B dev (Spearman × 100)"}
SUBSET = ("limit", "fraction", "subset_seed")
"""What a sweep varies when it varies the training set."""
SEEDS = ("seed", "subset_seed")


@dataclass(frozen=True)
class SweepRun:
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


def read_runs(paths: Sequence[Path]) -> list[SweepRun]:
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
    return [SweepRun(record) for record in records.values()]


@dataclass(frozen=True)
class Spread:
    """A score over seeds."""

    mean: float
    sd: float | None
    """Sample standard deviation; None of a single run."""
    runs: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return mean and deviation of some scores."""
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))

    @property
    def band(self) -> tuple[float, float]:
        """One standard deviation on both sides; nothing beside the mean of a single run."""
        return self.mean - (self.sd or 0), self.mean + (self.sd or 0)


@dataclass(frozen=True)
class Curve:
    """A system's scores over what is varied, in its order."""

    system: str
    points: tuple[tuple[Any, dict[str, Spread]], ...]
    """Value, and the spread of each score."""

    def values(self, score: str) -> list[tuple[Any, Spread]]:
        """Return the points that have a score."""
        return [(x, spreads[score]) for x, spreads in self.points if score in spreads]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        points = [{"value": x, **{key: vars(spread) for key, spread in spreads.items()}} for x, spreads in self.points]
        return {"system": self.system, "points": points}


def low_shot(runs: Sequence[SweepRun]) -> list[Curve]:
    """Return scores over the number of training sentences (miCSE, figs. 3 and 4).

    Raises:
        InputError: if all runs were trained on the same number of sentences.
    """
    curves = _curves((system, run.sentences, run) for system, run in _systems(runs, SUBSET))
    if all(len(curve.points) < 2 for curve in curves):
        raise InputError(
            "all runs of a system were trained on the same number of sentences: sweep fraction or limit for low-shot "
            "curves"
        )
    return curves


def over(runs: Sequence[SweepRun], key: str) -> list[Curve]:
    """Return scores over a setting; what else was varied makes a system of its own.

    Systems in which it has one value are left out, which may be all of them.

    Raises:
        InputError: if no run has such a setting.
    """
    if key not in ("method", "model", "seed") and all(run.setting(key) is None for run in runs):
        known = sorted({name for run in runs for name in (*run.point, *run.record["identity"].get("settings", {}))})
        raise InputError(f"--x {key}: no run has this setting{nearest(key, known)}")
    having = [run for run in runs if run.setting(key) is not None]
    curves = _curves((system, run.setting(key), run) for system, run in _systems(having, (key,)))
    return [curve for curve in curves if len(curve.points) > 1]


def varied(runs: Sequence[SweepRun]) -> list[str]:
    """Return the settings that runs of a method differ in, in the order of the sweeps; a default counts as a value."""
    differing = _differing(runs)
    keys = dict.fromkeys(key for run in runs for key in run.point)
    return [key for key in keys if any(key in settings for settings in differing.values())]


def _differing(runs: Iterable[SweepRun]) -> dict[str, set[str]]:
    """Return the settings in which the runs of a method differ, by method; a default counts as a value."""
    by_method: dict[str, list[SweepRun]] = {}
    for run in runs:
        by_method.setdefault(run.record["method"], []).append(run)
    differing = {}
    for method, own in by_method.items():
        keys = {key for run in own for key in run.point} - {"method"}
        differing[method] = {key for key in keys if len({repr(run.setting(key)) for run in own}) > 1}
    return differing


def _systems(runs: Sequence[SweepRun], without: Iterable[str]) -> Iterator[tuple[str, SweepRun]]:
    """Yield every run with the name of its system: the method and what else its runs differ in."""
    differing = _differing(runs)
    for run in runs:
        method = run.record["method"]
        shown = differing[method].difference(without)
        yield ", ".join([method, *(f"{key} {value}" for key, value in run.point.items() if key in shown)]), run


def _curves(placed: Iterable[tuple[str, Any, SweepRun]]) -> list[Curve]:
    groups: dict[str, dict[Any, list[SweepRun]]] = {}
    for system, x, run in placed:
        groups.setdefault(system, {}).setdefault(tuple(x) if isinstance(x, list) else x, []).append(run)
    curves = []
    for system, by_value in groups.items():
        points = [(x, _spreads(by_value[x])) for x in sorted(by_value, key=_order)]
        curves.append(Curve(system, tuple(points)))
    return curves


def _order(value: Any) -> tuple[bool, float, str]:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return not number, float(value) if number else 0.0, str(value)


def _spreads(runs: Sequence[SweepRun]) -> dict[str, Spread]:
    spreads = {}
    for key in SCORES:
        values = [score for run in runs if (score := run.score(key)) is not None]
        if len(values) == len(runs):
            spreads[key] = Spread.of(values)
    return spreads


@dataclass(frozen=True)
class PublishedCurve:
    """What a paper prints over shares of its training set."""

    name: str
    title: str
    shares: tuple[float, ...]
    mean: tuple[float, ...]
    sd: tuple[float, ...] = ()


def published_low_shot() -> list[PublishedCurve]:
    """Return the published curves, from ``models/low_shot.toml``."""
    from sentcli.zoo import models_folder

    table = tomllib.loads((models_folder() / "low_shot.toml").read_text("utf-8"))
    fields: list[dict[str, Any]] = [
        {key: tuple(v) if isinstance(v, list) else v for key, v in row.items()} for row in table["system"]
    ]
    return [PublishedCurve(**each) for each in fields]
