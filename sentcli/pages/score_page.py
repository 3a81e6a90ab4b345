"""The page of scores: its tables, further sections, and how the scores were measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sentcli import __version__
from sentcli.evaluation.scores import AVERAGE, ModelScores
from sentcli.model.served import RequestCounts
from sentcli.pages import comparisons, protocols, score_tables, systems
from sentcli.pages.leaders import leaders
from sentcli.pages.names import ShortNames, short_names
from sentcli.pages.page import PLAIN, Page, Section, Style
from sentcli.pages.score_figure import score_figure
from sentcli.pages.score_tables import ScoreTable
from sentcli.pages.systems import Pattern, check_patterns
from sentcli.pages.weights import equal_because
from sentcli.pages.write import write_page
from sentcli.table import Table

COSTS = {
    "texts_per_second": "texts a second",
    "dimensions": "dimensions",
    "bytes_per_vector": "bytes a vector",
    "weight_bytes": "weights",
    "first_vector_seconds": "seconds to the first vector",
    "rerank_milliseconds": "ms a query to rerank",
}
"""The columns of costs, with their titles; one that no model has is left out."""


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
    unlabelled = [run.model for run in runs if systems.label_of(run, choices.names) is None]
    return short_names([*unlabelled, *choices.more_names])


def score_tables_of(
    runs: Sequence[ModelScores], choices: Choices = Choices(), shown: Mapping[str, str] = MappingProxyType({})
) -> list[ScoreTable]:
    """Return the tables of scores; each table has one protocol.

    Args:
        runs: scores of any commands and protocols.
        choices: groups of seeds, and labels.
        shown: labels of models for which the user has chosen none; by default their names.

    Raises:
        InputError: if a pattern matches nothing, or the seeds of a system differ in a setting.
    """
    check_patterns(choices.groups, runs)
    check_patterns(choices.names, runs)
    groups = systems.tables(runs)
    first_of_kind: dict[str, list[ModelScores]] = {}  # a model of each table, by the title of its kind
    for first, *_ in groups:
        first_of_kind.setdefault(first.kinds[0].title, []).append(first)
    tables = []
    for group in groups:
        title = group[0].kinds[0].title
        twins = first_of_kind[title]
        if len(twins) > 1:
            mark = _mark(group[0], twins)
            title = f"{title} ({mark})"
        rows = systems.systems_of(group, choices.groups, choices.names, shown)
        tables.append(ScoreTable(title, tuple(rows)))
    return tables


def _mark(first: ModelScores, twins: Sequence[ModelScores]) -> str:
    """Return what differs from the protocols of other tables of the same kind, to tell a table apart from them.

    Args:
        first: of the models of a table.
        twins: the first model of each table of this kind.
    """
    measured = []
    number = 0
    for place, twin in enumerate(twins):
        score = protocols.measure(twin)
        measured.append({"score": score, **protocols.common_protocol(twin)})
        if twin is first:
            number = place
    keys = protocols.different_keys(measured)
    different = protocols.of_keys(measured[number], keys)
    name = different.get("name")
    if name:
        return str(name)
    return protocols.words(different) or f"data {number + 1} of {len(twins)}"


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
    tables = score_tables_of(runs, choices, names.shown)
    if choices.tables_only:
        of_scores = [Section(table.title, table=score_tables.score_table(table)) for table in tables]
        return Page(choices.title or "Scores", [*of_scores, *more], tables_only=True)
    sections: list[Section] = []
    for table in tables:
        sections += _sections(table, choices.style, named=len(tables) > 1, figures=figures)
    own = [table for table in tables if table.is_own]
    compared = comparisons.own_comparison(own)
    if compared is not None:
        sections.append(Section("Differences between models on your own data", table=compared))
    costs = cost_table(runs, names.shown)
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
    verdict = comparisons.verdict(own)
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


def cost_table(runs: Sequence[ModelScores], shown: Mapping[str, str] = MappingProxyType({})) -> Table | None:
    """Return what each model costs, or None if that was not measured; `shown` has what is shown of their names."""
    costs: dict[str, Mapping[str, Any]] = {}
    measured: set[str] = set()
    texts = set()
    for run in runs:
        if run.cost:
            label = run.label
            costs[shown.get(label, label)] = run.cost
    if not costs:
        return None
    for cost in costs.values():
        measured.update(cost)
        texts.add(cost.get("texts"))
    columns = [key for key in COSTS if key in measured]
    heads = ["model", *[COSTS[key] for key in columns]]
    note = (
        f"Texts a second: {' or '.join(map(str, texts))} texts of the data, without the cache; the first vector: from "
        "the loading of the model, with the libraries loaded before."
    )
    rows: list[list[Any]] = []
    megabytes = {}
    sent = []
    for label, cost in costs.items():
        size = cost.get("weight_bytes")
        if size is not None:
            place = 1 + columns.index("weight_bytes")
            megabytes[len(rows), place] = f"{size / 1e6:,.1f} MB"
        rows.append([label, *map(cost.get, columns)])
        sent.append(_sent_requests(cost))
    if any(sent):
        heads.append("sent to its host")
        rows = [[*row, requests] for row, requests in zip(rows, sent, strict=True)]
        note += " Those of a model that is served are with its host and the network; what the cache had was not sent."
    title = "What each model costs on this machine"
    device = runs[0].environment.get("device")
    if device:
        title += f" ({device})"
    formats = {"texts a second": ",.0f", "ms a query to rerank": ",.1f"}
    return Table(title, heads, rows, formats=formats, texts=megabytes, notes=[note])


def _sent_requests(cost: Mapping[str, Any]) -> str | None:
    """Return what was sent to the host of a model, in words; None if nothing was."""
    counts = [cost.get(f"sent_{count.name}") or 0 for count in fields(RequestCounts)]
    sent = RequestCounts(*counts)
    return str(sent) if sent.requests else None


def _summary(table: ScoreTable) -> str:
    """Return a sentence that names the best model of a table."""
    title = table.title
    leading = leaders(table)
    if leading is None:
        return f"{title}: no model has all scores."
    column = table.columns[-1]
    measure = f"{table.axis} on {score_tables.short(column)}"
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
    if comparisons.may_be_chance(best[0], second, column):
        return f"{title}: {names} has {value}, which is not told apart from {second.label}."
    return f"{title}: {names} has {value}, the best of {count} models."


def _sections(table: ScoreTable, style: Style, *, named: bool, figures: bool) -> Iterator[Section]:
    """Yield the sections of a table of scores; their titles name the table if there are several tables."""
    of_table = f": {table.title}" if named else ""
    figure = None
    if figures:
        figure = score_figure(table, intervals=style.intervals is not False)
    yield Section(table.title, table=score_tables.score_table(table), figure=figure)
    for against in score_tables.against_tables(table):
        yield Section(f"Against print{of_table}", table=against, level=3)
    compared = comparisons.comparison_table(table)
    lacking = comparisons.not_compared(table)
    if compared is not None or lacking:
        yield Section(f"Differences between models{of_table}", lacking, table=compared, level=3)
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
