"""``sentcli report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sentcli import console
from sentcli.cli import analyzing, options, scores
from sentcli.cli.base import command

PAGE = "Page"


@command("report")
def report(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE|RUN|MODEL...",
            help="JSON of sts-eval, senteval or retrieve; folders of training runs; models.",
            show_default=False,
        ),
    ],
    output: Annotated[
        list[Path],
        typer.Option(
            "--output", "-o", metavar="FILE", help="A .html, .md or .tex file; several are written.", show_default=False
        ),
    ],
    title: Annotated[str | None, typer.Option(help="Of the page.", rich_help_panel=PAGE)] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LABEL=NAME",
            help="Models that are seeds of one system, shown as mean and standard deviation: NAME is of models or "
            "files and may have *.",
            show_default=False,
            rich_help_panel=PAGE,
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LABEL=NAME", help="What to call a model or file.", show_default=False, rich_help_panel=PAGE
        ),
    ] = None,
    bold: Annotated[
        bool, typer.Option("--bold/--no-bold", help="Mark the best of each column.", rich_help_panel=PAGE)
    ] = True,
    intervals: Annotated[
        bool | None,
        typer.Option(
            "--intervals/--no-intervals",
            help="95 % intervals; default: in HTML only, where there is room.",
            show_default=False,
            rich_help_panel=PAGE,
        ),
    ] = None,
    data: analyzing.Data = None,
    texts: analyzing.TextsFile = None,
    against: scores.AgainstOption = None,
    pooling: options.Pooling = None,
    max_length: options.MaxLength = None,
    backend: options.Backend = "auto",
    precision: options.Precision = "auto",
    device: options.Device = "auto",
    rerun: options.Rerun = False,
    overwrite: options.Overwrite = False,
) -> None:
    """Write results, training runs and what is inside models as a page: HTML, Markdown or LaTeX.

    Of files that sts-eval, senteval and retrieve wrote with --json: rows are
    models, columns tasks. Numbers of different protocols stand in different
    tables, and each table says its protocol. Of training runs: curves, results,
    configuration and environment. Of models and finished runs: with --data the
    seven STS tasks, geometry and similarity, with --texts a map.

    \b
    Examples:
      sentcli report sts.json senteval.json -o report.html
      sentcli report runs/simcse runs/micse minilm --data downstream --texts sentences.txt -o report.html
      sentcli report a.json b.json -o table.tex -o table.md --name "ours=runs/my-model"
      sentcli report seed-*.json minilm.json -o report.html --group "SimCSE=seed-*.json"
    """  # noqa: D301
    from sentcli.cli import report_models
    from sentcli.errors import InputError
    from sentcli.io.atomic import check_output
    from sentcli.io.json_files import finite
    from sentcli.reports.collect import Choices, collect
    from sentcli.reports.page import Style
    from sentcli.reports.runs import read_object, read_runs
    from sentcli.reports.systems import parse_patterns
    from sentcli.reports.write import check_suffix, write_page

    wanted = report_models.asked(names)
    for target in output:
        check_suffix(target)
        if target.resolve() in {file.resolve() for file in wanted.files}:
            raise InputError(f"-o {target} would replace an input; choose another file")
        check_output(target, overwrite=overwrite)
    groups, labels = parse_patterns("--group", group or []), parse_patterns("--name", name or [])
    runs = read_runs(wanted.files)
    loading = analyzing.Loading(pooling, max_length, backend, precision, device, rerun)
    objects, inside = report_models.measured(wanted, loading, data, texts, against)
    runs += [run for one in objects for run in read_object(finite(one))]
    labels += report_models.short_names(wanted.models, runs, [*groups, *labels])
    page = collect(runs, Choices(title, tuple(groups), tuple(labels)), inside)
    write_page(page, output, Style(bold, intervals))
    console.note(f"wrote {', '.join(map(str, output))}")
