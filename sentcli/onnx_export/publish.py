"""Write an exported folder, which is built and verified under a temporary name and then renamed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sentcli.bounds import one_of
from sentcli.errors import InputError, SentcliError
from sentcli.io.atomic import replacing
from sentcli.io.digests import file_digest
from sentcli.io.graph_files import HUB_GRAPHS
from sentcli.io.weights import has_weights
from sentcli.machine import environment
from sentcli.model.encoding import LoadedModel
from sentcli.model.exported import Export, graph_files, write_facts
from sentcli.model.identity import model_digest
from sentcli.model.saving import write_model_files, write_tokenizer
from sentcli.model.spec_files import read_spec
from sentcli.onnx_export import alone
from sentcli.onnx_export.card import write_card
from sentcli.onnx_export.making import Maker, Say
from sentcli.onnx_export.target import Target
from sentcli.onnx_export.verify import Scorer, Verification

_LAYOUTS = ("own", "hub")


@dataclass(frozen=True)
class Exported:
    """An exported folder, and how it was verified."""

    folder: Path
    export: Export
    size: int
    """The size of the graph and its weights in bytes."""
    verification: Verification | None
    gives_tokens: bool
    """Whether the graph gives token vectors, too."""

    def sizes(self) -> tuple[int, int]:
        """Return the size of the whole folder, and of the torch weights in it, in bytes."""
        whole = 0
        weights = 0
        for path in self.folder.rglob("*"):
            if path.is_file():
                size = path.stat().st_size
                whole += size
                if path.suffix == ".safetensors":
                    weights += size
        return whole, weights


def export_model(
    model: LoadedModel,
    folder: Path,
    precision: str = "fp32",
    *,
    verify: bool = True,
    scorer: Scorer | None = None,
    weights: bool = True,
    mapped: bool = False,
    overwrite: bool = False,
    runtime: str = "onnx",
    texts: Sequence[str] = (),
    layout: str = "own",
    tokens: bool | None = None,
    say: Say = lambda message: None,
) -> Exported:
    """Write a folder with the graph, the tokenizer, the facts of the export and a model card.

    Args:
        model: loaded with ``backend="torch"`` in fp32.
        folder: the folder to write, whole or not at all.
        precision: ``fp32``, ``fp16`` or ``int8``.
        verify: compare the export with the model, and keep it only if they agree.
        scorer: scores models on STS-B, so that the change of the score is verified as well.
        weights: also write the torch weights, so that ``SentenceTransformer(folder)`` opens the folder.
        mapped: write the weights of the graph into a file of their own, which a process opens sooner.
        overwrite: replace an exported folder that exists; in the hub's layout, the graph in it.
        runtime: ``openvino`` writes a graph for OpenVINO alone instead of one for onnxruntime; in the own layout, int8.
        texts: distinct texts of the user beside those that every export is verified on. OpenVINO's ranges are learned
            from every second one, and the export is verified on the rest.
        layout: ``own`` has one graph in the folder; ``hub`` adds one to the folder of the model, under the name by
            which other programs look for it.
        tokens: whether the graph gives token vectors, too; None gives them unless the pooling reads a single token,
            whose last layer is computed for that token alone.
        say: called with the name of each step.

    Raises:
        InputError: if the folder exists, the model cannot be exported, or the texts are of no use to it.
        SentcliError: if the export does not give the model's vectors.
    """
    _check_exportable(model)
    one_of("precision", precision, ("fp32", "fp16", "int8"))
    one_of("layout", layout, _LAYOUTS)
    if texts and model.spec.scores_pairs:
        raise InputError(f"{model.name} is a cross-encoder, which scores pairs; an export of it is verified on its own")
    file = _graph_file(precision, runtime, layout)
    target = Target(folder, file, overwrite=overwrite)
    target.check(model)
    _check_finite(model)
    place = folder.resolve()  # the work lies beside it, under a name by which what a kill has left is found
    beside = tempfile.TemporaryDirectory(prefix=f".{place.name}.", suffix=f".{os.getpid()}.partial", dir=place.parent)
    with replacing(folder) as temporary, beside as work:
        temporary.mkdir()
        maker = Maker(
            model,
            temporary,
            precision,
            work=Path(work),
            scorer=scorer,
            say=say,
            runtime=runtime,
            mapped=mapped,
            own_texts=texts,
            file=file,
            tokens=tokens,
        )
        export, verification = maker.make(compared=verify)
        if target.is_model:
            write_tokenizer(model, temporary)
            target.keep_others(temporary)
        else:
            write_model_files(model, temporary, weights=weights)
        if verify:
            alone.check_export(temporary, export, model)
        export = _with_digests(export, temporary)
        write_facts(temporary, export)
        write_card(temporary, model, tokens=bool(maker.tokens))
    size = sum(path.stat().st_size for path in graph_files(folder, export.graph_file))
    return Exported(folder, export, size, verification, bool(maker.tokens))


def _with_digests(export: Export, folder: Path) -> Export:
    """Return the facts of an export with the checksums of its files in a folder, and where they were made."""
    files = [*graph_files(folder, export.graph_file), folder / "tokenizer.json"]
    digests = {str(path.relative_to(folder)): file_digest(path) for path in files}
    if has_weights(folder):  # they are written anew, so their bytes differ from those of the source
        export = replace(export, model_digest=model_digest(read_spec(folder)))
    machine = environment("cpu", export.precision, revision=export.revision)
    return replace(export, sha256=digests, environment=machine)


def _check_exportable(model: LoadedModel) -> None:
    """Refuse a model of which an export is impossible, or would give other vectors."""
    if model.backend.precision != "fp32":
        raise InputError(f"an export is made of the model in fp32, not in {model.backend.precision}")
    if model.spec.is_static:
        raise InputError(
            f"{model.name}: static embeddings are a table, which no export makes faster; use --backend torch"
        )
    if model.backend.batches != "padded":
        raise SentcliError(
            f"{model.name}: vectors of a {model.spec.config.get('model_type')} model depend on the padding of their "
            "batch, so that an export would give other ones; it runs on torch, in batches of texts of one length"
        )


def _graph_file(precision: str, runtime: str, layout: str) -> str:
    """Return the name of the graph inside the folder, empty for that of the own layout.

    Raises:
        InputError: if there is no such graph.
    """
    if layout == "own":
        if runtime == "openvino" and precision != "int8":
            raise InputError(f"OpenVINO runs model.onnx in {precision}: an export for it alone is of int8")
        return ""
    if (runtime, precision) not in HUB_GRAPHS:
        raise InputError(f"OpenVINO runs on a CPU, where {precision} gains nothing: export in fp32 or int8")
    return HUB_GRAPHS[runtime, precision]


def _check_finite(model: LoadedModel) -> None:
    """Refuse weights that are not finite: the texts of the verification need not meet the row of every token.

    Raises:
        SentcliError: with the names of the weights.
    """
    parameters = model.torch_module.named_parameters()
    broken = [name for name, weights in parameters if not bool(weights.isfinite().all())]
    if broken:
        raise SentcliError(f"{model.name}: NaN or infinity in {len(broken)} of its weights ({', '.join(broken[:3])})")


def add_export(model: LoadedModel, folder: Path) -> None:
    """Write the fp32 export of a saved model into its folder, beside the weights."""
    with tempfile.TemporaryDirectory(prefix=".tmp", dir=folder) as work:
        exported = export_model(model, Path(work) / "export", weights=False)
        for name in (*exported.export.sha256, exported.export.facts_file):
            (exported.folder / name).replace(folder / name)
