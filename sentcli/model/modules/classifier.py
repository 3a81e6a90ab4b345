"""The classifier of a cross-encoder: the vector of a pair becomes its score."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from sentcli.errors import InputError
from sentcli.io.typed import among
from sentcli.model.modules.base import Features, ModuleSpec, added_later
from sentcli.model.modules.dense import ONNX_OPERATORS, activation_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sentcli.io.weights import StateDict


@dataclass(frozen=True)
class _ClassifierLayers:
    """Where the checkpoints of an architecture of transformers have the layers of its classifier, and what they are."""

    dense: str
    output: str
    norm: str = ""
    """The normalisation after the dense layer; empty for a classifier that has none."""
    of_transformer: bool = False
    """Whether the dense layer is a part of the transformer, as the pooler of BERT is."""
    drops_input: bool = False
    """Whether the dropout stands before the dense layer, too."""

    @property
    def paths(self) -> dict[str, str]:
        """The names of the layers in checkpoints by those of the parts of `ClassifierSpec`."""
        names = {"dense": self.dense, "norm": self.norm, "output": self.output}
        return {part: path for part, path in names.items() if path}


IN_HEAD = _ClassifierLayers("classifier.dense", "classifier.out_proj", drops_input=True)
IN_POOLER = _ClassifierLayers("pooler.dense", "classifier")
LAYERS = {
    "BertForSequenceClassification": _ClassifierLayers("pooler.dense", "classifier", of_transformer=True),
    "RobertaForSequenceClassification": IN_HEAD,
    "XLMRobertaForSequenceClassification": IN_HEAD,
    "CamembertForSequenceClassification": IN_HEAD,
    "DebertaForSequenceClassification": IN_POOLER,
    "DebertaV2ForSequenceClassification": IN_POOLER,
    "ModernBertForSequenceClassification": _ClassifierLayers("head.dense", "classifier", norm="head.norm"),
}
"""The layers of the classifiers that are read and trained, by architecture."""
TANH = "torch.nn.Tanh"


@dataclass(frozen=True)
class ClassifierSpec(ModuleSpec, name="Classifier"):
    """A dense layer with an activation, a layer with one output and its activation, as in transformers' classifiers."""

    architecture: Annotated[str, among(*LAYERS)]
    activation: str = "torch.nn.modules.activation.Sigmoid"
    dropout: float = 0.0
    """The rate in training, before the last layer; in RoBERTa's classifiers before both."""
    new: bool = False
    """Whether it is to be trained on a language model: it has that model's pooler, if there is one, and else random
    weights."""
    hidden_activation: str = added_later(TANH)
    """The activation of the dense layer."""
    hidden_bias: bool = added_later(True)
    """Whether the dense layer has a bias."""
    norm_epsilon: float = added_later(0.0)
    """The epsilon of the normalisation after the dense layer, in the architectures that have one."""
    norm_bias: bool = added_later(False)
    """Whether that normalisation has a bias."""
    pooler_dropout: float = added_later(0.0)
    """The rate in training before the dense layer of DeBERTa's classifiers."""

    scores_pairs = True

    @property
    def may_lack_weights(self) -> bool:
        """Whether it is new."""
        return self.new

    @property
    def layers(self) -> _ClassifierLayers:
        """The layers of its architecture."""
        return LAYERS[self.architecture]

    @property
    def has_onnx(self) -> bool:
        """Whether ONNX has an operator for both activations; a transformer with the others' classifiers is traced."""
        if self.layers.norm:
            return False
        return {_short(self.activation), _short(self.hidden_activation)} <= set(ONNX_OPERATORS)

    def output_width(self, width: int) -> int:
        """Return 1, the number of scores."""
        return 1

    def parts(self, width: int, depth: int) -> dict[str, Any]:
        """Make the layers and the activations."""
        from torch import nn

        layers = {"dense": nn.Linear(width, width, bias=self.hidden_bias), "output": nn.Linear(width, 1)}
        for layer in layers.values():  # as BERT begins
            nn.init.normal_(layer.weight, std=0.02)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        first_rate = self.dropout if self.layers.drops_input else self.pooler_dropout
        parts: dict[str, Any] = {
            **layers,
            "hidden_activation": activation_of(self.hidden_activation),
            "activation": activation_of(self.activation),
            "first_dropout": nn.Dropout(first_rate),
            "dropout": nn.Dropout(self.dropout),
        }
        if self.layers.norm:
            parts["norm"] = nn.LayerNorm(width, eps=self.norm_epsilon, bias=self.norm_bias)
        return parts

    def forward(self, features: Features, parts: Any) -> None:
        """Replace `features.sentence` by the scores ``[B, 1]``, or by their logits."""
        hidden = parts.dense(parts.first_dropout(features.sentence))
        hidden = parts.hidden_activation(hidden)
        if self.layers.norm:
            hidden = parts.norm(hidden)
        scores = parts.output(parts.dropout(hidden))
        if not features.logits:
            scores = parts.activation(scores)
        features.sentence = scores

    def write_onnx(self, graph: Any, states: Any, value: Any, name: str, parts: Any) -> Any:
        """Write the layers in fp32, because they are small."""
        for part, activation in (("dense", self.hidden_activation), ("output", self.activation)):
            layer = getattr(parts, part)
            value = graph.op("MatMul", value, graph.weight(f"{name}.{part}.weight", layer.weight.T))
            if layer.bias is not None:
                value = graph.op("Add", value, graph.weight(f"{name}.{part}.bias", layer.bias))
            operator = ONNX_OPERATORS[_short(activation)]
            if operator is not None:
                value = graph.op(operator, value)
        return value

    def transformers_names(self, prefix: str) -> dict[str, str]:
        """Return the name that each weight has in the checkpoints of transformers.

        Args:
            prefix: of the names of the transformer's weights.
        """
        names = {}
        for part, kind, path in self._weights():
            inside = part == "dense" and self.layers.of_transformer
            names[f"{part}.{kind}"] = f"{prefix}.{path}" if inside else path
        return names

    def stored_weights(self, transformer: Path, state: StateDict) -> StateDict:
        """Return the weights of the layers, which stand among those of the transformer."""
        weights = {}
        for part, kind, name in self._weights():
            key = next((key for key in state if f".{key}".endswith(f".{name}")), None)
            if key is None and self.new:
                continue
            if key is None:
                raise InputError(f"{transformer}: there is no {name} in its weights, which a cross-encoder needs")
            weights[f"{part}.{kind}"] = state[key]
        return weights

    def _weights(self) -> Iterator[tuple[str, str, str]]:
        """Yield the part, the kind and the name in checkpoints of each weight that the classifier has."""
        biases = {"dense": self.hidden_bias, "norm": self.norm_bias, "output": True}
        for part, path in self.layers.paths.items():
            yield part, "weight", f"{path}.weight"
            if biases[part]:
                yield part, "bias", f"{path}.bias"


def _short(activation: str) -> str:
    """Return the name of an activation without its module."""
    return activation.rpartition(".")[2]
