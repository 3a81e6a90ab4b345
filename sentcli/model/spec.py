"""The description of an encoder that a model folder gives, as plain data without torch.

Two layouts are read: that of sentence-transformers (``modules.json`` and one folder for each module) and a plain
transformers folder, whose pooling has to be chosen. The same data writes a folder that ``SentenceTransformer(dir)``
opens.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Le
from pydantic import AfterValidator, BaseModel, RootModel

from sentcli.bounds import one_of
from sentcli.errors import InputError
from sentcli.io.forms import Form, checked, read_json
from sentcli.model.modules import (
    MODULES,
    ClassifierSpec,
    CNNSpec,
    DenseSpec,
    LayerMeanSpec,
    ModuleSpec,
    NormalizeSpec,
    PoolingSpec,
    WordWeightsSpec,
)
from sentcli.model.modules.base import OWN
from sentcli.model.modules.classifier import LAYERS
from sentcli.model.modules.dense import OPERATORS
from sentcli.model.static import STATIC, STATIC_LENGTH, table_sizes
from sentcli.model.stored_heads import has_batch_norm

POOLINGS = {
    "cls": "the last layer's first token",
    "cls-head": "cls through the head that was trained with it (a dense layer and tanh, or two with batch norm)",
    "mean": "mean of the last layer over the tokens",
    "max": "maximum of the last layer over the tokens",
    "first-last-avg": "mean over the tokens of (embedding layer + last layer) / 2, as in SimCSE's published tables",
    "layer1-last-avg": "the same with the first transformer layer, as in SimCSE's later code",
    "mean_sqrt_len_tokens": "sum over the tokens divided by the square root of their number",
    "weightedmean": "mean weighted by position",
    "lasttoken": "the last layer's last token",
}
"""The values of ``--pooling``, with their meanings."""


def check_pooling(name: str) -> None:
    """Refuse an unknown pooling."""
    one_of("pooling", name, list(POOLINGS))


def _inside(path: str) -> str:
    """Refuse a path that leaves the folder of the model."""
    if Path(path).is_absolute() or ".." in Path(path).parts:
        raise ValueError("a module has to be inside the folder of the model")
    return path


class ModuleEntry(BaseModel):
    """One module in ``modules.json``."""

    type: str
    path: Annotated[str, AfterValidator(_inside)]


class ModuleList(RootModel[list[ModuleEntry]]):
    """The content of ``modules.json``."""


class TextSettings(BaseModel):
    """The content of ``sentence_bert_config.json``."""

    max_seq_length: Annotated[int, Ge(1)] | None = None
    do_lower_case: bool | None = None


class PromptSettings(BaseModel):
    """What ``config_sentence_transformers.json`` says about prompts, and about the activation of a cross-encoder."""

    prompts: dict[str, str | None] | None = None
    default_prompt_name: str | None = None
    activation_fn: str | None = None


CLASSIFIER = "ForSequenceClassification"
"""The end of the names of transformers' classifiers, cross-encoders among them."""
Size = Annotated[int, Ge(1), Le(10**8)] | None
Layers = Annotated[int, Ge(1), Le(1000)] | None
Rate = Annotated[float, Ge(0), Le(1)]


class ClassifierSettings(BaseModel):
    """What ``config.json`` says of a classifier: its labels, and its activation as older releases wrote it."""

    num_labels: int = 2
    classifier_dropout: Rate | None = None
    hidden_dropout_prob: Rate = 0.0
    id2label: dict[str, Any] | None = None
    sentence_transformers: PromptSettings = PromptSettings()
    sbert_ce_default_activation_function: str | None = None

    @property
    def dropout(self) -> float:
        """The rate of the classifier in training."""
        return self.hidden_dropout_prob if self.classifier_dropout is None else self.classifier_dropout


class TransformerSizes(BaseModel):
    """The class and sizes in ``config.json``, without which no model is built; transformers checks the rest."""

    architectures: list[str] | None = None
    hidden_size: Size = None
    dim: Size = None
    intermediate_size: Size = None
    hidden_dim: Size = None
    vocab_size: Size = None
    max_position_embeddings: Size = None
    num_hidden_layers: Layers = None
    n_layers: Layers = None


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """What is known of any model; of one that is served, whose folder is elsewhere, this is nothing."""

    max_length: int | None = None
    """The maximum length in tokens, special ones included; None takes the tokenizer's."""
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    assumed_pooling: bool = False
    """Whether the folder does not state a pooling, so that `mean` was assumed."""

    @property
    def pooling(self) -> str | None:
        """The value of ``--pooling`` for this model, or a description of a combination that has no name."""
        return None

    @property
    def normalizes(self) -> bool | None:
        """Whether the vectors have length 1."""
        return None

    @property
    def usual_prompt(self) -> str:
        """The default prompt, which goes in front of a sentence unless another one is chosen; empty for most models."""
        return self.prompts.get(self.default_prompt or "", "")

    @property
    def scores_pairs(self) -> bool:
        """Whether it is a cross-encoder, which makes no vectors of texts."""
        return False

    def role_prompt(self, role: str) -> str:
        """Return the model's prompt for the role ``query`` or ``document``, else its default prompt, else ``""``.

        The prompt for documents may also be called passage or corpus.
        """
        names = ("query",) if role == "query" else ("document", "passage", "corpus")
        return next((self.prompts[name] for name in (*names, self.default_prompt) if name in self.prompts), "")

    @property
    def role_prompts(self) -> dict[str, str]:
        """The prompts of both roles, as protocols have them."""
        return {f"{role}_prompt": self.role_prompt(role) for role in ("query", "document")}


@dataclass(frozen=True)
class EncoderSpec(ModelSpec):
    """The description of an encoder: its transformer, the modules after it, its maximum length and its prompts."""

    folder: Path
    """The folder of the transformer, with config.json, weights and tokenizer."""
    modules: tuple[ModuleSpec, ...]
    lowercase: bool = False
    """Whether text is lower-cased first, a setting of sentence-transformers; most tokenizers do it themselves."""
    config: dict[str, Any] = field(default_factory=dict)
    """The transformer's config.json."""

    @property
    def hidden_size(self) -> int:
        """The dimension of the token vectors."""
        return int(self.config.get("hidden_size") or self.config.get("dim") or 0)

    @property
    def is_static(self) -> bool:
        """Whether each token has the same vector in every text, so that there is a table and no transformer."""
        return self.config.get("model_type") == STATIC

    @property
    def layers(self) -> int:
        """The number of the transformer's layers."""
        return int(self.config.get("num_hidden_layers") or self.config.get("n_layers") or 0)

    @property
    def widths(self) -> list[int]:
        """The dimension of the input of each module."""
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
        """Whether sentence-transformers has all modules of this encoder."""
        return all(module.in_sentence_transformers for module in self.modules)

    @property
    def pooling(self) -> str:
        """The value of ``--pooling`` for this encoder, or a description of a combination that has no name."""
        modules = [m for m in self.modules if not isinstance(m, NormalizeSpec)]
        pooling = next(m for m in modules if m.pools)
        name = "+".join(pooling.modes if isinstance(pooling, PoolingSpec) else (pooling.name,))
        if isinstance(modules[0], LayerMeanSpec):
            weights = modules[0].weights
            published = {0: "first-last-avg", 1: "layer1-last-avg"}.get(modules[0].layer_start)
            ends_only = weights is not None and weights[0] == weights[-1] != 0 and not any(weights[1:-1])
            name = published if published and ends_only and name == "mean" else f"layers/{name}"
        if isinstance(modules[0], WordWeightsSpec):
            name = "mask" if modules[0].only_token and name == "mean" else f"word-weights+{name}"
        if isinstance(modules[0], CNNSpec):
            relu = any(isinstance(m, DenseSpec) and m.on_tokens for m in modules)
            name = f"cnn{'-relu' * relu}+{name}"
        name += "".join(f"+{m.name}" for m in modules if not (m.in_sentence_transformers or m.pools))
        dense = [m for m in modules if isinstance(m, DenseSpec) and not m.on_tokens]
        if dense and all(layer.from_head for layer in dense):
            return f"{name}-head"
        return name + "+dense" * len(dense)

    @property
    def normalizes(self) -> bool:
        """Whether the vectors have length 1."""
        return any(isinstance(m, NormalizeSpec) for m in self.modules)

    @property
    def scores_pairs(self) -> bool:
        """Whether it is a cross-encoder, whose texts are pairs and whose vectors are their scores ``[n, 1]``."""
        return any(isinstance(m, ClassifierSpec) for m in self.modules)

    def with_pooling(self, name: str) -> EncoderSpec:
        """Return the spec with another pooling, without the CNN or the dense layers that belong to the old one.

        Raises:
            InputError: for an unknown name.
        """
        check_pooling(name)
        if name == self.pooling:
            return replace(self, assumed_pooling=False)
        if self.is_static:
            raise InputError(f"{self.folder}: static embeddings pool by the mean; --pooling {name} is not for them")
        modules: list[ModuleSpec] = []
        if name in ("first-last-avg", "layer1-last-avg"):
            start = 0 if name == "first-last-avg" else 1
            between = (0.0,) * (self.layers - start - 1)
            modules.append(LayerMeanSpec(start, (1.0, *between, 1.0)))
        token_pooling = {"first-last-avg": "mean", "layer1-last-avg": "mean", "cls-head": "cls"}.get(name, name)
        modules.append(PoolingSpec((token_pooling,), self.includes_prompt))
        if name == "cls-head":
            size = self.hidden_size
            if has_batch_norm(self.folder):
                modules.append(DenseSpec(size, 2 * size, activation="torch.nn.modules.activation.ReLU", from_head=True))
                modules.append(DenseSpec(2 * size, size, activation="torch.nn.modules.linear.Identity", from_head=True))
            else:
                modules.append(DenseSpec(size, size, from_head=True))
        if self.normalizes:
            modules.append(NormalizeSpec())
        return replace(self, modules=tuple(modules), assumed_pooling=False)

    def as_cross_encoder(self) -> EncoderSpec:
        """Return the spec with a classifier of pairs that is to be trained; one that it has already stays.

        Raises:
            InputError: if transformers' classifier for this architecture is not known.
        """
        if self.scores_pairs:
            return self
        kind = str(self.config.get("model_type"))
        name = next((name for name in LAYERS if name.lower() == f"{kind.replace('-', '')}{CLASSIFIER}".lower()), None)
        if name is None:
            raise InputError(f"{self.folder}: no cross-encoder is made of a {kind} model, but of: {', '.join(LAYERS)}")
        settings = checked(ClassifierSettings, self.config, self.folder / "config.json")
        modules = (PoolingSpec(("cls",)), ClassifierSpec(name, dropout=settings.dropout, new=True))
        no_prompts: dict[str, str] = {}
        return replace(
            self, modules=modules, lowercase=False, prompts=no_prompts, default_prompt=None, assumed_pooling=False
        )

    def with_normalize(self, normalize: bool) -> EncoderSpec:
        """Return the spec with or without L2 normalisation at the end."""
        modules = tuple(m for m in self.modules if not isinstance(m, NormalizeSpec))
        return replace(self, modules=(*modules, NormalizeSpec()) if normalize else modules)


def read_spec(folder: Path) -> EncoderSpec:
    """Read the description of the encoder in a model folder.

    Raises:
        InputError: if there is no such folder, it holds no model, or a configuration file is damaged.
    """
    if not folder.is_dir():
        raise InputError(f"no such model folder: {folder}")
    if (folder / "modules.json").exists() or (folder / "modules.json").is_symlink():
        try:
            return _sentence_transformers_spec(folder)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise InputError(f"{folder}: a configuration file of its modules is damaged: {error!r}") from error
    reason = "its training has not finished" if (folder / "metrics.jsonl").exists() else "there is no config.json"
    config = _read_config(folder, f"{folder} holds no model: {reason}")
    return EncoderSpec(folder, (PoolingSpec(),), config=config, assumed_pooling=True)


def is_classifier(config: dict[str, Any]) -> bool:
    """Tell whether a model is a classifier of transformers, by its config.json."""
    return _architecture(config).endswith(CLASSIFIER)


def refuse_classifier(folder: Path, config: dict[str, Any]) -> None:
    """Refuse a classifier where nothing says how it pools.

    Raises:
        InputError: which names what it goes with.
    """
    if is_classifier(config):
        raise InputError(
            f"{folder} is a classifier or cross-encoder, which makes no vectors of texts; a cross-encoder goes with "
            "sts-eval and --rerank of evaluate and retrieve, and --pooling says how to make vectors of it all the same"
        )


def read_cross_encoder(folder: Path) -> EncoderSpec:
    """Read the description of a cross-encoder: a classifier of transformers with one label.

    Sentence-transformers' ``CrossEncoder`` writes such folders. The activation is the one that it takes: the folder's,
    else sigmoid.

    Raises:
        InputError: if the folder holds no such model, or a configuration file is damaged.
    """
    config = _read_config(folder, f"{folder} holds no model: there is no config.json")
    name = _architecture(config)
    if name not in LAYERS:
        what = f"a {name}" if name.endswith(CLASSIFIER) else "no cross-encoder: it has no classifier"
        raise InputError(f"{folder} is {what}; --rerank takes: {', '.join(LAYERS)}")
    settings = checked(ClassifierSettings, config, folder / "config.json")
    labels = settings.num_labels if settings.id2label is None else len(settings.id2label)
    if labels != 1:
        raise InputError(f"{folder} gives {labels} scores for a pair, one for each label; --rerank takes one")
    prompting = _optional(PromptSettings, folder / "config_sentence_transformers.json")
    if prompting.default_prompt_name:
        raise InputError(f"{folder}: a cross-encoder with a prompt ({prompting.default_prompt_name}) is not supported")
    activations = (
        prompting.activation_fn,
        settings.sentence_transformers.activation_fn,
        settings.sbert_ce_default_activation_function,
        ClassifierSpec.activation,
    )
    activation = next(filter(None, activations))
    if not activation.startswith("torch.nn.") or activation.rpartition(".")[2] not in OPERATORS:
        raise InputError(f"{folder}: the activation {activation!r} is none of torch.nn's {', '.join(OPERATORS)}")
    text_settings = _optional(TextSettings, folder / "sentence_bert_config.json")
    modules = (PoolingSpec(("cls",)), ClassifierSpec(name, activation, settings.dropout))
    lowercase = bool(text_settings.do_lower_case)
    return EncoderSpec(folder, modules, max_length=text_settings.max_seq_length, lowercase=lowercase, config=config)


def _architecture(config: dict[str, Any]) -> str:
    """Return the name of the model's class in transformers, or an empty string."""
    return next(iter(config.get("architectures") or ()), "")


def _sentence_transformers_spec(folder: Path) -> EncoderSpec:
    path = folder / "modules.json"
    entries = checked(ModuleList, read_json(path), path).root
    named = [
        (entry.type if entry.type.startswith(OWN) else entry.type.rsplit(".", 1)[-1], folder / entry.path)
        for entry in entries
    ]
    if not named or named[0][0] not in ("Transformer", STATIC):
        first = named[0][0] if named else "nothing"
        raise InputError(f"{folder}: the first module is {first}; only Transformer and {STATIC} are supported")
    kind, transformer = named[0]
    modules = [_read_module(name, path) for name, path in named[1:] if name != "Dropout"]  # dropout is for training
    if kind == STATIC:
        modules.insert(0, PoolingSpec(("mean",)))  # it has the mean of its token vectors in itself
        config = {"model_type": STATIC, **table_sizes(transformer)}
    else:
        config = _read_config(transformer, f"{folder} has no config.json for its transformer")
    if not any(module.pools for module in modules):
        refuse_classifier(folder, read_json(transformer / "config.json", default={}))
        raise InputError(f"{folder}: modules.json names no Pooling, so its output is not one vector a text")
    settings = _optional(TextSettings, transformer / "sentence_bert_config.json")
    prompting = _optional(PromptSettings, folder / "config_sentence_transformers.json")
    spec = EncoderSpec(
        transformer,
        tuple(modules),
        max_length=STATIC_LENGTH if kind == STATIC else settings.max_seq_length,
        lowercase=bool(settings.do_lower_case),
        prompts={name: text for name, text in (prompting.prompts or {}).items() if text is not None},
        default_prompt=prompting.default_prompt_name,
        config=config,
    )
    for module, width in zip(spec.modules, spec.widths, strict=True):
        if spec.hidden_size and (why := module.misfit(width, spec.layers)):
            raise InputError(f"{folder}: its module {module.name} {why}")
    return spec


def _optional(kind: type[Form], path: Path) -> Form:
    """Read a configuration file that a model may lack."""
    return checked(kind, read_json(path, default={}), path)


def _read_config(folder: Path, missing: str) -> dict[str, Any]:
    path = folder / "config.json"
    config = read_json(path, missing)
    checked(TransformerSizes, config, path)
    return dict(config)


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
        "Transformer, Pooling, WordWeights, WeightedLayerPooling, CNN, Dense, Dropout and Normalize are"
    )
