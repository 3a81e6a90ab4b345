"""``index --to``: write a corpus into a collection of a database, and measure its index."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli import console
from sentcli.arrays import AnyArray, Int64Array
from sentcli.encoder.vector_facts import VectorFacts
from sentcli.errors import InputError
from sentcli.io.blocks import BLOCK_ROWS, Block, Counts
from sentcli.search.options import DatabaseOptions, IndexOptions
from sentcli.stores.changes import ChangeCount
from sentcli.stores.collection_rows import SENT_ROWS, CollectionRows
from sentcli.stores.known_rows import text_of
from sentcli.stores.opening import ADDRESS
from sentcli.stores.record import CollectionRecord, content_hashes, fitted_rows
from sentcli.stores.row_places import Places
from sentcli.stores.row_vectors import GivenVectors, write_blocks
from sentcli.stores.store import DATABASES, Database, RowsThere, RowStore

if TYPE_CHECKING:
    from sentcli.search.recall import IndexedSearch

SHARD_ROWS = 100_000
"""The rows within which a text that repeats is encoded once."""


@dataclass(frozen=True)
class CollectionUpdate:
    """What a collection holds after rows were written."""

    title: str
    model: str
    """The model that made its vectors."""
    record: CollectionRecord
    counts: Mapping[str, int]
    """How many rows were ``written``, of these ``encoded``, ``unchanged`` and ``deleted``, how many ``rows`` there are,
    and what an update says in every store: ``kept``, ``changed``, ``new`` and ``gone``."""
    facts: Mapping[str, Any]
    """What the database says besides, see `RowStore.facts`."""
    in_int8: bool
    """Whether the model computed in int8, as far as it is known."""


def database_of(options: DatabaseOptions, kind: str) -> Database:
    """Return the database of ``--to`` by the scheme in front of its address.

    Args:
        options: the address and the name of a collection.
        kind: of the index.

    Raises:
        InputError: if no installed database has the scheme, or it has no such collection or index.
    """
    address = str(options.to)
    scheme = ADDRESS.match(address)
    for entry in entry_points(group=DATABASES, name="" if scheme is None else scheme[1]):
        database: Database = entry.load()(options, kind)
        return database
    installed = sorted(entry_points(group=DATABASES).names)
    examples = "lance:reviews, a folder, milvus:reviews.db, a file, or postgresql://me@host/db"
    raise InputError(f"--to {address}: give one of {', '.join(installed)}, a colon and a place, as {examples}")


class CollectionUpdating:
    """Writes the rows that are new or have changed into a collection, and measures its recall.

    Args:
        read: returns the rows.
        options: the address and the name of the collection.
        index: the kind of its index, and the recall to aim at.
        overwrite: make the collection anew; the old one stays until the new one is whole.
        keeps_before: keep the old one beside then, for `Database.go_back`.

    Raises:
        InputError: if the address, the name or the kind of the index is none of the database's.
    """

    def __init__(
        self,
        read: Callable[[], CollectionRows],
        options: DatabaseOptions,
        index: IndexOptions,
        *,
        overwrite: bool,
        keeps_before: bool = False,
    ) -> None:
        self.read, self.options, self.index = read, options, index
        self.overwrite, self.keeps_before = overwrite, keeps_before
        self.database = database_of(options, index.type)
        self.count = ChangeCount()
        self.written = self.total = 0

    def so_far(self) -> dict[str, int]:
        """Return how many rows are there; nothing if none is."""
        done = self.written + self.count.kept
        return {"rows_done": done, "rows_total": self.total} if done else {}

    def run(self) -> CollectionUpdate:
        """Do the work.

        Raises:
            InputError: if the corpus or the collection cannot be used, before anything is encoded or written.
        """
        rows = self.read()
        self.total = len(rows)
        order = rows.order(self.database.most_id_bytes)
        opened = self.database.open(rows.record, order, overwrite=self.overwrite, keeps_before=self.keeps_before)
        with opened as store:
            with console.resumable(store.title, how="sends the rows that are not there yet"):
                encoded = self._write(store, rows)
            prune = self.options.prune or store.replaces
            gone, deleted = _prune(store, order, prune=prune)
            store.publish()
            counts = self._counts(gone, deleted)
            counts |= {"encoded": encoded, "rows": store.count()}
            recall = None
            search = store.to_measure(changed=bool(self.written or deleted))
            if search is not None:
                recall = _measured(store.record.kind, search, self.index.recall)
            store.complete(recall, counts["rows"])
            title, record, facts = store.title, store.record, store.facts()
        model = str(rows.record.settings["model"])
        in_int8 = bool(VectorFacts.read(title, record.settings).in_int8)
        return CollectionUpdate(title, model, record, counts, facts, in_int8)

    def dry_run(self) -> dict[str, Any]:
        """Say what would be written and deleted, and about how long encoding would take; nothing is written.

        Raises:
            InputError: if there is no collection yet, or it cannot be compared with the corpus.
        """
        rows = self.read()
        order = rows.order(self.database.most_id_bytes)
        with self.database.compare(rows.record) as there:
            for change in self._changes(there, rows):
                if rows.vectors.encodes:
                    self.count.add_texts(zip(change.encoded_texts, change.digests.tolist(), strict=True))
            gone = len(_surplus(there, order))
        announced = self.count.total(gone).announced(there.title, rows.vectors)
        deleted = gone if self.options.prune else 0
        return {**self._counts(gone, deleted), **announced}

    def _counts(self, gone: int, deleted: int) -> dict[str, int]:
        """Return what has become of the rows, as JSON."""
        count = self.count
        return {
            **count.total(gone).to_dict(),
            "written": count.changed + count.new,
            "unchanged": count.kept,
            "deleted": deleted,
        }

    def _write(self, store: RowStore, rows: CollectionRows) -> int:
        """Write the rows that are not there or differ, and return how many texts were encoded for that."""
        cut = 0
        with console.counting(f"writing into {self.database.name}", len(rows)) as progress:

            def write(change: _Change, vectors: AnyArray, counts: Counts) -> None:
                nonlocal cut
                if len(change.rows):
                    cut += store.write(change.rows, change.filled(vectors), change.hashes)
                    self.written += len(change.rows)
                progress(change.compared)

            counts = write_blocks(self._changes(store, rows), rows.vectors, write)
        rows.vectors.warn_of_cut(counts)
        if cut:
            console.warn(
                f"{cut} texts are longer than the {self.database.most_text_bytes:,} bytes of the database; their ends "
                "are not stored there"
            )
        if not rows.vectors.encodes:
            return 0
        return counts.rows - counts.duplicates

    def _changes(self, there: RowsThere, rows: CollectionRows) -> Iterator[_Change]:
        """Yield what has changed in each block of rows, and count it."""
        block_rows = SENT_ROWS if rows.vectors.encodes else BLOCK_ROWS
        for block in rows.inputs.blocks(block_rows=block_rows):
            as_stored = fitted_rows(block, there.record)
            given = None
            if rows.given_vectors:
                assert isinstance(rows.vectors, GivenVectors)
                given = rows.vectors.take(block.numbers)
            hashes = content_hashes(as_stored, there.record, given)
            changed = there.lacking(block.ids, hashes)
            is_same = np.ones(len(block), np.bool_)
            is_same[changed] = False
            is_there = is_same.copy()
            is_there[changed] = there.there.has([block.ids[row] for row in changed])
            self.count.add_rows(is_there, is_same)
            known: Mapping[str, AnyArray] = {}
            hashes_of_changed = [hashes[row] for row in changed]
            if rows.vectors.encodes and changed:
                known = there.vectors_of(hashes_of_changed)
            yield _Change.of(as_stored, changed, hashes_of_changed, known)


@dataclass
class _Change(Block):
    """Those rows of a block that get new vectors, and all of its rows that a collection does not have as they are."""

    rows: Block = field(default_factory=Block)
    """The rows that are written."""
    hashes: Sequence[str] = ()
    """Their `record.content_hashes`."""
    known: Mapping[str, AnyArray] = field(default_factory=dict)
    """The vectors that the collection has of some of their texts, see `RowsThere.vectors_of`."""
    compared: int = 0
    """The number of rows of the whole block."""
    row_numbers: Int64Array = field(default_factory=lambda: np.empty(0, np.int64))

    @classmethod
    def of(cls, block: Block, changed: Sequence[int], hashes: Sequence[str], known: Mapping[str, AnyArray]) -> _Change:
        """Return what is written of a block, given the numbers of its rows that have changed, and their hashes."""
        new = []
        for row, row_hash in zip(changed, hashes, strict=True):
            if text_of(row_hash) not in known:
                new.append(row)
        chosen = block.chosen(new)
        return cls(
            ids=chosen.ids,
            texts=chosen.texts,
            shard=block.first_row // SHARD_ROWS,
            places=chosen.places,
            contexts=chosen.contexts,
            rows=block.chosen(changed),
            hashes=hashes,
            known=known,
            compared=len(block),
            row_numbers=block.numbers[new],
        )

    @property
    def numbers(self) -> Int64Array:
        """The numbers of the rows that get new vectors among all rows ``[rows]``."""
        return self.row_numbers

    def filled(self, vectors: AnyArray) -> AnyArray:
        """Return the vectors of the rows that are written ``[rows, dim]``, given those that are new."""
        if not self.known:
            return vectors
        made = iter(vectors)
        filled = []
        for row_hash in self.hashes:
            known = self.known.get(text_of(row_hash))
            filled.append(next(made) if known is None else known)
        return np.stack(filled)


def _surplus(there: RowsThere, order: Places) -> list[str]:
    """Return the ids of the rows of a collection that a corpus does not have, given the numbers of its rows."""
    ids: list[str] = []
    for batch in there.ids():
        ids += compress(batch, order.of_ids(batch) < 0)
    return ids


def _prune(store: RowStore, order: Places, *, prune: bool) -> tuple[int, int]:
    """Delete rows whose id the corpus does not have, or say how many there are.

    Returns:
        How many there were, and how many of them were deleted.
    """
    surplus = store.count() - len(order)
    if surplus <= 0:
        return 0, 0
    if not prune:
        console.warn(f"{store.title} has {surplus:,} rows that are not in this corpus; --prune deletes them")
        return surplus, 0
    surplus_ids = _surplus(store, order)
    store.delete(surplus_ids)
    return len(surplus_ids), len(surplus_ids)


def _measured(kind: str, index: IndexedSearch, target: float) -> dict[str, Any]:
    """Measure an index at rising effort up to the least one that reaches a recall, and return what was found."""
    from sentcli.search.recall import sample, tune

    with console.working(f"measuring {kind}") as step:
        step("exact search")
        reference = sample(index.blocks, index.similarity)
        measured = tune(index, reference, target, step=step)
    measured |= {"of": "random rows", "measured_rows": len(index.blocks)}
    point = measured["chosen"]
    if point["recall"] < target:
        console.warn(f"recall@{measured['k']} is {point['recall']:.3f}, not the {target:g} aimed at")
    return measured
