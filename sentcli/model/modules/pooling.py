"""What nearly every model ends with: pooling, which makes one vector of many, normalisation, and fewer dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import MinLen

from sentcli.errors import InputError
from sentcli.io.forms import write_json
from sentcli.io.typed import among
from sentcli.model.modules.base import TOKEN_EMBEDDINGS, Features, ModuleSpec, Size, added_later, embeddings_of

if TYPE_CHECKING:
    from torch import Tensor

TOKEN_POOLINGS = ("cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
Mode = Annotated[str, among(*TOKEN_POOLINGS)]
LEGACY_POOLING_KEYS = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
"""The setting of each mode in older configuration files, in the order in which sentence-transformers concatenates."""


@dataclass(frozen=True)
class PoolingSpec(ModuleSpec, name="Pooling", in_sentence_transformers=True):
    """Pools token vectors ``[B, T, d]`` to ``[B, d * len(modes)]``; several modes are concatenated."""

    modes: Annotated[tuple[Mode, ...], MinLen(1)] = ("mean",)
    include_prompt: bool = True

    pools = True

    @property
    def first_token_suffices(self) -> bool:
        """Whether the module reads only position 0."""
        return self.modes == ("cls",)

    @property
    def reads_one_token(self) -> bool:
        """Whether the module reads a single position."""
        return self.modes in (("cls",), ("lasttoken",))

    def output_width(self, width: int) -> int:
        """Return the dimension of all modes together."""
        return width * len(self.modes)

    def forward(self, features: Features, parts: Any) -> None:
        """Set `features.sentence` ``[B, d * modes]``."""
        import torch

        mask = features.mask
        if features.prompt_length and not self.include_prompt:
            mask = mask.clone()
            mask[:, : features.prompt_length] = 0
        weight_sum = features.weight_sum
        pooled = [pool(features.tokens, mask, features.mask, mode, weight_sum) for mode in self.modes]
        features.sentence = torch.cat(pooled, dim=-1)

    def write_onnx(self, graph: Any, states: Any, value: Any, name: str, parts: Any) -> Any:
        """Write the pooling, for texts that are padded on the right."""
        pooled = [_write_mode(graph, value, states.mask, mode, states.weight_sum) for mode in self.modes]
        if len(pooled) == 1:
            return pooled[0]
        return graph.op("Concat", *pooled, axis=-1)

    @classmethod
    def from_config(cls, config: dict[str, Any], folder: Path) -> PoolingSpec:
        """Read the modes, in the current or the older form of sentence-transformers."""
        modes = config.get("pooling_mode")
        if modes is None:
            if not config.keys() & {*LEGACY_POOLING_KEYS.values()}:
                raise InputError(f"{folder}: its configuration names no pooling mode")
            modes = []
            for mode, key in LEGACY_POOLING_KEYS.items():
                value = config.get(key)
                if not isinstance(value, bool | None):
                    raise ValueError(f"{key} must be true or false, not {value!r:.60}")
                if value:
                    modes.append(mode)
            if not modes:
                modes = ["mean"]
        if isinstance(modes, str):
            modes = [modes]
        return cls(tuple(modes), config.get("include_prompt", True))

    def to_config(self, width: int, parts: Any) -> dict[str, Any]:
        """Return the modes in the form that releases from 2 on read, where that form can express them."""
        if list(self.modes) == [mode for mode in LEGACY_POOLING_KEYS if mode in self.modes]:
            modes: dict[str, Any] = {key: mode in self.modes for mode, key in LEGACY_POOLING_KEYS.items()}
        else:  # another order, which only releases from 5 on can read
            modes = {"pooling_mode": list(self.modes)}
        return {"word_embedding_dimension": width, **modes, "include_prompt": self.include_prompt}


@dataclass(frozen=True)
class NormalizeSpec(ModuleSpec, name="Normalize", in_sentence_transformers=True):
    """Divides each vector by its length; a zero vector stays zero."""

    on_tokens: bool = added_later(False)
    """Whether it is each token vector, before the pooling."""

    def forward(self, features: Features, parts: Any) -> None:
        """Replace `features.sentence` ``[B, d]`` or `features.tokens` ``[B, T, d]``."""
        from torch.nn import functional

        place = "tokens" if self.on_tokens else "sentence"
        setattr(features, place, functional.normalize(getattr(features, place), dim=-1))

    def write_onnx(self, graph: Any, states: Any, value: Any, name: str, parts: Any) -> Any:
        """Write the division by the norm."""
        norm = graph.op("ReduceL2", value, graph.integers(-1), keepdims=1)
        return graph.op("Div", value, graph.op("Max", norm, graph.number(1e-12)))

    @classmethod
    def read(cls, folder: Path) -> ModuleSpec:
        """Read the settings, which may be missing: older releases have none, and hubs drop the empty folder."""
        if not (folder / cls.config_file).exists():
            return cls()
        return super().read(folder)

    @classmethod
    def from_config(cls, config: dict[str, Any], folder: Path) -> NormalizeSpec:
        """Read the settings by the names that sentence-transformers gives them."""
        return cls(on_tokens=embeddings_of(config, folder) == TOKEN_EMBEDDINGS)

    def write(self, folder: Path, width: int, parts: Any) -> None:
        """Write a placeholder file, because git and hubs drop empty folders, or the settings of later releases."""
        if self.on_tokens:
            write_json(
                folder / self.config_file,
                {"module_input_name": TOKEN_EMBEDDINGS, "module_output_name": TOKEN_EMBEDDINGS},
            )
        else:
            (folder / ".keep").touch()


@dataclass(frozen=True)
class TruncateSpec(ModuleSpec, name="Truncate"):
    """Keeps the first dimensions of the sentence vector (Kusupati et al., "Matryoshka Representation Learning", 2022).

    At the end of a model it is the ``truncate_dim`` of sentence-transformers, which has no module for it.
    """

    dimension: Size

    def output_width(self, width: int) -> int:
        """Return the number of dimensions that are kept, which may be all."""
        return min(self.dimension, width)

    def forward(self, features: Features, parts: Any) -> None:
        """Replace `features.sentence` ``[B, dimension]``."""
        assert features.sentence is not None
        features.sentence = features.sentence[:, : self.dimension]

    def write_onnx(self, graph: Any, states: Any, value: Any, name: str, parts: Any) -> Any:
        """Write the cut."""
        return graph.op("Slice", value, graph.integers(0), graph.integers(self.dimension), graph.integers(-1))


def pool(tokens: Tensor, mask: Tensor, position_mask: Tensor, mode: str, weight_sum: Tensor | None = None) -> Tensor:
    """Pool ``[B, T, d]`` over the positions where `mask` ``[B, T]`` is 1, as sentence-transformers does.

    Sums are computed in float32.

    Args:
        tokens: the token vectors.
        mask: the positions to pool.
        position_mask: 1 for real tokens, prompt included; the positions of `weightedmean` are counted over them.
        mode: one of TOKEN_POOLINGS.
        weight_sum: the sum of the weights by which the token vectors were multiplied ``[B, 1]``, if they were; means
            divide by it.
    """
    import torch

    from sentcli.precision import widened

    rows = torch.arange(tokens.shape[0], device=tokens.device)
    if mode == "cls":
        return tokens[rows, mask.argmax(dim=1)]
    if mode == "lasttoken":
        last = mask.shape[1] - 1 - mask.flip(1).argmax(dim=1)
        return tokens[rows, last]
    if mode == "max":
        return tokens.masked_fill(mask.unsqueeze(-1) == 0, -torch.inf).amax(dim=1)
    wide = widened(tokens)
    weights = mask.to(wide.dtype)
    if mode == "weightedmean":
        weights = weights * position_mask.cumsum(dim=1).to(wide.dtype)
    total = torch.einsum("btd,bt->bd", wide, weights)
    if weight_sum is None:
        weight_sum = weights.sum(dim=1, keepdim=True)
    count = weight_sum.to(wide.dtype).clamp(min=1e-9)
    if mode == "mean_sqrt_len_tokens":
        count = count.sqrt()
    return (total / count).to(tokens.dtype)


def _write_mode(graph: Any, tokens: Any, mask: Any, mode: str, weight_sum: Any) -> Any:
    """Write the ONNX form of `pool`."""
    import numpy as np
    import onnx_ir as ir

    if mode == "cls":
        return graph.op("Gather", tokens, graph.integer(0), axis=1)
    if mode == "lasttoken":
        length = graph.op("ReduceSum", mask, graph.integers(1), keepdims=1)
        last = graph.op("Sub", length, graph.integer(1))
        return graph.op("GatherND", tokens, last, batch_dims=1)
    if mode == "max":
        is_token = graph.cast(graph.op("Unsqueeze", mask, graph.integers(2)), ir.DataType.BOOL)
        lowest = graph.number(float(np.finfo(np.float32).min))
        masked = graph.op("Where", is_token, tokens, lowest)
        return graph.op("ReduceMax", masked, graph.integers(1), keepdims=0)
    weights = graph.cast(mask, ir.DataType.FLOAT)
    if mode == "weightedmean":
        weights = graph.op("Mul", weights, graph.op("CumSum", weights, graph.integer(1)))
    row = graph.op("Unsqueeze", weights, graph.integers(1))
    total = graph.op("Squeeze", graph.op("MatMul", row, tokens), graph.integers(1))
    if weight_sum is None:
        weight_sum = graph.op("ReduceSum", weights, graph.integers(1), keepdims=1)
    count = graph.op("Max", weight_sum, graph.number(1e-9))
    if mode == "mean_sqrt_len_tokens":
        count = graph.op("Sqrt", count)
    return graph.op("Div", total, count)
