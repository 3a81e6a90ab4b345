"""Pairs of which some belong together: STS-B's files, and tables of one's own."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sentcli.errors import DataError, InputError, nearest
from sentcli.evaluation.files import detokenised, fields, number
from sentcli.io.readers import PAIR_COLUMNS
from sentcli.io.sources import Source, open_source, records

STSB_COLUMNS = 7
"""genre, file, year, id, score, sentence1, sentence2; some lines name sources after them."""


@dataclass(frozen=True)
class PairTable:
    """Pairs of sentences, the positive ones marked."""

    name: str
    """The file."""
    first: list[str]
    second: list[str]
    positive: npt.NDArray[np.bool_]
    """``[pairs]``."""
    chosen: str
    """Which pairs the positive ones are, in words."""
    is_stsb: bool = False

    def __len__(self) -> int:
        return len(self.first)


def read(file: str, columns: str | None = None) -> PairTable:
    """Read a table of pairs.

    A file in STS-B's layout (tab-separated without a header, the score in column 5, the sentences in 6 and 7) has the
    sentences that `sts.read_stsb` finds in it. Any other is a table with the columns ``sentence1``, ``sentence2`` and
    perhaps ``score``. With scores the pairs of the highest one are positive, without them every pair is.

    Args:
        file: csv, tsv, jsonl or parquet, also gzipped.
        columns: ``A,B`` or ``A,B,SCORE``, where they have other names.

    Raises:
        DataError: for a row without one of the columns, with a null, or with a score that is no number.
        InputError: if there is no such file, or nothing in it can be found or told apart.
    """
    source = open_source(file)
    if columns is None and _is_stsb(source):
        return _table(source.name, _stsb_rows(source), is_stsb=True)
    return _table(source.name, _rows(source, None if columns is None else _names(columns)))


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
    except (ValueError, gzip.BadGzipFile, EOFError, zlib.error):  # a damaged archive is told by who reads it
        return False


def _stsb_rows(source: Source) -> list[tuple[str, str, float | None]]:
    rows: list[tuple[str, str, float | None]] = []
    for line, record in records(replace(source, format="txt")):
        columns = fields(record["text"], STSB_COLUMNS, source.path, line)
        rows.append((detokenised(columns[5]), detokenised(columns[6]), number(columns[4], source.path, line)))
    return rows


def _rows(source: Source, names: Sequence[str] | None) -> list[tuple[str, str, float | None]]:
    rows: list[tuple[str, str, float | None]] = []
    for line, record in records(source):
        if names is None:
            names = PAIR_COLUMNS if PAIR_COLUMNS[2] in record else PAIR_COLUMNS[:2]
        values = [_value(record, name, source.name, line) for name in names]
        for name, value in zip(names[:2], values, strict=False):
            if not isinstance(value, str):
                raise DataError(source.name, f"{name} is {value!r}, expected a text", line=line)
        rows.append((values[0], values[1], _score(values[2], source.name, line) if len(names) > 2 else None))
    return rows


def _value(record: dict[str, Any], name: str, file: str, line: int) -> Any:
    if name not in record:
        known = ", ".join(record) or "none"
        close = nearest(name, list(record))
        raise DataError(
            file, f"no column {name!r}{close}; this row has {known} (--pair-fields A,B[,SCORE] names them)", line=line
        )
    if record[name] is None:
        raise DataError(file, f"{name} is null", line=line)
    return record[name]


def _score(value: Any, file: str, line: int) -> float:
    try:
        score = float(value)
    except (TypeError, ValueError):
        score = math.nan
    if not math.isfinite(score):
        raise DataError(file, f"the score {value!r} is not a number", line=line)
    return score


def _table(name: str, rows: Sequence[tuple[str, str, float | None]], *, is_stsb: bool = False) -> PairTable:
    if not rows:
        raise InputError(f"{name} is empty: there are no pairs")
    if len(rows) == 1:
        raise InputError(f"{name} has one pair only: there is nothing to tell its second sentence from")
    first, second, scores = [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]
    if len({*first, *second}) == 1:
        raise InputError(f"{name}: all sentences are equal, so there is nothing to find")
    known = [score for score in scores if score is not None]
    if not known:
        return PairTable(name, first, second, np.ones(len(rows), bool), f"all {len(rows)} pairs", is_stsb)
    highest = max(known)
    if highest <= 0:
        raise InputError(f"{name}: no positive pair, the highest score is {highest:g}")
    positive = np.array(known) == highest
    chosen = f"the {positive.sum()} of {len(rows)} pairs with the highest score, {highest:g}"
    return PairTable(name, first, second, positive, chosen, is_stsb)
