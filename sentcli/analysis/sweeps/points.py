"""Scores of many training runs over what was varied: shares of the training set, hyper-parameters, seeds."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

import pandas as pd

from sentcli.analysis.curves import LINE, dev_label, mean_lines
from sentcli.analysis.runs import TrainingRun
from sentcli.errors import InputError, nearest
from sentcli.training.observer import dev_scores

_SCORES = ("sts_average", "best_dev_spearman", "best_dev")
SUBSET = ("limit", "fraction", "subset_seed")
"""Settings that vary the training set."""
RECIPE = "recipe"
Placed = tuple[str, Any, TrainingRun]
"""The system of a run, its value of the setting that is looked at, and the run."""


def score_titles(runs: Sequence[TrainingRun]) -> dict[str, str]:
    """Return the title of the axis of each score, which names the task."""
    dev_sets = []
    for run in runs:
        dev = dev_scores(run.record["results"])
        if dev is not None and run.record["results"].get("dev"):
            dev_sets.append(dev_label(dev.name, dev.metric).split(" (")[0])
    names = ", ".join(dict.fromkeys(dev_sets))
    return {
        "sts_average": "STS average (Spearman × 100)",
        "best_dev_spearman": "STS-B dev (Spearman × 100)",
        "best_dev": f"{names} (× 100)",
    }


def low_shot_points(runs: Sequence[TrainingRun]) -> pd.DataFrame:
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
    if (_values(points) == 1).all():
        raise InputError(
            "all runs of a system were trained on the same number of sentences: sweep fraction or limit for low-shot "
            "curves"
        )
    return points


def over(runs: Sequence[TrainingRun], key: str) -> pd.DataFrame:
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
    return points[_values(points) > 1].reset_index(drop=True)


def _values(points: pd.DataFrame) -> pd.Series[int]:
    """Return for each point at how many values its system has points."""
    return points.groupby("series")["x"].transform("nunique")


def varied(runs: Sequence[TrainingRun]) -> list[str]:
    """Return the settings in which runs of a method differ, in the order of the sweeps; a default counts as a value."""
    differing = set().union(*_differing(runs).values())
    return [key for key in _keys(runs) if key in differing]


def _keys(runs: Iterable[TrainingRun]) -> dict[str, None]:
    """Return the settings that the sweeps of runs varied, in their order, with the method."""
    keys: dict[str, None] = {}
    for run in runs:
        keys |= dict.fromkeys(run.point)
    return keys


def _differing(runs: Iterable[TrainingRun]) -> dict[str, set[str]]:
    """Return the settings in which the runs of a method differ, by method; a default counts as a value."""
    by_method: dict[str, list[TrainingRun]] = {}
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


def _systems(runs: Sequence[TrainingRun], without: Iterable[str]) -> Iterator[tuple[str, TrainingRun]]:
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


def _points(placed: Iterable[Placed]) -> pd.DataFrame:
    """Return the lines of `mean_lines`: a panel for each of `_SCORES`, a series for each system, ordered by value."""
    systems: dict[str, list[Placed]] = {}
    for one in _told_apart(placed):
        systems.setdefault(one[0], []).append(one)
    rows = []
    for score in _SCORES:
        for system, members in systems.items():
            for _, value, run in sorted(members, key=lambda one: _order(one[1])):
                rows.append((score, system, value, run.score(score)))
    frame = pd.DataFrame(rows, columns=[*LINE, "value"], dtype=object)  # keeps integers beside floats
    return mean_lines(frame.astype({"value": float}))


def _told_apart(placed: Iterable[Placed]) -> Iterator[Placed]:
    """Yield every run with its system and value; a system that has two trainings at one value becomes several.

    Their names say in what they differ. Values are those that a dictionary may have as keys.
    """
    from sentcli.seeds import by_setting, told_apart

    points: dict[tuple[str, Any], list[TrainingRun]] = {}
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


def published_low_shot() -> pd.DataFrame:
    """Return the published scores over shares of the training set, from ``models/low_shot.toml``.

    There is a row for each system and share with name, series (its title), x (the share), y (the mean) and sd, which
    may be missing.
    """
    from sentcli.zoo import models_folder

    table = tomllib.loads((models_folder() / "low_shot.toml").read_text("utf-8"))
    rows = []
    for system in table["system"]:
        about = {"name": system["name"], "series": system["title"]}
        for share, mean, sd in zip_longest(system["shares"], system["mean"], system.get("sd", ())):
            rows.append({**about, "x": share, "y": mean, "sd": sd})
    return pd.DataFrame(rows)
