"""Writing an exported folder: built, verified, and only then renamed into place."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from sentcli.errors import InputError, SentcliError
from sentcli.io.atomic import check_output, replacing
from sentcli.io.digests import file_digest
from sentcli.io.json_files import write_json
from sentcli.machine import environment, sums_saturate
from sentcli.model.encoding import LoadedModel, Vectors
from sentcli.model.exported import EXPORT, ONNX, OPENVINO, Export, model_digest, source_digests
from sentcli.model.onnx_backend import OnnxBackend
from sentcli.model.saving import write_model_files
from sentcli.model.spec import read_spec
from sentcli.model.tokenizing import fit, read_tokenizer
from sentcli.onnx_export.build import Builder
from sentcli.onnx_export.card import write_card
from sentcli.onnx_export.verify import (
    TOLERANCES,
    Scorer,
    Verification,
    agreement,
    compare,
    compare_scores,
    encode,
    texts_of_all_lengths,
)

if TYPE_CHECKING:
    from sentcli.model.encoding import Backend

Say = Callable[[str], None]
GRAPHS = (ONNX, f"{ONNX}.data", OPENVINO, "openvino.bin")
"""Files that hold a graph and its weights."""
SENSITIVITY_TEXTS = 24
FASTER = 0.97
"""An optimised graph is kept if it takes at most this share of the time."""


@dataclass(frozen=True)
class Exported:
    """What was written."""

    folder: Path
    export: Export
    size: int
    """Bytes of ``model.onnx`` and what belongs to it."""
    verification: Verification | None


def export_model(
    model: LoadedModel,
    folder: Path,
    precision: str = "fp32",
    *,
    verify: bool = True,
    scorer: Scorer | None = None,
    weights: bool = True,
    overwrite: bool = False,
    runtime: str = "onnx",
    say: Say = lambda message: None,
) -> Exported:
    """Write ``folder`` with ``model.onnx``, its tokenizer, what it says about itself, and a model card.

    Args:
        model: loaded with ``backend="torch"`` in fp32.
        folder: to write, whole or not at all.
        precision: ``fp32``, ``fp16`` or ``int8``.
        verify: compare the export with the model, and publish it only if it agrees.
        scorer: for the change on STS-B, which counts as well.
        weights: keep the torch weights, too, so that ``SentenceTransformer(folder)`` opens the folder.
        overwrite: replace an exported folder that is there.
        runtime: ``openvino`` writes int8 for OpenVINO alone instead of ``model.onnx``.
        say: called with each step.

    Raises:
        InputError: if the folder exists, or the model cannot be exported.
        SentcliError: if the export does not give the model's vectors.
    """
    if model.backend.precision != "fp32":
        raise InputError(f"an export is made of the model in fp32, not in {model.backend.precision}")
    check_output(folder, overwrite=overwrite, folder=True)
    if folder.is_dir() and any(folder.iterdir()) and not (folder / EXPORT).exists():
        raise InputError(f"{folder} holds files, but no {EXPORT} of sentcli export; choose another -o")
    beside = folder.resolve().parent  # the same file system, so that files can be renamed
    with replacing(folder) as temporary, tempfile.TemporaryDirectory(prefix=".sentcli-export-", dir=beside) as work:
        temporary.mkdir()
        maker = _Maker(model, temporary, precision, Path(work), scorer, say, runtime)
        export, verification = maker.make(verify=verify)
        write_model_files(model, temporary, weights=weights)
        names = [*GRAPHS, "tokenizer.json"]
        digests = {name: file_digest(temporary / name) for name in names if (temporary / name).exists()}
        if weights:  # written anew, so their bytes are others than the source's
            export = replace(export, model_digest=model_digest(read_spec(temporary)))
        export = replace(export, sha256=digests, environment=environment("cpu", precision))
        write_json(temporary / EXPORT, export.to_dict())
        write_card(temporary, model, export)
    size = sum((folder / name).stat().st_size for name in digests if name in GRAPHS)
    return Exported(folder, export, size, verification)


def add_export(model: LoadedModel, folder: Path) -> None:
    """Write the export in fp32 of the model that is saved in a folder beside its weights."""
    with tempfile.TemporaryDirectory(prefix=".tmp", dir=folder) as work:
        exported = export_model(model, Path(work) / "export", weights=False)
        for name in (*exported.export.sha256, EXPORT):
            (exported.folder / name).replace(folder / name)


class _Maker:
    """Builds an export in a folder and compares it with its model."""

    def __init__(
        self,
        model: LoadedModel,
        folder: Path,
        precision: str,
        work: Path,
        scorer: Scorer | None,
        say: Say,
        runtime: str,
    ) -> None:
        self.model, self.folder, self.precision, self.scorer, self.say = model, folder, precision, scorer, say
        self.runtime, self.work = runtime, work
        self.reduce_range = precision == "int8" and runtime == "onnx" and sums_saturate()
        built = "fp32" if runtime == "openvino" else precision
        self.builder = Builder(model, built, work, reduce_range=self.reduce_range)
        self.path, self.kind = folder / ONNX, self.builder.kind
        model.tokenizer.backend.save(str(folder / "tokenizer.json"))
        self.texts = texts_of_all_lengths(model.tokenizer.max_length)

    @cached_property
    def expected(self) -> Vectors:
        """The model's own vectors of `texts` ``[n, dim]``."""
        self.say(f"encoding {len(self.texts)} texts of all lengths with torch")
        return encode(self.model, self.texts)

    @cached_property
    def scores(self) -> dict[str, float]:
        """The model's own scores on STS-B, by split; none without a scorer."""
        return {} if self.scorer is None else self.scorer(self.model)

    def make(self, *, verify: bool) -> tuple[Export, Verification | None]:
        """Build, and verify if asked."""
        self.say(f"building the graph in {self.precision}")
        self.builder.build(self.path)
        if self.runtime == "openvino":
            self._quantise_for_openvino()
        if not self.builder.written and verify and self.precision == "fp32":
            self._fuse()
        keep: list[str] = []
        verification = self._verify() if verify else None
        if verification is not None and not verification.passed and self.builder.precision == "int8":
            keep, verification = self._keep_sensitive(verification)
        if verification is not None and not verification.passed:
            raise SentcliError(
                f"the {self.precision} export of {self.model.name} does not give the model's vectors: "
                f"{verification.complaint}; nothing was written"
            )
        return self._describe(keep, verification), verification

    def _describe(self, keep: list[str], verification: Verification | None) -> Export:
        spec, tokenizer = self.model.spec, self.model.tokenizer
        learned = self.runtime == "openvino"
        quantisation = {
            "weights": "int8, one scale a column",
            "activations": "8 bits, ranges learned from texts" if learned else "uint8, one scale a batch",
            "reduce_range": self.reduce_range,
            "kept_in_fp32": keep,
        }
        return Export(
            precision=self.precision,
            dimension=self.model.backend.dimension,
            pad_id=tokenizer.pad_id,
            model=self.model.name,
            model_digest=model_digest(spec),
            source_sha256=source_digests(spec),
            pooling=spec.pooling,
            normalize=spec.normalizes,
            max_length=tokenizer.max_length,
            graph=self.kind,
            quantisation=quantisation if self.precision == "int8" else None,
            verification=verification.to_dict() if verification is not None else None,
            runtime=self.runtime,
        )

    def _quantise_for_openvino(self) -> None:
        from sentcli.onnx_export import openvino_int8

        self.say("learning the ranges of activations")
        plain = self.path.rename(self.work / ONNX)
        openvino_int8.quantise(plain, self.folder, self.model.tokenizer, self.texts)

    def opened(self) -> LoadedModel:
        """Return the model of the folder, as `encode` will open it."""
        spec = replace(self.model.spec, folder=self.folder)
        export = self._describe([], None)
        backend: Backend
        if self.runtime == "openvino":
            from sentcli.model.openvino_backend import OpenVinoBackend

            backend = OpenVinoBackend(self.folder, export)
        else:
            backend = OnnxBackend(self.folder, export, half_on_cpu=True)
        limit = self.model.tokenizer.max_length
        tokenizer = fit(read_tokenizer(self.folder), spec, self.model.tokenizer.pad_id, None, limit)
        return LoadedModel(self.model.name, spec, tokenizer, backend)

    def _verify(self) -> Verification:
        self.say("comparing the export with the model" + (", on STS-B too" if self.scorer is not None else ""))
        export = self.opened()
        sts_b = None if self.scorer is None else compare_scores(self.scores, self.scorer(export))
        return compare(export, self.precision, self.texts, self.expected, sts_b)

    def _fuse(self) -> None:
        """Take what onnxruntime's optimiser makes of a traced graph, if it is as right and faster."""
        from sentcli.onnx_export import tracing

        fused = self.work / "fused.onnx"
        if not tracing.optimise(self.path, fused, self.model.torch_module.backbone):
            return
        before = _seconds(self.opened(), self.texts)
        plain = self.path.rename(self.work / "plain.onnx")
        fused.rename(self.path)
        try:
            optimised = self.opened()
            right = agreement(self.expected, encode(optimised, self.texts))[1] >= TOLERANCES["fp32"].min_cosine
            better = right and _seconds(optimised, self.texts) <= FASTER * before
        except SentcliError:  # onnxruntime cannot open or run what its own optimiser made
            better = False
        if better:
            self.kind = "traced and fused"
        else:
            plain.replace(self.path)

    def _keep_sensitive(self, worst: Verification) -> tuple[list[str], Verification]:
        """Leave the layers that move the vectors most in fp32, twice as many each time, until the export agrees."""
        order = self._by_sensitivity()
        count, verification = 1, worst
        while not verification.passed and count < len(order):
            self.say(f"{verification.complaint}: keeping {count} of {len(order)} layers in fp32")
            self.builder.build(self.path, order[:count])
            verification = self._verify()
            kept, count = order[:count], 2 * count
        return (kept if verification.passed else []), verification

    def _by_sensitivity(self) -> list[str]:
        """Order the layers by what quantising each alone does to the mean cosine, the worst first."""
        names = self.builder.linear_names
        self.say(f"measuring what quantising each of {len(names)} layers does")
        step = max(len(self.texts) // SENSITIVITY_TEXTS, 1)
        texts, expected = self.texts[::step], self.expected[::step]
        loss = {}
        for name in names:
            self.builder.build(self.path, [other for other in names if other != name])
            loss[name] = 1 - agreement(expected, encode(self.opened(), texts))[2]
        return sorted(names, key=lambda name: -loss[name])


def _seconds(model: LoadedModel, texts: list[str]) -> float:
    """Return the shortest of three runs."""
    times = []
    for _ in range(3):
        began = time.perf_counter()
        encode(model, texts)
        times.append(time.perf_counter() - began)
    return min(times)
