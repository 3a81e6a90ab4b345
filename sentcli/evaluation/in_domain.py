"""Finding the second sentence of a pair by the first, among all sentences of the pairs.

The in-domain retrieval of DiffCSE (Chuang et al., NAACL 2022) and InfoCSE (Wu et al., EMNLP Findings 2022): the pairs
of STS-B's test split with the highest score, 97 of 1,379, against all 2,758 sentences. Neither paper says which
sentences are no answer, and no code was published, so there are several rules; `EXCLUDED` has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sentcli.evaluation import significance
from sentcli.evaluation.evaluated import EvaluatedModel, TextVectors
from sentcli.evaluation.pair_tables import PairTable
from sentcli.evaluation.scores import IN_DOMAIN, TaskScore
from sentcli.evaluation.stores import digest
from sentcli.evaluation.sts import ROUNDING
from sentcli.search.exact import Similarity, Vectors, prepared

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
"""What is no answer, by the name of the rule."""
TIES = "another text that is as similar as the second sentence comes before it; a copy of the second sentence does not"
TOGETHER = 256
"""Queries that are compared at a time."""


@dataclass(frozen=True)
class InDomainTask:
    """Pairs whose second sentence is to be found by the first.

    A rank is 1 and the number of sentences with another text than the second sentence's that are at least as similar to
    the query: no model gains by giving many texts one vector.
    """

    pairs: PairTable
    exclude: str = USUAL
    """A key of `EXCLUDED`."""
    cutoffs: Sequence[int] = CUTOFFS
    similarity: Similarity = "cosine"
    name: str = TASK

    @property
    def texts(self) -> list[str]:
        """Every sentence of every pair."""
        return [*self.pairs.first, *self.pairs.second]

    @property
    def identity(self) -> list[Any]:
        """Everything beside the model that decides the score."""
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
    """Return the rank of each query's second sentence, from 1, and 0 where it is excluded ``[queries]``.

    Returns:
        The ranks of this model, and those of one that finds each text most similar to itself and next to its second
        sentence: no model that gives equal texts equal vectors is better.
    """
    first, second = (np.array([vectors.rows[text] for text in side]) for side in (pairs.first, pairs.second))
    slots = second if exclude == "s2-only" else np.concatenate([first, second])
    copies = np.bincount(slots, minlength=len(vectors.vectors))
    queries, gold = first[pairs.positive], second[pairs.positive]
    ranks = _ranks(prepared(vectors.vectors, similarity), queries, gold, copies, exclude)
    return ranks, _best(queries, gold, copies, exclude)


def _ranks(vectors: Vectors, queries: Integers, gold: Integers, copies: Integers, exclude: str) -> Integers:
    """Return the rank of each second sentence ``[queries]``; 0 if it is excluded.

    Args:
        vectors: of the distinct texts ``[texts, dim]``.
        queries: rows of the queries ``[queries]``.
        gold: rows of their second sentences ``[queries]``.
        copies: how often each text may be found ``[texts]``.
        exclude: a key of `EXCLUDED`.
    """
    lengths, ranks = np.linalg.norm(vectors, axis=1), np.zeros(len(queries), np.int64)
    counted = copies.astype(np.float32)  # exact up to 16 million sentences
    for start in range(0, len(queries), TOGETHER):
        some = slice(start, start + TOGETHER)
        query, answer = queries[some], gold[some]
        similar, row = vectors[query] @ vectors.T, np.arange(len(query))
        least = similar[row, answer] - ROUNDING * lengths[query] * lengths[answer]
        before = (similar >= least[:, None]).astype(np.float32)
        before[row, answer] = 0
        own = before[row, query]
        if exclude.startswith("equal-text"):
            before[row, query] = 0
        ranks[some] = 1 + before @ counted - (own if exclude == "own" else 0)
    return np.where(_excluded(queries, gold, exclude), 0, ranks)


def _best(queries: Integers, gold: Integers, copies: Integers, exclude: str) -> Integers:
    """Return the ranks of a model that finds each text most similar to itself and next to its second sentence."""
    others = {"own": copies[queries] - 1, "s2-only": copies[queries]}.get(exclude, np.zeros_like(queries))
    best: Integers = np.where(queries == gold, 1, 1 + others)
    return np.where(_excluded(queries, gold, exclude), 0, best)


def _excluded(queries: Integers, gold: Integers, exclude: str) -> npt.NDArray[np.bool_]:
    same: npt.NDArray[np.bool_] = queries == gold
    return same & (exclude == "equal-text")


def _among(ranks: Integers, k: int) -> npt.NDArray[np.bool_]:
    return (ranks > 0) & (ranks <= k)
