"""A corpus in a data frame: what a new kind of corpus needs, outside of the package."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from sentcli.arrays import Vectors
from sentcli.errors import InputError
from sentcli.search.bm25 import BM25
from sentcli.search.conditions import Condition
from sentcli.search.neighbours import Neighbours
from sentcli.search.options import CorpusOptions, SearchOptions
from sentcli.search.provenance import Provenance
from sentcli.search.rows import Document


@dataclass(frozen=True)
class FrameCorpus:
    """Rows with the columns ``id`` and ``text``, and their vectors of length 1."""

    frame: pd.DataFrame
    vectors: Vectors
    origin: Provenance
    title: str = "frame"
    bm25: BM25 | None = None

    @property
    def schema(self) -> dict[str, Any]:
        return {field.name: field.type for field in pa.Schema.from_pandas(self.frame, preserve_index=False)}

    @property
    def max_top_k(self) -> int:
        return len(self.vectors)

    def __len__(self) -> int:
        return len(self.frame)

    def select(self, condition: Condition) -> FrameCorpus:
        met = condition.matches(pa.Table.from_pandas(self.frame, preserve_index=False))
        return replace(self, frame=self.frame[met])

    def counts(self, column: str) -> list[tuple[Any, int]]:
        values = self.frame[column].astype(object).where(self.frame[column].notna(), None).tolist()
        numbers = {value: values.count(value) for value in values}
        return sorted(numbers.items(), key=lambda entry: (-entry[1], entry[0] is None, str(entry[0])))

    def documents(self, ids: Sequence[str]) -> dict[str, Document]:
        return {row.id: row for row in self.take(self.frame.index[self.frame["id"].isin(ids)].tolist()).values()}

    def take(self, positions: Sequence[int]) -> dict[int, Document]:
        rows = self.frame.loc[list(positions)].astype(object)
        records = rows.where(rows.notna(), None).to_dict("records")
        documents = [Document(record.pop("id"), record.pop("text"), record) for record in records]
        return dict(zip(positions, documents, strict=True))

    def prepare(
        self, search: SearchOptions, encoder: Any, rescore: str | None = None
    ) -> tuple[FrameCorpus, dict[str, Any]]:
        if search.similarity == "dot" or search.index is not None or rescore is not None:
            raise InputError("a frame is searched exactly, by cosine")
        words = BM25.build(self.frame["text"])
        protocol: dict[str, Any] = {"bm25": words.protocol()} if search.by_words else {}
        if encoder is not None:
            query, document = search.prompts(encoder)
            self.origin.check_encoder(encoder, document, self.vectors.shape[1])
            protocol |= {"similarity": "cosine", "index": "exact", "query_prompt": query, "document_prompt": document}
        return replace(self, bm25=words), protocol

    def nearest(self, vectors: Vectors, k: int) -> Neighbours:
        rows = self.frame.index.to_numpy()
        scores = vectors @ self.vectors[rows].T / np.linalg.norm(vectors, axis=1, keepdims=True)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return Neighbours(rows[order], np.take_along_axis(scores, order, 1))

    def by_words(self, queries: Sequence[str], k: int) -> Neighbours:
        assert self.bm25 is not None
        found = self.bm25.search(queries, k)
        rows = self.frame.index.to_numpy()
        return Neighbours(np.where(found.positions < 0, -1, rows[found.positions]), found.scores)


@contextmanager
def open_frame(name: str, options: CorpusOptions, search: SearchOptions) -> Iterator[FrameCorpus]:
    """Open ``frame:FILE``, JSON Lines beside which FILE.npy holds vectors: what the entry point of a backend names."""
    file = name.removeprefix("frame:")
    frame = pd.read_json(file, lines=True, dtype={"id": str})
    yield FrameCorpus(frame, np.load(f"{file}.npy"), Provenance.named(name, {}))
