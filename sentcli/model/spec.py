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
from sentcli.model.modules import MODULES, CNNSpec, DenseSpec, LayerMeanSpec, ModuleSpec, NormalizeSpec, PoolingSpec
from sentcli.model.modules.base import OWN

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
    def layers(self) -> int:
        """Number of the transformer's layers."""
        return int(self.config.get("num_hidden_layers") or self.config.get("n_layers") or 0)

    @property
    def widths(self) -> list[int]:
        """Width of the vectors that go into each module."""
        widths = [self.hidden_size]
        for module in self.modules[:-1]:
            widths.append(module.output_width(widths[-1]))
        return widths

    @property
    def includes_prompt(self) -> bool:
        """Whether the tokens of a prompt are pooled like the others."""
        return all(module.include_prompt for module in self.modules)

    @property
    def is_sentence_transformers(self) -> bool:
        """Whether sentence-transformers has all of its modules."""
        return all(module.in_sentence_transformers for module in self.modules)

    @property
    def pooling(self) -> str:
        """The name that `--pooling` would use, or a description for a combination."""
        modules = [m for m in self.modules if not isinstance(m, NormalizeSpec)]
        pooling = next(m for m in modules if m.pools)
        name = "+".join(pooling.modes if isinstance(pooling, PoolingSpec) else (pooling.name,))
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
        name += "".join(f"+{m.name}" for m in modules if not (m.in_sentence_transformers or m.pools))
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
        modules: list[ModuleSpec] = []
        if name in ("first-last-avg", "layer1-last-avg"):
            start = 0 if name == "first-last-avg" else 1
            between = (0.0,) * (self.layers - start - 1)
            modules.append(LayerMeanSpec(start, (1.0, *between, 1.0)))
        token_pooling = {"first-last-avg": "mean", "layer1-last-avg": "mean", "cls-head": "cls"}.get(name, name)
        modules.append(PoolingSpec((token_pooling,), self.includes_prompt))
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
        named = [(_module_name(entry["type"]), folder / entry["path"]) for entry in entries]
    except (TypeError, KeyError) as error:
        raise InputError(f"{folder / 'modules.json'} is not a list of modules") from error
    if not named or named[0][0] != "Transformer":
        first = named[0][0] if named else "nothing"
        raise InputError(f"{folder}: the first module is {first}; only Transformer encoders are supported")
    transformer = named[0][1]
    modules = [_read_module(name, path) for name, path in named[1:] if name != "Dropout"]  # which does not encode
    if not any(module.pools for module in modules):
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


def _module_name(kind: str) -> str:
    return kind if kind.startswith(OWN) else kind.rsplit(".", 1)[-1]


def _read_module(name: str, path: Path) -> ModuleSpec:
    if name in MODULES:
        return MODULES[name].read(path)
    if name.startswith(OWN):
        raise InputError(
            f"{path.parent}: module {name} is not one of this package: import the file that defines it first, or run "
            "the model.onnx beside it with onnxruntime"
        )
    raise InputError(
        f"{path.parent}: module {name} is not supported; "
        "Transformer, Pooling, WeightedLayerPooling, CNN, Dense, Dropout and Normalize are"
    )
