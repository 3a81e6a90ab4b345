"""The rows of a table, which is no file of text: a collection of a database, or a file with vectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sentcli.io.blocks import BLOCK_ROWS, Block, Survey
from sentcli.io.readers import ReadOptions
from sentcli.io.table_source import TableSource
from sentcli.model.passages import Context, context_columns, stored_contexts
from sentcli.stores.inputs import Inputs


@dataclass(frozen=True, kw_only=True)
class TableRows(Inputs):
    """The rows of a table or a collection."""

    rows: TableSource
    context: Context
    """What stands in front of each text."""
    name: str

    @classmethod
    def of(cls, rows: TableSource, context: Context, name: str) -> TableRows:
        """Return the rows of a table of this name, which may be passages with a context."""
        types = dict(rows.schema)
        del types["id"], types["text"]
        survey = Survey(rows=len(rows), records=len(rows), column_types=types)
        return cls([], ReadOptions(), survey, rows=rows, context=context, name=name)

    def ids(self) -> Iterator[Sequence[str]]:
        """Yield the ids of the rows in order, some at a time; no text is read."""
        for table in self.rows.tables(["id"]):
            yield table["id"].to_pylist()

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
                yield table_block(values, names, self.name, first_row, stored_contexts(self.context, values))
                first_row += len(values["id"])


def table_block(
    values: Mapping[str, list[Any]],
    names: Sequence[str],
    title: str,
    first_row: int,
    contexts: list[str],
    shard: int = 0,
) -> Block:
    """Return rows that were read of a table as a block.

    Args:
        values: their columns, with id and text.
        names: of the columns of the block besides these.
        title: what messages call the table.
        first_row: the number of the first row in it, from 0.
        contexts: what stands in front of each text; empty if nothing does.
        shard: the number of the shard that the rows belong to.
    """
    places = []
    for row in range(first_row, first_row + len(values["id"])):
        places.append((title, row + 1))
    columns = {name: values[name] for name in names}
    return Block(values["id"], values["text"], columns, shard, first_row, places, contexts)
