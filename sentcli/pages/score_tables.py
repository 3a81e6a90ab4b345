"""Tables of scores, with rows for models and columns for tasks and their average as in papers; and their figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from sentcli.evaluation.retrieval import canonical, known_sets
from sentcli.evaluation.score_kinds import LABELS, RETRIEVAL, TRANSFER, TRIPLETS, ScoreKind
from sentcli.evaluation.scores import AVERAGE, ModelScores
from sentcli.pages import style, systems
from sentcli.pages.leaders import weights_notes
from sentcli.pages.page import Figure
from sentcli.pages.systems import System
from sentcli.table import MISSING, Table, format_apart

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

SHORT = {
    **{"STSBenchmark": "STS-B", "SICKRelatedness": "SICK-R", "SICKEntailment": "SICK-E", AVERAGE: "Avg."},
    **{alias: facts.short or facts.title for facts in known_sets().values() for alias in (facts.name, *facts.aliases)},
}
"""The short names of tasks, as papers print them."""
ORDER = (
    *("STS12", "STS13", "STS14", "STS15", "STS16", "STSBenchmark", "SICKRelatedness"),
    *("MR", "CR", "SUBJ", "MPQA", "SST2", "SST5", "TREC", "MRPC", "SICKEntailment"),
    *known_sets(),
)
"""The order of the columns; other tasks come last, in the order in which they were read."""


@dataclass(frozen=True)
class ScoreTable:
    """Systems under one protocol."""

    title: str
    """If a page has several tables of a kind, it names the difference of the protocols."""
    systems: tuple[System, ...]

    @property
    def models(self) -> list[ModelScores]:
        """The scores of all systems, those of each seed on their own."""
        return [scores for system in self.systems for scores in system.seeds]

    @property
    def kind(self) -> ScoreKind:
        """The kind of the tasks."""
        return self.models[0].kinds[0]

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
        return format_apart((system.spread(column, self.columns)[0] for system in self.systems), self.kind.digits)

    @property
    def finest(self) -> str:
        """The format of a task's scores that has the most digits, for tables of several metrics."""
        return max(map(self.format_of, self.tasks), default=self.format)

    @property
    def tasks(self) -> list[str]:
        """The columns of scores, in the order of the papers."""
        titles = dict.fromkeys(title for scores in self.models for title, _, _ in scores.columns(self.kind))
        return sorted(titles, key=lambda task: ORDER.index(name) if (name := canonical(task)) in ORDER else len(ORDER))

    @property
    def columns(self) -> list[str]:
        """The tasks, and the average if there is one."""
        return [*self.tasks, AVERAGE] if len(self.tasks) > 1 and self.kind.average else self.tasks

    @property
    def published(self) -> dict[str, Mapping[str, Any]]:
        """The comparisons with published systems, by the name of the system."""
        return {scores.against["name"]: scores.against for scores in self.models if scores.against}


def short(task: str) -> str:
    """Return the short name of a task, as papers print it."""
    return SHORT.get(task, task)


def score_table(table: ScoreTable) -> Table:
    """Return the table as a paper prints it: a row for each system, a column for each task, and the average."""
    has_seeds, columns = table.grouped, table.columns
    rows: list[list[Any]] = []
    intervals, deviations = {}, {}
    for i, system in enumerate(table.systems):
        row: list[Any] = [system.label, *([len(system.seeds)] if has_seeds else [])]
        for column in columns:
            mean, sd = system.spread(column, columns)
            row.append(mean)
            if sd is not None and system.grouped:
                deviations[i, short(column)] = sd
            if (interval := system.interval(column, columns)) is not None:
                intervals[i, short(column)] = interval
        rows.append(row)
    for against in table.published.values():
        tasks = against["tasks"]
        values = [tasks[column]["published"] if column in tasks else None for column in columns]
        rows.append([published_label(against), *([None] if has_seeds else []), *values])
    printed = {
        (i, j): f"{value:{table.format}}"
        for i, row in enumerate(rows)
        for j, value in enumerate(row)
        if i >= len(table.systems) and isinstance(value, float)
    }
    return Table(
        f"{table.title}: {systems.axis(table.models[0])}",
        ["model", *(["n"] if has_seeds else []), *map(short, columns)],
        rows,
        formats={short(column): table.format_of(column) for column in columns},
        ranked=[short(column) for column in columns],
        intervals=intervals,
        deviations=deviations,
        published=len(table.published),
        texts=printed,
        notes=_notes(table, gaps=any(value is None for row in rows for value in row)),
        interval_note=_interval_note(table.models[0]) if intervals else "",
    )


def published_label(against: Mapping[str, Any]) -> str:
    """Return the label of the row of a published system."""
    source = f" ({against['source']})" if against.get("source") else ""
    return f"published: {against.get('title', against['name'])}{source}"


def _notes(table: ScoreTable, *, gaps: bool) -> list[str]:
    """Return the notes on the protocol, the settings of the models, and the signs in the table."""
    notes = [f"Protocol: {systems.protocol_note(table.models[0])}"]
    choices = [systems.model_choices(scores) for scores in table.models]
    if common := systems.common_choices(choices):
        notes.append(f"{'All models' if len(table.models) > 1 else 'Model'}: {systems.words(common)}.")
    if len(table.systems) <= 6:  # A table with more rows than this does not list the settings of each model below it
        distinct = systems.distinct_choices(
            [systems.without_names(systems.model_choices(system.seeds[0])) for system in table.systems]
        )
        labels: dict[str, list[str]] = {}
        for system, own in zip(table.systems, distinct, strict=True):
            words = systems.words(own)
            if words and not system.label.endswith(f"({words})"):
                labels.setdefault(words, []).append(system.label)
        notes += [f"{', '.join(alike)}: {words}." for words, alike in labels.items()]
    if AVERAGE in table.columns:
        rounded = "sets" if table.kind.average == "plain" else "tasks, each rounded to two decimals first"
        notes.append(f"Avg.: mean of the {len(table.tasks)} {rounded}.")
    notes += weights_notes(table.systems)
    if table.grouped:
        notes.append("n: seeds of one system, shown as mean \N{PLUS-MINUS SIGN} sample standard deviation.")
    if gaps:
        notes.append(f"{MISSING}: not measured, not by every seed, or not to be compared with print.")
    if table.published:
        notes.append("Published rows are taken from print and are not ranked.")
    return notes


def _interval_note(scores: ModelScores) -> str:
    if scores.kinds[0] in (TRANSFER, TRIPLETS, LABELS):
        return f"Intervals: 95 % (mid-P), over the {scores.kinds[0].sampled}; they tell nothing of other seeds."
    draws = scores.protocol.get("interval_draws")
    samples = f"{draws:,} samples" if isinstance(draws, int) and draws else "1,000 samples"
    return f"Intervals: 95 %, from {samples} of the {scores.kinds[0].sampled}; they tell nothing of other seeds."


def against_tables(table: ScoreTable) -> list[Table]:
    """Return measured scores beside published ones, a table for each published system."""
    tables = []
    for against in table.published.values():
        rows, runs = [], 1
        for scores in table.models:
            if scores.against.get("name") != against["name"]:
                continue
            for task, line in scores.against["tasks"].items():
                runs = max(runs, line["runs"])
                low, high = line["range"] or (None, None)
                values = (line["measured"], line["published"], line["difference"], low, high)
                within = {True: "yes", False: "no"}.get(line["within"], MISSING)
                label = f"mean of {line['runs']} models" if line["runs"] > 1 else scores.label
                rows.append([label, short(task), *values, within])
        rows = [list(row) for row in dict.fromkeys(map(tuple, rows))]  # each of several models has the row of the mean
        of_seeds = "where 95 % of further seeds would lie, if they are normally distributed"
        interval = of_seeds if runs > 1 else "the 95 % interval"
        note = f"From, to: {interval}; within: whether the published score lies in it."
        source = against.get("source") or f"known as {against['name']}; its source is not known"
        columns = ["model", "task", "measured", "published", "difference", "95 % from", "to", "within"]
        numbers = ("measured", "published", "95 % from", "to")
        formats = {"difference": f"+{table.format}", **dict.fromkeys(numbers, table.format)}
        title = f"Measured and published: {against.get('title', against['name'])}"
        tables.append(Table(title, columns, rows, formats, notes=[f"Published: {source}.", note]))
    return tables


def subset_table(table: ScoreTable) -> Table | None:
    """Return the scores of the subsets, or None if no task has several."""
    cells: dict[tuple[str, str], dict[int, float]] = {}
    for i, scores in enumerate(table.models):
        for task in scores.tasks:
            subsets = task.details.get("subsets") or {part.task: part.value for part in task.parts}
            for name, score in subsets.items() if len(subsets) > 1 else ():
                cells.setdefault((task.task, name), {})[i] = score
    if not cells:
        return None
    labels = [scores.label for scores in table.models]
    rows = [[short(task), name, *(values.get(i) for i in range(len(labels)))] for (task, name), values in cells.items()]
    title = f"{table.title}: {systems.axis(table.models[0])} of each subset"
    return Table(title, ["task", "subset", *labels], rows, dict.fromkeys(labels, table.finest))


def measure_table(table: ScoreTable) -> Table | None:
    """Return all metrics and counts of each task, or None if there are no others than the scores."""
    tasks = [(scores.label, task) for scores in table.models for task in scores.tasks]
    titles = dict(table.kind.columns)
    if table.kind is RETRIEVAL:
        if not set(titles) & {key for _, task in tasks for key in task.metrics}:
            # a search with a small --top-k has other metrics than those of the table: all of them are shown
            titles |= {key: key for _, task in tasks for key in task.metrics}
    else:
        titles |= {metric: metric for _, task in tasks for metric in task.headline if metric not in titles}
    keys = [key for key in titles if any(key in task.metrics or key in task.details for _, task in tasks)]
    if len(keys) < 2:
        return None
    rows = [
        [label, short(task.task), *(task.metrics.get(key, task.details.get(key)) for key in keys)]
        for label, task in tasks
    ]
    intervals = {
        (i, titles[metric]): interval
        for i, (_, task) in enumerate(tasks)
        for metric, interval in task.intervals.items()
        if metric in keys
    }
    formats = {titles[key]: table.finest for key in keys if any(key in task.metrics for _, task in tasks)}
    formats |= {"squared error": ".4f"} if "squared error" in formats else {}
    scale = "times 100" if table.kind.highest > 1 else "from 0 to 1"
    scale += ", as BEIR prints it" if table.kind is RETRIEVAL else ""
    caption = f"{table.title}: everything that was measured, {scale}"
    return Table(caption, ["model", "task", *(titles[key] for key in keys)], rows, formats, intervals=intervals)


def score_figure(table: ScoreTable, *, intervals: bool = True) -> Figure | None:
    """Return a figure with a band for each task, or None if there is no score.

    Whiskers are 95 % intervals. A group of seeds has its standard deviation as whiskers, and the seeds as small dots.
    """
    import pandas as pd

    rows = list(_points(table, intervals=intervals))
    if not rows:
        return None
    data = pd.DataFrame(rows).astype({"low": float, "high": float})
    has_whiskers = data["low"].notna()
    kinds = ["95 % interval"] if (has_whiskers & ~data["grouped"]).any() else []
    if (has_whiskers & data["grouped"]).any():
        kinds.append("mean \N{PLUS-MINUS SIGN} standard deviation of the seeds, which are the small dots")
    whiskers = f"Whiskers: {'; of grouped models '.join(kinds)}. " if kinds else ""
    axis = systems.axis(table.models[0])
    return Figure(
        name=f"scores-{table.kind.name.replace(' ', '-')}",
        title=f"{table.title}, by task",
        panels={"scores": partial(_draw, data=data, axis=axis)},
        data=data,
        alt=f"{axis}: {'; '.join(data['label'])}",
        note=f"{whiskers}The axis does not start at zero",
        columns=1,
        size=(5.2, 0.19 * (data["y"].max() + 2) + 0.6),  # height of the line of one score, in inches
    )


def _points(table: ScoreTable, *, intervals: bool) -> Iterator[dict[str, Any]]:
    """Yield a point for each task and model, with the height of its line."""
    y, columns = 0.0, table.columns
    for column in columns:
        scores: list[tuple[str, float | None, System | None]] = []
        scores += [(system.label, system.spread(column, columns)[0], system) for system in table.systems]
        for against in table.published.values():
            scores.append((published_label(against), against["tasks"].get(column, {}).get("published"), None))
        known = [(number, *score) for number, score in enumerate(scores) if score[1] is not None]
        for line, (number, label, score, system) in enumerate(known, 1):
            pattern = table.format if system is None else table.format_of(column)
            low, high = (system and intervals and system.whiskers(column, columns)) or (None, None)
            whisker = "" if low is None else f" ({low:{pattern}} to {high:{pattern}})"
            values = system.values(column, columns) if system else []
            yield {
                **{"panel": "scores", "series": label, "x": score, "y": y + line, "low": low, "high": high},
                **{"number": number, "shown": f"{score:{pattern}}", "seeds": values if len(values) > 1 else []},
                **{"grouped": system is not None and system.grouped, "published": system is None},
                **{"task": short(column), "label": f"{short(column)}, {label}: {score:{pattern}}{whisker}"},
            }
        y += len(known) + 1.4 if known else 0  # space between two tasks, in lines


def _draw(axes: Axes, *, data: pd.DataFrame, axis: str) -> None:
    beside = axes.get_yaxis_transform()
    for task, points in data.groupby("task", sort=False):
        axes.text(0, points["y"].min() - 1, style.short(str(task)), transform=beside, weight="bold", va="center")
    for point in data.itertuples():
        look = _look(point.number, published=point.published)
        if point.low == point.low:
            axes.hlines(point.y, point.low, point.high, color=look["color"], alpha=0.65, linewidth=1.6)
        axes.plot(point.seeds, [point.y] * len(point.seeds), "o", color=look["color"], alpha=0.55, markersize=2.5)
        axes.plot(point.x, point.y, **look)
        axes.text(1.02, point.y, point.shown, transform=beside, va="center", fontsize=8)
    for first in data.drop_duplicates("series").itertuples():
        axes.plot([], [], label=first.series, linestyle="", **_look(first.number, published=first.published))
    axes.set(yticks=[], ylim=(data["y"].max() + 0.8, -0.8), xlabel=axis)
    axes.spines["left"].set_visible(False)


def _look(series: int, *, published: bool) -> dict[str, Any]:
    """Return marker and colour of a model; a published score has an open marker."""
    if published:
        return {"marker": style.marker(series), "color": style.INK, "markerfacecolor": "none", "markersize": 5.5}
    return {"marker": style.marker(series), "color": style.colour(series), "markersize": 5.5}
