"""Two trainings as one run: a method on the text alone, then one that goes on from its weights.

IS-BERT's paper trains on the sentences of STS-B without their scores before it learns the scores ("ssl + ft").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from sentcli.processes import everywhere
from sentcli.training import run as runs
from sentcli.training.prepare import BEFORE, Prepared, TrainRequest, prepare, read_inputs
from sentcli.training.task_text import PAIRS

if TYPE_CHECKING:
    from sentcli.training.state import Observer


def after_first_stage(request: TrainRequest, starts: Callable[[Prepared], Observer | None]) -> TrainRequest:
    """Train the method that comes before, and return the request that goes on from its weights.

    Args:
        request: if it says `after`, that method is trained on the sentences of its pairs with the same seed, in a
            folder beside its output; one that is there and was made of the same is gone on with, or taken as it is.
        starts: called before the first step.

    Raises:
        InputError: as `prepare`, for either method.
    """
    if request.after is None:
        return request
    method = request.configured()
    read_inputs(request, method)  # what is wrong with the second stage is said before the first one is trained
    output = request.output.resolve()
    assignments = [
        ("settings.seed", method.settings.seed),
        *((key.removeprefix(BEFORE), value) for key, value in request.assignments if key.startswith(BEFORE)),
    ]
    first = replace(
        request,
        method=request.after,
        after=None,
        output=output.with_name(f"{output.name}-{request.after}"),
        text_of=PAIRS,
        stage=None,
        recipe=None,
        pooling=None,
        eval_data=None,
        sts=False,
        resume=not request.overwrite,
        assignments=assignments,
    )
    prepared = everywhere(lambda: prepare(first))
    runs.run(
        prepared, starts(prepared)
    )  # returns at once if it has finished, and refuses what was made of something else
    return replace(
        request,
        model=str(first.output),
        pooling=request.pooling or "own",
        after=None,
        assignments=[(key, value) for key, value in request.assignments if not key.startswith(BEFORE)],
        first_stage={"method": first.method, "model": request.model, "settings": dict(assignments)},
    )
