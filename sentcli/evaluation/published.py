"""Published scores of papers, and their comparison with measured ones."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sentcli.errors import InputError, nearest
from sentcli.evaluation import retrieval, sts, transfer
from sentcli.evaluation.score_kinds import IN_DOMAIN, RETRIEVAL, SIMILARITY, TRANSFER, ScoreKind
from sentcli.evaluation.scores import AVERAGE, ModelScores
from sentcli.zoo import models_folder

FULL_NAMES = {"STS-B": "STSBenchmark", "SICK-R": "SICKRelatedness"}
"""The name of a task by its name in papers."""
AVERAGED_TASKS = {
    SIMILARITY.name: frozenset(sts.TASKS),
    TRANSFER.name: frozenset(transfer.AVERAGED),
    RETRIEVAL.name: retrieval.averaged(),
}
"""The tasks of a published average, by kind."""
AVERAGES = {SIMILARITY.name: "STS average", TRANSFER.name: "transfer average", RETRIEVAL.name: "BEIR average"}
"""The key of a published average, by kind."""
PREFIXES = {RETRIEVAL.name: "BEIR ", IN_DOMAIN.name: "in-domain "}
"""The prefix of the key of a published score, by kind, for kinds whose tasks could be mistaken for others. The tasks of
in-domain retrieval are ``recall@1`` and so on."""


@dataclass(frozen=True)
class Published:
    """The published scores of one system."""

    name: str
    title: str
    source: str
    """The source of the scores of similarity and transfer; if there are none, of all scores."""
    scores: dict[str, float]
    """Scores times 100, by the name of the task behind its prefix (see `PREFIXES`), or by one of `AVERAGES`."""

    sources: dict[str, str] = field(default_factory=dict)
    """Sources of the scores that do not come from `source`, by the keys of `scores`."""

    def score(self, task: str, kind: ScoreKind) -> float | None:
        """Return the published score of a task or of ``average`` on the scale of the kind, or None."""
        score = self.scores.get(_key(task, kind))
        return None if score is None else score / kind.scale

    def source_of(self, tasks: Iterable[str], kind: ScoreKind) -> str:
        """Return the source of the scores of some tasks."""
        sources = [self.sources.get(_key(task, kind)) for task in tasks]
        return self.source if None in sources else "; ".join(dict.fromkeys(map(str, sources))) or self.source


def _key(task: str, kind: ScoreKind) -> str:
    """Return the key in `Published.scores` of a task or of ``average``."""
    if task == AVERAGE:
        return AVERAGES.get(kind.name, "")
    return f"{PREFIXES.get(kind.name, '')}{_task(task, kind)}"


def _task(task: str, kind: ScoreKind) -> str:
    return retrieval.canonical(task) if kind is RETRIEVAL else task


def published() -> dict[str, Published]:
    """Return the published scores of every recipe and of the systems in ``models/published.toml``, by name."""
    from sentcli.methods.recipes import load_recipe, recipe_names

    systems = {}
    for recipe in map(load_recipe, recipe_names()):
        if recipe.published:
            scores = {FULL_NAMES.get(task, task): float(score.value) for task, score in recipe.published.items()}
            sources = {task: score.source for task, score in recipe.published.items()}
            prefixed = {task: source for task, source in sources.items() if task.startswith(tuple(PREFIXES.values()))}
            main_sources = [source for task, source in sources.items() if task not in prefixed] or prefixed.values()
            source = "; ".join(dict.fromkeys(main_sources))
            systems[recipe.name] = Published(recipe.name, recipe.title, source, scores, prefixed)
    tables = tomllib.loads((models_folder() / "published.toml").read_text("utf-8"))
    for name, system in tables.items():
        scores = {FULL_NAMES.get(task, task): float(score) for task, score in system["scores"].items()}
        sources = {FULL_NAMES.get(task, task): source for task, source in system.get("sources", {}).items()}
        systems[name] = Published(name, system["title"], system["source"], scores, sources)
    return dict(sorted(systems.items()))


def with_titles(scores: Sequence[ModelScores]) -> list[ModelScores]:
    """Return scores whose comparison with a published system has title and source, which an older file may lack."""
    for each in scores:
        if each.against and not {"title", "source"} <= each.against.keys():
            system = published().get(each.against["name"])
            titles = {"title": system.title, "source": system.source} if system else {}
            each.against = {"title": each.against["name"], "source": ""} | titles | each.against
    return list(scores)


def find(name: str) -> Published:
    """Return the published scores of a system.

    Raises:
        InputError: if there is no system of that name.
    """
    systems = published()
    if name not in systems:
        raise InputError(
            f"no published scores of {name!r}{nearest(name, list(systems))}; --against list names all {len(systems)}"
        )
    return systems[name]


def require(system: Published, kind: ScoreKind, tasks: Iterable[str]) -> None:
    """Check that a system has a published score to compare with.

    Raises:
        InputError: if no score of these tasks is published.
    """
    names = set(tasks)
    has_average = _is_averaged(names, kind) and system.score(AVERAGE, kind) is not None
    if not has_average and all(system.score(task, kind) is None for task in names):
        raise InputError(f"nothing is printed of {system.name} for {', '.join(sorted(names))}")


def _is_averaged(tasks: Iterable[str], kind: ScoreKind) -> bool:
    """Tell whether these are exactly the tasks of the published average."""
    return frozenset(_task(task, kind) for task in tasks) == AVERAGED_TASKS.get(kind.name)


def compare(
    system: Published, kind: ScoreKind, values: dict[str, list[float]], intervals: dict[str, tuple[float, float]]
) -> dict[str, Any]:
    """Compare measured with published scores.

    Args:
        system: the published scores.
        kind: of the scores.
        values: the scores of each task and of ``average``; there is one for each model, and several models are taken
            as seeds of one system.
        intervals: of the first model's scores.

    Returns:
        The JSON: name, title and source of the system, and a comparison for each task with a published score, and for
        the average if exactly its tasks were measured. The range of a comparison is the interval of a single model, or
        that of 95 % of further seeds if several models were measured.
    """
    tasks = {}
    for task, measured in values.items():
        score = system.score(task, kind)
        if score is None or (task == AVERAGE and not _is_averaged(set(values) - {AVERAGE}, kind)):
            continue
        interval = _further_seeds(measured) if len(measured) > 1 else intervals.get(task)
        mean = float(np.mean(measured))
        tasks[task] = {
            "task": task,
            "measured": mean,
            "published": score,
            "range": interval,
            "runs": len(measured),
            "difference": mean - score,
            "within": None if interval is None else interval[0] <= score <= interval[1],
        }
    return {"name": system.name, "title": system.title, "source": system.source_of(tasks, kind), "tasks": tasks}


def _further_seeds(values: list[float]) -> tuple[float, float]:
    """Return the prediction interval of 95 % of further runs, if runs are normally distributed."""
    from scipy.stats import t

    mean, n = float(np.mean(values)), len(values)
    spread = float(t.ppf(0.975, n - 1)) * float(np.std(values, ddof=1)) * math.sqrt(1 + 1 / n)
    return mean - spread, mean + spread
