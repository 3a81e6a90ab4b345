"""What a model scored on one's own data, kept to find out later whether another one is still as good.

A model is still as good where the interval of the difference, on the same samples of the same items, excludes a loss
beyond what is allowed: a test of non-inferiority by its interval (Piaggio et al., JAMA 2012).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sentcli import __version__
from sentcli.errors import InputError
from sentcli.evaluation import significance
from sentcli.evaluation.differences import LEVEL, Difference
from sentcli.evaluation.evaluated import OwnTask
from sentcli.evaluation.score_json import pack_values, unpack_values
from sentcli.evaluation.scores import ModelScores, TaskScore
from sentcli.io.digests import json_digest
from sentcli.io.forms import Number, read_json_form, write_json
from sentcli.model.probe_vectors import ProbeVectors
from sentcli.table import Table

WORST = 10
"""The queries that are shown, of those that lost."""
_SHOWN_HITS = 5
ROUNDED = 1e-4
"""How far a score may lie from the mean of its items, since it is rounded."""
_REMEDY = "write it again with --save-baseline"


@dataclass(frozen=True)
class TaskBaseline:
    """The score of a model on a data set, with what a comparison needs."""

    metric: str
    value: Number
    draws: str
    """The metric on random samples of the items, as `score_json.pack_values` writes them."""
    data: str
    """A digest of texts, judgements and protocol."""
    protocol: dict[str, Any]
    items: list[str]
    """Ids of the queries of a retrieval set."""
    values: list[Number]
    """The metric of each of them."""
    hits: dict[str, list[str]]
    """Ids of the first documents of each query."""

    @classmethod
    def of_score(cls, score: TaskScore, data: str = "", protocol: dict[str, Any] | None = None) -> TaskBaseline:
        """Return what is kept of a score.

        Args:
            score: with samples of its main metric.
            data: a digest of what was scored on.
            protocol: every choice that moves the score.

        Raises:
            InputError: if it has no samples.
        """
        metric = score.main_metric
        values: list[Number] = []
        if score.items:
            values = score.item_values[metric].tolist()
        return cls(
            metric=metric,
            value=score.value,
            draws=_draws(score),
            data=data,
            protocol=protocol or {},
            items=list(score.items),
            values=values,
            hits=score.hits,
        )

    def check(self, problem: str, task: str) -> None:
        """Check that there are samples, and a value between 0 and 1 for each item, whose mean the score is.

        Args:
            problem: how a message begins.
            task: the name of the data set.

        Raises:
            InputError: otherwise.
        """
        try:
            unpack_values(self.draws)
        except ValueError as error:
            raise InputError(f"{problem} (draws of {task}: {error}); {_REMEDY}") from error
        if not self.items:
            return
        values = np.array(self.values, np.float64)
        is_whole = len(values) == len(self.items) and ((values >= 0) & (values <= 1)).all()
        if not is_whole or abs(float(values.mean()) - (self.value or 0.0)) > ROUNDED:
            raise InputError(f"{problem} (values of {task}); {_REMEDY}")


@dataclass(frozen=True)
class Changed:
    """An item that another model does worse."""

    item: str
    before: float
    after: float
    hits_before: list[str]
    hits_after: list[str]


@dataclass(frozen=True)
class BaselineComparison:
    """A score compared with a baseline."""

    metric: str
    before: float
    """The score of the baseline."""
    difference: Difference
    """The score minus that of the baseline."""
    allow: float
    items: int
    """The number of items."""
    worst: list[Changed]
    """At most `WORST` items, of those that lost the most."""

    @property
    def after(self) -> float:
        """The score that was compared."""
        return self.before + self.difference.difference

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the difference."""
        interval = self.difference.interval
        assert interval is not None  # two models as they are, or seeds of which there are several
        return interval

    @property
    def passed(self) -> bool:
        """Whether a loss beyond what is allowed is excluded."""
        return self.difference.excludes_loss(self.allow)

    @property
    def judgement(self) -> str:
        """Whether the model is as good, in words."""
        if self.passed:
            return "still as good"
        return "worse" if self.difference.is_loss else "not shown to be as good"

    @property
    def words(self) -> str:
        """The difference with its interval, and what is allowed; of samples in which nothing changed, what that says.

        Where no item of n changed, more than 1 - 0.05 ** (1 / n) of others change in less than 5 % of such samples.
        """
        allowed = f"where a loss of {self.allow:g} is allowed"
        if any(self.interval):
            return f"{self.difference.words()}, {allowed}"
        share = 1 - (1 - LEVEL) ** (1 / self.items)
        return f"unchanged on all {self.items:,} (up to {share:.0%} of others may differ), {allowed}"

    def to_dict(self) -> dict[str, Any]:
        """Return the entry ``baseline`` of the JSON of a data set."""
        return {
            "metric": self.metric,
            "value": self.before,
            "difference": self.difference.difference,
            "interval": self.interval,
            "allow": self.allow,
            "worst": list(map(asdict, self.worst)),
            "passed": self.passed,
        }

    def worst_table(self, title: str, queries: Mapping[str, str]) -> Table:
        """Return the table of the items that lost the most.

        Args:
            title: of the table.
            queries: the texts of queries by their ids.
        """
        rows = []
        for worst in self.worst:
            row = {
                "query": queries.get(worst.item, worst.item),
                "before": worst.before,
                "now": worst.after,
                "hits before": ", ".join(worst.hits_before[:_SHOWN_HITS]),
                "hits now": ", ".join(worst.hits_after[:_SHOWN_HITS]),
            }
            rows.append(row)
        formats = {"before": ".4f", "now": ".4f"}
        notes = [f"Hits: the first {_SHOWN_HITS} documents."]
        return Table.of_rows(title, rows, formats=formats, notes=notes, wide=("query", "hits before", "hits now"))


@dataclass(frozen=True)
class Baseline:
    """The content of a file of ``--save-baseline``."""

    model: str
    choices: dict[str, Any]
    """How the model was used: pooling, prompts, lengths, precision."""
    tasks: dict[str, TaskBaseline]
    canaries: ProbeVectors | None = None
    """The vectors of a few fixed texts; None in files of earlier versions."""
    sentcli: str = __version__
    format: Literal[1] = 1

    @classmethod
    def of_scores(cls, scores: ModelScores, tasks: Sequence[OwnTask], canaries: ProbeVectors) -> Baseline:
        """Return the baseline of a model's scores on tasks."""
        baselines = {}
        for task, score in zip(tasks, scores.tasks, strict=True):
            baselines[task.name] = TaskBaseline.of_score(score, json_digest(task.identity), task.protocol)
        choices = dict(scores.protocol)
        for key in ("kinds", "interval_draws"):
            choices.pop(key, None)
        return cls(scores.model, choices, baselines, canaries)

    def write(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        write_json(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> Baseline:
        """Read a file of ``--save-baseline``.

        Raises:
            InputError: if it is missing or damaged.
        """
        return read_json_form(cls, path, missing=f"no such file: {path}", remedy=_REMEDY)

    def check(self, tasks: Sequence[OwnTask], path: Path) -> None:
        """Refuse data that the baseline was not measured on.

        Raises:
            InputError: which names the difference.
        """
        missing = [task.name for task in tasks if task.name not in self.tasks]
        if missing:
            raise InputError(f"{path} has no score on {', '.join(missing)}; it has: {', '.join(self.tasks)}")
        for task in tasks:
            before = self.tasks[task.name]
            before.check(f"{path} is damaged", task.name)
            for key in sorted(before.protocol.keys() | task.protocol.keys()):
                old = before.protocol.get(key)
                new = task.protocol.get(key)
                if old != new and json_digest(old) != json_digest(new):
                    raise InputError(f"{path}: {task.name} was measured with {key} {old}, and has {key} {new} now")
            if json_digest(task.identity) != before.data:
                raise InputError(f"{path}: {task.name} has other texts or judgements now; {_REMEDY}")

    def compare(self, score: TaskScore, allow: float, path: Path) -> BaselineComparison:
        """Compare the score of another model on the same data.

        Args:
            score: of the data set.
            allow: the loss that is allowed, in units of the metric.
            path: of the baseline, for messages.

        Raises:
            InputError: if the baseline has another metric or was measured on other queries, or if there are no samples.
        """
        before = self.tasks[score.task]
        metric = score.main_metric
        replicates = unpack_values(_draws(score))  # rounded like those of the baseline
        replicates_before = unpack_values(before.draws)
        same_items = list(score.items) == before.items and len(replicates) == len(replicates_before)
        if metric != before.metric or not same_items:
            raise InputError(f"{path}: {score.task} was measured by another metric or on other queries; {_REMEDY}")
        size = score.size or len(before.items)
        value = before.value or 0.0
        if score.items:
            difference = significance.compare_means(score.item_values[metric], np.array(before.values))
        else:
            difference = significance.compare_two(score.value, value, replicates, replicates_before, size)
        return BaselineComparison(
            metric=metric,
            before=value,
            difference=replace(difference, difference=score.value - value),
            allow=allow,
            items=size,
            worst=_worst(before, score),
        )


def _draws(score: TaskScore) -> str:
    """Return the main metric on samples of the items, as the file has it."""
    replicates = score.replicates_of(score.main_metric)
    if replicates is None:
        raise InputError(f"{score.task}: too few items, or too few of one label, to compare its score with another")
    return pack_values(replicates)


def compare_scores(before: TaskScore, now: TaskScore, allow: float = 0.0) -> BaselineComparison:
    """Compare the scores of two models on one task, on the same samples of its items.

    Args:
        before: of the one model.
        now: of the other model.
        allow: the loss that is allowed, in units of the metric.
    """
    baseline = Baseline("", {}, {now.task: TaskBaseline.of_score(before)})
    return baseline.compare(now, allow, Path(now.task))


def _worst(before: TaskBaseline, score: TaskScore) -> list[Changed]:
    """Return at most `WORST` items that another model does worse, those that lost the most first."""
    worst: list[Changed] = []
    if not score.items:
        return worst
    values = score.item_values[before.metric]
    order = np.argsort(values - np.array(before.values), kind="stable")
    for row in order[:WORST].tolist():
        if values[row] >= before.values[row]:
            break
        item = score.items[row]
        changed = Changed(
            item=item,
            before=before.values[row],
            after=float(values[row]),
            hits_before=before.hits.get(item, []),
            hits_after=score.hits.get(item, []),
        )
        worst.append(changed)
    return worst
