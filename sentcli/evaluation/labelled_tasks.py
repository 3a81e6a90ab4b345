"""Tables of labelled text as tasks: 0/1 pairs, triplets, and texts with a class.

Anchors are encoded with the model's prompt for queries, positives and negatives with that for documents, all other
texts with the usual prompt. Tables of scored pairs are a `sts.SimilarityTask`, anchors with positives
a `positives.PairsTask`.
"""

from __future__ import annotations

import re
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar, Self

import numpy as np

from sentcli import console
from sentcli.arrays import BoolArray, Float64Array, Int64Array
from sentcli.evaluation import significance, transfer, transfer_data
from sentcli.evaluation.average_precision import (
    LEAST_OF_EITHER_LABEL,
    best_f1,
    precision_interval,
    precision_replicates,
)
from sentcli.evaluation.evaluated import EvaluatedModel
from sentcli.evaluation.logistic import LbfgsTrainer
from sentcli.evaluation.score_kinds import BINARY, OWN_KINDS, ScoreKind
from sentcli.evaluation.scores import TaskScore
from sentcli.evaluation.sts import SIMILARITY_ROUNDING, pair_similarities, similarities
from sentcli.io.digests import json_digest
from sentcli.io.labelled import LabelledTable
from sentcli.model.spec import ModelSpec, Similarity
from sentcli.model.tokenizing import pair_text
from sentcli.stores.text_vectors import TextVectors

TRAINER = LbfgsTrainer()
"""The trainer of the classifiers of texts with a class."""


@dataclass(frozen=True)
class TableTask(ABC):
    """A task on a table of labelled text."""

    name: str
    table: LabelledTable
    resamples: int = significance.RESAMPLES
    """Samples of the items, for intervals and comparisons; 0 leaves them out."""
    caveats: Mapping[str, Any] = field(default_factory=dict)
    similarity: Similarity = "cosine"
    """How vectors are compared."""

    def for_model(self, spec: ModelSpec) -> Self:
        """Return the task as a model takes it, whose folder may name another similarity."""
        return replace(self, similarity=spec.similarity)

    def __len__(self) -> int:
        return len(self.table)

    @property
    def kind(self) -> ScoreKind:
        """The kind of the scores, which is that of the table."""
        return OWN_KINDS[self.table.kind]

    @property
    def texts(self) -> Sequence[str]:
        """Texts that are encoded with the usual prompt."""
        return ()

    @property
    def all_texts(self) -> Sequence[str]:
        """Every text of every column."""
        return list(chain.from_iterable(self.table.texts))

    @property
    def identity(self) -> list[Any]:
        """Everything besides the model that decides the score."""
        content: list[Any] = [self.table.texts, self.table.values]
        if self.table.groups is not None:
            content.append(self.table.groups)
        return ["evaluate", self.table.kind, self.name, self.resamples, self.protocol, json_digest(content)]

    @property
    def protocol(self) -> dict[str, Any]:
        """Every choice that moves the score besides table and model."""
        return {"similarity": self.similarity}

    @property
    def stream(self) -> int:
        """The number of the samples, which are the same for all models."""
        return zlib.crc32(self.name.encode())

    @abstractmethod
    def score(self, model: EvaluatedModel | None, vectors: TextVectors) -> TaskScore:
        """Score a model."""

    def of_rows(self, rows: Sequence[int]) -> Self:
        """Return the task of some rows of its table."""
        return replace(self, table=self.table.of_rows(rows))

    def by_role(
        self, model: EvaluatedModel | None, anchors: Sequence[str], others: Sequence[str]
    ) -> tuple[TextVectors, TextVectors]:
        """Encode anchors with the model's prompt for queries, and other texts with that for documents."""
        assert model is not None
        label = f"{self.name}: encoding"
        queries = model.encode_shown(label, anchors, prompt=model.spec.role_prompt("query"))
        documents = model.encode_shown(label, others, prompt=model.spec.role_prompt("document"))
        return queries, documents

    def accuracy_score(self, correct: BoolArray, metrics: dict[str, float], details: dict[str, Any]) -> TaskScore:
        """Return a score whose main metric is an accuracy between 0 and 1, with its interval unless `resamples` is 0.

        Args:
            correct: whether each item is right ``[items]``.
            metrics: ``accuracy`` and others.
            details: further entries of the JSON.
        """
        score = TaskScore(self.name, self.kind.name, metrics, ("accuracy",), details)
        if self.resamples:
            low, high = significance.accuracy_interval(correct)
            interval = (low / 100, high / 100)
            score = replace(score, correct=correct, intervals={"accuracy": interval})
        return score.of_own_data(len(correct))


def role_counts(queries: TextVectors, documents: TextVectors) -> dict[str, int]:
    """Count the distinct queries and documents that are too long for the model, and those whose vector is zero."""
    counts = {"truncated": 0, "zero_vectors": 0}
    for vectors in (queries, documents):
        texts = list(vectors.rows)
        counts["truncated"] += vectors.truncated(texts)
        counts["zero_vectors"] += vectors.zero(texts)
    return counts


@dataclass(frozen=True)
class BinaryTask(TableTask):
    """Pairs with labels 0 and 1: how well the similarity tells one from the other."""

    joint: bool = False
    """Whether a cross-encoder reads the pairs, whose scores take the place of the similarities."""
    takes_pairs: ClassVar[bool] = True
    """Whether a cross-encoder is scored on it."""

    def for_model(self, spec: ModelSpec) -> BinaryTask:
        """Return the task as a model takes it: a cross-encoder reads both texts together."""
        if spec.scores_pairs:
            return replace(self, joint=True)
        return super().for_model(spec)

    @property
    def description(self) -> str:
        """The number of pairs."""
        return f"{len(self.table):,} 0/1 pairs, {int(self.right.sum()):,} of them 1"

    @property
    def texts(self) -> Sequence[str]:
        """Every sentence, or every pair as one text."""
        if self.joint:
            return list(map(pair_text, *self.table.texts))
        return self.all_texts

    @property
    def protocol(self) -> dict[str, Any]:
        """Every choice that moves the score besides table and model."""
        return {"similarity": "cross-encoder"} if self.joint else super().protocol

    @property
    def right(self) -> BoolArray:
        """Whether each pair has the label 1 ``[n]``."""
        return np.array(self.table.values) == 1

    def predicted(self, vectors: TextVectors) -> Float64Array:
        """Return the similarity of each pair ``[n]``, or the score of a cross-encoder."""
        first, second = self.table.texts
        return pair_similarities(first, second, vectors, self.similarity, joint=self.joint)

    def score(self, model: EvaluatedModel | None, vectors: TextVectors) -> TaskScore:
        """Return average precision, the area under the ROC curve, and the best F1 of all thresholds."""
        from sklearn.metrics import average_precision_score, roc_auc_score

        predicted = self.predicted(vectors)
        positive = self.right
        f1, threshold = best_f1(predicted, positive)
        metrics = {
            "average_precision": float(average_precision_score(positive, predicted)),
            "auc": float(roc_auc_score(positive, predicted)),
            "f1": f1,
            "threshold": threshold,
        }
        details: dict[str, Any] = {
            "positive": int(positive.sum()),
            "truncated": vectors.truncated(self.texts),
        }
        if not self.joint:
            details["zero_vectors"] = vectors.zero(self.texts)
        score = TaskScore(self.name, BINARY.name, metrics, ("average_precision",), details)
        if self.resamples:
            replicates = precision_replicates(predicted, positive, self.resamples, stream=self.stream)
            interval = precision_interval(predicted, positive, replicates)
            if interval is None:
                few = f"fewer than {LEAST_OF_EITHER_LABEL} pairs with a label"
                console.note(f"{self.name}: {few}, so its score has no interval")
                score = score.with_details({"interval": None})
            else:
                metric = score.main_metric
                score = replace(score, replicates={metric: replicates}, intervals={metric: interval})
        return score.of_own_data(len(predicted))


@dataclass(frozen=True)
class TripletsTask(TableTask):
    """Anchors that should be more similar to their positive than to any of their negatives."""

    @property
    def description(self) -> str:
        """The number of triplets."""
        count = len(self.table.texts) - 2
        negatives = f" with {count} negatives each" if count > 1 else ""
        return f"{len(self.table):,} triplets{negatives}"

    @property
    def protocol(self) -> dict[str, Any]:
        """Every choice that moves the score besides table and model."""
        return {"similarity": self.similarity, "ties": "a negative that is as similar as the positive counts as wrong"}

    def score(self, model: EvaluatedModel | None, vectors: TextVectors) -> TaskScore:
        """Compare each positive with the most similar negative; the roles are encoded here, with their prompts."""
        anchors, *others = self.table.texts
        distinct = list(dict.fromkeys(chain.from_iterable(others)))
        queries, documents = self.by_role(model, anchors, distinct)
        anchor_vectors = queries.vectors_of(anchors)
        to_positive, *to_negatives = [
            similarities(anchor_vectors, documents.vectors_of(column), self.similarity) for column in others
        ]
        margin = to_positive - np.max(to_negatives, axis=0)
        correct = margin > SIMILARITY_ROUNDING
        details = {"negatives": len(to_negatives), **role_counts(queries, documents)}
        metrics = {"accuracy": float(correct.mean()), "margin": float(margin.mean())}
        return self.accuracy_score(correct, metrics, details)


@dataclass(frozen=True)
class LabelsTask(TableTask):
    """Texts with a class: the accuracy of a logistic regression on their vectors, by nested cross-validation."""

    @property
    def description(self) -> str:
        """The number of texts and classes."""
        return f"{len(self.table):,} texts of {len(self._classes)} classes"

    @property
    def texts(self) -> Sequence[str]:
        """Every text."""
        return self.table.texts[0]

    @property
    def protocol(self) -> dict[str, Any]:
        """Every choice that moves the score besides table and model."""
        choices: dict[str, Any] = {"features": "vectors as the model gives them"}
        for key, value in TRAINER.describe().items():
            if "test set" not in key:
                choices[key] = value
        if self.table.groups is not None:
            choices["group_by"] = self.table.group_by
        return choices

    @cached_property
    def _classes(self) -> dict[str, int]:
        """The number of texts of each class, in the order of their names."""
        return dict(sorted(Counter(map(str, self.table.values or [])).items()))

    @property
    def _groups(self) -> Sequence[int | None]:
        """The number of the group of each row; None for all rows if they have no groups."""
        names = self.table.groups
        if names is None:
            return [None] * len(self.table)
        numbers: dict[str, int] = {}
        return [numbers.setdefault(name, len(numbers)) for name in names]

    @cached_property
    def _examples(self) -> transfer_data.Examples:
        """The texts with the numbers of their classes, in the toolkit's order."""
        numbers = {label: number for number, label in enumerate(self._classes)}
        labels = map(str, self.table.values or [])
        examples = []
        for text, label, group in zip(self.table.texts[0], labels, self._groups, strict=True):
            examples.append(transfer_data.Example((text,), numbers[label], group))
        examples.sort(key=lambda example: example.order)
        return transfer_data.Examples(self.name, len(numbers), "folds", {"all": examples})

    def copies_across_folds(self) -> dict[str, int]:
        """Count the texts that stand in another fold as well: equal, or equal but for case, digits and signs.

        The classifier that is tested on such a text has learned it, which makes accuracy too high where labels agree.

        Raises:
            InputError: if there are too few texts of a class, or groups, for the folds.
        """
        texts = self._examples.texts
        fold_of = np.zeros(len(texts), np.int64)
        for fold, (_, test) in enumerate(transfer.outer_folds(TRAINER, self._examples)):
            fold_of[test] = fold
        equal = _in_several_folds(texts, fold_of)
        similar = _in_several_folds(list(map(_letters, texts)), fold_of)
        nearly_equal = similar & ~equal
        return {
            "equal": int(equal.sum()),
            "nearly_equal": int(nearly_equal.sum()),
        }

    def score(self, model: EvaluatedModel | None, vectors: TextVectors) -> TaskScore:
        """Train and test by ten folds, each with a penalty that is chosen by ten folds of its training texts."""
        with console.counting(f"{self.name}: classifiers", transfer.classifiers(TRAINER, self._examples)) as finished:
            trained = transfer.score_transfer(TRAINER, self._examples, vectors, finished)
        assert trained.correct is not None
        details = {
            "classes": len(self._classes),
            "majority": max(self._classes.values()) / len(self.table),
            "penalties": trained.details["penalties"],
            "truncated": trained.details["truncated"],
        }
        metrics = {name: value / 100 for name, value in trained.metrics.items()}
        return self.accuracy_score(trained.correct, metrics, details)


def _letters(text: str) -> str:
    """Return a text in lower case without digits and signs, its words joined by blanks; itself if nothing is left."""
    return re.sub(r"[\W\d_]+", " ", text.casefold()).strip() or text


def _in_several_folds(keys: Sequence[str], fold_of: Int64Array) -> BoolArray:
    """Tell of each key whether it stands in several folds ``[n]``."""
    folds: dict[str, set[int]] = {}
    for key, fold in zip(keys, fold_of.tolist(), strict=True):
        folds.setdefault(key, set()).add(fold)
    return np.array([len(folds[key]) > 1 for key in keys])
