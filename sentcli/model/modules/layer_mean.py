"""The weighted mean of several layers, before the pooling; first-last-avg has the weights 1, 0, ..., 0, 1."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge

from sentcli.io.typed import Unconverted
from sentcli.io.weights import read_tensors
from sentcli.model.modules.base import Features, ModuleSpec


@dataclass(frozen=True)
class LayerMeanSpec(ModuleSpec, name="WeightedLayerPooling", in_sentence_transformers=True):
    """The weighted mean of the hidden states from ``layer_start`` to the last; 0 is the embedding layer."""

    layer_start: Annotated[int, Unconverted(), Ge(0)]
    weights: tuple[float, ...] | None = None
    """The weight of each layer; None reads them from the folder."""

    needs_layers = True

    def misfit(self, width: int, layers: int) -> str:
        """Return why there are no such layers, or as many weights as layers, or an empty string."""
        count = layers + 1 - self.layer_start
        if count >= 1 and (self.weights is None or len(self.weights) == count):
            return ""
        weights = "" if self.weights is None else f" with {len(self.weights)} weights"
        return f"starts at layer {self.layer_start} of {layers}{weights}"

    def parts(self, width: int, layers: int) -> dict[str, Any]:
        """Make the weights."""
        import torch

        weights = self.weights or (1.0,) * (layers + 1 - self.layer_start)
        return {"layer_weights": torch.nn.Parameter(torch.tensor(weights))}

    def forward(self, features: Features, parts: Any) -> None:
        """Replace `features.tokens` ``[B, T, d]``."""
        import torch

        states = features.hidden_states[self.layer_start :]
        mixed = torch.zeros_like(features.tokens)
        shares = (parts.layer_weights / parts.layer_weights.sum()).detach()
        stated = self.weights or (1.0,) * len(shares)  # to look at those on a GPU would be to wait for it
        for share, weight, state in zip(shares, stated, states, strict=True):
            if weight:
                mixed = mixed + share * state
        features.tokens = mixed

    def write_onnx(self, graph: Any, states: Any, value: Any, name: str, parts: Any) -> Any:
        """Write the weighted sum, without layers of weight 0."""
        weights = parts.layer_weights.detach().cpu().float().numpy()
        shares = (weights / weights.sum()).tolist()
        mixed = None
        for share, state in zip(shares, states.layers[self.layer_start :], strict=True):
            if share:
                part = graph.op("Mul", state, graph.number(share))
                if mixed is not None:
                    part = graph.op("Add", mixed, part)
                mixed = part
        return mixed

    @classmethod
    def from_config(cls, config: dict[str, Any], folder: Path) -> LayerMeanSpec:
        """Read the number of the first layer, and the weights if they are stored as safetensors."""
        weights = None
        if (folder / "model.safetensors").exists():
            weights = tuple(map(float, read_tensors(folder / "model.safetensors")["layer_weights"]))
        return cls(config["layer_start"], weights, folder=folder)

    def to_config(self, width: int, parts: Any) -> dict[str, Any]:
        """Return the settings under sentence-transformers' names."""
        layers = len(parts.layer_weights) - 1 + self.layer_start
        return {"word_embedding_dimension": width, "layer_start": self.layer_start, "num_hidden_layers": layers}
