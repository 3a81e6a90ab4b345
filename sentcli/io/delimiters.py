"""What separates the fields of csv: the sign by which all rows have as many, or that the file or the user names."""

from __future__ import annotations

import csv
import re
from contextlib import suppress
from functools import cache
from typing import Any

from sentcli.errors import DataError
from sentcli.io.sources import Cursor, Source, say_once
from sentcli.io.text_lines import lines_of

_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
"""The signs that may separate csv, with their names: semicolons where numbers have decimal commas."""
_HINT = re.compile(r"sep=([^\r\n])\r?\n?")
"""The line above the header by which spreadsheets are told what separates csv."""


def csv_reader(source: Source, cursor: Cursor) -> Any:
    """Return the reader of the rows of csv or tsv, from its header on or from where the cursor is."""
    csv.field_size_limit(2**31 - 1)  # its default of 128 KiB is too small for a long document
    at_start = not cursor.byte
    lines = lines_of(source, cursor)
    if source.format == "tsv":  # as registered with IANA, without quoting: a quotation mark is a normal character
        return csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    first = next(lines_of(source, Cursor()), "")
    hint = _HINT.fullmatch(first)
    separator = source.delimiter or (hint and hint[1]) or _separator(source, first)
    if separator != "," and source.delimiter is None:
        name = _SEPARATORS.get(separator, repr(separator))
        say_once(f"{source.name}: its rows are separated by {name}")
    reader = csv.reader(lines, delimiter=separator, strict=True)
    if hint and at_start:
        next(reader)
    return reader


def _separator(source: Source, first: str) -> str:
    """Return what separates csv: the only sign in its first line that may, else the one by which all rows are alike.

    Raises:
        DataError: if none or several are.
    """
    unquoted = re.sub(r'"[^"]*"', "", first)
    candidates = tuple(sign for sign in _SEPARATORS if sign in unquoted)
    if len(candidates) > 1:
        state = source.path.stat()
        agreed = _agreed(source, candidates, (state.st_mtime_ns, state.st_size))
        if len(agreed) != 1:
            names = " and ".join(_SEPARATORS[sign] for sign in candidates)
            choices = " or ".join(f"--delimiter {sign!r}" for sign in candidates)
            problem = f"the header has {names}, and the rows do not tell which of them separates"
            advice = f"{choices} of encode and index says it, and so does a line sep={candidates[-1]} above the header"
            raise DataError(source.name, f"{problem}: {advice}", line=1)
        candidates = agreed
    return candidates[0] if candidates else ","


@cache
def _agreed(source: Source, candidates: tuple[str, ...], _: tuple[int, int]) -> tuple[str, ...]:
    """Return the signs with which all rows of csv have as many fields, given what changes when the file does."""
    agreed = []
    for sign in candidates:
        counts: set[int] = set()
        with suppress(csv.Error):
            for row in csv.reader(lines_of(source, Cursor()), delimiter=sign, strict=True):
                if row:  # it is no blank line
                    counts.add(len(row))
                if len(counts) > 1:
                    break
            else:
                agreed.append(sign)
    return tuple(agreed)
