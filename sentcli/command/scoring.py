"""What the verbs that score models share: what an interrupted run keeps, studies, and published scores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from sentcli.command.result import Result, written_if_interrupted

if TYPE_CHECKING:
    from sentcli.evaluation.evaluated import EvaluatedModel, Task
    from sentcli.evaluation.published import Published
    from sentcli.evaluation.score_kinds import ScoreKind
    from sentcli.evaluation.scores import ModelScores
    from sentcli.evaluation.studies import Study
    from sentcli.pages.score_page import Choices


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


def score_study(
    study: Study,
    runs: Iterable[tuple[EvaluatedModel, Sequence[Task], dict[str, Any]]],
    kind: ScoreKind,
    system: Published | None,
    *,
    seed: int | None = None,
) -> Result:
    """Score the models of a study on tasks, and return the scores as a result, compared.

    Args:
        study: the models that the names of the command stand for.
        runs: each model with its tasks, and every choice that moves a score, except those of the model.
        kind: of the scores that are compared with published ones; its command is that of the JSON.
        system: the published one, if any.
        seed: of the classifiers that are trained, if any.
    """
    from sentcli.evaluation.measuring import score_model

    with scores_if_interrupted() as scores:
        for model, tasks, protocol in runs:
            score_model(model, tasks, kind.command, protocol, seed=seed, done=scores)
    return scores_result(scores, system, kind, study)


def choices_of(study: Study, scores: Sequence[ModelScores]) -> Choices:
    """Return the choices of a page of a study: runs of one training, and models of a group, are seeds of one system."""
    import glob

    from sentcli.evaluation.systems import Pattern
    from sentcli.pages.score_page import Choices

    patterns = list(study.groups)
    for run, label in study.labels.items():
        patterns.append(Pattern("-m", label, glob.escape(run)))
    names = list(map(attrgetter("names"), scores))
    groups = []
    for pattern in patterns:
        if any(map(pattern.matches, names)):
            groups.append(pattern)
    return Choices(groups=tuple(groups))


def with_published(scores: Sequence[ModelScores], system: Published | None, kind: ScoreKind) -> list[ModelScores]:
    """Return scores with their comparison with a published system, of the seeds of one training by their mean.

    Args:
        scores: of models.
        system: the published one, if any.
        kind: of the scores that it is compared with.
    """
    from sentcli.evaluation.published import compare_with_published

    if system is None:
        return list(scores)
    trainings: dict[str | int, list[ModelScores]] = {}
    for number, of_model in enumerate(scores):
        trainings.setdefault(of_model.training or number, []).append(of_model)
    against: dict[str, dict[str, Any]] = {}
    for seeds in trainings.values():
        compared = compare_with_published(system, kind, seeds)
        against |= {of_model.model: compared for of_model in seeds}
    return [of_model.with_entries({"against": against[of_model.model]}) for of_model in scores]


def scores_result(scores: Sequence[ModelScores], system: Published | None, kind: ScoreKind, study: Study) -> Result:
    """Return the scores of the models of a study as a result, compared; the others are those of `with_published`."""
    return Result.of_scores(with_published(scores, system, kind), choices_of(study, scores))
