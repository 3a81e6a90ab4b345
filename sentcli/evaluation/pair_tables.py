"""Tables of pairs for in-domain retrieval, in which some pairs are marked as positive."""

from __future__ import annotations

import gzip
import math
import zlib
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from sentcli.errors import InputError
from sentcli.evaluation.files import detokenised, fields, number
from sentcli.io.formats import records
from sentcli.io.labelled import COLUMNS, Kind, LabelledTable, columns_of, kinds_of, read_table, tell
from sentcli.io.sources import Source, open_source

PAIRS: tuple[Kind, ...] = ("scored", "pairs", "binary")
"""The kinds of table that hold pairs, the first that fits is taken."""
STSB_COLUMNS = 7
"""genre, file, year, id, score, sentence1, sentence2; some lines have the sources after them."""


@dataclass(frozen=True)
class PairTable:
    """Pairs of sentences, of which some are positive."""

    name: str
    """The name of the file."""
    first: list[str]
    second: list[str]
    positive: npt.NDArray[np.bool_]
    """Whether each pair is positive ``[pairs]``."""
    chosen: str
    """A phrase that says which pairs are positive."""
    is_stsb: bool = False

    def __len__(self) -> int:
        return len(self.first)


def read(file: str, columns: str | None = None) -> PairTable:
    """Read a table of pairs.

    A file in STS-B's layout is read like `sts.read_stsb` reads it. Any other file is a table with the columns
    ``sentence1``, ``sentence2`` and perhaps ``score`` or ``label``, or ``anchor`` and ``positive``. With scores or
    labels, the pairs with the highest are positive; without them, all pairs are.

    Args:
        file: csv, tsv, jsonl or parquet, also gzipped.
        columns: other names of the columns, as ``A,B`` or ``A,B,SCORE``.

    Raises:
        DataError: for a row without one of the columns, with a null, or with a score that is no number.
        InputError: if there is no such file, or it has too few or no positive pairs, or all sentences are equal.
    """
    source = open_source(file)
    if columns is None and is_stsb(source):
        return _table(read_stsb_layout(source), is_stsb=True)
    if columns is not None and len(columns.split(",")) not in (2, 3):
        raise InputError(f"--pair-fields {columns}: expected the names of two or three columns, A,B or A,B,SCORE")
    if columns is not None:
        binary = columns.count(",") == 2 and tell(source, fields=columns).kind == "binary"
        kind: Kind = "binary" if binary else "scored" if columns.count(",") == 2 else "pairs"
        return _table(read_table(source, kind=kind, fields=columns))
    kinds = kinds_of(columns_of(source))
    if found := next((kind for kind in PAIRS if kind in kinds), None):
        return _table(read_table(source, kind=found))
    return _table(read_table(source, kind="pairs", fields=",".join(COLUMNS["scored"][:2])))


def is_stsb(source: Source) -> bool:
    """Tell whether a file is in STS-B's layout: tab-separated without a header, the score in column 5."""
    if source.format not in ("txt", "csv", "tsv"):
        return False
    try:
        with source.open() as handle:
            line = handle.readline().decode("utf-8", "replace").split("\t")
        return len(line) >= STSB_COLUMNS and math.isfinite(float(line[4]))
    except (ValueError, gzip.BadGzipFile, EOFError, zlib.error):  # a damaged archive is reported when it is read
        return False


def read_stsb_layout(source: Source) -> LabelledTable:
    """Read a file in STS-B's layout, with the score in column 5 and the sentences in columns 6 and 7."""
    first, second, scores, lines = [], [], [], []
    for line, record in records(replace(source, format="txt")):
        columns = fields(record["text"], STSB_COLUMNS, source.path, line)
        first.append(detokenised(columns[5]))
        second.append(detokenised(columns[6]))
        scores.append(number(columns[4], source.path, line))
        lines.append(line)
    return LabelledTable(source.name, "scored", COLUMNS["scored"], (first, second), scores, lines)


def _table(table: LabelledTable, *, is_stsb: bool = False) -> PairTable:
    name, (first, second), pairs = table.name, table.texts, len(table)
    if pairs == 1:
        raise InputError(f"{name} has one pair only: there is nothing to tell its second sentence from")
    if len({*first, *second}) == 1:
        raise InputError(f"{name}: all sentences are equal, so there is nothing to find")
    if table.values is None:
        return PairTable(name, first, second, np.ones(pairs, bool), f"all {pairs} pairs", is_stsb)
    numbers = np.array(table.values, np.float64)
    highest = numbers.max()
    if highest <= 0:
        raise InputError(f"{name}: no positive pair, the highest score is {highest:g}")
    positive = numbers == highest
    chosen = f"the {positive.sum()} of {pairs} pairs with the highest score, {highest:g}"
    return PairTable(name, first, second, positive, chosen, is_stsb)
