"""What a module of an encoder is: its settings, what it computes, its files and its ONNX in one class."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from sentcli.errors import InputError
from sentcli.io.json_files import read_json, write_json
from sentcli.io.weights import has_weights, load_state_dict, save_weights

if TYPE_CHECKING:
    from torch import Tensor

    from sentcli.io.weights import StateDict


@dataclass
class Features:
    """What flows from module to module."""

    tokens: Tensor
    """Last layer, later what a CNN or a mean over layers made of it: ``[B, T, d]``."""
    mask: Tensor
    """1 for real tokens ``[B, T]``."""
    prompt_length: int = 0
    hidden_states: tuple[Tensor, ...] = ()
    """Embedding layer first, each ``[B, T, d]``; only if a module asked."""
    attentions: dict[int, Tensor] = field(default_factory=dict)
    """Layer number to ``[B, heads, T, T]``, for the layers that were asked for."""
    sentence: Tensor | None = None
    """``[B, d]`` from the pooling on."""


MODULES: dict[str, type[ModuleSpec]] = {}
"""Modules by the name that ``modules.json`` calls them: a class registers itself."""
OWN = "sentcli."
"""In front of the name of a module that sentence-transformers does not have."""


@dataclass(frozen=True)
class ModuleSpec:
    """A module after the transformer, as data. ``class Own(ModuleSpec, name="Own")`` is one of your own.

    The fields of the class are the module's settings, which its configuration file keeps. Its torch parts are made by
    `parts` and handed to the other methods as the attributes of one torch module, under the same names.
    """

    folder: Path | None = field(default=None, kw_only=True)
    """Where its weights are; None for new ones, or if it has none."""

    name: ClassVar[str] = ""
    config_file: ClassVar[str] = "config.json"
    in_sentence_transformers: ClassVar[bool] = False
    """Whether sentence-transformers has a module of this name that reads the same files. If one of a model's modules
    has no such form, the saved model has its ONNX export beside it."""
    pools: ClassVar[bool] = False
    """Whether it makes one vector a text of the vectors of the tokens."""
    needs_layers: ClassVar[bool] = False
    """Whether it reads `Features.hidden_states`."""

    def __init_subclass__(cls, name: str = "", *, in_sentence_transformers: bool = False) -> None:
        """Register a module under its name."""
        super().__init_subclass__()
        cls.name, cls.in_sentence_transformers = name or cls.name, in_sentence_transformers
        key = cls.name if in_sentence_transformers else OWN + cls.name
        if name and key in MODULES:
            raise InputError(f"a module is called {name} already: choose another name")
        if name:
            MODULES[key] = cls

    @property
    def type_name(self) -> str:
        """What ``modules.json`` calls it."""
        return f"sentence_transformers.models.{self.name}" if self.in_sentence_transformers else OWN + self.name

    @property
    def include_prompt(self) -> bool:
        """Whether the tokens of a prompt count like the others; a model that leaves them out runs on torch only."""
        return True

    @property
    def first_token_suffices(self) -> bool:
        """Whether of the last layer it reads position 0 alone."""
        return False

    @property
    def has_onnx(self) -> bool:
        """Whether `write_onnx` can write it; if not, torch's exporter traces the whole encoder."""
        return type(self).write_onnx is not ModuleSpec.write_onnx

    def output_width(self, width: int) -> int:
        """Return the length of the vectors that come out, of those that go in."""
        return width

    def parts(self, width: int, layers: int) -> dict[str, Any]:
        """Return new torch modules and parameters by name, for vectors of a width behind so many layers."""
        return {}

    def forward(self, features: Features, parts: Any) -> None:
        """Change the tokens, or set or change the sentence vector."""
        raise NotImplementedError

    def write_onnx(self, graph: Any, states: Any, value: Any, name: str, parts: Any) -> Any:
        """Write into a `Graph` what `forward` computes, and return the result.

        Args:
            graph: to add to.
            states: of the transformer: its layers and the mask of the tokens.
            value: what the module before has made: ``[batch, tokens, d]``, from the pooling on ``[batch, d]``.
            name: in front of the names of its weights.
            parts: with their weights.
        """
        raise NotImplementedError

    @classmethod
    def read(cls, folder: Path) -> ModuleSpec:
        """Read what `write` has written."""
        return cls.from_config(read_json(folder / cls.config_file), folder)

    @classmethod
    def from_config(cls, config: dict[str, Any], folder: Path) -> ModuleSpec:
        """Return the module of a configuration file in its folder."""
        settings = {key: tuple(value) if isinstance(value, list) else value for key, value in config.items()}
        return cls(**settings, folder=folder if has_weights(folder) else None)

    def to_config(self, width: int, parts: Any) -> dict[str, Any]:
        """Return what its configuration file says of a module for vectors of a width."""
        return {key: value for key, value in vars(self).items() if key != "folder"}

    def stored_weights(self, transformer: Path, state: StateDict) -> StateDict | None:
        """Return the stored weights of its parts, if there are some.

        Args:
            transformer: the folder of the transformer.
            state: the weights in that folder.
        """
        return None if self.folder is None else load_state_dict(self.folder)

    def write(self, folder: Path, width: int, parts: Any) -> None:
        """Write configuration and weights into a folder."""
        write_json(folder / self.config_file, self.to_config(width, parts))
        if any(True for _ in parts.parameters()):
            save_weights(parts, folder / "model.safetensors")
