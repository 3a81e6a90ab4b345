"""The options and the result of the verbs that score models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from sentcli.command.result import Result, written_if_interrupted
from sentcli.errors import InputError

if TYPE_CHECKING:
    from sentcli.evaluation.published import Published
    from sentcli.evaluation.score_kinds import ScoreKind
    from sentcli.evaluation.scores import ModelScores
    from sentcli.table import Table


@contextmanager
def kept_if_interrupted() -> Iterator[list[ModelScores]]:
    """Yield a list for the scores of models; those that are in it when the work is interrupted go to ``--json``."""
    from sentcli.evaluation.score_files import model_json

    done: list[ModelScores] = []

    def so_far() -> Result | None:
        begun = [scores for scores in done if scores.tasks]
        objects = [{**model_json(scores), "interrupted": True} for scores in begun]
        return Result.of_scores(begun, [], objects=objects) if begun else None

    with written_if_interrupted(so_far):
        yield done


def compare_models(models: list[ModelScores], system: Published | None, kind: ScoreKind) -> list[ModelScores]:
    """Add to the scores of models their comparison with the first model and with a published system.

    Args:
        models: their scores.
        system: the published one, if any.
        kind: of the scores that it is compared with.
    """
    from sentcli.evaluation.published import compare

    first, *others = models
    for scores in others:
        scores.compared = {"with": first.model, "tasks": scores.compare(first)}
    if system is not None:
        by_model = [scores.values(kind) for scores in models]
        by_task = {task: [values[task] for values in by_model] for task in by_model[0]}
        against = compare(system, kind, by_task, first.intervals(kind))
        for scores in models:
            scores.against = against
    return models


def scores_result(models: list[ModelScores], system: Published | None, kind: ScoreKind) -> Result:
    """Return the scores of models as a result, after comparing them; the arguments are those of `compare_models`."""
    return Result.of_scores(compare_models(models, system, kind), tables_of(models))


def tables_of(models: Sequence[ModelScores]) -> Iterator[Table]:
    """Yield the tables of scores that a command prints."""
    from sentcli.pages import comparisons, score_tables
    from sentcli.pages.score_page import score_tables_of

    for table in score_tables_of(models):
        scores = score_tables.score_table(table)
        of_average = {key: interval for key, interval in scores.intervals.items() if key[1] == "Avg."}
        yield replace(scores, intervals=of_average or scores.intervals)  # a screen has no room for all tasks' ones
        if len(models) == 1 and (measures := score_tables.measure_table(table)) is not None:
            yield replace(measures, intervals={})
        if (differences := comparisons.comparison_table(table)) is not None:
            yield differences
        yield from score_tables.against_tables(table)


def names(tasks: str | None) -> list[str] | None:
    """Return the names in ``--tasks A,B``; None for None.

    Raises:
        InputError: if there is no name.
    """
    task_names = [name.strip() for name in tasks.split(",") if name.strip()] if tasks is not None else None
    if task_names == []:
        raise InputError("--tasks names no task")
    return task_names
