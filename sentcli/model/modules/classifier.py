"""The classifier of a cross-encoder: the vector of a pair becomes its score."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from sentcli.errors import InputError
from sentcli.io.typed import among
from sentcli.model.modules.base import Features, ModuleSpec
from sentcli.model.modules.dense import OPERATORS, activation_of

if TYPE_CHECKING:
    from sentcli.io.weights import StateDict

LAYERS = {
    "BertForSequenceClassification": ("pooler.dense", "classifier"),
    "RobertaForSequenceClassification": ("classifier.dense", "classifier.out_proj"),
    "XLMRobertaForSequenceClassification": ("classifier.dense", "classifier.out_proj"),
    "CamembertForSequenceClassification": ("classifier.dense", "classifier.out_proj"),
}
"""The names of both layers in the checkpoints of transformers, by architecture."""


@dataclass(frozen=True)
class ClassifierSpec(ModuleSpec, name="Classifier"):
    """A dense layer with tanh, a layer with one output and an activation, as in transformers' classifiers."""

    architecture: Annotated[str, among(*LAYERS)]
    activation: str = "torch.nn.modules.activation.Sigmoid"
    dropout: float = 0.0
    """The rate in training, before the last layer; in RoBERTa's classifiers before both."""
    new: bool = False
    """Whether it is to be trained on a language model: it has that model's pooler, if there is one, and else random
    weights."""

    scores_pairs = True

    @property
    def may_lack_weights(self) -> bool:
        """Whether it is new."""
        return self.new

    @property
    def is_berts(self) -> bool:
        """Whether its dense layer is the pooler of BERT."""
        return LAYERS[self.architecture][0].startswith("pooler")

    @property
    def has_onnx(self) -> bool:
        """Whether ONNX has an operator for the activation."""
        return self.activation.rpartition(".")[2] in OPERATORS

    def output_width(self, width: int) -> int:
        """Return 1, the number of scores."""
        return 1

    def parts(self, width: int, depth: int) -> dict[str, Any]:
        """Make both layers and the activation."""
        from torch import nn

        layers = {"dense": nn.Linear(width, width), "output": nn.Linear(width, 1)}
        for layer in layers.values():  # as BERT begins
            nn.init.normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)
        return {**layers, "activation": activation_of(self.activation), "dropout": nn.Dropout(self.dropout)}

    def forward(self, features: Features, parts: Any) -> None:
        """Replace `features.sentence` by the scores ``[B, 1]``, or by their logits."""
        sentence = features.sentence
        if not self.is_berts:
            sentence = parts.dropout(sentence)
        hidden = parts.dense(sentence).tanh()
        scores = parts.output(parts.dropout(hidden))
        if not features.logits:
            scores = parts.activation(scores)
        features.sentence = scores

    def write_onnx(self, graph: Any, states: Any, value: Any, name: str, parts: Any) -> Any:
        """Write the layers in fp32, because they are small."""
        activation = OPERATORS[self.activation.rpartition(".")[2]]
        for part, operator in (("dense", "Tanh"), ("output", activation)):
            layer = getattr(parts, part)
            value = graph.op("MatMul", value, graph.weight(f"{name}.{part}.weight", layer.weight.T))
            value = graph.op("Add", value, graph.weight(f"{name}.{part}.bias", layer.bias))
            if operator is not None:
                value = graph.op(operator, value)
        return value

    def transformers_names(self, prefix: str) -> dict[str, str]:
        """Return the name that each weight has in the checkpoints of transformers.

        Args:
            prefix: of the names of the transformer's weights.
        """
        names: dict[str, str] = {}
        for part, layer in zip(("dense", "output"), LAYERS[self.architecture], strict=True):
            path = f"{prefix}.{layer}" if part == "dense" and self.is_berts else layer
            names |= {f"{part}.{kind}": f"{path}.{kind}" for kind in ("weight", "bias")}
        return names

    def stored_weights(self, transformer: Path, state: StateDict) -> StateDict:
        """Return the weights of both layers, which stand among those of the transformer."""
        weights = {}
        for part, layer in zip(("dense", "output"), LAYERS[self.architecture], strict=True):
            for kind in ("weight", "bias"):
                name = f"{layer}.{kind}"
                key = next((key for key in state if f".{key}".endswith(f".{name}")), None)
                if key is None and self.new:
                    continue
                if key is None:
                    raise InputError(f"{transformer}: there is no {name} in its weights, which a cross-encoder needs")
                weights[f"{part}.{kind}"] = state[key]
        return weights
