"""``index --to``: write a corpus into a collection of a database, and measure its index."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli import console
from sentcli.arrays import AnyArray
from sentcli.corpora.collection_rows import CollectionRows, VectorsOf
from sentcli.corpora.opening import SCHEME
from sentcli.encoder.vector_facts import VectorFacts
from sentcli.errors import InputError
from sentcli.io.blocks import Block
from sentcli.search.options import DatabaseOptions, IndexOptions
from sentcli.stores.known_rows import text_of
from sentcli.stores.record import Record, fitted, row_hashes
from sentcli.stores.row_places import Places
from sentcli.stores.store import DATABASES, Database, RowsThere, RowStore

if TYPE_CHECKING:
    from sentcli.search.recall import IndexedSearch

MEASURED_ROWS = 64
"""The rows by which the time of encoding is told before anything is written."""


@dataclass(frozen=True)
class CollectionUpdate:
    """What a collection holds after rows were written."""

    title: str
    model: str
    """The model that made its vectors."""
    record: Record
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
    scheme = SCHEME.match(address)
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
        self.counts = {"written": 0, "encoded": 0, "unchanged": 0, "kept": 0, "changed": 0, "new": 0}
        self.total = 0

    def so_far(self) -> dict[str, int]:
        """Return how many rows are there; nothing if none is."""
        done = self.counts["written"] + self.counts["unchanged"]
        return {"rows_done": done, "rows_total": self.total} if done else {}

    def run(self) -> CollectionUpdate:
        """Do the work.

        Raises:
            InputError: if the corpus or the collection cannot be used, before anything is encoded or written.
        """
        rows = self.read()
        self.total = rows.rows
        order = rows.order(self.database.most_id_bytes)
        opened = self.database.open(rows.record, order, overwrite=self.overwrite, keeps_before=self.keeps_before)
        with opened as store:
            with console.resumable(store.title, how="sends the rows that are not there yet"):
                self._write(store, rows)
            counts = dict(self.counts)
            prune = self.options.prune or store.replaces
            counts["gone"], counts["deleted"] = _prune(store, order, prune=prune)
            store.publish()
            counts["rows"] = store.count()
            recall = None
            search = store.to_measure(changed=bool(counts["written"] or counts["deleted"]))
            if search is not None:
                recall = _measured(store.record.kind, search, self.index.recall)
            store.complete(recall, counts["rows"])
            title, record, facts = store.title, store.record, store.facts()
        model = str(rows.record.settings["model"])
        in_int8 = bool(VectorFacts.read(title, record.settings).in_int8)
        return CollectionUpdate(title, model, record, counts, facts, in_int8)

    def dry_run(self) -> dict[str, Any]:
        """Say how many rows would be written and deleted, and about how long encoding would take; nothing is written.

        Raises:
            InputError: if there is no collection yet, or it cannot be compared with the corpus.
        """
        rows = self.read()
        order = rows.order(self.database.most_id_bytes)
        seconds, measured, characters = 0.0, 0, 0
        with self.database.compare(rows.record) as there:
            for change in self._changes(there, rows):
                new = change.new
                characters += change.characters(new)
                if new and not measured:
                    places = np.linspace(0, len(new) - 1, min(MEASURED_ROWS, len(new)))
                    some = [new[int(place)] for place in places]
                    began = time.perf_counter()
                    change.vectors_of(some)
                    seconds = time.perf_counter() - began
                    measured = change.characters(some)
            surplus = _surplus(there, order)
        estimated = seconds * characters / max(measured, 1)
        deleted = len(surplus) if self.options.prune else 0
        written, encoded, unchanged = self.counts["written"], self.counts["encoded"], self.counts["unchanged"]
        console.note(
            f"{there.title}: {written:,} rows would be written, {encoded:,} of them encoded in about "
            f"{estimated:,.0f} s, {unchanged:,} are there, {len(surplus):,} are not in this corpus; nothing was written"
        )
        return {**self.counts, "gone": len(surplus), "deleted": deleted, "seconds_estimated": estimated}

    def _write(self, store: RowStore, rows: CollectionRows) -> None:
        """Write the rows that are not there or differ, and count them."""
        cut = 0
        with console.counting(f"writing into {self.database.name}", rows.rows) as progress:
            for change in self._changes(store, rows):
                if change.rows:
                    cut += store.write(change.block, change.vectors(), change.hashes)
                progress(change.of)
        if cut:
            console.warn(
                f"{cut} texts are longer than the {self.database.most_text_bytes:,} bytes of the database; their ends "
                "are not stored there"
            )

    def _changes(self, there: RowsThere, rows: CollectionRows) -> Iterator[_Change]:
        """Yield what has changed in each block of rows, and count it."""
        for block, vectors_of in rows.blocks():
            block = fitted(block, there.record)
            given = vectors_of(range(len(block))) if rows.given_vectors else None
            hashes = row_hashes(block, there.record, given)
            changed = there.lacking(block.ids, hashes)
            chosen = [hashes[row] for row in changed]
            known = there.vectors_of(chosen) if rows.encodes and changed else {}
            change = _Change(_chosen(block, changed), chosen, changed, known, vectors_of, len(block))
            self.counts["written"] += len(changed)
            self.counts["encoded"] += len(change.new) if rows.encodes else 0
            self._count_changes(block, changed, there)
            yield change

    def _count_changes(self, block: Block, changed: Sequence[int], there: RowsThere) -> None:
        """Count rows by what has become of them, given the numbers of those that are not there as they are."""
        kept = len(block) - len(changed)
        known = int(there.there.has([block.ids[row] for row in changed]).sum())
        self.counts["unchanged"] += kept
        self.counts["kept"] += kept
        self.counts["changed"] += known
        self.counts["new"] += len(changed) - known


@dataclass(frozen=True)
class _Change:
    """Those rows of a block that a collection does not have as they are."""

    block: Block
    hashes: Sequence[str]
    rows: Sequence[int]
    """Their numbers in the whole block."""
    known: Mapping[str, AnyArray]
    """The vectors that the collection has of some of their texts, see `RowsThere.vectors_of`."""
    vectors_of: VectorsOf
    of: int
    """The number of rows of the whole block."""

    @property
    def new(self) -> list[int]:
        """The numbers of those rows whose texts the collection does not have."""
        return [
            row for row, row_hash in zip(self.rows, self.hashes, strict=True) if text_of(row_hash) not in self.known
        ]

    def characters(self, rows: Sequence[int]) -> int:
        """Return the number of characters of some of these rows."""
        texts = dict(zip(self.rows, self.block.texts, strict=True))
        return sum(len(texts[row]) for row in rows)

    def vectors(self) -> AnyArray:
        """Return the vectors of the rows ``[rows, dim]``."""
        new = self.new
        if not self.known:
            return self.vectors_of(new)
        made = iter(self.vectors_of(new)) if new else iter(())
        vectors = []
        for row_hash in self.hashes:
            known = self.known.get(text_of(row_hash))
            vectors.append(next(made) if known is None else known)
        return np.stack(vectors)


def _chosen(block: Block, rows: Sequence[int]) -> Block:
    """Return some rows of a block."""
    columns = {}
    for name, values in block.columns.items():
        columns[name] = [values[row] for row in rows]
    return Block([block.ids[row] for row in rows], [block.texts[row] for row in rows], columns)


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
