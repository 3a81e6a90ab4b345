"""Reading the files of benchmarks: those of SentEval's ``downstream`` folder, and STS-B's layout in tables of pairs."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

from sentcli.bounds import one_of
from sentcli.errors import DataError, InputError
from sentcli.io.atomic import regular
from sentcli.io.formats import records
from sentcli.io.labelled import LabelledTable, read_table
from sentcli.io.labelled_kinds import DATA_KINDS, Kind, kinds_of
from sentcli.io.labelled_records import columns_of
from sentcli.io.sources import BOM, Source, open_source
from sentcli.io.table_layout import infer_layout

STSB_RANGE = (0.0, 5.0)
"""The scores of STS-B, from unrelated to equal."""
PAIR_KINDS: tuple[Kind, ...] = ("scored", "pairs", "binary")
"""The kinds of tables of pairs, in the order in which they are looked for."""
STSB_COLUMNS = 7
"""genre, file, year, id, score, sentence1, sentence2; some lines have the sources after them."""


def task_names(names: str | Iterable[str], known: Collection[str]) -> list[str]:
    """Return the names of tasks, each once, given one by one or in one text as ``A,B``.

    Raises:
        InputError: if a text names no task, or a name is none of those that are known.
    """
    if isinstance(names, str):
        text = names
        names = list(filter(None, map(str.strip, text.split(","))))
        if not names:
            raise InputError(f"{text!r} names no task, as --tasks A,B does; one of: {', '.join(known)}")
    chosen = list(dict.fromkeys(names))
    for name in chosen:
        one_of("task", name, list(known))
    return chosen


def read_lines(path: Path, task: str, encoding: str = "utf-8") -> list[str]:
    """Return the lines of a file, split at line feeds only.

    Other characters that Unicode counts as line separators occur within sentences, in particular in Latin-1 text.

    Raises:
        InputError: if the file is missing.
        DataError: if it is in another encoding.
    """
    try:
        regular(path)
        raw = path.read_bytes().removeprefix(BOM)
    except FileNotFoundError as error:
        raise InputError(f"{task}: {path} is missing; it is part of SentEval's data/downstream folder") from error
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise DataError(path, f"not {encoding.upper()}", line=raw[: error.start].count(b"\n") + 1) from error
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    if lines[-1] == "":
        lines.pop()
    return lines


def fields(line: str, least: int, path: Path | str, number: int) -> list[str]:
    """Return the tab-separated fields of a line.

    Raises:
        DataError: if there are fewer than `least`.
    """
    columns = line.split("\t")
    if len(columns) < least:
        raise DataError(path, f"{len(columns)} tab-separated fields, too few", line=number)
    return columns


def number(text: str, path: Path | str, line: int) -> float:
    """Read a score.

    Raises:
        DataError: if it is not a finite number.
    """
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise DataError(path, f"{text!r} is not a score", line=line)
    return score


def detokenised(text: str) -> str:
    """Return the whitespace-separated tokens of a text joined by single blanks, as SentEval encodes it."""
    return " ".join(text.split())


def is_stsb(source: Source) -> bool:
    """Tell whether a file is in STS-B's layout: tab-separated without a header, the score in column 5."""
    if source.format not in ("txt", "csv", "tsv"):
        return False
    try:
        with source.open() as handle:
            columns = handle.readline().decode("utf-8", "replace").split("\t")
        return len(columns) >= STSB_COLUMNS and math.isfinite(float(columns[4]))
    except (ValueError, gzip.BadGzipFile, EOFError, zlib.error):  # a damaged archive is reported when it is read
        return False


def read_stsb_layout(source: Source) -> LabelledTable:
    """Read a file in STS-B's layout, with the score in column 5 and the sentences in columns 6 and 7."""
    first: list[str] = []
    second: list[str] = []
    scores: list[float] = []
    lines: list[int] = []
    for line, record in records(replace(source, format="txt")):
        columns = fields(record["text"], STSB_COLUMNS, source.name, line)
        first.append(detokenised(columns[5]))
        second.append(detokenised(columns[6]))
        scores.append(number(columns[4], source.name, line))
        lines.append(line)
    return LabelledTable(source.name, "scored", DATA_KINDS["scored"].columns, (first, second), scores, lines)


def read_pair_table(file: str, columns: str | None = None) -> LabelledTable:
    """Read a table of pairs, with or without scores or labels.

    A file in STS-B's layout is read like `sts_pairs._read_stsb` reads it. Any other file is a table with the columns
    ``sentence1``, ``sentence2`` and perhaps ``score`` or ``label``, or ``anchor`` and ``positive``.

    Args:
        file: csv, tsv, jsonl or parquet, also gzipped.
        columns: other names of the columns, as ``A,B`` or ``A,B,SCORE``.

    Raises:
        DataError: for a row without one of the columns, with a null, or with a score that is no number.
        InputError: if there is no such file.
    """
    source = open_source(file)
    if columns is None and is_stsb(source):
        return read_stsb_layout(source)
    if columns is None:
        kinds = kinds_of(columns_of(source))
        for kind in PAIR_KINDS:
            if kind in kinds:
                return read_table(source, kind=kind)
        return read_table(source, kind="pairs", fields=",".join(DATA_KINDS["scored"].columns[:2]))
    count = len(columns.split(","))
    if count == 2:
        return read_table(source, kind="pairs", fields=columns)
    if count != 3:
        raise InputError(f"--pair-fields {columns}: expected the names of two or three columns, A,B or A,B,SCORE")
    third_is_label = infer_layout(source, fields=columns).kind == "binary"
    return read_table(source, kind="binary" if third_is_label else "scored", fields=columns)
