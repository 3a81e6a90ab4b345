"""Tables of scored pairs of sentences, in any format that `open_source` reads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from sentcli.errors import DataError
from sentcli.io.sources import Source, records

PAIR_COLUMNS = ("sentence1", "sentence2", "score")


def scored_pairs(source: Source) -> Iterator[tuple[str, str, float]]:
    """Yield both sentences and the score of each row.

    Raises:
        DataError: for a row without one of the columns ``sentence1``, ``sentence2`` and ``score``, or with a score
            that is no number.
    """
    return (_pair(record, source.name, line) for line, record in records(source))


def _pair(record: dict[str, Any], name: str, line: int) -> tuple[str, str, float]:
    one, two, score = (record.get(key) for key in PAIR_COLUMNS)
    if set(PAIR_COLUMNS) <= set(record) and None in (one, two, score):
        empty = PAIR_COLUMNS[[one, two, score].index(None)]
        raise DataError(name, f"{empty} is null", line=line)
    if not isinstance(one, str) or not isinstance(two, str) or score is None:
        found = ", ".join(record)
        raise DataError(name, f"pairs need the columns {', '.join(PAIR_COLUMNS)}; this row has {found}", line=line)
    try:
        number = float(score)
    except (TypeError, ValueError) as error:
        raise DataError(name, f"the score {score!r} is not a number", line=line) from error
    if not math.isfinite(number):
        raise DataError(name, f"the score {score!r} is not a number", line=line)
    return one, two, number
