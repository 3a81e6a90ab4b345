"""Tables of labelled text as tasks: how well a model tells what their labels say.

Every score has the entries ``kind``, ``metric``, ``value`` and ``items`` beside its metrics. Anchors are encoded with
the model's prompt for queries, positives and negatives with that for documents, all other texts with the usual prompt.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from sentcli import console
from sentcli.evaluation import significance
from sentcli.evaluation.evaluated import EvaluatedModel, Task, TextVectors
from sentcli.evaluation.logistic import LbfgsTrainer
from sentcli.evaluation.scores import BINARY, LABELS, TRIPLETS, TaskScore
from sentcli.evaluation.stores import digest
from sentcli.evaluation.sts import ROUNDING, SimilarityTask, cosine
from sentcli.evaluation.transfer import classifiers
from sentcli.evaluation.transfer import score as score_examples
from sentcli.evaluation.transfer_tasks import Example, Examples
from sentcli.io.labelled import Kind, LabelledTable

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]
TRAINER = LbfgsTrainer()


class LabelledTask(Task, Protocol):
    """A task that was read from a table of labelled text, or from a retrieval set."""

    @property
    def kind(self) -> Kind:
        """The kind of the table."""

    @property
    def described(self) -> str:
        """What it holds, in words."""

    @property
    def protocol(self) -> dict[str, Any]:
        """Every choice that moves the score besides table and model."""

    @property
    def all_texts(self) -> Sequence[str]:
        """Texts that the model has to encode, with repetitions; of a retrieval set its first documents."""


def told(score: TaskScore, kind: Kind, items: int) -> TaskScore:
    """Return a score with the entries of the JSON that all kinds have, before its own ones."""
    facts = {"kind": kind, "metric": score.headline[0], "value": score.value, "items": items}
    return replace(score, facts=facts | score.facts)


def role_vectors(model: EvaluatedModel, texts: Sequence[str], role: str, name: str) -> TextVectors:
    """Encode texts with the model's prompt for the role ``query`` or ``document``."""
    model.encoder  # noqa: B018 - loads the model before there is a bar
    distinct = list(dict.fromkeys(texts))
    with console.encoding(f"{name}: encoding", len(distinct)) as progress:
        return model.encode(distinct, progress, prompt=model.spec.role_prompt(role))


@dataclass(frozen=True)
class TableTask:
    """What tasks of tables have in common."""

    name: str
    table: LabelledTable
    draws: int = significance.DRAWS
    """Samples of the items, for intervals and comparisons; 0 leaves them out."""

    @property
    def kind(self) -> Kind:
        """The kind of the table."""
        return self.table.kind

    @property
    def texts(self) -> Sequence[str]:
        """Texts that are encoded with the usual prompt."""
        return ()

    @property
    def all_texts(self) -> Sequence[str]:
        """Every text of every column."""
        return [text for column in self.table.texts for text in column]

    @property
    def identity(self) -> list[Any]:
        """Everything besides the model that decides the score."""
        return [
            "evaluate",
            self.kind,
            self.name,
            self.draws,
            self.protocol,
            digest([self.table.texts, self.table.values]),
        ]

    @property
    def protocol(self) -> dict[str, Any]:
        """Every choice that moves the score besides table and model."""
        return {"similarity": "cosine"}

    @property
    def stream(self) -> int:
        """The number of the samples, which are the same for all models."""
        return zlib.crc32(self.name.encode())

    def mean(self, metric: str, by_item: Floats) -> dict[str, Any]:
        """Return samples and interval of the mean of the items' values ``[items]``."""
        return self.sampled(
            metric, significance.mean_draws(by_item, self.draws, stream=self.stream) if self.draws else None
        )

    def sampled(self, metric: str, draws: Floats | None) -> dict[str, Any]:
        """Return samples of a metric ``[draws]`` and its interval, as arguments of a `TaskScore`."""
        if draws is None:
            return {}
        return {"draws": {metric: draws}, "intervals": {metric: significance.interval(draws)}}

    def answered(self, correct: npt.NDArray[np.bool_]) -> dict[str, Any]:
        """Return the interval of an accuracy between 0 and 1, and which items are right ``[items]``."""
        if not self.draws:
            return {}
        low, high = significance.accuracy_interval(correct)
        return {"correct": correct, "intervals": {"accuracy": (low / 100, high / 100)}}


@dataclass(frozen=True)
class ScoredTask:
    """Pairs with scores: Spearman's correlation with the cosines."""

    similarity: SimilarityTask
    ends: tuple[float, float]
    """The range of the scores."""
    kind: Kind = "scored"

    @property
    def name(self) -> str:
        """The name of the table."""
        return self.similarity.name

    @property
    def described(self) -> str:
        """The number of pairs and the range of their scores."""
        low, high = self.ends
        return f"{len(self.similarity.subsets[0]):,} scored pairs, scores from {low:g} to {high:g}"

    @property
    def texts(self) -> Sequence[str]:
        """Every sentence."""
        return self.similarity.texts

    @property
    def all_texts(self) -> Sequence[str]:
        """Every sentence."""
        return self.similarity.texts

    @property
    def protocol(self) -> dict[str, Any]:
        """Every choice that moves the score besides table and model."""
        return {"similarity": "cosine", "correlation": "spearman"}

    @property
    def identity(self) -> list[Any]:
        """Everything besides the model that decides the score."""
        return ["evaluate", self.ends, *self.similarity.identity]

    def score(self, model: EvaluatedModel | None, vectors: TextVectors) -> TaskScore:
        """Correlate the cosines with the scores."""
        score = self.similarity.score(model, vectors)
        facts = {key: score.facts[key] for key in ("pairs", "truncated", "zero_vectors")}
        metrics = {metric: score.metrics[metric] for metric in ("spearman", "pearson")}
        score = replace(score, metrics=metrics, facts={"range": list(self.ends), **facts})
        return told(score, "scored", facts["pairs"])


@dataclass(frozen=True)
class BinaryTask(TableTask):
    """Pairs with labels 0 and 1: how well the cosine tells one from the other."""

    @property
    def described(self) -> str:
        """The number of pairs."""
        return f"{len(self.table):,} 0/1 pairs, {int(self._positive.sum()):,} of them 1"

    @property
    def texts(self) -> Sequence[str]:
        """Every sentence."""
        return [*self.table.texts[0], *self.table.texts[1]]

    @property
    def _positive(self) -> npt.NDArray[np.bool_]:
        return np.array(self.table.values) == 1

    def score(self, model: EvaluatedModel | None, vectors: TextVectors) -> TaskScore:
        """Return average precision, the area under the ROC curve, and the best F1 of all thresholds."""
        from sklearn.metrics import average_precision_score, roc_auc_score

        first, second = self.table.texts
        predicted, positive = cosine(vectors.of(first), vectors.of(second)), self._positive
        f1, threshold = best_f1(predicted, positive)
        metrics = {
            "average_precision": float(average_precision_score(positive, predicted)),
            "auc": float(roc_auc_score(positive, predicted)),
            "f1": f1,
            "threshold": threshold,
        }
        draws = None
        if self.draws:
            draws = significance.average_precision_draws(predicted, positive, self.draws, stream=self.stream)
        facts = {
            "positive": int(positive.sum()),
            "truncated": vectors.truncated(self.texts),
            "zero_vectors": vectors.zero(self.texts),
        }
        sampled = self.sampled("average_precision", draws)
        score = TaskScore(self.name, BINARY.name, metrics, ("average_precision",), facts, **sampled)
        return told(score, self.kind, len(predicted))


def best_f1(predicted: Floats, positive: npt.NDArray[np.bool_]) -> tuple[float, float]:
    """Return the best F1 of all thresholds, and its threshold: pairs at least as similar are taken for positive.

    Args:
        predicted: similarities ``[n]``.
        positive: whether each pair is positive ``[n]``.

    Returns:
        F1 from 0 to 1, and the threshold, which lies midway between the last similarity above it and the next one.
    """
    negated, group = np.unique(-predicted, return_inverse=True)
    taken = np.cumsum(np.bincount(group))
    right = np.cumsum(np.bincount(group, weights=positive))
    f1 = 2 * right / (taken + positive.sum())
    best = int(np.argmax(f1))
    last, following = -negated[best], -negated[min(best + 1, len(negated) - 1)]
    midway = (last + following) / 2
    return float(f1[best]), float(midway if midway > following else last)


@dataclass(frozen=True)
class TripletsTask(TableTask):
    """Anchors that should be more similar to their positive than to any of their negatives."""

    @property
    def described(self) -> str:
        """The number of triplets."""
        count = len(self.table.texts) - 2
        return f"{len(self.table):,} triplets" + (f" with {count} negatives each" if count > 1 else "")

    @property
    def protocol(self) -> dict[str, Any]:
        """Every choice that moves the score besides table and model."""
        return {"similarity": "cosine", "ties": "a negative that is as similar as the positive counts as wrong"}

    def score(self, model: EvaluatedModel, vectors: TextVectors) -> TaskScore:
        """Compare each positive with the most similar negative; the roles are encoded here, with their prompts."""
        anchors, positives, *negatives = self.table.texts
        others = list(dict.fromkeys(text for column in (positives, *negatives) for text in column))
        queries = role_vectors(model, anchors, "query", self.name)
        documents = role_vectors(model, others, "document", self.name)
        anchor, positive = queries.of(anchors), documents.of(positives)
        margin = cosine(anchor, positive) - np.max([cosine(anchor, documents.of(c)) for c in negatives], axis=0)
        correct = margin > ROUNDING
        distinct = list(dict.fromkeys(anchors))
        facts = {
            "negatives": len(negatives),
            "truncated": queries.truncated(distinct) + documents.truncated(others),
            "zero_vectors": queries.zero(distinct) + documents.zero(others),
        }
        metrics = {"accuracy": float(correct.mean()), "margin": float(margin.mean())}
        answered = self.answered(correct)
        score = TaskScore(self.name, TRIPLETS.name, metrics, ("accuracy",), facts, **answered)
        return told(score, self.kind, len(correct))


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
        answered = self.answered(trained.correct)
        score = TaskScore(self.name, LABELS.name, metrics, ("accuracy",), facts, **answered)
        return told(score, self.kind, len(self.table))
