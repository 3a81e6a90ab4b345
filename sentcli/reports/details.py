"""Comparisons of models, and the details of a page: subsets, further measures, settings, versions, commands."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from sentcli.errors import DataError
from sentcli.evaluation.in_domain import USUAL
from sentcli.evaluation.sts import AGGREGATIONS, TASKS
from sentcli.reports import protocols
from sentcli.reports.page import MISSING, Cell, Column, Row, Table, number, word
from sentcli.reports.runs import Run, number_of
from sentcli.reports.scores import Scores, short
from sentcli.reports.systems import Member

MEASURES = {
    "sts-eval": {
        "pairs": "pairs",
        "spearman": "Spearman",
        "pearson": "Pearson",
        "spearman_mean": "mean of subsets",
        "spearman_wmean": "weighted mean",
    },
    "senteval": {
        "train": "train",
        "test": "test",
        "dev_accuracy": "dev accuracy",
        "accuracy": "accuracy",
        "f1": "F1",
    },
}
"""Keys of a task's result, and what they are called."""
RANKED = ("ndcg@10", "map@100", "recall@10", "recall@100", "r_cap@100", "precision@10", "mrr@10", "index_recall@10")
"""Of the measures of a retrieval set, those that are shown; a less deep search shows all that it has."""
SMALLEST_P = 0.001


def members(scores: Scores) -> list[Member]:
    """Return the models of a table, seeds one by one."""
    return [member for system in scores.systems for member in system.members]


def comparison_table(scores: Scores) -> Table | None:
    """Return what sets models apart from the first one of their run, or None if nothing was compared."""
    rows, counts, ranges = [], False, False
    for member in members(scores):
        for run in member.runs:
            for task, found in _compared(run).items():
                counts, ranges = counts or "only_first" in found, ranges or "low" in found
                other = _label_of(str((run.compared or {}).get("with")), run, scores)
                rows.append((member.label, other, task, found, f"{run.source or 'the results'}: compared {task}"))
    if not rows:
        return None
    heads = [Column("model", "word"), Column("less", "word"), Column("task", "word"), Column("difference")]
    keys = [*(["low", "high"] if ranges else []), *(["only_first", "only_second"] if counts else [])]
    names = {"low": "95 % from", "high": "to", "only_first": "only this right", "only_second": "only the other right"}
    heads += [*(Column(names[key]) for key in keys), Column("p")]
    drawn = "queries" if scores.runs[0].command == "retrieve" else "pairs"
    how = f"paired bootstrap of the {drawn}" if ranges else "McNemar's exact test"
    note = f"p: {how}. Of {len(rows)} comparisons, one in twenty falls below 0.05 by chance."
    return Table(
        caption=f"{scores.title}: difference of scores in points",
        columns=tuple(heads),
        rows=tuple(_comparison_row(*row, keys) for row in rows),
        notes=(note,) if len(rows) > 1 else (f"p: {how}.",),
    )


def _compared(run: Run) -> dict[str, dict[str, Any]]:
    tasks = (run.compared or {}).get("tasks", {})
    if not isinstance(tasks, dict) or not all(isinstance(one, dict) for one in tasks.values()):
        raise DataError(run.source or "the results", "compared is no comparison by task")
    return tasks


def _comparison_row(
    model: str, other: str, task: str, found: Mapping[str, Any], place: str, keys: Sequence[str]
) -> Row:
    patterns = {"low": "{:+.2f}", "high": "{:+.2f}"}
    more = [number(number_of(found.get(key), place), patterns.get(key, "{:.0f}")) for key in keys]
    p = number_of(found.get("p"), place)
    shown = Cell(f"< {SMALLEST_P}", p) if p is not None and p < SMALLEST_P else number(p, "{:.3f}")
    difference = number(number_of(found.get("difference"), place), "{:+.2f}")
    return Row((word(model), word(other), word(short(task)), difference, *more, shown))


def _label_of(model: str, run: Run, scores: Scores) -> str:
    """Return the label of the model that a run was compared with: one of the same file, if it is there."""
    there = [(member.label, other) for member in members(scores) for other in member.runs if other.model == model]
    return next((label for label, other in there if other.source == run.source and other.compared is None), model)


def subset_table(scores: Scores) -> Table | None:
    """Return the scores of the subsets, or None if no task has several."""
    found: dict[tuple[str, str], dict[int, Cell]] = {}
    models = members(scores)
    for i, member in enumerate(models):
        for run in member.runs:
            for task, result in run.tasks.items():
                subsets = result.get("subsets") or _forums(run, result)
                for name, score in subsets.items() if isinstance(subsets, dict) and len(subsets) > 1 else ():
                    place = f"{run.source or 'the results'}: {task} {name}"
                    found.setdefault((task, name), {})[i] = number(number_of(score, place))
    if not found:
        return None
    rows = [
        Row((word(short(task)), word(name), *(cells.get(i, Cell(MISSING)) for i in range(len(models)))))
        for (task, name), cells in found.items()
    ]
    columns = (Column("task", "word"), Column("subset", "word"), *(Column(member.label) for member in models))
    what = protocols.axis(scores.runs[0]) if scores.runs[0].command == "retrieve" else "Spearman correlation"
    times = "" if scores.runs[0].command == "retrieve" else ", times 100"
    return Table(f"{scores.title}: {what} of each subset{times}", columns, tuple(rows))


def _forums(run: Run, result: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the main score, times 100, of each set that a set is the mean of."""
    forums, key = result.get("forums"), run.measure.lower()
    if not isinstance(forums, dict) or not all(isinstance(one, dict) for one in forums.values()):
        return {}
    place = run.source or "the results"
    found = {name: number_of(one.get(key), f"{place}: {name} {key}") for name, one in forums.items()}
    return {name: None if value is None else 100 * value for name, value in found.items()}


def measure_table(scores: Scores) -> Table | None:
    """Return everything that was measured of each task, or None if that is no more than the scores."""
    known = MEASURES.get(scores.runs[0].command)
    results = [
        (member.label, task, result, run.source or "the results")
        for member in members(scores)
        for run in member.runs
        for task, result in run.tasks.items()
    ]
    keys = list(known) if known else list(dict.fromkeys(key for _, _, result, _ in results for key in result))
    if not known and RANKED[0] in keys:
        keys = [*(key for key in RANKED if key in keys), "queries", "documents"]
    keys = [key for key in keys if any(isinstance(result.get(key), int | float) for _, _, result, _ in results)]
    if len(keys) < 2:
        return None
    shares = not known and scores.runs[0].averaged
    pattern = "{:.4f}" if shares else "{:.2f}"
    rows = [
        Row(
            (
                word(label),
                word(short(task)),
                *(_measure(result.get(key), f"{place}: {task} {key}", pattern) for key in keys),
            )
        )
        for label, task, result, place in results
    ]
    heads = (Column("model", "word"), Column("task", "word"), *(Column((known or {}).get(key, key)) for key in keys))
    scale = "times 100" if known else "from 0 to 1, as BEIR prints it" if shares else "in %"
    caption = f"{scores.title}: everything that was measured, {scale}"
    return Table(caption, heads, tuple(rows))


def _measure(value: Any, place: str, pattern: str) -> Cell:
    found = number_of(value, place)
    if isinstance(value, int):
        return number(found, "{:,.0f}")
    return number(found, pattern)


def settings_table(caption: str, labelled: Sequence[tuple[str, Mapping[str, Any]]]) -> Table:
    """Return settings with their values; a setting that differs has a line for each value.

    Args:
        caption: of the table.
        labelled: the settings of each model, by its label.
    """
    rows = []
    for key in dict.fromkeys(key for _, values in labelled for key in values):
        found: dict[str, list[str]] = {}
        for label, values in ((label, values) for label, values in labelled if key in values):
            found.setdefault(protocols.value_words(values.get(key)), []).append(label)
        name = key.replace("_", " ")
        for value, labels in found.items():
            whose = (
                "all"
                if len(found) == 1 and all(key in values for _, values in labelled)
                else ", ".join(dict.fromkeys(labels))
            )
            rows.append(Row((word(name), word(value), word(whose))))
    return Table(caption, (Column("setting", "word"), Column("value", "text"), Column("of", "text")), tuple(rows))


def _tasks(run: Run) -> list[Any]:
    """Return the options of sts-eval or senteval that name the tasks, and how their numbers are made."""
    protocol = run.protocol
    known = run.command == "senteval" or protocol.get("split") is not None
    named = [task for task in run.tasks if known and (run.command == "senteval" or task in TASKS)]
    parts: list[Any] = ["--data", "SentEval/data/downstream", "--tasks", ",".join(named)] if named else []
    parts += [part for task in run.tasks if task not in named for part in ("--pairs", f"{task}.tsv")]
    aggregation = {each.title: name for name, each in AGGREGATIONS.items() if name != "all"}
    if (how := aggregation.get(str(protocol.get("aggregation")))) is not None:
        parts += ["--aggregation", how]
    return [*parts, "--regression"] if protocol.get("similarity") == "regression" else parts


def _searches(run: Run) -> list[Any]:
    """Return the options of retrieve that name model, sets and way of searching."""
    way, index = str(run.protocol.get("search", "dense")), run.protocol.get("index", "exact")
    if "in-domain" in run.tasks:
        parts: list[Any] = ["-m", run.model, "--in-domain", run.protocol.get("pairs", "STS_B_TEST_CSV")]
        fields, exclude = run.protocol.get("pair_fields"), run.protocol.get("exclude")
        parts += ["--pair-fields", fields] if fields else []
        return parts + (["--exclude", exclude] if exclude not in (None, USUAL) else [])
    sets = [part for task in run.tasks for part in ("--beir", task)]
    if way == "run":
        return [*sets, "--from-run", run.model]
    model = [] if way == "bm25" else ["-m", run.model.removesuffix(" + bm25") if way != "dense" else run.model]
    parts = [*model, *sets, *(["--search", way] if way != "dense" else [])]
    language = (run.protocol.get("bm25") or {}).get("language", "english")
    parts += ["--language", language] if language != "english" else []
    kind = index.get("kind") if isinstance(index, Mapping) else index
    return parts if kind in (None, "exact") else [*parts, "--index", kind]


def command_line(run: Run) -> str:
    """Return a command that measures the same."""
    protocol = run.protocol
    parts: list[Any] = ["sentcli", run.command]
    if run.command == "retrieve":
        parts += _searches(run)
        options = {"split": "test", "query_prompt": None, "document_prompt": None, "top_k": 1000}
        options |= {"similarity": "cosine", "query_length": None, "dense_weight": None}
        keys = {"document_prompt": "--doc-prompt"}
    else:
        parts += ["-m", run.model, *_tasks(run)]
        options, keys = {"split": "test"}, {}
        if run.command == "senteval" and "name" in protocol:
            parts += ["--protocol", protocol["name"]]
    options |= {"pooling": None, "max_length": None, "backend": None, "precision": None}
    for key, default in options.items():
        value = protocol.get(key)
        if value not in (None, "", default):
            parts += [keys.get(key, f"--{key.replace('_', '-')}"), value]
    return shlex.join(map(str, parts))
