"""What evaluating commands share: several models in one run, and printed scores beside the measured ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sentcli import console
from sentcli.cli import options
from sentcli.errors import InputError

if TYPE_CHECKING:
    from sentcli.cli.json_report import Report
    from sentcli.evaluation.candidate import Candidate
    from sentcli.evaluation.published import Against, Published
    from sentcli.evaluation.significance import Difference, Discordance
    from sentcli.evaluation.sts import STSResult

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
    console.table("Published scores, times 100", ["name", "system", *AVERAGES.values()], rows, left=2)
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


BESIDE = 4
"""Models whose scores and differences fit beside each other on a screen."""


@dataclass(frozen=True)
class Measured:
    """Scores of one kind."""

    what: str
    """They are."""
    scores: dict[str, list[float]]
    """Of each task, one for each model."""
    intervals: dict[str, tuple[float, float]]
    """Of the first model's."""
    differences: Sequence[Mapping[str, Difference | Discordance]]
    """From the first model, of each other one, by task."""
    digits: int = 2
    """That are shown after the point."""
    labels: Sequence[str] | None = None
    """Of the models, if their names do not tell them apart."""


def correlations(results: Sequence[STSResult]) -> Measured:
    """Return the correlations of several models on the same tasks."""
    from sentcli.evaluation import sts
    from sentcli.evaluation.significance import interval

    first = results[0]
    found = {task.task: [r.score(r.tasks[i]) for r in results] for i, task in enumerate(first.tasks)}
    intervals = {task.task: interval(task.draws) for task in first.tasks if task.draws is not None}
    if len(first.tasks) > 1:
        found["average"] = [result.average for result in results]
        if first.average_draws is not None:
            intervals["average"] = interval(first.average_draws)
    return Measured("Spearman", found, intervals, [sts.compare(result, first) for result in results[1:]])


def show_regression(model: str, result: STSResult) -> None:
    """Print what a trained head reaches."""
    from sentcli.evaluation.significance import interval

    rows = []
    for task in result.tasks:
        numbers = [_number(value) for value in (task.dev_pearson, task.pearson, task.spearman)]
        between = "" if task.draws is None else "{:.2f} to {:.2f}".format(*interval(task.draws))
        rows.append([task.task, task.pairs, *numbers, between, f"{task.mse:.4f}"])
    columns = ["task", "pairs", "dev Pearson", "Pearson", "Spearman", "95 % interval of Spearman", "squared error"]
    console.table(f"{model}: SentEval's regression head on frozen vectors", columns, rows)


def end(
    report: Report, candidate: Candidate, protocol: dict[str, Any], results: dict[str, Any], seed: int | None = None
) -> None:
    """Fill in the report of one model, say what the user should know, and stop its clock.

    Args:
        report: of the model.
        candidate: the model.
        protocol: every choice that moves a number, but those of the model.
        results: of each task, in the order of the tasks.
        seed: of what was trained.
    """
    from sentcli.machine import environment

    described = candidate.described
    truncated, zero = (sum(each.get(key, 0) for each in results.values()) for key in ("truncated", "zero_vectors"))
    model = {key: value for key, value in described.items() if key != "device"}
    report.protocol = {**protocol, **model, "truncated_texts": truncated, "zero_vectors": zero}
    report.environment = environment(described["device"], described["precision"], seed)
    report.results = results
    report.cached = [task for task in results if task in candidate.remembered]
    options.warn_truncated(described["max_length"], truncated, what="texts (each counted once for each task)")
    if zero:
        console.warn(f"the vectors of {zero} sentences are zero; their similarities count as 0")
    if report.cached:
        console.note(f"{len(report.cached)} of {len(results)} tasks were measured before (--rerun measures again)")
    candidate.release()
    report.finish()


def finish(
    reports: Sequence[Report],
    measured: Sequence[Measured],
    found: Published | None,
    target: str | None,
    pages: Sequence[Path] | None = None,
    *,
    kind: str | None = None,
) -> None:
    """Compare the models with the first and with print; write one object for a model or a list for several, and pages.

    Args:
        reports: as `compared`, like `measured`, `found` and `kind`.
        measured: see there.
        found: see there.
        target: of the JSON.
        pages: files of the report for people.
        kind: see there.
    """
    from sentcli.io.json_files import finite, write_json

    objects = compared(reports, measured, found, kind=kind)
    if target is not None:
        write_json(target, finite(objects[0] if len(objects) == 1 else objects))
    if pages:
        _write_pages(objects, pages)


def compared(
    reports: Sequence[Report], measured: Sequence[Measured], found: Published | None, *, kind: str | None = None
) -> list[dict[str, Any]]:
    """Compare the models with the first and with print; return one object for each.

    Args:
        reports: of the models.
        measured: their scores; print is compared with the first kind.
        found: what a paper prints, if that is asked for.
        kind: which printed scores are meant, a key of `published.PREFIXES`; None is the command's.
    """
    from sentcli.evaluation.published import compare

    names = [report.model for report in reports]
    for one in measured if len(reports) > 1 else ():
        _show_models(one.labels or names, one)
        for report, difference in zip(reports[1:], one.differences, strict=True):
            report.compared = report.compared or {"with": names[0], "tasks": {}}
            report.compared["tasks"] |= {task: each.to_dict() for task, each in difference.items()}
    objects: list[dict[str, Any]] = [report.to_dict() for report in reports]
    if found is not None:
        beside = compare(found, kind or reports[0].command, measured[0].scores, measured[0].intervals)
        source = found.source_of([one.task for one in beside], kind or reports[0].command)
        _show_against(f"{found.name}: {found.title} ({source})", beside, measured[0].digits)
        tasks = {one.task: one.to_dict() for one in beside}
        for each in objects:
            each["against"] = {"name": found.name, "title": found.title, "source": source, "tasks": tasks}
    return objects


def _write_pages(objects: Sequence[dict[str, Any]], pages: Sequence[Path]) -> None:
    """Write the results as pages for people, as `sentcli report` does from the JSON."""
    from sentcli.io.json_files import finite
    from sentcli.reports.collect import collect
    from sentcli.reports.runs import read_object
    from sentcli.reports.write import write_page

    write_page(collect([run for one in objects for run in read_object(finite(one))]), pages)
    console.note(f"wrote {', '.join(map(str, pages))}")


def _show_models(names: Sequence[str], measured: Measured) -> None:
    """Print the scores of several models side by side, of many below each other; the best of each task has a star."""
    shown = {
        task: [f"{value:.{measured.digits}f}{'*' if value == max(values) else ''}" for value in values]
        for task, values in measured.scores.items()
    }
    if len(names) > BESIDE:
        title = f"{measured.what}; the reports (--json, --report) have the differences from the first model and their p"
        console.table(title, ["model", *shown], [list(row) for row in zip(names, *shown.values(), strict=True)])
        return
    for i, found in enumerate(measured.differences, 1):
        for task, each in found.items():
            if task in shown:
                shown[task][i] += f" ({each.difference:+.{measured.digits}f}, p {each.p:.3f})"
    title = f"{measured.what}, with the difference from the first model and its p"
    console.table(title, ["task", *names], [[task, *cells] for task, cells in shown.items()])


def _show_against(named: str, compared: list[Against], digits: int) -> None:
    """Print measured scores beside printed ones."""
    runs = compared[0].runs
    what = f"mean of {runs} models; range of 95 % of further seeds" if runs > 1 else "range: the 95 % interval"
    rows = []
    for one in compared:
        between = "" if one.range is None else f"{one.range[0]:.{digits}f} to {one.range[1]:.{digits}f}"
        within = "" if one.within is None else "yes" if one.within else "no"
        numbers = (f"{one.measured:.{digits}f}", f"{one.published:.{digits}f}", f"{one.difference:+.{digits}f}")
        rows.append([one.task, *numbers, between, within])
    columns = ["task", "measured", "published", "difference", "range", "within"]
    console.table(f"against {named}; {what}", columns, rows)


def task_names(tasks: str | None) -> list[str] | None:
    """Read ``A,B``.

    Raises:
        InputError: if it names nothing.
    """
    names = [name.strip() for name in tasks.split(",") if name.strip()] if tasks is not None else None
    if names == []:
        raise InputError("--tasks names no task")
    return names
