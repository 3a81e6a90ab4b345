"""What `sts-eval` and `senteval` share: several models in one run, and printed scores beside the measured ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sentcli.cli import console, options
from sentcli.errors import InputError

if TYPE_CHECKING:
    from sentcli.evaluation.published import Against, Published
    from sentcli.report import Report

Models = Annotated[
    list[str],
    typer.Option(
        "--model",
        "-m",
        help="A model folder, a short name (sentcli doctor lists them), or a hub id; several are compared.",
        show_default=False,
    ),
]


Pages = Annotated[
    list[Path] | None,
    typer.Option(
        "--report",
        metavar="FILE",
        help="Write a page for people: a .html, .md or .tex file; several are written.",
        show_default=False,
        rich_help_panel=options.OUTPUT,
    ),
]


def _list_published(value: str | None) -> str | None:
    """Print the names that `--against` takes, if that is what is asked for, and end."""
    if value != "list":
        return value
    from sentcli.evaluation.published import AVERAGES, published

    rows = [
        [found.name, found.title, *(_number(found.scores.get(average)) for average in AVERAGES.values())]
        for found in published().values()
    ]
    console.table("Published scores", ["name", "system", "STS average", "transfer average"], rows, left=2)
    raise typer.Exit


AgainstOption = Annotated[
    str | None,
    typer.Option(
        "--against",
        metavar="NAME|list",
        help="Set what a paper prints beside it, such as micse-bert-base. Several models count as seeds of one. "
        "list names what there is.",
        callback=_list_published,
        is_eager=True,
        rich_help_panel=options.OUTPUT,
    ),
]


def system(against: str | None, command: str, tasks: Iterable[str]) -> Published | None:
    """Return what `--against` names, if it prints something for these tasks."""
    from sentcli.evaluation import published

    if against is None:
        return None
    found = published.find(against)
    published.require(found, command, tasks)
    return found


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def show_models(
    what: str, names: Sequence[str], scores: dict[str, list[float]], differences: Sequence[dict[str, Any]]
) -> None:
    """Print the scores of several models side by side; the best of each task has a star.

    Args:
        what: the scores are.
        names: of the models.
        scores: of each task, one for each model.
        differences: of each model but the first, by task: something with ``difference`` and ``p``.
    """
    rows = []
    for task, values in scores.items():
        cells = [f"{value:.2f}{'*' if value == max(values) else ''}" for value in values]
        for i, found in enumerate(differences, 1):
            if task in found:
                cells[i] += f" ({found[task].difference:+.2f}, p {found[task].p:.3f})"
        rows.append([task, *cells])
    console.table(f"{what}, with the difference from the first model and its p", ["task", *names], rows)


def finish(
    what: str,
    reports: Sequence[Report],
    measured: dict[str, list[float]],
    differences: Sequence[dict[str, Any]],
    intervals: dict[str, tuple[float, float]],
    found: Published | None,
    target: str | None,
    pages: Sequence[Path] | None = None,
) -> None:
    """Compare the models with the first and with print; write one object for a model or a list for several, and pages.

    Args:
        what: the scores are.
        reports: of the models.
        measured: the scores of each task, one for each model.
        differences: see `show_models`.
        intervals: of the first model's tasks.
        found: what a paper prints, if that is asked for.
        target: of the JSON.
        pages: files of the report for people.
    """
    from sentcli.evaluation.published import compare
    from sentcli.report import write_report

    if len(reports) > 1:
        show_models(what, [report.model for report in reports], measured, differences)
        for report, difference in zip(reports[1:], differences, strict=True):
            tasks = {task: each.to_dict() for task, each in difference.items()}
            report.compared = {"with": reports[0].model, "tasks": tasks}
    objects: list[dict[str, Any]] = [report.to_dict() for report in reports]
    if found is not None:
        compared = compare(found, reports[0].command, measured, intervals)
        _show_against(found, compared)
        for one in objects:
            tasks = {each.task: each.to_dict() for each in compared}
            one["against"] = {"name": found.name, "title": found.title, "source": found.source, "tasks": tasks}
    if target is not None:
        write_report(objects[0] if len(objects) == 1 else objects, target)
    if pages:
        _write_pages(objects, pages)


def _write_pages(objects: Sequence[dict[str, Any]], pages: Sequence[Path]) -> None:
    """Write the results as pages for people, as `sentcli report` does from the JSON."""
    from sentcli.report import finite
    from sentcli.reports.collect import collect
    from sentcli.reports.runs import read_run
    from sentcli.reports.write import write_page

    write_page(collect([read_run(finite(one)) for one in objects]), pages)
    console.note(f"wrote {', '.join(map(str, pages))}")


def _show_against(found: Published, compared: list[Against]) -> None:
    """Print measured scores beside printed ones."""
    runs = compared[0].runs
    what = f"mean of {runs} models; range of 95 % of further seeds" if runs > 1 else "range: the 95 % interval"
    rows = []
    for one in compared:
        between = "" if one.range is None else "{:.2f} to {:.2f}".format(*one.range)
        within = "" if one.within is None else "yes" if one.within else "no"
        numbers = (f"{one.measured:.2f}", f"{one.published:.2f}", f"{one.difference:+.2f}")
        rows.append([one.task, *numbers, between, within])
    columns = ["task", "measured", "published", "difference", "range", "within"]
    console.table(f"against {found.name}: {found.title} ({found.source}); {what}", columns, rows)


def task_names(tasks: str | None) -> list[str] | None:
    """Read ``A,B``.

    Raises:
        InputError: if it names nothing.
    """
    names = [name.strip() for name in tasks.split(",") if name.strip()] if tasks is not None else None
    if names == []:
        raise InputError("--tasks names no task")
    return names


def check_models(models: Sequence[str], pooling: str | None, normalize: bool | None) -> None:
    """Find every model before the first one is scored.

    Raises:
        InputError: if one is not there, or does not pool as asked.
    """
    from sentcli.encoder.loading import describe

    for model in models:
        describe(model, pooling, normalize)
