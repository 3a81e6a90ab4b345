"""Texts with a class as a task: whether a linear classifier on their vectors tells the classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sentcli import console
from sentcli.evaluation.evaluated import EvaluatedModel, TextVectors
from sentcli.evaluation.labelled_tasks import TableTask, told
from sentcli.evaluation.logistic import LbfgsTrainer
from sentcli.evaluation.score_kinds import LABELS
from sentcli.evaluation.scores import TaskScore
from sentcli.evaluation.transfer import classifiers
from sentcli.evaluation.transfer import score as score_examples
from sentcli.evaluation.transfer_tasks import Example, Examples

TRAINER = LbfgsTrainer()


@dataclass(frozen=True)
class LabelsTask(TableTask):
    """Texts with a class: the accuracy of a logistic regression on their vectors, by nested cross-validation."""

    @property
    def described(self) -> str:
        """The number of texts and classes."""
        return f"{len(self.table):,} texts of {len(self._classes)} classes"

    @property
    def texts(self) -> Sequence[str]:
        """Every text."""
        return self.table.texts[0]

    @property
    def protocol(self) -> dict[str, Any]:
        """Every choice that moves the score besides table and model."""
        settings = {key: value for key, value in TRAINER.describe().items() if "test set" not in key}
        return {"features": "vectors as the model gives them", **settings}

    @cached_property
    def _classes(self) -> dict[str, int]:
        """The number of texts of each class, in the order of their names."""
        return dict(sorted(Counter(map(str, self.table.values or [])).items()))

    @cached_property
    def _examples(self) -> Examples:
        numbers = {label: number for number, label in enumerate(self._classes)}
        pairs = zip(self.table.texts[0], map(str, self.table.values or []), strict=True)
        ordered = sorted((Example((text,), numbers[label]) for text, label in pairs), key=lambda example: example.order)
        return Examples(self.name, len(numbers), "folds", {"all": ordered})

    def score(self, model: EvaluatedModel | None, vectors: TextVectors) -> TaskScore:
        """Train and test by ten folds, each with a penalty that is chosen by ten folds of its training texts."""
        with console.counting(f"{self.name}: classifiers", classifiers(TRAINER, self._examples)) as finished:
            trained = score_examples(TRAINER, self._examples, vectors, finished)
        assert trained.correct is not None
        metrics = {name: value / 100 for name, value in trained.metrics.items()}
        majority = max(self._classes.values()) / len(self.table)
        facts = {"classes": len(self._classes), "majority": majority, "penalties": trained.facts["penalties"]}
        facts |= {"truncated": trained.facts["truncated"]}
        score = TaskScore(self.name, LABELS.name, metrics, ("accuracy",), facts, **self.answered(trained.correct))
        return told(score, self.kind, len(self.table))
