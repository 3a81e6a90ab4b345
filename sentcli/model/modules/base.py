"""The base class of an encoder's modules: settings, computation, files and ONNX graph in one class."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

from annotated_types import Ge, Le

from sentcli.errors import DataError, InputError
from sentcli.io.forms import checked, read_json, write_json
from sentcli.io.typed import Unconverted
from sentcli.io.weights import has_weights, load_state_dict, save_weights
from sentcli.model.folder_keys import refuse_unknown

if TYPE_CHECKING:
    from torch import Tensor

    from sentcli.io.weights import StateDict


@dataclass
class Features:
    """The tensors that each module takes from the one before and changes."""

    tokens: Tensor
    """The token vectors ``[B, T, d]``: the last layer's, or those of a CNN or of a mean over layers."""
    mask: Tensor
    """1 for real tokens ``[B, T]``."""
    prompt_length: int = 0
    ids: Tensor | None = None
    """The token ids ``[B, T]``."""
    weight_sum: Tensor | None = None
    """The sum of the weights of each text's tokens ``[B, 1]``, if they have other weights than 1."""
    hidden_states: tuple[Tensor, ...] = ()
    """The states of every layer ``[B, T, d]``, embeddings first; empty unless a module needs them."""
    attentions: dict[int, Tensor] = field(default_factory=dict)
    """The attention weights ``[B, heads, T, T]`` of the requested layers, by number."""
    sentence: Tensor | None = None
    """The sentence vectors ``[B, d]``; None before the pooling."""
    logits: bool = False
    """Whether a classifier leaves out its activation, as the loss of its training does."""


SINCE_LATER: Final = "since later"


def added_later(default: Any) -> Any:
    """Return a field that earlier versions lacked: with its default, a module keeps the identity that it had there."""
    return field(default=default, metadata={SINCE_LATER: True})


MODULES: dict[str, type[ModuleSpec]] = {}
"""The module classes by their names in ``modules.json``; a class registers itself."""
Size = Annotated[int, Unconverted(), Ge(1), Le(65_536)]
"""A number of dimensions, channels or positions in the settings of a module."""
_PACKAGE = "sentcli.model.modules"
OWN_PREFIX = "sentcli."
"""The prefix of the names of modules that sentence-transformers does not have."""
TOKEN_EMBEDDINGS, _SENTENCE_EMBEDDING = "token_embeddings", "sentence_embedding"
"""Sentence-transformers' names for token vectors and sentence vectors, of which a module takes one."""


def embeddings_of(config: dict[str, Any], folder: Path) -> str:
    """Return `TOKEN_EMBEDDINGS` or `_SENTENCE_EMBEDDING`, which a module takes and replaces.

    Raises:
        InputError: if it takes something else, or puts its output in another place.
    """
    source = config.get("module_input_name") or _SENTENCE_EMBEDDING
    target = config.get("module_output_name") or source
    if source not in (TOKEN_EMBEDDINGS, _SENTENCE_EMBEDDING) or target != source:
        raise InputError(f"{folder}: a module that makes {target!r} of {source!r} is not supported")
    return source


def load_all() -> None:
    """Import every file of this package, so that all modules in them are registered."""
    for file in iter_modules(import_module(_PACKAGE).__path__):
        import_module(f"{_PACKAGE}.{file.name}")


def module_called(name: str) -> type[ModuleSpec] | None:
    """Return the class of a module by its name in ``modules.json``, or None if there is none of this name."""
    if name not in MODULES:
        load_all()
    return MODULES.get(name)


@dataclass(frozen=True)
class ModuleSpec:
    """The settings of a module after the transformer; ``class Own(ModuleSpec, name="Own")`` adds one of your own.

    The fields of the class are the module's settings, which its configuration file keeps. `parts` makes its torch
    parts, and the other methods get these as the attributes of one torch module, under the same names.
    """

    folder: Path | None = field(default=None, kw_only=True)
    """The folder with its weights; None if they are new or it has none."""

    __pydantic_config__: ClassVar[dict[str, bool]] = {"arbitrary_types_allowed": True}
    name: ClassVar[str] = ""
    config_file: ClassVar[str] = "config.json"
    in_sentence_transformers: ClassVar[bool] = False
    """Whether sentence-transformers has a module of this name that reads the same files. If it lacks one of a model's
    modules, the model is saved with its ONNX export beside it."""
    pools: ClassVar[bool] = False
    """Whether the module turns token vectors into one vector for each text."""
    needs_layers: ClassVar[bool] = False
    """Whether the module reads `Features.hidden_states`."""
    scores_pairs: ClassVar[bool] = False
    """Whether it gives the score of a pair of texts in place of a vector."""

    def __init_subclass__(cls, name: str = "", *, in_sentence_transformers: bool = False) -> None:
        """Register a module under its name."""
        super().__init_subclass__()
        cls.in_sentence_transformers = in_sentence_transformers
        if not name:
            return
        if not cls.__module__.startswith(_PACKAGE):
            load_all()
        cls.name = name
        key = name if in_sentence_transformers else OWN_PREFIX + name
        if key in MODULES:
            raise InputError(f"a module is called {name} already: choose another name")
        MODULES[key] = cls

    @property
    def type_name(self) -> str:
        """The name of the module in ``modules.json``."""
        prefix = "sentence_transformers.models." if self.in_sentence_transformers else OWN_PREFIX
        return prefix + self.name

    @property
    def identity(self) -> str:
        """The module's name and settings as text, without its folder."""
        facts = {}
        for setting in fields(self):
            value = getattr(self, setting.name)
            unchanged = SINCE_LATER in setting.metadata and value == setting.default
            if setting.name != "folder" and not unchanged:
                facts[setting.name] = value
        return f"{type(self).__name__} {facts}"

    @property
    def input_width(self) -> int | None:
        """The dimension of the input that the settings state; None if any will do."""
        return None

    @property
    def vocabulary(self) -> int | None:
        """The number of tokens that it has a weight for; None if tokens have none."""
        return None

    @property
    def include_prompt(self) -> bool:
        """Whether the tokens of a prompt count like others; a model that leaves them out runs on torch only."""
        return True

    @property
    def may_lack_weights(self) -> bool:
        """Whether parts without stored weights keep their random ones, instead of being an error."""
        return False

    @property
    def first_token_suffices(self) -> bool:
        """Whether the module reads only position 0 of the last layer."""
        return False

    @property
    def reads_one_token(self) -> bool:
        """Whether the module reads a single position of the last layer."""
        return False

    @property
    def has_onnx(self) -> bool:
        """Whether `write_onnx` is implemented; if not, torch's exporter traces the whole encoder."""
        return type(self).write_onnx is not ModuleSpec.write_onnx

    def output_width(self, width: int) -> int:
        """Return the dimension of the module's output, given that of its input."""
        return width

    def misfit(self, width: int, layers: int) -> str:
        """Return why the module does not follow on what is before it, or an empty string.

        Args:
            width: the dimension of the output before it.
            layers: the number of the transformer's layers.
        """
        if self.input_width in (None, width):
            return ""
        return f"takes vectors of {self.input_width} dimensions, and gets {width}"

    def parts(self, width: int, layers: int) -> dict[str, Any]:
        """Return new torch modules and parameters by name.

        Args:
            width: the dimension of the module's input.
            layers: the number of the transformer's layers.
        """
        return {}

    def forward(self, features: Features, parts: Any) -> None:
        """Change the tokens, or set or change the sentence vector."""
        raise NotImplementedError

    def write_onnx(self, graph: Any, states: Any, value: Any, name: str, parts: Any) -> Any:
        """Write what `forward` computes into an ONNX graph, and return the output value.

        Args:
            graph: the `Graph` under construction.
            states: the transformer's output: the states of its layers and the mask of the tokens.
            value: the output of the previous module: ``[batch, tokens, d]``, or ``[batch, d]`` after the pooling.
            name: the prefix for the names of the module's weights.
            parts: the torch parts, with their weights.
        """
        raise NotImplementedError

    @classmethod
    def read(cls, folder: Path) -> ModuleSpec:
        """Read the module that `write` wrote into a folder."""
        path = folder / cls.config_file
        config = read_json(path)
        if not isinstance(config, dict):
            raise DataError(path, f"expected a JSON object, not {config!r:.60}")
        if cls.in_sentence_transformers:
            refuse_unknown(cls.name, config, path)
        try:
            module = cls.from_config(config, folder)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise DataError(path, f"damaged: {error!r:.200}") from error
        return checked(cls, vars(module), path)

    @classmethod
    def from_config(cls, config: dict[str, Any], folder: Path) -> ModuleSpec:
        """Return the module that a configuration file describes."""
        settings = dict(config)
        for key, value in config.items():
            if isinstance(value, list):
                settings[key] = tuple(value)
        return cls(**settings, folder=folder)

    def to_config(self, width: int, parts: Any) -> dict[str, Any]:
        """Return the content of the configuration file, given the dimension of the module's input."""
        return {key: value for key, value in vars(self).items() if key != "folder"}

    def stored_weights(self, transformer: Path, state: StateDict) -> StateDict | None:
        """Return the stored weights of the module's parts, or None if it has none.

        Args:
            transformer: the folder of the transformer.
            state: the weights in that folder.
        """
        if self.folder is None or not has_weights(self.folder):
            return None
        return load_state_dict(self.folder)

    def write(self, folder: Path, width: int, parts: Any) -> None:
        """Write configuration and weights into a folder."""
        write_json(folder / self.config_file, self.to_config(width, parts))
        if next(parts.parameters(), None) is not None:
            save_weights(parts, folder / "model.safetensors")
