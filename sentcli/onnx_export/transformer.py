"""Write the graph of a BERT-like encoder from its weights.

Hidden states are kept as rows ``[batch * tokens, d]``. So a linear layer and its bias are one operator, and onnxruntime
does not fuse addition and normalisation into SkipLayerNormalization, which on two CPU cores took five times as long as
both apart (1,024 rows of 384: 2.05 ms against 0.38 ms, onnxruntime 1.31). Attention is its MultiHeadAttention.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import onnx_ir as ir
import torch

from sentcli.arrays import AnyArray
from sentcli.model.surgery import layer_count, layer_list
from sentcli.onnx_export.graph import Graph, Value, array_of

_ACTIVATIONS = ("gelu", "relu", "gelu_new", "gelu_pytorch_tanh", "silu", "swish")


@dataclass(frozen=True)
class Family:
    """The attributes, with dots, under which an architecture keeps the parts of a layer."""

    query: str
    key: str
    value: str
    output: str
    attention_norm: str
    up: str
    down: str
    norm: str
    positions_after_padding: bool = False
    """Whether positions are counted from the padding id on, over the tokens that are not padding (RoBERTa)."""


BERT = Family(
    query="attention.self.query",
    key="attention.self.key",
    value="attention.self.value",
    output="attention.output.dense",
    attention_norm="attention.output.LayerNorm",
    up="intermediate.dense",
    down="output.dense",
    norm="output.LayerNorm",
)
ROBERTA = replace(BERT, positions_after_padding=True)
MPNET = replace(
    ROBERTA,
    query="attention.attn.q",
    key="attention.attn.k",
    value="attention.attn.v",
    output="attention.attn.o",
    attention_norm="attention.LayerNorm",
)
DISTILBERT = Family(
    query="attention.q_lin",
    key="attention.k_lin",
    value="attention.v_lin",
    output="attention.out_lin",
    attention_norm="sa_layer_norm",
    up="ffn.lin1",
    down="ffn.lin2",
    norm="output_layer_norm",
)
GRAPH_FAMILIES = {
    "bert": BERT,
    "electra": BERT,
    "roberta": ROBERTA,
    "xlm-roberta": ROBERTA,
    "camembert": ROBERTA,
    "mpnet": MPNET,
    "distilbert": DISTILBERT,
}
"""The families by ``model_type``."""


def family_of(backbone: Any) -> Family | None:
    """Return the family of a backbone, or None if its graph has to be traced instead."""
    config = backbone.config
    is_absolute = getattr(config, "position_embedding_type", "absolute") == "absolute"
    is_decoder = getattr(config, "is_decoder", False)
    if not is_absolute or is_decoder or activation_name(config) not in _ACTIVATIONS:
        return None
    return GRAPH_FAMILIES.get(config.model_type)


def activation_name(config: Any) -> str:
    """Return the name of the activation between the two layers of a feed-forward block."""
    return str(getattr(config, "hidden_act", None) or getattr(config, "activation", ""))


@dataclass
class States:
    """The output of the transformer for the modules after it."""

    tokens: Value
    """The token vectors ``[batch, tokens, d]``, or ``[batch, 1, d]`` if only position 0 is computed."""
    mask: Value
    """The input ``attention_mask``."""
    layers: list[Value]
    """The states of every layer ``[batch, tokens, d]``, embeddings first."""
    weight_sum: Value | None = None
    """The sum of the weights of each text's tokens ``[batch, 1]``, if they have other weights than 1."""


def write(graph: Graph, backbone: Any, *, first_token_only: bool = False) -> States:
    """Write a transformer of a known `Family`.

    Args:
        graph: the graph under construction.
        backbone: the transformers model.
        first_token_only: compute the last layer only for position 0, with the keys and values of all positions.
    """
    family = family_of(backbone)
    assert family is not None
    return _Writer(graph, backbone, family).write(first_token_only)


class _Writer:
    def __init__(self, graph: Graph, backbone: Any, family: Family) -> None:
        self.graph = graph
        self.backbone = backbone
        self.family = family
        config = backbone.config
        self.width = int(getattr(config, "hidden_size", None) or config.dim)
        self.heads = int(getattr(config, "num_attention_heads", None) or config.n_heads)
        self.ids = graph.inputs["input_ids"]
        self.mask = graph.cast(graph.inputs["attention_mask"], ir.DataType.INT32)
        self.batch = graph.size(self.ids, 0)
        self.tokens = graph.size(self.ids, 1)
        self.rows = graph.integers(-1, self.width)
        """The shape of one row for each token ``[rows, d]``."""
        width = graph.integers(self.width)
        self.cube = graph.op("Concat", self.batch, self.tokens, width, axis=0)
        """The shape ``[batch, tokens, d]``."""

    def write(self, first_token_only: bool) -> States:
        graph = self.graph
        state = self.embeddings()
        bias = self.position_bias()
        states = [graph.reshape(state, self.cube)]
        layers = list(layer_list(self.backbone)[1])
        for number, layer in enumerate(layers):
            first_only = first_token_only and number == len(layers) - 1
            state = self.layer(state, f"layer.{number}", layer, bias, first_only=first_only)
            first_tokens = self.first_tokens()
            states.append(graph.reshape(state, first_tokens if first_only else self.cube))
        assert len(layers) == layer_count(self.backbone)
        return States(states[-1], graph.inputs["attention_mask"], states)

    def embeddings(self) -> Value:
        """Return the sum of word, position and type embeddings, normalised: ``[rows, d]``."""
        graph = self.graph
        parts = self.backbone.embeddings
        words = graph.lookup("embeddings.words", array_of(parts.word_embeddings.weight), self.ids)
        positions = array_of(parts.position_embeddings.weight)
        types: Any = getattr(parts, "token_type_embeddings", None)
        if types is not None and "token_type_ids" not in graph.inputs:  # a single text is of type 0 throughout
            positions = positions + array_of(types.weight)[0]
            types = None
        table = graph.weight("embeddings.positions", positions)  # small, so always in fp32
        if self.family.positions_after_padding:
            places = self.positions_after_padding(int(parts.word_embeddings.padding_idx))
            placed = graph.op("Gather", table, places)
        else:
            placed = graph.op("Slice", table, graph.integers(0), self.tokens, graph.integers(0))
        total = graph.op("Add", words, placed)
        if types is not None:
            kinds = graph.weight("embeddings.types", array_of(types.weight))
            kind = graph.op("Gather", kinds, graph.inputs["token_type_ids"])
            total = graph.op("Add", total, kind)
        narrow = graph.integers(-1, int(parts.word_embeddings.weight.shape[1]))
        state = graph.layer_norm("embeddings.norm", graph.reshape(total, narrow), parts.LayerNorm)
        project = getattr(self.backbone, "embeddings_project", None)  # ELECTRA's small models
        if project is None:
            return state
        return graph.wide(self.linear("embeddings.project", state, project))

    def positions_after_padding(self, padding: int) -> Value:
        """Return the position of each token ``[batch, tokens]``, counted from the padding id on."""
        graph = self.graph
        padded = graph.op("Equal", self.ids, graph.integer(padding))
        real = graph.cast(graph.op("Not", padded), ir.DataType.INT64)
        before = graph.op("CumSum", real, graph.integer(1))
        count = graph.op("Mul", before, real)
        return graph.op("Add", count, graph.integer(padding))

    def position_bias(self) -> Value | None:
        """Return MPNet's bias by relative position ``[1, heads, tokens, tokens]``."""
        encoder: Any = getattr(self.backbone, "encoder", self.backbone)
        if not hasattr(encoder, "relative_attention_bias"):
            return None
        table = encoder.relative_attention_bias
        graph = self.graph
        reach = int(self.backbone.config.max_position_embeddings)
        distances = torch.arange(-reach + 1, reach)
        buckets = encoder.relative_position_bucket(distances[None], num_buckets=table.weight.shape[0])[0]
        by_distance = graph.weight("position_bias", array_of(table.weight[buckets]))  # [2 * reach - 1, heads]
        start = graph.integer(0)
        token_count = graph.op("Squeeze", self.tokens, graph.integers(0))
        places = graph.op("Range", start, token_count, graph.integer(1))
        key_places = graph.op("Unsqueeze", places, graph.integers(0))
        query_places = graph.op("Unsqueeze", places, graph.integers(1))
        distance = graph.op("Sub", key_places, query_places)
        row = graph.op("Add", distance, graph.integer(reach - 1))
        biases = graph.op("Gather", by_distance, row)
        by_head = graph.op("Transpose", biases, perm=[2, 0, 1])
        return graph.op("Unsqueeze", by_head, graph.integers(0))

    def layer(self, state: Value, name: str, layer: Any, bias: Value | None, *, first_only: bool) -> Value:
        """Return a layer's output ``[rows, d]``, or ``[batch, d]`` of position 0."""
        graph = self.graph
        family = self.family
        cube = self.cube
        attending = state
        query_shape = cube
        if first_only:
            tokens = graph.reshape(state, cube)
            attending = graph.op("Gather", tokens, graph.integer(0), axis=1)
            query_shape = self.first_tokens()
            if bias is not None:
                bias = graph.op("Slice", bias, graph.integers(0), graph.integers(1), graph.integers(2))
        project = partial(self.part, layer, name)
        query = graph.reshape(project(family.query, attending), query_shape)
        key = graph.reshape(project(family.key, state), cube)
        value = graph.reshape(project(family.value, state), cube)
        context = graph.attention(query, key, value, self.mask, bias, self.heads)
        rows = graph.reshape(context, self.rows)
        mixed = project(family.output, rows)
        state = self.add_and_norm(mixed, attending, layer, name, family.attention_norm)
        up = graph.wide(project(family.up, state))
        down = project(family.down, self.activation(up))
        return self.add_and_norm(down, state, layer, name, family.norm)

    def first_tokens(self) -> Value:
        """Return the shape ``[batch, 1, d]``."""
        return self.graph.op("Concat", self.batch, self.graph.integers(1, self.width), axis=0)

    def part(self, layer: Any, name: str, path: str, value: Value) -> Value:
        """Apply the linear layer at a path inside of a layer."""
        return self.linear(f"{name}.{path}", value, layer.get_submodule(path))

    def linear(self, name: str, value: Value, module: Any) -> Value:
        """Apply a linear module of torch."""
        bias: AnyArray | None = None if module.bias is None else array_of(module.bias)
        return self.graph.linear(name, value, array_of(module.weight), bias)

    def add_and_norm(self, value: Value, skip: Value, layer: Any, name: str, path: str) -> Value:
        """Return the sum of a value and what goes around its block, normalised: ``[rows, d]`` in float32."""
        total = self.graph.op("Add", self.graph.wide(value), skip)
        return self.graph.layer_norm(f"{name}.{path}", total, layer.get_submodule(path))

    def activation(self, value: Value) -> Value:
        graph = self.graph
        kind = activation_name(self.backbone.config)
        if kind == "relu":
            return graph.op("Relu", value)
        if kind in ("silu", "swish"):
            return graph.op("Mul", value, graph.op("Sigmoid", value))
        if kind == "gelu":
            return graph.op("Gelu", value)
        return graph.op("Gelu", value, approximate="tanh")
