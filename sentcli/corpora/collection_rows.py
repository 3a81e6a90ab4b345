"""The rows of a collection, from what `encode` wrote or from files of texts, and their vectors as they are needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli.arrays import AnyArray
from sentcli.encoder.vector_facts import VectorFacts
from sentcli.errors import InputError
from sentcli.io.blocks import BLOCK_ROWS, Block
from sentcli.model.options import LoadOptions
from sentcli.model.passages import COLUMNS, stored_contexts

if TYPE_CHECKING:
    from sentcli.bulk.files import Inputs
    from sentcli.bulk.options import PassageOptions, TextOptions
    from sentcli.compression import Compression
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.search.options import IndexOptions
    from sentcli.search.stored_vectors import StoredVectors
    from sentcli.stores.record import Record
    from sentcli.stores.row_places import Places

SENT_ROWS = 1024
"""The rows that are encoded and then sent, which an interruption may lose."""

VectorsOf = Callable[[Sequence[int]], AnyArray]
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

    encodes: bool = True
    """Whether the vectors are made when they are needed."""
    given_vectors: bool = False
    """Whether the vectors are of a table that does not say how they were made: another vector is another row."""

    def order(self, most_bytes: int | None) -> Places:
        """Return the numbers of the rows.

        Args:
            most_bytes: of an id in the database; None if ids may be of any length.

        Raises:
            InputError: for ids that a collection cannot have, before anything is written.
        """
        from sentcli.stores.row_places import Places

        hashes = np.empty(self.rows, np.int64)
        for number, key in enumerate(self.ids()):
            if most_bytes is not None and len(key.encode("utf-8", "surrogatepass")) > most_bytes:
                raise InputError(
                    f"row {number + 1}: an id of a collection has at most {most_bytes:,} bytes: {key[:40]!r}..."
                )
            hashes[number] = hash(key)
        order = Places.paired(hashes, np.arange(self.rows))
        if repeated := order.repeated:
            raise InputError(f"{repeated} rows have an id that another row has, too; a collection keeps one row an id")
        return order


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

    def record(
        self, facts: VectorFacts, dimension: int, schema: dict[str, Any], cells: Iterable[Mapping[str, Sequence[Any]]]
    ) -> Record:
        """Return what the collection will say about itself.

        Args:
            facts: how its vectors are made.
            dimension: of the vectors.
            schema: the Arrow types of the columns.
            cells: yields the columns, some rows at a time.
        """
        from sentcli.io.column_types import name_of
        from sentcli.search.bm25 import LANGUAGE
        from sentcli.stores.record import NULL, Record, fields_of

        kinds = {name: name_of(kind) for name, kind in schema.items() if name not in ("id", "text")}
        given = [name for name in kinds if name not in COLUMNS]  # those of passages have types of their own
        kinds |= dict.fromkeys(_without_values(given, cells), NULL)
        return Record(
            settings=facts.recorded(),
            dimension=dimension,
            similarity=self.index.similarity or facts.compared_by,
            columns=fields_of(kinds),
            language=self.index.language or LANGUAGE,
            kind=self.index.type,
        )


def _without_values(names: Iterable[str], cells: Iterable[Mapping[str, Sequence[Any]]]) -> list[str]:
    """Return the columns in which no row has a value; rows are read until each of the others has had one."""
    empty = list(names)
    for columns in cells:
        if not empty:
            break
        empty = [name for name in empty if columns[name].count(None) == len(columns[name])]
    return empty


def read_rows(corpus: CollectionInput) -> CollectionRows:
    """Return the rows of a directory or file that `encode` wrote, or those of files of texts.

    Raises:
        InputError: if they cannot be read, or no model is known for them.
    """
    return _stored(corpus) or _texts(corpus)


def _stored(corpus: CollectionInput) -> CollectionRows | None:
    """Return the rows of a directory or file that `encode` wrote; None for files of texts."""
    from sentcli.search.vector_file import open_stored

    text = corpus.text
    field = text.vector_field
    if field is not None and len(corpus.names) != 1:
        raise InputError("--vector-field goes with a single table")
    stored = open_stored(corpus.names[0], None, text.reading(), field=field) if len(corpus.names) == 1 else None
    if stored is None:
        return None
    origin = stored.origin
    _check_types(text, stored)
    if origin.output_dtype in ("int8", "binary"):
        raise InputError(f"{corpus.names[0]} holds vectors in {origin.output_dtype}: give the full ones")
    facts = _facts_of(stored, corpus)
    origin.check_similarity(corpus.index.similarity or facts.compared_by)

    def vectors_of(first: int, rows: Sequence[int]) -> AnyArray:
        return stored.blocks.take(np.array(rows, np.int64) + first)

    def blocks() -> Iterator[tuple[Block, VectorsOf]]:
        first = 0
        for table in stored.rows.tables(list(stored.rows.schema)):
            for start in range(0, len(table), BLOCK_ROWS):
                columns = table.slice(start, BLOCK_ROWS).to_pydict()
                contexts = stored_contexts(origin.context, columns)
                block = Block(columns.pop("id"), columns.pop("text"), columns, contexts=contexts)
                yield block, partial(vectors_of, first)
                first += len(block)

    def ids() -> Iterator[str]:
        for table in stored.rows.tables(["id"]):
            yield from table["id"].to_pylist()

    cells = (block.columns for block, _ in blocks())
    record = corpus.record(facts, stored.blocks.dimension, stored.rows.schema, cells)
    return CollectionRows(len(stored.rows), record, ids, blocks, encodes=False, given_vectors=not origin.known)


def _check_types(text: TextOptions, stored: StoredVectors) -> None:
    """Refuse types of columns that have theirs, or are not there."""
    from sentcli.search.condition_reader import check_column

    origin = stored.origin
    if origin.known and (text.types or text.null):
        raise InputError(f"{origin.name} was written by encode, and its columns have their types: no --types or --null")
    for name in text.column_types:
        check_column(name, stored.rows.schema, origin.name, "--types")


def _facts_of(stored: StoredVectors, corpus: CollectionInput) -> VectorFacts:
    """Return how stored vectors were made, after comparing them with the model that the user names.

    Raises:
        InputError: if another model made them, or none is known.
    """
    from sentcli.encoder import load_encoder

    origin = stored.origin
    if corpus.model is None:
        if not origin.known:
            raise InputError(f"{origin.name} does not say which model made its vectors: give that model with -m")
        return origin
    encoder = load_encoder(corpus.model, corpus.load)
    prompt = stored.document_prompt(encoder, corpus.doc_prompt)
    stored.check_made_by(encoder, prompt)
    if origin.known:
        return origin
    return VectorFacts.of(encoder, prompt)


def _texts(corpus: CollectionInput) -> CollectionRows:
    """Return the rows of files of texts, which are encoded as they are needed."""
    from sentcli import bulk
    from sentcli.encoder import load_encoder

    if corpus.model is None:
        raise InputError("files of text are encoded first: give the model with -m")
    cut = bulk.passage_rows(
        corpus.model, corpus.load, corpus.passages, lambda spec: spec.prompt_of_documents(corpus.doc_prompt)
    )
    files = bulk.read_inputs(corpus.names, corpus.text.reading(cut=cut), output="-", delimiter=corpus.text.delimiter)
    bulk.say_types(files.survey, corpus.text.column_types)
    encoder = load_encoder(corpus.model, corpus.load)
    prompt = encoder.role_prompt("document") if corpus.doc_prompt is None else corpus.doc_prompt
    facts = VectorFacts.of(encoder, prompt, passages=bulk.facts_of(cut))
    cells = (block.columns for block in files.blocks())
    record = corpus.record(facts, encoder.dimension, dict(files.survey.column_types), cells)
    return encoded_rows(files, encoder, prompt, record)


def encoded_rows(
    inputs: Inputs, encoder: SentenceEncoder, prompt: str, record: Record, compression: Compression | None = None
) -> CollectionRows:
    """Return the rows of an input, which are encoded as they are needed.

    Args:
        inputs: the rows.
        encoder: the model.
        prompt: the text in front of each.
        record: what the collection will say about itself.
        compression: how vectors are made smaller; None leaves them as they are.
    """
    from sentcli.encoder import warn_truncated

    def ids() -> Iterator[str]:
        for block in inputs.blocks(columns=[], block_rows=SENT_ROWS):
            yield from block.ids

    def blocks() -> Iterator[tuple[Block, VectorsOf]]:
        truncated = lost = 0
        for block in inputs.blocks(block_rows=SENT_ROWS):

            def encode(rows: Sequence[int], block: Block = block) -> AnyArray:
                nonlocal truncated, lost
                texts = block.encoded_texts
                vectors, stats = encoder.encode_counted([texts[i] for i in rows], prompt=prompt)
                truncated, lost = truncated + stats.truncated, lost + stats.tokens_lost
                if compression is None:
                    return vectors
                return compression.apply(vectors)

            yield block, encode
        warn_truncated(encoder.spec.max_length, truncated, lost, what="rows")

    return CollectionRows(inputs.survey.rows, record, ids, blocks)
