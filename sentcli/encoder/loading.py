"""Load a model by its name: find its folder, choose its backend, and find or make its export."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sentcli import zoo
from sentcli.errors import InputError, MissingExtraError, SentcliError
from sentcli.io.digests import CACHE, MODEL_BYTES, cache_folder, least_recently_used
from sentcli.io.weights import has_weights
from sentcli.machine import VISIBLE, hides_gpus, sums_saturate
from sentcli.model import exported, identity
from sentcli.model.encoding import LoadedModel, Notice
from sentcli.model.exported import WrongRuntimeError
from sentcli.model.options import LoadOptions, ModelOptions
from sentcli.model.spec import UNKNOWN_LEFT_OUT, EncoderSpec
from sentcli.model.spec_files import read_spec
from sentcli.model.stored_graphs import has_graphs, names_of_graphs, stored_graph
from sentcli.model.tokenizing import TextTokenizer, fit, plain_tokenizer, read_tokenizer

if TYPE_CHECKING:
    from sentcli.cluster.nodes import Node
    from sentcli.model.encoding import Backend

QUICK_ARCHITECTURES = ("bert", "electra", "roberta", "xlm-roberta", "camembert", "mpnet", "distilbert")
"""Architectures whose graph is written in seconds, so that ``auto`` makes their exports by itself."""


def read_model(name: str, options: ModelOptions, *, pairs: bool = False) -> EncoderSpec:
    """Find the folder of a model, and return its description with the user's choices applied.

    Args:
        name: of the model.
        options: the user's choices.
        pairs: take a cross-encoder, too, instead of raising an error.

    Raises:
        InputError: if there is no such model, or its folder is damaged.
    """
    folder, entry = zoo.resolve(name)
    if pairs and options.pooling is None:
        from sentcli.model.cross_encoder_files import is_cross_encoder, read_cross_encoder

        if is_cross_encoder(folder):
            return read_cross_encoder(folder)
    spec = read_spec(folder, native=entry is not None and entry.native)
    if entry is not None and spec.assumed_pooling:
        spec = spec.with_pooling(entry.pooling).with_normalize(entry.normalize)
        spec = replace(spec, max_length=spec.max_length or entry.max_length)
    if entry is not None and entry.prompts and not any(spec.prompts.values()):
        spec = replace(spec, prompts=dict(entry.prompts))
    if options.pooling is not None:
        spec = spec.with_pooling(options.pooling)
    elif spec.assumed_pooling and entry is None:
        from sentcli.model.cross_encoder_files import is_classifier, read_cross_encoder, refuse_classifier

        if pairs and is_classifier(spec.config):
            return read_cross_encoder(folder)
        refuse_classifier(folder, spec.config)
    if options.normalize is not None:
        spec = spec.with_normalize(options.normalize)
    return spec


def finished_encoder(name: str) -> EncoderSpec | None:
    """Return the description of a finished encoder, whose folder or entry in the list of known ones says how it pools.

    It is None for any other model, such as a language model that nobody has trained to encode sentences.
    """
    folder, entry = zoo.resolve(name)
    spec = read_spec(folder, native=entry is not None and entry.native)
    if not spec.assumed_pooling:
        return spec
    if entry is None or entry.language_model:
        return None
    return spec.with_pooling(entry.pooling)


def load_model(
    name: str,
    spec: EncoderSpec,
    options: LoadOptions,
    notice: Notice = lambda message: None,
    *,
    make_export: bool = True,
    untrained: bool = False,
) -> LoadedModel:
    """Load a model on the backend of the options; ``auto`` takes onnxruntime where that is faster, else torch.

    A static model, which is a table of token vectors, needs neither: ``auto`` takes NumPy for it.

    Args:
        name: the name that the user gave for the model.
        spec: the description of the model.
        options: backend, precision, device and maximum length.
        notice: called with notes for the user.
        make_export: whether ``auto`` makes an export in the cache if there is none.
        untrained: start from random weights if the folder has none, instead of raising an error (torch only).
    """
    _say_what_is_left_out(name, spec, notice)
    if options.device == "auto" and hides_gpus():
        notice(f"running on the CPU: {VISIBLE} hides the GPU of this machine")
    if options.backend in ("onnx", "openvino"):
        return _load_export(name, spec, options, notice)
    if options.backend == "auto" and not untrained and spec.is_static:
        from sentcli.model import static_backend

        if static_backend.can_run(spec, options):
            return static_backend.load_static(name, spec, options)
    if options.backend == "auto":
        only_exported = has_graphs(spec.folder) and not has_weights(spec.folder)
        required = only_exported or options.precision == "int8"
        if required or _prefers_export(spec, options, make_export=make_export):
            try:
                return _load_export(name, spec, options, notice)
            except (MissingExtraError, ExportError, WrongRuntimeError) as error:
                if required:
                    raise
                notice(f"running on torch: {error}")
    from sentcli.model import torch_backend

    return torch_backend.load_torch(name, spec, options, notice, untrained=untrained)


def _prefers_export(spec: EncoderSpec, options: LoadOptions, *, make_export: bool) -> bool:
    """Tell whether ``auto`` runs an export on a CPU: one that is there, or that is made in the cache."""
    stored = stored_graph(spec, options)
    if not options.on_cpu:
        return False
    on_openvino = stored is not None and stored.runtime == "openvino"
    if not on_openvino and importlib.util.find_spec("onnxruntime") is None:
        return False
    return stored is not None or _may_export(spec, options, make_export=make_export)


def _say_what_is_left_out(name: str, spec: EncoderSpec, notice: Notice) -> None:
    """Tell the user what of a model's folder is not obeyed, or not in the way that one may expect."""
    if spec.unknown_keys:
        notice(f"{name}: keys that are not known and were left out: {', '.join(spec.unknown_keys)}")
    if spec.has_code:
        notice(
            f"{name}: the code that its config.json names (auto_map) is not run: transformers' class for "
            f"{spec.config.get('model_type')!r} is taken, which was written for these weights"
        )
    if spec.config.get(UNKNOWN_LEFT_OUT):
        notice(f"{name}: a static model of model2vec, read by its rule: unknown tokens are left out")
    head = next(spec.folder.glob("model_head.*"), None)
    if head is not None:
        notice(f"{name}: {head.name}, the head of a classifier of SetFit, is left out: these are the vectors before it")
    from_head = any(getattr(module, "from_head", False) for module in spec.modules)
    if from_head and has_weights(spec.folder):
        from sentcli.model.stored_heads import head_is_pooler

        if head_is_pooler(spec.folder):
            notice(
                f"{name}: --pooling cls-head takes the pooler of the checkpoint, which in a plain language model was "
                "not trained for sentence vectors"
            )


def read_text_tokenizer(name: str, options: LoadOptions) -> TextTokenizer:
    """Return the tokenizer of a model, without loading its weights.

    Raises:
        InputError: for a model that is served, whose tokenizer is not known.
    """
    served = zoo.served_model(name)
    if served is not None:
        raise served.lacks("--passages")
    spec = read_model(name, options)
    if spec.is_static:
        return fit(plain_tokenizer(spec.folder), spec, None, options.max_length)
    if (spec.tokenizer_folder / "tokenizer.json").exists():
        stated = None
        for export in exported.exports_in(spec.folder)[:1]:
            stated = export.max_length
        pad_id = spec.config.get("pad_token_id")
        return fit(read_tokenizer(spec.tokenizer_folder), spec, pad_id, options.max_length, stated=stated)
    from sentcli.model.torch_backend import load_tokenizer, text_tokenizer

    return text_tokenizer(load_tokenizer(spec.tokenizer_folder), spec, options.max_length)


def _may_export(spec: EncoderSpec, options: LoadOptions, *, make_export: bool) -> bool:
    """Tell whether ``auto`` takes an export of the cache, because it exists or is quickly made."""
    if options.precision not in ("auto", "fp32") or not spec.includes_prompt or not has_weights(spec.folder):
        return False
    if (cached_place(spec, "fp32") / exported.EXPORT).exists():
        return True
    return make_export and has_tools() and spec.config.get("model_type") in QUICK_ARCHITECTURES


def _load_export(name: str, spec: EncoderSpec, options: LoadOptions, notice: Notice) -> LoadedModel:
    """Load the export of a model on onnxruntime or OpenVINO."""
    folder, export = _find_export(name, spec, options, notice)
    exported.check_files(folder, export)
    # of a graph that another program wrote, only the folder says how its output is pooled
    pooled_by = spec if export.is_foreign else None
    device = options.device
    on_openvino = "openvino" in (options.backend, export.runtime)
    if device == "auto":
        device = "cpu" if options.on_cpu or on_openvino else "cuda"
    backend: Backend
    if on_openvino:
        from sentcli.model.openvino_backend import OpenVinoBackend

        backend = OpenVinoBackend(folder, export, device, precision=options.precision, spec=pooled_by)
    else:
        from sentcli.model.onnx_backend import OnnxBackend

        fallback = options.allow_cpu_fallback
        backend = OnnxBackend(folder, export, device, allow_cpu_fallback=fallback, spec=pooled_by)
    exported.check_runtime(folder, export.sha256, export.probes, export.pad_id, backend)
    if export.quantisation and not export.quantisation.get("reduce_range") and sums_saturate(export.runtime):
        notice(
            f"{folder} was quantised for a processor with VNNI, which this one lacks: its sums may overflow; "
            "export it again on this machine"
        )
    # what is in the cache is shared by folders, whose own files say what is not in its key
    stated = export.max_length if folder == spec.folder else None
    tokenizer = fit(read_tokenizer(folder), spec, export.pad_id, options.max_length, stated=stated)
    return LoadedModel(name, replace(spec, max_length=tokenizer.max_length), tokenizer, backend)


def _find_export(name: str, spec: EncoderSpec, options: LoadOptions, notice: Notice) -> tuple[Path, exported.Export]:
    """Return the export beside the model, or else in the cache, where it is made if it is missing, and its folder."""
    stored = stored_graph(spec, options)
    if stored is not None:
        return spec.folder, stored
    if not has_weights(spec.folder):
        graphs = names_of_graphs(spec.folder)
        raise InputError(
            f"{spec.folder} holds {graphs}, which --backend, --precision, --pooling or --normalize do not fit, and no "
            "weights to make another one of; name the model that it was made of"
        )
    precision = "fp32" if options.precision in ("auto", "bf16") else options.precision
    runtime = "openvino" if options.backend == "openvino" and precision == "int8" else "onnx"
    folder = cached_place(spec, precision, runtime)
    if not is_whole_export(folder, spec):
        notice(f"exporting {name} in {precision} to {folder} (once)")
        make_export_in(name, spec, precision, folder, runtime)
    with suppress(OSError):  # notes the use: the cache drops the least recently used exports
        (folder / exported.EXPORT).touch()
    export = exported.read_export(folder)
    assert export is not None
    return folder, export


EXPORTS = "exports"
"""The folder of the exports in the cache."""
CACHE_FORMAT = 3
"""The version of the cache's keys. With version 1, folders of equal weights could share what differs between them; with
version 2, exports held no texts by which a runtime is checked."""


class ExportError(SentcliError):
    """An export for the cache has failed; the model can still run on torch."""


def cached_place(spec: EncoderSpec, precision: str, runtime: str = "onnx") -> Path:
    """Return the folder of the cache for the export of an encoder in a precision, whether it exists or not."""
    facts = f"{CACHE_FORMAT} {exported.EXPORT_FORMAT} {precision} {runtime} {identity.encoder_digest(spec)}"
    digest = hashlib.sha256(facts.encode())
    if precision == "int8":
        digest.update(f"reduce_range {sums_saturate(runtime)}".encode())
    return cache_folder(EXPORTS) / digest.hexdigest()[:32]


def is_whole_export(folder: Path, spec: EncoderSpec) -> bool:
    """Tell whether a folder of the cache holds an export of this encoder whose files are whole.

    What the export says of its model is compared with a digest of the model itself, which the folder cannot know.
    """
    try:
        export = exported.read_export(folder)
        if export is None or export.model_digest != identity.model_digest(spec):
            return False
        exported.check_files(folder, export)
    except InputError:
        return False
    return export.graph_file in export.sha256


def make_export_in(name: str, spec: EncoderSpec, precision: str, folder: Path, runtime: str) -> None:
    """Export a model to its folder of the cache; if several processes do so, one makes it and the others wait.

    Raises:
        MissingExtraError: without onnx and onnxscript.
        ExportError: if the export does not give the model's vectors, or the cache cannot be written.
    """
    _check_tools()
    from filelock import FileLock

    from sentcli.onnx_export.publish import export_model

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f".{folder.name}.lock")):
            if is_whole_export(folder, spec):  # another process was first
                return
            shutil.rmtree(folder, ignore_errors=True)  # it may hold a damaged export
            export_model(
                _source(name, spec), folder, precision, weights=False, mapped=True, runtime=runtime, tokens=False
            )
            prune(folder)
    except (SentcliError, OSError) as error:
        if isinstance(error, (MissingExtraError, InputError)):
            raise
        if isinstance(error, OSError) and error.filename:
            problem = f"{error.filename}: {error.strerror}"
            raise ExportError(f"the cache cannot be written ({problem}); {CACHE} names another folder") from error
        raise ExportError(str(error)) from error


def add_beside(name: str, folder: Path) -> None:
    """Write the ONNX export of a saved model beside its weights if it has modules that sentence-transformers lacks.

    With the export, the folder can be used without sentcli and without the code of these modules.
    """
    spec = read_spec(folder)
    if spec.is_sentence_transformers or not spec.includes_prompt:
        return
    _check_tools()
    from sentcli.onnx_export.publish import add_export

    add_export(_source(name, spec), folder)


def has_tools() -> bool:
    """Tell whether the libraries that make an export are installed."""
    return all(importlib.util.find_spec(library) is not None for library in ("onnx", "onnx_ir"))


def _check_tools() -> None:
    if not has_tools():
        raise MissingExtraError("onnx and onnxscript", "cpu", "making an ONNX export")


def _source(name: str, spec: EncoderSpec) -> LoadedModel:
    """Load the model that an export is made from."""
    from sentcli.model import torch_backend

    return torch_backend.load_torch(name, spec, LoadOptions(backend="torch", precision="fp32", device="cpu"))


def prune(keep: Path) -> None:
    """Delete the least recently used exports while the cache is too large, but never `keep`."""
    folders = [path for path in cache_folder(EXPORTS).iterdir() if path.is_dir()]
    exports = []
    for path in folders:
        if not path.name.startswith("."):
            exports.append(path)
        elif time.time() - path.stat().st_mtime > 24 * 3600:  # of an export that was killed a day ago
            shutil.rmtree(path, ignore_errors=True)
    for path in least_recently_used(exports, keep, MODEL_BYTES, lambda folder: folder / exported.EXPORT):
        shutil.rmtree(path, ignore_errors=True)


def require_same_weights(nodes: list[Node], model: str) -> str:
    """Compare the weights that the nodes have under the name of a model, which may be downloaded for that.

    Args:
        nodes: of the cluster.
        model: the name or path that the user gave.

    Returns:
        The name for other processes, whose working folder is another one: an absolute path if it is a folder.

    Raises:
        InputError: for a model that is served, whose host a cluster does not make faster.
        SentcliError: naming a node that lacks the model, or has other weights than the first node.
    """
    served = zoo.served_model(model)
    if served is not None:
        raise served.lacks("--ray")
    path = model
    local = zoo.local_path(model)
    if local is not None:
        path = str(local.resolve())

    def weights(path: str) -> str:
        from sentcli.encoder.loading import read_model
        from sentcli.errors import SentcliError
        from sentcli.model.identity import ModelSource
        from sentcli.model.options import ModelOptions

        try:
            return " ".join(ModelSource.of(read_model(path, ModelOptions())).weights)
        except SentcliError as error:
            raise SentcliError(str(error)) from None

    from sentcli.cluster.nodes import ask_nodes

    digests = ask_nodes(nodes, weights, path)
    for node, digest in zip(nodes, digests, strict=True):
        if digest != digests[0]:
            other = f"other weights of {model} than {nodes[0].name}"
            raise SentcliError(f"node {node.name} has {other}: copy the same to every node")
    return path
