"""Two trainings as one run: a method on the text alone, then one that goes on from its weights.

IS-BERT's paper trains on the sentences of STS-B without their scores before it learns the scores ("ssl + ft").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from sentcli.processes import everywhere
from sentcli.training import run as runs
from sentcli.training.prepare import BEFORE, Prepared, TrainRequest, prepare
from sentcli.training.task_text import PAIRS

if TYPE_CHECKING:
    from sentcli.training.state import Observer


def after_first_stage(request: TrainRequest, starts: Callable[[Prepared], Observer | None]) -> TrainRequest:
    """Train the method that comes before, and return the request that goes on from its weights.

    Args:
        request: if it says `after`, that method is trained on the sentences of its pairs, in a folder beside its
            output; one that is there and finished is taken as it is.
        starts: called before the first step.

    Raises:
        InputError: as `prepare`, for either method.
    """
    if request.after is None:
        return request
    request.configured()  # what is wrong with the second stage is said before the first one is trained
    folder = request.output.with_name(f"{request.output.name}-{request.after}")
    first = replace(
        request,
        method=request.after,
        after=None,
        output=folder,
        text_of=PAIRS,
        stage=None,
        recipe=None,
        pooling=None,
        eval_data=None,
        sts=False,
        resume=not request.overwrite,
        assignments=[
            *((key, value) for key, value in request.assignments if key == "settings.seed"),
            *((key.removeprefix(BEFORE), value) for key, value in request.assignments if key.startswith(BEFORE)),
        ],
    )
    prepared = everywhere(lambda: prepare(first))
    if not (first.resume and runs.is_finished(folder)):
        runs.run(prepared, starts(prepared))
    later = [(key, value) for key, value in request.assignments if not key.startswith(BEFORE)]
    pooling = request.pooling or "own"
    return replace(request, model=str(folder), pooling=pooling, after=None, assignments=later)
