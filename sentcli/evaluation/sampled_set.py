"""A sample of a retrieval set that is small enough to be searched many times during a training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sentcli.evaluation.evaluated import EvaluatedModel
from sentcli.evaluation.retrieval import RetrievalSet
from sentcli.evaluation.retrieval_tasks import SetSearch
from sentcli.evaluation.stores import digest
from sentcli.search.options import SearchOptions

HITS = 20
"""The best hits of each query that are in the sample, from each way of searching."""


@dataclass(frozen=True)
class SampledSet(RetrievalSet):
    """A retrieval set whose documents are in memory."""

    documents: tuple[str, ...] = ()
    """The texts of the documents, in the order of `ids`."""

    def texts(self) -> Iterator[str]:
        """Yield the texts of the documents in the order of `ids`."""
        return iter(self.documents)


def sampled(data: RetrievalSet, rows: Sequence[int], model: str) -> SampledSet:
    """Return some queries with their judged documents and the best hits of a model and of BM25.

    Scores on it are higher than on the whole set, because most documents are missing, and only they can be compared.

    Args:
        data: the whole set, which is searched once; the vectors of the documents are cached.
        rows: the positions of the queries.
        model: its name.
    """
    every_query = list(data.queries.items())
    queries = dict(every_query[row] for row in rows)
    qrels = {query: data.qrels[query] for query in queries}
    part = replace(data, queries=queries, qrels=qrels)
    search = SetSearch(part, SearchOptions(search="dense,bm25", top_k=HITS))
    hits = [search.by_words.positions, search.by_vectors(EvaluatedModel(model)).hits.positions]
    judged = {document for judgements in qrels.values() for document in judgements}
    numbers = {int(position) for positions in hits for position in positions.flat if position >= 0}
    numbers |= {number for number, document in enumerate(data.ids) if document in judged}
    texts = list(data.texts())
    chosen = sorted(numbers)
    fields = {name: value for name, value in vars(part).items() if name in RetrievalSet.__dataclass_fields__}
    fields["ids"] = [data.ids[number] for number in chosen]
    fields["digest"] = digest([data.digest, list(queries), fields["ids"]])
    return SampledSet(**fields, documents=tuple(texts[number] for number in chosen))
