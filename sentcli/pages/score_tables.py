"""Tables of scores, with rows for models and columns for tasks and their average as in papers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from sentcli.evaluation.known_sets import canonical, known_sets
from sentcli.evaluation.score_kinds import LABELS, RETRIEVAL, TRANSFER, TRIPLETS, ScoreKind
from sentcli.evaluation.scores import AVERAGE, ModelScores
from sentcli.evaluation.systems import System
from sentcli.pages import protocols
from sentcli.pages.weights import weights_notes
from sentcli.table import MISSING, Table, format_apart

SHORT_AVERAGE = "Avg."
_SHORT_NAMES = {
    "STSBenchmark": "STS-B",
    "SICKRelatedness": "SICK-R",
    "SICKEntailment": "SICK-E",
    AVERAGE: SHORT_AVERAGE,
}
"""The short names of tasks, as papers print them."""
for facts in known_sets().values():
    _SHORT_NAMES |= dict.fromkeys((facts.name, *facts.aliases), facts.short or facts.title)
_COLUMN_ORDER = (
    *("STS12", "STS13", "STS14", "STS15", "STS16", "STSBenchmark", "SICKRelatedness"),
    *("MR", "CR", "SUBJ", "MPQA", "SST2", "SST5", "TREC", "MRPC", "SICKEntailment"),
    *known_sets(),
)
"""The order of the columns; other tasks come last, in the order in which they were read."""
MOST_LISTED = 6
"""A table with more rows than this does not list the settings of each model below it."""


@dataclass(frozen=True)
class ScoreTable:
    """Systems under one protocol."""

    title: str
    """If a page has several tables of a kind, it names the difference of the protocols."""
    systems: tuple[System, ...]

    @property
    def models(self) -> list[ModelScores]:
        """The scores of all systems, those of each seed on their own."""
        return list(chain.from_iterable(system.seeds for system in self.systems))

    @property
    def kind(self) -> ScoreKind:
        """The kind of the tasks."""
        return self.models[0].kinds[0]

    @property
    def axis(self) -> str:
        """The name of the numbers with their unit."""
        return protocols.axis(self.models[0])

    @property
    def is_own(self) -> bool:
        """Whether the scores are those of ``evaluate``."""
        return all(scores.command == "evaluate" for scores in self.models)

    @property
    def grouped(self) -> bool:
        """Whether a system is a group of seeds."""
        return any(system.grouped for system in self.systems)

    @property
    def format(self) -> str:
        """The format specification of scores that stand alone; see `format_of`."""
        return f".{self.kind.digits}f"

    def format_of(self, column: str) -> str:
        """Return the format of the scores of a task or the average, with the digits that tell its systems apart."""
        means = []
        for system in self.systems:
            mean, _ = system.mean_and_deviation(column)
            means.append(mean)
        return format_apart(means, self.kind.digits)

    @property
    def finest(self) -> str:
        """The format of a task's scores that has the most digits, for tables of several metrics."""
        return max(map(self.format_of, self.tasks), default=self.format)

    @property
    def tasks(self) -> list[str]:
        """The columns of scores, in the order of the papers."""
        titles: dict[str, None] = {}
        for scores in self.models:
            for title, _, _ in scores.columns(self.kind):
                titles[title] = None
        return sorted(titles, key=_place)

    @property
    def columns(self) -> list[str]:
        """The tasks, and the average if there is one."""
        tasks = self.tasks
        if len(tasks) > 1 and self.kind.average:
            return [*tasks, AVERAGE]
        return tasks

    @property
    def published(self) -> dict[str, Mapping[str, Any]]:
        """The comparisons with published systems, by the name of the system."""
        return {scores.against["name"]: scores.against for scores in self.models if scores.against}


def _place(task: str) -> int:
    """Return the place of a task among the columns."""
    name = canonical(task)
    return _COLUMN_ORDER.index(name) if name in _COLUMN_ORDER else len(_COLUMN_ORDER)


def short_task(task: str) -> str:
    """Return the short name of a task, as papers print it."""
    return _SHORT_NAMES.get(task, task)


def score_table(table: ScoreTable) -> Table:
    """Return the table as a paper prints it: a row for each system, a column for each task, and the average."""
    heads = {column: short_task(column) for column in table.columns}
    before = ["model", "n"] if table.grouped else ["model"]
    rows = []
    intervals = {}
    deviations = {}
    printed = {}
    for number, system in enumerate(table.systems):
        row: list[Any] = [system.label]
        if table.grouped:
            row.append(len(system.seeds))
        for column, head in heads.items():
            mean, deviation = system.mean_and_deviation(column)
            row.append(mean)
            if deviation is not None and system.grouped:
                deviations[number, head] = deviation
            interval = system.interval(column)
            if interval is not None:
                intervals[number, head] = interval
        rows.append(row)
    for against in table.published.values():
        row = [published_label(against)]
        if table.grouped:
            row.append(None)
        for column in heads:
            value = published_value(against, column)
            if isinstance(value, float):
                printed[len(rows), len(row)] = f"{value:{table.format}}"
            row.append(value)
        rows.append(row)
    return Table(
        f"{table.title}: {table.axis}",
        [*before, *heads.values()],
        rows,
        formats={head: table.format_of(column) for column, head in heads.items()},
        ranked=list(heads.values()),
        intervals=intervals,
        deviations=deviations,
        published=len(table.published),
        texts=printed,
        notes=_notes(table, gaps=any(None in row for row in rows)),
        interval_note=_interval_note(table.models[0]) if intervals else "",
    )


def published_label(against: Mapping[str, Any]) -> str:
    """Return the label of the row of a published system."""
    title = against.get("title", against["name"])
    label = f"published: {title}"
    source = against.get("source")
    if source:
        label += f" ({source})"
    return label


def published_value(against: Mapping[str, Any], column: str) -> float | None:
    """Return the score of a published system in a column; None if it is not printed or not to be compared."""
    task: Mapping[str, float | None] = against["tasks"].get(column, {})
    return task.get("published")


def _notes(table: ScoreTable, *, gaps: bool) -> list[str]:
    """Return the notes on the protocol, the settings of the models, and the signs in the table."""
    notes = [f"Protocol: {protocols.protocol_note(table.models[0])}", *_settings(table)]
    if AVERAGE in table.columns:
        rounded = "sets" if table.kind.average == "plain" else "tasks, each rounded to two decimals first"
        notes.append(f"Avg.: mean of the {len(table.tasks)} {rounded}.")
    notes += weights_notes(table.systems)
    if table.grouped:
        notes.append("n: seeds of one system, shown as mean \N{PLUS-MINUS SIGN} sample standard deviation.")
    lacking = _lacking_notes(table)
    notes += lacking
    if gaps and not lacking:
        notes.append(f"{MISSING}: not measured, not by every seed, or not to be compared with print.")
    if table.published:
        notes.append("Published rows are taken from print and are not ranked.")
    return notes


def _lacking_notes(table: ScoreTable) -> list[str]:
    """Return a sentence for each score that a model does not have, and for each average that it would be part of."""
    notes = []
    for scores in table.models:
        for task, reason in scores.lacking.items():
            notes.append(f"{MISSING}: {scores.label} has no score on {short_task(task)}: {reason}.")
        if scores.lacking and AVERAGE in table.columns:
            without = ", ".join(map(short_task, scores.lacking))
            notes.append(f"{MISSING}: {scores.label} has no average, which would lack {without}.")
    return notes


def _settings(table: ScoreTable) -> list[str]:
    """Return the settings of the models: those of all, and of each of a few rows those that tell it apart."""
    notes = []
    models = table.models
    systems = table.systems
    of_models = list(map(protocols.model_choices, models))
    common = protocols.without(of_models[0], protocols.different_keys(of_models))
    if common:
        subject = "All models" if len(models) > 1 else "Model"
        notes.append(f"{subject}: {protocols.as_phrase(common)}.")
    if len(systems) > MOST_LISTED:
        return notes
    choices = []
    for system in systems:
        of_model = protocols.model_choices(system.seeds[0])
        choices.append(protocols.without_names(of_model))
    labels: dict[str, list[str]] = {}
    for system, own in zip(systems, protocols.distinct_choices(choices), strict=True):
        words = protocols.as_phrase(own)
        label = system.label
        if words and not label.endswith(f"({words})"):
            labels.setdefault(words, []).append(label)
    for words, alike in labels.items():
        notes.append(f"{', '.join(alike)}: {words}.")
    return notes


def _interval_note(scores: ModelScores) -> str:
    kind = scores.kinds[0]
    if kind in (TRANSFER, TRIPLETS, LABELS):
        return f"Intervals: 95 % (mid-P), over the {kind.sampled}; they tell nothing of other seeds."
    draws = scores.protocol.get("interval_draws")
    if not isinstance(draws, int) or draws == 0:
        draws = 1000
    return f"Intervals: 95 %, from {draws:,} samples of the {kind.sampled}; they tell nothing of other seeds."


def against_tables(table: ScoreTable) -> list[Table]:
    """Return measured scores beside published ones, a table for each published system."""
    return [_against_table(table, against) for against in table.published.values()]


def _against_table(table: ScoreTable, against: Mapping[str, Any]) -> Table:
    """Return the measured scores beside those of a published system."""
    rows: dict[tuple[Any, ...], list[Any]] = {}
    ranges: dict[str, None] = {}
    name = against["name"]
    for scores in table.models:
        if scores.against.get("name") != name:
            continue
        for task, line in scores.against["tasks"].items():
            low, high = line["range"] or (None, None)
            within = {True: "yes", False: "no"}.get(line["within"], MISSING)
            entries = [short_task(task), line["measured"], line["published"], line["difference"], low, high, within]
            more = line["runs"] - 1
            if more:  # each of the seeds has the line of their mean
                ranges["where 95 % of further seeds would lie, if they are normally distributed"] = None
                rows.setdefault(tuple(entries), [f"mean of {scores.label} and {more} more", *entries])
            else:
                ranges["the 95 % interval of a single model"] = None
                rows[scores.label, *entries] = [scores.label, *entries]
    source = against.get("source") or f"known as {name}; its source is not known"
    notes = [
        f"Published: {source}.",
        f"From, to: {' or '.join(ranges)}; within: whether the published score lies in it.",
    ]
    columns = ["model", "task", "measured", "published", "difference", "95 % from", "to", "within"]
    formats = dict.fromkeys(columns[2:7], table.format)
    formats["difference"] = f"+{table.format}"
    title = f"Measured and published: {against.get('title', name)}"
    return Table(title, columns, list(rows.values()), formats, notes=notes)


def subset_table(table: ScoreTable) -> Table | None:
    """Return the scores of the subsets, or None if no task has several."""
    models = table.models
    rows: dict[tuple[str, str], list[Any]] = {}  # by task and subset
    for column, scores in enumerate(models, 2):
        for task in scores.tasks:
            subsets = task.details.get("subsets")
            if not subsets:
                subsets = {part.task: part.value for part in task.parts}
            if len(subsets) < 2:
                continue
            for name, score in subsets.items():
                empty = [short_task(task.task), name, *[None] * len(models)]
                row = rows.setdefault((task.task, name), empty)
                row[column] = score
    if not rows:
        return None
    labels = [scores.label for scores in models]
    title = f"{table.title}: {table.axis} of each subset"
    formats = dict.fromkeys(labels, table.finest)
    return Table(title, ["task", "subset", *labels], list(rows.values()), formats)


def measure_table(table: ScoreTable) -> Table | None:
    """Return all metrics and counts of each task, or None if there are no others than the scores."""
    titles = _measures(table)
    if len(titles) < 2:
        return None
    rows: list[list[Any]] = []
    intervals = {}
    formats = {}
    finest = table.finest
    for scores in table.models:
        for task in scores.tasks:
            values = {**task.details, **task.metrics}
            for metric, title in titles.items():
                if metric in task.intervals:
                    intervals[len(rows), title] = task.intervals[metric]
                if metric in task.metrics:
                    formats[title] = ".4f" if title == "squared error" else finest
            rows.append([scores.label, short_task(task.task), *map(values.get, titles)])
    scale = "times 100" if table.kind.highest > 1 else "from 0 to 1"
    if table.kind is RETRIEVAL:
        scale += ", as BEIR prints it"
    caption = f"{table.title}: everything that was measured, {scale}"
    notes = []
    if len(table.columns) == 1:  # else the table of scores has them
        notes = _lacking_notes(table)
    return Table(caption, ["model", "task", *titles.values()], rows, formats, intervals=intervals, notes=notes)


def _measures(table: ScoreTable) -> dict[str, str]:
    """Return the metrics and counts that some task has, with the titles of their columns."""
    titles = dict(table.kind.columns)
    of_sets = table.kind is RETRIEVAL
    others: list[str] = []
    measured: set[str] = set()
    for scores in table.models:
        for task in scores.tasks:
            others += task.metrics if of_sets else task.shown_metrics
            measured.update(task.metrics, task.details)
    # a search with a small --top-k has other metrics than those of the table: all of them are shown
    if not of_sets or titles.keys().isdisjoint(others):
        for metric in others:
            titles.setdefault(metric, metric)
    return {key: title for key, title in titles.items() if key in measured}
