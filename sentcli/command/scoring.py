"""What the verbs that score models share: what an interrupted run keeps, comparisons, and the tables they print."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from sentcli.command.result import Result, written_if_interrupted

if TYPE_CHECKING:
    from sentcli.evaluation.published import Published
    from sentcli.evaluation.score_kinds import ScoreKind
    from sentcli.evaluation.scores import ModelScores
    from sentcli.evaluation.studies import Study
    from sentcli.pages.parts import Comparisons
    from sentcli.pages.score_page import Choices
    from sentcli.table import Table


@contextmanager
def scores_if_interrupted() -> Iterator[list[ModelScores]]:
    """Yield a list for the scores of models; those that are in it when the work is interrupted go to ``--json``."""
    from sentcli.evaluation.score_json import model_json

    done: list[ModelScores] = []

    def so_far() -> Result | None:
        objects = []
        for scores in done:
            if scores.tasks:
                objects.append({**model_json(scores), "interrupted": True})
        if not objects:
            return None
        return Result(objects)

    with written_if_interrupted(so_far):
        yield done


def compare_models(
    scores: Sequence[ModelScores], system: Published | None, kind: ScoreKind, choices: Choices | None = None
) -> Comparisons:
    """Compare models with the first of them, and each of them, or its seeds together, with a published system.

    Args:
        scores: of the models.
        system: the published one, if any.
        kind: of the scores that it is compared with.
        choices: which models are seeds of one system, which are compared by their means.
    """
    from sentcli.evaluation.published import compare_with_published
    from sentcli.pages.parts import Comparisons

    with_first = list(_with_first(scores, choices))
    with_published = []
    if system is not None:
        for seeds in _trainings(scores):
            compared = compare_with_published(system, kind, seeds)
            with_published += [(of_model, compared) for of_model in seeds]
    return Comparisons(with_first, with_published)


def _with_first(
    scores: Sequence[ModelScores], choices: Choices | None
) -> Iterator[tuple[ModelScores, Mapping[str, Any]]]:
    """Yield the comparison of each model with the first one, or where there are seeds of its system with the first."""
    if choices is not None and choices.groups:
        from sentcli.pages.own_data import compare_systems

        yield from compare_systems(scores, choices).with_first
        return
    first, *others = scores
    for other in others:
        yield other, {"with": first.model, "tasks": other.compare(first)}


def choices_of(study: Study, scores: Sequence[ModelScores]) -> Choices:
    """Return the choices of a page of scores of a study: the runs of one training are seeds of one system."""
    import glob

    from sentcli.pages.score_page import Choices
    from sentcli.pages.systems import Pattern

    groups = []
    for run, label in study.labels.items():
        group = Pattern("-m", label, glob.escape(run))
        if any(map(group.matches, scores)):
            groups.append(group)
    return Choices(groups=tuple(groups))


def _trainings(scores: Sequence[ModelScores]) -> list[list[ModelScores]]:
    """Return the scores of models, those of the seeds of one training together; any other model is alone."""
    groups: dict[str | int, list[ModelScores]] = {}
    for number, of_model in enumerate(scores):
        groups.setdefault(of_model.training or number, []).append(of_model)
    return list(groups.values())


def with_comparisons(scores: Sequence[ModelScores], system: Published | None, kind: ScoreKind) -> list[ModelScores]:
    """Return the scores of models with their comparisons; the arguments are those of `compare_models`."""
    from sentcli.pages.parts import with_parts

    compared = compare_models(scores, system, kind)
    return [with_parts(of_model, [compared]) for of_model in scores]


def scores_result(scores: Sequence[ModelScores], system: Published | None, kind: ScoreKind, study: Study) -> Result:
    """Return the scores of the models of a study as a result, compared; the others are those of `compare_models`."""
    choices = choices_of(study, scores)
    compared = compare_models(scores, system, kind, choices)
    return Result.of_scores(scores, [compared], partial(tables_of, choices=choices), choices)


def tables_of(scores: Sequence[ModelScores], choices: Choices | None = None) -> Iterator[Table]:
    """Yield the tables of scores that a command prints, given which models are seeds of one system."""
    from sentcli.pages import comparisons, score_tables
    from sentcli.pages.score_page import Choices, score_tables_of

    for table in score_tables_of(scores, choices or Choices()):
        shown = score_tables.score_table(table)
        of_average = {}  # a screen has no room for those of all tasks
        for (row, column), interval in shown.intervals.items():
            if column == "Avg.":
                of_average[row, column] = interval
        yield replace(shown, intervals=of_average or shown.intervals)
        measures = score_tables.measure_table(table)
        if len(scores) == 1 and measures is not None:
            yield replace(measures, intervals={})
        differences = comparisons.comparison_table(table)
        if differences is not None:
            yield differences
        yield from score_tables.against_tables(table)
