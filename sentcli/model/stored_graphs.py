"""Which graph in a model's own folder runs it: an export of sentcli, or in place of weights one of another program.

Those of other programs are of optimum, transformers.js and fastembed. Such a graph gives token vectors, which are
pooled as the folder says.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sentcli.errors import InputError
from sentcli.io.digests import known_digest
from sentcli.io.forms import read_json
from sentcli.io.graph_files import RUNTIMES, graph_rank
from sentcli.io.weights import has_weights
from sentcli.model.exported import FOREIGN, Export, exports_in, foreign_graphs, graph_files
from sentcli.model.identity import model_digest, same_modules
from sentcli.model.options import LoadOptions
from sentcli.model.spec import EncoderSpec
from sentcli.model.spec_files import read_spec
from sentcli.model.tokenizing import NO_LIMIT, read_tokenizer


def has_graphs(folder: Path) -> bool:
    """Tell whether a folder holds an export, or in place of weights the graph of another program."""
    return bool(exports_in(folder)) or bool(foreign_graphs(folder))


def stored_graph(spec: EncoderSpec, options: LoadOptions) -> Export | None:
    """Return the graph in a model's own folder that these options run, or None.

    An int8 export for OpenVINO has other ranges than one for onnxruntime, of which one is made in the cache if there
    are weights.

    Raises:
        InputError: if an export was made from other weights than those in the folder, or the folder of another
            program's graph does not say how its token vectors are pooled.
    """
    runtimes: tuple[str, ...] = RUNTIMES
    if options.backend == "onnx":
        runtimes = ("onnx",)
    elif options.backend == "openvino":
        makes_its_own = options.precision == "int8" and has_weights(spec.folder)
        runtimes = ("openvino",) if makes_its_own else ("openvino", "onnx")
    precision = options.precision
    if precision == "bf16" and options.backend == "openvino":
        precision = "fp32"  # which OpenVINO computes in bf16
    return _own(spec, precision, runtimes) or _foreign(spec, precision, runtimes)


def names_of_graphs(folder: Path) -> str:
    """Return the names of the graphs in a folder, with precision and pooling."""
    own = []
    for export in exports_in(folder):
        ending = ", normalised" if export.normalize else ""
        own.append(f"{export.graph_file} ({export.precision}, {export.pooling} pooling{ending})")
    others = [f"{graph.file} ({graph.precision})" for graph in foreign_graphs(folder)]
    return ", ".join(own + others) or "no graph"


def _own(spec: EncoderSpec, precision: str, runtimes: Sequence[str]) -> Export | None:
    """Return the export in the encoder's own folder that is of this encoder, in this precision, or None.

    Where several are, fp32 comes first. Beside torch weights, ``auto`` takes none of the hub's layout but that in fp32,
    and none for OpenVINO unless that is preferred, since a file that was added does not change a model's vectors.

    Args:
        spec: the description of the encoder.
        precision: ``auto`` or one of an export.
        runtimes: the runtimes that are of use, the preferred one first.

    Raises:
        InputError: if the export was made from other weights than those in the folder.
    """
    stored = has_weights(spec.folder)
    exports = []
    for export in exports_in(spec.folder):
        if precision not in ("auto", export.precision) or export.runtime not in runtimes:
            continue
        of_hub_layout = stored and bool(export.file)
        if of_hub_layout and precision == "auto" and export.precision != "fp32":
            continue
        if of_hub_layout and runtimes[0] == "onnx" and (export.precision, export.runtime) == ("fp32", "openvino"):
            continue
        exports.append(export)
    if not exports:
        return None
    export = min(exports, key=lambda each: graph_rank(each.precision, each.runtime, runtimes))
    folder_spec = read_spec(spec.folder)
    if not same_modules(folder_spec.modules, spec.modules):
        return None  # the user chose another pooling or normalisation
    if stored and model_digest(folder_spec) != export.model_digest:
        graph = spec.folder / export.graph_file
        raise InputError(f"{graph} is an export of other weights than those beside it; export again")
    return export


def _foreign(spec: EncoderSpec, precision: str, runtimes: tuple[str, ...]) -> Export | None:
    """Return the facts of a graph that another program wrote, or None where the folder has none of use.

    Args:
        spec: the description of the encoder, whose folder has no weights.
        precision: ``auto`` takes fp32 if it is there, else the next.
        runtimes: the runtimes that are of use, the preferred one first.

    Raises:
        InputError: if the folder does not say how its token vectors are pooled.
    """
    graphs = [graph for graph in foreign_graphs(spec.folder) if graph.runtime in runtimes]
    graphs = [graph for graph in graphs if precision in ("auto", graph.precision)]
    if not graphs:
        return None
    if spec.assumed_pooling:
        raise InputError(
            f"{spec.folder} holds {graphs[0].file}, which gives a vector of each token, and does not say how to pool "
            "them: give --pooling (mean, cls, ...), as the card of the model says"
        )
    chosen = min(graphs, key=lambda each: graph_rank(each.precision, each.runtime, runtimes))
    files = graph_files(spec.folder, chosen.file)
    by_name = {str(path.relative_to(spec.folder)): known_digest(path) for path in files}
    return Export(
        precision=chosen.precision,
        dimension=spec.modules[-1].output_width(spec.widths[-1]),
        pad_id=_pad_id(spec),
        model=str(spec.folder),
        model_digest=model_digest(spec),
        source_sha256=list(by_name.values()),
        pooling=spec.pooling,
        normalize=spec.normalizes,
        max_length=spec.max_length or NO_LIMIT,
        graph=FOREIGN,
        sha256=by_name,
        runtime=chosen.runtime,
        file=chosen.file,
    )


def _pad_id(spec: EncoderSpec) -> int:
    """Return the id of the padding token, by config.json or by the tokenizer's files; 0 if none says it."""
    stated = spec.config.get("pad_token_id")
    if isinstance(stated, int) and stated >= 0:
        return stated
    tokenizer = read_tokenizer(spec.tokenizer_folder)
    if tokenizer.padding is not None:
        return int(tokenizer.padding["pad_id"])
    settings = read_json(spec.tokenizer_folder / "tokenizer_config.json", default={})
    token = settings.get("pad_token") if isinstance(settings, dict) else None
    name = token.get("content") if isinstance(token, dict) else token
    if not isinstance(name, str):
        return 0
    return tokenizer.token_to_id(name) or 0
