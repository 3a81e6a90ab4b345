"""In-domain retrieval: finding the second sentence of a pair by the first, among all sentences of the pairs.

The task of DiffCSE (Chuang et al., NAACL 2022) and InfoCSE (Wu et al., EMNLP Findings 2022) takes the 97 of the 1,379
pairs of STS-B's test split with the highest score, and searches all 2,758 sentences. Neither paper says which sentences
do not count as answers, and no code was published, so `EXCLUDED` has several rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from sentcli.evaluation import significance
from sentcli.evaluation.evaluated import EvaluatedModel, TextVectors
from sentcli.evaluation.pair_tables import PairTable
from sentcli.evaluation.score_kinds import IN_DOMAIN, ScoreKind
from sentcli.evaluation.scores import TaskScore
from sentcli.evaluation.stores import digest
from sentcli.evaluation.sts import ROUNDING
from sentcli.search.exact import Vectors, prepared
from sentcli.search.options import Similarity

Integers = npt.NDArray[np.int64]
TASK = "in-domain"
CUTOFFS = (1, 5, 10)
USUAL = "equal-text-except-gold"
EXCLUDED = {
    "equal-text-except-gold": "every sentence with the query's text, except the pair's own second one",
    "own": "the query itself, not another copy of its text",
    "equal-text": "every sentence with the query's text, also the pair's own second one",
    "s2-only": "every first sentence",
}
"""The sentences that do not count as answers, by the name of the rule."""
TIES = "another text that is as similar as the second sentence comes before it; a copy of the second sentence does not"
QUERY_BLOCK = 256
"""Queries that are compared with all sentences at a time."""


@dataclass(frozen=True)
class InDomainTask:
    """Pairs whose second sentence is to be found by the first.

    A rank is 1 plus the number of sentences with another text than the second sentence that are at least as similar to
    the query, so that a model does not gain by giving many texts the same vector.
    """

    pairs: PairTable
    exclude: str = USUAL
    """A key of `EXCLUDED`."""
    cutoffs: Sequence[int] = CUTOFFS
    similarity: Similarity = "cosine"
    name: str = TASK
    kind: ClassVar[ScoreKind] = IN_DOMAIN

    @property
    def texts(self) -> list[str]:
        """Every sentence of every pair."""
        return [*self.pairs.first, *self.pairs.second]

    @property
    def identity(self) -> list[Any]:
        """Everything besides the model that decides the score."""
        content = digest([self.pairs.first, self.pairs.second, self.pairs.positive.tolist()])
        return [TASK, self.exclude, list(self.cutoffs), self.similarity, content]

    def score(self, model: EvaluatedModel | None, vectors: TextVectors) -> TaskScore:
        """Rank the sentences by their similarity to each query."""
        ranks, best = rank(self.pairs, vectors, self.exclude, self.similarity)
        corpus = [*([] if self.exclude == "s2-only" else self.pairs.first), *self.pairs.second]
        among = {f"recall@{k}": _among(ranks, k) for k in self.cutoffs}
        return TaskScore(
            task=self.name,
            kind=IN_DOMAIN.name,
            metrics={metric: 100 * float(hits.mean()) for metric, hits in among.items()},
            headline=tuple(among),
            facts={
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


def rank(
    pairs: PairTable, vectors: TextVectors, exclude: str, similarity: Similarity = "cosine"
) -> tuple[Integers, Integers]:
    """Return the rank of each query's second sentence, from 1, or 0 if it is excluded ``[queries]``.

    Returns:
        The ranks of this model, and the best possible ones: those of a model to which each text is most similar to
        itself and next to its second sentence.
    """
    first, second = (np.array([vectors.rows[text] for text in side]) for side in (pairs.first, pairs.second))
    corpus = second if exclude == "s2-only" else np.concatenate([first, second])
    copies = np.bincount(corpus, minlength=len(vectors.vectors))
    queries, gold = first[pairs.positive], second[pairs.positive]
    ranks = _ranks(prepared(vectors.vectors, similarity), queries, gold, copies, exclude)
    # the copies of the query's text alone can make the best possible rank greater than 1
    copies_before = {"own": copies[queries] - 1, "s2-only": copies[queries]}.get(exclude, np.zeros_like(queries))
    best = np.where(queries == gold, 1, 1 + copies_before)
    excluded = (queries == gold) & (exclude == "equal-text")
    return np.where(excluded, 0, ranks), np.where(excluded, 0, best)


def _ranks(vectors: Vectors, queries: Integers, gold: Integers, copies: Integers, exclude: str) -> Integers:
    """Return the rank of each second sentence ``[queries]``, as if it were not excluded.

    Args:
        vectors: of the distinct texts ``[texts, dim]``.
        queries: rows of the queries ``[queries]``.
        gold: rows of their second sentences ``[queries]``.
        copies: number of sentences of the corpus with each text ``[texts]``.
        exclude: a key of `EXCLUDED`.
    """
    lengths, ranks = np.linalg.norm(vectors, axis=1), np.zeros(len(queries), np.int64)
    copies_as_floats = copies.astype(np.float32)  # exact up to 16 million sentences
    for start in range(0, len(queries), QUERY_BLOCK):
        block = slice(start, start + QUERY_BLOCK)
        query, answer = queries[block], gold[block]
        similarities, row = vectors[query] @ vectors.T, np.arange(len(query))
        least = similarities[row, answer] - ROUNDING * lengths[query] * lengths[answer]
        before = (similarities >= least[:, None]).astype(np.float32)
        before[row, answer] = 0
        own = before[row, query]
        if exclude.startswith("equal-text"):
            before[row, query] = 0
        ranks[block] = 1 + before @ copies_as_floats - (own if exclude == "own" else 0)
    return ranks


def _among(ranks: Integers, k: int) -> npt.NDArray[np.bool_]:
    return (ranks > 0) & (ranks <= k)
