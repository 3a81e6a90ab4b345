"""What the values of a column are: labels for yes and no, scores, or texts."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import permutations
from typing import Any, Literal

from sentcli.io.formats import decode_bytes, kind_of

YES, NO = frozenset({"1", "yes", "true"}), frozenset({"0", "no", "false"})
YES_OR_NO = YES | NO
ReadValue = Callable[[Any, str, Mapping[str, float]], float | str]
"""Reads a cell that is not null of the column of values, given the column's name, and 0 or 1 for words in it.

Raises:
    ValueError: for a cell that holds something else; the message is for the user.
"""
WAYS_TO_WRITE = 50
"""More different values than these are more than all ways to write yes and no."""
FEW_VALUES = 20
"""So many different long texts that repeat may be a label."""


def value_kind(values: Counter[str]) -> Literal["binary", "scored", "triplets"] | None:
    """Return what all values of a column look like: ``binary`` or ``scored``, if most do; else texts, ``triplets``.

    Of a column in which labels or scores are the majority, reading names the first value that is none. None stands for
    values that are no texts for sure: one word each, or few that repeat.
    """
    if label_words(values):
        return "binary"
    forms = set()
    sure_values = 0
    for value, count in values.items():
        if number_of(value) is not None or value.casefold() in YES_OR_NO:
            forms.add(_form(value))
            sure_values += count
    if sure_values and 2 * sure_values >= values.total():
        return "binary" if forms <= YES_OR_NO else "scored"
    single_words = all(len(value.split()) == 1 and value.isascii() for value in values)
    if single_words or repeating(values):
        return None
    return "triplets"


def repeating(values: Counter[str]) -> bool:
    """Tell whether the values are few against the rows: short ones that repeat, or longer ones that repeat often."""
    if all(len(value) <= 30 and len(value.split()) <= 3 for value in values):
        return 10 * len(values) < 9 * values.total()
    return 2 * len(values) <= values.total() and len(values) <= FEW_VALUES


def label_words(values: Iterable[str]) -> dict[str, float] | None:
    """Return 0 or 1 for each of the values if all are numbers or words for yes and no for sure, else None.

    Sure are 1/0, yes/no, y/n, true/false, t/f, and any word beside its negation: duplicate/not duplicate, or /not.
    """
    different = set(values)
    if not different or len(different) > WAYS_TO_WRITE:
        return None
    forms = {value: _form(value) for value in different}
    distinct = set(forms.values())
    if distinct <= YES_OR_NO:
        return {value: float(form in YES) for value, form in forms.items()}
    if len(distinct) != 2:
        return None
    for yes, no in permutations(distinct):
        negations = ("not", f"not {yes}", f"no {yes}", f"non {yes}", f"not a {yes}")
        if (yes, no) in (("y", "n"), ("t", "f")) or no in negations:
            return {value: float(form == yes) for value, form in forms.items()}
    return None


def _form(value: str) -> str:
    """Return a value in the form in which labels are compared: ``1`` for 1.0, ``not duplicate`` for Not_Duplicate."""
    number = number_of(value)
    if number is not None:
        return f"{number:g}"
    return re.sub(r"[\s_-]+", " ", value.strip().casefold())


def sure_label(value: Any) -> float | None:
    """Return 0 or 1 for a number or a word for yes or no, else None."""
    form = _form(str(value))
    if form not in YES_OR_NO:
        return None
    return float(form in YES)


def number_of(value: Any) -> float | None:
    """Return a finite number, which may be written as text, or None; true and false are none."""
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if not math.isfinite(number):
        return None
    return number


def read_score(value: Any, _: str, __: Mapping[str, float]) -> float:
    """Return a score; see `ReadValue`."""
    number = number_of(value)
    if number is None:
        hint = "; --kind binary takes labels" if sure_label(value) is not None else ""
        raise ValueError(f"the score {value!r:.60} is not a number{hint}")
    return number


def read_label(value: Any, column: str, words: Mapping[str, float]) -> float:
    """Return a label as 0 or 1; see `ReadValue`."""
    label = words.get(str(value).strip())
    if label is None:
        label = sure_label(value)
    if label is not None:
        return label
    advice = f"correct or remove this {column}"
    if number_of(value) is not None:
        advice = "--kind scored takes any numbers, --kind classed-pairs classes"
    raise ValueError(f"the label {value!r} is neither 0 nor 1; {advice}")


def read_class(value: Any, column: str, _: Mapping[str, float]) -> str:
    """Return the name of a class; see `ReadValue`."""
    if isinstance(value, list | dict):
        raise ValueError(f"{column} is {kind_of(value)}, not the name of a class")
    try:
        return str(decode_bytes(value))
    except ValueError as error:
        raise ValueError(f"{column} {error}") from None
