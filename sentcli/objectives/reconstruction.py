"""The reconstruction term of InforMin-CL (Chen et al., COLING 2022, eq. 8): one view's vector predicts the other's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from torch.nn import functional

from sentcli.objectives.base import Objective, Views

if TYPE_CHECKING:
    from torch import Tensor

Form = Literal["mse-normalized", "l2-normalized", "l2-raw"]


def reconstruction_loss(first: Tensor, second: Tensor, form: str = "mse-normalized") -> Tensor:
    """Squared distance between two views of each sentence.

    Args:
        first: ``[B, d]``.
        second: ``[B, d]``.
        form: ``mse-normalized`` is the authors' code: both directions of the mean over all B * d entries of unit
            vectors, 2 / d times the mean squared distance. ``l2-normalized`` and ``l2-raw`` read eq. 8 literally: the
            mean over sentences of the squared distance, summed over d, of unit vectors or of the vectors themselves.

    Returns:
        A scalar. At d = 768 the first form is 384 times smaller than the second.

    Raises:
        ValueError: for an unknown form.
    """
    if form not in get_args(Form):
        raise ValueError(f"form {form!r} is unknown; one of: {', '.join(get_args(Form))}")
    if form != "l2-raw":
        first, second = functional.normalize(first, dim=-1), functional.normalize(second, dim=-1)
    distance = (first - second).square().sum(dim=-1).mean()
    return distance * 2 / first.shape[-1] if form == "mse-normalized" else distance


@dataclass(frozen=True, kw_only=True)
class Reconstruction(Objective, name="reconstruction"):
    """`reconstruction_loss` of the first two views, after the head, like the vectors that enter InfoNCE."""

    weight: float = 0.4
    form: Form = "mse-normalized"

    def __call__(self, views: Views) -> Tensor:
        """Return the term of views 1 and 2."""
        return reconstruction_loss(views.projected[0], views.projected[1], self.form)
