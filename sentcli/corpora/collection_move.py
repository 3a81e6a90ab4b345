"""Moving a collection of a database to another model; the database keeps the one before, see `stores.store.Database`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from sentcli import console
from sentcli.bulk.files import Inputs
from sentcli.bulk.stored_rows import TableRows
from sentcli.corpora.collection_rows import encoded_rows
from sentcli.corpora.collections import CollectionUpdating, database_of
from sentcli.corpora.move import Move, MoveTarget, Searched, check_back
from sentcli.corpora.opening import open_corpus
from sentcli.errors import InputError
from sentcli.model.options import LoadOptions
from sentcli.search.corpus_documents import CorpusDocuments
from sentcli.search.options import CorpusOptions, DatabaseOptions, IndexOptions, SearchOptions
from sentcli.search.provenance import Provenance
from sentcli.stores.record import Record, fields_of
from sentcli.stores.store import CollectionCorpus, Database


@dataclass(frozen=True)
class ReopenedRows:
    """The rows of a collection, which is open only while they are read, so that it can be written in between."""

    options: CorpusOptions
    load: LoadOptions
    schema: dict[str, Any]
    rows: int

    def __len__(self) -> int:
        return self.rows

    def tables(self, names: Sequence[str]) -> Iterator[Any]:
        """Yield all rows with some columns."""
        with open_collection(self.options, self.load) as corpus:
            yield from corpus.tables(names)


@contextmanager
def open_collection(options: CorpusOptions, load: LoadOptions) -> Iterator[CollectionCorpus]:
    """Open a collection of a database.

    Raises:
        InputError: if there is none, or its backend does not offer what a move needs.
    """
    with open_corpus(options, SearchOptions(), load) as corpus:
        if not isinstance(corpus, CollectionCorpus):
            raise InputError(f"{options.corpus}: its backend cannot move a collection to another model")
        yield corpus


@dataclass(frozen=True)
class CollectionMove(Move):
    """A collection of a database; see `Move`."""

    database: DatabaseOptions
    record: Record
    version: int | None
    """The version of the collection that is read; None if its database has none."""

    @classmethod
    def open(cls, name: str, collection: str | None, target: MoveTarget) -> CollectionMove:
        """Read what a collection that is to move says about itself.

        Raises:
            InputError: if there is none, or it does not say which model made it.
        """
        with open_collection(CorpusOptions(corpus=name, collection=collection), target.load) as corpus:
            found = corpus.collection
            options = CorpusOptions(corpus=name, collection=found.name, at=found.version)
            rows = ReopenedRows(options, target.load, corpus.schema, len(corpus))
            in_order = corpus.in_order
        origin = Provenance.named(f"{name} {found.name}", found.record.settings)
        documents = CorpusDocuments(origin.name, rows, in_order)
        database = DatabaseOptions(to=name, collection=found.name)
        return cls(origin, found.record.dimension, documents, target, database, found.record, found.version)

    @property
    def place(self) -> Database:
        """The database and the name of the collection."""
        return database_of(self.database, self.record.kind)

    @property
    def before(self) -> str:
        """What the database calls it."""
        return self.place.before

    def has_before(self) -> bool:
        """Whether the database keeps another one than the present one."""
        before = self.place.before_record()
        return before is not None and before.settings != self.record.settings

    @property
    def inputs(self) -> Inputs:
        """All rows."""
        return TableRows.of(self.documents.rows, self.origin.context)

    @property
    def made_with(self) -> dict[str, Any]:
        """The settings of the record."""
        return self.record.settings

    @property
    def searched(self) -> Searched:
        """How the collection compares vectors."""
        return Searched(self.record.similarity)

    def held(self) -> AbstractContextManager[None]:
        """Hold nothing: the database refuses two that write."""
        return nullcontext()

    def run(self) -> dict[str, Any]:
        """Write the collection anew beside, and let it take the place of the old one; see `Move.run`."""
        self._require_as_read()
        inputs = self.inputs
        columns = {name: kind for name, (_, kind) in self.record.columns.items()}
        record = Record(
            settings=self.facts.recorded(),
            dimension=self.settings.compression.truncate_dim or self.encoder.dimension,
            similarity=self.new_similarity,
            columns=fields_of(columns),
            language=self.record.language,
            kind=self.record.kind,
        )
        rows = encoded_rows(inputs, self.encoder, self.settings.prompt, record, self.settings.compression)
        index = IndexOptions(type=self.record.kind)
        updating = CollectionUpdating(lambda: rows, self.database, index, overwrite=True, keeps_before=True)
        update = updating.run()
        return {
            "rows_encoded": update.counts["written"],
            "indexes": [self.record.kind],
            "before": self.before,
            **update.facts,
        }

    def _require_as_read(self) -> None:
        """Refuse to write over rows that another process has written since they were read.

        Raises:
            InputError: which says so.
        """
        newest = CorpusOptions(corpus=self.database.to, collection=self.database.collection)
        with open_collection(newest, self.target.load) as corpus:
            now = corpus.collection
            is_as_read = (now.record, now.version, len(corpus)) == (self.record, self.version, self.row_count)
        if not is_as_read:
            raise InputError(f"{self.title} was changed by another process meanwhile: give the command again")


def go_back(name: str, collection: str | None, model: str | None) -> dict[str, Any]:
    """Exchange a collection with what it was before it moved; see `moving.go_back`."""
    moved = _Moved.open(name, collection)
    check_back(moved.title, (moved.model, moved.model_before), model)
    before = moved.place.before
    moved.place.go_back()
    console.note(f"{moved.title} answers with {moved.model_before} again; {before} has {moved.model}")
    return {"output": moved.title, "model": moved.model_before, "before": before}


def drop_before(name: str, collection: str | None) -> dict[str, Any]:
    """Let go of what a collection was before it moved; see `moving.drop_before`."""
    moved = _Moved.open(name, collection)
    before = moved.place.before
    moved.place.drop_before()
    console.note(f"{before} is dropped")
    return {"output": moved.title, "model": moved.model, "dropped": before}


@dataclass(frozen=True)
class _Moved:
    """A collection that has moved, and the models that it has and had."""

    title: str
    place: Database
    model: str
    model_before: str

    @classmethod
    def open(cls, name: str, collection: str | None) -> _Moved:
        """Read what a collection and the one before say about themselves.

        Raises:
            InputError: if there is none, or it has not moved.
        """
        move = CollectionMove.open(name, collection, MoveTarget("", LoadOptions()))
        before = move.place.before_record()
        if before is None:
            raise InputError(f"{move.title} has not moved, or it was dropped: there is no {move.before}")
        return cls(move.title, move.place, move.origin.model, str(before.settings["model"]))
