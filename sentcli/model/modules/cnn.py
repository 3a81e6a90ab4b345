"""Parallel 1-D convolutions over the tokens, outputs concatenated (Kim 2014, as used by IS-BERT)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Le, MinLen

from sentcli.io.typed import Unconverted, ValueCheck
from sentcli.model.modules.base import Features, ModuleSpec, Size


def _odd(kernel: int) -> int:
    """Refuse a kernel without a middle, which gives fewer vectors than there are tokens."""
    if kernel % 2 == 0:
        raise ValueError(f"a kernel has an odd size, not {kernel}")
    return kernel


@dataclass(frozen=True)
class CNNSpec(ModuleSpec, name="CNN", in_sentence_transformers=True):
    """Convolutions over the token vectors: ``[B, T, in_dim]`` to ``[B, T, out_channels * kernels]``."""

    in_dim: Size
    out_channels: Size
    kernel_sizes: Annotated[tuple[Annotated[Size, ValueCheck(_odd)], ...], MinLen(1)]
    strides: tuple[Annotated[int, Unconverted(), Ge(1), Le(1)], ...]
    """The stride of each kernel, which is 1: with a larger one there would be fewer vectors than tokens."""

    config_file = "cnn_config.json"

    def __post_init__(self) -> None:
        """Refuse another number of strides than of kernels."""
        if len(self.strides) != len(self.kernel_sizes):
            raise ValueError(f"{len(self.kernel_sizes)} kernel_sizes with {len(self.strides)} stride_sizes")

    @property
    def input_width(self) -> int:
        """The dimension of the token vectors."""
        return self.in_dim

    def output_width(self, width: int) -> int:
        """Return the number of channels of all convolutions together."""
        return self.out_channels * len(self.kernel_sizes)

    def parts(self, width: int, layers: int) -> dict[str, Any]:
        """Make the convolutions."""
        from torch import nn

        convolutions = nn.ModuleList()
        for kernel, stride in zip(self.kernel_sizes, self.strides, strict=True):
            padding = (kernel - 1) // 2
            convolutions.append(nn.Conv1d(self.in_dim, self.out_channels, kernel, stride, padding=padding))
        return {"convs": convolutions, "blank_padding": True}

    def forward(self, features: Features, parts: Any) -> None:
        """Replace `features.tokens`."""
        import torch

        columns = features.tokens.transpose(1, 2)
        if parts.blank_padding and not parts.training:
            # Padding becomes zeros, so that a vector does not depend on the other sentences of the batch. In training,
            # the convolutions see the backbone's output at padding, as in the reference code.
            columns = columns * features.mask.unsqueeze(1).to(columns.dtype)
        features.tokens = torch.cat([conv(columns) for conv in parts.convs], dim=1).transpose(1, 2)

    def write_onnx(self, graph: Any, states: Any, value: Any, name: str, parts: Any) -> Any:
        """Write the convolutions; padding is set to zero, as in `forward`."""
        import onnx_ir as ir

        mask = graph.op("Unsqueeze", graph.cast(states.mask, ir.DataType.FLOAT), graph.integers(1))
        columns = graph.op("Mul", graph.op("Transpose", value, perm=[0, 2, 1]), mask)
        convolved = []
        for i, conv in enumerate(parts.convs):
            weight = graph.weight(f"{name}.{i}.weight", conv.weight)
            bias = graph.weight(f"{name}.{i}.bias", conv.bias)
            pads = [conv.padding[0]] * 2
            convolved.append(graph.op("Conv", columns, weight, bias, pads=pads, strides=list(conv.stride)))
        joined = graph.op("Concat", *convolved, axis=1)
        return graph.op("Transpose", joined, perm=[0, 2, 1])

    @classmethod
    def from_config(cls, config: dict[str, Any], folder: Path) -> CNNSpec:
        """Read the settings by the names that sentence-transformers gives them, also in its later releases."""
        kernels = tuple(config["kernel_sizes"])
        width = config.get("in_embedding_dimension") or config["in_word_embedding_dimension"]
        strides = tuple(config.get("stride_sizes") or [1] * len(kernels))
        return cls(width, config["out_channels"], kernels, strides, folder=folder)

    def to_config(self, width: int, parts: Any) -> dict[str, Any]:
        """Return the settings under sentence-transformers' names."""
        return {
            "in_word_embedding_dimension": self.in_dim,
            "out_channels": self.out_channels,
            "kernel_sizes": list(self.kernel_sizes),
            "stride_sizes": list(self.strides),
        }
