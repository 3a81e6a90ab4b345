"""Weights of the token vectors before the pooling, by token; one token of weight 1 makes the mean its vector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from annotated_types import MinLen

from sentcli.model.modules.base import Features, ModuleSpec


@dataclass(frozen=True)
class WordWeightsSpec(ModuleSpec, name="WordWeights", in_sentence_transformers=True):
    """Multiplies each token vector by a weight, such as its idf; the mean divides by the sum of the weights."""

    vocab: Annotated[tuple[str, ...], MinLen(1)]
    """The tokens in the order of their ids."""
    word_weights: dict[str, float] = field(default_factory=dict)
    unknown_word_weight: float = 1.0
    """The weight of all other tokens."""

    @property
    def vocabulary(self) -> int:
        """The number of tokens of `vocab`."""
        return len(self.vocab)

    @classmethod
    def of_token(cls, token: str, vocabulary: dict[str, int]) -> WordWeightsSpec:
        """Return the weights with which the mean over the tokens is the vector of one of them."""
        return cls(_in_order(vocabulary), {token: 1.0}, unknown_word_weight=0.0)

    @classmethod
    def of_ids(cls, weights: Sequence[float], vocabulary: dict[str, int]) -> WordWeightsSpec:
        """Return the weights of all tokens.

        Args:
            weights: of each token, by its id.
            vocabulary: the id of each token.
        """
        of_token = {}
        for token, number in vocabulary.items():
            of_token[token] = float(weights[number])
        return cls(_in_order(vocabulary), of_token)

    @property
    def only_token(self) -> str | None:
        """The only token whose weight is not 0, if there is one."""
        tokens = [token for token, weight in self.word_weights.items() if weight]
        if len(tokens) != 1 or self.unknown_word_weight:
            return None
        return tokens[0]

    def parts(self, width: int, layers: int) -> dict[str, Any]:
        """Make the table of weights, which is not trained."""
        import torch

        weights = []
        for token in self.vocab:  # as sentence-transformers looks them up
            in_lower_case = self.word_weights.get(token.lower(), self.unknown_word_weight)
            weights.append(self.word_weights.get(token, in_lower_case))
        table = torch.nn.Embedding(len(weights), 1, _weight=torch.tensor(weights).unsqueeze(1))
        return {"emb_layer": table.requires_grad_(False)}

    def forward(self, features: Features, parts: Any) -> None:
        """Weight `features.tokens` ``[B, T, d]``, and set the sum of the weights of each text."""
        weights = parts.emb_layer(features.ids).squeeze(-1) * features.mask
        features.tokens = features.tokens * weights.unsqueeze(-1).to(features.tokens.dtype)
        features.weight_sum = weights.sum(dim=1, keepdim=True)

    def write_onnx(self, graph: Any, states: Any, value: Any, name: str, parts: Any) -> Any:
        """Write the product, and the sum of the weights."""
        import numpy as np
        import onnx_ir as ir

        table = parts.emb_layer.weight.detach().cpu().numpy().astype(np.float32)
        weights = graph.op("Gather", graph.weight(f"{name}.weights", table[:, 0]), graph.inputs["input_ids"])
        weights = graph.op("Mul", weights, graph.cast(states.mask, ir.DataType.FLOAT))
        states.weight_sum = graph.op("ReduceSum", weights, graph.integers(1), keepdims=1)
        return graph.op("Mul", value, graph.op("Unsqueeze", weights, graph.integers(2)))


def _in_order(vocabulary: dict[str, int]) -> tuple[str, ...]:
    """Return the tokens in the order of their ids, and an empty one for an id that no token has."""
    tokens = {number: name for name, number in vocabulary.items()}
    return tuple(tokens.get(number, "") for number in range(max(tokens) + 1))
