"""A graph under construction: nodes and weights are recorded, then become one ONNX model.

`Graph` knows in which precision linear layers and tables are written, so that what is built on it need not.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

OPSET = 20  # the first with Gelu
FUSED = "com.microsoft"
"""The domain of onnxruntime's own operators."""
OUTPUT = "sentence_embedding"
PROTOBUF_LIMIT = 2**31 - 2**24
"""Bytes that one protobuf message may hold, less some room for the nodes."""

Value = ir.Value
Array = npt.NDArray[Any]


class Graph:
    """Records what is computed from ``input_ids`` and ``attention_mask`` ``[batch, tokens]``.

    Args:
        precision: of linear layers and embedding tables: ``fp32``, ``fp16`` or ``int8`` (weights of 8 bits, activations
            quantised as they come). Sums, normalisations and softmax are in fp32 whatever it is.
        token_types: whether the model takes ``token_type_ids``.
        keep: names of linear layers that stay in fp32.
        reduce_range: leave one bit of int8 weights unused, for processors whose sums of products saturate.
    """

    def __init__(
        self,
        precision: str = "fp32",
        *,
        token_types: bool = False,
        keep: Collection[str] = (),
        reduce_range: bool = False,
    ) -> None:
        self.precision, self.keep, self.reduce_range = precision, keep, reduce_range
        self.tape = ir.tape.Tape()
        names = ("input_ids", "attention_mask", *(("token_type_ids",) if token_types else ()))
        shape = ir.Shape(["batch", "tokens"])
        self.inputs = {name: ir.val(name, dtype=ir.DataType.INT64, shape=shape) for name in names}
        self.linear_names: list[str] = []
        """Linear layers written so far, those in `keep` included."""
        self._weights: dict[str, Value] = {}
        self._narrow: set[Value] = set()

    def op(self, kind: str, *inputs: Value | None, domain: str = "", **attributes: Any) -> Value:
        """Add a node and return its output."""
        return self.tape.op(kind, inputs, attributes, domain=domain)

    def weight(self, name: str, values: Any) -> Value:
        """Return an array or tensor as an initializer; one of a name that is there already is used again."""
        if name not in self._weights:
            array = values if isinstance(values, np.ndarray) else array_of(values)
            self._weights[name] = self.tape.initializer(ir.tensor(np.asarray(array, order="C")), name=name)
        return self._weights[name]

    def integers(self, *numbers: int) -> Value:
        """Return a constant vector of int64."""
        return self.weight("integers_" + "_".join(map(str, numbers)), np.array(numbers, np.int64))

    def integer(self, number: int) -> Value:
        """Return a constant int64 scalar."""
        return self.weight(f"integer_{number}", np.array(number, np.int64))

    def number(self, value: float) -> Value:
        """Return a constant float32 scalar."""
        return self.weight(f"number_{value!r}", np.array(value, np.float32))

    def cast(self, value: Value, kind: ir.DataType) -> Value:
        """Convert the elements."""
        return self.op("Cast", value, to=int(kind))

    def size(self, value: Value, axis: int) -> Value:
        """Return the size along an axis as an int64 vector of length 1."""
        return self.op("Shape", value, start=axis, end=axis + 1)

    def wide(self, value: Value) -> Value:
        """Return float32, for sums, normalisations and activations."""
        return self.cast(value, ir.DataType.FLOAT) if value in self._narrow else value

    def linear(self, name: str, value: Value, weight: Array, bias: Array | None) -> Value:
        """Apply a linear layer to every row.

        Args:
            name: of the layer.
            value: ``[rows, in]``.
            weight: ``[out, in]``, as torch keeps it.
            bias: ``[out]``.

        Returns:
            ``[rows, out]``; in half precision where the graph is, see `wide`.
        """
        if name not in self.linear_names:
            self.linear_names.append(name)
        if self.precision == "int8" and name not in self.keep:
            return self._quantised_linear(name, value, weight, bias)
        half = self.precision == "fp16"
        kind = np.float16 if half else np.float32
        if half and value not in self._narrow:
            value = self.cast(value, ir.DataType.FLOAT16)
        matrix = self.weight(f"{name}.weight", weight.T.astype(kind))
        offset = None if bias is None else self.weight(f"{name}.bias", bias.astype(kind))
        return self._marked(self.op("Gemm", value, matrix, *(() if offset is None else (offset,))), narrow=half)

    def _quantised_linear(self, name: str, value: Value, weight: Array, bias: Array | None) -> Value:
        largest = 63 if self.reduce_range else 127
        scale = np.maximum(np.abs(weight).max(axis=1), 1e-12) / largest
        quantised = np.round(weight / scale[:, None]).astype(np.int8)
        return self.op(
            "DynamicQuantizeMatMul",
            value,
            self.weight(f"{name}.weight", quantised.T),
            self.weight(f"{name}.scale", scale.astype(np.float32)),
            self.weight(f"{name}.zero_point", np.zeros(len(scale), np.int8)),
            None if bias is None else self.weight(f"{name}.bias", bias.astype(np.float32)),
            domain=FUSED,
        )

    def lookup(self, name: str, table: Array, rows: Value) -> Value:
        """Return rows of a table ``[n, d]`` in float32."""
        if self.precision == "int8":  # one scale a row: a table's rows differ much in length
            scale = np.maximum(np.abs(table).max(axis=1, keepdims=True), 1e-12) / 127
            gathered = self.op("Gather", self.weight(name, np.round(table / scale).astype(np.int8)), rows)
            scales = self.op("Gather", self.weight(f"{name}.scale", scale.astype(np.float32)), rows)
            return self.op("Mul", self.cast(gathered, ir.DataType.FLOAT), scales)
        half = self.precision == "fp16"
        gathered = self.op("Gather", self.weight(name, table.astype(np.float16 if half else np.float32)), rows)
        return self.wide(self._marked(gathered, narrow=half))

    def layer_norm(self, name: str, value: Value, module: Any) -> Value:
        """Normalise ``[rows, d]`` as a torch LayerNorm does."""
        parameters = [self.weight(f"{name}.{part}", array_of(getattr(module, part))) for part in ("weight", "bias")]
        return self.op("LayerNormalization", value, *parameters, axis=-1, epsilon=module.eps)

    def attention(self, query: Value, key: Value, value: Value, mask: Value, bias: Value | None, heads: int) -> Value:
        """Attend: ``[batch, queries, d]`` and ``[batch, tokens, d]`` to ``[batch, queries, d]``.

        Args:
            query: of the positions that are wanted.
            key: of all positions.
            value: of all positions.
            mask: int32 ``[batch, tokens]``, 1 for real tokens.
            bias: added to the scores, ``[1, heads, queries, tokens]``.
            heads: number of heads.
        """
        narrow = query in self._narrow
        if narrow and bias is not None:
            bias = self.cast(bias, ir.DataType.FLOAT16)
        operands = (query, key, value, None, mask, *(() if bias is None else (bias,)))
        return self._marked(self.op("MultiHeadAttention", *operands, domain=FUSED, num_heads=heads), narrow=narrow)

    def reshape(self, value: Value, shape: Value) -> Value:
        """Give a value another shape; its precision stays."""
        return self._marked(self.op("Reshape", value, shape), narrow=value in self._narrow)

    def _marked(self, value: Value, *, narrow: bool) -> Value:
        if narrow:
            self._narrow.add(value)
        return value

    def model(self, output: Value, dimension: int, name: str) -> ir.Model:
        """Return the finished model, whose result is ``sentence_embedding`` ``[batch, dimension]``."""
        result = self.op("Identity", output)
        result.name, result.dtype, result.shape = OUTPUT, ir.DataType.FLOAT, ir.Shape(["batch", dimension])
        graph = ir.Graph(
            list(self.inputs.values()),
            [result],
            nodes=self.tape.nodes,
            initializers=self.tape.initializers,
            opset_imports={"": OPSET, FUSED: 1},
            name=name,
        )
        return ir.Model(graph, ir_version=10, producer_name="sentcli")


def array_of(tensor: Any) -> Array:
    """Return a torch tensor as a float32 array."""
    return tensor.detach().cpu().float().numpy()


def save(model: ir.Model, path: Path, *, apart: bool = False) -> None:
    """Write a model.

    Args:
        model: to write.
        path: of the graph.
        apart: put the weights into ``model.onnx.data`` beside it, which onnxruntime maps into memory instead of
            reading it; weights beyond what one protobuf holds are put there in any case.
    """
    weights = (value.const_value for value in model.graph.initializers.values())
    large = sum(weight.nbytes for weight in weights if weight is not None) > PROTOBUF_LIMIT
    ir.save(model, path, external_data=f"{path.name}.data" if apart or large else None)
