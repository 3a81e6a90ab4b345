"""What `sts-eval` and `senteval` share: several models in one run, and printed scores beside the measured ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sentcli.cli import console, options

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
        help="Set what a paper prints beside it, such as micse-bert-base; list names what there is.",
        callback=_list_published,
        is_eager=True,
        rich_help_panel=options.OUTPUT,
    ),
]


def system(against: str | None) -> Published | None:
    """Return what `--against` names."""
    from sentcli.evaluation import published

    return None if against is None else published.find(against)


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


def _show_against(found: Published, compared: list[Against]) -> None:
    """Print measured scores beside printed ones."""
    runs = compared[0].runs if compared else 1
    what = f"mean of {runs} models, within two standard deviations" if runs > 1 else "within the 95 % interval"
    rows = [
        [
            one.task,
            f"{one.measured:.2f}",
            f"{one.published:.2f}",
            f"{one.difference:+.2f}",
            f"{one.low:.2f} to {one.high:.2f}",
            "yes" if one.within else "no",
        ]
        for one in compared
    ]
    columns = ["task", "measured", "published", "difference", "measured range", "within"]
    console.table(f"against {found.name}: {found.title} ({found.source}); {what}", columns, rows)
    if not compared:
        console.warn(f"nothing is printed of {found.name} for these tasks")


def write(
    reports: Sequence[Report], found: Published | None, compared: list[Against] | None, target: str | None
) -> None:
    """Show what is printed beside what was measured, and write one object for a model, or a list for several."""
    from sentcli.report import write_report

    objects: list[dict[str, Any]] = [report.to_dict() for report in reports]
    if found is not None and compared is not None:
        _show_against(found, compared)
        for one in objects:
            one["against"] = {"name": found.name, "tasks": {each.task: each.to_dict() for each in compared}}
    if target is not None:
        write_report(objects[0] if len(objects) == 1 else objects, target)
