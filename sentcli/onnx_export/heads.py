"""What follows the transformer, as part of the graph: pooling, mean over layers, CNN, dense layers, normalisation."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from sentcli.model.spec import CNNSpec, DenseSpec, EncoderSpec, LayerMeanSpec, NormalizeSpec, PoolingSpec
from sentcli.onnx_export.graph import Graph, Value, array_of
from sentcli.onnx_export.transformer import States

ACTIVATIONS = {
    "Identity": (),
    "Tanh": ("Tanh",),
    "ReLU": ("Relu",),
    "Sigmoid": ("Sigmoid",),
    "GELU": ("Gelu",),
}
"""Of dense layers, by the name of their torch module: the operators, one after the other."""


def can_write(spec: EncoderSpec) -> bool:
    """Tell whether all modules of an encoder can be written; another activation has to be traced."""
    dense = [module for module in spec.modules if isinstance(module, DenseSpec)]
    return all(_activation_name(module) in ACTIVATIONS for module in dense)


def pools_first_token(spec: EncoderSpec) -> bool:
    """Tell whether the vector is made of position 0 of the last layer alone."""
    first = spec.modules[0]
    return isinstance(first, PoolingSpec) and first.modes == ("cls",)


def write(graph: Graph, states: States, spec: EncoderSpec, stack: Any) -> tuple[Value, int]:
    """Write the modules and return the sentence vectors ``[batch, d]`` and d.

    Args:
        graph: to add to.
        states: of the transformer.
        spec: lists the modules.
        stack: the torch modules, in the same order.
    """
    value, width = states.tokens, spec.hidden_size
    for number, (part, module) in enumerate(zip(spec.modules, stack, strict=True)):
        name = f"module.{number}"
        match part:
            case LayerMeanSpec():
                value = _layer_mean(graph, states, module)
            case CNNSpec():
                value, width = _cnn(graph, name, value, states.mask, module)
            case PoolingSpec():
                pooled = [pool(graph, value, states.mask, mode) for mode in part.modes]
                value = pooled[0] if len(pooled) == 1 else graph.op("Concat", *pooled, axis=-1)
                width *= len(pooled)
            case DenseSpec():
                value, width = _dense(graph, name, value, part, module), part.out_features
            case NormalizeSpec():
                norm = graph.op("ReduceL2", value, graph.integers(-1), keepdims=1)
                value = graph.op("Div", value, graph.op("Max", norm, graph.number(1e-12)))
    return value, width


def pool(graph: Graph, tokens: Value, mask: Value, mode: str) -> Value:
    """Pool ``[batch, tokens, d]`` over the real tokens; texts are padded on the right. See `torch_model.pool`."""
    if mode == "cls":
        return graph.op("Gather", tokens, graph.integer(0), axis=1)
    if mode == "lasttoken":
        last = graph.op("Sub", graph.op("ReduceSum", mask, graph.integers(1), keepdims=1), graph.integer(1))
        return graph.op("GatherND", tokens, last, batch_dims=1)
    if mode == "max":
        real = graph.cast(graph.op("Unsqueeze", mask, graph.integers(2)), ir.DataType.BOOL)
        lowest = graph.number(float(np.finfo(np.float32).min))
        return graph.op("ReduceMax", graph.op("Where", real, tokens, lowest), graph.integers(1), keepdims=0)
    weights = graph.cast(mask, ir.DataType.FLOAT)
    if mode == "weightedmean":
        weights = graph.op("Mul", weights, graph.op("CumSum", weights, graph.integer(1)))
    row = graph.op("Unsqueeze", weights, graph.integers(1))
    total = graph.op("Squeeze", graph.op("MatMul", row, tokens), graph.integers(1))
    count = graph.op("Max", graph.op("ReduceSum", weights, graph.integers(1), keepdims=1), graph.number(1e-9))
    return graph.op("Div", total, graph.op("Sqrt", count) if mode == "mean_sqrt_len_tokens" else count)


def _layer_mean(graph: Graph, states: States, module: Any) -> Value:
    weights = array_of(module.layer_weights)
    shares = (weights / weights.sum()).tolist()
    mixed: Value | None = None
    for share, state in zip(shares, states.layers[module.layer_start :], strict=True):
        if share:
            part = graph.op("Mul", state, graph.number(share))
            mixed = part if mixed is None else graph.op("Add", mixed, part)
    assert mixed is not None
    return mixed


def _cnn(graph: Graph, name: str, tokens: Value, mask: Value, module: Any) -> tuple[Value, int]:
    """Write the convolutions; padding is blanked, so that a vector does not depend on the batch."""
    real = graph.op("Unsqueeze", graph.cast(mask, ir.DataType.FLOAT), graph.integers(1))
    columns = graph.op("Mul", graph.op("Transpose", tokens, perm=[0, 2, 1]), real)
    convolved = []
    for i, conv in enumerate(module.convs):
        weight = graph.weight(f"{name}.{i}.weight", array_of(conv.weight))
        bias = graph.weight(f"{name}.{i}.bias", array_of(conv.bias))
        pads, strides = [conv.padding[0]] * 2, list(conv.stride)
        convolved.append(graph.op("Conv", columns, weight, bias, pads=pads, strides=strides))
    joined = graph.op("Concat", *convolved, axis=1)
    return graph.op("Transpose", joined, perm=[0, 2, 1]), sum(conv.out_channels for conv in module.convs)


def _dense(graph: Graph, name: str, value: Value, part: DenseSpec, module: Any) -> Value:
    """Write a dense layer; it is small and stays in fp32."""
    matrix = graph.weight(f"{name}.weight", array_of(module.linear.weight).T)
    value = graph.op("MatMul", value, matrix)
    if module.linear.bias is not None:
        value = graph.op("Add", value, graph.weight(f"{name}.bias", array_of(module.linear.bias)))
    for kind in ACTIVATIONS[_activation_name(part)]:
        value = graph.op(kind, value)
    return value


def _activation_name(part: DenseSpec) -> str:
    return part.activation.rpartition(".")[2]
