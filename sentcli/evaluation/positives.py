"""Finding the positive of a text among others: anchors with positives, and in-domain retrieval.

In-domain retrieval finds the second sentence of a pair by the first, among all sentences of the pairs. The task of
DiffCSE (Chuang et al., NAACL 2022) and InfoCSE (Wu et al., EMNLP Findings 2022) takes the 97 of the 1,379 pairs of
STS-B's test split with the highest score, and searches all 2,758 sentences. Neither paper says which sentences do not
count as answers, and no code was published, so `EXCLUDED` has several rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from sentcli.errors import InputError
from sentcli.evaluation import significance
from sentcli.evaluation.evaluated import EvaluatedModel, TextVectors
from sentcli.evaluation.labelled_tasks import TableTask
from sentcli.evaluation.score_kinds import IN_DOMAIN, PAIRS, ScoreKind
from sentcli.evaluation.scores import TaskScore
from sentcli.evaluation.significance import require_finite
from sentcli.evaluation.stores import digest
from sentcli.evaluation.sts import ROUNDING
from sentcli.io.labelled import LabelledTable
from sentcli.model.spec import Similarity
from sentcli.search.exact import Vectors, prepared

Rows = npt.NDArray[np.int64]
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
    answer: Sequence[int] | Rows,
    ignored: Sequence[Mapping[int, int]],
    copies: Sequence[int] | Rows,
) -> tuple[npt.NDArray[np.float64], Rows]:
    """Count for each pair of a query and its answer the texts that come before the answer.

    They are those that are at least as similar to the query, so that a model does not gain by giving many texts the
    same vector.

    Args:
        queries: the prepared vector of the query of each pair ``[pairs, dim]``.
        texts: prepared vectors of distinct texts ``[texts, dim]``.
        answer: the row in `texts` of the answer of each pair ``[pairs]``.
        ignored: for each pair the texts that are not counted, by their rows, and how many copies of each.
        copies: how often each text stands in the corpus ``[texts]``.

    Returns:
        The similarity of query and answer ``[pairs]``, and the number of texts before the answer ``[pairs]``.
    """
    answer, weights = np.asarray(answer), np.asarray(copies, np.float32)  # exact up to 16 million texts
    lengths, similarity, counts = np.linalg.norm(texts, axis=1), np.empty(len(answer)), np.empty(len(answer), np.int64)
    for start in range(0, len(answer), PAIRS_AT_A_TIME):
        block = slice(start, start + PAIRS_AT_A_TIME)
        similarities, row = queries[block] @ texts.T, np.arange(len(answer[block]))
        of_answer = similarities[row, answer[block]]
        tolerance = ROUNDING * np.linalg.norm(queries[block], axis=1) * lengths[answer[block]]
        before = (similarities >= (of_answer - tolerance)[:, None]).astype(np.float32)
        similarity[block], counts[block] = of_answer, before @ weights
        for i, number in enumerate(ignored[block]):
            counts[start + i] -= sum(int(before[i, text]) * count for text, count in number.items())
    return similarity, counts


@dataclass(frozen=True)
class PairsTask(TableTask):
    """Anchors, whose positives are to be found among the positives of all anchors."""

    @property
    def description(self) -> str:
        """The number of pairs, and of the distinct anchors and positives among them."""
        return f"{len(self.table):,} pairs, {len(self._positives):,} anchors, {len(self._corpus):,} positives to search"

    @property
    def protocol(self) -> dict[str, Any]:
        """Every choice that moves the score besides table and model."""
        own = "no answer, unless it is the anchor's positive"
        choices = {"similarity": self.similarity, "ties": ANCHOR_TIES, "text of the anchor": own}
        return {**choices, "cutoffs": list(RECALL_CUTOFFS)}

    @cached_property
    def _positives(self) -> dict[str, list[str]]:
        """The distinct positives of each anchor."""
        positives: dict[str, dict[str, None]] = {}
        for anchor, positive in zip(*self.table.texts[:2], strict=True):
            positives.setdefault(anchor, {})[positive] = None
        return {anchor: list(texts) for anchor, texts in positives.items()}

    @cached_property
    def _corpus(self) -> dict[str, int]:
        """The distinct positives with their rows."""
        return {text: row for row, text in enumerate(dict.fromkeys(self.table.texts[1]))}

    def score(self, model: EvaluatedModel | None, vectors: TextVectors) -> TaskScore:
        """Rank the positives of each anchor; the roles are encoded here, with their prompts."""
        anchors, corpus = list(self._positives), list(self._corpus)
        queries, documents = self.by_role(model, anchors, corpus)
        relevant = [[self._corpus[text] for text in texts] for texts in self._positives.values()]
        own = [self._corpus.get(anchor, -1) for anchor in anchors]
        ranks = positive_ranks(queries.of(anchors), documents.of(corpus), relevant, own, self.similarity)
        reciprocal = np.array([1 / found[0] if found[0] <= RECALL_CUTOFFS[-1] else 0.0 for found in ranks])
        recalls = {f"recall@{k}": float(np.mean([np.mean(found <= k) for found in ranks])) for k in RECALL_CUTOFFS}
        details = {
            "corpus": len(corpus),
            "pairs": len(self.table),
            "truncated": queries.truncated(anchors) + documents.truncated(corpus),
            "zero_vectors": queries.zero(anchors) + documents.zero(corpus),
        }
        metrics = {"mrr@10": float(reciprocal.mean()), **recalls}
        score = TaskScore(self.name, PAIRS.name, metrics, ("mrr@10",), details)
        if self.draws:
            draws = significance.mean_draws(reciprocal, self.draws, stream=self.stream)
            score = replace(score, draws={"mrr@10": draws}, intervals={"mrr@10": significance.interval(draws)})
        return score.of_own_data(len(anchors))


def positive_ranks(
    queries: npt.NDArray[np.float32],
    corpus: npt.NDArray[np.float32],
    relevant: Sequence[Sequence[int]],
    own: Sequence[int],
    similarity: Similarity = "cosine",
) -> list[Rows]:
    """Return the ranks of the positives of each anchor among all texts, from 1, in ascending order.

    Args:
        queries: vectors of the anchors ``[anchors, dim]``.
        corpus: vectors of the positives of all anchors ``[texts, dim]``.
        relevant: rows of the positives of each anchor.
        own: row of the text that equals each anchor, which is no answer to it unless it is one of its positives, or -1.
        similarity: of anchor and text.
    """
    for vectors in (queries, corpus):
        require_finite(vectors)
    anchor = [i for i, rows in enumerate(relevant) for _ in rows]
    of_anchor = [
        dict.fromkeys([*rows, *([text] if text >= 0 else [])], 1) for rows, text in zip(relevant, own, strict=True)
    ]
    compared, texts = prepared(queries, similarity), prepared(corpus, similarity)
    answer, ignored = [row for rows in relevant for row in rows], [of_anchor[i] for i in anchor]
    nearness, others = texts_before(compared[anchor], texts, answer, ignored, np.ones(len(texts), np.int64))
    ranks, end = [], 0
    for rows in relevant:
        start, end = end, end + len(rows)
        best_first = np.argsort(-nearness[start:end], kind="stable")
        ranks.append(others[start:end][best_first] + np.arange(1, len(rows) + 1))
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
    def identity(self) -> list[Any]:
        """Everything besides the model that decides the score."""
        content = digest([*self.pairs.texts, positive_pairs(self.pairs).tolist()])
        return [IN_DOMAIN_NAME, self.exclude, list(self.cutoffs), self.similarity, content]

    def score(self, model: EvaluatedModel | None, vectors: TextVectors) -> TaskScore:
        """Rank the sentences by their similarity to each query."""
        ranks, best = in_domain_ranks(self.pairs, vectors, self.exclude, self.similarity)
        corpus = self.pairs.texts[1] if self.exclude == "s2-only" else self.texts
        among = {f"recall@{k}": _among(ranks, k) for k in self.cutoffs}
        return TaskScore(
            task=self.name,
            kind=IN_DOMAIN.name,
            metrics={metric: 100 * float(hits.mean()) for metric, hits in among.items()},
            headline=tuple(among),
            details={
                "queries": len(ranks),
                "corpus": len(corpus),
                "distinct": len(set(corpus)),
                "exclude": self.exclude,
                "bounds": {f"recall@{k}": 100 * float(_among(best, k).mean()) for k in self.cutoffs},
                "truncated": vectors.truncated(self.texts),
                "zero_vectors": vectors.zero(list(set(self.texts))),
            },
            intervals={metric: significance.accuracy_interval(hits) for metric, hits in among.items()},
            draws={metric: 100 * significance.mean_draws(hits.astype(np.float64)) for metric, hits in among.items()},
        )


def positive_pairs(pairs: LabelledTable) -> npt.NDArray[np.bool_]:
    """Return which pairs are positive ``[pairs]``: those with the highest score above 0, or all if there are none."""
    scores = np.ones(len(pairs)) if pairs.values is None else np.array(pairs.values, np.float64)
    return (scores == scores.max()) & (scores > 0)


def positive_choice(pairs: LabelledTable) -> str:
    """Return a phrase that says which pairs are positive.

    Raises:
        InputError: if there are too few pairs or no positive one, or all sentences are equal.
    """
    count = positive_pairs(pairs).sum()
    if len(pairs) == 1:
        raise InputError(f"{pairs.name} has one pair only: there is nothing to tell its second sentence from")
    if len({text for texts in pairs.texts for text in texts}) == 1:
        raise InputError(f"{pairs.name}: all sentences are equal, so there is nothing to find")
    if pairs.values is None:
        return f"all {count} pairs"
    highest = max(map(float, pairs.values))
    if not count:
        raise InputError(f"{pairs.name}: no positive pair, the highest score is {highest:g}")
    return f"the {count} of {len(pairs)} pairs with the highest score, {highest:g}"


def in_domain_ranks(
    pairs: LabelledTable, vectors: TextVectors, exclude: str, similarity: Similarity = "cosine"
) -> tuple[Rows, Rows]:
    """Return the rank of each query's second sentence, from 1, or 0 if it is excluded ``[queries]``.

    Returns:
        The ranks of this model, and the best possible ones: those of a model to which each text is most similar to
        itself and next to its second sentence.
    """
    first, second = (np.array([vectors.rows[text] for text in side]) for side in pairs.texts)
    corpus = second if exclude == "s2-only" else np.concatenate([first, second])
    copies = np.bincount(corpus, minlength=len(vectors.vectors))
    queries, gold = first[positive_pairs(pairs)], second[positive_pairs(pairs)]
    texts, ignored = prepared(vectors.vectors, similarity), []
    for query, answer in zip(queries.tolist(), gold.tolist(), strict=True):
        own = {} if exclude == "s2-only" else {query: 1 if exclude == "own" else int(copies[query])}
        ignored.append({**own, answer: int(copies[answer])})
    ranks = 1 + texts_before(texts[queries], texts, gold, ignored, copies)[1]
    # the copies of the query's text alone can make the best possible rank greater than 1
    copies_before = {"own": copies[queries] - 1, "s2-only": copies[queries]}.get(exclude, np.zeros_like(queries))
    best = np.where(queries == gold, 1, 1 + copies_before)
    excluded = (queries == gold) & (exclude == "equal-text")
    return np.where(excluded, 0, ranks), np.where(excluded, 0, best)


def _among(ranks: Rows, k: int) -> npt.NDArray[np.bool_]:
    return (ranks > 0) & (ranks <= k)
