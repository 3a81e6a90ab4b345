"""From a model on torch to the ONNX model of a precision."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from sentcli.errors import InputError
from sentcli.model.encoding import LoadedModel
from sentcli.onnx_export import graph, transformer

PRECISIONS = ("fp32", "fp16", "int8")


class Builder:
    """Makes the ONNX model of a model on torch, in one precision, with any choice of layers kept in fp32.

    The graph is written from the weights where the architecture is known, and traced where it is not.
    """

    def __init__(self, model: LoadedModel, precision: str, work: Path, *, reduce_range: bool) -> None:
        """Prepare.

        Args:
            model: loaded with torch, in fp32.
            precision: of PRECISIONS.
            work: an empty folder for intermediate files.
            reduce_range: use 7 of the 8 bits of quantised weights.
        """
        if precision not in PRECISIONS:
            raise InputError(f"unknown precision {precision!r}; one of: {', '.join(PRECISIONS)}")
        if not model.spec.includes_prompt:
            raise InputError(f"{model.name} leaves its prompt out of the pooling, which an export cannot; use torch")
        self.model, self.precision, self.work, self.reduce_range = model, precision, work, reduce_range
        self.token_types = model.tokenizer.has_type_ids
        family = transformer.family_of(model.torch_module.backbone)
        self.written = family is not None and all(part.has_onnx for part in model.spec.modules)
        self.linear_names: list[str] = []
        """The layers that int8 may quantise, known after the first `build`."""

    @property
    def kind(self) -> str:
        """How the graph comes about."""
        return "written" if self.written else "traced"

    def build(self, path: Path, keep: Collection[str] = ()) -> None:
        """Write the model; the layers named in `keep` stay in fp32 (int8 only)."""
        if self.written:
            self._write(path, keep)
        else:
            self._trace(path, keep)

    def _write(self, path: Path, keep: Collection[str]) -> None:
        spec, module = self.model.spec, self.model.torch_module
        recorded = graph.Graph(self.precision, token_types=self.token_types, keep=keep, reduce_range=self.reduce_range)
        states = transformer.write(recorded, module.backbone, first_token_only=spec.modules[0].first_token_suffices)
        vectors = states.tokens
        for number, (part, built) in enumerate(zip(spec.modules, module.stack, strict=True)):
            vectors = part.write_onnx(recorded, states, vectors, f"module.{number}", built)
        dimension = spec.modules[-1].output_width(spec.widths[-1])
        self.linear_names = recorded.linear_names
        graph.save(recorded.model(vectors, dimension, str(spec.config.get("model_type", "encoder"))), path)

    def _trace(self, path: Path, keep: Collection[str]) -> None:
        from sentcli.onnx_export import tracing

        whole = self.work / "traced.onnx"
        if not whole.exists():
            tracing.trace(self.model.torch_module, whole, token_types=self.token_types)
        if self.precision == "fp32":
            path.write_bytes(whole.read_bytes())
        elif self.precision == "fp16":
            tracing.halve(whole, path)
        else:
            self.linear_names = tracing.linear_names(whole)
            tracing.quantise(whole, path, list(keep), reduce_range=self.reduce_range)
