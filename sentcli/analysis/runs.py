"""The log of a training run (``metrics.jsonl``): evaluations, loss terms, and their shares of the gradient."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge
from pydantic import BaseModel, StrictInt

from sentcli.errors import InputError
from sentcli.io.atomic import regular
from sentcli.io.forms import Number, Plain, checked, read_json
from sentcli.training.records import CONFIG_FILE, IDENTITY_FILE, METRICS_FILE, parsed

SHARE = "share_"
OTHERS = ("step", "loss", "learning_rate", "grad_norm", "sentences_per_second")
"""Keys of a line of an optimiser step that are neither terms nor their shares."""
GROUPED = ("shuffled-group", "group")
"""Kinds of the whitening head that split the columns into groups."""


@dataclass(frozen=True)
class RunMetrics:
    """The lines of the log of one run, in order."""

    name: str
    steps: tuple[dict[str, Any], ...]
    """Lines of optimiser steps."""
    evaluations: tuple[dict[str, Any], ...]
    """Lines of evaluations on the dev set and on held-out text."""

    def column(self, key: str, lines: tuple[dict[str, Any], ...] | None = None) -> tuple[list[int], list[float]]:
        """Return the steps and the values of a key, of those evaluations (or other lines) that have a number for it."""
        chosen = self.evaluations if lines is None else lines
        points = [(line["step"], line[key]) for line in chosen if isinstance(line.get(key), int | float)]
        return [step for step, _ in points], [value for _, value in points]


def is_run(path: Path) -> bool:
    """Tell whether a folder is that of a training run, finished or not."""
    return (path / METRICS_FILE).is_file() or (path / IDENTITY_FILE).is_file()


def read_metrics(folder: Path) -> RunMetrics:
    """Read the log of a run; an incomplete last line is ignored.

    Raises:
        InputError: if the folder has no log, or it is empty; DataError for a damaged line.
    """
    path = folder / METRICS_FILE
    try:
        regular(path)
        records = parsed(path.read_bytes(), path)
    except OSError as error:
        raise InputError(f"{folder} has no {METRICS_FILE}: it is not the folder of a training run") from error
    if not records:
        raise InputError(f"{path} is empty: the run has not made a step")
    steps, evaluations = (tuple(r for r in records if ("loss" in r) is step) for step in (True, False))
    return RunMetrics(folder.name or str(folder), steps, evaluations)


class RunMethod(BaseModel):
    """What is read of a run that has not finished."""

    method: dict[str, Plain] = {}


class RunConfig(RunMethod):
    """What is read of the configuration of a run; each is a table of values by name."""

    settings: dict[str, Plain] = {}
    results: dict[str, Plain] = {}
    start_model: dict[str, Plain] = {}
    encoder: dict[str, Plain] = {}
    environment: dict[str, Plain] = {}
    data: list[dict[str, Plain]] = []


class MethodSection(BaseModel):
    """What is read of the settings of an objective or a head."""

    weight: Number | None = None
    kind: str | None = None
    num_groups: Annotated[StrictInt, Ge(0)] | None = None


def read_config(folder: Path) -> dict[str, Any]:
    """Return the configuration of a finished run; empty if the run has not finished.

    Raises:
        InputError: if it is no JSON, or of another form.
    """
    path = folder / CONFIG_FILE
    config = read_json(path, default={})
    checked(RunConfig, config, path)
    return dict(config)


@dataclass(frozen=True)
class Term:
    """One objective of a run."""

    name: str
    weight: float | None
    """Its weight in the loss; None if the run's files do not have it."""
    steps: tuple[int, ...]
    values: tuple[float, ...]
    """The unweighted value at each of `steps`."""
    share_steps: tuple[int, ...]
    shares: tuple[float, ...]
    """The norm of the weighted term's gradient at the encoder over the sum of all terms' norms, at `share_steps`."""

    @property
    def mean_share(self) -> float | None:
        """The mean of `shares`; None if there are none."""
        return float(np.mean(self.shares)) if self.shares else None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "weight": self.weight,
            "mean_share": self.mean_share,
            "share_steps": list(self.share_steps),
            "shares": list(self.shares),
            "first": self.values[0] if self.values else None,
            "last": self.values[-1] if self.values else None,
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
    finished = read_config(folder)
    config = read_json(folder / IDENTITY_FILE) if not finished and (folder / IDENTITY_FILE).is_file() else finished
    method = checked(RunMethod, config, folder).method
    sections = {name: section for name, section in method.items() if isinstance(section, dict)}
    for name, section in sections.items():
        checked(MethodSection, section, f"{folder}: method.{name}")
    keys = dict.fromkeys(key for line in metrics.steps for key in line)
    terms = []
    for name in (key for key in keys if key not in OTHERS and not key.startswith(SHARE)):
        steps, values = metrics.column(name, metrics.steps)
        share_steps, shares = metrics.column(f"{SHARE}{name}", metrics.steps)
        weight = sections.get(name, {}).get("weight")
        terms.append(Term(name, weight, tuple(steps), tuple(values), tuple(share_steps), tuple(shares)))
    head = sections.get("head", {})
    groups = head.get("num_groups", 0) if head.get("kind") in GROUPED else None
    return LossTerms(tuple(terms), metrics.steps[-1]["step"], bool(finished), groups)


def thinned(
    steps: tuple[int, ...], values: tuple[float, ...], most: int = 300
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return the points of a curve with at most `most` points, each the mean of adjacent steps, at the last of them."""
    parts = np.array_split(np.arange(len(steps)), min(most, len(steps)))
    return tuple(steps[part[-1]] for part in parts), tuple(float(np.mean([values[i] for i in part])) for part in parts)
