"""What the values of a column are: labels for yes and no, scores, or texts."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from itertools import permutations
from typing import Any, Literal

YES, NO = frozenset({"1", "yes", "true"}), frozenset({"0", "no", "false"})
FEW_VALUES = 20
"""So many different long texts that repeat may be a label."""


def value_kind(values: Counter[str]) -> Literal["binary", "scored", "triplets"] | None:
    """Return what all values of a column look like: ``binary`` or ``scored``, if most do; else texts, ``triplets``.

    Of a column in which labels or scores are the majority, reading names the first value that is none. None stands for
    values that are no texts for sure: one word each, or few that repeat.
    """
    if label_words(values):
        return "binary"
    sure = [value for value in values if number_of(value) is not None or value.casefold() in YES | NO]
    if sure and 2 * sum(values[value] for value in sure) >= values.total():
        return "binary" if {_form(value) for value in sure} <= YES | NO else "scored"
    single = all(len(value.split()) == 1 and value.isascii() for value in values)
    return None if single or repeating(values) else "triplets"


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
    # More different values are more than all ways to write yes and no
    if len(different) > 50:
        return None
    forms = {value: _form(value) for value in different}
    distinct = set(forms.values())
    if not distinct:
        return None
    if distinct <= YES | NO:
        return {value: float(form in YES) for value, form in forms.items()}
    for yes, no in permutations(distinct) if len(distinct) == 2 else ():
        negations = ("not", *(f"{word} {yes}" for word in ("not", "no", "non", "not a")))
        if (yes, no) in (("y", "n"), ("t", "f")) or no in negations:
            return {value: float(form == yes) for value, form in forms.items()}
    return None


def _form(value: str) -> str:
    """Return a value in the form in which labels are compared: ``1`` for 1.0, ``not duplicate`` for Not_Duplicate."""
    number = number_of(value)
    return f"{number:g}" if number is not None else re.sub(r"[\s_-]+", " ", value.strip().casefold())


def sure_label(value: Any) -> float | None:
    """Return 0 or 1 for a number or a word for yes or no, else None."""
    form = _form(str(value))
    return float(form in YES) if form in YES | NO else None


def number_of(value: Any) -> float | None:
    """Return a finite number, which may be written as text, or None; true and false are none."""
    if isinstance(value, bool):
        return None
    with suppress(TypeError, ValueError, OverflowError):
        if math.isfinite(number := float(value)):
            return number
    return None
