"""Anchors with positives as tasks: finding the positives among those of all anchors, or telling them from negatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from sentcli.evaluation.evaluated import EvaluatedModel, TextVectors
from sentcli.evaluation.labelled_tasks import TableTask, role_vectors, told
from sentcli.evaluation.score_kinds import PAIRS, TRIPLETS
from sentcli.evaluation.scores import TaskScore
from sentcli.evaluation.significance import require_finite
from sentcli.evaluation.sts import ROUNDING, cosine
from sentcli.search.exact import prepared

Rows = npt.NDArray[np.int64]
TIES = "a text that is as similar to the anchor as its positive comes before it"
CUTOFFS = (1, 5, 10)
"""The numbers of hits of recall@k; the reciprocal rank is cut off at the last."""
PAIRS_AT_A_TIME = 256
"""Pairs whose anchors are compared with all positives at a time."""


@dataclass(frozen=True)
class PairsTask(TableTask):
    """Anchors, whose positives are to be found among the positives of all anchors."""

    @property
    def described(self) -> str:
        """The number of pairs, and of the distinct anchors and positives among them."""
        return f"{len(self.table):,} pairs, {len(self._positives):,} anchors, {len(self._corpus):,} positives to search"

    @property
    def protocol(self) -> dict[str, Any]:
        """Every choice that moves the score besides table and model."""
        own = "no answer, unless it is the anchor's positive"
        return {"similarity": "cosine", "ties": TIES, "text of the anchor": own, "cutoffs": list(CUTOFFS)}

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

    def score(self, model: EvaluatedModel, vectors: TextVectors) -> TaskScore:
        """Rank the positives of each anchor; the roles are encoded here, with their prompts."""
        anchors, corpus = list(self._positives), list(self._corpus)
        queries = role_vectors(model, anchors, "query", self.name)
        documents = role_vectors(model, corpus, "document", self.name)
        relevant = [[self._corpus[text] for text in texts] for texts in self._positives.values()]
        own = [self._corpus.get(anchor, -1) for anchor in anchors]
        ranks = positive_ranks(queries.of(anchors), documents.of(corpus), relevant, own)
        reciprocal = np.array([1 / found[0] if found[0] <= CUTOFFS[-1] else 0.0 for found in ranks])
        recalls = {f"recall@{k}": float(np.mean([np.mean(found <= k) for found in ranks])) for k in CUTOFFS}
        facts = {
            "corpus": len(corpus),
            "pairs": len(self.table),
            "truncated": queries.truncated(anchors) + documents.truncated(corpus),
            "zero_vectors": queries.zero(anchors) + documents.zero(corpus),
        }
        metrics = {"mrr@10": float(reciprocal.mean()), **recalls}
        sampled = self.mean("mrr@10", reciprocal)
        return told(TaskScore(self.name, PAIRS.name, metrics, ("mrr@10",), facts, **sampled), self.kind, len(anchors))


def positive_ranks(
    queries: npt.NDArray[np.float32],
    corpus: npt.NDArray[np.float32],
    relevant: Sequence[Sequence[int]],
    own: Sequence[int],
) -> list[Rows]:
    """Return the ranks of the positives of each anchor among all texts, from 1, in ascending order.

    A text that is no positive of the anchor comes before a positive that is only as similar, so that a model does not
    gain by giving many texts the same vector.

    Args:
        queries: vectors of the anchors ``[anchors, dim]``.
        corpus: vectors of the positives of all anchors ``[texts, dim]``.
        relevant: rows of the positives of each anchor.
        own: row of the text that equals each anchor, which is no answer to it unless it is one of its positives, or -1.
    """
    for vectors in (queries, corpus):
        require_finite(vectors)
    unit, texts = prepared(queries, "cosine"), prepared(corpus, "cosine")
    lengths = np.array([len(rows) for rows in relevant])
    anchor, positive = (
        np.repeat(np.arange(len(relevant)), lengths),
        np.concatenate([np.array(rows) for rows in relevant]),
    )
    similarity, others = np.empty(len(anchor)), np.empty(len(anchor), np.int64)
    for start in range(0, len(anchor), PAIRS_AT_A_TIME):
        block = slice(start, start + PAIRS_AT_A_TIME)
        similarities, row = unit[anchor[block]] @ texts.T, np.arange(len(anchor[block]))
        similarity[block] = similarities[row, positive[block]]
        before = similarities >= (similarities[row, positive[block]] - ROUNDING)[:, None]
        for i, number in enumerate(anchor[block]):
            before[i, [*relevant[number], *([own[number]] if own[number] >= 0 else [])]] = False
        others[block] = before.sum(axis=1)
    ranks, end = [], 0
    for count in lengths:
        start, end = end, end + count
        best_first = np.argsort(-similarity[start:end], kind="stable")
        ranks.append(others[start:end][best_first] + np.arange(1, count + 1))
    return ranks


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
        score = TaskScore(self.name, TRIPLETS.name, metrics, ("accuracy",), facts, **self.answered(correct))
        return told(score, self.kind, len(correct))
