"""What a report shows of training runs: what they came to, their curves, everything that they were made with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli.pages.page import Section
from sentcli.table import Table
from sentcli.verbs.kinds import shared
from sentcli.verbs.kinds.geometry import training_curves
from sentcli.verbs.kinds.objectives import term_sections

if TYPE_CHECKING:
    from sentcli.analysis.runs import RunMetrics

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


def run_sections(folders: Sequence[Path]) -> list[Section]:
    """Return results, curves, terms of the loss, configuration and environment of training runs."""
    from sentcli.analysis.runs import read_config, read_metrics, read_terms
    from sentcli.pages.score_page import settings_table

    short = shared.short_names([str(folder) for folder in folders])
    named = {short[str(folder)]: folder for folder in folders}
    metrics = {name: read_metrics(folder) for name, folder in named.items()}
    configs = {name: read_config(folder) for name, folder in named.items()}
    made = [Section("Training", table=_results(metrics, configs), file="training")]
    if any(run.evaluations for run in metrics.values()):
        made.append(Section("While training", figure=training_curves(metrics), level=3))
    made += term_sections({name: read_terms(folder) for name, folder in named.items() if metrics[name].steps})
    finished = {name: dict(config) for name, config in configs.items() if config}
    environments = [(name, _flat(config.pop("environment", {}))) for name, config in finished.items()]
    configured = [(name, _flat(config)) for name, config in finished.items()]
    for title, settings in (("Configuration", configured), ("Training environment", environments)):
        if settings:
            made.append(Section(title, table=settings_table(title, settings), level=3, folded=True))
    return made


def _results(metrics: Mapping[str, RunMetrics], configs: Mapping[str, Mapping[str, Any]]) -> Table:
    results = {name: {**_so_far(run), **(configs[name].get("results") or {})} for name, run in metrics.items()}
    known = [key for key in RESULTS if key != "held_out_perplexity" or any(each.get(key) for each in results.values())]
    rows = [
        {
            "run": name,
            "method": (configs[name].get("method") or {}).get("name", ""),
            **{RESULTS[key]: each[key] if isinstance(each.get(key), int | float) else None for key in known},
        }
        for name, each in results.items()
    ]
    unfinished = [name for name, config in configs.items() if not config]
    notes = (f"Not finished: {', '.join(unfinished)}.",) if unfinished else ()
    formats = {RESULTS[key]: ",.0f" for key in WHOLE}
    return Table.of_rows("What training came to (Spearman × 100)", rows, formats=formats, notes=notes)


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
