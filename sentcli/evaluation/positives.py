"""Finding the positive of a text among others: anchors with positives, and in-domain retrieval.

In-domain retrieval finds the second sentence of a pair by the first, among all sentences of the pairs. The task of
DiffCSE (Chuang et al., NAACL 2022) and InfoCSE (Wu et al., EMNLP Findings 2022) takes the 97 of the 1,379 pairs of
STS-B's test split with the highest score, and searches all 2,758 sentences. Neither paper says which sentences do not
count as answers, and no code was published, so `EXCLUDED` has several rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from sentcli.arrays import BoolArray, Float32Array, Float64Array, Int64Array, Vectors
from sentcli.errors import InputError
from sentcli.evaluation import significance
from sentcli.evaluation.evaluated import EvaluatedModel
from sentcli.evaluation.labelled_tasks import TableTask, role_counts
from sentcli.evaluation.score_kinds import IN_DOMAIN, PAIRS, ScoreKind
from sentcli.evaluation.scores import TaskScore
from sentcli.evaluation.sts import SIMILARITY_ROUNDING
from sentcli.io.digests import json_digest
from sentcli.io.labelled import LabelledTable
from sentcli.model.spec import Similarity
from sentcli.search.exact import prepared
from sentcli.search.neighbours import require_finite
from sentcli.stores.text_vectors import TextVectors

RECALL_CUTOFFS = (1, 5, 10)
"""The numbers of hits of recall@k; the reciprocal rank is cut off at the last."""
ANCHOR_TIES = "a text that is as similar to the anchor as its positive comes before it"
IN_DOMAIN_TIES = (
    "another text that is as similar as the second sentence comes before it; a copy of the second sentence does not"
)
IN_DOMAIN_NAME = "in-domain"
USUAL_RULE = "equal-text-except-gold"
EXCLUDED = {
    "equal-text-except-gold": "every sentence with the query's text, except the pair's own second one",
    "own": "the query itself, not another copy of its text",
    "equal-text": "every sentence with the query's text, also the pair's own second one",
    "s2-only": "every first sentence",
}
"""The sentences that do not count as answers, by the name of the rule."""
PAIRS_AT_A_TIME = 256
"""Pairs whose queries are compared with all texts at a time."""


def texts_before(
    queries: Vectors,
    texts: Vectors,
    answer: Sequence[int] | Int64Array,
    ignored: Sequence[Mapping[int, int]],
    copies: Sequence[int] | Int64Array,
) -> tuple[Float64Array, Int64Array]:
    """Count for each pair of a query and its answer the texts that come before the answer.

    Texts that are as similar to the query as the answer come before it, so that a model does not gain by giving many
    texts the same vector.

    Args:
        queries: the prepared vector of the query of each pair ``[pairs, dim]``.
        texts: prepared vectors of distinct texts ``[texts, dim]``.
        answer: the row in `texts` of the answer of each pair ``[pairs]``.
        ignored: for each pair the texts that are not counted, by their rows, and how many copies of each.
        copies: how often each text stands in the corpus ``[texts]``.

    Returns:
        The similarity of query and answer ``[pairs]``, and the number of texts before the answer ``[pairs]``.
    """
    answer = np.asarray(answer)
    weights = np.asarray(copies, np.float32)  # exact up to 16 million texts
    lengths = np.linalg.norm(texts, axis=1)
    similarity = np.empty(len(answer))
    counts = np.empty(len(answer), np.int64)
    for start in range(0, len(answer), PAIRS_AT_A_TIME):
        block = slice(start, start + PAIRS_AT_A_TIME)
        answers = answer[block]
        similarities = queries[block] @ texts.T
        of_answer = similarities[np.arange(len(answers)), answers]
        tolerance = SIMILARITY_ROUNDING * np.linalg.norm(queries[block], axis=1) * lengths[answers]
        least = of_answer - tolerance
        before = (similarities >= least[:, None]).astype(np.float32)
        similarity[block] = of_answer
        counts[block] = before @ weights
        for pair, copies_of_text in enumerate(ignored[block]):
            for text, count in copies_of_text.items():
                counts[start + pair] -= int(before[pair, text]) * count
    return similarity, counts


@dataclass(frozen=True)
class PairsTask(TableTask):
    """Anchors, whose positives are to be found among the positives of all anchors."""

    @property
    def description(self) -> str:
        """The number of pairs, and of the distinct anchors and positives among them."""
        anchors = f"{len(self._positives):,} anchors"
        positives = f"{len(self._corpus):,} positives to search"
        return f"{len(self.table):,} pairs, {anchors}, {positives}"

    @property
    def protocol(self) -> dict[str, Any]:
        """Every choice that moves the score besides table and model."""
        return {
            "similarity": self.similarity,
            "ties": ANCHOR_TIES,
            "text of the anchor": "no answer, unless it is the anchor's positive",
            "cutoffs": list(RECALL_CUTOFFS),
        }

    @cached_property
    def _positives(self) -> dict[str, list[str]]:
        """The distinct positives of each anchor."""
        positives: dict[str, list[str]] = {}
        anchor_texts, positive_texts = self.table.texts[:2]
        pairs = zip(anchor_texts, positive_texts, strict=True)
        for anchor, positive in dict.fromkeys(pairs):
            positives.setdefault(anchor, []).append(positive)
        return positives

    @cached_property
    def _corpus(self) -> dict[str, int]:
        """The distinct positives with their rows."""
        rows: dict[str, int] = {}
        for text in self.table.texts[1]:
            rows.setdefault(text, len(rows))
        return rows

    def predicted(self, queries: TextVectors, documents: TextVectors) -> list[Int64Array]:
        """Return the ranks of the positives of each anchor, of the vectors of anchors and positives."""
        relevant = []
        own = []
        for anchor, texts in self._positives.items():
            relevant.append([self._corpus[text] for text in texts])
            own.append(self._corpus.get(anchor, -1))
        anchors = queries.vectors_of(list(self._positives))
        corpus = documents.vectors_of(list(self._corpus))
        return positive_ranks(anchors, corpus, relevant, own, self.similarity)

    def score(self, model: EvaluatedModel | None, vectors: TextVectors) -> TaskScore:
        """Rank the positives of each anchor; the roles are encoded here, with their prompts."""
        anchors = list(self._positives)
        corpus = list(self._corpus)
        queries, documents = self.by_role(model, anchors, corpus)
        ranks = self.predicted(queries, documents)
        best = np.array([of_anchor[0] for of_anchor in ranks])
        reciprocal = np.where(best <= RECALL_CUTOFFS[-1], 1 / best, 0.0)
        metrics = {"mrr@10": float(reciprocal.mean())}
        for k in RECALL_CUTOFFS:
            shares = [np.mean(of_anchor <= k) for of_anchor in ranks]
            metrics[f"recall@{k}"] = float(np.mean(shares))
        score = TaskScore(
            task=self.name,
            kind=PAIRS.name,
            metrics=metrics,
            shown_metrics=("mrr@10",),
            details={"corpus": len(corpus), "pairs": len(self.table), **role_counts(queries, documents)},
        )
        if self.resamples:
            replicates = significance.mean_replicates(reciprocal, self.resamples, stream=self.stream)
            score = score.with_replicates(replicates)
        return score.of_own_data(len(anchors))


def positive_ranks(
    queries: Float32Array,
    corpus: Float32Array,
    relevant: Sequence[Sequence[int]],
    own: Sequence[int],
    similarity: Similarity = "cosine",
) -> list[Int64Array]:
    """Return the ranks of the positives of each anchor among all texts, from 1, in ascending order.

    Args:
        queries: vectors of the anchors ``[anchors, dim]``.
        corpus: vectors of the positives of all anchors ``[texts, dim]``.
        relevant: rows of the positives of each anchor.
        own: row of the text that equals each anchor, which is no answer to it unless it is one of its positives, or -1.
        similarity: of anchor and text.
    """
    require_finite(queries)
    require_finite(corpus)
    anchors: list[int] = []
    answers: list[int] = []
    ignored: list[dict[int, int]] = []
    for anchor, (rows, own_row) in enumerate(zip(relevant, own, strict=True)):
        not_counted = dict.fromkeys(rows, 1)
        if own_row >= 0:
            not_counted[own_row] = 1
        anchors += [anchor] * len(rows)
        answers += rows
        ignored += [not_counted] * len(rows)
    texts = prepared(corpus, similarity)
    query_of_pair = prepared(queries, similarity)[anchors]
    copies = np.ones(len(texts), np.int64)
    similarities, before = texts_before(query_of_pair, texts, answers, ignored, copies)
    ranks = []
    start = 0
    for rows in relevant:
        pairs = slice(start, start + len(rows))
        best_first = np.argsort(-similarities[pairs], kind="stable")
        rank_among_relevant = np.arange(1, len(rows) + 1)
        ranks.append(before[pairs][best_first] + rank_among_relevant)
        start += len(rows)
    return ranks


@dataclass(frozen=True)
class InDomainTask:
    """Pairs whose second sentence is to be found by the first.

    A rank is 1 plus the number of sentences with another text than the second sentence that are at least as similar to
    the query, so that a model does not gain by giving many texts the same vector.
    """

    pairs: LabelledTable
    exclude: str = USUAL_RULE
    """A key of `EXCLUDED`."""
    cutoffs: Sequence[int] = RECALL_CUTOFFS
    similarity: Similarity = "cosine"
    name: str = IN_DOMAIN_NAME
    kind: ClassVar[ScoreKind] = IN_DOMAIN

    @property
    def texts(self) -> list[str]:
        """Every sentence of every pair."""
        return [*self.pairs.texts[0], *self.pairs.texts[1]]

    @property
    def shown_metrics(self) -> tuple[str, ...]:
        """The metrics, each of which is a column."""
        return tuple(f"recall@{k}" for k in self.cutoffs)

    @property
    def identity(self) -> list[Any]:
        """Everything besides the model that decides the score."""
        content = json_digest([*self.pairs.texts, positive_pairs(self.pairs).tolist()])
        return [IN_DOMAIN_NAME, self.exclude, list(self.cutoffs), self.similarity, content]

    @property
    def protocol(self) -> dict[str, Any]:
        """Every choice that moves the score besides data and model."""
        return {
            "queries": f"first sentences of {positive_choice(self.pairs)}",
            "exclude": self.exclude,
            "excluded": EXCLUDED[self.exclude],
            "ties": IN_DOMAIN_TIES,
            "similarity": self.similarity,
        }

    def score(self, model: EvaluatedModel | None, vectors: TextVectors) -> TaskScore:
        """Rank the sentences by their similarity to each query."""
        ranks, best = in_domain_ranks(self.pairs, vectors, self.exclude, self.similarity)
        corpus = self.pairs.texts[1] if self.exclude == "s2-only" else self.texts
        metrics: dict[str, float] = {}
        bounds: dict[str, float] = {}
        intervals: dict[str, tuple[float, float]] = {}
        replicates: dict[str, Float64Array] = {}
        for k, metric in zip(self.cutoffs, self.shown_metrics, strict=True):
            hits = _among(ranks, k)
            metrics[metric] = 100 * float(hits.mean())
            bounds[metric] = 100 * float(_among(best, k).mean())
            intervals[metric] = significance.accuracy_interval(hits)
            replicates[metric] = 100 * significance.mean_replicates(hits.astype(np.float64))
        return TaskScore(
            task=self.name,
            kind=IN_DOMAIN.name,
            metrics=metrics,
            shown_metrics=self.shown_metrics,
            details={
                "queries": len(ranks),
                "corpus": len(corpus),
                "distinct": len(set(corpus)),
                "exclude": self.exclude,
                "bounds": bounds,
                "truncated": vectors.truncated(self.texts),
                "zero_vectors": vectors.zero(list(set(self.texts))),
            },
            intervals=intervals,
            replicates=replicates,
        )


def positive_pairs(pairs: LabelledTable) -> BoolArray:
    """Return which pairs are positive ``[pairs]``: those with the highest score above 0, or all if there are none."""
    if pairs.values is None:
        return np.ones(len(pairs), bool)
    scores = np.array(pairs.values, np.float64)
    return (scores == scores.max()) & (scores > 0)


def positive_choice(pairs: LabelledTable) -> str:
    """Return a phrase that says which pairs are positive.

    Raises:
        InputError: if there are too few pairs or no positive one, or all sentences are equal.
    """
    count = positive_pairs(pairs).sum()
    if len(pairs) == 1:
        raise InputError(f"{pairs.name} has one pair only: there is nothing to tell its second sentence from")
    if len(set().union(*pairs.texts)) == 1:
        raise InputError(f"{pairs.name}: all sentences are equal, so there is nothing to find")
    if pairs.values is None:
        return f"all {count} pairs"
    highest = max(map(float, pairs.values))
    if not count:
        raise InputError(f"{pairs.name}: no positive pair, the highest score is {highest:g}")
    return f"the {count} of {len(pairs)} pairs with the highest score, {highest:g}"


def in_domain_ranks(
    pairs: LabelledTable, vectors: TextVectors, exclude: str, similarity: Similarity = "cosine"
) -> tuple[Int64Array, Int64Array]:
    """Return the rank of each query's second sentence, from 1, or 0 if it is excluded ``[queries]``.

    Returns:
        The ranks of this model, and the best possible ones: those of a model to which each text is most similar to
        itself and next to its second sentence.
    """
    first_texts, second_texts = pairs.texts
    first = vectors.rows_of(first_texts)
    second = vectors.rows_of(second_texts)
    corpus = second if exclude == "s2-only" else np.concatenate([first, second])
    copies = np.bincount(corpus, minlength=len(vectors.vectors))
    is_positive = positive_pairs(pairs)
    queries = first[is_positive]
    gold = second[is_positive]
    # Of the copies of the query's text, some are not counted, and the others can stand before any answer
    if exclude == "s2-only":
        not_counted = np.zeros_like(queries)
    elif exclude == "own":
        not_counted = np.ones_like(queries)
    else:
        not_counted = copies[queries]
    ignored = []
    for query, count, answer in zip(queries.tolist(), not_counted.tolist(), gold.tolist(), strict=True):
        ignored.append({query: count, answer: int(copies[answer])})
    texts = prepared(vectors.vectors, similarity)
    _, before = texts_before(texts[queries], texts, gold, ignored, copies)
    is_copy = queries == gold
    best = np.where(is_copy, 1, 1 + copies[queries] - not_counted)
    excluded = is_copy & (exclude == "equal-text")
    return np.where(excluded, 0, 1 + before), np.where(excluded, 0, best)


def _among(ranks: Int64Array, k: int) -> BoolArray:
    return (ranks > 0) & (ranks <= k)
