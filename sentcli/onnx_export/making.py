"""Make the graph of an export in a folder, in one of the precisions, and compare it with its model.

The graph is written from the weights if the architecture is known, and otherwise traced.
"""

from __future__ import annotations

import io
import logging
import timeit
from collections.abc import Callable, Collection, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli.arrays import Vectors
from sentcli.errors import InputError, SentcliError, required
from sentcli.io.graph_files import ONNX, OPENVINO
from sentcli.machine import sums_saturate
from sentcli.model import encoding
from sentcli.model.cards import public_name
from sentcli.model.encoding import LoadedModel
from sentcli.model.exported import Export, Probes
from sentcli.model.identity import ModelSource, model_digest
from sentcli.model.onnx_backend import CPU_BATCH_TOKENS, OnnxBackend
from sentcli.model.probe_vectors import ProbeVectors
from sentcli.model.saving import write_tokenizer_json
from sentcli.model.tokenizing import fit, pad, read_tokenizer
from sentcli.onnx_export import graph, transformer, verify
from sentcli.onnx_export.verify import Scorer, Verification

if TYPE_CHECKING:
    from sentcli.model.encoding import Backend

Say = Callable[[str], None]
FASTER = 0.97
"""An optimised graph is kept if it takes at most this share of the time."""
COMPARED_TEXTS = 24
"""The number of texts on which layers in int8 are compared."""


@dataclass
class Maker:
    """Builds an export in a folder, and compares it with its model."""

    model: LoadedModel
    folder: Path
    precision: str
    work: Path
    scorer: Scorer | None
    say: Say
    runtime: str
    mapped: bool
    own_texts: Sequence[str]
    file: str = ""
    """The graph inside the folder; empty for that of the own layout."""
    tokens: bool | None = None
    """Whether the graph gives token vectors, too; None leaves it to the pooling."""

    def __post_init__(self) -> None:
        model = self.model
        modules = model.spec.modules
        if not model.spec.includes_prompt:
            raise InputError(f"{model.name} leaves its prompt out of the pooling, which an export cannot; use torch")
        for_openvino = self.runtime == "openvino"
        self.path = self.folder / (self.file or ONNX)
        """The graph in ONNX; that for OpenVINO is made of it."""
        if for_openvino:
            self.path = self.work / ONNX
        self.path.parent.mkdir(exist_ok=True)
        if self.tokens is None:
            reads_whole = modules[0].reads_one_token or model.spec.scores_pairs
            self.tokens = not reads_whole
        self.reduce_range = self.precision == "int8" and sums_saturate(self.runtime)
        self.graph_precision = "fp32" if for_openvino else self.precision
        is_known = transformer.family_of(model.torch_module.backbone) is not None
        can_be_written = is_known and all(part.has_onnx for part in modules)
        self.kind = "written" if can_be_written else "traced"
        self.linear_names: list[str] = []
        """The names of the layers that int8 may quantise; empty before the first `_build`."""
        write_tokenizer_json(model, self.folder)
        texts = verify.texts_for(model)
        self.calibration = [*texts, *self.own_texts[::2]]
        """The texts that OpenVINO's ranges are learned from."""
        verified = [*texts, *self.own_texts[1::2]]
        self.texts = list(dict.fromkeys(verified))

    @cached_property
    def expected(self) -> Vectors:
        """The model's own vectors of `texts` ``[n, dim]``."""
        self.say(f"encoding {len(self.texts)} texts with torch")
        return verify.encode_distinct_texts(self.model, self.texts)

    @cached_property
    def scores(self) -> dict[str, float]:
        """The model's own scores on STS-B by split; empty without a scorer."""
        if self.scorer is None:
            return {}
        return self.scorer(self.model)

    def make(self, *, compared: bool) -> tuple[Export, Verification | None]:
        """Build the export, and if `compared`, verify it.

        Raises:
            SentcliError: if the export does not give the model's vectors.
        """
        self.say(f"building the graph in {self.precision}")
        self._build()
        if self.runtime == "openvino":
            self._convert_for_openvino()
        is_plain = self.precision == "fp32" and self.runtime == "onnx"
        if self.kind == "traced" and is_plain and compared:
            self._fuse()
        keep: list[str] = []
        verification: Verification | None = None
        if compared:
            verification = self._verify()
            if not verification.passed and self.graph_precision == "int8":
                keep, verification = self._keep_sensitive(verification)
            if not verification.passed:
                raise SentcliError(
                    f"the {self.precision} export of {self.model.name} does not give the model's vectors: "
                    f"{verification.complaint}; nothing was written"
                )
        model = self.model
        export = self._describe(keep, verification)
        export = replace(export, probes=Probes.of(model))
        spec = model.spec
        if spec.scores_pairs:  # the fixed texts are no pairs
            return export, verification
        opened = replace(self.opened(), spec=spec)
        canaries = ProbeVectors.of(opened, spec.usual_prompt)
        return replace(export, canaries=asdict(canaries)), verification

    def _build(self, keep: Collection[str] = ()) -> None:
        """Make ``model.onnx``; with int8, the layers named in `keep` stay in fp32."""
        if self.kind != "written":
            self._trace(keep)
            return
        spec = self.model.spec
        module = self.model.torch_module
        recorded = graph.Graph(
            self.graph_precision,
            token_types=self.model.tokenizer.has_type_ids,
            keep=keep,
            reduce_range=self.reduce_range,
        )
        first_only = spec.modules[0].first_token_suffices and not self.tokens
        states = transformer.write(recorded, module.backbone, first_token_only=first_only)
        vectors = states.tokens
        modules = zip(spec.modules, module.stack, strict=True)
        for number, (part, built) in enumerate(modules):
            vectors = part.write_onnx(recorded, states, vectors, f"module.{number}", built)
        dimension = spec.modules[-1].output_width(spec.widths[-1])
        self.linear_names = recorded.linear_names
        tokens = states.tokens if self.tokens else None
        name = str(spec.config.get("model_type", "encoder"))
        model = recorded.model(vectors, dimension, name, tokens)
        graph.save(model, self.path, apart=self.mapped)

    def _trace(self, keep: Collection[str]) -> None:
        """Make the graph by torch's exporter, which is asked once, and bring it into its precision."""
        from sentcli.onnx_export import tracing

        whole = self.work / "traced.onnx"
        if not whole.exists():
            types = self.model.tokenizer.has_type_ids
            tracing.trace(self.model.torch_module, whole, token_types=types, tokens=bool(self.tokens))
        if self.graph_precision == "fp32":
            self.path.write_bytes(whole.read_bytes())
        elif self.graph_precision == "fp16":
            tracing.halve(whole, self.path)
        else:
            self.linear_names = tracing.linear_names(whole)
            tracing.quantise(whole, self.path, list(keep), reduce_range=self.reduce_range)

    def _quantisation(self, keep: list[str]) -> dict[str, Any] | None:
        """Return how the weights and activations are quantised, `keep` being left out; None if they are not."""
        if self.precision != "int8":
            return None
        activations = "uint8, one scale a batch"
        if self.runtime == "openvino":
            activations = f"8 bits, ranges of {len(self.calibration)} texts"
        return {
            "weights": "int8, one scale a column",
            "activations": activations,
            "reduce_range": self.reduce_range,
            "kept_in_fp32": keep,
        }

    def _describe(self, keep: list[str], verification: Verification | None) -> Export:
        """Return the facts of the export, `keep` being the layers that stay in fp32."""
        model = self.model
        spec = model.spec
        tokenizer = model.tokenizer
        source = ModelSource.of(spec)
        return Export(
            precision=self.precision,
            dimension=model.backend.dimension,
            pad_id=tokenizer.pad_id,
            model=public_name(model.name),
            model_digest=model_digest(spec),
            source_sha256=list(source.weights),
            source_config=source.config,
            revision=source.revision,
            pooling=spec.pooling,
            normalize=spec.normalizes,
            max_length=tokenizer.max_length,
            graph=self.kind,
            quantisation=self._quantisation(keep),
            verification=verification.to_dict() if verification is not None else None,
            runtime=self.runtime,
            file=self.file,
        )

    def _convert_for_openvino(self) -> None:
        """Make the graph for OpenVINO of that in ONNX."""
        openvino = required("openvino", "openvino", "openvino", "an export for openvino")
        target = self.folder / (self.file or OPENVINO)
        target.parent.mkdir(exist_ok=True)
        if self.precision == "fp32":
            openvino.save_model(openvino.Core().read_model(self.path), target, compress_to_fp16=False)
        else:
            self._quantise_for_openvino(openvino, target)

    def _quantise_for_openvino(self, openvino: Any, target: Path) -> None:
        """Write the graph in int8, with the ranges of activations that `calibration` gives."""
        nncf = required("nncf", "openvino and nncf", "openvino", "int8 on openvino")
        self.say("learning the ranges of activations")
        logging.getLogger("nncf").setLevel(logging.ERROR)
        core = openvino.Core()
        tokenizer = self.model.tokenizer
        plain = self.work / "plain.xml"  # nncf cannot handle a model that was read from ONNX
        openvino.save_model(core.read_model(self.path), plain, compress_to_fp16=False)
        tokens = tokenizer(self.calibration)
        packed = encoding.pack(tokens.lengths, CPU_BATCH_TOKENS)
        batches: list[dict[str, Any]] = [pad(tokens, rows, tokenizer.pad_id) for rows in packed]
        overflow = nncf.OverflowFix.FIRST_LAYER  # what it does by itself
        if self.reduce_range:
            overflow = nncf.OverflowFix.ENABLE
        with redirect_stdout(io.StringIO()):  # nncf draws its progress there
            quantised = nncf.quantize(
                core.read_model(plain),
                nncf.Dataset(batches),
                model_type=nncf.ModelType.TRANSFORMER,
                subset_size=len(batches),
                advanced_parameters=nncf.AdvancedQuantizationParameters(overflow_fix=overflow),
            )
        openvino.save_model(quantised, target, compress_to_fp16=False)

    def opened(self) -> LoadedModel:
        """Return the export as a model, opened as `encode` will open it."""
        model = self.model
        folder = self.folder
        spec = replace(model.spec, folder=folder)
        export = self._describe([], None)
        backend: Backend
        if self.runtime == "openvino":
            from sentcli.model.openvino_backend import OpenVinoBackend

            backend = OpenVinoBackend(folder, export)
        else:
            backend = OnnxBackend(folder, export, half_on_cpu=True)
        own = model.tokenizer
        tokenizer = fit(read_tokenizer(folder), spec, own.pad_id, own.max_length)
        return LoadedModel(model.name, spec, tokenizer, backend)

    def _verify(self) -> Verification:
        """Compare the export with the model."""
        if self.scorer is None:
            self.say("comparing the export with the model")
            return verify.compare_vectors(self.opened(), self.precision, self.texts, self.expected)
        self.say("comparing the export with the model, on STS-B too")
        export = self.opened()
        scores = self.scorer(export)
        sts_b = verify.compare_export_scores(self.scores, scores)
        return verify.compare_vectors(export, self.precision, self.texts, self.expected, sts_b)

    def _agreement(self, export: LoadedModel, step: int = 1) -> tuple[float, float, float]:
        """Return the `verify.agreement` of an export on every so many of the texts."""
        vectors = verify.encode_distinct_texts(export, self.texts[::step])
        return verify.agreement_by_kind(self.model, self.expected[::step], vectors, self.precision)

    def _fuse(self) -> None:
        """Replace a traced graph by what onnxruntime's optimiser makes of it, if that is as exact and faster."""
        from sentcli.onnx_export import tracing

        fused = self.work / "fused.onnx"
        if not tracing.optimise(self.path, fused, self.model.torch_module.backbone):
            return
        before = _seconds(self.opened(), self.texts)
        plain = self.path.rename(self.work / "plain.onnx")
        fused.rename(self.path)
        try:
            optimised = self.opened()
            _, least, _ = self._agreement(optimised)
            is_exact = least >= verify.TOLERANCES["fp32"].min_cosine
            better = is_exact and _seconds(optimised, self.texts) <= FASTER * before
        except SentcliError:  # onnxruntime may fail on a graph of its own optimiser
            better = False
        if better:
            self.kind = "traced and fused"
        else:
            plain.replace(self.path)

    def _keep_sensitive(self, worst: Verification) -> tuple[list[str], Verification]:
        """Keep the most sensitive layers in fp32, twice as many in each round, until the export agrees.

        Returns:
            The names of the layers in fp32, none if the export never agrees, and the last verification.
        """
        names = self.linear_names
        self.say(f"measuring what quantising each of {len(names)} layers does")
        step = max(len(self.texts) // COMPARED_TEXTS, 1)
        cosines = {}  # on average, where each layer alone is quantised
        for name in names:
            self._build([other for other in names if other != name])
            _, _, cosines[name] = self._agreement(self.opened(), step)
        order = sorted(names, key=lambda name: cosines[name])
        count = 1
        verification = worst
        while count < len(order):
            self.say(f"{verification.complaint}: keeping {count} of {len(order)} layers in fp32")
            self._build(order[:count])
            verification = self._verify()
            if verification.passed:
                return order[:count], verification
            count *= 2
        return [], verification


def _seconds(model: LoadedModel, texts: list[str]) -> float:
    """Return the shortest time of three encodings, in seconds."""
    return min(timeit.repeat(lambda: verify.encode_distinct_texts(model, texts), number=1, repeat=3))
