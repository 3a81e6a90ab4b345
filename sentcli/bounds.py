"""Settings whose annotations declare their bounds and choices.

A dataclass that inherits from `Bounded` checks its fields when it is made and refuses a value that is out of bounds.
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from annotated_doc import Doc
from annotated_types import Ge, Gt, Le, Lt

from sentcli.errors import InputError, nearest

Positive = Annotated[float, Gt(0)]
NotNegative = Annotated[float, Ge(0)]
Fraction = Annotated[float, Ge(0), Lt(1)]
MaskRate = Annotated[float, Gt(0), Lt(1)]
"""The share of masked words."""
AtLeastOne = Annotated[int, Ge(1)]
WholeNumber = Annotated[int, Ge(0)]
MOST_DIGITS = 100
"""More than any number has that is meant; Python refuses those of some thousand digits."""


class Bounded:
    """The base class of settings whose values are checked against their annotations."""

    def __post_init__(self) -> None:
        """Check every field.

        Raises:
            InputError: for a value that its annotation does not allow.
        """
        settings: Any = type(self)
        for name, (kind, bounds) in _declared(settings).items():
            value = getattr(self, name)
            if value is not None:
                check_value(name, value, kind, bounds)


@cache
def _declared(settings: Any) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Return the type, without ``| None``, and the bounds of each field."""
    hints = get_type_hints(settings, include_extras=True)
    declared: dict[str, tuple[Any, tuple[Any, ...]]] = {}
    for field in dataclasses.fields(settings):
        kind, *bounds = [hints[field.name]]
        if get_origin(kind) in (Union, types.UnionType):
            kind = next(part for part in get_args(kind) if part is not types.NoneType)
        if get_origin(kind) is Annotated:
            kind, *bounds = get_args(kind)
        declared[field.name] = kind, tuple(bounds)
    return declared


def check_value(name: str, value: Any, kind: Any, bounds: tuple[Any, ...] = ()) -> None:
    """Check a value.

    Args:
        name: of the setting, for the message.
        value: to check.
        kind: the type, or a ``Literal`` of the choices.
        bounds: ``Ge``, ``Gt``, ``Le`` and ``Lt`` of a number.

    Raises:
        InputError: for another type, an unknown choice, or a number that is out of bounds or not finite.
    """
    if get_origin(kind) is Literal:
        one_of(name, value, get_args(kind))
    elif kind is int and type(value) is not int:
        raise InputError(f"{name} must be a whole number, not {value!r}")
    elif kind in (int, float) and isinstance(value, int | float) and not isinstance(value, bool):
        limits = []
        is_allowed = math.isfinite(value)
        for bound in bounds:
            words, is_within = _limit(bound, value)
            limits.append(words)
            is_allowed = is_allowed and is_within
        if not is_allowed:
            raise InputError(f"{name} must be {' and '.join(limits) or 'a finite number'}, not {value}")
    elif kind is float:
        raise InputError(f"{name} must be a number, not {value!r}")


def _limit(bound: Any, value: Any) -> tuple[str, bool]:
    """Return a bound in words, and whether the value is within it."""
    match bound:
        case Gt(gt=limit):
            return f"above {limit}", value > limit
        case Ge(ge=limit):
            return f"at least {limit}", value >= limit
        case Lt(lt=limit):
            return f"below {limit}", value < limit
        case Le(le=limit):
            return f"at most {limit}", value <= limit
    raise TypeError(f"{bound!r} is no bound")


def whole_number(text: str, *, signed: bool = False) -> int | None:
    """Return the whole number that a foreign text is, or None: some digits of ASCII alone.

    `str.isdigit` takes signs such as ``²``, which `int` refuses, and `int` takes underscores, blanks and the digits of
    other scripts, which nobody who writes numbers for programs means.

    Args:
        text: what a file, a host, a name or a variable says.
        signed: whether it may begin with a minus.
    """
    digits = text.removeprefix("-") if signed else text
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= MOST_DIGITS):
        return None
    return int(text)


def one_of(name: str, value: str, choices: tuple[str, ...] | list[str]) -> None:
    """Raise an InputError, which suggests the nearest choice, unless a value is one of the choices."""
    if value not in choices:
        raise InputError(f"{name} {value!r} is unknown{nearest(value, list(choices))}; one of: {', '.join(choices)}")


class Holds(Enum):
    """What the value of an argument is, as a part of its annotation, where its type alone does not say it."""

    TEXT_FILE = "a file of texts or several; from Python also a frame, a table or a list in memory"
    WORDS = "a text, or the name of something inside a file, and no path"
    OUTPUT = "a file that is written; - is standard output"
    PRINTED = "the form of what is printed on standard output"
    MODEL = "the name or the folder of a model"
    METHOD = "the name of a training method, or a Python file with one"
    METHOD_NAME = "the name of a training method"
    RECIPE = "the name of a recipe, or a file of one"
    RETRIEVAL_SET = "the name or the folder of a retrieval set"
    DATA_SET = "the name of a data set"
    PUBLISHED = "the name of published scores"
    PAPER = "the name of a paper"


@dataclass(frozen=True)
class Flag:
    """How an argument looks on the command line."""

    short: str | None = None
    """A second name, such as ``-m``."""
    name: str | None = None
    """The long name, where Python reserves the word."""
    metavar: str | None = None
    panel: str | None = None
    """The heading that ``--help`` shows it under."""
    positional: bool = False
    """Whether it is an argument without a name."""
    needs: str = ""
    """The other arguments of which this one needs any, with spaces in between: names, or ``name=value``."""
    implied_value: str = ""
    """The value of an option that is given without one."""
    excludes: str = ""
    """The names of other arguments that do not go with this one, or ``value:name`` if only this value excludes it."""
    lists: Callable[[], None] | None = None
    """Prints the choices; the command calls it and exits if the value is ``list``."""


TextField = Annotated[str, Holds.WORDS, Doc("Column that holds the text.")]
IdField = Annotated[str | None, Holds.WORDS, Doc("Column that holds the id: id, else _id, else the row number.")]
Types = Annotated[
    list[str] | None,
    Holds.WORDS,
    Doc(
        "Types of other columns, such as year=int,code=text; default: what all values of the column are. One of text, "
        "int, float, bool, date, timestamp, timestamp-utc."
    ),
]
Nulls = Annotated[
    list[str] | None,
    Holds.WORDS,
    Doc("Cells of other columns with this text, such as n/a, are missing values; may be given several times."),
]
Delimiter = Annotated[str | None, Doc("What separates csv, such as ';' or tab; default: told from the file.")]
PairFields = Annotated[
    str | None,
    Holds.WORDS,
    Flag(metavar="A,B[,C]"),
    Doc("Columns of a table: both texts and score or label, or anchor, positive and negatives, or text and label."),
]
Overwrite = Annotated[bool, Flag(panel="Output"), Doc("Replace an output that exists.")]
Format = Literal["txt", "csv", "tsv", "jsonl", "parquet", "arrow"]
