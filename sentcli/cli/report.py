"""``sentcli report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sentcli.cli import console, options
from sentcli.cli.base import command

PAGE = "Page"


@command("report")
def report(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="JSON of sts-eval, senteval or retrieve.", show_default=False),
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
    overwrite: options.Overwrite = False,
) -> None:
    """Write evaluation results as a page for people: HTML, Markdown or LaTeX.

    Reads what sts-eval, senteval and retrieve wrote with --json. Rows are
    models, columns tasks. Numbers of different protocols stand in different
    tables, and each table says its protocol.

    \b
    Examples:
      sentcli report sts.json senteval.json -o report.html
      sentcli report a.json b.json -o table.tex -o table.md --name "ours=runs/my-model"
      sentcli report seed-*.json minilm.json -o report.html --group "SimCSE=seed-*.json"
    """  # noqa: D301
    from sentcli.errors import InputError
    from sentcli.io.atomic import check_output
    from sentcli.reports.collect import Choices, collect
    from sentcli.reports.page import Style
    from sentcli.reports.runs import read_runs
    from sentcli.reports.systems import parse_patterns
    from sentcli.reports.write import check_suffix, write_page

    for target in output:
        check_suffix(target)
        if target.resolve() in {file.resolve() for file in files}:
            raise InputError(f"-o {target} would replace an input; choose another file")
        check_output(target, overwrite=overwrite)
    groups, names = parse_patterns("--group", group or []), parse_patterns("--name", name or [])
    page = collect(read_runs(files), Choices(title, tuple(groups), tuple(names)))
    write_page(page, output, Style(bold, intervals))
    console.note(f"wrote {', '.join(map(str, output))}")
