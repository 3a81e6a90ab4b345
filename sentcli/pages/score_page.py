"""The page of scores: its tables, further sections, and how the scores were measured."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sentcli import __version__
from sentcli.evaluation.positives import USUAL_RULE
from sentcli.evaluation.score_kinds import AGGREGATIONS
from sentcli.evaluation.scores import AVERAGE, ModelScores
from sentcli.evaluation.sts import TASKS
from sentcli.model.served import Sent
from sentcli.pages import comparisons, score_tables, systems
from sentcli.pages.leaders import equal_because, leaders
from sentcli.pages.names import ShortNames, short_names
from sentcli.pages.page import PLAIN, Page, Section, Style
from sentcli.pages.score_tables import ScoreTable
from sentcli.pages.systems import Pattern, check_patterns
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
    bare: bool = False
    """Show the tables of scores alone, for another document."""
    more_names: tuple[str, ...] = ()
    """Names of models and runs that further sections of the page show."""


def shown_names(runs: Sequence[ModelScores], choices: Choices) -> ShortNames:
    """Return what a page shows of the names that have no label of the user's, in all of its sections."""
    unlabelled = [run.model for run in runs if not any(name.matches(run) for name in choices.names)]
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
    groups, tables = systems.tables(runs), []
    titles = [group[0].kinds[0].title for group in groups]
    for group, title in zip(groups, titles, strict=True):
        twins = [other for other, name in zip(groups, titles, strict=True) if name == title]
        if len(twins) > 1:  # what differs from the protocols of other tables of the same kind tells them apart
            measured = [{"score": systems.measure(twin[0]), **systems.common_protocol(twin[0])} for twin in twins]
            number = twins.index(group)
            different = systems.different_choices(measured)[number]
            mark = different.get("name") or systems.words(different) or f"data {number + 1} of {len(twins)}"
            title = f"{title} ({mark})"
        tables.append(ScoreTable(title, tuple(systems.systems_of(group, choices.groups, choices.names, shown))))
    return tables


def write_score_page(
    runs: Sequence[ModelScores], files: Sequence[Path], choices: Choices = Choices(), more: Sequence[Section] = ()
) -> None:
    """Write a page of scores; only HTML shows the figure of a table, since other formats would need a folder for it."""
    for file in files:
        write_page(score_page(runs, choices, more, figures=file.suffix.lower() == ".html"), file, choices.style)


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
    if choices.bare:
        of_scores = [Section(table.title, table=score_tables.score_table(table)) for table in tables]
        return Page(choices.title or "Scores", [*of_scores, *more], bare=True)
    sections: list[Section] = []
    for table in tables:
        sections += _sections(table, choices.style, named=len(tables) > 1, figures=figures)
    if (compared := comparisons.own_comparison(tables)) is not None:
        sections.append(Section("Differences between models on your own data", table=compared))
    if (costs := cost_table(runs, names.shown)) is not None:
        sections.append(Section("What each model costs", table=costs))
    sections += [*more, *(_how_measured(tables) if tables else ())]
    own = [table for table in tables if table.is_own]
    verdict = comparisons.verdict(own)  # one sentence for all tables of one's own data that have several systems
    summaries = [_summary(table) for table in tables if not (verdict and table in own)]
    labels = list(dict.fromkeys(system.label for table in tables for system in table.systems))
    title = f"Evaluation of {labels[0] if len(labels) == 1 else f'{len(labels)} models'}" if labels else "Report"
    commands = ", ".join(dict.fromkeys(run.command for run in runs))
    made = f"Made by sentcli {__version__}{f' from the results of {commands}' if commands else ''}."
    text = (*([verdict] if verdict else []), *summaries, *choices.summary, *names.notes)
    return Page(choices.title or title, tuple(sections), text, made)


def cost_table(runs: Sequence[ModelScores], shown: Mapping[str, str] = MappingProxyType({})) -> Table | None:
    """Return what each model costs, or None if that was not measured; `shown` has what is shown of their names."""
    costs = {shown.get(run.label, run.label): run.cost for run in runs if run.cost}
    if not costs:
        return None
    device = next(iter(runs)).environment.get("device")
    keys = [key for key in COSTS if any(key in cost for cost in costs.values())]
    rows = [[label, *(cost.get(key) for key in keys)] for label, cost in costs.items()]
    column, sizes = 1 + list(COSTS).index("weight_bytes"), [cost.get("weight_bytes") for cost in costs.values()]
    megabytes = {(i, column): f"{size / 1e6:,.1f} MB" for i, size in enumerate(sizes) if size is not None}
    texts = {cost.get("texts") for cost in costs.values()}
    note = (
        f"Texts a second: {' or '.join(map(str, texts))} texts of the data, without the cache; the first vector: from "
        "the loading of the model, with the libraries loaded before."
    )
    title = f"What each model costs on this machine{f' ({device})' if device else ''}"
    columns = ["model", *(COSTS[key] for key in keys)]
    formats = {"texts a second": ",.0f", "ms a query to rerank": ",.1f"}
    sent = [Sent(*(cost.get(f"sent_{count.name}") or 0 for count in fields(Sent))) for cost in costs.values()]
    if any(each.requests for each in sent):
        columns.append("sent to its host")
        rows = [[*row, str(each) if each.requests else None] for row, each in zip(rows, sent, strict=True)]
        note += " Those of a model that is served are with its host and the network; what the cache had was not sent."
    return Table(title, columns, rows, formats=formats, texts=megabytes, notes=[note])


def _summary(table: ScoreTable) -> str:
    """Return a sentence that names the best model of a table."""
    column = table.columns[-1]
    leading = leaders(table.systems, column, table.columns, table.format_of(column))
    if leading is None:
        return f"{table.title}: no model has all scores."
    axis = systems.axis(table.models[0])
    measure = f"average {axis}" if column == AVERAGE else f"{axis} on {score_tables.short(column)}"
    value = f"{leading.value:{table.format_of(column)}} ({measure})"
    count = len(leading.best) + len(leading.others)
    if leading.everyone:
        return f"{table.title}: all {count} models have {value}{equal_because(leading.best)}."
    if len(leading.best) > 1:
        return f"{table.title}: {leading.names} have {value}, the best of {count} models{equal_because(leading.best)}."
    if count == 1:
        return f"{table.title}: {leading.names} has {value}."
    first, second = leading.best[0], leading.others[0]
    if comparisons.may_be_chance(table, first, second, column):
        return f"{table.title}: {leading.names} has {value}, which is not told apart from {second.label}."
    return f"{table.title}: {leading.names} has {value}, the best of {count} models."


def _sections(table: ScoreTable, style: Style, *, named: bool, figures: bool) -> Iterator[Section]:
    """Yield the sections of a table of scores; their titles name the table if there are several tables."""
    of = f": {table.title}" if named else ""
    figure = score_tables.score_figure(table, intervals=style.intervals is not False) if figures else None
    yield Section(table.title, table=score_tables.score_table(table), figure=figure)
    for against in score_tables.against_tables(table):
        yield Section(f"Against print{of}", table=against, level=3)
    compared, lacking = comparisons.comparison_table(table), comparisons.not_compared(table)
    if compared is not None or lacking:
        yield Section(f"Differences between models{of}", lacking, table=compared, level=3)
    for title, details in (("Subsets", score_tables.subset_table), ("Further measures", score_tables.measure_table)):
        if (shown := details(table)) is not None:
            yield Section(f"{title}{of}", table=shown, level=3, folded=True)


def _how_measured(tables: Sequence[ScoreTable]) -> Iterator[Section]:
    """Yield protocols, versions and commands."""
    yield Section("How it was measured")
    for table in tables:
        seconds = [{} if scores.seconds is None else {"seconds": round(scores.seconds, 1)} for scores in table.models]
        of_models = [(each.label, {**each.protocol, **own}) for each, own in zip(table.models, seconds, strict=True)]
        shown = choices_table(f"Settings of {table.title}", of_models)
        yield Section(f"Protocol: {table.title}", table=shown, level=3, folded=True)
    models = [scores for table in tables for scores in table.models]
    versions = [
        (scores.label, {k: v for k, v in scores.environment.items() if v is not None and k not in scores.protocol})
        for scores in models
    ]
    if any(values for _, values in versions):
        yield Section("Environment", table=choices_table("Versions and hardware", versions), level=3, folded=True)
    commands = tuple(dict.fromkeys(command_line(scores) for scores in models if "mteb" not in scores.environment))
    hint = "The same numbers on the same data; put in the places of models and data that hold on your machine."
    yield Section("Commands", text=(hint,), code=commands, level=3, folded=True)


def choices_table(title: str, labelled: Sequence[tuple[str, Mapping[str, Any]]]) -> Table:
    """Return the table of the choices of models; a choice in which they differ has a row for each value.

    Args:
        title: of the table.
        labelled: label and choices of each model.
    """
    rows: list[list[Any]] = []
    for key in dict.fromkeys(key for _, values in labelled for key in values):
        values_of_key = [(label, systems.value_words(values[key])) for label, values in labelled if key in values]
        distinct = dict.fromkeys(value for _, value in values_of_key)
        for value in distinct:
            labels = dict.fromkeys(label for label, other in values_of_key if other == value)
            is_common = len(distinct) == 1 and len(values_of_key) == len(labelled)
            rows.append([key.replace("_", " "), value, "all" if is_common else ", ".join(labels)])
    return Table(title, ["setting", "value", "of"], rows, wide=("value", "of"))


def command_line(scores: ModelScores) -> str:
    """Return a command that measures the same scores."""
    protocol = scores.protocol
    scores = replace(scores, model=scores.model.removesuffix(f" + {protocol.get('rerank')}"))
    parts: list[Any] = ["sentcli", scores.command]
    if scores.command == "evaluate":
        columns = protocol.get("pair_fields")
        parts += [*(task.task for task in scores.tasks), "-m", scores.model]
        parts += ["--pair-fields", columns] if columns else []
        group_by = protocol.get("group_by")
        parts += ["--group-by", group_by] if group_by else []
        options, names = {}, {}
    elif scores.command == "retrieve":
        parts += _searches(scores)
        options = {"split": "test", "query_prompt": None, "document_prompt": None, "top_k": 1000}
        options |= {"similarity": "cosine", "query_length": None, "dense_weight": None}
        names = {"document_prompt": "--doc-prompt"}
    else:
        parts += ["-m", scores.model, *_tasks(scores)]
        options, names = {"split": "test"}, {}
        if scores.command == "senteval" and "name" in protocol:
            parts += ["--protocol", protocol["name"]]
    options |= {"pooling": None, "max_length": None}
    options |= {} if protocol.get("backend") == "served" else {"backend": None, "precision": None}
    options |= {"rerank": None, "rerank_depth": 50}
    for key, default in options.items():
        value = protocol.get(key)
        if value not in (None, "", default):
            parts += [names.get(key, f"--{key.replace('_', '-')}"), value]
    return shlex.join(map(str, parts))


def _tasks(scores: ModelScores) -> list[Any]:
    """Return the options of sts-eval or senteval that name the tasks, the aggregation and the regression."""
    protocol, tasks = scores.protocol, [task.task for task in scores.tasks]
    of_folder = scores.command == "senteval" or protocol.get("split") is not None
    named = [task for task in tasks if of_folder and (scores.command == "senteval" or task in TASKS)]
    parts: list[Any] = ["--data", "SentEval/data/downstream", "--tasks", ",".join(named)] if named else []
    parts += [part for task in tasks if task not in named for part in ("--pairs", f"{task}.tsv")]
    aggregation = {each.title: name for name, each in AGGREGATIONS.items() if name != "all"}
    if (name := aggregation.get(str(protocol.get("aggregation")))) is not None:
        parts += ["--aggregation", name]
    return [*parts, "--regression"] if protocol.get("similarity") == "regression" else parts


def _searches(scores: ModelScores) -> list[Any]:
    """Return the options of retrieve that name the model, the sets and the search."""
    protocol, tasks = scores.protocol, [task.task for task in scores.tasks]
    way, index = str(protocol.get("search", "dense")), protocol.get("index", "exact")
    if tasks == ["in-domain"]:
        parts: list[Any] = ["-m", scores.model, "--in-domain", protocol.get("pairs", "STS_B_TEST_CSV")]
        columns, exclude = protocol.get("pair_fields"), protocol.get("exclude")
        parts += ["--pair-fields", columns] if columns else []
        return parts + (["--exclude", exclude] if exclude not in (None, USUAL_RULE) else [])
    sets = [part for task in tasks for part in ("--beir", task)]
    if way == "run":
        return [*sets, "--from-run", scores.model]
    model = [] if way == "bm25" else ["-m", scores.model.removesuffix(" + bm25") if way != "dense" else scores.model]
    parts = [*model, *sets, *(["--search", way] if way != "dense" else [])]
    language = (protocol.get("bm25") or {}).get("language", "english")
    parts += ["--language", language] if language != "english" else []
    kind = index.get("kind") if isinstance(index, Mapping) else index
    return parts if kind in (None, "exact") else [*parts, "--index", kind]
