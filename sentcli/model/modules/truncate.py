"""The first dimensions of the sentence vector, as models keep them that were trained to be cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sentcli.model.modules.base import Features, ModuleSpec, Size


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
