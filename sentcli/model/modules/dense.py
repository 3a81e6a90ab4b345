"""A dense layer on the sentence vector, or on each token vector."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli.errors import InputError
from sentcli.model.modules.base import TOKEN_EMBEDDINGS, Features, ModuleSpec, Size, added_later, embeddings_of
from sentcli.model.stored_heads import head_weights

if TYPE_CHECKING:
    from torch import nn

    from sentcli.io.weights import StateDict

ONNX_OPERATORS = {"Identity": None, "Tanh": "Tanh", "ReLU": "Relu", "Sigmoid": "Sigmoid", "GELU": "Gelu"}
"""The ONNX operator of each activation, by the name of its torch module. With any other, the encoder is traced."""


@dataclass(frozen=True)
class DenseSpec(ModuleSpec, name="Dense", in_sentence_transformers=True):
    """A linear layer and an activation on the sentence vector, or on each token vector."""

    in_features: Size
    out_features: Size
    bias: bool = True
    activation: str = "torch.nn.modules.activation.Tanh"
    from_head: bool = False
    """Whether the weights are those of the head stored with the checkpoint; see `head_weights`."""
    on_tokens: bool = False
    """Whether the layer is applied to every token vector, before the pooling."""
    residual: bool = added_later(False)
    """Whether the input is added to the output, through a layer of its own where their dimensions differ."""

    @property
    def input_width(self) -> int:
        """The number of inputs."""
        return self.in_features

    @property
    def has_onnx(self) -> bool:
        """Whether ONNX has an operator for the activation."""
        return self._activation_name in ONNX_OPERATORS

    @property
    def _activation_name(self) -> str:
        return self.activation.rpartition(".")[2]

    def output_width(self, width: int) -> int:
        """Return the number of outputs."""
        return self.out_features

    def parts(self, width: int, layers: int) -> dict[str, Any]:
        """Make the linear layer and its activation."""
        from torch import nn

        linear = nn.Linear(self.in_features, self.out_features, bias=self.bias)
        if self.on_tokens:  # it only carries an activation, for which sentence-transformers has no module of its own
            nn.init.eye_(linear.weight)
            linear.requires_grad_(False)
        parts = {"linear": linear, "activation": activation_of(self.activation)}
        if self.residual and self.in_features != self.out_features:
            parts["residual"] = nn.Linear(self.in_features, self.out_features, bias=False)
        return parts

    def forward(self, features: Features, parts: Any) -> None:
        """Replace `features.sentence` ``[B, out_features]`` or `features.tokens` ``[B, T, out_features]``."""
        place = "tokens" if self.on_tokens else "sentence"
        value = getattr(features, place)
        output = parts.activation(parts.linear(value))
        if self.residual:
            if hasattr(parts, "residual"):
                value = parts.residual(value)
            output = output + value
        setattr(features, place, output)

    def write_onnx(self, graph: Any, states: Any, value: Any, name: str, parts: Any) -> Any:
        """Write the layer in fp32, because it is small."""
        output = graph.op("MatMul", value, graph.weight(f"{name}.weight", parts.linear.weight.T))
        if self.bias:
            output = graph.op("Add", output, graph.weight(f"{name}.bias", parts.linear.bias))
        operator = ONNX_OPERATORS[self._activation_name]
        if operator is not None:
            output = graph.op(operator, output)
        if not self.residual:
            return output
        if hasattr(parts, "residual"):
            value = graph.op("MatMul", value, graph.weight(f"{name}.residual", parts.residual.weight.T))
        return graph.op("Add", output, value)

    @classmethod
    def from_config(cls, config: dict[str, Any], folder: Path) -> DenseSpec:
        """Read the settings by the names that sentence-transformers gives them."""
        return cls(
            in_features=config["in_features"],
            out_features=config["out_features"],
            bias=config.get("bias", True),
            activation=config.get("activation_function", "torch.nn.modules.activation.Tanh"),
            on_tokens=embeddings_of(config, folder) == TOKEN_EMBEDDINGS,
            residual=bool(config.get("use_residual")),
            folder=folder,
        )

    def stored_weights(self, transformer: Path, state: StateDict) -> StateDict | None:
        """Return the weights in the module's folder, or those of the head that was trained with the checkpoint."""
        if not self.from_head:
            return super().stored_weights(transformer, state)
        for layer in head_weights(transformer, state):
            if tuple(layer["weight"].shape) == (self.out_features, self.in_features):
                return {f"linear.{name}": value for name, value in layer.items()}
        sizes = f"{self.in_features} to {self.out_features} dimensions"
        raise InputError(f"{transformer}: its trained head has no layer of {sizes}")

    def to_config(self, width: int, parts: Any) -> dict[str, Any]:
        """Return the settings under sentence-transformers' names."""
        settings: dict[str, Any] = {
            "in_features": self.in_features,
            "out_features": self.out_features,
            "bias": self.bias,
            "activation_function": self.activation,
        }
        if self.on_tokens:
            settings["module_input_name"] = TOKEN_EMBEDDINGS
        if self.residual:
            settings["use_residual"] = True
        return settings


def activation_of(name: str) -> nn.Module:
    """Build an activation such as ``torch.nn.Tanh`` by name; other names are refused, since they could be any code."""
    from torch import nn

    module, _, attribute = name.rpartition(".")
    if module != "torch.nn" and not module.startswith("torch.nn.modules"):
        raise InputError(f"activation function {name!r} is not one of torch.nn")
    try:
        activation = getattr(importlib.import_module(module), attribute)()
    except (ImportError, AttributeError, TypeError) as error:
        raise InputError(f"unknown activation function {name!r}") from error
    if not isinstance(activation, nn.Module):
        raise InputError(f"activation function {name!r} is not a torch module")
    return activation
