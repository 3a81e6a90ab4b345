"""What was measured on retrieval sets: metrics, values of each query, intervals, and differences."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from sentcli.evaluation import significance
from sentcli.evaluation.retrieval import RetrievalSet
from sentcli.evaluation.retrieval_metrics import Floats, each_query, main_metric, means, ranked, score
from sentcli.evaluation.significance import Difference
from sentcli.search.trec import Run

AVERAGE = "average"


@dataclass(frozen=True)
class SetScores:
    """Scores of one set, from 0 to 1."""

    name: str
    main: str
    """The metric of tables."""
    metrics: dict[str, float]
    queries: tuple[str, ...]
    """Their ids."""
    values: dict[str, Floats]
    """Of each metric, one for each query."""
    documents: int
    truncated: int = 0
    """Texts that were longer than the maximum length."""
    lacking: int = 0
    """Queries without a hit in the run."""
    index_recall: float | None = None
    """Share of the exact ten best documents among the ten best of an index."""
    index: dict[str, Any] | str | None = None
    """What the index is; ``exact`` where one was asked for and was no help."""

    @cached_property
    def draws(self) -> Floats:
        """The main metric of samples of the queries ``[draws]``; equal samples for other runs on this set."""
        return significance.mean_draws(self.values[self.main], stream=zlib.crc32(self.name.encode()))

    @property
    def forums(self) -> tuple[SetScores, ...]:
        """The sets that this is the mean of: none."""
        return ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        interval = significance.interval(self.draws)
        found = {**self.metrics, "queries": len(self.queries), "documents": self.documents, "interval": interval}
        more = {"queries_without_hits": self.lacking or None, "index_recall@10": self.index_recall, "index": self.index}
        return found | {key: value for key, value in more.items() if value is not None}

    def to_record(self) -> dict[str, Any]:
        """Return everything, as JSON can hold it."""
        return {**vars_of(self), "values": {name: values.tolist() for name, values in self.values.items()}}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> SetScores:
        """Undo `to_record`."""
        values = {name: np.array(values) for name, values in record["values"].items()}
        return cls(**{**record, "queries": tuple(record["queries"]), "values": values})


def vars_of(scores: SetScores) -> dict[str, Any]:
    """Return the fields, without what was computed from them."""
    return {name: getattr(scores, name) for name in SetScores.__dataclass_fields__}


def score_run(data: RetrievalSet, run: Run, top_k: int) -> SetScores:
    """Score the hits of a set's queries, ranked as trec_eval ranks them; a query without any counts, with 0."""
    full = ranked(run, data.qrels)
    return SetScores(
        name=data.name,
        main=main_metric(top_k),
        metrics=score(full, data.qrels, top_k),
        queries=tuple(data.qrels),
        values=each_query(full, data.qrels, top_k),
        documents=len(data.ids),
        lacking=sum(not hits for hits in full.values()),
    )


@dataclass(frozen=True)
class MeanScores:
    """The mean over several sets that count as one."""

    name: str
    forums: tuple[SetScores, ...]

    @cached_property
    def draws(self) -> Floats:
        """The main metric of samples of the queries of each ``[draws]``."""
        found: Floats = np.mean([each.draws for each in self.forums], axis=0)
        return found

    @property
    def main(self) -> str:
        """The metric of tables."""
        return self.forums[0].main

    @cached_property
    def metrics(self) -> dict[str, float]:
        """The mean of each."""
        return means([each.metrics for each in self.forums])

    @property
    def queries(self) -> tuple[str, ...]:
        """Ids of all."""
        return tuple(query for each in self.forums for query in each.queries)

    @property
    def documents(self) -> int:
        """Of all together."""
        return sum(each.documents for each in self.forums)

    @property
    def truncated(self) -> int:
        """Texts that were longer than the maximum length."""
        return sum(each.truncated for each in self.forums)

    @property
    def lacking(self) -> int:
        """Queries without a hit in the run."""
        return sum(each.lacking for each in self.forums)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        found = {each.name: each.to_dict() for each in self.forums}
        counts = {
            key: sum(each.get(key, 0) for each in found.values())
            for key in ("queries", "documents", "queries_without_hits")
        }
        recalls = [each.index_recall for each in self.forums if each.index_recall is not None]
        return {
            **self.metrics,
            **{key: count for key, count in counts.items() if count or key != "queries_without_hits"},
            "interval": significance.interval(self.draws),
            **({"index_recall@10": float(np.mean(recalls))} if recalls else {}),
            "forums": found,
        }


Scores = SetScores | MeanScores


@dataclass(frozen=True)
class RetrievalResult:
    """Scores of one search on all sets."""

    sets: tuple[Scores, ...]

    @property
    def main(self) -> str:
        """The metric of tables."""
        return self.sets[0].main

    @property
    def average(self) -> float | None:
        """The unweighted mean of the main metric, if there are several sets."""
        return float(np.mean([each.metrics[self.main] for each in self.sets])) if len(self.sets) > 1 else None

    @cached_property
    def average_draws(self) -> Floats:
        """The average of samples of the queries of each set ``[draws]``."""
        found: Floats = np.mean([each.draws for each in self.sets], axis=0)
        return found

    def scores(self) -> dict[str, float]:
        """Return the main metric of each set, and the average."""
        found = {each.name: each.metrics[self.main] for each in self.sets}
        return found if self.average is None else {**found, AVERAGE: self.average}

    def draws(self) -> dict[str, Floats]:
        """Return the samples of what `scores` returns."""
        found = {each.name: each.draws for each in self.sets}
        return found if self.average is None else {**found, AVERAGE: self.average_draws}

    def each(self) -> Iterator[tuple[str, SetScores]]:
        """Yield the sets whose queries were searched; a forum as ``cqadupstack/android``."""
        for one in self.sets:
            if isinstance(one, SetScores):
                yield one.name, one
            else:
                yield from ((f"{one.name}/{forum.name}", forum) for forum in one.forums)


def compare(result: RetrievalResult, first: RetrievalResult) -> dict[str, Difference]:
    """Compare two searches of the same sets on the same samples of the queries (paired bootstrap)."""
    scores, others, draws, base = result.scores(), first.scores(), result.draws(), first.draws()
    return {
        name: significance.compare_draws(score, others[name], draws[name], base[name]) for name, score in scores.items()
    }


def joined(name: str, found: Sequence[SetScores], *, mean: bool) -> Scores:
    """Return the scores of a set under the name it was given by, or the mean over its forums."""
    return MeanScores(name, tuple(found)) if mean else replace(found[0], name=name)
