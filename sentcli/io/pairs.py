"""Tables of scored pairs of sentences, in any format that `open_source` reads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from sentcli.errors import DataError, InputError
from sentcli.io.sources import FORMATS, Source, records

PAIR_COLUMNS = ("sentence1", "sentence2", "score")
AFS_COLUMNS = ("sentence_1", "sentence_2", "regression_label")
"""Of the Argument Facet Similarity corpus (Misra, Ecker and Walker, SIGDIAL 2016)."""


def pair_files(name: str) -> list[str]:
    """Return a file, or the tables of a folder of pairs, by name."""
    folder = Path(name)
    if not folder.is_dir():
        return [name]
    suffixes = tuple(suffix for suffix, kind in FORMATS.items() if kind != "txt")
    found = [str(path) for path in sorted(folder.iterdir()) if path.name.removesuffix(".gz").endswith(suffixes)]
    if not found:
        raise InputError(f"{folder} holds no table of pairs ({', '.join(suffixes)})")
    return found


def task_name(name: str) -> str:
    """Return what a table's task is called: its name without the suffixes."""
    name = Path(name).name.removesuffix(".gz")
    return name.removesuffix(next((suffix for suffix in FORMATS if name.endswith(suffix)), ""))


def scored_pairs(source: Source) -> Iterator[tuple[str, str, float]]:
    """Yield both sentences and the score of each row."""
    return (_pair(record, source.name, line) for line, record in records(source))


def _pair(record: dict[str, Any], name: str, line: int) -> tuple[str, str, float]:
    columns = AFS_COLUMNS if set(AFS_COLUMNS) <= set(record) else PAIR_COLUMNS
    one, two, score = (record.get(key) for key in columns)
    if set(columns) <= set(record) and None in (one, two, score):
        empty = columns[[one, two, score].index(None)]
        raise DataError(name, f"{empty} is null", line=line)
    if not isinstance(one, str) or not isinstance(two, str) or score is None:
        found = ", ".join(record)
        raise DataError(name, f"pairs need the columns {', '.join(PAIR_COLUMNS)}; this row has {found}", line=line)
    with suppress(TypeError, ValueError):
        if math.isfinite(number := float(score)):
            return one, two, number
    raise DataError(name, f"the score {score!r} is not a number", line=line)
