"""The rows that go into a collection, of what `encode` wrote or of files of text, and what gives them their vectors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli.encoder.vector_facts import VectorFacts
from sentcli.errors import InputError
from sentcli.io.column_types import name_of
from sentcli.model.options import LoadOptions
from sentcli.model.passages import COLUMNS
from sentcli.search.bm25 import LANGUAGE
from sentcli.stores.inputs import Inputs, read_rows
from sentcli.stores.passages import Cutting, facts_of
from sentcli.stores.record import NULL, CollectionRecord, fields_of
from sentcli.stores.row_places import Places
from sentcli.stores.row_vectors import EncodedVectors, GivenVectors, RowVectors
from sentcli.stores.table_rows import TableRows

if TYPE_CHECKING:
    from sentcli.search.options import IndexOptions
    from sentcli.search.stored_vectors import StoredVectors
    from sentcli.stores.options import TextOptions

SENT_ROWS = 1024
"""The rows that are encoded and then sent together; an interruption loses a few times as many."""


@dataclass(frozen=True)
class CollectionRows:
    """The rows of a collection."""

    inputs: Inputs
    record: CollectionRecord
    vectors: RowVectors
    """What gives the rows their vectors."""
    given_vectors: bool = False
    """Whether the vectors are of a table that does not say how they were made: another vector is another row."""

    def __len__(self) -> int:
        return self.inputs.survey.rows

    def order(self, most_bytes: int | None) -> Places:
        """Return the numbers of the rows.

        Args:
            most_bytes: of an id in the database; None if ids may be of any length.

        Raises:
            InputError: for ids that a collection cannot have, before anything is written.
        """
        hashes = np.empty(len(self), np.int64)
        number = 0
        for ids in self.inputs.ids():
            for key in ids:
                if most_bytes is not None and len(key.encode("utf-8", "surrogatepass")) > most_bytes:
                    raise InputError(
                        f"row {number + 1}: an id of a collection has at most {most_bytes:,} bytes: {key[:40]!r}..."
                    )
                hashes[number] = hash(key)
                number += 1
        order = Places.paired(hashes, np.arange(len(self)))
        if repeated := order.repeated:
            raise InputError(f"{repeated} rows have an id that another row has, too; a collection keeps one row an id")
        return order


@dataclass(frozen=True)
class CollectionInput:
    """The corpus of a collection, as the command line says it."""

    names: Sequence[str]
    """A directory or file that `encode` wrote, or files of text."""
    index: IndexOptions
    text: TextOptions
    cutting: Cutting
    doc_prompt: str | None

    @property
    def model(self) -> str | None:
        """The name of the model that the user names."""
        return self.cutting.model

    @property
    def load(self) -> LoadOptions:
        """How it is loaded."""
        return self.cutting.load

    def read(self) -> CollectionRows:
        """Return the rows of a directory or file that `encode` wrote, or those of files of texts.

        Raises:
            InputError: if they cannot be read, or no model is known for them.
        """
        from sentcli.search.vector_file import open_stored

        text = self.text
        field = text.vector_field
        if field is not None and len(self.names) != 1:
            raise InputError("--vector-field goes with a single table")
        stored = None
        if len(self.names) == 1:
            stored = open_stored(self.names[0], None, text.reading(), field=field)
        if stored is not None:
            return self._of_vectors(stored)
        return self._of_texts()

    def _of_vectors(self, stored: StoredVectors) -> CollectionRows:
        """Return rows whose vectors are there."""
        origin, blocks = stored.origin, stored.blocks
        _check_types(self.text, stored)
        if origin.output_dtype in ("int8", "binary"):
            raise InputError(f"{origin.name} holds vectors in {origin.output_dtype}: give the full ones")
        facts = self._facts_of(stored)
        origin.check_similarity(self.index.similarity or facts.compared_by)
        inputs = TableRows.of(stored.rows, origin.context, origin.name)
        vectors = GivenVectors(blocks.take, blocks.dimension, facts.recorded(), origin.name)
        return CollectionRows(inputs, self._record(facts, inputs, vectors), vectors, given_vectors=not origin.known)

    def _facts_of(self, stored: StoredVectors) -> VectorFacts:
        """Return how stored vectors were made, after comparing them with the model that the user names.

        Raises:
            InputError: if another model made them, or none is known.
        """
        from sentcli.encoder import load_encoder

        origin = stored.origin
        encoder = None
        if self.model is not None:
            encoder = load_encoder(self.model, self.load)
        facts = stored.facts(encoder, self.doc_prompt)
        if not facts.known:
            raise InputError(f"{origin.name} does not say which model made its vectors: give that model with -m")
        return facts

    def _of_texts(self) -> CollectionRows:
        """Return the rows of files of texts, which are encoded as they are needed."""
        from sentcli.encoder import load_encoder

        if self.model is None:
            raise InputError("files of text are encoded first: give the model with -m")
        cut = self.cutting.rows()
        inputs = read_rows(self.names, self.text, output="-", cut=cut)
        encoder = load_encoder(self.model, self.load)
        vectors = EncodedVectors.of_documents(encoder, self.load, self.doc_prompt, facts_of(cut))
        return CollectionRows(inputs, self._record(vectors.facts, inputs, vectors), vectors)

    def _record(self, facts: VectorFacts, inputs: Inputs, vectors: RowVectors) -> CollectionRecord:
        """Return what the collection will say about itself."""
        kinds = {name: name_of(kind) for name, kind in inputs.survey.column_types.items()}
        given = [name for name in kinds if name not in COLUMNS]  # those of passages have types of their own
        cells = (block.columns for block in inputs.blocks())
        kinds |= dict.fromkeys(_without_values(given, cells), NULL)
        return CollectionRecord(
            settings=facts.recorded(),
            dimension=vectors.dimension,
            similarity=self.index.similarity or facts.compared_by,
            columns=fields_of(kinds),
            language=self.index.language or LANGUAGE,
            kind=self.index.type,
        )


def _without_values(names: Iterable[str], cells: Iterator[Mapping[str, Sequence[Any]]]) -> list[str]:
    """Return the columns in which no row has a value; rows are read until each of the others has had one."""
    empty = list(names)
    for columns in cells:
        if not empty:
            break
        empty = [name for name in empty if columns[name].count(None) == len(columns[name])]
    return empty


def _check_types(text: TextOptions, stored: StoredVectors) -> None:
    """Refuse types of columns that have theirs, or are not there."""
    from sentcli.search.condition_reader import check_column

    origin = stored.origin
    if origin.known and (text.types or text.null):
        raise InputError(f"{origin.name} was written by encode, and its columns have their types: no --types or --null")
    for name in text.column_types:
        check_column(name, stored.rows.schema, origin.name, "--types")
