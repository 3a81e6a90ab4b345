"""L2 normalisation of the sentence vector."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentcli.model.modules.base import Features, ModuleSpec


@dataclass(frozen=True)
class NormalizeSpec(ModuleSpec, name="Normalize", in_sentence_transformers=True):
    """Divides each sentence vector by its length; a zero vector stays zero."""

    def forward(self, features: Features, parts: Any) -> None:
        """Replace `features.sentence` ``[B, d]``."""
        from torch.nn import functional

        assert features.sentence is not None
        features.sentence = functional.normalize(features.sentence, dim=-1)

    def write_onnx(self, graph: Any, states: Any, value: Any, name: str, parts: Any) -> Any:
        """Write the division by the norm."""
        norm = graph.op("ReduceL2", value, graph.integers(-1), keepdims=1)
        return graph.op("Div", value, graph.op("Max", norm, graph.number(1e-12)))

    @classmethod
    def read(cls, folder: Path) -> NormalizeSpec:
        """Return the module without reading anything: it has no settings, and hubs drop its empty folder."""
        return cls()

    def write(self, folder: Path, width: int, parts: Any) -> None:
        """Write a placeholder file, because git and hubs drop empty folders."""
        (folder / ".keep").touch()
