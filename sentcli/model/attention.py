"""The attention function that transformers models get here: fused, flat, or with the weights of chosen layers.

Layers whose weights nobody asks for keep torch's fused attention, which never forms them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from sentcli.model import flat_attention
from sentcli.model.ahead import answers_at_once
from sentcli.model.kernels import attention_weights

IMPLEMENTATION = "sentcli"


@dataclass
class Recorder:
    """The attention weights of some layers in one forward pass, after softmax and dropout, as transformers has them."""

    layers: frozenset[int]
    weights: dict[int, Tensor] = field(default_factory=dict)
    """The weights ``[rows, heads, T, T]`` by the number of the layer, from 0."""
    calls: int = 0
    """How many layers have run. The count tells the uses of a shared layer (ALBERT) apart."""


_active: ContextVar[Recorder | None] = ContextVar("recorder", default=None)
_head_drop: ContextVar[float] = ContextVar("head_drop", default=0.0)
_is_full: ContextVar[bool] = ContextVar("is_full", default=False)


def install(backbone: Any) -> bool:
    """Make a transformers model use `recorded_attention`, and return whether it allows that."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(IMPLEMENTATION, recorded_attention)
    AttentionMaskInterface.register(IMPLEMENTATION, mask)
    if not (getattr(backbone, "_supports_sdpa", False) and backbone._can_set_attn_implementation()):
        return False
    backbone.set_attn_implementation(IMPLEMENTATION)
    return is_installed(backbone)


def uninstall(backbone: Any) -> None:
    """Give a transformers model torch's own attention back, which ``torch.compile`` knows."""
    if is_installed(backbone):
        backbone.set_attn_implementation("sdpa")


def is_installed(backbone: Any) -> bool:
    """Tell whether a transformers model uses `recorded_attention`."""
    return bool(backbone.config._attn_implementation == IMPLEMENTATION)


def mask(*args: Any, attention_mask: Tensor | None = None, **kwargs: Any) -> Tensor | None:
    """Return the mask of a batch as transformers makes it for fused attention; a flat batch has none.

    Transformers asks whether there is any padding, to leave the mask out. On a GPU that would wait for all work before
    it, so there a batch has a mask unless `without_padding` says that it needs none.
    """
    from transformers.masking_utils import sdpa_mask

    if flat_attention.current() is not None:
        return None
    if _is_full.get():
        attention_mask = None
    elif attention_mask is not None and not answers_at_once(attention_mask.device):
        kwargs |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    kwargs["attention_mask"] = attention_mask
    batch_mask: Tensor | None = sdpa_mask(*args, **kwargs)
    return batch_mask


def recorded_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Scaled dot-product attention as a transformers attention function; it forms the weights where they are recorded.

    Args:
        module: the attention layer.
        query: ``[rows, heads, T, d]``.
        key: ``[rows, heads, T, d]``.
        value: ``[rows, heads, T, d]``.
        attention_mask: True or 0 where a key counts, broadcastable to ``[rows, heads, T, T]``.
        scaling: the factor of the scores; None takes ``1 / sqrt(d)``.
        dropout: the dropout rate of the weights.
        **kwargs: further arguments of an architecture.

    Returns:
        The outputs ``[rows, T, heads, d]``, and the weights if they are recorded.
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    layout = flat_attention.current()
    if layout is not None:
        return flat_attention.attend(layout, module, query, key, value, scaling, kwargs), None
    recorder = _active.get()
    layer = -1
    if recorder is not None:
        layer = recorder.calls
        recorder.calls += 1
    if recorder is None or layer not in recorder.layers:
        output, weights = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
    else:
        weights = nn.functional.dropout(attention_weights(query, key, attention_mask, scaling), dropout)
        recorder.weights[layer] = weights
        output = (weights @ value).transpose(1, 2).contiguous()
    rate = _head_drop.get()
    if rate and module.training:
        output = drop_heads(output, rate)
    return output, weights


def drop_heads(output: Tensor, rate: float) -> Tensor:
    """Set whole heads of ``[rows, T, heads, d]`` to zero at random, and scale up the others in proportion.

    This is the drophead of Mirror-BERT's scripts (Zhou et al. 2020); every row keeps at least one head.
    """
    rows, _, heads, _ = output.shape
    keep = torch.rand(rows, heads, device=output.device)
    kept = (keep >= rate) | (keep == keep.amax(dim=1, keepdim=True))
    factor = kept * heads / kept.sum(dim=1, keepdim=True)
    return output * factor.to(output.dtype)[:, None, :, None]


@contextmanager
def dropping_heads(rate: float) -> Iterator[None]:
    """Drop heads at this rate inside the block, in training mode, for models on which `install` was called."""
    token = _head_drop.set(rate)
    try:
        yield
    finally:
        _head_drop.reset(token)


@contextmanager
def without_padding() -> Iterator[None]:
    """Take the batch inside the block for one without padding, for models on which `install` was called.

    Such a model still has to be given its mask: without one, some architectures look at their positions for texts
    that follow each other in a row, and wait for the device.
    """
    token = _is_full.set(True)
    try:
        yield
    finally:
        _is_full.reset(token)


@contextmanager
def recording(backbone: Any, layers: Collection[int]) -> Iterator[Recorder | None]:
    """Record the attention weights of these layers in the forward pass inside the block.

    Yields:
        The recorder; None if there is nothing to record, or the model does not use `recorded_attention` and has to
        return the weights itself.
    """
    if not layers or not is_installed(backbone):
        yield None
        return
    recorder = Recorder(frozenset(layers))
    token = _active.set(recorder)
    try:
        yield recorder
    finally:
        _active.reset(token)
