"""How rows and conditions are written for Milvus."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from sentcli.errors import InputError
from sentcli.io.column_types import TEXT
from sentcli.io.writers import text_cell
from sentcli.search.conditions import All, Test, Tree
from sentcli.stores.record import ID, TEXTS

MOST_TEXT_BYTES = 65_535
"""The most bytes of a text in Milvus."""


def shortened(text: str) -> str:
    """Return a text, cut to what Milvus takes."""
    encoded = text.encode()
    if len(encoded) <= MOST_TEXT_BYTES:
        return text
    return encoded[:MOST_TEXT_BYTES].decode(errors="ignore")


def stored_value(value: Any, kind: str) -> Any:
    """Return a value of a column as Milvus keeps it; dates and times are texts that sort as they do."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if kind == "timestamp-utc":
        value = value.astimezone(datetime.UTC)
    if isinstance(value, datetime.datetime):
        return value.isoformat(timespec="microseconds")
    if isinstance(value, datetime.date):
        return value.isoformat()
    if kind == "float":
        return float(value)
    if kind == TEXT:
        return shortened(text_cell(value) or "")
    return value


def value_of(value: Any, kind: str) -> Any:
    """Return a value that `stored_value` made as it was.

    Raises:
        InputError: for what is no date or time, because another program wrote it.
    """
    if value is None or kind not in ("date", "timestamp", "timestamp-utc"):
        return value
    try:
        if kind == "date":
            return datetime.date.fromisoformat(value)
        return datetime.datetime.fromisoformat(value)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{value!r:.60} is no {kind}, and another program has put it into a column of these; sentcli index "
            "--overwrite makes the collection anew"
        ) from error


def filter_of(tree: Tree, columns: Mapping[str, tuple[str, str]]) -> str:
    """Return a condition as a filter of Milvus, which is met by the same rows as in Arrow.

    Args:
        tree: in which only tests are negated.
        columns: the field and the type of each column.
    """
    if isinstance(tree, Test):
        return _filter_of_test(tree, columns)
    word = " and " if isinstance(tree, All) else " or "
    parts = [filter_of(part, columns) for part in tree.parts]
    return f"({word.join(parts)})"


def _filter_of_test(test: Test, columns: Mapping[str, tuple[str, str]]) -> str:
    """Return the filter of one test; see `filter_of`."""
    name = test.column
    if name in columns:
        name = columns[name][0]
    kind = test.kind
    value = test.value
    always = name in (ID, TEXTS)  # Milvus has a value for each row
    match test.operator:
        case "null" if always:
            return f"{ID} {test.negation}in []"
        case "null":
            return f"{name} is {test.negation}null"
        case "in":
            values = ", ".join(_literal(one, kind) for one in value)
            condition = f"{name} {test.negation}in [{values}]"
            if kind == "float" and 0 in value:  # == knows that -0.0 is 0.0
                zero = f"or {name} == 0.0"
                if test.negated:
                    zero = f"and {name} != 0.0"
                condition = f"({condition} {zero})"
        case "like":
            condition = f"{name} like {_literal(value, TEXT)}"
            if test.negated:
                condition = f"not ({condition})"
        case _:
            comparison = _OPERATORS.get(test.operator, test.operator)
            condition = f"{name} {comparison} {_literal(value, kind)}"
    if always:
        return f"({condition})"
    return f"({name} is not null and {condition})"


_OPERATORS = {"=": "=="}
"""The operator that Milvus writes otherwise than SQL does."""


def with_ids(ids: Sequence[str]) -> str:
    """Return a filter of Milvus for the rows with these ids; its client would take a quote in an id for code."""
    literals = ", ".join(_literal(key, TEXT) for key in ids)
    return f"{ID} in [{literals}]"


def after_id(key: str) -> str:
    """Return a filter of Milvus for the rows whose ids are behind this one."""
    return f"{ID} > {_literal(key, TEXT)}"


def _literal(value: Any, kind: str) -> str:
    """Return a value as an expression of Milvus, in which control characters stand for themselves."""
    value = stored_value(value, kind)
    if not isinstance(value, str):
        return json.dumps(value)
    return '"' + value.translate(ESCAPES) + '"'


ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r", "\t": r"\t"})
"""The escapes of a text in an expression of Milvus, which knows no ``\\u0001`` as JSON does."""


def rows_of_size(size: int, batch: Sequence[dict[str, Any]], least: int, most: int) -> int:
    """Return how many rows like those of a batch have about so many bytes, within bounds."""
    batch_bytes = max(sum(map(_bytes_of, batch)), 1)
    rows = size * len(batch) // batch_bytes
    return min(most, max(least, rows))


def _bytes_of(row: dict[str, Any]) -> int:
    """Return about how many bytes a row has: 4 for a letter or a component, and 8 for any other value."""
    size = 0
    for value in row.values():
        if isinstance(value, str | list):
            size += 4 * len(value)
        else:
            size += 8
    return size
