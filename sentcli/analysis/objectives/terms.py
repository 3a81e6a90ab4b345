"""The terms of a loss over the steps of training runs, and their shares of the gradient."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from annotated_types import Ge
from pydantic import BaseModel, StrictInt

from sentcli.analysis.runs import RunMethod, RunMetrics, read_config, read_metrics, thinned
from sentcli.errors import InputError
from sentcli.io.forms import Number, checked, read_json
from sentcli.pages import style
from sentcli.pages.page import Figure, Section
from sentcli.table import Table
from sentcli.training.records import IDENTITY_FILE

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
class Term:
    """One objective of a run."""

    name: str
    weight: float | None
    """The weight of the objective in the loss; None if the run's files do not have it."""
    steps: tuple[int, ...]
    values: tuple[float, ...]
    """The unweighted value at each of `steps`."""
    share_steps: tuple[int, ...]
    shares: tuple[float, ...]
    """The norm of the weighted term's gradient at the encoder over the sum of all terms' norms, at `share_steps`."""

    @property
    def mean_share(self) -> float | None:
        """The mean of `shares`; None if there are none."""
        if not self.shares:
            return None
        return float(np.mean(self.shares))

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        first = last = None
        if self.values:
            first = self.values[0]
            last = self.values[-1]
        return {
            "weight": self.weight,
            "mean_share": self.mean_share,
            "share_steps": list(self.share_steps),
            "shares": list(self.shares),
            "first": first,
            "last": last,
        }


@dataclass(frozen=True)
class LossTerms:
    """The loss terms of one run."""

    terms: tuple[Term, ...]
    steps: int
    """The last step that was logged."""
    finished: bool
    groups: int | None = None
    """The number of groups that its head whitens; 0 for groups of two columns, None if it whitens no groups."""

    @property
    def measured(self) -> bool:
        """Whether the shares of several terms were logged."""
        return len(self.terms) > 1 and any(term.shares for term in self.terms)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "steps": self.steps,
            "finished": self.finished,
            "terms": {term.name: term.to_dict() for term in self.terms},
        }


def read_terms(folder: Path) -> LossTerms:
    """Read the terms of a run, finished or not.

    Raises:
        InputError: if it has no log, or has not made a step; DataError for damaged files.
    """
    metrics = read_metrics(folder)
    if not metrics.steps:
        raise InputError(f"{folder} has not logged an optimiser step yet")
    config = read_config(folder)
    finished = bool(config)
    if not finished and (folder / IDENTITY_FILE).is_file():
        config = read_json(folder / IDENTITY_FILE)
    sections = _method_sections(config, folder)
    terms = []
    for name in _term_names(metrics):
        steps, values = metrics.column(name, metrics.steps)
        share_steps, shares = metrics.column(f"{SHARE}{name}", metrics.steps)
        term = Term(
            name=name,
            weight=sections.get(name, {}).get("weight"),
            steps=tuple(steps),
            values=tuple(values),
            share_steps=tuple(share_steps),
            shares=tuple(shares),
        )
        terms.append(term)
    groups = None
    head = sections.get("head", {})
    if head.get("kind") in GROUPED:
        groups = head.get("num_groups", 0)
    return LossTerms(tuple(terms), metrics.steps[-1]["step"], finished, groups)


def _method_sections(config: dict[str, Any], folder: Path) -> dict[str, dict[str, Any]]:
    """Return the sections of a run's method, such as its objectives and its head, from its configuration.

    Raises:
        DataError: if one of them is of another form.
    """
    sections = {}
    for name, section in checked(RunMethod, config, folder).method.items():
        if isinstance(section, dict):
            checked(MethodSection, section, f"{folder}: method.{name}")
            sections[name] = section
    return sections


def _term_names(metrics: RunMetrics) -> list[str]:
    """Return the names of the terms of a run's loss, in the order of its log."""
    names: dict[str, None] = {}
    for line in metrics.steps:
        names |= dict.fromkeys(line)
    return [name for name in names if name not in OTHERS and not name.startswith(SHARE)]


STEP = "optimiser step"


def term_sections(runs: dict[str, LossTerms]) -> list[Section]:
    """Return tables and figures of the loss terms of runs by their short names."""
    if not runs:
        return []
    sections = [Section("Terms of the loss", table=_terms_table(runs), file="terms")]
    if any(run.measured for run in runs.values()):
        sections.append(Section("Shares of the gradient", figure=_shares_figure(runs)))
    return [*sections, Section("Terms over the steps", figure=_terms_figure(runs))]


def _terms_table(runs: dict[str, LossTerms]) -> Table:
    """Return a row for each term of each run."""
    rows = []
    for name, run in runs.items():
        for term in run.terms:
            tenth = max(1, len(term.values) // 10)
            shares = 100 * pd.Series(term.shares, dtype=float)
            values = pd.Series(term.values, dtype=float)
            rows.append(
                {
                    "run": name,
                    "term": term.name,
                    "weight": term.weight,
                    "share %": shares.mean(),
                    "least %": shares.min(),
                    "greatest %": shares.max(),
                    "measured": len(shares),
                    "term, first steps": values[:tenth].mean(),
                    "term, last steps": values[-tenth:].mean(),
                }
            )
    formats = {"weight": "g", "term, first steps": ".4g", "term, last steps": ".4g"}
    note = (
        "Share: norm of the weighted term's gradient at the encoder over the sum of these norms, the mean of the steps "
        "where training measured it (--set share_every). Terms are unweighted: means of the first and the last tenth."
    )
    return Table.of_frame("Terms of the loss", pd.DataFrame(rows), formats=formats, number=".3g", notes=(note,))


def _shares_figure(runs: dict[str, LossTerms]) -> Figure:
    """Return the shares of the terms over the steps, a panel for each run that measured them."""
    parts = []
    about = []
    axes = {}
    for name, run in runs.items():
        if not run.measured:
            continue
        means = []
        for term in run.terms:
            shares = pd.Series(term.shares, dtype=float)
            line = {"panel": name, "series": term.name, "x": list(term.share_steps), "y": 100 * shares}
            part = pd.DataFrame(line)
            parts.append(part[shares > 0])
            percent = 100 * (term.mean_share or 0)
            means.append(f"{term.name} {percent:.3g} %")
        about.append(f"{name}, mean shares: {', '.join(means)}")
        axes[name] = {"xlabel": STEP, "ylabel": "share of the gradient (%)", "yscale": "log"}
    data = pd.concat(parts)
    panels = style.line_panels(data, axes, whole=True)
    return Figure("gradient-shares", "Share of each term in the gradient", panels, data, "; ".join(about))


def _terms_figure(runs: dict[str, LossTerms]) -> Figure:
    """Return the terms over the steps, a panel for each term with a line for each run that logged it."""
    logged: dict[str, dict[str, Term]] = {}
    for label, run in runs.items():
        for term in run.terms:
            if term.steps:
                logged.setdefault(term.name, {})[label] = term
    parts = []
    about = []
    axes = {}
    for name, by_run in logged.items():
        is_positive = True
        for label, term in by_run.items():
            steps, values = thinned(term.steps, term.values)
            is_positive &= bool(np.min(values) > 0)
            parts.append(pd.DataFrame({"panel": name, "series": label, "x": steps, "y": values}))
            about.append(f"{name} of {label} goes from {values[0]:.3g} to {values[-1]:.3g}")
        axes[name] = {
            "title": name if len(by_run) > 1 else f"{name} ({label})",
            "xlabel": STEP,
            "ylabel": f"{name} (unweighted)",
            "yscale": "log" if is_positive else "linear",
        }
    data = pd.DataFrame(columns=["panel", "series", "x", "y"])
    if parts:
        data = pd.concat(parts)
    panels = style.line_panels(data, axes, list(runs), whole=True)
    return Figure("loss-terms", "Terms of the loss over the steps", panels, data, "; ".join(about))
