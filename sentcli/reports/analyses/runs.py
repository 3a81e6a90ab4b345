"""Training runs: what they came to, their curves, everything that they were made with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sentcli.analysis.loss_terms import LossTerms
from sentcli.analysis.run_metrics import RunMetrics
from sentcli.reports.analyses import objectives
from sentcli.reports.analyses.geometry import training_curves
from sentcli.reports.details import settings_table
from sentcli.reports.page import Column, Row, Section, Table, number, word


@dataclass(frozen=True)
class TrainedRun:
    """A run and its configuration, which is empty while it has not finished."""

    metrics: RunMetrics
    config: Mapping[str, Any]
    terms: LossTerms | None = None
    """Of its loss; None while it has not made a step."""


def run_sections(runs: Sequence[TrainedRun]) -> list[Section]:
    """Return results, curves, terms of the loss, configuration and environment of training runs."""
    terms = [(run.metrics.name, run.terms) for run in runs if run.terms is not None]
    made = [Section("Training", table=_results(runs), file="training")]
    if any(run.metrics.evaluations for run in runs):
        made.append(Section("While training", figure=training_curves([run.metrics for run in runs]), level=3))
    if terms:
        made += objectives.sections(terms, [])
    configured = [(run.metrics.name, _flat(run.config)) for run in runs if run.config]
    for title, wanted in (("Configuration", False), ("Training environment", True)):
        chosen = [
            (name, {key: v for key, v in values.items() if key.startswith("environment.") == wanted})
            for name, values in configured
        ]
        if chosen:
            named = [(name, {key.removeprefix("environment."): v for key, v in each.items()}) for name, each in chosen]
            made.append(Section(title, table=settings_table(title, named), level=3, folded=True))
    return made


def _results(runs: Sequence[TrainedRun]) -> Table:
    keys = {
        "start_dev_spearman": "dev at the start",
        "best_dev_spearman": "best dev",
        "best_step": "at step",
        "final_dev_spearman": "last dev",
        "sts_average": "STS average",
        "held_out_perplexity": "perplexity",
        "steps": "steps",
        "sentences_per_second": "sentences/s",
    }
    whole = ("best_step", "steps", "sentences_per_second")
    rows = []
    found = [{**_so_far(run.metrics), **(run.config.get("results") or {})} for run in runs]
    if all(results.get("held_out_perplexity") is None for results in found):
        del keys["held_out_perplexity"]
    for run, results in zip(runs, found, strict=True):
        method = (run.config.get("method") or {}).get("name", "")
        numbers = [number(_number(results.get(key)), "{:,.0f}" if key in whole else "{:.2f}") for key in keys]
        rows.append(Row((word(run.metrics.name), word(method), *numbers)))
    unfinished = [run.metrics.name for run in runs if not run.config]
    notes = (f"Not finished: {', '.join(unfinished)}.",) if unfinished else ()
    columns = (Column("run", "word"), Column("method", "word"), *(Column(title) for title in keys.values()))
    return Table("What training came to (Spearman × 100)", columns, tuple(rows), notes)


def _so_far(metrics: RunMetrics) -> dict[str, Any]:
    """Return what can be said of a run that has not finished."""
    steps, scores = metrics.column("dev_spearman")
    found: dict[str, Any] = {"steps": metrics.steps[-1]["step"] if metrics.steps else 0}
    if scores:
        best = max(range(len(scores)), key=scores.__getitem__)
        found |= {"start_dev_spearman": scores[0], "best_dev_spearman": scores[best], "best_step": steps[best]}
    return found


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by dotted name, without the results."""
    found: dict[str, Any] = {}
    for key, item in value.items():
        if key == "results" and not prefix:
            continue
        found |= _flat(item, f"{prefix}{key}.") if isinstance(item, Mapping) else {f"{prefix}{key}": item}
    return found
