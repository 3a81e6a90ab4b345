"""Moving a collection of a database to another model; the database keeps the one before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from sentcli.errors import InputError
from sentcli.migrating.move import Move, MoveTarget, Searched
from sentcli.model.options import LoadOptions
from sentcli.search.corpus_documents import CorpusDocuments
from sentcli.search.options import CorpusOptions, DatabaseOptions, IndexOptions, SearchOptions
from sentcli.search.provenance import Provenance
from sentcli.stores.collection_rows import CollectionRows
from sentcli.stores.inputs import Inputs
from sentcli.stores.opening import open_corpus
from sentcli.stores.record import CollectionRecord, fields_of
from sentcli.stores.store import CollectionCorpus, Database
from sentcli.stores.table_rows import TableRows
from sentcli.stores.updating import CollectionUpdating, database_of


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
    record: CollectionRecord
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
        return TableRows.of(self.documents.rows, self.origin.context, self.title)

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
        columns = {name: kind for name, (_, kind) in self.record.columns.items()}
        record = CollectionRecord(
            settings=self.vectors.facts.recorded(),
            dimension=self.vectors.dimension,
            similarity=self.new_similarity,
            columns=fields_of(columns),
            language=self.record.language,
            kind=self.record.kind,
        )
        rows = CollectionRows(self.inputs, record, self.vectors)
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


@dataclass(frozen=True)
class MovedCollection:
    """A collection that has moved, see `move.Moved`; its database refuses two that write."""

    title: str
    place: Database
    models: tuple[str, str]

    @classmethod
    def open(cls, name: str, collection: str | None) -> MovedCollection:
        """Read what a collection and the one before say about themselves.

        Raises:
            InputError: if there is none, or it has not moved.
        """
        move = CollectionMove.open(name, collection, MoveTarget("", LoadOptions()))
        before = move.place.before_record()
        if before is None:
            raise InputError(f"{move.title} has not moved, or it was dropped: there is no {move.before}")
        return cls(move.title, move.place, (move.origin.model, str(before.settings["model"])))

    @property
    def before(self) -> str:
        """What the database calls it."""
        return self.place.before

    def exchange(self) -> dict[str, Any]:
        """Exchange the collection with the one before."""
        self.place.go_back()
        return {}

    def let_go(self) -> dict[str, Any]:
        """Let the one before go."""
        self.place.drop_before()
        return {}
