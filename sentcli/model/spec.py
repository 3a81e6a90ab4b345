"""What a model folder says about itself, as plain data: no torch here.

Two layouts are read: sentence-transformers' (``modules.json`` and one folder a module) and a plain transformers
folder, whose pooling has to be chosen. The same data writes a folder that ``SentenceTransformer(dir)`` opens.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sentcli.errors import InputError, nearest
from sentcli.io.json_files import read_json

TOKEN_POOLINGS = ("cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
LEGACY_POOLING_KEYS = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
"""In the order in which sentence-transformers concatenates them."""

POOLINGS = {
    "cls": "the last layer's first token",
    "cls-head": "cls through the head that was trained with it (a dense layer and tanh)",
    "mean": "mean of the last layer over the tokens",
    "max": "maximum of the last layer over the tokens",
    "first-last-avg": "mean over the tokens of (embedding layer + last layer) / 2, as in SimCSE's published tables",
    "layer1-last-avg": "the same with the first transformer layer, as in SimCSE's later code",
    "mean_sqrt_len_tokens": "sum over the tokens divided by the square root of their number",
    "weightedmean": "mean weighted by position",
    "lasttoken": "the last layer's last token",
}
"""Names for ``--pooling``, with what they mean."""


def check_pooling(name: str) -> None:
    """Refuse an unknown pooling."""
    if name not in POOLINGS:
        raise InputError(f"unknown pooling {name!r}{nearest(name, list(POOLINGS))}; one of: {', '.join(POOLINGS)}")


@dataclass(frozen=True)
class PoolingSpec:
    """Token vectors ``[B, T, d]`` to ``[B, d * len(modes)]``."""

    modes: tuple[str, ...] = ("mean",)
    include_prompt: bool = True


@dataclass(frozen=True)
class LayerMeanSpec:
    """Weighted mean over the hidden states ``layer_start..last`` (0 is the embedding layer), before pooling."""

    layer_start: int
    weights: tuple[float, ...] | None = None
    """None: read from the folder."""
    folder: Path | None = None


@dataclass(frozen=True)
class CNNSpec:
    """Convolutions over the token vectors, outputs concatenated (IS-BERT)."""

    in_dim: int
    out_channels: int
    kernel_sizes: tuple[int, ...]
    strides: tuple[int, ...]
    folder: Path | None = None


@dataclass(frozen=True)
class DenseSpec:
    """A linear layer and an activation on the sentence vector."""

    in_features: int
    out_features: int
    bias: bool = True
    activation: str = "torch.nn.modules.activation.Tanh"
    folder: Path | None = None
    from_head: bool = False
    """The weights are the head stored with the checkpoint (``mlp.dense.*`` or ``pooler.dense.*``)."""
    on_tokens: bool = False
    """On every token vector, before the pooling."""


@dataclass(frozen=True)
class NormalizeSpec:
    """L2 normalisation."""


ModuleSpec = PoolingSpec | LayerMeanSpec | CNNSpec | DenseSpec | NormalizeSpec


@dataclass(frozen=True)
class EncoderSpec:
    """A whole encoder: where its transformer is, what follows it, how text is cut and prompted."""

    folder: Path
    """Of the transformer: config.json, weights, tokenizer."""
    modules: tuple[ModuleSpec, ...]
    max_length: int | None = None
    """In tokens with special tokens; None takes the tokenizer's."""
    lowercase: bool = False
    """Lower-case before tokenising (a sentence-transformers setting; most tokenizers do it themselves)."""
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    config: dict[str, Any] = field(default_factory=dict)
    """The transformer's config.json."""
    assumed_pooling: bool = False
    """The folder did not say how to pool, so `mean` was taken."""

    @property
    def hidden_size(self) -> int:
        """Width of the token vectors."""
        return int(self.config.get("hidden_size") or self.config.get("dim") or 0)

    @property
    def pooling(self) -> str:
        """The name that `--pooling` would use, or a description for a combination."""
        modules = [m for m in self.modules if not isinstance(m, NormalizeSpec)]
        pooling = next(m for m in modules if isinstance(m, PoolingSpec))
        name = "+".join(pooling.modes)
        if isinstance(modules[0], LayerMeanSpec):
            mixed = modules[0]
            published = {0: "first-last-avg", 1: "layer1-last-avg"}.get(mixed.layer_start)
            ends = (
                mixed.weights is not None
                and mixed.weights[0] == mixed.weights[-1] != 0
                and not any(mixed.weights[1:-1])
            )
            name = published if published and ends and name == "mean" else f"layers/{name}"
        if isinstance(modules[0], CNNSpec):
            relu = any(isinstance(m, DenseSpec) and m.on_tokens for m in modules)
            name = f"cnn{'-relu' * relu}+{name}"
        dense = [m for m in modules if isinstance(m, DenseSpec) and not m.on_tokens]
        if len(dense) == 1 and dense[0].from_head:
            return f"{name}-head"
        return name + "+dense" * len(dense)

    @property
    def normalizes(self) -> bool:
        """Whether the vectors have length 1."""
        return any(isinstance(m, NormalizeSpec) for m in self.modules)

    @property
    def usual_prompt(self) -> str:
        """The text in front of every sentence for which no other prompt is named; mostly empty."""
        return self.prompts.get(self.default_prompt or "", "")

    def role_prompt(self, role: str) -> str:
        """Return the model's own prompt for ``query`` or ``document`` (also called passage or corpus).

        Where it has none, that is its default prompt, or ``""``.
        """
        names = ("query",) if role == "query" else ("document", "passage", "corpus")
        return next((self.prompts[name] for name in (*names, self.default_prompt) if name in self.prompts), "")

    def with_pooling(self, name: str) -> EncoderSpec:
        """Return the spec with another pooling; a CNN or dense layers that belong to the old one are left out.

        Raises:
            InputError: for an unknown name.
        """
        check_pooling(name)
        if name == self.pooling:
            return replace(self, assumed_pooling=False)
        include_prompt = next(m for m in self.modules if isinstance(m, PoolingSpec)).include_prompt
        modules: list[ModuleSpec] = []
        if name in ("first-last-avg", "layer1-last-avg"):
            start = 0 if name == "first-last-avg" else 1
            layers = int(self.config.get("num_hidden_layers") or self.config.get("n_layers") or 0)
            between = (0.0,) * (layers - start - 1)
            modules.append(LayerMeanSpec(start, (1.0, *between, 1.0)))
        token_pooling = {"first-last-avg": "mean", "layer1-last-avg": "mean", "cls-head": "cls"}.get(name, name)
        modules.append(PoolingSpec((token_pooling,), include_prompt))
        if name == "cls-head":
            modules.append(DenseSpec(self.hidden_size, self.hidden_size, from_head=True))
        if self.normalizes:
            modules.append(NormalizeSpec())
        return replace(self, modules=tuple(modules), assumed_pooling=False)

    def with_normalize(self, normalize: bool) -> EncoderSpec:
        """Return the spec with L2 normalisation at the end, or without any."""
        modules = tuple(m for m in self.modules if not isinstance(m, NormalizeSpec))
        return replace(self, modules=(*modules, NormalizeSpec()) if normalize else modules)


def read_spec(folder: Path) -> EncoderSpec:
    """Read a model folder."""
    if not folder.is_dir():
        raise InputError(f"no such model folder: {folder}")
    if (folder / "modules.json").exists():
        try:
            return _sentence_transformers_spec(folder)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise InputError(f"{folder}: a configuration file of its modules is damaged: {error!r}") from error
    reason = "its training has not finished" if (folder / "metrics.jsonl").exists() else "there is no config.json"
    config = _read_config(folder, f"{folder} holds no model: {reason}")
    return EncoderSpec(folder, (PoolingSpec(),), config=config, assumed_pooling=True)


def _sentence_transformers_spec(folder: Path) -> EncoderSpec:
    entries = read_json(folder / "modules.json")
    try:
        named = [(entry["type"].rsplit(".", 1)[-1], folder / entry["path"]) for entry in entries]
    except (TypeError, KeyError) as error:
        raise InputError(f"{folder / 'modules.json'} is not a list of modules") from error
    if not named or named[0][0] != "Transformer":
        first = named[0][0] if named else "nothing"
        raise InputError(f"{folder}: the first module is {first}; only Transformer encoders are supported")
    transformer = named[0][1]
    modules = [module for name, path in named[1:] if (module := _read_module(name, path)) is not None]
    if not any(isinstance(m, PoolingSpec) for m in modules):
        raise InputError(f"{folder}: modules.json names no Pooling, so its output is not one vector a text")
    settings = read_json(transformer / "sentence_bert_config.json", default={})
    prompting = read_json(folder / "config_sentence_transformers.json", default={})
    prompts = {name: text for name, text in (prompting.get("prompts") or {}).items() if text}
    return EncoderSpec(
        transformer,
        tuple(modules),
        max_length=settings.get("max_seq_length"),
        lowercase=bool(settings.get("do_lower_case")),
        prompts=prompts,
        default_prompt=prompting.get("default_prompt_name"),
        config=_read_config(transformer, f"{folder} has no config.json for its transformer"),
    )


def _read_config(folder: Path, missing: str) -> dict[str, Any]:
    config = read_json(folder / "config.json", missing)
    if not isinstance(config, dict):
        raise InputError(f"{folder / 'config.json'} is not a JSON object")
    return config


def _read_module(name: str, path: Path) -> ModuleSpec | None:
    if name == "Normalize":
        return NormalizeSpec()
    if name == "Dropout":  # does nothing when encoding
        return None
    if name == "Pooling":
        return _read_pooling(read_json(path / "config.json"))
    if name == "WeightedLayerPooling":
        config = read_json(path / "config.json")
        return LayerMeanSpec(int(config["layer_start"]), _layer_weights(path), folder=path)
    if name == "CNN":
        config = read_json(path / "cnn_config.json")
        kernels = tuple(config["kernel_sizes"])
        width = config.get("in_embedding_dimension") or config["in_word_embedding_dimension"]
        return CNNSpec(
            width,
            config["out_channels"],
            kernels,
            tuple(config.get("stride_sizes") or [1] * len(kernels)),
            path,
        )
    if name == "Dense":
        config = read_json(path / "config.json")
        activation = config.get("activation_function", "torch.nn.modules.activation.Tanh")
        places = ("sentence_embedding", "token_embeddings")
        source = config.get("module_input_name") or places[0]
        if config.get("use_residual") or source not in places or (config.get("module_output_name") or source) != source:
            raise InputError(f"{path}: a Dense module with a residual or with other inputs is not supported")
        widths = config["in_features"], config["out_features"]
        return DenseSpec(*widths, config.get("bias", True), activation, path, on_tokens=source == places[1])
    raise InputError(
        f"{path.parent}: module {name} is not supported; "
        "Transformer, Pooling, WeightedLayerPooling, CNN, Dense, Dropout and Normalize are"
    )


def _layer_weights(folder: Path) -> tuple[float, ...] | None:
    """Read the weights of a mean over layers, if they are stored as safetensors."""
    if not (folder / "model.safetensors").exists():
        return None
    from safetensors.numpy import load_file

    return tuple(float(weight) for weight in load_file(folder / "model.safetensors")["layer_weights"])


def _read_pooling(config: dict[str, Any]) -> PoolingSpec:
    modes = config.get("pooling_mode")
    if modes is None:
        modes = [mode for mode, key in LEGACY_POOLING_KEYS.items() if config.get(key)] or ["mean"]
    modes = (modes,) if isinstance(modes, str) else tuple(modes)
    unknown = [mode for mode in modes if mode not in TOKEN_POOLINGS]
    if unknown:
        raise InputError(f"pooling {unknown[0]!r} is not supported; one of: {', '.join(TOKEN_POOLINGS)}")
    return PoolingSpec(modes, bool(config.get("include_prompt", True)))
