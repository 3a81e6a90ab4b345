"""The page of scores: its tables, further sections, and how the scores were measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sentcli import __version__
from sentcli.evaluation.scores import AVERAGE, ModelScores
from sentcli.evaluation.systems import Pattern, label_of
from sentcli.pages import comparisons, protocols, score_tables
from sentcli.pages.leaders import leaders
from sentcli.pages.names import ShortNames, short_names
from sentcli.pages.page import PLAIN, Page, Section, Style
from sentcli.pages.score_figure import score_figure
from sentcli.pages.score_report import ScoreReport
from sentcli.pages.score_tables import ScoreTable
from sentcli.pages.weights import equal_because
from sentcli.pages.write import write_page
from sentcli.table import Table


@dataclass(frozen=True)
class Choices:
    """The user's choices for a page of scores."""

    title: str | None = None
    groups: tuple[Pattern, ...] = ()
    """Patterns of models that are seeds of one system."""
    names: tuple[Pattern, ...] = ()
    """Labels of models."""
    style: Style = PLAIN
    summary: tuple[str, ...] = ()
    """Sentences of the summary behind those about the scores."""
    tables_only: bool = False
    """Show the tables of scores alone, for another document."""
    more_names: tuple[str, ...] = ()
    """Names of models and runs that further sections of the page show."""


def shown_names(runs: Sequence[ModelScores], choices: Choices) -> ShortNames:
    """Return what a page shows of the names that have no label of the user's, in all of its sections."""
    unlabelled = [run.model for run in runs if label_of(run, choices.names) is None]
    return short_names([*unlabelled, *choices.more_names])


def write_score_page(
    runs: Sequence[ModelScores], files: Sequence[Path], choices: Choices = Choices(), more: Sequence[Section] = ()
) -> None:
    """Write a page of scores; only HTML shows the figure of a table, since other formats would need a folder for it."""
    for file in files:
        page = score_page(runs, choices, more, figures=file.suffix.lower() == ".html")
        write_page(page, file, choices.style)


def score_page(
    runs: Sequence[ModelScores], choices: Choices = Choices(), more: Sequence[Section] = (), *, figures: bool = True
) -> Page:
    """Return the page of scores.

    Args:
        runs: scores of any commands and protocols.
        choices: title, groups of seeds, labels and style.
        more: further sections, between the scores and how they were measured.
        figures: draw the scores.
    """
    names = shown_names(runs, choices)
    report = ScoreReport.of(runs, choices.groups, choices.names, names.shown)
    tables = report.tables
    if choices.tables_only:
        of_scores = [Section(table.title, table=score_tables.score_table(table)) for table in tables]
        return Page(choices.title or "Scores", [*of_scores, *more], tables_only=True)
    sections: list[Section] = []
    for table in tables:
        sections += _sections(report, table, choices.style, figures=figures)
    costs = report.costs
    if costs is not None:
        sections.append(Section("What each model costs", table=costs))
    sections += more
    if tables:
        sections += _how_measured(tables)
    source = f"Made by sentcli {__version__}"
    if runs:
        commands = dict.fromkeys(run.command for run in runs)
        source += f" from the results of {', '.join(commands)}"
    # all tables of one's own data share a sentence if they have several systems
    verdict = report.verdict
    summary = []
    if verdict:
        summary.append(verdict)
    for table in tables:
        if not verdict or not table.is_own:
            summary.append(_summary(table))
    text = (*summary, *choices.summary, *names.notes)
    return Page(choices.title or _title(tables), tuple(sections), text, f"{source}.")


def _title(tables: Sequence[ScoreTable]) -> str:
    """Return the title of a page, which names a single model."""
    labels: set[str] = set()
    for table in tables:
        labels.update(system.label for system in table.systems)
    if not labels:
        return "Report"
    if len(labels) == 1:
        return f"Evaluation of {labels.pop()}"
    return f"Evaluation of {len(labels)} models"


def _summary(table: ScoreTable) -> str:
    """Return a sentence that names the best model of a table."""
    title = table.title
    leading = leaders(table)
    if leading is None:
        return f"{title}: no model has all scores."
    column = table.columns[-1]
    measure = f"{table.axis} on {score_tables.short_task(column)}"
    if column == AVERAGE:
        measure = f"average {table.axis}"
    value = f"{leading.value:{table.format_of(column)}} ({measure})"
    names = leading.names
    best = leading.best
    others = leading.others
    because = equal_because(best)
    count = len(best) + len(others)
    if leading.all_equal:
        return f"{title}: all {count} models have {value}{because}."
    if len(best) > 1:
        return f"{title}: {names} have {value}, the best of {count} models{because}."
    if count == 1:
        return f"{title}: {names} has {value}."
    second = others[0]
    reservation = comparisons.reservation(best[0], second, column)
    if reservation:
        return f"{title}: {names} has {value}, {reservation}."
    return f"{title}: {names} has {value}, the best of {count} models."


def _sections(report: ScoreReport, table: ScoreTable, style: Style, *, figures: bool) -> Iterator[Section]:
    """Yield the sections of a table of scores; their titles name the table if there are several tables."""
    of_table = f": {table.title}" if len(report.tables) > 1 else ""
    figure = None
    if figures:
        figure = score_figure(table, intervals=style.intervals is not False)
    yield Section(table.title, table=score_tables.score_table(table), figure=figure)
    for against in score_tables.against_tables(table):
        yield Section(f"Against print{of_table}", table=against, level=3)
    comparison = report.comparison_behind(table)
    lacking = comparisons.not_compared(table)
    if comparison is not None:
        title = f"Differences between models{of_table}"
        level = 3
        if table.is_own:
            title = "Differences between models on your own data"
            level = 2
        yield Section(title, lacking, table=comparison.table(narrow=comparison.grouped), level=level)
    elif lacking and not table.is_own:
        yield Section(f"Differences between models{of_table}", lacking, level=3)
    subsets = score_tables.subset_table(table)
    if subsets is not None:
        yield Section(f"Subsets{of_table}", table=subsets, level=3, folded=True)
    measures = score_tables.measure_table(table)
    if measures is not None:
        yield Section(f"Further measures{of_table}", table=measures, level=3, folded=True)


def _how_measured(tables: Sequence[ScoreTable]) -> Iterator[Section]:
    """Yield protocols, versions and commands."""
    yield Section("How it was measured")
    versions = []
    commands: dict[str, None] = {}
    for table in tables:
        settings = []
        for scores in table.models:
            choices = dict(scores.protocol)
            if scores.seconds is not None:
                choices["seconds"] = round(scores.seconds, 1)
            settings.append((scores.label, choices))
            environment = {}
            for key, value in scores.environment.items():
                if value is not None and key not in scores.protocol and key != "training":
                    environment[key] = value
            versions.append((scores.label, environment))
            if scores.command_line:
                commands[scores.command_line] = None
        shown = choices_table(f"Settings of {table.title}", settings)
        yield Section(f"Protocol: {table.title}", table=shown, level=3, folded=True)
    shown = choices_table("Versions and hardware", versions)
    if shown.rows:
        yield Section("Environment", table=shown, level=3, folded=True)
    if commands:
        hint = "What measured the scores; put in the places of models and data that hold on your machine."
        yield Section("Commands", text=(hint,), code=tuple(commands), level=3, folded=True)


def choices_table(title: str, labelled: Sequence[tuple[str, Mapping[str, Any]]]) -> Table:
    """Return the table of the choices of models; a choice in which they differ has a row for each value.

    Args:
        title: of the table.
        labelled: label and choices of each model.
    """
    labels_by_value: dict[str, dict[str, list[str]]] = {}  # for each choice
    for label, values in labelled:
        for key, value in values.items():
            labels = labels_by_value.setdefault(key, {})
            words = protocols.value_words(value)
            labels.setdefault(words, []).append(label)
    rows = []
    for key, labels in labels_by_value.items():
        setting = key.replace("_", " ")
        for value, of_value in labels.items():
            models = ", ".join(dict.fromkeys(of_value))
            if len(of_value) == len(labelled):
                models = "all"
            rows.append([setting, value, models])
    return Table(title, ["setting", "value", "of"], rows, wide=("value", "of"))
