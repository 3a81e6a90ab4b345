"""The rows of a finished directory as an input, to be encoded anew by another model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sentcli.bulk.encode import EncodeSummary, encode_files
from sentcli.bulk.engine import EncodeSettings
from sentcli.bulk.files import Inputs
from sentcli.bulk.stored_texts import StoredTexts
from sentcli.encoder.vector_facts import VectorFacts
from sentcli.errors import InputError
from sentcli.io.blocks import BLOCK_ROWS, Block, Survey
from sentcli.io.dataset import InputGroup, Shard, read_manifest
from sentcli.io.folder import open_folder
from sentcli.io.readers import ReadOptions
from sentcli.io.table_source import TableSource
from sentcli.model.encoding import EncodeStats, Progress
from sentcli.model.passages import Context, context_columns, stored_contexts

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder


@dataclass(frozen=True, kw_only=True)
class StoredRows(Inputs):
    """The rows of one group of inputs of a directory: those that were encoded together, or appended together."""

    directory: StoredTexts
    group: InputGroup
    shards: Sequence[Shard]
    """The shards of the group, in order."""

    def identity(self) -> list[dict[str, Any]]:
        """Return the facts that identify each file of the corpus that the directory was made of."""
        return self.group.inputs

    def blocks(
        self,
        *,
        columns: Sequence[str] | None = None,
        shards: Sequence[int] | None = None,
        block_rows: int = BLOCK_ROWS,
        **_: Any,
    ) -> Iterator[Block]:
        """Yield the rows in blocks, each of one shard.

        Args:
            columns: the other columns; None takes all.
            shards: the numbers of the shards, counted from the first of the group; None takes all.
            block_rows: the most rows of a block.
        """
        import pyarrow.parquet as pq

        names = self.columns(columns)
        needed = dict.fromkeys(["id", "text", *names, *self.directory.context_columns])
        if shards is None:
            shards = range(len(self.shards))
        for number in shards:
            shard = self.shards[number]
            first_row = shard.first_row - self.shards[0].first_row
            with pq.ParquetFile(self.directory.folder / shard.rows) as file:
                for batch in file.iter_batches(block_rows, columns=list(needed)):
                    yield self._block(batch.to_pydict(), names, number, first_row)
                    first_row += len(batch)

    def _block(self, values: Mapping[str, list[Any]], names: Sequence[str], shard: int, first_row: int) -> Block:
        places = []
        for row in range(first_row, first_row + len(values["id"])):
            places.append((self.directory.name, row + 1))
        return Block(
            ids=values["id"],
            texts=values["text"],
            columns={name: values[name] for name in names},
            shard=shard,
            first_row=first_row,
            places=places,
            contexts=self.directory.contexts(values),
        )


@dataclass(frozen=True, kw_only=True)
class TableRows(Inputs):
    """The rows of a collection as an input."""

    rows: TableSource
    context: Context
    """What stands in front of each text."""

    @classmethod
    def of(cls, rows: TableSource, context: Context) -> TableRows:
        """Return the rows, which may be passages with a context."""
        types = dict(rows.schema)
        del types["id"], types["text"]
        survey = Survey(rows=len(rows), records=len(rows), column_types=types)
        return cls([], ReadOptions(), survey, rows=rows, context=context)

    def blocks(
        self, *, columns: Sequence[str] | None = None, block_rows: int = BLOCK_ROWS, **_: Any
    ) -> Iterator[Block]:
        """Yield the rows in blocks.

        Args:
            columns: the other columns; None takes all.
            block_rows: the most rows of a block.
        """
        names = self.columns(columns)
        needed = dict.fromkeys(["id", "text", *names, *context_columns(self.context, self.survey.column_types)])
        first_row = 0
        for table in self.rows.tables(list(needed)):
            for start in range(0, len(table), block_rows):
                values = table.slice(start, block_rows).to_pydict()
                contexts = stored_contexts(self.context, values)
                ids, texts = values.pop("id"), values.pop("text")
                for name in values.keys() - set(names):
                    del values[name]
                yield Block(ids, texts, values, first_row=first_row, contexts=contexts)
                first_row += len(ids)


def stored_rows(stored: StoredTexts) -> list[StoredRows]:
    """Return the rows of a finished directory, those of each group of its inputs.

    The options of reading are those with which the directory was made, so that a manifest names them again.
    """
    manifest = stored.manifest
    parts = []
    first = 0
    for group in manifest.groups:
        end = first + -(-group.rows // manifest.shard_rows)
        parts.append(_part(stored, group, manifest.shards[first:end]))
        first = end
    return parts


def all_rows(stored: StoredTexts) -> StoredRows:
    """Return all rows of a finished directory as one input."""
    manifest = stored.manifest
    inputs: list[dict[str, Any]] = []
    for group in manifest.groups:
        inputs += group.inputs
    return _part(stored, InputGroup(inputs, manifest.rows_total, manifest.records), manifest.shards)


def _part(stored: StoredTexts, group: InputGroup, shards: Sequence[Shard]) -> StoredRows:
    settings = stored.manifest.settings
    options = ReadOptions(
        settings.get("text_field", "text"),
        settings.get("id_field"),
        settings.get("on_null", "error"),
        nulls=tuple(settings.get("null", ())),
    )
    survey = Survey(rows=group.rows, records=group.read, column_types=_column_types(stored))
    return StoredRows([], options, survey, directory=stored, group=group, shards=shards)


def _column_types(stored: StoredTexts) -> dict[str, Any]:
    """Return the Arrow types of the columns besides id and text, in the order of the manifest."""
    import pyarrow.parquet as pq

    if not stored.manifest.shards:
        return {}
    schema = pq.read_schema(stored.folder / stored.manifest.shards[0].rows)
    return {name: schema.field(name).type for name in stored.manifest.columns}


def encode_again(
    encoder: SentenceEncoder,
    stored: StoredTexts,
    settings: EncodeSettings,
    progress: Progress = lambda added: None,
) -> EncodeSummary:
    """Encode the rows of a directory by another model, into its staging folder; shards that are there stay.

    What is written is what `encode_files` would write of the same corpus with the same settings.

    Args:
        encoder: the other model.
        stored: the directory.
        settings: how the rows are encoded; shard borders are those of the directory.
        progress: called with the rows and tokens that were encoded.

    Returns:
        The summary of all rows, whose counts are those of what this call encoded.
    """
    parts = stored_rows(stored)
    begun = _begun_groups(encoder, stored, settings)
    settings = replace(settings, shard_rows=stored.manifest.shard_rows, overwrite=True, stays_beside=True, resume=True)
    first = max(begun - 1, 0)
    for part in parts[:first]:
        progress(EncodeStats(texts=part.survey.rows))
    summaries = []
    for number, part in enumerate(parts[first:], first):
        of_part = replace(settings, append=number > 0)
        summaries.append(encode_files(encoder, part, stored.name, of_part, progress))
    whole = summaries[-1]
    for earlier in summaries[:-1]:
        whole = replace(whole, counts=earlier.counts + whole.counts, seconds=earlier.seconds + whole.seconds)
    return replace(whole, rows_before=whole.rows - whole.counts.rows)


def _begun_groups(encoder: SentenceEncoder, stored: StoredTexts, settings: EncodeSettings) -> int:
    """Return how many groups of inputs an interrupted run of the same move has begun in the staging folder."""
    with suppress(InputError, OSError):  # there is none, or it is damaged and is made anew
        begun = read_manifest(open_folder(stored.name).staging())
        facts = VectorFacts.of(encoder, settings.prompt, settings.compression, settings.passages)
        is_same_move = not facts.differences(VectorFacts.read(stored.name, begun.settings))
        if is_same_move and begun.groups == stored.manifest.groups[: len(begun.groups)]:
            return len(begun.groups)
    return 0
