"""The sections of a report on training runs: results, curves, loss terms, configuration; and on sweeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from sentcli.analysis.curves import training_curves
from sentcli.analysis.objectives.terms import read_terms, term_sections
from sentcli.analysis.runs import RunMetrics, read_config, read_metrics
from sentcli.analysis.sweeps.points import read_runs
from sentcli.pages.page import Section
from sentcli.pages.score_page import choices_table
from sentcli.table import Table, flat
from sentcli.training.observer import STSB_DEV, collapse, score_text, with_dev_scores
from sentcli.training.records import Summary, summarize
from sentcli.training.sweep_view import sweep_table

RESULTS = {
    "start": "dev at the start",
    "best": "best dev",
    "best_step": "at step",
    "final": "last dev",
    "sts_average": "STS average",
    "senteval_average": "transfer average",
    "held_out_perplexity": "perplexity",
    "steps": "steps",
    "sentences_per_second": "sentences/s",
}
AT_THE_END = ("senteval_average", "held_out_perplexity")
"""Results that only some runs have, whose columns are left out where none has them."""
WHOLE_NUMBERS = ("best_step", "steps", "sentences_per_second")
"""Results that are shown without decimals."""


def read_sweeps(paths: Sequence[Path]) -> dict[str, list[Summary]]:
    """Return mean and standard deviation of each point of sweeps, by the names of their folders.

    Args:
        paths: folders of sweeps, or their files of results.
    """
    points = {}
    for path in paths:
        folder = path
        if path.is_file():
            folder = path.parent
        runs = read_runs([path])
        points[folder.resolve().name] = summarize(run.record for run in runs)
    return points


def sweep_section(name: str, points: Sequence[Summary]) -> Section:
    """Return the table of a sweep, which `train` prints at its end: mean and standard deviation of each point."""
    runs = sum(len(point.runs) for point in points)
    table = sweep_table(f"Sweep {name}: {runs:,} runs", points)
    return Section(f"Sweep {name}", table=table)


def run_sections(folders: Sequence[Path], names: Mapping[str, str]) -> tuple[list[Section], str]:
    """Return results, curves, terms of the loss, configuration and environment of training runs, and a summary.

    Args:
        folders: the runs.
        names: what is shown of their names.
    """
    metrics = {}
    configs = {}
    terms = {}
    for folder in folders:
        name = names[str(folder)]
        metrics[name] = read_metrics(folder)
        configs[name] = read_config(folder)
        if metrics[name].steps:
            terms[name] = read_terms(folder)
    table, summary = _results(metrics, configs)
    sections = [Section("Training", table=table, file="training")]
    if any(run.evaluations for run in metrics.values()):
        sections.append(Section("While training", figure=training_curves(metrics), level=3))
    return [*sections, *term_sections(terms), *_configurations(configs)], summary


def _configurations(configs: Mapping[str, Mapping[str, Any]]) -> list[Section]:
    """Return the tables of configuration and environment of the runs that have finished."""
    choices = []
    environments = []
    for name, config in configs.items():
        if config:
            choices.append((name, flat({**config, "environment": {}, "results": {}})))
            environments.append((name, flat(config.get("environment", {}))))
    if not choices:
        return []
    configuration = choices_table("Configuration", choices)
    environment = choices_table("Training environment", environments)
    return [
        Section(configuration.title, table=configuration, level=3, folded=True),
        Section(environment.title, table=environment, level=3, folded=True),
    ]


def _results(metrics: Mapping[str, RunMetrics], configs: Mapping[str, Mapping[str, Any]]) -> tuple[Table, str]:
    """Return the table of results, and a sentence that names the best run."""
    results = {}
    rows = []
    metric_names = set()
    unfinished = []
    for name, run in metrics.items():
        config = configs[name]
        values = _results_of(run, config.get("results") or {})
        values.setdefault("metric", STSB_DEV[1])
        results[name] = values
        metric_names.add(values["metric"])
        if not config:
            unfinished.append(name)
        row = {"run": name, "method": (config.get("method") or {}).get("name", ""), "dev metric": None}
        if values.get("best") is not None:
            row["dev metric"] = values["metric"].replace("_", " ")
        for key, column in RESULTS.items():
            value = values.get(key)
            row[column] = value if isinstance(value, int | float) else None
        rows.append(row)
    for key in AT_THE_END:
        if all(values.get(key) is None for values in results.values()):
            for row in rows:
                del row[RESULTS[key]]
    notes = _notes(results, unfinished)
    places = ".2f" if metric_names == {STSB_DEV[1]} else ".4f"
    formats = {RESULTS[key]: places for key in ("start", "best", "final")}
    for key in WHOLE_NUMBERS:
        formats[RESULTS[key]] = ",.0f"
    table = Table.of_rows("What training came to", rows, formats=formats, notes=notes)
    return table, _summary(results)


def _notes(results: Mapping[str, Mapping[str, Any]], unfinished: Sequence[str]) -> list[str]:
    """Return the notes below the table of results."""
    notes = ["Spearman correlations are times 100."]
    for name, values in results.items():
        if values.get("collapsed_step") is not None:
            notes.append(f"{name} {collapse(values['collapsed_step'])}.")
    if unfinished:
        notes.append(f"Not finished: {', '.join(unfinished)}.")
    return notes


def _summary(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the sentence on the number of runs, and the best score if all were measured on the same dev set."""
    summary = "1 training run" if len(results) == 1 else f"{len(results)} training runs"
    scores = {}
    dev_sets = set()
    for name, values in results.items():
        if values.get("best") is not None:
            scores[name] = values["best"]
            dev_sets.add((values.get("name"), values["metric"]))
    if len(dev_sets) != 1:
        return f"{summary}."
    ((_, metric),) = dev_sets
    best = max(scores.values())
    of_runs = ", ".join(name for name, score in scores.items() if score == best)
    words = metric.replace("_", " ")
    return f"{summary}: the best score on the dev set is {score_text(metric, best)} ({words}), of {of_runs}."


def _results_of(metrics: RunMetrics, results: Mapping[str, Any]) -> dict[str, Any]:
    """Return the results of a run with the scores on the dev set that decides, before its end those of its metrics."""
    if results:
        return with_dev_scores(results)
    so_far: dict[str, Any] = {"steps": 0}
    if metrics.steps:
        so_far["steps"] = metrics.steps[-1]["step"]
    logged = chain.from_iterable(metrics.evaluations)
    dev = next((key for key in logged if key.startswith("dev_")), None)
    if dev is None:
        return so_far
    steps, scores = metrics.column(dev)
    if scores:
        best = scores.index(max(scores))
        so_far |= {"start": scores[0], "best": scores[best], "best_step": steps[best]}
        so_far["metric"] = dev.removeprefix("dev_")
    return so_far
