"""Trace the graph of an encoder of unknown architecture by torch's exporter, and optimise and quantise it."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sentcli.errors import SentcliError
from sentcli.model.exported import SENTENCES, TOKENS
from sentcli.model.modules import Features
from sentcli.model.torch_model import TorchEncoder


class _Traced(nn.Module):
    """`TorchEncoder.features` without branches that depend on the values of a batch."""

    def __init__(self, encoder: TorchEncoder, *, tokens: bool) -> None:
        super().__init__()
        self.encoder = encoder
        self.tokens = tokens

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        if token_type_ids is not None:
            inputs["token_type_ids"] = token_type_ids
        needs_layers = self.encoder.needs_hidden_states
        output = self.encoder.backbone(**inputs, output_hidden_states=needs_layers, return_dict=True)
        layers = output.hidden_states if needs_layers else ()
        features = Features(output.last_hidden_state, attention_mask, ids=input_ids, hidden_states=layers)
        for module in self.encoder.stack:
            features = module(features)
        assert features.sentence is not None
        if self.tokens:
            return features.sentence, output.last_hidden_state
        return (features.sentence,)


def trace(encoder: TorchEncoder, path: Path, *, token_types: bool, tokens: bool) -> None:
    """Write the ONNX model of an encoder in fp32.

    Args:
        encoder: the encoder.
        path: the file to write.
        token_types: whether the model takes ``token_type_ids``.
        tokens: whether it gives the token vectors before the pooling, too.

    Raises:
        SentcliError: if torch's exporter cannot trace the encoder.
    """
    ids = torch.tensor([[5, 6, 7, 8, 9], [5, 6, 7, 1, 1], [5, 6, 1, 1, 1]])
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 0, 0, 0]])
    inputs = {"input_ids": ids, "attention_mask": mask}
    if token_types:
        inputs["token_type_ids"] = torch.zeros_like(ids)
    axes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    try:
        with _quiet(), torch.no_grad():
            program: Any = torch.onnx.export(
                _Traced(encoder, tokens=tokens).eval(),
                kwargs=inputs,
                input_names=list(inputs),
                output_names=[SENTENCES, TOKENS] if tokens else [SENTENCES],
                dynamic_shapes=dict.fromkeys(inputs, axes),
                opset_version=20,
                dynamo=True,
                verbose=False,
            )
            _forget_origin(program.model)
            program.save(str(path), external_data=False)
    except Exception as error:  # the model's code may fail in any way under tracing
        reason = " ".join(str(error.__cause__ or error).split())[:300]
        kind = getattr(encoder.backbone.config, "model_type", "this kind of model")
        raise SentcliError(f"torch's exporter cannot trace a {kind} encoder: {reason}") from error


def _forget_origin(model: Any) -> None:
    """Remove from a graph in which file and line of whose folders each of its nodes was written."""
    from onnx_ir.traversal import RecursiveGraphIterator

    graphs = [model.graph, *(function.graph for function in model.functions.values())]
    for graph in graphs:
        graph.metadata_props.clear()
        for value in (*graph.inputs, *graph.initializers.values()):
            value.metadata_props.clear()
        for node in RecursiveGraphIterator(graph):
            node.metadata_props.clear()
            node.doc_string = None
            for value in node.outputs:
                value.metadata_props.clear()
    model.metadata_props.clear()


def optimise(source: Path, target: Path, backbone: Any) -> bool:
    """Write the model that onnxruntime's optimiser for transformers makes, and return whether it changed anything."""
    from onnxruntime.transformers import optimizer

    config = backbone.config
    heads = int(getattr(config, "num_attention_heads", 0) or getattr(config, "n_heads", 0))
    width = int(getattr(config, "hidden_size", 0) or getattr(config, "dim", 0))
    try:
        with _quiet(), redirect_stdout(io.StringIO()):
            optimised = optimizer.optimize_model(
                str(source), model_type="bert", num_heads=heads, hidden_size=width, opt_level=0, use_gpu=False
            )
    except Exception:  # it is made for BERT and may fail for other architectures, which keep the traced graph
        return False
    if not any(optimised.get_fused_operator_statistics().values()):
        return False
    optimised.save_model_to_file(str(target))
    return True


def halve(source: Path, target: Path) -> None:
    """Write a model with its matrix products by weights in fp16 and everything else in fp32."""
    import numpy as np
    import onnx_ir as ir

    model = ir.load(source)
    graph = model.graph
    halves: dict[str, ir.Value] = {}
    for node in list(graph):
        if node.op_type != "MatMul":
            continue
        factor = node.inputs[1]
        if factor is None:
            continue
        name = factor.name or ""
        weight = graph.initializers.get(name)
        if weight is None or weight.const_value is None:
            continue
        if name not in halves:
            array = weight.const_value.numpy().astype(np.float16)
            half_name = f"{name}.fp16"
            half = ir.val(half_name, const_value=ir.tensor(array, name=half_name))
            graph.register_initializer(half)
            halves[name] = half
        before = ir.node("Cast", [node.inputs[0]], {"to": int(ir.DataType.FLOAT16)})
        product = ir.node("MatMul", [before.outputs[0], halves[name]])
        after = ir.node("Cast", [product.outputs[0]], {"to": int(ir.DataType.FLOAT)})
        old = node.outputs[0]
        new = after.outputs[0]
        new.name = old.name
        old.name = None
        graph.insert_before(node, [before, product, after])
        old.replace_all_uses_with(new)
        graph.remove(node, safe=True)
    for name in halves:
        if not graph.initializers[name].uses():
            del graph.initializers[name]
    ir.save(model, target)


def quantise(source: Path, target: Path, keep: list[str], *, reduce_range: bool) -> None:
    """Write a model with 8-bit weights per channel and dynamic activations; nodes named in `keep` stay in fp32."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with _quiet():
        quantize_dynamic(
            source,
            target,
            op_types_to_quantize=["MatMul"],
            per_channel=True,
            reduce_range=reduce_range,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=keep,
            extra_options={"MatMulConstBOnly": True},
        )


def linear_names(source: Path) -> list[str]:
    """Return the names of the nodes that `quantise` would quantise."""
    import onnx

    graph = onnx.load(source, load_external_data=False).graph
    constants = {tensor.name for tensor in graph.initializer}
    return [node.name for node in graph.node if node.op_type == "MatMul" and node.input[1] in constants]


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the notices of torch's exporter and of onnxruntime's tools inside the block."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
