"""The kinds of scores, and what averages, tables and comparisons need to know of each.

They are correlations, accuracies, average precision, nDCG, reciprocal rank and recall.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from sentcli.io.labelled_kinds import Kind

FULL_NAMES = {"STS-B": "STSBenchmark", "SICK-R": "SICKRelatedness"}
"""The name of a task of similarity by its name in papers, which mteb takes as well."""


@dataclass(frozen=True)
class ScoreKind:
    """A kind of task, whose scores may share a table: its metric, average, scale and titles."""

    name: str
    command: str
    title: str
    """The title of a table of such scores."""
    metric: str
    """The name of the main metric for people."""
    main: str
    """The key of the main metric, by which weights are compared."""
    columns: Mapping[str, str]
    """The metrics and counts in the table of all measures, with their titles."""
    sampled: str
    """The name of the items that intervals and comparisons sample."""
    average: Literal["", "rounded", "plain"] = "rounded"
    """How tasks are averaged; papers round each score to two decimals first. Empty if a mean makes no sense."""
    scale: float = 1
    """The factor that brings a score to a scale of 100."""
    digits: int = 2
    """Decimals of scores that are not multiplied by `scale`."""
    table: Kind | None = None
    """The kind of the user's own data that has such scores."""

    @property
    def highest(self) -> float:
        """The score of a model that has everything right: 1 or 100."""
        return 100 / self.scale


SIMILARITY = ScoreKind(
    name="similarity",
    command="sts-eval",
    title="Semantic textual similarity",
    metric="Spearman",
    main="spearman",
    columns={
        "pairs": "pairs",
        "spearman": "Spearman",
        "pearson": "Pearson",
        "spearman_mean": "mean of subsets",
        "spearman_wmean": "weighted mean",
        "dev_pearson": "dev Pearson",
        "mse": "squared error",
    },
    sampled="pairs",
    table="scored",
)
TRAINED_HEAD = replace(
    SIMILARITY, name="trained head", command="senteval", title="Similarity with a trained head", table=None
)
TRANSFER = ScoreKind(
    name="transfer",
    command="senteval",
    title="Transfer tasks",
    metric="Accuracy",
    main="accuracy",
    columns={"train": "train", "test": "test", "dev_accuracy": "dev accuracy", "accuracy": "accuracy", "f1": "F1"},
    sampled="test examples",
)
RETRIEVAL = ScoreKind(
    name="retrieval",
    command="retrieve",
    title="Retrieval",
    metric="nDCG",
    main="ndcg@10",
    columns={
        "queries": "queries",
        "documents": "documents",
        "ndcg@10": "nDCG@10",
        "map@100": "MAP@100",
        "recall@10": "recall@10",
        "recall@100": "recall@100",
        "r_cap@100": "capped recall@100",
        "precision@10": "precision@10",
        "mrr@10": "MRR@10",
        "index_recall@10": "index recall@10",
    },
    sampled="queries",
    average="plain",
    scale=100,
    digits=4,
    table="retrieval",
)
IN_DOMAIN = ScoreKind(
    name="in-domain",
    command="retrieve",
    title="In-domain retrieval",
    metric="Recall",
    main="recall@1",
    columns={"queries": "queries", "corpus": "sentences"},
    sampled="queries",
    average="",
)
_of_own_data = partial(ScoreKind, command="evaluate", average="plain", scale=100, digits=4)
BINARY = _of_own_data(
    name="binary",
    title="0/1 pairs",
    metric="Average precision",
    main="average_precision",
    columns={
        "items": "pairs",
        "positive": "positive",
        "average_precision": "average precision",
        "auc": "AUC",
        "f1": "best F1",
        "threshold": "its threshold",
    },
    sampled="pairs",
    table="binary",
)
PAIRS = _of_own_data(
    name="pairs",
    title="Positives among all others",
    metric="MRR@10",
    main="mrr@10",
    columns={
        "items": "anchors",
        "corpus": "positives",
        "mrr@10": "MRR@10",
        "recall@1": "recall@1",
        "recall@5": "recall@5",
        "recall@10": "recall@10",
    },
    sampled="anchors",
    table="pairs",
)
TRIPLETS = _of_own_data(
    name="triplets",
    title="Triplets",
    metric="Accuracy",
    main="accuracy",
    columns={"items": "triplets", "negatives": "negatives", "accuracy": "accuracy", "margin": "mean margin"},
    sampled="triplets",
    table="triplets",
)
LABELS = _of_own_data(
    name="labels",
    title="Labelled texts",
    metric="Accuracy",
    main="accuracy",
    columns={
        "items": "texts",
        "classes": "classes",
        "majority": "largest class",
        "accuracy": "accuracy",
        "dev_accuracy": "dev accuracy",
    },
    sampled="texts",
    table="labels",
)
_ALL_KINDS = (SIMILARITY, TRAINED_HEAD, TRANSFER, RETRIEVAL, IN_DOMAIN, BINARY, PAIRS, TRIPLETS, LABELS)
SCORE_KINDS = {kind.name: kind for kind in _ALL_KINDS}
OWN_KINDS: dict[Kind, ScoreKind] = {kind.table: kind for kind in SCORE_KINDS.values() if kind.table is not None}
"""The scores of the kinds of the user's own data."""


@dataclass(frozen=True)
class SubsetAggregation:
    """A way to make one score of the subsets of a task."""

    metric: str
    title: str


AGGREGATIONS = {
    "all": SubsetAggregation("spearman", "all (subsets concatenated)"),
    "mean": SubsetAggregation("spearman_mean", "mean of the subsets"),
    "wmean": SubsetAggregation("spearman_wmean", "mean of the subsets, weighted by size"),
}
"""The aggregations of similarity by their names on the command line."""
