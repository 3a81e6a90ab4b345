"""Published scores of papers, and their comparison with measured ones."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli.errors import InputError, nearest
from sentcli.evaluation import known_sets, sts_pairs, transfer_data
from sentcli.evaluation.differences import student
from sentcli.evaluation.mteb_results import is_mteb, read_mteb, read_mteb_folder
from sentcli.evaluation.score_kinds import (
    FULL_NAMES,
    IN_DOMAIN,
    RETRIEVAL,
    SCORE_KINDS,
    SIMILARITY,
    TRANSFER,
    ScoreKind,
)
from sentcli.evaluation.scores import AVERAGE, ModelScores, TaskScore, average
from sentcli.hub import short_digits
from sentcli.io.forms import read_json
from sentcli.seeds import mean_and_deviation
from sentcli.zoo import models_folder

if TYPE_CHECKING:
    from sentcli.methods.recipes import Recipe

AFS = frozenset({"ArgPairs_DP", "ArgPairs_GC", "ArgPairs_GM"})
"""The topics of the corpus of argument facet similarity, by the names of its files."""
AVERAGES = {
    "STS average": (SIMILARITY.name, frozenset(sts_pairs.TASKS)),
    "AFS average": (SIMILARITY.name, AFS),
    "transfer average": (TRANSFER.name, frozenset(transfer_data.AVERAGED)),
    "BEIR average": (RETRIEVAL.name, known_sets.averaged()),
}
"""The kind and the tasks of a published average, by its key."""
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
    """Sources of the scores, at least of those that do not come from `source`, by the keys of `scores`."""

    def score(self, task: str, kind: ScoreKind, tasks: Iterable[str] = ()) -> float | None:
        """Return the published score of a task, or of the ``average`` of `tasks`, on the scale of the kind, or None."""
        score = self.scores.get(_key(task, kind, tasks))
        return None if score is None else score / kind.scale

    def source_of(self, compared: Iterable[str], kind: ScoreKind, tasks: Iterable[str]) -> str:
        """Return the source of the scores that are compared: some of `tasks`, and perhaps their ``average``."""
        sources: dict[str, None] = {}
        for task in compared:
            source = self.sources.get(_key(task, kind, tasks))
            if source is None:
                return self.source
            sources[source] = None
        return "; ".join(sources) or self.source


def _key(task: str, kind: ScoreKind, tasks: Iterable[str]) -> str:
    """Return the key in `Published.scores` of a task, or of the ``average`` of `tasks`, empty if none prints that."""
    if task != AVERAGE:
        prefix = PREFIXES.get(kind.name, "")
        return prefix + _full_name(task, kind)
    names = frozenset(_full_name(one, kind) for one in tasks)
    for key, averaged in AVERAGES.items():
        if averaged == (kind.name, names):
            return key
    return ""


def _full_name(task: str, kind: ScoreKind) -> str:
    """Return the name of a task in published scores: that of a retrieval set may be an alias."""
    if kind is RETRIEVAL:
        return known_sets.canonical(task)
    return task


def published() -> dict[str, Published]:
    """Return the published scores of every recipe and of the systems in ``models/published.toml``, by name."""
    from sentcli.methods.recipes import load_recipe, recipe_names

    systems = {}
    for recipe in map(load_recipe, recipe_names()):
        if recipe.published:
            systems[recipe.name] = _of_recipe(recipe)
    tables = tomllib.loads((models_folder() / "published.toml").read_text("utf-8"))
    for name, table in tables.items():
        scores = {}
        for task, score in _by_full_name(table["scores"]).items():
            scores[task] = float(score)
        sources = _by_full_name(table.get("sources", {}))
        systems[name] = Published(name, table["title"], table["source"], scores, sources)
    return dict(sorted(systems.items()))


def _of_recipe(recipe: Recipe) -> Published:
    """Return the scores that a paper prints for a recipe."""
    scores: dict[str, float] = {}
    sources: dict[str, str] = {}
    main_sources: dict[str, None] = {}
    for task, score in _by_full_name(recipe.published).items():
        scores[task] = float(score.value)
        sources[task] = score.source
        if not task.startswith(tuple(PREFIXES.values())):
            main_sources[score.source] = None
    source = "; ".join(main_sources or dict.fromkeys(sources.values()))
    return Published(recipe.name, recipe.title, source, scores, sources)


def _by_full_name(by_task: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping by the full names of tasks, of one by their names in papers."""
    return {FULL_NAMES.get(task, task): value for task, value in by_task.items()}


def with_titles(scores: Sequence[ModelScores]) -> list[ModelScores]:
    """Return scores whose comparison with a published system has title and source, which an older file may lack."""
    titled = []
    for of_model in scores:
        against = of_model.against
        if against and not {"title", "source"} <= against.keys():
            name = against["name"]
            system = published().get(name) or Published(name, name, "", {})
            against = {"title": system.title, "source": system.source, **against}
            of_model = of_model.with_entries({"against": against})
        titled.append(of_model)
    return titled


def find_published(name: str) -> Published:
    """Return the published scores of a system, or those in mteb's results, a folder or file.

    Raises:
        InputError: if there is no system of that name, or the results are not those of one model.
    """
    systems = published()
    if name in systems:
        return systems[name]
    if Path(name).exists():
        return of_mteb(Path(name))
    raise InputError(
        f"no published scores of {name!r}{nearest(name, list(systems))}; --against list names all {len(systems)}"
    )


def of_mteb(path: Path) -> Published:
    """Return the scores of the one model in mteb's results, a folder or file.

    Raises:
        InputError: if they are of several models, or it is another file.
    """
    if path.is_dir():
        results = read_mteb_folder(path)
    else:
        value = read_json(path)
        if not is_mteb(value):
            raise InputError(
                f"--against {path}: no results of mteb; 'sentcli report' shows scores of sentcli beside each other"
            )
        results = read_mteb(value, path)
    models = set()
    tasks: list[TaskScore] = []
    for scores in results:
        models.add((scores.model, scores.environment["revision"]))
        tasks += scores.tasks
    if len(models) > 1:
        names = sorted(f"{model} at {revision}" for model, revision in models)
        raise InputError(
            f"--against {path}: results of {len(models)} models or revisions ({', '.join(names)}): name those of one"
        )
    model, revision = models.pop()
    title = model
    if revision is not None:
        title += f" at {short_digits(revision)}"
    version = results[0].environment["mteb"]
    return Published(model, title, f"mteb {version}", _of_tasks(tasks))


def _of_tasks(tasks: Sequence[TaskScore]) -> dict[str, float]:
    """Return the scores of tasks and of all `AVERAGES` whose tasks are among them, as in `Published.scores`."""
    scores: dict[str, float] = {}
    for task in tasks:
        kind = SCORE_KINDS[task.kind]
        key = _key(task.task, kind, ())
        scores[key] = task.value * kind.scale
    for key, (kind_name, names) in AVERAGES.items():
        kind = SCORE_KINDS[kind_name]
        averaged = []
        for task in tasks:
            if task.kind == kind_name and _full_name(task.task, kind) in names:
                averaged.append(task)
        mean = average(averaged, kind)
        if mean is not None and len(averaged) == len(names):
            scores[key] = mean * kind.scale
    return scores


def require(system: Published, kind: ScoreKind, tasks: Iterable[str]) -> None:
    """Check that a system has a published score to compare with.

    Raises:
        InputError: if no score of these tasks is published.
    """
    names = set(tasks)
    if all(system.score(task, kind, names) is None for task in (AVERAGE, *names)):
        raise InputError(f"nothing is printed of {system.name} for {', '.join(sorted(names))}")


def compare_with_published(system: Published, kind: ScoreKind, seeds: Sequence[ModelScores]) -> dict[str, Any]:
    """Compare measured with published scores.

    Args:
        system: the published scores.
        kind: of the scores.
        seeds: the scores of a model, or of the seeds of one training.

    Returns:
        The JSON: name, title and source of the system, and a comparison for each task with a published score, and for
        the average if exactly its tasks were measured. The range of a comparison is the interval of a single model, or
        that of 95 % of further seeds if there are several.
    """
    values: dict[str, list[float]] = {}
    for of_model in seeds:
        for task, value in of_model.values(kind).items():
            values.setdefault(task, []).append(value)
    intervals = seeds[0].intervals(kind)
    tasks: dict[str, Any] = {}
    names = set(values) - {AVERAGE}
    for task, measured in values.items():
        score = system.score(task, kind, names)
        if score is None:
            continue
        interval = intervals.get(task)
        if len(measured) > 1:
            interval = _further_seeds(measured)
        within = None
        if interval is not None:
            low, high = interval
            within = low <= score <= high
        mean, _ = mean_and_deviation(measured)
        tasks[task] = {
            "task": task,
            "measured": mean,
            "published": score,
            "range": interval,
            "runs": len(measured),
            "difference": mean - score,
            "within": within,
        }
    return {
        "name": system.name,
        "title": system.title,
        "source": system.source_of(tasks, kind, names),
        "tasks": tasks,
    }


def _further_seeds(values: Sequence[float]) -> tuple[float, float]:
    """Return the prediction interval of 95 % of further runs, if runs are normally distributed."""
    mean, deviation = mean_and_deviation(values)
    assert deviation is not None  # there are several
    count = len(values)
    half = student(count - 1) * deviation * math.sqrt(1 + 1 / count)
    return mean - half, mean + half
