"""``index --to``: write a corpus into a collection of Milvus, and measure its index."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sentcli import console
from sentcli.bounds import one_of
from sentcli.encoder.vector_facts import VectorFacts
from sentcli.errors import InputError
from sentcli.io.blocks import BLOCK_ROWS, Block
from sentcli.model.options import LoadOptions

if TYPE_CHECKING:
    from sentcli.bulk.options import PassageOptions, TextOptions
    from sentcli.search.milvus import MilvusCollection
    from sentcli.search.milvus_rows import Record
    from sentcli.search.options import DatabaseOptions, IndexOptions
    from sentcli.search.stored_vectors import StoredVectors

VectorsOf = Callable[[Sequence[int]], npt.NDArray[np.generic]]
"""Returns the vectors ``[n, dim]`` of some rows of a block."""


@dataclass(frozen=True)
class CollectionRows:
    """The rows of a collection, and their vectors when they are needed."""

    rows: int
    record: Record
    ids: Callable[[], Iterator[str]]
    """Yields the id of each row."""
    blocks: Callable[[], Iterator[tuple[Block, VectorsOf]]]
    """Yields rows, each block with a function that returns the vectors of some of them."""


@dataclass(frozen=True)
class CollectionInput:
    """The corpus of a collection, as the command line says it."""

    names: Sequence[str]
    """A directory or file that `encode` wrote, or files of text."""
    index: IndexOptions
    model: str | None
    text: TextOptions
    passages: PassageOptions
    doc_prompt: str | None
    load: LoadOptions

    def record(self, facts: VectorFacts, dimension: int, schema: dict[str, Any]) -> Record:
        """Return what the collection will say about itself."""
        from sentcli.io.column_types import name_of
        from sentcli.search.bm25 import LANGUAGE
        from sentcli.search.milvus_rows import Record, fields_of

        return Record(
            settings=facts.recorded(),
            dimension=dimension,
            similarity=self.index.similarity or facts.compared_by,
            columns=fields_of({name: name_of(kind) for name, kind in schema.items() if name not in ("id", "text")}),
            language=self.index.language or LANGUAGE,
            kind=self.index.type,
        )


SENT_ROWS = 1024
"""The rows that are encoded and then sent, which an interruption may lose."""


@dataclass(frozen=True)
class CollectionUpdate:
    """What a collection holds after rows were written."""

    title: str
    model: str
    """The model that made its vectors."""
    record: Record
    counts: Mapping[str, int]
    """How many rows were ``written``, ``unchanged`` and ``deleted``, and how many ``rows`` there are."""
    in_int8: bool
    """Whether the model computed in int8, as far as it is known."""


class CollectionUpdating:
    """Writes the rows that are new or have changed into a collection, and measures its recall.

    Args:
        corpus: the rows.
        database: the address and the name of the collection.
        overwrite: make the collection anew; the old one stays until the new one is whole.

    Raises:
        InputError: if the address, the name or the kind of the index is none of Milvus's.
    """

    def __init__(self, corpus: CollectionInput, database: DatabaseOptions, *, overwrite: bool) -> None:
        self.corpus, self.database, self.overwrite = corpus, database, overwrite
        self.address, self.name = str(database.to), str(database.collection)
        self.counts = {"written": 0, "unchanged": 0}
        self.total = 0
        _check_names(self.address, self.name, corpus.index.type)

    def so_far(self) -> dict[str, int]:
        """Return how many rows are there; nothing if none is."""
        done = self.counts["written"] + self.counts["unchanged"]
        return {"rows_done": done, "rows_total": self.total} if done else {}

    def run(self) -> CollectionUpdate:
        """Do the work.

        Raises:
            InputError: if the corpus or the collection cannot be used, before anything is encoded or written.
        """
        from sentcli.search.milvus import MilvusCollection
        from sentcli.search.milvus_client import connect

        address, name = self.address, self.name
        rows = _stored(self.corpus) or _texts(self.corpus)
        self.total = rows.rows
        hashes = _id_hashes(rows)
        with connect(address, to_write=True) as client:
            replaces = self.overwrite and MilvusCollection.is_there(client, address, name)
            collection = _begun(client, address, name, rows, replaces=replaces)
            collection = collection.with_record(rows=None)  # until all rows are written it answers nothing
            with console.resumable(f"{address} {name}", how="sends the rows that are not there yet"):
                _write(collection, rows, self.counts)
            counts = dict(self.counts)
            counts["deleted"] = _prune(collection, hashes, prune=self.database.prune or replaces)
            collection.flush()
            counts["rows"] = collection.count()
            if collection.record.recall is None or counts["written"] or counts["deleted"]:
                collection = _tuned(collection, self.corpus.index.recall)
            collection = collection.with_record(rows=counts["rows"])
        if replaces:
            with connect(address) as client:  # opened anew, since Lite goes on with an index that it could not write
                collection = MilvusCollection.open(client, address, collection.name).promote()
        record = collection.record
        model = str(rows.record.settings.get("model") or self.corpus.model)
        in_int8 = bool(VectorFacts.read(collection.title, record.settings).in_int8)
        return CollectionUpdate(collection.title, model, record, counts, in_int8)


def _check_names(address: str, name: str, kind: str) -> None:
    """Refuse an address, a collection or a kind of index that Milvus does not have."""
    from sentcli.search import milvus_schema
    from sentcli.search.milvus_client import SCHEME, is_file

    if not address.startswith(SCHEME):
        raise InputError(f"--to {address}: give milvus: and a file, as milvus:reviews.db, or a server")
    if not re.fullmatch(r"[A-Za-z_]\w{0,239}", name, re.ASCII):
        raise InputError(f"--collection {name}: at most 240 letters, digits and underscores, no digit first")
    missing = milvus_schema.NOT_IN_A_FILE if is_file(address) else []
    one_of("--type of a collection", kind, [known for known in milvus_schema.INDEX_TYPES if known not in missing])


def _id_hashes(rows: CollectionRows) -> npt.NDArray[np.int64]:
    """Return the sorted hashes of all ids, and refuse ids that a collection cannot have, before anything is written."""
    from sentcli.search.milvus_rows import MOST_TEXT_BYTES

    hashes = np.empty(rows.rows, np.int64)
    for number, key in enumerate(rows.ids()):
        if len(key.encode("utf-8", "surrogatepass")) > MOST_TEXT_BYTES:
            raise InputError(
                f"row {number + 1}: an id of a collection has at most {MOST_TEXT_BYTES:,} bytes: {key[:40]!r}..."
            )
        hashes[number] = hash(key)
    if repeated := len(hashes) - len(np.unique(hashes)):
        raise InputError(f"{repeated} rows have an id that another row has, too; a collection keeps one row an id")
    return np.sort(hashes)


def _begun(client: Any, address: str, name: str, rows: CollectionRows, *, replaces: bool) -> MilvusCollection:
    """Return the collection that rows are written into: the one of that name, or what will replace it.

    Raises:
        InputError: if it holds rows of another kind.
    """
    from sentcli.search.milvus import NEXT, MilvusCollection
    from sentcli.search.milvus_client import require_room_in

    if replaces:
        collection, name = MilvusCollection.begun(client, address, name, rows.record), name + NEXT
    else:
        collection = MilvusCollection.find(client, address, name)
    if collection is None:
        require_room_in(address, 4 * rows.rows * rows.record.dimension)
        return MilvusCollection.create(client, address, name, rows.record, rows.rows)
    if changed := collection.record.differences(rows.record):
        raise InputError(f"{collection.title} holds other rows: {'; '.join(changed)}. --overwrite makes it anew")
    return collection


def _stored(corpus: CollectionInput) -> CollectionRows | None:
    """Return the rows of a directory or file that `encode` wrote; None for files of texts."""
    from sentcli.io.readers import ReadOptions
    from sentcli.search.vector_file import open_stored

    read_options = ReadOptions(corpus.text.text_field, corpus.text.id_field)
    field = corpus.text.vector_field
    if field is not None and len(corpus.names) != 1:
        raise InputError("--vector-field goes with a single table")
    stored = open_stored(corpus.names[0], None, read_options, field=field) if len(corpus.names) == 1 else None
    if stored is None:
        return None
    origin = stored.origin
    if origin.output_dtype in ("int8", "binary"):
        raise InputError(f"{corpus.names[0]} holds vectors in {origin.output_dtype}: give the full ones")
    facts = _facts_of(stored, corpus)
    origin.check_similarity(corpus.index.similarity or facts.compared_by)

    def vectors_of(first: int, rows: Sequence[int]) -> npt.NDArray[np.generic]:
        return stored.blocks.take(np.array(rows, np.int64) + first)

    def blocks() -> Iterator[tuple[Block, VectorsOf]]:
        first = 0
        for table in stored.rows.tables(list(stored.rows.schema)):
            for start in range(0, len(table), BLOCK_ROWS):
                columns = table.slice(start, BLOCK_ROWS).to_pydict()
                block = Block(columns.pop("id"), columns.pop("text"), columns)
                yield block, partial(vectors_of, first)
                first += len(block)

    def ids() -> Iterator[str]:
        for table in stored.rows.tables(["id"]):
            yield from table["id"].to_pylist()

    record = corpus.record(facts, stored.blocks.dimension, stored.rows.schema)
    return CollectionRows(len(stored.rows), record, ids, blocks)


def _facts_of(stored: StoredVectors, corpus: CollectionInput) -> VectorFacts:
    """Return how stored vectors were made, after comparing them with the model that the user names.

    Raises:
        InputError: if another model made them, or none is known.
    """
    from sentcli.encoder.announce import load_encoder
    from sentcli.search.vector_file import check_made_by

    origin = stored.origin
    if corpus.model is None:
        if not origin.known:
            raise InputError(f"{origin.name} does not say which model made its vectors: give that model with -m")
        return origin
    encoder = load_encoder(corpus.model, corpus.load)
    own = (origin.prompt or "") if origin.known else encoder.role_prompt("document")
    prompt = own if corpus.doc_prompt is None else corpus.doc_prompt
    origin.check_encoder(encoder, prompt, stored.blocks.dimension)
    if origin.known:
        return origin
    check_made_by(stored, encoder, prompt)
    return VectorFacts.of(encoder, prompt)


def _texts(corpus: CollectionInput) -> CollectionRows:
    """Return the rows of files of texts, which are encoded as they are needed."""
    from sentcli import bulk
    from sentcli.encoder.announce import load_encoder, warn_truncated
    from sentcli.io.blocks import blocks as read_blocks
    from sentcli.io.readers import ReadOptions

    if corpus.model is None:
        raise InputError("files of text are encoded first: give the model with -m")
    cut = bulk.passage_rows(
        corpus.model, corpus.load, corpus.passages, lambda spec: spec.prompt_of_documents(corpus.doc_prompt)
    )
    read_options = ReadOptions(corpus.text.text_field, corpus.text.id_field, cut=cut)
    files = bulk.read_inputs(corpus.names, read_options, output="-")
    encoder = load_encoder(corpus.model, corpus.load)
    prompt = encoder.role_prompt("document") if corpus.doc_prompt is None else corpus.doc_prompt
    columns, casts = list(files.survey.column_types), files.survey.casts

    def read() -> Iterator[Block]:
        return read_blocks(files.sources, files.options, block_rows=SENT_ROWS, columns=columns, casts=casts)

    def ids() -> Iterator[str]:
        for block in read():
            yield from block.ids

    def blocks() -> Iterator[tuple[Block, VectorsOf]]:
        cut = lost = 0
        for block in read():

            def encode(rows: Sequence[int], block: Block = block) -> npt.NDArray[np.generic]:
                nonlocal cut, lost
                texts = block.encoded_texts
                vectors, stats = encoder.encode_counted([texts[i] for i in rows], prompt=prompt)
                cut, lost = cut + stats.truncated, lost + stats.tokens_lost
                return vectors

            yield block, encode
        warn_truncated(encoder.spec.max_length, cut, lost, what="rows")

    facts = VectorFacts.of(encoder, prompt, passages=bulk.facts_of(cut))
    record = corpus.record(facts, encoder.dimension, dict(files.survey.column_types))
    return CollectionRows(files.survey.rows, record, ids, blocks)


def _write(collection: MilvusCollection, rows: CollectionRows, counts: dict[str, int]) -> None:
    """Write the rows that are not there or differ, and count them."""
    from sentcli.search.milvus_rows import MOST_TEXT_BYTES, content_hash

    cut = 0
    with console.counting(f"writing into {collection.name}", rows.rows) as progress:
        for block, vectors_of in rows.blocks():
            contents = zip(block.texts, *block.columns.values(), strict=True)
            hashes = [content_hash(text, columns) for text, *columns in contents]
            stored = collection.hashes(block.ids)
            changed = [i for i, key in enumerate(block.ids) if stored.get(key) != hashes[i]]
            if changed:
                part = _chosen(block, changed)
                cut += collection.upsert(part, vectors_of(changed), [hashes[i] for i in changed])
            counts["written"] += len(changed)
            counts["unchanged"] += len(block) - len(changed)
            progress(len(block))
    if cut:
        console.warn(
            f"{cut} texts are longer than the {MOST_TEXT_BYTES:,} bytes of Milvus; their ends are not stored there"
        )


def _chosen(block: Block, rows: Sequence[int]) -> Block:
    """Return some rows of a block."""
    columns = {}
    for name, values in block.columns.items():
        columns[name] = [values[row] for row in rows]
    return Block([block.ids[row] for row in rows], [block.texts[row] for row in rows], columns)


def _prune(collection: MilvusCollection, hashes: npt.NDArray[np.int64], *, prune: bool) -> int:
    """Delete rows whose id the corpus does not have, or say how many there are."""
    surplus = collection.count() - len(hashes)
    if surplus <= 0:
        return 0
    if not prune:
        console.warn(f"{collection.title} has {surplus:,} rows that are not in this corpus; --prune deletes them")
        return 0
    ids: list[str] = []
    for batch in collection.rows([]):
        ids += [row["id"] for row in batch]
    kept = np.isin(np.fromiter(map(hash, ids), np.int64, len(ids)), hashes)
    surplus_ids = [key for key, is_kept in zip(ids, kept, strict=True) if not is_kept]
    collection.delete(surplus_ids)
    return len(surplus_ids)


def _tuned(collection: MilvusCollection, target: float) -> MilvusCollection:
    """Measure the index at rising effort, and keep the least one that reaches a recall."""
    from sentcli.search.milvus_corpus import CollectionSearch, CollectionVectors
    from sentcli.search.recall import sample, tune

    if collection.record.kind == "flat":
        return collection
    with console.working(f"measuring {collection.record.kind}") as step:
        step("exact search")
        index = CollectionSearch(collection, CollectionVectors(collection))
        reference = sample(index.blocks, index.similarity)
        measured = tune(index, reference, target, step=step)
    measured |= {"of": "random rows", "measured_rows": len(index.blocks)}
    point = measured["chosen"]
    if point["recall"] < target:
        console.warn(f"recall@{measured['k']} is {point['recall']:.3f}, not the {target:g} aimed at")
    return collection.with_record(recall=measured, efforts={measured["parameter"]: point["effort"]})
