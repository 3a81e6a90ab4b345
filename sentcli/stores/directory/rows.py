"""The rows of a finished directory as an input, to be encoded anew by another model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sentcli.io.blocks import BLOCK_ROWS, Block, Survey
from sentcli.io.dataset import InputGroup, Shard
from sentcli.io.readers import ReadOptions
from sentcli.stores.directory.texts import StoredTexts
from sentcli.stores.inputs import Inputs
from sentcli.stores.table_rows import table_block


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
                    values = batch.to_pydict()
                    contexts = self.directory.contexts(values)
                    yield table_block(values, names, self.directory.name, first_row, contexts, number)
                    first_row += len(batch)


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
    return _part(stored, InputGroup(manifest.inputs, manifest.rows_total, manifest.records), manifest.shards)


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
