"""What a report shows of training runs: what they came to, their curves, everything that they were made with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli.pages.page import Section
from sentcli.table import Table
from sentcli.verbs.kinds import shared
from sentcli.verbs.kinds.geometry import training_curves
from sentcli.verbs.kinds.objectives import term_sections

if TYPE_CHECKING:
    from sentcli.analysis.runs import LossTerms, RunMetrics

RESULTS = {
    "start_dev_spearman": "dev at the start",
    "best_dev_spearman": "best dev",
    "best_step": "at step",
    "final_dev_spearman": "last dev",
    "sts_average": "STS average",
    "held_out_perplexity": "perplexity",
    "steps": "steps",
    "sentences_per_second": "sentences/s",
}
WHOLE = ("best_step", "steps", "sentences_per_second")
"""Results that are shown as whole numbers."""


@dataclass(frozen=True)
class TrainedRun:
    """A run, and its configuration, which is empty while it has not finished."""

    metrics: RunMetrics
    config: Mapping[str, Any]
    terms: LossTerms | None
    """The terms of its loss; None while it has not made a step."""


def read_run(folder: Path) -> TrainedRun:
    """Read what a run logged.

    Raises:
        InputError: if it has logged nothing; DataError for a damaged file.
    """
    from sentcli.analysis.runs import read_config, read_metrics, read_terms

    metrics = read_metrics(folder)
    return TrainedRun(metrics, read_config(folder), read_terms(folder) if metrics.steps else None)


def run_sections(folders: Sequence[Path]) -> list[Section]:
    """Return results, curves, terms of the loss, configuration and environment of training runs."""
    from sentcli.pages.score_page import settings_table

    names = shared.short_names([str(folder) for folder in folders])
    runs = {names[str(folder)]: read_run(folder) for folder in folders}
    made = [Section("Training", table=_results(runs), file="training")]
    if any(run.metrics.evaluations for run in runs.values()):
        curves = training_curves({name: run.metrics for name, run in runs.items()})
        made.append(Section("While training", figure=curves, level=3))
    made += term_sections({name: run.terms for name, run in runs.items() if run.terms is not None})
    configured = [(name, _flat(run.config)) for name, run in runs.items() if run.config]
    for title, environment in (("Configuration", False), ("Training environment", True)):
        chosen = [
            (
                name,
                {
                    key.removeprefix("environment."): value
                    for key, value in values.items()
                    if key.startswith("environment.") == environment
                },
            )
            for name, values in configured
        ]
        if chosen:
            table = settings_table(title, chosen)
            made.append(Section(title, table=table, level=3, folded=True))
    return made


def _results(runs: Mapping[str, TrainedRun]) -> Table:
    results = {name: {**_so_far(run.metrics), **(run.config.get("results") or {})} for name, run in runs.items()}
    known = [key for key in RESULTS if key != "held_out_perplexity" or any(each.get(key) for each in results.values())]
    rows = [
        [
            name,
            (run.config.get("method") or {}).get("name", ""),
            *(value if isinstance(value := results[name].get(key), int | float) else None for key in known),
        ]
        for name, run in runs.items()
    ]
    unfinished = [name for name, run in runs.items() if not run.config]
    notes = (f"Not finished: {', '.join(unfinished)}.",) if unfinished else ()
    formats = {RESULTS[key]: ",.0f" if key in WHOLE else ".2f" for key in known}
    columns = ("run", "method", *(RESULTS[key] for key in known))
    return Table("What training came to (Spearman × 100)", columns, rows, formats=formats, notes=notes)


def _so_far(metrics: RunMetrics) -> dict[str, Any]:
    """Return what can be said of a run that has not finished."""
    steps, scores = metrics.column("dev_spearman")
    results: dict[str, Any] = {"steps": metrics.steps[-1]["step"] if metrics.steps else 0}
    if scores:
        best = max(range(len(scores)), key=scores.__getitem__)
        results |= {"start_dev_spearman": scores[0], "best_dev_spearman": scores[best], "best_step": steps[best]}
    return results


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by dotted name, without the results."""
    flat: dict[str, Any] = {}
    for key, item in value.items():
        if key == "results" and not prefix:
            continue
        flat |= _flat(item, f"{prefix}{key}.") if isinstance(item, Mapping) else {f"{prefix}{key}": item}
    return flat
