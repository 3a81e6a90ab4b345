"""The pooling of a run: a finished encoder keeps its own, any other start takes its method's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sentcli.encoder.loading import finished_encoder
from sentcli.methods.modules import PoolingOnly
from sentcli.model.spec import POOLINGS
from sentcli.training.request import AUTO, OWN_POOLING
from sentcli.training.run_folder import kept_identity

if TYPE_CHECKING:
    from sentcli.methods import Method
    from sentcli.training.request import TrainRequest

ASSUMED = "mean"
"""The pooling that other programs assume for a model that states none, as `read_spec` does."""


@dataclass(frozen=True)
class PoolingChoice:
    """A pooling, and why it was taken."""

    name: str
    """A value of ``--pooling``; ``own`` is what the start model has."""
    reason: str
    other: str | None = None
    """The value that a user may have expected instead; its start is scored once beside the one that was taken."""
    unused: str | None = None
    """The pooling that was asked for, if the method has no use for it."""


def choose_pooling(method: Method, model: str, asked: str = AUTO) -> PoolingChoice:
    """Return the pooling of a run.

    Args:
        method: with its settings.
        model: the name of the start model.
        asked: the value of ``--pooling``, or the one that a recipe names.
    """
    fixed = method.fixed_pooling
    if fixed:
        unused = None if asked in (AUTO, OWN_POOLING) else asked
        return PoolingChoice(OWN_POOLING, f"{method.name} reads {fixed}", unused=unused)
    if asked == AUTO and isinstance(method.fit, PoolingOnly):
        return PoolingChoice(method.pooling, "it is all that the method changes")
    if asked == OWN_POOLING or (asked == AUTO and method.pooling == OWN_POOLING):
        return PoolingChoice(OWN_POOLING, "the start model's own")
    finished = finished_encoder(model)
    other = None
    if asked != AUTO:
        if finished is not None and finished.pooling != asked:
            other = OWN_POOLING
        return PoolingChoice(asked, "it was asked for", other)
    if finished is None:
        if method.pooling != ASSUMED:
            other = ASSUMED
        return PoolingChoice(method.pooling, f"that of {method.name}, since the start model states none", other)
    if not finished.is_static and finished.pooling != method.pooling:
        other = method.pooling
    return PoolingChoice(OWN_POOLING, "the start model's own, since it is a finished encoder", other)


def run_pooling(request: TrainRequest, method: Method, start: str | None = None) -> PoolingChoice:
    """Return the pooling of a run; one that is resumed keeps what it began with, unless another is asked for.

    Earlier versions took the method's pooling for every start.

    Args:
        request: the run.
        method: with its settings.
        start: the start model; None is the model of the request.
    """
    start = start or request.model
    choice = choose_pooling(method, start, request.pooling)
    if request.pooling != AUTO or not request.log.resume or method.fixed_pooling:
        return choice
    encoder = kept_identity(request.output, overwrite=request.log.overwrite).get("encoder")
    if not isinstance(encoder, dict) or encoder.get("pooling") is None:
        return choice
    earlier = encoder["pooling"]
    finished = finished_encoder(start)
    start_pooling = None if finished is None else finished.pooling
    chosen = start_pooling if choice.name == OWN_POOLING else choice.name
    if earlier == chosen:
        return choice
    if earlier == start_pooling:
        return PoolingChoice(OWN_POOLING, "the run began with it")
    if earlier in POOLINGS:
        return PoolingChoice(earlier, "the run began with it")
    return choice
