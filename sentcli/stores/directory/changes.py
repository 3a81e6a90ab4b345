"""What an update of a directory changes: its rows are compared with those of a corpus.

The new directory is written beside the old one as a fresh `encode` would write it, but a text that the old one has
keeps its stored vector (`texts.py`), so that only new texts are encoded. Then it takes the place of the old one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sentcli.arrays import BoolArray, UInt64Array, looked_up
from sentcli.errors import InputError
from sentcli.io.blocks import Block
from sentcli.io.column_hashes import row_hashes, value_hashes
from sentcli.io.writers import DIRECTORY, arrow_rows
from sentcli.stores.changes import ChangeCount, Changes
from sentcli.stores.directory.settings import require_same_vectors

if TYPE_CHECKING:
    from sentcli.stores.directory.texts import StoredTexts
    from sentcli.stores.inputs import Inputs
    from sentcli.stores.row_vectors import EncodedVectors


class DirectoryComparison:
    """Compares the rows of a corpus with those of a directory, block by block.

    Args:
        stored: the directory.
        column_types: the Arrow types of the columns, as they are written.
    """

    def __init__(self, stored: StoredTexts, column_types: Mapping[str, Any]) -> None:
        self.stored = stored
        self.column_types = column_types
        self.count = ChangeCount()

    def counted(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Yield blocks, and count their rows."""
        for block in blocks:
            self.add(block)
            yield block

    def add(self, block: Block) -> None:
        """Count the rows of a block."""
        columns = arrow_rows(block, self.column_types)
        ids = value_hashes(columns.pop("id"))
        contents = row_hashes(columns)
        place = looked_up(ids, self._ids)
        is_there = place >= 0
        is_same = is_there.copy()
        _, contents_there = self._rows
        is_same[is_there] = contents_there[place[is_there]] == contents[is_there]
        self._seen[place[is_there]] = True
        self.count.add_rows(is_there, is_same)
        texts = block.encoded_texts
        new = np.flatnonzero(self.stored.find(block.digests) < 0).tolist()
        self.count.add_texts((texts[row], block.digests[row]) for row in new)

    def total_of(self, inputs: Inputs) -> Changes:
        """Return what has changed, after reading all rows if none was counted yet; nothing is encoded."""
        if not self.count.rows:
            for block in inputs.blocks():
                self.add(block)
        gone = len(self._seen) - int(self._seen.sum())
        return self.count.total(gone)

    @cached_property
    def _rows(self) -> tuple[UInt64Array, UInt64Array]:
        """The hashes of the ids of the directory in order, and of the contents of their rows."""
        ids, contents = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
        for table in self.stored.tables():
            (batch,) = table.combine_chunks().to_batches()
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            ids.append(value_hashes(columns.pop("id")))
            contents.append(row_hashes(columns))
        all_ids, all_contents = np.concatenate(ids), np.concatenate(contents)
        order = np.argsort(all_ids, kind="stable")
        return all_ids[order], all_contents[order]

    @property
    def were_numbers(self) -> bool:
        """Whether the ids of the directory are the numbers of its rows."""
        numbers = list(map(str, range(len(self._ids))))
        hashes = value_hashes(pa.array(numbers, pa.string()))
        return bool(np.array_equal(np.sort(hashes), self._ids))

    @property
    def _ids(self) -> UInt64Array:
        return self._rows[0]

    @cached_property
    def _seen(self) -> BoolArray:
        return np.zeros(len(self._ids), bool)


def comparison(output: str, inputs: Inputs, vectors: EncodedVectors, stored: StoredTexts) -> DirectoryComparison:
    """Return what compares a corpus with a directory that it updates; no row is read yet.

    Args:
        output: the name of the directory.
        inputs: the rows of the corpus.
        vectors: gives new texts their vectors.
        stored: what it has.

    Raises:
        InputError: if the directory was made otherwise, ids are there twice, or rows that had ids have none.
    """
    facts = vectors.kept_settings(inputs, DIRECTORY)
    require_same_vectors(output, stored.manifest.settings, facts, vectors.encoder.identity)
    surveyed = inputs.survey
    if surveyed.repeated_ids:
        raise InputError(
            f"{surveyed.repeated_ids:,} rows have the id of an earlier row, so it cannot be said which of them has "
            f"changed: {surveyed.repeated}"
        )
    compared = DirectoryComparison(stored, surveyed.column_types)
    if surveyed.rows and not len(surveyed.id_hashes) and not compared.were_numbers:
        raise InputError(f"the rows of {output} have ids, and these have none: name their column with --id-field")
    return compared
