"""Read the description of a cross-encoder, a classifier of transformers with one label, out of its folder."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le

from sentcli.errors import InputError
from sentcli.io.forms import checked
from sentcli.model.modules import ClassifierSpec, ModuleSpec, PoolingSpec
from sentcli.model.modules.classifier import LAYERS, TANH
from sentcli.model.modules.dense import ONNX_OPERATORS
from sentcli.model.settings_files import (
    PromptSettings,
    read_prompt_settings,
    read_text_settings,
    read_tokenizer_settings,
)
from sentcli.model.spec import EncoderSpec
from sentcli.model.spec_files import read_config

CLASSIFIER = "ForSequenceClassification"
"""The end of the names of transformers' classifiers, cross-encoders among them."""
Rate = Annotated[float, Ge(0), Le(1)]


@dataclass(frozen=True)
class ClassifierSettings:
    """The fields of ``config.json`` on a classifier: its labels, and its activation as older releases wrote it."""

    num_labels: int = 2
    classifier_dropout: Rate | None = None
    hidden_dropout_prob: Rate = 0.0
    id2label: dict[str, Any] | None = None
    sentence_transformers: PromptSettings = field(default_factory=PromptSettings)
    sbert_ce_default_activation_function: str | None = None
    cls_dropout: Rate | None = None
    pooler_dropout: Rate = 0.0
    pooler_hidden_act: str = "gelu"
    classifier_pooling: Literal["cls", "mean"] = "cls"
    classifier_bias: bool = False
    classifier_activation: str = "gelu"
    norm_eps: Annotated[float, Gt(0)] = 1e-5
    norm_bias: bool = False

    @property
    def labels(self) -> int:
        """The number of labels."""
        return self.num_labels if self.id2label is None else len(self.id2label)

    def modules(self, architecture: str, *, activation: str = "", new: bool = False) -> tuple[ModuleSpec, ...]:
        """Return what follows the transformer in a classifier of transformers.

        Args:
            architecture: the name of its class, one of `LAYERS`.
            activation: of the score; empty for a classifier that is to be trained.
            new: as for `ClassifierSpec`.

        Raises:
            InputError: for the activation of a dense layer that is not known.
        """
        rates = (self.classifier_dropout, self.cls_dropout, self.hidden_dropout_prob)
        dropout = next(rate for rate in rates if rate is not None)
        classifier = ClassifierSpec(architecture, activation or ClassifierSpec.activation, dropout, new)
        pooling = PoolingSpec(("cls",))
        if architecture.startswith("Deberta"):
            hidden_activation = _activation(self.pooler_hidden_act)
            classifier = replace(classifier, hidden_activation=hidden_activation, pooler_dropout=self.pooler_dropout)
        if architecture.startswith("ModernBert"):
            pooling = PoolingSpec((self.classifier_pooling,))
            classifier = replace(
                classifier,
                hidden_activation=_activation(self.classifier_activation),
                hidden_bias=self.classifier_bias,
                norm_epsilon=self.norm_eps,
                norm_bias=self.norm_bias,
            )
        return pooling, classifier


_ACTIVATIONS = {"gelu": "torch.nn.GELU", "tanh": TANH, "relu": "torch.nn.ReLU", "sigmoid": "torch.nn.Sigmoid"}
"""The activations of dense layers in classifiers by the names that transformers gives them."""


def _activation(name: str) -> str:
    """Return the class of torch of an activation by its name in transformers."""
    if name not in _ACTIVATIONS:
        raise InputError(
            f"the activation {name!r} of a cross-encoder's dense layer is none of {', '.join(_ACTIVATIONS)}"
        )
    return _ACTIVATIONS[name]


def is_cross_encoder(folder: Path) -> bool:
    """Tell whether sentence-transformers saved a folder as a cross-encoder."""
    settings, _ = read_prompt_settings(folder)
    return settings.model_type == "CrossEncoder"


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
    config = read_config(folder, f"{folder} holds no model: there is no config.json")
    name = _architecture(config)
    if name not in LAYERS:
        what = f"a {name}" if name.endswith(CLASSIFIER) else "no cross-encoder: it has no classifier"
        raise InputError(f"{folder} is {what}; --rerank takes: {', '.join(LAYERS)}")
    settings = checked(ClassifierSettings, config, folder / "config.json")
    if settings.labels != 1:
        raise InputError(f"{folder} gives {settings.labels} scores for a pair, one for each label; --rerank takes one")
    prompting, unknown = read_prompt_settings(folder)
    if prompting.default_prompt_name:
        raise InputError(f"{folder}: a cross-encoder with a prompt ({prompting.default_prompt_name}) is not supported")
    activations = (
        prompting.activation_fn,
        settings.sentence_transformers.activation_fn,
        settings.sbert_ce_default_activation_function,
        ClassifierSpec.activation,
    )
    activation = next(filter(None, activations))
    if not activation.startswith("torch.nn.") or activation.rpartition(".")[2] not in ONNX_OPERATORS:
        raise InputError(f"{folder}: the activation {activation!r} is none of torch.nn's {', '.join(ONNX_OPERATORS)}")
    texts = read_text_settings(folder, classifier=True)
    tokenizer, more = read_tokenizer_settings(folder)
    return EncoderSpec(
        folder,
        settings.modules(name, activation=activation),
        max_length=texts.max_seq_length,
        lowercase=bool(texts.do_lower_case),
        truncation_side=tokenizer.truncation_side,
        tokenizer_length=tokenizer.limit,
        config=config,
        unknown_keys=(*unknown, *more),
    )


def as_cross_encoder(spec: EncoderSpec) -> EncoderSpec:
    """Return a spec with a classifier of pairs that is to be trained; one that it has already stays.

    Raises:
        InputError: if transformers' classifier for this architecture is not known.
    """
    if spec.scores_pairs:
        return spec
    kind = str(spec.config.get("model_type"))
    names = {name.lower(): name for name in LAYERS}
    name = names.get(f"{kind.replace('-', '')}{CLASSIFIER}".lower())
    if name is None:
        raise InputError(f"{spec.folder}: no cross-encoder is made of a {kind} model, but of: {', '.join(LAYERS)}")
    settings = checked(ClassifierSettings, spec.config, spec.folder / "config.json")
    modules = settings.modules(name, new=True)
    no_prompts: dict[str, str] = {}
    return replace(
        spec, modules=modules, lowercase=False, prompts=no_prompts, default_prompt=None, assumed_pooling=False
    )


def _architecture(config: dict[str, Any]) -> str:
    """Return the name of the model's class in transformers, or an empty string."""
    return next(iter(config.get("architectures") or ()), "")
