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
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from sentcli import console
from sentcli.evaluation import significance, transfer
from sentcli.evaluation.cache import digest
from sentcli.evaluation.evaluated import EvaluatedModel, TextVectors
from sentcli.evaluation.logistic import LbfgsTrainer
from sentcli.evaluation.score_kinds import BINARY, OWN_KINDS, ScoreKind
from sentcli.evaluation.scores import TaskScore
from sentcli.evaluation.sts import ROUNDING, similarities
from sentcli.io.labelled import LabelledTable
from sentcli.model.spec import ModelSpec, Similarity

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]
LEAST_OF_EITHER_LABEL = 10
"""With fewer positive or fewer negative pairs, an average precision has no interval."""
TRAINER = LbfgsTrainer()
"""What trains the classifiers of texts with a class."""


@dataclass(frozen=True)
class TableTask(ABC):
    """What tasks of tables have in common."""

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
        return ["evaluate", self.table.kind, self.name, self.resamples, self.protocol, digest(content)]

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

    def accuracy_score(
        self, correct: npt.NDArray[np.bool_], metrics: dict[str, float], details: dict[str, Any]
    ) -> TaskScore:
        """Return a score whose main metric is an accuracy between 0 and 1, with its interval unless `resamples` is 0.

        Args:
            correct: whether each item is right ``[items]``.
            metrics: ``accuracy`` and others.
            details: further entries of the JSON.
        """
        score = TaskScore(self.name, self.kind.name, metrics, ("accuracy",), details)
        if self.resamples:
            low, high = significance.accuracy_interval(correct)
            score = replace(score, correct=correct, intervals={"accuracy": (low / 100, high / 100)})
        return score.of_own_data(len(correct))


def role_counts(queries: TextVectors, documents: TextVectors) -> dict[str, int]:
    """Count the distinct queries and documents that are too long for the model, and those whose vector is zero."""
    truncated = zero = 0
    for vectors in (queries, documents):
        texts = list(vectors.rows)
        truncated += vectors.truncated(texts)
        zero += vectors.zero(texts)
    return {"truncated": truncated, "zero_vectors": zero}


@dataclass(frozen=True)
class BinaryTask(TableTask):
    """Pairs with labels 0 and 1: how well the similarity tells one from the other."""

    @property
    def description(self) -> str:
        """The number of pairs."""
        return f"{len(self.table):,} 0/1 pairs, {int(self._positive.sum()):,} of them 1"

    texts = TableTask.all_texts
    """Every sentence."""

    @property
    def _positive(self) -> npt.NDArray[np.bool_]:
        return np.array(self.table.values) == 1

    def score(self, model: EvaluatedModel | None, vectors: TextVectors) -> TaskScore:
        """Return average precision, the area under the ROC curve, and the best F1 of all thresholds."""
        from sklearn.metrics import average_precision_score, roc_auc_score

        first, second = self.table.texts
        predicted = similarities(vectors.of(first), vectors.of(second), self.similarity)
        positive = self._positive
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
            "zero_vectors": vectors.zero(self.texts),
        }
        score = TaskScore(self.name, BINARY.name, metrics, ("average_precision",), details)
        if self.resamples:
            replicates = average_precision_replicates(predicted, positive, self.resamples, stream=self.stream)
            ends = average_precision_interval(predicted, positive, replicates)
            if ends is None:  # without samples nothing is compared
                details["interval"] = None
                few = f"fewer than {LEAST_OF_EITHER_LABEL} pairs with a label"
                console.note(f"{self.name}: {few}, so its score has no interval")
            else:
                score = replace(
                    score, replicates={"average_precision": replicates}, intervals={"average_precision": ends}
                )
        return score.of_own_data(len(predicted))


def best_f1(predicted: Floats, positive: npt.NDArray[np.bool_]) -> tuple[float, float]:
    """Return the best F1 of all thresholds, and its threshold: pairs at least as similar are above for positive.

    Args:
        predicted: similarities ``[n]``.
        positive: whether each pair is positive ``[n]``.

    Returns:
        F1 from 0 to 1, and the threshold, which lies midway between the last similarity above it and the next one.

    Raises:
        SentcliError: if a similarity is not finite.
    """
    significance.require_finite(predicted)
    negated, group = np.unique(-predicted, return_inverse=True)
    above = np.cumsum(np.bincount(group))
    right = np.cumsum(np.bincount(group, weights=positive))
    f1 = 2 * right / (above + positive.sum())
    best = int(np.argmax(f1))
    next_one = min(best + 1, len(negated) - 1)
    last = -negated[best]
    following = -negated[next_one]
    midway = (last + following) / 2
    threshold = midway if midway > following else last  # equal where single precision has no number between
    return float(f1[best]), float(threshold)


# Average precision has samples and an interval of its own, because copies of a pair in a sample tie with themselves and
# because the score is biased where positive pairs are few: quantiles of plain samples hold it in 84 to 93 of 100 cases.


def average_precision_replicates(
    predicted: Floats, positive: npt.NDArray[np.bool_], resamples: int = significance.RESAMPLES, *, stream: int = 0
) -> Floats:
    """Return the average precision on samples of pairs ``[replicates]``, which are drawn as for `spearman_replicates`.

    It is the mean, over the positive pairs that were drawn, of the precision at their similarity, as scikit-learn
    computes it, but a pair counts once at its own place however often it was drawn. Otherwise its copies would tie with
    it, which lifts every precision: the mean of the samples would lie above the average precision of the pairs. A
    sample without a positive pair has 0.

    Args:
        predicted: similarities ``[n]``.
        positive: whether each pair is positive ``[n]``.
        resamples: number of samples.
        stream: arguments of the same length get independent samples under another stream.
    """
    order, ends = _ranked(predicted)
    right = positive[order]
    values = []
    for counts in significance.resampled_counts(len(predicted), resamples, stream):
        drawn = counts[:, order]
        # of each positive pair, with those of equal similarity
        above = np.cumsum(drawn, axis=1)[:, ends][:, right]
        right_above = np.cumsum(drawn * right, axis=1)[:, ends][:, right]
        copies = drawn[:, right]
        others_above = above - copies
        others_right = right_above - copies
        precision = np.divide(others_right + 1, others_above + 1, out=np.zeros_like(above), where=copies > 0)
        total = (precision * copies).sum(axis=1)
        values.append(total / np.maximum(copies.sum(axis=1), 1))
    return np.concatenate(values)


def average_precision_interval(
    predicted: Floats, positive: npt.NDArray[np.bool_], replicates: Floats
) -> tuple[float, float] | None:
    """Return the 95 % interval of an average precision.

    It is Efron's BCa interval ("Better bootstrap confidence intervals", 1987): the quantiles of the samples, moved by
    the share of samples below the average precision, because it is biased where positive pairs are few, and by the
    skewness of the pairs' influence. The normal quantiles are replaced by Student's, with a degree of freedom less than
    there are pairs of the rarer class. If all positive pairs lie above all negative ones in every sample, the lower end
    is Clopper and Pearson's of as many right answers as there are positive pairs.

    Args:
        predicted: similarities ``[n]``.
        positive: whether each pair is positive ``[n]``.
        replicates: values of `average_precision_replicates`.

    Returns:
        The ends, or None with fewer than `LEAST_OF_EITHER_LABEL` positive or negative pairs.
    """
    from scipy.stats import norm, t

    rarer = int(min(positive.sum(), (~positive).sum()))
    if rarer < LEAST_OF_EITHER_LABEL:
        return None
    tails = [(1 - significance.LEVEL) / 2, (1 + significance.LEVEL) / 2]
    if replicates.min() == 1:
        return float(tails[0] ** (1 / positive.sum())), 1.0
    value, without = _average_precisions(predicted, positive)
    influence = without.mean() - without
    skewness = (influence**3).sum() / (6 * max((influence**2).sum(), 1e-300) ** 1.5)
    below = ((replicates < value).mean() + (replicates <= value).mean()) / 2
    bias = norm.ppf(np.clip(below, 1 / len(replicates), 1 - 1 / len(replicates)))
    ends = bias + t.ppf(tails, rarer - 1)
    levels = norm.cdf(bias + ends / np.maximum(1 - skewness * ends, 0.1))
    low, high = np.quantile(replicates, levels)
    return float(low), float(high)


def _ranked(predicted: Floats) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the order of similarities from high to low, and for each place the last place of the same similarity."""
    significance.require_finite(predicted)
    order = np.argsort(-predicted, kind="stable")
    last = np.flatnonzero(np.diff(predicted[order], append=np.nan) != 0)
    return order, np.repeat(last, np.diff(last, prepend=-1))


def _average_precisions(predicted: Floats, positive: npt.NDArray[np.bool_]) -> tuple[float, Floats]:
    """Return the average precision of pairs, and that without each of them ``[n]``, which must leave a positive one."""
    order, ends = _ranked(predicted)
    right = positive[order].astype(np.float64)
    above = ends + 1.0
    right_above = np.cumsum(right)[ends]
    precision = right * right_above / above
    fewer = np.maximum(above - 1, 1)
    firsts = np.searchsorted(ends, ends)  # the first place of the same similarity
    before = np.append(0.0, np.cumsum(precision))[firsts]
    # behind a pair, and at its similarity, both counts lose it; its own precision goes
    behind = _sums_from_here_on(right * (right_above / fewer))[firsts]
    lost = _sums_from_here_on(right * (1 / fewer))[firsts]
    own = right * (right_above - right) / fewer
    without = np.empty(len(right))
    without[order] = (before + behind - right * lost - own) / np.maximum(right.sum() - right, 1)
    return float(precision.sum() / right.sum()), without


def _sums_from_here_on(values: Floats) -> Floats:
    """Return the sum of the values from each place to the end ``[n + 1]``; the last sum is 0."""
    return np.append(np.cumsum(values[::-1])[::-1], 0.0)


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
        anchors, positives, *negatives = self.table.texts
        others = list(dict.fromkeys(chain(positives, *negatives)))
        queries, documents = self.by_role(model, anchors, others)
        anchor = queries.of(anchors)
        to_positive = similarities(anchor, documents.of(positives), self.similarity)
        to_negatives = [similarities(anchor, documents.of(column), self.similarity) for column in negatives]
        margin = to_positive - np.max(to_negatives, axis=0)
        correct = margin > ROUNDING
        details = {"negatives": len(negatives), **role_counts(queries, documents)}
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
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        return [numbers[name] for name in names]

    @cached_property
    def _examples(self) -> transfer.Examples:
        numbers = {label: number for number, label in enumerate(self._classes)}
        labels = map(str, self.table.values or [])
        examples = []
        for text, label, group in zip(self.table.texts[0], labels, self._groups, strict=True):
            examples.append(transfer.Example((text,), numbers[label], group))
        examples.sort(key=lambda example: example.order)
        return transfer.Examples(self.name, len(numbers), "folds", {"all": examples})

    def copies_across_folds(self) -> dict[str, int]:
        """Count the texts that stand in another fold as well: equal, or equal but for case, digits and signs.

        The classifier that is tested on such a text has learned it, which makes accuracy too high where labels agree.

        Raises:
            InputError: if there are too few texts of a class, or groups, for the folds.
        """
        texts = [example.texts[0] for example in self._examples.splits["all"]]
        fold_of = np.zeros(len(texts), np.int64)
        for fold, (_, test) in enumerate(transfer.outer_folds(TRAINER, self._examples)):
            fold_of[test] = fold
        equal = _in_several_folds(texts, fold_of)
        similar = _in_several_folds([_letters(text) or text for text in texts], fold_of)
        nearly_equal = similar & ~equal
        return {"equal": int(equal.sum()), "nearly_equal": int(nearly_equal.sum())}

    def score(self, model: EvaluatedModel | None, vectors: TextVectors) -> TaskScore:
        """Train and test by ten folds, each with a penalty that is chosen by ten folds of its training texts."""
        with console.counting(f"{self.name}: classifiers", transfer.classifiers(TRAINER, self._examples)) as finished:
            trained = transfer.score(TRAINER, self._examples, vectors, finished)
        assert trained.correct is not None
        metrics = {name: value / 100 for name, value in trained.metrics.items()}
        details = {
            "classes": len(self._classes),
            "majority": max(self._classes.values()) / len(self.table),
            "penalties": trained.details["penalties"],
            "truncated": trained.details["truncated"],
        }
        return self.accuracy_score(trained.correct, metrics, details)


def _letters(text: str) -> str:
    """Return a text in lower case without digits and signs, its words joined by blanks."""
    return re.sub(r"[\W\d_]+", " ", text.casefold()).strip()


def _in_several_folds(keys: Sequence[str], fold_of: Rows) -> npt.NDArray[np.bool_]:
    """Tell of each key whether it stands in several folds ``[n]``."""
    folds: dict[str, set[int]] = {}
    for key, fold in zip(keys, fold_of.tolist(), strict=True):
        folds.setdefault(key, set()).add(fold)
    return np.array([len(folds[key]) > 1 for key in keys])
