"""The sections of a report on training runs: what was run, results, curves, loss terms, configuration."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from itertools import starmap
from typing import Any

from sentcli.analysis.curves import dev_label, training_curves
from sentcli.analysis.objectives.terms import term_sections
from sentcli.analysis.runs import TrainingRun, by_label
from sentcli.pages.page import Section
from sentcli.pages.score_page import choices_table
from sentcli.remaining import duration
from sentcli.table import flat
from sentcli.training.departures import departure_source, in_words
from sentcli.training.observer import collapse, dev_scores, score_text
from sentcli.training.records import Summary, summarize
from sentcli.training.sweep_view import dev_sets_of, sweep_table

OF_SINGLE_RUNS = {"steps": "steps", "sentences_per_second": "sentences/s"}
"""Columns that only the table of runs by themselves has, by the keys of results."""


def study_points(runs: Sequence[TrainingRun]) -> dict[str, list[Summary]]:
    """Return mean and standard deviation of each setting of the studies among some runs, by the studies' names."""
    studies: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        if run.study:
            studies.setdefault(run.study, []).append(run.record)
    return {name: summarize(records) for name, records in studies.items()}


def study_sections(points: Mapping[str, Sequence[Summary]]) -> list[Section]:
    """Return the table of each study: a row a setting, with mean and standard deviation over its seeds."""
    sections = []
    for name, summaries in points.items():
        count = 0
        for summary in summaries:
            count += len(summary.runs)
        title = f"Study {name}"
        table = sweep_table(f"{title}, {count:,} runs", summaries, _dev_notes(summaries))
        sections.append(Section(title, table=table, file=f"study-{name}"))
    return sections


def run_sections(runs: Sequence[TrainingRun]) -> tuple[list[Section], str]:
    """Return what was run, results of runs by themselves, curves, terms, configuration, environment, and a summary.

    Args:
        runs: in any order; those of one label are seeds of one system.
    """
    sections = [Section("What was run", [what_was_run(runs)])]
    single = [run for run in runs if not run.study]
    if single:
        sections.append(_single_runs(single))
    curves = training_curves(runs)
    if curves is not None:
        sections.append(Section("While training", figure=curves, level=3))
    return [*sections, *term_sections(runs), *_configurations(runs)], _summary(runs)


def what_was_run(runs: Sequence[TrainingRun]) -> str:
    """Return a paragraph on the methods of runs, their departures from the papers, start models, data, seeds, time."""
    starts = {}
    data = {}
    seeds = {}
    sentences = [f"{_count(runs)}."]
    for label, members in by_label(runs).items():
        first = members[0]
        sentences.append(f"{label}: {_method(first)}.")
        starts[label] = first.record["model"]
        files = []
        for file in first.record["identity"]["data"]:
            files.append(f"{file['file']} ({file['sentences']:,} sentences)")
        data[label] = ", ".join(files)
        seeds[label] = ", ".join(str(run.record["seed"]) for run in members)
    sentences += _told_once("Start model", starts)
    sentences += _told_once("Data", data)
    sentences += _told_once("Seeds", seeds)
    return " ".join([*sentences, *_time(runs)])


def _count(runs: Sequence[TrainingRun]) -> str:
    """Return how many runs there are, in words."""
    if len(runs) == 1:
        return "1 training run"
    return f"{len(runs):,} training runs"


def _method(run: TrainingRun) -> str:
    """Return the method of a run with its paper, and in what it departs from the settings there or of its recipe."""
    method = run.config.get("method") or {}
    title = method.get("title") or run.record["method"]
    departures = run.config.get("departures")
    if departures is None:
        return title
    source = "the settings of its paper"
    if method.get("recipe"):
        source = departure_source(method["recipe"], title)
    words = in_words(departures, source)
    if not words:
        words = f"with {source}"
    return f"{title}, {words}"


def _told_once(what: str, by_system: Mapping[str, str]) -> list[str]:
    """Return a sentence for each value, with the systems that have it where not all have the same."""
    systems: dict[str, list[str]] = {}
    for system, value in by_system.items():
        if value:
            systems.setdefault(value, []).append(system)
    sentences = []
    for value, of_value in systems.items():
        of_which = ""
        if len(systems) > 1:
            names = "; ".join(of_value)
            of_which = f" of {names}"
        sentences.append(f"{what}{of_which}: {value}.")
    return sentences


def _time(runs: Sequence[TrainingRun]) -> list[str]:
    """Return a sentence on how long runs took, one after another; none if no run says it."""
    training = 0.0
    evaluation = 0.0
    for run in runs:
        results = run.record["results"]
        training += results.get("train_seconds") or 0
        evaluation += results.get("eval_seconds") or 0
    hours = (training + evaluation) / 3600
    if not hours:
        return []
    parts = f"{duration(training)} of training and {duration(evaluation)} of evaluation"
    return [f"One after another they took {hours:.2f} hours: {parts}."]


def _configurations(runs: Sequence[TrainingRun]) -> list[Section]:
    """Return the tables of configuration and environment of the runs that have finished."""
    choices = []
    environments = []
    for run in runs:
        if run.config:
            choices.append((run.label, flat({**run.config, "environment": {}, "results": {}})))
            environments.append((run.label, flat(run.config.get("environment", {}))))
    if not choices:
        return []
    return [
        Section.of(choices_table("Configuration", choices), level=3, folded=True),
        Section.of(choices_table("Training environment", environments), level=3, folded=True),
    ]


def _single_runs(runs: Sequence[TrainingRun]) -> Section:
    """Return the table of runs that belong to no study, a row a run."""
    summaries = []
    notes = []
    unfinished = []
    for run in runs:
        point = {"run": run.label, "method": run.record["method"]}
        summaries += summarize([{**run.record, "point": point}])
        collapsed = run.record["results"].get("collapsed_step")
        if collapsed is not None:
            notes.append(f"{run.label} {collapse(collapsed)}.")
        if not run.config:
            unfinished.append(run.label)
    if unfinished:
        notes.append(f"Not finished: {', '.join(unfinished)}.")
    notes = [*_dev_notes(summaries), *notes]
    table = sweep_table("What training came to", summaries, notes, OF_SINGLE_RUNS)
    return Section("Training", table=table, file="training")


def _dev_notes(summaries: Sequence[Summary]) -> list[str]:
    """Return the note that names the dev sets of a table."""
    titles = ", ".join(starmap(dev_label, dev_sets_of(summaries)))
    if not titles:
        return []
    return [f"Scores on dev sets: {titles}."]


def _summary(runs: Sequence[TrainingRun]) -> str:
    """Return the sentence on the number of runs, and the best score if all were measured on the same dev set."""
    scores: dict[str, list[float]] = {}
    dev_sets = set()
    for run in runs:
        dev = dev_scores(run.record["results"])
        if dev is not None and dev.best is not None:
            dev_sets.add((dev.name, dev.metric))
            scores.setdefault(run.label, []).append(dev.best)
    if len(dev_sets) != 1:
        return f"{_count(runs)}."
    ((name, metric),) = dev_sets
    means = {label: statistics.fmean(values) for label, values in scores.items()}
    best = max(means.values())
    of_systems = ", ".join(label for label, mean in means.items() if mean == best)
    kind = "score"
    if len(means) < len(runs):
        kind = "mean"
    score = score_text(metric, best)
    return f"{_count(runs)}: the best {kind} on {dev_label(name, metric)} is {score}, of {of_systems}."
