"""What corpora in databases have in common: whose queries they take, and how the index of one is measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.errors import InputError
from sentcli.model.spec import Similarity
from sentcli.search.collection_record import Record
from sentcli.search.exact import Vectors
from sentcli.search.faiss_index import EFFORTS
from sentcli.search.options import SearchOptions
from sentcli.search.provenance import Provenance

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder

EFFORT = {"hnsw": "ef", "ivf": "nprobe", "ivfpq": "nprobe", "sq8": "nprobe"}
"""The search parameter of each kind of index that is not exact."""


def protocol_of(record: Record, origin: Provenance, search: SearchOptions, encoder: SentenceEncoder) -> dict[str, Any]:
    """Return every choice of a search by vectors that moves a score, after comparing the encoder with the vectors.

    Args:
        record: what the collection says about itself.
        origin: how its vectors were made.
        search: how queries and documents are compared.
        encoder: of the queries.

    Raises:
        InputError: if the vectors of the encoder do not compare with those of the collection.
    """
    similarity = record.similarity
    if search.similarity not in (None, similarity):
        raise InputError(f"{origin.name} was made for similarity {similarity!r}, not {search.similarity!r}")
    query, document = search.prompts(encoder)
    origin.check_encoder(encoder, document, record.dimension)
    measured = record.recall
    if measured is not None:
        recall = f"recall@{measured['k']} {measured['chosen']['recall']:.3f}"
        console.note(f"index {record.kind}: {recall} against exact search when it was measured")
    return {
        "similarity": similarity,
        "index": {"kind": record.kind, **record.efforts},
        "query_prompt": query,
        "document_prompt": record.settings.get("prompt") or "",
    }


def fitted(queries: Vectors, origin: Provenance) -> Vectors:
    """Return vectors of queries ``[queries, dim]`` made as small as those of the collection are."""
    if not origin.made_smaller():
        return queries
    return origin.compress(queries, normalized=bool(origin.normalize))


class OfCollection:
    """What a corpus in a database says of itself, which its collection knows."""

    collection: Any

    @property
    def title(self) -> str:
        """The address and the name."""
        return str(self.collection.title)

    @property
    def origin(self) -> Provenance:
        """How the vectors were made."""
        origin: Provenance = self.collection.origin
        return origin

    @property
    def schema(self) -> dict[str, Any]:
        """The Arrow types of all columns by name."""
        schema: dict[str, Any] = self.collection.record.schema()
        return schema


@dataclass
class MeasuredCollection:
    """The index of a collection while its recall is measured: a `recall.IndexedSearch` that lacks `search`."""

    record: Record
    """With the search parameters that are tried."""

    @property
    def similarity(self) -> Similarity:
        """The similarity that the index was made for."""
        return self.record.similarity

    @property
    def efforts_to_try(self) -> list[dict[str, int]]:
        """The search parameters with which the index is measured, the least effort first."""
        parameter = EFFORT[self.record.kind]
        name_in_faiss = "efSearch" if parameter == "ef" else parameter
        return [{parameter: value} for value in EFFORTS[name_in_faiss]]

    def set(self, efforts: dict[str, int]) -> None:
        """Set search parameters."""
        self.record = replace(self.record, efforts=efforts)
