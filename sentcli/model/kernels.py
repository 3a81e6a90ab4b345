"""Operations of training on a CPU that are faster than torch's own: dropout, and attention."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import dropout, scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

LEVELS = 2**16
"""Dropout draws 16 bits for each number, so that its rate is exact to 1/65,536."""
HALVES = (torch.bfloat16, torch.float16)
FUSED_IF_POSSIBLE = [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]
"""The fused attention; the plain one for a mask that is trained itself, which the fused one does not take."""


class CpuKernels(TorchFunctionMode):
    """Inside this context some of torch's functions are replaced by faster ones, which act on tensors of a CPU.

    * Dropout, also that of attention weights, takes its bits from NumPy's SFC64, which is seeded by a number of torch's
      generator: so the random numbers of training still follow from torch's seed and state.
    * Attention without dropout is computed in fp32 where the states are in a half precision.

    docs/studies/speed.md says how much time a training takes without them.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call what replaces a function of torch, or the function."""
        return REPLACED.get(func, func)(*args, **(kwargs or {}))


def fast_dropout(states: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Set each number to zero with probability `p` and scale up the others; not in place even if it is asked for."""
    if not (training and 0 < p < 1 and states.device.type == "cpu"):
        return dropout(states, p, training, inplace)
    return Dropout.apply(states, p)  # type: ignore[no-untyped-call]


class Dropout(Function):
    """Dropout with 16 random bits a number."""

    @staticmethod
    def forward(ctx: FunctionCtx, states: Tensor, rate: float) -> Tensor:
        """Return the states with some set to zero and the others scaled."""
        seed = int(torch.randint(2**62, (1,)))
        count = states.numel()
        raw = np.random.SFC64(seed).random_raw(-(-count // 4))  # 64 bits are 4 numbers
        bits = raw.view(np.uint16)[:count]
        dropped = round(rate * LEVELS)
        kept = torch.from_numpy((bits >= dropped).view(np.uint8)).view(states.shape)
        scale = LEVELS / (LEVELS - dropped)
        ctx.kept = kept  # type: ignore[attr-defined]
        ctx.scale = scale  # type: ignore[attr-defined]
        return scaled(states, kept, scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Return the gradient of the states."""
        return scaled(gradients[0], ctx.kept, ctx.scale), None


def scaled(states: Tensor, kept: Tensor, scale: float) -> Tensor:
    """Return the states that are kept, scaled, and zeros."""
    return kept.to(states.dtype).mul_(states).mul_(scale)


def fast_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0, **others: Any
) -> Tensor:
    """Return scaled dot-product attention ``[..., T, d]``, with the weights' dropout by `fast_dropout`.

    Without dropout, a half precision takes torch's fused attention in fp32: on a CPU its gradient in a half precision
    takes longer than that of the plain attention, and in fp32 less.
    """
    plain = not others.get("is_causal") and not others.get("enable_gqa")
    if not plain or query.device.type != "cpu":
        return scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, **others)
    if not dropout_p:
        if query.dtype in HALVES:
            return _fused_in_fp32(query, key, value, attn_mask, others.get("scale"))
        return scaled_dot_product_attention(query, key, value, attn_mask, **others)
    weights = attention_weights(query, key, attn_mask, others.get("scale"))
    return fast_dropout(weights, dropout_p) @ value


def _fused_in_fp32(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float | None) -> Tensor:
    """Return torch's fused attention ``[..., T, d]`` in the precision of the query, computed in fp32."""
    if mask is not None and mask.dtype != torch.bool:
        mask = mask.float()
    wide = (query.float(), key.float(), value.float())
    with torch.autocast(query.device.type, enabled=False), sdpa_kernel(FUSED_IF_POSSIBLE):
        return scaled_dot_product_attention(*wide, mask, scale=scale).to(query.dtype)


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None, scale: float | None) -> Tensor:
    """Return the attention weights ``[..., T, T]`` after softmax; a row that may attend to nothing has zeros.

    Args:
        query: ``[..., T, d]``.
        key: ``[..., T, d]``.
        mask: True or 0 where a key counts, broadcastable to ``[..., T, T]``.
        scale: the factor of the scores; None takes ``1 / sqrt(d)``.
    """
    if scale is None:
        scale = query.shape[-1] ** -0.5
    scores = query * scale @ key.transpose(-2, -1)
    if mask is None:
        return scores.softmax(dim=-1)
    if mask.dtype != torch.bool:
        return (scores + mask).softmax(dim=-1)
    hidden = ~mask
    # not -inf: padding outside a sliding window attends to no key at all
    scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
    return scores.softmax(dim=-1).masked_fill(hidden, 0)


REPLACED: dict[Any, Callable[..., Any]] = {
    dropout: fast_dropout,
    scaled_dot_product_attention: fast_attention,
}
