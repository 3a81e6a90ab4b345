"""``index --to``: write a corpus into a collection of Milvus, and measure its index."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sentcli import console
from sentcli.bounds import one_of
from sentcli.encoder.vector_facts import VectorFacts
from sentcli.errors import InputError
from sentcli.io.readers import Block
from sentcli.model.options import LoadOptions
from sentcli.verbs.options import recall_table
from sentcli.verbs.result import Result

if TYPE_CHECKING:
    from sentcli.search.milvus import MilvusCollection
    from sentcli.search.milvus_rows import Record
    from sentcli.verbs.options import DatabaseOptions, IndexOptions, TextOptions

VectorsOf = Callable[[Sequence[int]], npt.NDArray[np.generic]]
"""Returns the vectors ``[n, dim]`` of some rows of a block."""
BLOCK_ROWS = 8192
"""Rows that are read and encoded together."""


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
    what: IndexOptions
    model: str | None
    text: TextOptions
    doc_prompt: str | None
    load: LoadOptions

    def record(self, facts: VectorFacts, dimension: int, schema: dict[str, Any]) -> Record:
        """Return what the collection will say about itself."""
        from sentcli.io.column_types import name_of
        from sentcli.search.bm25 import LANGUAGE
        from sentcli.search.milvus_rows import Record, fields_of

        kinds = {name: name_of(kind) for name, kind in schema.items() if name not in ("id", "text")}
        return Record(
            settings=facts.recorded(),
            dimension=dimension,
            similarity=self.what.similarity,
            columns=fields_of(kinds),
            language=self.what.language or LANGUAGE,
            kind=self.what.type,
        )


def index_collection(given: CollectionInput, database: DatabaseOptions, *, overwrite: bool) -> Result:
    """Write the rows that are new or have changed into a collection, and measure its recall.

    Raises:
        InputError: if the corpus or the collection cannot be used, before anything is encoded or written.
    """
    from sentcli.search import milvus
    from sentcli.search.exact import require_faiss
    from sentcli.search.milvus_client import connect, is_file

    name, what = _collection_name(database), given.what
    missing = milvus.NOT_IN_A_FILE if is_file(str(database.to)) else []
    one_of("--type of a collection", what.type, [kind for kind in milvus.KINDS if kind not in missing])
    require_faiss()  # for the exact search that an index is measured against
    outcome = Result("index")
    outcome.ran_on("cpu", "fp32")
    address = str(database.to)
    written = _stored(given) or _texts(given)
    hashes = np.sort(np.fromiter(map(hash, _checked(written.ids())), np.int64, written.rows))
    if repeated := len(hashes) - len(np.unique(hashes)):
        raise InputError(f"{repeated} rows have an id that another row has, too; a collection keeps one row an id")
    with connect(address, to_write=True) as client:
        replaces = overwrite and milvus.MilvusCollection.is_there(client, address, name)
        collection = _begun(client, address, name, written, replaces=replaces)
        collection = collection.with_record(rows=None)  # until all rows are written it answers nothing
        results = _write(collection, written)
        results["deleted"] = _prune(collection, hashes, prune=database.prune or replaces)
        collection.flush()
        results["rows"] = collection.count()
        if collection.record.recall is None or results["written"] or results["deleted"]:
            collection = _tuned(collection, what.recall)
        collection = collection.with_record(rows=results["rows"])
    if replaces:
        with connect(address) as client:  # opened anew, since Lite goes on with an index that it could not write
            collection = milvus.MilvusCollection.open(client, address, collection.name).succeed()
    outcome.model = str(written.record.settings.get("model") or given.model)
    record = collection.record
    outcome.protocol = {key: getattr(record, key) for key in ("kind", "similarity", "efforts", "language", "dimension")}
    outcome.protocol |= record.settings
    console.note(
        f"{collection.title}: {results['written']:,} rows written, {results['unchanged']:,} were there, "
        f"{results['deleted']:,} deleted; it has {results['rows']:,}"
    )
    facts = {"to": address, "collection": name, "kind": record.kind, "recall": record.recall, **results}
    return outcome.finish(facts, [recall_table(record.kind, record.recall)] if record.recall is not None else [])


def _begun(client: Any, address: str, name: str, written: CollectionRows, *, replaces: bool) -> MilvusCollection:
    """Return the collection that rows are written into: the one of that name, or what will replace it.

    Raises:
        InputError: if it holds rows of another kind.
    """
    from sentcli.search.milvus import NEXT, MilvusCollection

    if replaces:
        found, name = MilvusCollection.begun(client, address, name, written.record), name + NEXT
    else:
        found = MilvusCollection.find(client, address, name)
    if found is None:
        return MilvusCollection.create(client, address, name, written.record, written.rows)
    if changed := found.record.differences(written.record):
        raise InputError(f"{found.title} holds other rows: {'; '.join(changed)}. --overwrite makes it anew")
    return found


def _checked(ids: Iterator[str]) -> Iterator[str]:
    """Yield ids, and refuse one that a collection cannot have, before anything is written."""
    from sentcli.search.milvus_rows import LONGEST

    for number, key in enumerate(ids, 1):
        if len(key.encode("utf-8", "surrogatepass")) > LONGEST:
            raise InputError(f"row {number}: an id of a collection has at most {LONGEST:,} bytes: {key[:40]!r}...")
        yield key


def _collection_name(database: DatabaseOptions) -> str:
    from sentcli.search.milvus_client import SCHEME

    if not str(database.to).startswith(SCHEME):
        raise InputError(f"--to {database.to}: give milvus: and a file, as milvus:reviews.db, or a server")
    if database.collection is None:
        raise InputError("--to needs --collection NAME")
    if not re.fullmatch(r"[A-Za-z_]\w{0,239}", database.collection, re.ASCII):
        raise InputError(
            f"--collection {database.collection}: at most 240 letters, digits and underscores, no digit first"
        )
    return database.collection


def _stored(given: CollectionInput) -> CollectionRows | None:
    """Return the rows of a directory or file that `encode` wrote; None for files of texts."""
    from sentcli.encoder.announce import load_encoder
    from sentcli.io.readers import ReadOptions
    from sentcli.search.vector_file import open_stored

    read_options = ReadOptions(given.text.text_field, given.text.id_field)
    stored = open_stored(given.names[0], None, read_options) if len(given.names) == 1 else None
    if stored is None:
        return None
    origin = stored.origin
    if origin.output_dtype in ("int8", "binary"):
        raise InputError(f"{given.names[0]} holds vectors in {origin.output_dtype}: give the full ones")
    origin.check_similarity(given.what.similarity)
    encoder = load_encoder(given.model, given.load) if given.model is not None else None
    if encoder is not None:
        prompt = (origin.prompt or "") if given.doc_prompt is None else given.doc_prompt
        origin.check_encoder(encoder, prompt, stored.blocks.dimension)
    if not origin.known and encoder is None:
        raise InputError(f"{origin.name} does not say which model made its vectors: give that model with -m")
    facts = origin if origin.known or encoder is None else VectorFacts.of(encoder, origin.prompt or "")

    def vectors_of(first: int, chosen: Sequence[int]) -> npt.NDArray[np.generic]:
        return stored.blocks.take(np.array(chosen, np.int64) + first)

    def blocks() -> Iterator[tuple[Block, VectorsOf]]:
        first = 0
        for table in stored.rows.tables(list(stored.rows.schema)):
            for start in range(0, len(table), BLOCK_ROWS):
                columns = table.slice(start, BLOCK_ROWS).to_pydict()
                block = Block(columns.pop("id"), columns.pop("text"), columns)
                yield block, partial(vectors_of, first)
                first += len(block)

    def ids() -> Iterator[str]:
        return (key for table in stored.rows.tables(["id"]) for key in table["id"].to_pylist())

    record = given.record(facts, stored.blocks.dimension, stored.rows.schema)
    return CollectionRows(len(stored.rows), record, ids, blocks)


def _texts(given: CollectionInput) -> CollectionRows:
    """Return the rows of files of texts, which are encoded as they are needed."""
    from sentcli import bulk
    from sentcli.encoder.announce import load_encoder, warn_truncated
    from sentcli.io.readers import ReadOptions
    from sentcli.io.readers import blocks as read_blocks

    if given.model is None:
        raise InputError("files of text are encoded first: give the model with -m")
    files = bulk.read_inputs(given.names, ReadOptions(given.text.text_field, given.text.id_field), output="-")
    encoder = load_encoder(given.model, given.load)
    prompt = encoder.role_prompt("document") if given.doc_prompt is None else given.doc_prompt
    columns, casts = list(files.survey.column_types), files.survey.casts

    def read() -> Iterator[Block]:
        return read_blocks(files.sources, files.options, block_rows=BLOCK_ROWS, columns=columns, casts=casts)

    def blocks() -> Iterator[tuple[Block, VectorsOf]]:
        cut = lost = 0
        for block in read():

            def encode(chosen: Sequence[int], block: Block = block) -> npt.NDArray[np.generic]:
                nonlocal cut, lost
                vectors, stats = encoder.encode_counted([block.texts[i] for i in chosen], prompt=prompt)
                cut, lost = cut + stats.truncated, lost + stats.tokens_lost
                return vectors

            yield block, encode
        warn_truncated(encoder.spec.max_length, cut, lost, what="rows")

    record = given.record(VectorFacts.of(encoder, prompt), encoder.dimension, dict(files.survey.column_types))
    return CollectionRows(files.survey.rows, record, lambda: (key for block in read() for key in block.ids), blocks)


def _write(collection: MilvusCollection, written: CollectionRows) -> dict[str, int]:
    """Write the rows that are not there or differ, and count them."""
    from sentcli.search.milvus_rows import LONGEST, content_hash

    count = cut = 0
    with console.counting(f"writing into {collection.name}", written.rows) as progress:
        for block, vectors_of in written.blocks():
            contents = zip(block.texts, *block.columns.values(), strict=True)
            hashes = [content_hash(text, columns) for text, *columns in contents]
            there = collection.hashes(block.ids)
            changed = [i for i, key in enumerate(block.ids) if there.get(key) != hashes[i]]
            if changed:
                columns = {name: [values[i] for i in changed] for name, values in block.columns.items()}
                part = Block([block.ids[i] for i in changed], [block.texts[i] for i in changed], columns)
                cut += collection.upsert(part, vectors_of(changed), [hashes[i] for i in changed])
            count += len(changed)
            progress(len(block))
    if cut:
        console.warn(f"{cut} texts are longer than the {LONGEST:,} bytes of Milvus; their ends are not stored there")
    return {"written": count, "unchanged": written.rows - count}


def _prune(collection: MilvusCollection, hashes: npt.NDArray[np.int64], *, prune: bool) -> int:
    """Delete rows whose id the corpus does not have, or say how many there are."""
    surplus = collection.count() - len(hashes)
    if surplus <= 0:
        return 0
    if not prune:
        console.warn(f"{collection.title} has {surplus:,} rows that are not in this corpus; --prune deletes them")
        return 0
    there = [row["id"] for batch in collection.rows([]) for row in batch]
    kept = np.isin(np.fromiter(map(hash, there), np.int64, len(there)), hashes)
    gone = [key for key, is_kept in zip(there, kept, strict=True) if not is_kept]
    collection.delete(gone)
    return len(gone)


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
        measured = {
            **tune(index, reference, target, step=step),
            "of": "random rows",
            "measured_rows": len(index.blocks),
        }
    chosen = measured["chosen"]
    if chosen["recall"] < target:
        console.warn(f"recall@{measured['k']} is {chosen['recall']:.3f}, not the {target:g} aimed at")
    return collection.with_record(recall=measured, efforts={measured["parameter"]: chosen["effort"]})
