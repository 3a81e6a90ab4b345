"""Scores that papers print, to set beside one's own."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sentcli.errors import InputError, nearest
from sentcli.evaluation import set_facts, sts, transfer_tasks
from sentcli.zoo import models_folder

NAMES = {"STS-B": "STSBenchmark", "SICK-R": "SICKRelatedness"}
"""What papers call a task, and its name here."""
AVERAGED = {
    "sts-eval": frozenset(sts.TASKS),
    "senteval": frozenset(transfer_tasks.AVERAGED),
    "retrieve": set_facts.averaged(),
}
"""The tasks that a printed average is of, by command."""
AVERAGES = {"sts-eval": "STS average", "senteval": "transfer average", "retrieve": "BEIR average"}
"""By command."""
PREFIXES = {"retrieve": "BEIR ", "in-domain": "in-domain "}
"""What stands in front of a task's printed score, where the tasks of commands could have one name. ``in-domain`` is
``retrieve --in-domain``, whose tasks are ``recall@1`` and so on."""
SCALES = {"retrieve": 0.01}
"""What brings a printed score to the command's scale, where that is not times 100."""


@dataclass(frozen=True)
class Published:
    """The printed scores of one system."""

    name: str
    title: str
    source: str
    """Where the scores of similarity and transfer stand, or all of them if there are none."""
    scores: dict[str, float]
    """By task, as the commands call it, after one of `PREFIXES`; also `AVERAGES`. Times 100."""

    sources: dict[str, str] = field(default_factory=dict)
    """By the keys of `scores`, where they stand if not in `source`."""

    def score(self, task: str, command: str) -> float | None:
        """Return the score of a task, or of ``average``, if it is printed, on the scale of the command."""
        found = self.scores.get(_key(task, command))
        return None if found is None else found * SCALES.get(command, 1)

    def source_of(self, tasks: Iterable[str], command: str) -> str:
        """Return where the scores of some tasks stand."""
        found = [self.sources.get(_key(task, command)) for task in tasks]
        return self.source if None in found else "; ".join(dict.fromkeys(map(str, found))) or self.source


def _key(task: str, command: str) -> str:
    """Return what a task's score is printed under, or that of ``average``."""
    if task == "average":
        return AVERAGES.get(command, "")
    return f"{PREFIXES.get(command, '')}{_task(task, command)}"


def _task(task: str, command: str) -> str:
    return set_facts.canonical(task) if command == "retrieve" else task


def published() -> dict[str, Published]:
    """Return what is known of every recipe and of the systems in ``models/published.toml``."""
    from sentcli.methods.recipes import load_recipe, recipe_names

    found = {}
    for recipe in map(load_recipe, recipe_names()):
        if recipe.published:
            scores = {NAMES.get(task, task): float(score.value) for task, score in recipe.published.items()}
            sources = {task: score.source for task, score in recipe.published.items()}
            others = {task: source for task, source in sources.items() if task.startswith(tuple(PREFIXES.values()))}
            usual = [source for task, source in sources.items() if task not in others] or others.values()
            named = "; ".join(dict.fromkeys(usual))
            found[recipe.name] = Published(recipe.name, recipe.title, named, scores, others)
    systems = tomllib.loads((models_folder() / "published.toml").read_text("utf-8"))
    for name, system in systems.items():
        scores = {NAMES.get(task, task): float(score) for task, score in system["scores"].items()}
        found[name] = Published(name, system["title"], system["source"], scores)
    return dict(sorted(found.items()))


def find(name: str) -> Published:
    """Return the printed scores of a system.

    Raises:
        InputError: if there are none of that name.
    """
    known = published()
    if name not in known:
        raise InputError(
            f"no published scores of {name!r}{nearest(name, list(known))}; --against list names all {len(known)}"
        )
    return known[name]


def require(system: Published, command: str, tasks: Iterable[str]) -> None:
    """Refuse a comparison in which nothing would be compared.

    Raises:
        InputError: if no score of these tasks is printed.
    """
    names = set(tasks)
    average = _averaged(names, command) and system.score("average", command) is not None
    if not average and all(system.score(task, command) is None for task in names):
        raise InputError(f"nothing is printed of {system.name} for {', '.join(sorted(names))}")


def _averaged(tasks: Iterable[str], command: str) -> bool:
    """Tell whether a printed average is of exactly these tasks."""
    return command in AVERAGED and AVERAGED[command] == {_task(task, command) for task in tasks}


@dataclass(frozen=True)
class Against:
    """A measured score beside a printed one."""

    task: str
    measured: float
    published: float
    range: tuple[float, float] | None
    """Where 95 % of further seeds would lie if several models were measured, else the interval of the one; None if
    there is none."""
    runs: int
    """Models that were measured, taken as seeds of one system; `measured` is their mean."""

    @property
    def difference(self) -> float:
        """Measured less printed."""
        return self.measured - self.published

    @property
    def within(self) -> bool | None:
        """Whether the printed score lies in `range`."""
        return None if self.range is None else self.range[0] <= self.published <= self.range[1]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {**vars(self), "difference": self.difference, "within": self.within}


def compare(
    system: Published, command: str, scores: dict[str, list[float]], intervals: dict[str, tuple[float, float]]
) -> list[Against]:
    """Set measured scores beside printed ones, task by task.

    Args:
        system: what is printed.
        command: ``sts-eval``, ``senteval``, ``retrieve``, or ``in-domain``.
        scores: of each task, and of ``average``, one for each model; several models are taken as seeds of one.
        intervals: of each task's first score.

    Returns:
        One for each task that is printed, and for the average if exactly its tasks were measured.
    """
    found = []
    for task, values in scores.items():
        printed = system.score(task, command)
        if printed is None or (task == "average" and not _averaged(set(scores) - {"average"}, command)):
            continue
        between = _further_seeds(values) if len(values) > 1 else intervals.get(task)
        found.append(Against(task, float(np.mean(values)), printed, between, len(values)))
    return found


def _further_seeds(values: list[float]) -> tuple[float, float]:
    """Return where 95 % of further runs would lie, if runs are normally distributed (a prediction interval)."""
    from scipy.stats import t

    mean, n = float(np.mean(values)), len(values)
    spread = float(t.ppf(0.975, n - 1)) * float(np.std(values, ddof=1)) * math.sqrt(1 + 1 / n)
    return mean - spread, mean + spread
