"""Tables of pairs for in-domain retrieval, in which some pairs are marked as positive."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from sentcli.errors import InputError
from sentcli.evaluation.files import detokenised, fields, number
from sentcli.io.readers import pair_rows
from sentcli.io.sources import Source, open_source, records

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

    A file in STS-B's layout (tab-separated without a header, the score in column 5, the sentences in 6 and 7) is read
    like `sts.read_stsb` reads it. Any other file is a table with the columns ``sentence1``, ``sentence2`` and perhaps
    ``score``. With scores, the pairs with the highest score are positive; without them, all pairs are.

    Args:
        file: csv, tsv, jsonl or parquet, also gzipped.
        columns: other names of the columns, as ``A,B`` or ``A,B,SCORE``.

    Raises:
        DataError: for a row without one of the columns, with a null, or with a score that is no number.
        InputError: if there is no such file, or it has too few or no positive pairs, or all sentences are equal.
    """
    source = open_source(file)
    if columns is None and _is_stsb(source):
        return _table(source.name, _stsb_rows(source), is_stsb=True)
    names = None if columns is None else _names(columns)
    hint = "; --pair-fields A,B[,SCORE] names others"
    return _table(source.name, list(pair_rows(source, names, scored=False, hint=hint)))


def _names(columns: str) -> list[str]:
    names = [name.strip() for name in columns.split(",")]
    if len(names) not in (2, 3) or not all(names) or len(set(names)) != len(names):
        raise InputError(f"--pair-fields {columns}: expected the names of two or three columns, A,B or A,B,SCORE")
    return names


def _is_stsb(source: Source) -> bool:
    if source.format not in ("txt", "csv", "tsv"):
        return False
    try:
        with source.open() as handle:
            line = handle.readline().decode("utf-8", "replace").split("\t")
        return len(line) >= STSB_COLUMNS and math.isfinite(float(line[4]))
    except (ValueError, gzip.BadGzipFile, EOFError, zlib.error):  # a damaged archive is reported when it is read
        return False


def _stsb_rows(source: Source) -> list[tuple[str, str, float | None]]:
    rows: list[tuple[str, str, float | None]] = []
    for line, record in records(replace(source, format="txt")):
        columns = fields(record["text"], STSB_COLUMNS, source.path, line)
        rows.append((detokenised(columns[5]), detokenised(columns[6]), number(columns[4], source.path, line)))
    return rows


def _table(name: str, rows: Sequence[tuple[str, str, float | None]], *, is_stsb: bool = False) -> PairTable:
    if not rows:
        raise InputError(f"{name} is empty: there are no pairs")
    if len(rows) == 1:
        raise InputError(f"{name} has one pair only: there is nothing to tell its second sentence from")
    first, second, scores = [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]
    if len({*first, *second}) == 1:
        raise InputError(f"{name}: all sentences are equal, so there is nothing to find")
    numbers = [score for score in scores if score is not None]
    if not numbers:
        return PairTable(name, first, second, np.ones(len(rows), bool), f"all {len(rows)} pairs", is_stsb)
    highest = max(numbers)
    if highest <= 0:
        raise InputError(f"{name}: no positive pair, the highest score is {highest:g}")
    positive = np.array(numbers) == highest
    chosen = f"the {positive.sum()} of {len(rows)} pairs with the highest score, {highest:g}"
    return PairTable(name, first, second, positive, chosen, is_stsb)
