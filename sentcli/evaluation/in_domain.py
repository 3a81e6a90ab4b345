"""Finding the second sentence of a pair by the first, among all sentences of the pairs.

The in-domain retrieval of DiffCSE (Chuang et al., NAACL 2022) and InfoCSE (Wu et al., EMNLP Findings 2022): the pairs
of STS-B's test split with the highest score, 97 of 1,379, against all 2,758 sentences. Neither paper says which
sentences are no answer, and no code was published, so there are several rules; `EXCLUDED` has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from sentcli.evaluation import significance
from sentcli.evaluation.cache import digest
from sentcli.evaluation.candidate import Measurement
from sentcli.evaluation.pair_tables import PairTable
from sentcli.evaluation.sts import ROUNDING
from sentcli.evaluation.vectors import TextVectors
from sentcli.search.neighbours import Similarity, Vectors, prepared

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
class InDomainScore:
    """Where the second sentences were found."""

    ranks: Integers
    """Of each query's second sentence, from 1; 0 if it is excluded ``[queries]``."""
    best: Integers
    """The same of a model that finds each text most similar to itself and next to its second sentence ``[queries]``."""
    cutoffs: tuple[int, ...]
    exclude: str
    corpus: int
    """Sentences that may be found, copies included."""
    distinct: int
    """Different ones."""
    truncated: int = 0
    """Distinct sentences longer than the model's maximum length."""
    zero_vectors: int = 0
    """Distinct sentences whose vector is zero; their similarity to any other counts as 0."""
    draws: dict[int, npt.NDArray[np.float64]] = field(default_factory=dict, repr=False)
    """Recall of samples of the queries, by cut-off ``[draws]``; computed when first asked for."""

    def hits(self, k: int) -> npt.NDArray[np.bool_]:
        """Return whether each second sentence is among the first `k` ``[queries]``."""
        return _among(self.ranks, k)

    def recall(self, k: int) -> float:
        """Return the share of the hits, times 100."""
        return 100 * float(self.hits(k).mean())

    def bound(self, k: int) -> float:
        """Return what no model that finds equal texts most similar can exceed, times 100."""
        return 100 * float(_among(self.best, k).mean())

    def interval(self, k: int) -> tuple[float, float]:
        """Return Wilson's interval of the recall."""
        return significance.accuracy_interval(self.hits(k))

    def recall_draws(self, k: int) -> npt.NDArray[np.float64]:
        """Return the recall of samples of the queries ``[draws]``."""
        if k not in self.draws:
            self.draws[k] = 100 * significance.mean_draws(self.hits(k).astype(np.float64))
        return self.draws[k]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            **{named(k): self.recall(k) for k in self.cutoffs},
            "queries": len(self.ranks),
            "corpus": self.corpus,
            "distinct": self.distinct,
            "exclude": self.exclude,
            "intervals": {named(k): self.interval(k) for k in self.cutoffs},
            "bounds": {named(k): self.bound(k) for k in self.cutoffs},
            "truncated": self.truncated,
            "zero_vectors": self.zero_vectors,
        }

    def to_record(self) -> dict[str, Any]:
        """Return everything, for `from_record`."""
        kept = {key: value for key, value in vars(self).items() if key != "draws"}
        return {**kept, "ranks": self.ranks.tolist(), "best": self.best.tolist()}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> InDomainScore:
        """Return what `to_record` was called on."""
        arrays = {key: np.array(record[key], np.int64) for key in ("ranks", "best")}
        return cls(**{**record, **arrays, "cutoffs": tuple(record["cutoffs"])})


def measurement(
    table: PairTable, exclude: str, cutoffs: Sequence[int] = CUTOFFS, similarity: Similarity = "cosine"
) -> Measurement[InDomainScore]:
    """Return what scores a model on some pairs; the arguments are those of `score`."""
    content = [table.first, table.second, table.positive.tolist()]
    return Measurement(
        TASK,
        [*table.first, *table.second],
        [TASK, exclude, list(cutoffs), similarity, digest(content)],
        lambda found: score(table, found, exclude, cutoffs, similarity),
        InDomainScore.from_record,
    )


def score(
    table: PairTable,
    found: TextVectors,
    exclude: str,
    cutoffs: Sequence[int] = CUTOFFS,
    similarity: Similarity = "cosine",
) -> InDomainScore:
    """Score a model.

    A rank is 1 and the number of sentences with another text than the second sentence's that are at least as similar to
    the query: no model gains by giving many texts one vector.

    Args:
        table: the pairs.
        found: the vectors of their sentences.
        exclude: a key of `EXCLUDED`.
        cutoffs: of the recall.
        similarity: ``cosine`` or ``dot``.
    """
    first, second = (np.array([found.rows[text] for text in side]) for side in (table.first, table.second))
    slots = second if exclude == "s2-only" else np.concatenate([first, second])
    copies = np.bincount(slots, minlength=len(found.vectors))
    queries, gold = first[table.positive], second[table.positive]
    texts = {*table.first, *table.second}
    rows = np.unique(np.concatenate([first, second]))
    return InDomainScore(
        ranks=_ranks(prepared(found.vectors, similarity), queries, gold, copies, exclude),
        best=_best(queries, gold, copies, exclude),
        cutoffs=tuple(cutoffs),
        exclude=exclude,
        corpus=len(slots),
        distinct=int(np.count_nonzero(copies)),
        truncated=found.truncated(texts),
        zero_vectors=int((~found.vectors[rows].any(axis=1)).sum()),
    )


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
    found: npt.NDArray[np.bool_] = (ranks > 0) & (ranks <= k)
    return found


def compare(result: InDomainScore, first: InDomainScore) -> dict[str, significance.Difference]:
    """Return what sets a model apart from the first one, by cut-off, on the same samples of the queries."""
    return {
        named(k): significance.compare_draws(
            result.recall(k), first.recall(k), result.recall_draws(k), first.recall_draws(k)
        )
        for k in result.cutoffs
    }


def named(k: int) -> str:
    """Return what recall at a cut-off is called."""
    return f"recall@{k}"
