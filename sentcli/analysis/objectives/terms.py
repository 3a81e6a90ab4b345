"""The terms of a loss over the steps of training runs, and their shares of the gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pandas as pd
from annotated_types import Ge
from pydantic import BaseModel, StrictInt

from sentcli.analysis.curves import STEP, logged_values, mean_lines, run_figure
from sentcli.analysis.runs import RunMetrics, TrainingRun
from sentcli.errors import InputError
from sentcli.io.forms import Number, checked
from sentcli.pages import style
from sentcli.pages.page import Figure, Section
from sentcli.table import Table

SHARE = "share_"
OTHERS = ("step", "loss", "spread", "learning_rate", "grad_norm", "sentences_per_second")
"""Keys of a line of an optimiser step that are neither terms nor their shares."""
GROUPED = ("shuffled-group", "group")
"""Kinds of the whitening head that split the columns into groups."""


class MethodSection(BaseModel):
    """The settings of an objective or a head that are read."""

    weight: Number | None = None
    kind: str | None = None
    num_groups: Annotated[StrictInt, Ge(0)] | None = None


@dataclass(frozen=True)
class LossTerms:
    """The loss terms of one run."""

    metrics: RunMetrics
    finished: bool
    weights: Mapping[str, float | None]
    """The weight of each term in the loss, in the order of the log; None if the run's files do not have it."""
    groups: int | None = None
    """The number of groups that its head whitens; 0 for groups of two columns, None if it whitens no groups."""

    @property
    def steps(self) -> int:
        """The last step that was logged."""
        return int(self.metrics.steps[-1]["step"])

    @property
    def measured(self) -> bool:
        """Whether the shares of several terms were logged."""
        return len(self.weights) > 1 and any(self.metrics.column(f"{SHARE}{name}")[0] for name in self.weights)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form.

        Of each term that are its weight, its first and last unweighted value, and its shares of the gradient: the norm
        of the weighted term's gradient at the encoder over the sum of all terms' norms.
        """
        terms = {}
        for name, weight in self.weights.items():
            _, values = self.metrics.column(name)
            share_steps, shares = self.metrics.column(f"{SHARE}{name}")
            term: dict[str, Any] = {"weight": weight, "mean_share": None, "share_steps": share_steps, "shares": shares}
            if shares:
                term["mean_share"] = float(np.mean(shares))
            first = last = None
            if values:
                first = values[0]
                last = values[-1]
            terms[name] = {**term, "first": first, "last": last}
        return {"steps": self.steps, "finished": self.finished, "terms": terms}


def terms_of(run: TrainingRun) -> LossTerms:
    """Return the terms of a run, finished or not.

    Raises:
        InputError: if it has no log, or has not made a step; DataError for damaged files.
    """
    metrics = run.metrics
    if metrics is None or not metrics.steps:
        raise InputError(f"{run.folder} has not logged an optimiser step yet")
    sections = {}
    for name, section in run.record["identity"]["method"].items():
        if isinstance(section, dict):
            checked(MethodSection, section, f"{run.folder}: method.{name}")
            sections[name] = section
    names: dict[str, None] = {}
    for line in metrics.steps:
        names |= dict.fromkeys(line)
    weights = {}
    for name in names:
        if name not in OTHERS and not name.startswith(SHARE):
            weights[name] = sections.get(name, {}).get("weight")
    groups = None
    head = sections.get("head", {})
    if head.get("kind") in GROUPED:
        groups = head.get("num_groups", 0)
    return LossTerms(metrics, bool(run.config), weights, groups)


def term_sections(runs: Sequence[TrainingRun]) -> list[Section]:
    """Return tables and figures of the loss terms of runs, as means over the seeds of a system."""
    trained = [run for run in runs if run.metrics is not None and run.metrics.steps]
    if not trained:
        return []
    terms = {run.label: terms_of(run) for run in trained}
    labels: dict[str, str] = {}
    panels: dict[str, str] = {}
    of_shares: dict[str, str] = {}
    measured = []
    for label, of_run in terms.items():
        if of_run.measured:
            measured.append(label)
        for name in of_run.weights:
            labels[name] = f"{name} (unweighted)"
            panels[name] = name
            of_shares[f"{SHARE}{name}"] = name
    shares = logged_values(trained, of_shares)
    table = _terms_table(terms, logged_values(trained, panels), shares)
    sections = [Section("Terms of the loss", table=table, file="terms")]
    if measured:
        sections.append(Section("Shares of the gradient", figure=_shares_figure(shares, measured)))
    figure = run_figure("loss-terms", "Terms of the loss over the steps", trained, labels, labels.values())
    return [*sections, Section("Terms over the steps", figure=figure)]


def _terms_table(terms: Mapping[str, LossTerms], values: pd.DataFrame, shares: pd.DataFrame) -> Table:
    """Return a row for each term of each system, given the terms of one of its runs, and what all of them logged."""
    rows = []
    for (system, name), logged in values.groupby(["series", "panel"], sort=False):
        in_order = logged.sort_values("x", kind="stable")["value"]
        tenth = max(1, len(in_order) // 10)
        of_system = shares[shares["series"] == system]
        percent = 100 * of_system.loc[of_system["panel"] == name, "value"]
        rows.append(
            {
                "run": system,
                "term": name,
                "weight": terms[system].weights.get(name),
                "share %": percent.mean(),
                "least %": percent.min(),
                "greatest %": percent.max(),
                "measured": len(percent),
                "term, first steps": in_order[:tenth].mean(),
                "term, last steps": in_order[-tenth:].mean(),
            }
        )
    formats = {"weight": "g", "term, first steps": ".4g", "term, last steps": ".4g"}
    note = (
        "Share: norm of the weighted term's gradient at the encoder over the sum of these norms, the mean of the steps "
        "where training measured it (--set share_every). Terms are unweighted: means of the first and the last tenth."
    )
    return Table.of_frame("Terms of the loss", pd.DataFrame(rows), formats=formats, number=".3g", notes=(note,))


def _shares_figure(shares: pd.DataFrame, systems: Sequence[str]) -> Figure:
    """Return the shares of the terms over the steps, a panel for each of the systems that measured them."""
    by_system = shares.rename(columns={"panel": "series", "series": "panel"})
    by_system = by_system[by_system["panel"].isin(systems)]
    values = by_system["value"]
    percent = 100 * values.where(values > 0)  # the axis is logarithmic
    data = mean_lines(by_system.assign(value=percent))
    about = []
    for (system, name), line in data.groupby(["panel", "series"], sort=False):
        mean = line["y"].mean()
        about.append(f"{system}: {name} {mean:.3g} % on average")
    axes = {"xlabel": STEP, "ylabel": "share of the gradient (%)", "yscale": "log"}
    panels = style.line_panels(data, dict.fromkeys(systems, axes), whole=True)
    return Figure("gradient-shares", "Share of each term in the gradient", panels, data, about)
