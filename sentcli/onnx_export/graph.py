"""An ONNX graph under construction: nodes and weights are recorded, and become one ONNX model.

Only `Graph` knows the precision in which linear layers and tables are written; the modules that build on it do not.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from sentcli.arrays import AnyArray
from sentcli.io.graph_files import weights_file
from sentcli.model.exported import SENTENCES, TOKENS

OPSET = 20  # the first with Gelu
ORT_DOMAIN = "com.microsoft"
"""The domain of onnxruntime's own operators."""
MOST_INSIDE = 2**31 - 2**24
"""The most bytes of weights in one protobuf message, with some room left for the nodes."""
Value = ir.Value


class Graph:
    """Records a computation on ``input_ids`` and ``attention_mask`` ``[batch, tokens]``.

    Args:
        precision: the precision of linear layers and embedding tables: ``fp32``, ``fp16`` or ``int8`` (8-bit weights,
            activations quantised at run time). Sums, normalisations and softmax are always in fp32.
        token_types: whether the model takes ``token_type_ids``.
        keep: the names of linear layers that stay in fp32.
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
        self.precision = precision
        self.keep = keep
        self.reduce_range = reduce_range
        self._kind = np.float16 if precision == "fp16" else np.float32
        self.tape = ir.tape.Tape()
        names = ["input_ids", "attention_mask"]
        if token_types:
            names.append("token_type_ids")
        shape = ir.Shape(["batch", "tokens"])
        self.inputs = {name: ir.val(name, dtype=ir.DataType.INT64, shape=shape) for name in names}
        self.linear_names: list[str] = []
        """The names of the linear layers written so far, including those in `keep`."""
        self._weights: dict[str, Value] = {}
        self._narrow: set[Value] = set()

    def op(self, kind: str, *inputs: Value | None, domain: str = "", **attributes: Any) -> Value:
        """Add a node and return its output."""
        return self.tape.op(kind, inputs, attributes, domain=domain)

    def weight(self, name: str, values: Any) -> Value:
        """Return an array or tensor as an initializer; an initializer of the same name is used again."""
        if name not in self._weights:
            if not isinstance(values, np.ndarray):
                values = array_of(values)
            tensor = ir.tensor(np.asarray(values, order="C"))
            self._weights[name] = self.tape.initializer(tensor, name=name)
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
        """Return a value with its elements converted to another type."""
        return self.op("Cast", value, to=int(kind))

    def size(self, value: Value, axis: int) -> Value:
        """Return the size along an axis as an int64 vector of length 1."""
        return self.op("Shape", value, start=axis, end=axis + 1)

    def wide(self, value: Value) -> Value:
        """Return a value in float32, for sums, normalisations and activations."""
        if value not in self._narrow:
            return value
        return self.cast(value, ir.DataType.FLOAT)

    def linear(self, name: str, value: Value, weight: AnyArray, bias: AnyArray | None) -> Value:
        """Apply a linear layer to every row.

        Args:
            name: the name of the layer.
            value: ``[rows, in]``.
            weight: ``[out, in]``, as in torch.
            bias: ``[out]``.

        Returns:
            ``[rows, out]``, in half precision if the graph is in fp16; see `wide`.
        """
        if name not in self.linear_names:
            self.linear_names.append(name)
        if self.precision == "int8" and name not in self.keep:
            return self._quantised_linear(name, value, weight, bias)
        half = self.precision == "fp16"
        if half and value not in self._narrow:
            value = self.cast(value, ir.DataType.FLOAT16)
        columns = weight.T.astype(self._kind)
        operands = [value, self.weight(f"{name}.weight", columns)]
        if bias is not None:
            operands.append(self.weight(f"{name}.bias", bias.astype(self._kind)))
        product = self.op("Gemm", *operands)
        return self._marked(product, narrow=half)

    def _quantised_linear(self, name: str, value: Value, weight: AnyArray, bias: AnyArray | None) -> Value:
        largest = 63 if self.reduce_range else 127
        quantised, scale = _quantised(weight, largest)
        operands: list[Value | None] = [
            value,
            self.weight(f"{name}.weight", quantised.T),
            self.weight(f"{name}.scale", scale[:, 0]),
            self.weight(f"{name}.zero_point", np.zeros(len(scale), np.int8)),
            None,
        ]
        if bias is not None:
            operands[-1] = self.weight(f"{name}.bias", bias.astype(np.float32))
        return self.op("DynamicQuantizeMatMul", *operands, domain=ORT_DOMAIN)

    def lookup(self, name: str, table: AnyArray, rows: Value) -> Value:
        """Return rows of a table ``[n, d]`` in float32."""
        if self.precision == "int8":  # with a scale for each row, because the rows differ much in length
            quantised, scale = _quantised(table, 127)
            stored = self.weight(name, quantised)
            gathered = self.op("Gather", stored, rows)
            stored_scales = self.weight(f"{name}.scale", scale)
            scales = self.op("Gather", stored_scales, rows)
            return self.op("Mul", self.cast(gathered, ir.DataType.FLOAT), scales)
        stored = self.weight(name, table.astype(self._kind))
        gathered = self.op("Gather", stored, rows)
        self._marked(gathered, narrow=self.precision == "fp16")
        return self.wide(gathered)

    def layer_norm(self, name: str, value: Value, module: Any) -> Value:
        """Normalise ``[rows, d]`` as a torch LayerNorm does."""
        parameters = [self.weight(f"{name}.{part}", array_of(getattr(module, part))) for part in ("weight", "bias")]
        return self.op("LayerNormalization", value, *parameters, axis=-1, epsilon=module.eps)

    def attention(self, query: Value, key: Value, value: Value, mask: Value, bias: Value | None, heads: int) -> Value:
        """Return the attention ``[batch, queries, d]``.

        Args:
            query: the queries of the positions to compute ``[batch, queries, d]``.
            key: the keys of all positions ``[batch, tokens, d]``.
            value: the values of all positions ``[batch, tokens, d]``.
            mask: int32 ``[batch, tokens]``, 1 for real tokens.
            bias: is added to the scores ``[1, heads, queries, tokens]``.
            heads: the number of heads.
        """
        narrow = query in self._narrow
        if narrow and bias is not None:
            bias = self.cast(bias, ir.DataType.FLOAT16)
        operands = [query, key, value, None, mask]
        if bias is not None:
            operands.append(bias)
        attention = self.op("MultiHeadAttention", *operands, domain=ORT_DOMAIN, num_heads=heads)
        return self._marked(attention, narrow=narrow)

    def reshape(self, value: Value, shape: Value) -> Value:
        """Return a value with another shape, in the same precision."""
        return self._marked(self.op("Reshape", value, shape), narrow=value in self._narrow)

    def _marked(self, value: Value, *, narrow: bool) -> Value:
        """Remember whether a value is in half precision, and return it."""
        if narrow:
            self._narrow.add(value)
        return value

    def model(self, output: Value, dimension: int, name: str, tokens: Value | None = None) -> ir.Model:
        """Return the finished model.

        Args:
            output: the sentence vectors ``[batch, dimension]``, its output ``sentence_embedding``.
            dimension: their dimension.
            name: the name of the graph.
            tokens: the token vectors ``[batch, tokens, d]`` before the pooling, its output ``last_hidden_state``.
        """
        results = [self._result(SENTENCES, output, ["batch", dimension])]
        if tokens is not None:
            results.append(self._result(TOKENS, tokens, ["batch", "tokens", None]))
        graph = ir.Graph(
            list(self.inputs.values()),
            results,
            nodes=self.tape.nodes,
            initializers=self.tape.initializers,
            opset_imports={"": OPSET, ORT_DOMAIN: 1},
            name=name,
        )
        return ir.Model(graph, ir_version=10, producer_name="sentcli")

    def _result(self, name: str, value: Value, shape: list[Any]) -> Value:
        """Return a value under the name of an output, in float32."""
        result = self.op("Identity", self.wide(value))
        result.name = name
        result.dtype = ir.DataType.FLOAT
        result.shape = ir.Shape(shape)
        return result


def array_of(tensor: Any) -> AnyArray:
    """Return a torch tensor as a float32 array."""
    return tensor.detach().cpu().float().numpy()


def _quantised(matrix: AnyArray, largest: int) -> tuple[AnyArray, AnyArray]:
    """Return a matrix ``[n, d]`` in int8 up to the largest number, and the float32 scale of each row ``[n, 1]``."""
    scale = np.maximum(np.abs(matrix).max(axis=1, keepdims=True), 1e-12) / largest
    rounded = np.round(matrix / scale)
    return rounded.astype(np.int8), scale.astype(np.float32)


def save(model: ir.Model, path: Path, *, apart: bool = False) -> None:
    """Write a model.

    Args:
        model: the graph with its weights.
        path: the file of the graph.
        apart: write the weights into the `weights_file` beside it, which onnxruntime maps into memory instead of
            reading it; weights that are too large for one protobuf message go there in any case.
    """
    weights = (value.const_value for value in model.graph.initializers.values())
    size = sum(weight.nbytes for weight in weights if weight is not None)
    apart = apart or size > MOST_INSIDE
    ir.save(model, path, external_data=weights_file(path).name if apart else None)
