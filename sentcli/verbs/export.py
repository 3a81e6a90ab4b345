"""``export``: a model as ONNX."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from sentcli import console
from sentcli.bounds import Holds, Overwrite
from sentcli.command.declaration import Flag, Group, verb
from sentcli.command.result import Clock, Record, Result
from sentcli.errors import InputError, MissingExtraError
from sentcli.model.options import LoadOptions, Model, ModelOptions
from sentcli.table import Table

if TYPE_CHECKING:
    from sentcli.model.encoding import LoadedModel
    from sentcli.onnx_export.verify import Scorer


LEAST_TEXTS, _SAMPLED = 10, 600
"""The numbers of the user's own texts, at least and at most, that an export is calibrated by and compared on."""


@verb("export")
def export(
    model: Model,
    output: Annotated[Path, Flag("-o", metavar="DIR")],
    precision: Literal["fp32", "fp16", "int8"] = "fp32",
    verify: bool = True,
    data: Annotated[Path | None, Flag(metavar="DIR")] = None,
    texts: Annotated[str | None, Holds.TEXT_FILE, Flag(metavar="FILE")] = None,
    text_field: Annotated[str, Holds.WORDS] = "text",
    runtime: Literal["onnx", "openvino"] = "onnx",
    layout: Literal["own", "hub"] = "own",
    tokens: bool | None = None,
    torch_weights: bool = True,
    options: Annotated[ModelOptions, Group("Model")] = ModelOptions(),
    overwrite: Overwrite = False,
) -> Result:
    """Write a model as ONNX: token ids in, sentence vectors out, checked against the model.

    Encoder, pooling, further modules and normalisation become one graph. Texts
    of all lengths go through both; if the vectors differ by more than the
    precision allows, nothing is written and the exit code is 1.

    Args:
        output: Folder to write.
        precision: fp16 is for GPUs; int8 quantises weights by column, activations as they come.
        verify: Compare with the model, and write nothing if the vectors differ.
        data: A SentEval downstream folder: also compare the scores on STS-B.
        texts: Your own texts, of which 600 are drawn: compared on 300 of them, too; OpenVINO learns from the others.
        text_field: The column of a table that --texts reads.
        runtime: openvino: for OpenVINO alone; its int8 has ranges of activations that are learned from texts.
        layout: hub: the graph goes to onnx/ or openvino/ in a model's folder, where others look; one run a precision.
        tokens: Whether the graph gives token vectors, too; by itself it does, except with cls or lasttoken pooling.
        torch_weights: Keep the torch weights in fp32 beside the graph; SentenceTransformer(DIR) loads these.

    \b
    Examples:
      sentcli export -m minilm -o minilm-onnx
      sentcli export -m minilm -o minilm-int8 --precision int8 --data SentEval/data/downstream
      sentcli export -m minilm -o minilm-ov --precision int8 --runtime openvino --texts corpus.jsonl
      sentcli export -m minilm -o minilm-hub --layout hub
      sentcli export -m minilm -o minilm-hub --layout hub --precision int8
      sentcli encode sentences.txt -o vectors.npy -m minilm-int8
    """  # noqa: D301
    from sentcli.encoder import load_encoder
    from sentcli.io.atomic import check_kept, check_output
    from sentcli.machine import environment

    if any(importlib.util.find_spec(name) is None for name in ("onnx", "onnx_ir", "onnxruntime")):
        raise MissingExtraError("onnx, onnxscript or onnxruntime", "cpu", "export")
    from sentcli.onnx_export.publish import export_model

    clock = Clock()
    if layout == "own":  # in the hub's, the graph is what may be there already
        check_output(output, overwrite=overwrite, folder=True)
    check_kept(output, [texts])
    if texts is not None and not verify and runtime == "onnx":
        raise InputError("--texts compares an ONNX export on your texts, which --no-verify leaves out")
    own_texts = [] if texts is None else _sample(texts, text_field)
    encoder = load_encoder(model, LoadOptions(**vars(options), backend="torch", precision="fp32", device="cpu"))
    with console.working("exporting") as show_step:
        exported = export_model(
            encoder.local,
            output,
            precision,
            verify=verify,
            scorer=_sts_b_scorer(data) if verify and data is not None else None,
            weights=torch_weights,
            overwrite=overwrite,
            runtime=runtime,
            texts=own_texts,
            layout=layout,
            tokens=tokens,
            say=show_step,
        )
    manifest, verification, tables = exported.export, exported.verification, []
    console.note(
        f"{model} -> {output}: {manifest.precision}, graph {manifest.graph}, {exported.size / 1e6:.1f} MB, "
        f"[{manifest.dimension}], {manifest.pooling} pooling"
    )
    if tokens is None and not exported.gives_tokens and not encoder.local.spec.scores_pairs:
        console.note(
            f"no token vectors in the graph: {manifest.pooling} pooling reads one token; --tokens adds them for "
            "sentence-transformers' onnx backend, transformers.js and Spring AI, at about a seventh more time"
        )
    folder_bytes, weights_bytes = exported.sizes()
    weights_note = (
        "and no torch weights (--no-torch-weights), which SentenceTransformer(DIR) needs; sentcli runs the graph"
    )
    if weights_bytes:
        weights_note = (
            f"with the torch weights in fp32, {(folder_bytes - weights_bytes) / 1e6:.1f} MB without them "
            f"(--no-torch-weights); SentenceTransformer(DIR) loads these weights, not the {manifest.precision} graph"
        )
    console.note(f"{output} has {folder_bytes / 1e6:.1f} MB {weights_note}")
    if verification is None:
        console.warn("not compared with the model (--no-verify)")
    else:
        measures = {
            "texts": verification.texts,
            "tokens up to": verification.longest,
            "largest difference": verification.max_difference,
            "least cosine": verification.min_cosine,
            "mean cosine": verification.mean_cosine,
        }
        formats = {"largest difference": ".2g", "least cosine": ".7f", "mean cosine": ".7f"}
        title = f"{manifest.precision} export against torch in fp32"
        tables.append(Table.of_rows(title, [measures], formats=formats))
    if verification is not None and verification.sts_b is not None:
        rows = [{"split": split, **scores} for split, scores in verification.sts_b.items()]
        tables.append(Table.of_rows("STS-B, Spearman x 100", rows, formats={"change": "+.2f"}))
    chosen = {"verify": verify, "data": str(data) if data else None, "texts": texts, "runtime": runtime}
    chosen |= {"layout": layout, "tokens": exported.gives_tokens}
    protocol = encoder.describe() | encoder.provenance() | chosen
    facts = environment("cpu", precision, revision=encoder.provenance().get("revision"))
    results: dict[str, Any] = {"precision": manifest.precision, "min_cosine": None, "mean_cosine": None}
    if verification is not None:
        results |= verification.to_dict()
    results |= {
        "size_bytes": exported.size,
        "folder_bytes": folder_bytes,
        "torch_weights_bytes": weights_bytes,
        "graph": manifest.graph,
        "quantisation": manifest.quantisation,
    }
    overview = {
        "output": str(output),
        "precision": manifest.precision,
        "dimensions": manifest.dimension,
        "pooling": manifest.pooling,
        "graph": f"{manifest.graph}, {exported.size / 1e6:.1f} MB",
        "folder": f"{folder_bytes / 1e6:.1f} MB",
        "torch weights": "kept" if weights_bytes else "left out",
    }
    record = Record("export", model, protocol, results, facts, clock.seconds)
    return Result.of(record, tables, overview=overview)


def _sample(file: str, text_field: str) -> list[str]:
    """Draw `_SAMPLED` of the texts of a file, and return the different ones among them."""
    from sentcli.io.readers import ReadOptions, rows
    from sentcli.io.sampling import reservoir_sample
    from sentcli.io.sources import open_source

    file_rows = rows(open_source(file), ReadOptions(text_field=text_field, on_null="skip"))
    not_blank = (row.text for row in file_rows if row is not None and row.text.strip())
    sample, _ = reservoir_sample(not_blank, _SAMPLED)
    texts = list(dict.fromkeys(sample))
    if len(texts) < LEAST_TEXTS:
        raise InputError(
            f"{file}: {len(texts)} different texts; at least {LEAST_TEXTS} tell how an export does on them"
        )
    return texts


def _sts_b_scorer(data: Path) -> Scorer:
    """Return a function that scores a model on dev and test of STS-B, read from a SentEval ``downstream`` folder."""
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.evaluation import sts

    splits = {split: sts.load_similarity_tasks(data, ["STSBenchmark"], split) for split in ("dev", "test")}

    def score(model: LoadedModel) -> dict[str, float]:
        encoder = SentenceEncoder(model)
        scores = {}
        for split, tasks in splits.items():
            scores[split] = sts.evaluate_similarity(encoder, tasks)["STSBenchmark"].value
        return scores

    return score
