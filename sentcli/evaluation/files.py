"""Reading the files of SentEval's ``downstream`` folder."""

from __future__ import annotations

import math
from pathlib import Path

from sentcli.errors import DataError, InputError
from sentcli.io.atomic import regular


def read_lines(path: Path, task: str, encoding: str = "utf-8") -> list[str]:
    """Return the lines of a file, split at line feeds only.

    Other characters that Unicode counts as line separators occur within sentences, in particular in Latin-1 text.

    Raises:
        InputError: if the file is missing.
        DataError: if it is in another encoding.
    """
    try:
        regular(path)
        raw = path.read_bytes()
    except FileNotFoundError as error:
        raise InputError(f"{task}: {path} is missing; it is part of SentEval's data/downstream folder") from error
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise DataError(path, f"not {encoding.upper()}", line=raw[: error.start].count(b"\n") + 1) from error
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines[:-1] if lines and lines[-1] == "" else lines


def fields(line: str, least: int, path: Path, number: int) -> list[str]:
    """Return the tab-separated fields of a line.

    Raises:
        DataError: if there are fewer than `least`.
    """
    columns = line.split("\t")
    if len(columns) < least:
        raise DataError(path, f"{len(columns)} tab-separated fields, too few", line=number)
    return columns


def number(text: str, path: Path, line: int) -> float:
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
