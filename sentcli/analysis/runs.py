"""What a training run logged (``metrics.jsonl``): evaluations, the terms of its loss, their parts in the gradient."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sentcli.errors import DataError, InputError

METRICS, CONFIG, RUN = "metrics.jsonl", "sentcli.json", "run.json"
"""As in `training.run_folder`, which needs torch."""

SHARE = "share_"
OTHERS = ("step", "loss", "learning_rate", "grad_norm", "sentences_per_second")
"""What a line of an optimiser step holds beside the terms and their shares."""
GROUPED = ("shuffled-group", "group")
"""Kinds of the whitening head that cut the columns into groups."""


@dataclass(frozen=True)
class RunMetrics:
    """The lines of one run, in order."""

    name: str
    steps: tuple[dict[str, Any], ...]
    """Of optimiser steps."""
    evaluations: tuple[dict[str, Any], ...]
    """Of the dev set, and of held-out text."""

    def column(self, key: str, lines: tuple[dict[str, Any], ...] | None = None) -> tuple[list[int], list[float]]:
        """Return the steps and values of the evaluations (or other lines) that have a number under a key."""
        chosen = self.evaluations if lines is None else lines
        points = [(line["step"], line[key]) for line in chosen if isinstance(line.get(key), int | float)]
        return [step for step, _ in points], [value for _, value in points]


def is_run(path: Path) -> bool:
    """Say whether a folder is that of a training run, finished or not."""
    return (path / METRICS).is_file() or (path / RUN).is_file()


def read_metrics(folder: Path) -> RunMetrics:
    """Read what a run logged; a line that was torn at the end is left out.

    Raises:
        InputError: if the folder has no metrics, or they are empty; DataError for a line that is no record.
    """
    path = folder / METRICS
    try:
        lines = path.read_text("utf-8").split("\n")
    except OSError as error:
        raise InputError(f"{folder} has no {METRICS}: it is not the folder of a training run") from error
    except UnicodeDecodeError as error:
        raise DataError(path, "not UTF-8 text") from error
    records = []
    for number, line in enumerate(lines, 1):
        try:
            if line.strip():
                records.append(_record(line))
        except ValueError as error:
            if number == len(lines):
                break
            raise DataError(path, f"not a line of a training run: {error}", line=number) from error
    if not records:
        raise InputError(f"{path} is empty: the run has not made a step")
    steps, evaluations = (tuple(r for r in records if ("loss" in r) is step) for step in (True, False))
    return RunMetrics(folder.name or str(folder), steps, evaluations)


def _record(line: str) -> dict[str, Any]:
    record = json.loads(line)
    if not isinstance(record, dict) or type(record.get("step")) is not int:
        raise ValueError("it has no step")
    return record


def read_config(folder: Path) -> dict[str, Any]:
    """Return the configuration of a finished run; empty if the run has not finished.

    Raises:
        DataError: if it is no JSON object.
    """
    path = folder / CONFIG
    if not path.exists():
        return {}
    try:
        config = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise DataError(path, "not valid JSON") from error
    if not isinstance(config, dict):
        raise DataError(path, "not a JSON object")
    return config


@dataclass(frozen=True)
class Term:
    """One objective of a run."""

    name: str
    weight: float | None
    """It has in the loss; None if the run does not say."""
    steps: tuple[int, ...]
    values: tuple[float, ...]
    """Unweighted, of each step."""
    share_steps: tuple[int, ...]
    shares: tuple[float, ...]
    """Norm of the weighted term's gradient at the encoder over the sum of the norms of all terms, where measured."""

    @property
    def mean_share(self) -> float | None:
        """Over the steps where it was measured."""
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
    """The terms of one run."""

    terms: tuple[Term, ...]
    steps: int
    """The last one that was logged."""
    finished: bool
    groups: int | None = None
    """That its head whitens, 0 for groups of two columns; None if it whitens no groups."""

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
        InputError: if it has no metrics, or has not made a step; DataError for what is damaged.
    """
    metrics = read_metrics(folder)
    if not metrics.steps:
        raise InputError(f"{folder} has not logged an optimiser step yet")
    method = _method(folder)
    names = dict.fromkeys(key for line in metrics.steps for key in line if not key.startswith(SHARE))
    terms = []
    for name in names:
        if name in OTHERS:
            continue
        steps, values = metrics.column(name, metrics.steps)
        share_steps, shares = metrics.column(f"{SHARE}{name}", metrics.steps)
        weight = method.get(name, {}).get("weight")
        terms.append(Term(name, weight, tuple(steps), tuple(values), tuple(share_steps), tuple(shares)))
    head = method.get("head", {})
    groups = head.get("num_groups", 0) if head.get("kind") in GROUPED else None
    return LossTerms(tuple(terms), metrics.steps[-1]["step"], bool(read_config(folder)), groups)


def _method(folder: Path) -> dict[str, Any]:
    """Return the settings of the method, sections by name; empty if the run does not say them."""
    config = read_config(folder)
    if not config and (folder / RUN).is_file():
        try:
            config = json.loads((folder / RUN).read_text("utf-8"))
        except ValueError:
            config = {}
    method = config.get("method") if isinstance(config, dict) else None
    sections = method.items() if isinstance(method, dict) else ()
    return {name: section for name, section in sections if isinstance(section, dict)}


def thinned(
    steps: tuple[int, ...], values: tuple[float, ...], most: int = 300
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return means of neighbouring steps, at their last one, so that a curve has at most so many points."""
    parts = np.array_split(np.arange(len(steps)), min(most, len(steps)))
    return tuple(steps[part[-1]] for part in parts), tuple(float(np.mean([values[i] for i in part])) for part in parts)
