"""Turn input files into blocks of rows, after one pass that counts and checks everything.

`survey` reads a whole input before any work starts, so that a broken row is found before hours of encoding, and
progress bars and file headers know the number of rows. What is said of a block's shard without the forms of
`io/dataset.py`, which need pydantic, stands here too: whose it is (`ShardShare`), the `Counts` over its rows, and the
name of the manifest.
"""

from __future__ import annotations

import math
import re
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from operator import add
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import numpy as np
from annotated_types import Ge, Le

from sentcli.arrays import sorted_distinct
from sentcli.errors import DataError, InputError
from sentcli.io.digests import text_digests
from sentcli.io.readers import ReadOptions, SourceRows, row_batches, rows
from sentcli.io.sources import Cursor, Source

if TYPE_CHECKING:
    from sentcli.arrays import Digests, Int64Array
    from sentcli.io.column_types import Columns

MANIFEST = "manifest.json"
"""The name of the manifest of a whole directory of shards."""


@dataclass
class Block:
    """Some consecutive rows: ids, texts, and the other columns by name."""

    ids: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    columns: dict[str, list[Any]] = field(default_factory=dict)
    shard: int = 0
    """The number of the shard that the rows belong to."""
    first_row: int = 0
    """The number of the first row among all rows with a text, from 0."""
    places: list[tuple[str, int]] = field(default_factory=list)
    """The input of each row, and the number of the row in it, from 1."""
    contexts: list[str] = field(default_factory=list)
    """What is put in front of each text when it is encoded; nothing if the list is empty."""

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def numbers(self) -> Int64Array:
        """The number of each row among all rows with a text, from 0 ``[rows]``."""
        return np.arange(self.first_row, self.first_row + len(self))

    def chosen(self, rows: Sequence[int]) -> Block:
        """Return some of the rows, whose numbers are those in this block, in any order; `numbers` are not kept."""
        columns = {}
        for name, values in self.columns.items():
            columns[name] = _at(values, rows)
        chosen = Block(_at(self.ids, rows), _at(self.texts, rows), columns, self.shard)
        if self.places:
            chosen.places = _at(self.places, rows)
        if self.contexts:
            chosen.contexts = _at(self.contexts, rows)
        return chosen

    @property
    def empty(self) -> int:
        """The number of rows whose text is empty or white space."""
        return sum(not text.strip() for text in self.texts)

    @property
    def encoded_texts(self) -> list[str]:
        """The texts with what stands in front of them."""
        if not self.contexts:
            return self.texts
        return [context + text for context, text in zip(self.contexts, self.texts, strict=True)]

    @cached_property
    def digests(self) -> Digests:
        """The digests of the `encoded_texts` ``[rows]``, made once of a block that has all its rows."""
        return text_digests(self.encoded_texts)


@dataclass(frozen=True)
class InputPosition:
    """A place between two rows of the inputs."""

    source: int
    """The number of the input."""
    place: int
    """The number of its rows before."""
    cursor: Cursor
    rows: int
    """The number of rows with a text before, in all inputs."""
    number: int
    """The number of all rows before, in all inputs."""


_START = InputPosition(0, 0, Cursor(), 0, 0)
BLOCK_ROWS = 8192
"""The rows of a block, and the fewest between two positions of a survey."""


@dataclass(frozen=True)
class ShardShare:
    """The share of the shards that one machine makes: the share `number` of `of`, counted from 1."""

    number: int = 1
    of: int = 1

    @classmethod
    def parse(cls, text: str) -> ShardShare:
        """Read a value of ``--shard`` such as ``1/4``.

        Raises:
            InputError: for any other text.
        """
        numbers = re.fullmatch(r"(\d+)/(\d+)", text.strip())
        if numbers:
            share = cls(int(numbers[1]), int(numbers[2]))
            if 1 <= share.number <= share.of:
                return share
        raise InputError(f"--shard {text}: give I/N with I from 1 to N, for example 1/4")

    def shards(self, total: int) -> range:
        """Return the numbers of the shards in this share, given the number of all shards."""
        return range(total * (self.number - 1) // self.of, total * self.number // self.of)

    @property
    def manifest(self) -> str:
        """The file name of the manifest of this share."""
        return MANIFEST if self.of == 1 else f"manifest-{self.number:05d}-of-{self.of:05d}.json"


Count = Annotated[int, Ge(0), Le(2**40)]
"""A number of rows or tokens."""


@dataclass(frozen=True)
class Counts:
    """The number of some rows, and counts over them."""

    rows: Count = 0
    empty: Count = 0
    """The rows whose text is empty or white space."""
    duplicates: Count = 0
    """The rows whose text an earlier row of the shard has already."""
    truncated: Count = 0
    """The rows that are longer than the maximum length."""
    tokens_lost: Count = 0
    """The tokens of these rows that were cut off."""
    tokens: Count = 0
    """The tokens that the model ran, which count once for each distinct text."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(*map(add, astuple(self), astuple(other)))


@dataclass
class Survey:
    """The counts and column types of the inputs, from one pass over them."""

    rows: int = 0
    nulls: int = 0
    records: int = 0
    """The number of records that were read; of passages, that of their documents."""
    column_types: dict[str, Any] = field(default_factory=dict)
    """The Arrow type of each column besides id and text."""
    casts: dict[str, Any] = field(default_factory=dict)
    """The Arrow type of each column that has values to be converted to it."""
    column_type_names: dict[str, str] = field(default_factory=dict)
    """The name of the type that was found for each column of the inputs."""
    mixed: dict[str, str] = field(default_factory=dict)
    """The columns that stay text because they mix values of a type with others, with the first other value."""
    repeated_ids: int = 0
    """The number of rows with the id of an earlier row."""
    repeated: str = ""
    """The first such id, and where it stands."""
    id_hashes: Int64Array = field(default_factory=lambda: np.empty(0, np.int64), repr=False)
    """The hashes of all different ids of this process's `hash`, sorted; none if ids are row numbers."""
    positions: list[InputPosition] = field(default_factory=list)
    """Places at which `blocks` can begin: the start of each input, and ends of batches, `BLOCK_ROWS` or more apart."""

    def position_before(self, row: int) -> InputPosition:
        """Return the last place that is not behind a row, which is given by its number among all with a text."""
        return self.positions[bisect_right(self.positions, row, key=lambda position: position.rows) - 1]


def survey(sources: Sequence[Source], options: ReadOptions, first_number: int = 0) -> Survey:
    """Read everything once, to count the rows, check all of them, and learn the types of the other columns.

    Args:
        sources: the inputs.
        options: fields and null handling.
        first_number: as for `blocks`.

    Raises:
        DataError: for a broken row, or a file without rows.
    """
    surveyed = Survey()
    columns: Columns | None = None
    id_hashes = array("q")
    for batch, before in _batches(sources, options, refuse_empty=True, first_number=first_number):
        is_first = before.place == 0
        if is_first or surveyed.rows - surveyed.positions[-1].rows >= BLOCK_ROWS:
            surveyed.positions.append(before)
        surveyed.rows += len(batch)
        surveyed.nulls += batch.left_out
        surveyed.records += batch.read
        if batch.ids is not None:
            id_hashes.extend(hash(row_id) for row_id in batch.ids if row_id is not None)
        names = batch.names()
        if names and columns is None:
            from sentcli.io.column_types import Columns

            columns = Columns(options.types)
        for name in names:
            assert columns is not None
            column = columns[name]
            column.is_made = name in batch.typed
            column.extend(batch.column(name), batch.source.name, batch.lines, batch.looks(name))
    if columns is not None:
        _add_types(surveyed, columns)
    if id_hashes:
        surveyed.id_hashes = sorted_distinct(np.frombuffer(id_hashes, np.int64))
    surveyed.repeated_ids = len(id_hashes) - len(surveyed.id_hashes)
    if surveyed.repeated_ids:
        surveyed.repeated = _first_repeated(sources, options)
    return surveyed


def _add_types(surveyed: Survey, columns: Columns) -> None:
    """Write the types of the columns into a survey."""
    from sentcli.io.column_types import TEXT, types

    for name, kind in columns.types().items():
        column = columns[name]
        surveyed.column_types[name] = types()[kind].arrow
        if column.is_converted and kind != TEXT:
            surveyed.casts[name] = types()[kind].arrow
        if column.given_type is None and not column.is_made:
            surveyed.column_type_names[name] = kind
        if column.mixed:
            surveyed.mixed[name] = column.mixed


def _first_repeated(sources: Sequence[Source], options: ReadOptions) -> str:
    """Return the first id that an earlier row has, with both places."""
    first_places: dict[str, str] = {}
    for source in sources:
        for row in rows(source, options):
            if row is None or row.id is None:
                continue
            place = f"{source.name}, {source.unit} {row.line}"
            if row.id in first_places:
                return f"{row.id!r:.60} ({first_places[row.id]}, and {place})"
            first_places[row.id] = place
    return ""


_Value = TypeVar("_Value")


def _at(values: Sequence[_Value], rows: Sequence[int]) -> list[_Value]:
    """Return the values of some rows."""
    return [values[row] for row in rows]


def _without_rows(columns: Iterable[str]) -> Block:
    """Return a block to which rows with some columns will come."""
    return Block(columns={name: [] for name in columns})


def blocks(
    sources: Sequence[Source],
    options: ReadOptions,
    *,
    block_rows: int = BLOCK_ROWS,
    shard_rows: int | None = None,
    shards: Iterable[int] | None = None,
    first_number: int = 0,
    columns: Sequence[str] = (),
    casts: Mapping[str, Any] = MappingProxyType({}),
    start: InputPosition = _START,
) -> Iterator[Block]:
    """Yield blocks of rows over all inputs, in order.

    Args:
        sources: the inputs, read one after the other as one sequence of rows.
        options: fields and null handling.
        block_rows: the number of rows in a block; the last block of a shard may be shorter.
        shard_rows: the number of rows in a shard. A block has rows of one shard only, so that the blocks of a shard
            depend on its rows alone.
        shards: the numbers of the shards to yield; the rows of other shards are read and dropped.
        first_number: the number of the first row, for ids that are row numbers.
        columns: the names of the other columns to keep; a row without one gets None.
        casts: the Arrow types of columns whose texts are converted; see `Survey`.
        start: where reading begins, before the first of the shards.
    """
    block = _without_rows(columns)
    rows_of_shard = shard_rows or sys.maxsize
    end = math.inf
    yielded_shards = None
    if shards is not None and shard_rows:
        yielded_shards = frozenset(shards)
        end = (max(yielded_shards, default=-1) + 1) * shard_rows
    for batch, before in _batches(sources, options, start, end, first_number=first_number):
        done = 0
        while done < len(batch) and before.rows + done < end:
            row = before.rows + done
            shard, rows_before = divmod(row, rows_of_shard)
            left = rows_of_shard - rows_before
            if yielded_shards is not None and shard not in yielded_shards:
                done += left
                continue
            if len(block) and (shard != block.shard or len(block) == block_rows):
                yield _with_types(block, casts)
                block = _without_rows(columns)
            if not len(block):
                block.shard = shard
                block.first_row = row
            part = slice(done, min(done + left, done + block_rows - len(block), len(batch)))
            _extend(block, batch, part, before, first_number)
            done = part.stop
    if len(block):
        yield _with_types(block, casts)


def _batches(
    sources: Sequence[Source],
    options: ReadOptions,
    start: InputPosition = _START,
    end: float = math.inf,
    *,
    refuse_empty: bool = False,
    first_number: int = 0,
) -> Iterator[tuple[SourceRows, InputPosition]]:
    """Yield the rows of all inputs, and the place before each batch; the last batch holds the row `end` or more."""
    before = start
    for number in range(start.source, len(sources)):
        if before.rows >= end:
            return
        source = sources[number]
        cursor = replace(before.cursor)
        for read in row_batches(source, options, cursor):
            batch = read
            if options.cut is not None:
                batch = options.cut(read, first_number + before.number)
            yield batch, before
            before = replace(
                before,
                place=before.place + read.total,
                cursor=replace(cursor),
                rows=before.rows + len(batch),
                number=before.number + read.total,
            )
            if before.rows >= end:
                return
        if refuse_empty and not before.place:
            raise DataError(source.name, "the file is empty: there is no row to read")
        before = InputPosition(number + 1, 0, Cursor(), before.rows, before.number)


def _extend(block: Block, batch: SourceRows, part: slice, before: InputPosition, first_number: int) -> None:
    """Append some rows of a batch to a block."""
    places = batch.places[part]
    name_of_input = batch.source.name
    block.texts.extend(batch.texts[part])
    block.contexts.extend(batch.contexts[part])
    block.places.extend((name_of_input, before.place + place + 1) for place in places)
    first = first_number + before.number
    ids: list[str | None] = [None] * len(places)
    if batch.ids is not None:
        ids = batch.ids[part]
    for row_id, place in zip(ids, places, strict=True):
        block.ids.append(str(first + place) if row_id is None else row_id)
    for name, values in block.columns.items():
        values.extend(batch.column(name, part))


def _with_types(block: Block, casts: Mapping[str, Any]) -> Block:
    """Return a block after converting the texts of its columns to values of their types."""
    names = block.columns.keys() & casts.keys()
    if not names:
        return block
    from sentcli.io.column_types import cast

    for name in names:
        block.columns[name] = cast(block.columns[name], casts[name])
    return block
