"""Read the description of an encoder out of the files of its folder.

Two layouts are read: that of sentence-transformers (``modules.json`` and one folder for each module) and a plain
transformers folder, whose pooling has to be chosen; and classifiers of transformers as cross-encoders.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Le
from pydantic import AfterValidator, BaseModel, RootModel

from sentcli.errors import InputError
from sentcli.io.forms import Form, checked, read_json
from sentcli.model.modules import MODULES, ClassifierSpec, ModuleSpec, PoolingSpec
from sentcli.model.modules.base import OWN
from sentcli.model.modules.classifier import LAYERS
from sentcli.model.modules.dense import OPERATORS
from sentcli.model.spec import EncoderSpec
from sentcli.model.static import STATIC, STATIC_LENGTH, table_sizes


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


def as_cross_encoder(spec: EncoderSpec) -> EncoderSpec:
    """Return a spec with a classifier of pairs that is to be trained; one that it has already stays.

    Raises:
        InputError: if transformers' classifier for this architecture is not known.
    """
    if spec.scores_pairs:
        return spec
    kind = str(spec.config.get("model_type"))
    name = next((name for name in LAYERS if name.lower() == f"{kind.replace('-', '')}{CLASSIFIER}".lower()), None)
    if name is None:
        raise InputError(f"{spec.folder}: no cross-encoder is made of a {kind} model, but of: {', '.join(LAYERS)}")
    settings = checked(ClassifierSettings, spec.config, spec.folder / "config.json")
    modules = (PoolingSpec(("cls",)), ClassifierSpec(name, dropout=settings.dropout, new=True))
    no_prompts: dict[str, str] = {}
    return replace(
        spec, modules=modules, lowercase=False, prompts=no_prompts, default_prompt=None, assumed_pooling=False
    )


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
