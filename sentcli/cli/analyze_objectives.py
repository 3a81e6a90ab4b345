"""``sentcli analyze objectives``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sentcli import console
from sentcli.cli import analyzing, options
from sentcli.cli.base import command
from sentcli.errors import InputError

if TYPE_CHECKING:
    from sentcli.analysis.group_spectrum import GroupSpectra
    from sentcli.analysis.loss_terms import LossTerms
    from sentcli.evaluation.candidate import Candidate

    Run = tuple[Path, LossTerms]


@command("objectives", analyzing.group)
def objectives(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Folders of training runs, finished or not.", show_default=False),
    ],
    output: analyzing.Output,
    model: analyzing.Models = None,
    texts: analyzing.TextsFile = None,
    text_field: analyzing.TextField = "text",
    limit: analyzing.Limit = 10_000,
    groups: Annotated[
        int,
        typer.Option(
            min=0,
            help="Groups that the columns are cut into; 0: as the run whitens them, else two columns a group.",
        ),
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Of the order of the columns.")] = 0,
    pooling: options.Pooling = None,
    max_length: options.MaxLength = None,
    backend: options.Backend = "auto",
    precision: options.Precision = "auto",
    device: options.Device = "auto",
    rerun: options.Rerun = False,
    overwrite: options.Overwrite = False,
    json: options.Json = None,
) -> None:
    """Loss terms of training runs, their shares of the gradient, and the groups that whitening works on.

    Training measures every 50 steps which part each term has in the gradient at
    the encoder (--set share_every). With --texts, the vectors of the finished
    runs and of the models (-m, such as the model that a run started from) are
    cut into shuffled groups of columns as WhitenedCSE does, and the eigenvalues
    and condition numbers of each group's covariance are shown.

    \b
    Examples:
      sentcli analyze objectives runs/micse runs/informin-cl -o shares
      sentcli analyze objectives runs/whitenedcse -m minilm --pooling cls --texts sentences.txt -o groups
      sentcli analyze objectives runs/whitenedcse --texts sentences.txt --groups 32 -o thirty-two
    """  # noqa: D301
    from sentcli.analysis.loss_terms import read_terms
    from sentcli.cli.json_report import Report
    from sentcli.reports.analyses.objectives import sections

    analyzing.check(output, overwrite=overwrite)
    if twice := next((path for path in runs if runs.count(path) > 1), None):
        raise InputError(f"{twice} is given twice")
    if model and texts is None:
        raise InputError("-m is for the whitening groups, which need --texts")
    found = [(path, read_terms(path)) for path in runs]
    _say(found)
    names = [*(model or []), *(str(path) for path, run in found if run.finished)] if texts else []
    if texts and not names:
        raise InputError("--texts: none of the runs is finished, so there is no model: -m names one")
    lines = analyzing.read_texts(texts, text_field, limit) if texts else []
    called = analyzing.labels(list(dict.fromkeys([*(model or []), *map(str, runs)])))
    reports = {str(path): Report("analyze", str(path), {"kind": "objectives"}, run.to_dict()) for path, run in found}
    spectra = []
    count = groups or next((run.groups for _, run in found if run.groups), 0)
    loading = analyzing.Loading(pooling, max_length, backend, precision, device, rerun, normalize=False)
    for candidate in loading.candidates(names):
        report = reports.setdefault(candidate.name, Report("analyze", candidate.name, {"kind": "objectives"}, {}))
        spectra.append((called[candidate.name], _spectra(candidate, lines, count, seed, report)))
    _say_pooling([report.protocol.get("pooling") for report in reports.values()])
    chosen = f"Vectors of {len(lines):,} distinct texts before normalisation, columns shuffled with seed {seed}."
    made = sections([(called[str(path)], run) for path, run in found], spectra, chosen)
    analyzing.finish("objectives", output, made, [report.to_dict() for report in reports.values()], json)


def _say(found: Sequence[Run]) -> None:
    for path, run in found:
        if not run.finished:
            console.warn(f"{path} is not finished: its last step is {run.steps:,}")
        if len(run.terms) == 1:
            console.note(f"{path}: its loss is {run.terms[0].name} alone, whose share of the gradient is 100 %")
        elif not run.measured:
            console.warn(f"{path} logged no shares of the gradient: train with --set share_every=50")


def _spectra(candidate: Candidate, texts: list[str], groups: int, seed: int, report: Any) -> GroupSpectra:
    """Measure the groups of a model and write them into its report."""
    from sentcli.analysis.group_spectrum import group_spectra
    from sentcli.machine import environment

    vectors = analyzing.vectors_of(candidate, texts).of(texts)
    made = group_spectra(vectors, groups or max(1, vectors.shape[1] // 2), seed)
    described = candidate.described
    report.protocol |= {
        "texts": len(texts),
        "groups": len(made.eigenvalues),
        "seed": seed,
        **{key: value for key, value in described.items() if key != "device"},
    }
    report.results = {**report.results, "whitening": made.to_dict()}
    report.environment = environment(described.get("device"), described.get("precision"), seed)
    report.finish()
    return made


def _say_pooling(found: Sequence[str | None]) -> None:
    kinds = dict.fromkeys(pooling for pooling in found if pooling)
    if len(kinds) > 1:
        console.warn(f"the models pool differently ({', '.join(kinds)}), which moves the groups: --pooling sets one")
