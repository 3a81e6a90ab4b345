"""The attention of flat batches: which kernel computes it, chosen here alone, and whether a model can run them.

On CUDA in fp16 and bf16 it is `torch.nn.attention.varlen`, which torch has from 2.10 on. Everything else runs padded
batches through `scaled_dot_product_attention`: fp32, which flash attention does not compute in, other devices, older
releases of torch, and models whose attention has a bias by position (T5, MPNet, DeBERTa).
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from inspect import signature
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from sentcli.model.ahead import queued_to
from sentcli.model.flat import Flat, flat_of

FLAT_FAMILIES: Final = (
    "bert", "roberta", "xlm-roberta", "camembert", "distilbert", "albert", "electra", "ernie", "modernbert",
    "nomic_bert", "gte", "eurobert", "jina_embeddings_v3", "qwen2", "qwen3", "llama", "mistral",
    "gemma3_text", "embedding_gemma2_text", "gpt2", "ultrabert",
)  # fmt: skip
"""The architectures of which the tests compare flat batches with single texts, in float32; others run padded."""
OLDEST_CAPABILITY = (8, 0)
"""The first generation of NVIDIA's GPUs on which flash attention runs (A100)."""

HEAD_MULTIPLE, WIDEST_HEAD = 8, 256
"""Flash attention computes heads of a multiple of so many dimensions, and of so many at most."""


@dataclass(frozen=True)
class Reach:
    """Which keys of its own text a query attends to."""

    causal: bool
    """Whether it sees none behind it."""
    window: int | None
    """The number of keys on a side that it sees, itself included; None stands for all."""

    @property
    def sides(self) -> tuple[int, int]:
        """The number of keys before and behind a query that it sees; -1 stands for all."""
        side = -1 if self.window is None else self.window - 1
        return side, 0 if self.causal else side


Kernel = Callable[[Tensor, Tensor, Tensor, "FlatLayout", Reach, float | None], Tensor]
"""Computes attention ``[queries, heads, d]`` of queries ``[queries, heads, d]``, keys and values ``[tokens, heads, d]``
by the layout of a batch, the reach of a query and the factor of the scores, where None stands for ``1 / sqrt(d)``."""


@dataclass(frozen=True)
class FlatLayout:
    """The places of the texts of a flat batch, on the device of the model, and the kernel that keeps them apart."""

    kernel: Kernel
    offsets: Tensor
    """Where each text begins, and the number of tokens, int32 ``[texts + 1]``."""
    longest: int
    """The number of tokens of the longest text."""

    @property
    def texts(self) -> int:
        """The number of texts."""
        return len(self.offsets) - 1

    def query_offsets(self, queries: int, tokens: int) -> tuple[Tensor, int]:
        """Return where the queries of each text begin, and the most that a text has.

        There are as many queries as tokens, or a single one for each text where only the first token is needed.
        """
        if queries == tokens:
            return self.offsets, self.longest
        return torch.arange(self.texts + 1, dtype=torch.int32, device=self.offsets.device), 1


_layout: ContextVar[FlatLayout | None] = ContextVar("layout", default=None)


@contextmanager
def laid_out(layout: FlatLayout) -> Iterator[None]:
    """Compute attention by the layout of a flat batch inside the block."""
    token = _layout.set(layout)
    try:
        yield
    finally:
        _layout.reset(token)


def current() -> FlatLayout | None:
    """Return the layout of the flat batch that is being computed; None for a padded batch."""
    return _layout.get()


@dataclass(frozen=True)
class FlatInputs:
    """A flat batch on the device of the model."""

    ids: Tensor
    """``[tokens]``."""
    positions: Tensor
    """The place of each token in its text, from 0 ``[tokens]``."""
    type_ids: Tensor | None
    layout: FlatLayout

    @classmethod
    def on(cls, device: torch.device, batch: Flat, kernel: Kernel) -> FlatInputs:
        """Copy a batch to a device without waiting for it."""
        rows = [batch.ids, batch.positions]
        if batch.type_ids is not None:
            rows.append(batch.type_ids)
        moved = queued_to(torch.from_numpy(np.stack(rows)), device)
        layout = FlatLayout(kernel, queued_to(torch.from_numpy(batch.offsets), device), batch.longest)
        types = None if batch.type_ids is None else moved[2]
        return cls(moved[0], moved[1], types, layout)

    @property
    def mask(self) -> Tensor:
        """1 for the tokens of the padded batch ``[texts, longest]``."""
        lengths = self.layout.offsets.diff()
        places = torch.arange(self.layout.longest, device=lengths.device)
        return (places < lengths[:, None]).long()

    def padded(self, values: Tensor) -> Tensor:
        """Return the values of tokens ``[tokens, ...]`` as those of a padded batch ``[texts, longest, ...]``."""
        layout = self.layout
        numbers = torch.arange(layout.texts, device=values.device)
        lengths = layout.offsets.diff()
        texts = numbers.repeat_interleave(lengths, output_size=len(values))
        rows = values.new_zeros((layout.texts * layout.longest, *values.shape[1:]))
        rows.index_copy_(0, texts * layout.longest + self.positions, values)
        return rows.view(layout.texts, layout.longest, *values.shape[1:])


class UnsupportedError(RuntimeError):
    """A model's attention is of a kind that no kernel for flat batches computes."""


def attend(
    layout: FlatLayout,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scaling: float | None,
    options: Any,
) -> Tensor:
    """Return the attention of a flat batch as a transformers attention function does ``[1, queries, heads, d]``.

    Args:
        layout: where the texts lie.
        module: the attention layer.
        query: ``[1, heads, queries, d]``.
        key: ``[1, key heads, tokens, d]``, whose heads several heads of queries may share.
        value: ``[1, key heads, tokens, d]``.
        scaling: the factor of the scores; None takes ``1 / sqrt(d)``.
        options: the further arguments of the architecture.

    Raises:
        UnsupportedError: for scores that are bent or have a bias.
    """
    bent = [name for name in ("softcap", "s_aux", "position_bias") if options.get(name) is not None]
    if bent:
        raise UnsupportedError(f"attention with {', '.join(bent)}")
    causal = options.get("is_causal")
    if causal is None:
        causal = getattr(module, "is_causal", True)
    reach = Reach(bool(causal), options.get("sliding_window"))
    shared = query.shape[1] // key.shape[1]
    if shared > 1:
        key = key.repeat_interleave(shared, dim=1)
        value = value.repeat_interleave(shared, dim=1)
    queries, keys, values = (states[0].transpose(0, 1) for states in (query, key, value))
    return layout.kernel(queries, keys, values, layout, reach, scaling)[None]


def by_flash_attention(
    query: Tensor, key: Tensor, value: Tensor, layout: FlatLayout, reach: Reach, scale: float | None
) -> Tensor:
    """A `Kernel` by torch's variable-length flash attention.

    The function has taken other arguments in each release: 2.10 has a flag for causal attention and no windows.

    Raises:
        UnsupportedError: for heads of other dimensions than flash attention has, or a window in torch 2.10.
    """
    dimension = query.shape[-1]
    if dimension % HEAD_MULTIPLE or dimension > WIDEST_HEAD:
        raise UnsupportedError(f"heads of {dimension} dimensions")
    function, takes = _varlen()
    offsets, longest = layout.query_offsets(len(query), len(key))
    options: dict[str, Any] = {}
    if "window_size" in takes:
        options["window_size"] = reach.sides
    elif reach.window is None:
        options["is_causal"] = reach.causal
    else:
        raise UnsupportedError("attention within a window, for which torch has to be 2.11 or later")
    if scale is not None and "scale" in takes:
        options["scale"] = scale
    elif scale is not None:
        query = query * (scale * dimension**0.5)
    output: Tensor = function(
        query.contiguous(), key.contiguous(), value.contiguous(), offsets, layout.offsets, longest, layout.longest,
        **options,
    )  # fmt: skip
    return output


@cache
def _varlen() -> tuple[Callable[..., Any], frozenset[str]]:
    """Return torch's variable-length attention, and the names of its arguments."""
    function = importlib.import_module("torch.nn.attention.varlen").varlen_attn
    return function, frozenset(signature(function).parameters)


def text_by_text(
    query: Tensor, key: Tensor, value: Tensor, layout: FlatLayout, reach: Reach, scale: float | None
) -> Tensor:
    """A `Kernel` that computes the attention of one text after the other, for any device and precision.

    It is what the others are compared with.
    """
    offsets, _ = layout.query_offsets(len(query), len(key))
    of_queries = offsets.tolist()
    of_keys = layout.offsets.tolist()
    outputs = []
    for text in range(layout.texts):
        queries = slice(of_queries[text], of_queries[text + 1])
        keys = slice(of_keys[text], of_keys[text + 1])
        places = torch.arange(keys.stop - keys.start, device=query.device)
        distance = places - places[: queries.stop - queries.start, None]
        before, behind = reach.sides
        seen = torch.ones_like(distance, dtype=torch.bool)
        if before >= 0:
            seen &= distance >= -before
        if behind >= 0:
            seen &= distance <= behind
        output = nn.functional.scaled_dot_product_attention(
            query[queries].transpose(0, 1),
            key[keys].transpose(0, 1),
            value[keys].transpose(0, 1),
            attn_mask=seen,
            scale=scale,
        )
        outputs.append(output.transpose(0, 1))
    return torch.cat(outputs)


_forced: ContextVar[tuple[Kernel | None] | None] = ContextVar("forced", default=None)


@contextmanager
def forcing(kernel: Kernel | None) -> Iterator[None]:
    """Let models that are loaded inside the block run by this kernel on any device; None stands for padded batches."""
    token = _forced.set((kernel,))
    try:
        yield
    finally:
        _forced.reset(token)


def choose_kernel(device: torch.device, precision: str) -> Kernel | None:
    """Return the kernel for flat batches on a device in a precision; None where padded batches are taken."""
    forced = _forced.get()
    if forced is not None:
        return forced[0]
    if device.type != "cuda" or precision not in ("fp16", "bf16") or torch.version.cuda is None:
        return None
    if torch.cuda.get_device_capability(device) < OLDEST_CAPABILITY:
        return None
    has_varlen = importlib.util.find_spec("torch.nn.attention.varlen") is not None
    return by_flash_attention if has_varlen else None


TRIED_TOKENS = 16_384
"""How many tokens a model is tried with at most, which are more than it has positions unless it has very many."""
DRIFT: Final = {"fp32": 1e-5, "bf16": 5e-3, "fp16": 1e-3}
"""By how much the cosine of a flat and a single text may differ from 1 by rounding alone."""


def trial(config: Any, pad_id: int | None) -> tuple[Flat, list[Flat]]:
    """Return a flat batch of two texts of different length many times over, and each of the two alone.

    Positions, windows and borders between texts all show in it: the longer text reaches beyond a window, and together
    they have more tokens than the model has positions.

    Args:
        config: the configuration of the transformer.
        pad_id: the id of the padding, which stands in no text.
    """
    positions = getattr(config, "max_position_embeddings", None) or 512
    window = getattr(config, "sliding_window", None) or 0
    longer = min(2 * window + 12, positions - 4, TRIED_TOKENS // 2)
    words = [word for word in range(min(int(config.vocab_size), 1000)) if word != pad_id]
    texts = []
    for start, length in ((3, 5), (11, longer)):
        places = start + 7 * np.arange(length)
        texts.append(np.array(words)[places % len(words)].tolist())
    repeats = min(positions, TRIED_TOKENS) // (5 + longer) + 1
    return flat_of(texts * repeats), [flat_of([text]) for text in texts]
