"""Scores that papers print, to set beside one's own."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sentcli.errors import InputError, nearest
from sentcli.evaluation import retrieval, sts, transfer_tasks
from sentcli.evaluation.scores import AVERAGE, IN_DOMAIN, RETRIEVAL, SIMILARITY, TRANSFER, ScoreKind
from sentcli.zoo import models_folder

NAMES = {"STS-B": "STSBenchmark", "SICK-R": "SICKRelatedness"}
"""What papers call a task, and its name here."""
AVERAGED = {
    SIMILARITY.name: frozenset(sts.TASKS),
    TRANSFER.name: frozenset(transfer_tasks.AVERAGED),
    RETRIEVAL.name: retrieval.averaged(),
}
"""The tasks that a printed average is of, by kind."""
AVERAGES = {SIMILARITY.name: "STS average", TRANSFER.name: "transfer average", RETRIEVAL.name: "BEIR average"}
"""What averages are printed under, by kind."""
PREFIXES = {RETRIEVAL.name: "BEIR ", IN_DOMAIN.name: "in-domain "}
"""What stands in front of a task's printed score, by kind, where tasks of several kinds could have one name. The tasks
of in-domain retrieval are ``recall@1`` and so on."""


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

    def score(self, task: str, kind: ScoreKind) -> float | None:
        """Return the score of a task, or of ``average``, if it is printed, on the scale of the kind."""
        printed = self.scores.get(_key(task, kind))
        return None if printed is None else printed / kind.scale

    def source_of(self, tasks: Iterable[str], kind: ScoreKind) -> str:
        """Return where the scores of some tasks stand."""
        sources = [self.sources.get(_key(task, kind)) for task in tasks]
        return self.source if None in sources else "; ".join(dict.fromkeys(map(str, sources))) or self.source


def _key(task: str, kind: ScoreKind) -> str:
    """Return what a task's score is printed under, or that of ``average``."""
    if task == AVERAGE:
        return AVERAGES.get(kind.name, "")
    return f"{PREFIXES.get(kind.name, '')}{_task(task, kind)}"


def _task(task: str, kind: ScoreKind) -> str:
    return retrieval.canonical(task) if kind is RETRIEVAL else task


def published() -> dict[str, Published]:
    """Return what is known of every recipe and of the systems in ``models/published.toml``."""
    from sentcli.methods.recipes import load_recipe, recipe_names

    systems = {}
    for recipe in map(load_recipe, recipe_names()):
        if recipe.published:
            scores = {NAMES.get(task, task): float(score.value) for task, score in recipe.published.items()}
            sources = {task: score.source for task, score in recipe.published.items()}
            others = {task: source for task, source in sources.items() if task.startswith(tuple(PREFIXES.values()))}
            usual = [source for task, source in sources.items() if task not in others] or others.values()
            named = "; ".join(dict.fromkeys(usual))
            systems[recipe.name] = Published(recipe.name, recipe.title, named, scores, others)
    tables = tomllib.loads((models_folder() / "published.toml").read_text("utf-8"))
    for name, system in tables.items():
        scores = {NAMES.get(task, task): float(score) for task, score in system["scores"].items()}
        systems[name] = Published(name, system["title"], system["source"], scores)
    return dict(sorted(systems.items()))


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


def require(system: Published, kind: ScoreKind, tasks: Iterable[str]) -> None:
    """Refuse a comparison in which nothing would be compared.

    Raises:
        InputError: if no score of these tasks is printed.
    """
    names = set(tasks)
    mean = _averaged(names, kind) and system.score(AVERAGE, kind) is not None
    if not mean and all(system.score(task, kind) is None for task in names):
        raise InputError(f"nothing is printed of {system.name} for {', '.join(sorted(names))}")


def _averaged(tasks: Iterable[str], kind: ScoreKind) -> bool:
    """Tell whether a printed average is of exactly these tasks."""
    return frozenset(_task(task, kind) for task in tasks) == AVERAGED.get(kind.name)


def compare(
    system: Published, kind: ScoreKind, values: dict[str, list[float]], intervals: dict[str, tuple[float, float]]
) -> dict[str, Any]:
    """Set measured scores beside printed ones.

    Args:
        system: what is printed.
        kind: of the scores.
        values: of each task, and of ``average``, one for each model; several models are taken as seeds of one system.
        intervals: of each task's first score.

    Returns:
        The JSON: name, title and source of the system, and for each task that is printed, and for the average if
        exactly its tasks were measured, the scores and the range that the printed one is looked for in. That is where
        95 % of further seeds would lie if several models were measured, else the interval of the one.
    """
    tasks = {}
    for task, measured in values.items():
        printed = system.score(task, kind)
        if printed is None or (task == AVERAGE and not _averaged(set(values) - {AVERAGE}, kind)):
            continue
        ends = _further_seeds(measured) if len(measured) > 1 else intervals.get(task)
        mean = float(np.mean(measured))
        tasks[task] = {
            "task": task,
            "measured": mean,
            "published": printed,
            "range": ends,
            "runs": len(measured),
            "difference": mean - printed,
            "within": None if ends is None else ends[0] <= printed <= ends[1],
        }
    source = system.source_of(tasks, kind)
    return {"name": system.name, "title": system.title, "source": source, "tasks": tasks}


def _further_seeds(values: list[float]) -> tuple[float, float]:
    """Return where 95 % of further runs would lie, if runs are normally distributed (a prediction interval)."""
    from scipy.stats import t

    mean, n = float(np.mean(values)), len(values)
    spread = float(t.ppf(0.975, n - 1)) * float(np.std(values, ddof=1)) * math.sqrt(1 + 1 / n)
    return mean - spread, mean + spread
