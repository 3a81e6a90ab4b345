"""L2 normalisation of the sentence vector, or of each token vector."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentcli.io.forms import write_json
from sentcli.model.modules.base import TOKENS, Features, ModuleSpec, added_later, place_of


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
        return cls(on_tokens=place_of(config, folder) == TOKENS)

    def write(self, folder: Path, width: int, parts: Any) -> None:
        """Write a placeholder file, because git and hubs drop empty folders, or the settings of later releases."""
        if self.on_tokens:
            write_json(folder / self.config_file, {"module_input_name": TOKENS, "module_output_name": TOKENS})
        else:
            (folder / ".keep").touch()
