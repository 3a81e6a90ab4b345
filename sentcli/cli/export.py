"""``sentcli export``."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sentcli import console
from sentcli.cli import options
from sentcli.cli.base import command

if TYPE_CHECKING:
    from sentcli.model.encoding import LoadedModel
    from sentcli.onnx_export.verify import Scorer, Verification


@command("export")
def export(
    model: options.Model,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder to write.", show_default=False)],
    precision: Annotated[
        Literal["fp32", "fp16", "int8"],
        typer.Option(help="fp16 is for GPUs; int8 quantises weights by column, activations as they come."),
    ] = "fp32",
    verify: Annotated[
        bool,
        typer.Option("--verify/--no-verify", help="Compare with the model, and write nothing if the vectors differ."),
    ] = True,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="A SentEval downstream folder: also compare the scores on STS-B."),
    ] = None,
    torch_weights: Annotated[
        bool,
        typer.Option(
            "--torch-weights/--no-torch-weights",
            help="Keep the torch weights beside model.onnx, for SentenceTransformer(DIR).",
        ),
    ] = True,
    pooling: options.Pooling = None,
    normalize: options.Normalize = None,
    max_length: options.MaxLength = None,
    overwrite: options.Overwrite = False,
    json: options.Json = None,
) -> None:
    """Write a model as ONNX: token ids in, sentence vectors out, checked against the model.

    Encoder, pooling, further modules and normalisation become one graph. Texts
    of all lengths go through both; if the vectors differ by more than the
    precision allows, nothing is written and the exit code is 1.

    \b
    Examples:
      sentcli export -m minilm -o minilm-onnx
      sentcli export -m minilm -o minilm-int8 --precision int8 --data SentEval/data/downstream
      sentcli encode sentences.txt -o vectors.npy -m minilm-int8
    """  # noqa: D301
    from sentcli.cli.json_report import Report
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.errors import MissingExtraError
    from sentcli.io.atomic import check_output
    from sentcli.io.json_files import finite, write_json
    from sentcli.machine import environment

    if any(importlib.util.find_spec(name) is None for name in ("onnx", "onnx_ir", "onnxruntime")):
        raise MissingExtraError("onnx, onnxscript or onnxruntime", "cpu", "export")
    from sentcli.onnx_export.publish import export_model

    report = Report("export", model)
    check_output(output, overwrite=overwrite, folder=True)
    encoder = SentenceEncoder.load(
        model,
        backend="torch",
        precision="fp32",
        device="cpu",
        pooling=pooling,
        normalize=normalize,
        max_length=max_length,
    )
    if encoder.spec.assumed_pooling:
        console.warn(f"{model} does not say how it pools; taking mean (--pooling chooses)")
    with console.working("exporting") as say:
        written = export_model(
            encoder.loaded,
            output,
            precision,
            verify=verify,
            scorer=_sts_b_scorer(data) if verify and data is not None else None,
            weights=torch_weights,
            overwrite=overwrite,
            say=say,
        )
    found = written.export
    console.note(
        f"{model} -> {output}: {found.precision}, graph {found.graph}, {written.size / 1e6:.1f} MB, "
        f"[{found.dimension}], {found.pooling} pooling"
    )
    if written.verification is None:
        console.warn("not compared with the model (--no-verify)")
    else:
        _show(found.precision, written.verification)
    if json is not None:
        report.protocol = encoder.describe() | {"verify": verify, "data": str(data) if data else None}
        report.environment = environment("cpu", precision)
        checked = written.verification.to_dict() if written.verification is not None else {}
        report.results = {
            "precision": found.precision,
            "min_cosine": None,
            "mean_cosine": None,
            **checked,
            "size_bytes": written.size,
            "graph": found.graph,
            "quantisation": found.quantisation,
        }
        write_json(json, finite(report.to_dict()))


def _sts_b_scorer(data: Path) -> Scorer:
    """Return what scores a model on STS-B, dev and test, from a SentEval ``downstream`` folder."""
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.evaluation import sts

    pairs = {split: sts.load_tasks(data, ["STSBenchmark"], split) for split in ("dev", "test")}

    def score(model: LoadedModel) -> dict[str, float]:
        encoder = SentenceEncoder(model)
        return {split: sts.evaluate(encoder, tasks, split).tasks[0].spearman for split, tasks in pairs.items()}

    return score


def _show(precision: str, checked: Verification) -> None:
    row = [
        checked.texts,
        checked.longest,
        f"{checked.max_difference:.2g}",
        f"{checked.min_cosine:.7f}",
        f"{checked.mean_cosine:.7f}",
    ]
    columns = ["texts", "tokens up to", "largest difference", "least cosine", "mean cosine"]
    console.table(f"{precision} export against torch in fp32", columns, [row], left=0)
    if checked.sts_b is not None:
        rows = [
            [split, f"{s['torch']:.2f}", f"{s['export']:.2f}", f"{s['change']:+.2f}"]
            for split, s in checked.sts_b.items()
        ]
        console.table("STS-B, Spearman x 100", ["split", "torch", "export", "change"], rows)
