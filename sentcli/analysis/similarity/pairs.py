"""Sentence pairs with gold scores, and the cosines that models give them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sentcli.analysis.folder import analysis_record
from sentcli.analysis.models import vectors_of
from sentcli.analysis.texts import LEAST_ITEMS
from sentcli.command.result import Clock, Record
from sentcli.errors import InputError

if TYPE_CHECKING:
    from sentcli.arrays import Float64Array
    from sentcli.evaluation.evaluated import EvaluatedModel
    from sentcli.evaluation.sts import SimilarityTask


GOLD = "gold score"
COSINE = "cosine"
FEATURES = {
    "gold": "gold score",
    "length": "same length",
    "first_word": "same first word",
    "function_words": "function words in common",
    "other_words": "other words in common",
}


class GoldPairs:
    """Sentence pairs with gold scores, and the cosines that models give them.

    Args:
        task: the pairs.
        split: of the pairs; empty for a table of one's own.
        source: the file, for an error.
        top: pairs to list, of those least and of those most agreed with.

    Raises:
        InputError: if there are too few pairs.
    """

    def __init__(self, task: SimilarityTask, split: str, source: str, top: int) -> None:
        from sentcli.analysis.similarity import gold
        from sentcli.evaluation.pair_surface import surface

        self.name = f"{task.name} {split}".strip()
        self.task = replace(task, name=self.name)
        self.top = top
        pairs = self.task.pairs
        self.first = pairs.first
        self.second = pairs.second
        self.gold = pairs.gold
        if len(self.gold) < LEAST_ITEMS:
            raise InputError(f"{source}: {len(self.gold)} pairs; an analysis needs at least {LEAST_ITEMS}")
        self.features = {"gold": self.gold, **surface(self.first, self.second)}
        self.edges = gold.edges(self.gold)
        self.bin_names = [f"{low:.3g} to {high:.3g}" for low, high in pairwise(self.edges)]
        self.cosines: dict[str, Float64Array] = {}
        """The cosines of each model ``[n]``, by its short name."""
        self.results: dict[str, dict[str, Any]] = {}
        """The JSON of each model, by its short name."""

    def measure(self, model: EvaluatedModel, name: str) -> Record:
        """Measure a model under its short name; the correlations are those of ``sts-eval``."""
        import numpy as np

        from sentcli.analysis.similarity import gold
        from sentcli.evaluation import sts
        from sentcli.evaluation.pair_surface import followed
        from sentcli.evaluation.score_kinds import AGGREGATIONS

        clock = Clock()
        vectors = vectors_of(model, [*self.first, *self.second])
        first = vectors.vectors_of(self.first)
        second = vectors.vectors_of(self.second)
        mean = np.concatenate([first, second]).mean(axis=0, dtype=np.float64)
        cosines = self.task.predicted(vectors)
        centred = sts.resolved(sts.cosine(first - mean, second - mean), 1.0)
        score = self.task.score(None, vectors)
        bins = gold.bins(cosines, self.gold, self.edges)
        differences = gold.rank_difference(cosines, self.gold)
        least, most = gold.disagreements(differences, self.top)
        self.cosines[name] = cosines
        self.results[name] = {
            "pairs": len(cosines),
            "spearman": score.metrics["spearman"],
            "pearson": score.metrics["pearson"],
            "bins": bins.astype(object).where(bins.notna(), None).to_dict("records"),
            "follows": {"raw": followed(cosines, self.features), "centred": followed(centred, self.features)},
            "least_agreed": [self._pair(row, cosines, differences) for row in least],
            "most_agreed": [self._pair(row, cosines, differences) for row in most],
        }
        protocol = {
            "kind": "similarity",
            "pairs": self.name,
            "similarity": "cosine",
            "aggregation": AGGREGATIONS["all"].title,
            "bins": self.edges.tolist(),
        }
        return analysis_record(model.name, protocol, self.results[name], clock, model)

    def _pair(self, row: int, cosines: Float64Array, differences: Float64Array) -> dict[str, Any]:
        """Return the JSON of a pair."""
        return {
            "sentence1": self.first[row],
            "sentence2": self.second[row],
            "gold": float(self.gold[row]),
            "cosine": float(cosines[row]),
            "rank_difference": float(differences[row]),
        }
