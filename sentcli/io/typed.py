"""Values of JSON as declared types, without pydantic, whose import takes longer than all files of a model.

`made` takes what has the declared form beyond doubt, which is what nearly all files hold. Its rules are some of
pydantic's, and a test with drawn values holds that it makes what pydantic makes: it converts nothing but whole numbers
where others may stand and lists where tuples do. Whatever it does not take, `UndecidedError` hands to pydantic, which
converts it or says what is wrong with it.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen

KNOWN_CONFIG = {"arbitrary_types_allowed", "extra"}
"""The settings of pydantic in a dataclass whose meaning is known here."""


class UndecidedError(Exception):
    """A value that pydantic has to judge."""


@dataclass(frozen=True)
class ValueCheck:
    """A part of an annotation: a function that returns the values that it allows, and raises a ValueError for others.

    It is pydantic's ``AfterValidator``, which modules can name that are not to import pydantic.
    """

    check: Callable[[Any], Any]

    def __get_pydantic_core_schema__(self, kind: Any, handler: Callable[[Any], Any]) -> Any:
        """Return what pydantic calls."""
        from pydantic_core.core_schema import no_info_after_validator_function

        return no_info_after_validator_function(self.check, handler(kind))


@dataclass(frozen=True)
class Unconverted:
    """A part of an annotation: pydantic converts no other value to the type before it, such as a text to a number."""

    def __get_pydantic_core_schema__(self, kind: Any, handler: Callable[[Any], Any]) -> Any:
        """Return what pydantic does with the type, without conversion."""
        return {**handler(kind), "strict": True}


def among(*words: str) -> ValueCheck:
    """Return the part of an annotation that allows some words."""

    def check(value: str) -> str:
        if value not in words:
            raise ValueError(f"must be one of {', '.join(words)}, not {value!r:.60}")
        return value

    return ValueCheck(check)


def made(kind: Any, value: Any) -> Any:
    """Return a value as a declared type.

    Args:
        kind: a type, an annotated or optional one, a literal, a list, a tuple, a dict, or a dataclass of these.
        value: what was decoded.

    Raises:
        UndecidedError: if the value has another form, or what the type allows is not known here.
    """
    if kind is Any:
        return value
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, value)
    if kind is float and type(value) is int and abs(value) < 2**53:
        return float(value)
    if kind in (str, int, float, bool, types.NoneType) and type(value) is kind:
        return value
    if kind is Path and isinstance(value, Path):
        return value
    maker = MAKERS.get(get_origin(kind))
    if maker is None:
        raise UndecidedError
    return maker(get_args(kind), value)


def _annotated(parts: tuple[Any, ...], value: Any) -> Any:
    kind, *bounds = parts
    value = made(kind, value)
    for bound in bounds:
        if isinstance(bound, ValueCheck):
            value = _passed(bound, value)
        elif not isinstance(bound, Unconverted) and not _is_within(bound, value):
            raise UndecidedError
    return value


def _passed(bound: ValueCheck, value: Any) -> Any:
    try:
        return bound.check(value)
    except ValueError as error:
        raise UndecidedError from error


def _is_within(bound: Any, value: Any) -> bool:
    """Tell whether a value is within a bound that is known here."""
    match bound:
        case Gt(gt=limit):
            return bool(value > limit)
        case Ge(ge=limit):
            return bool(value >= limit)
        case Lt(lt=limit):
            return bool(value < limit)
        case Le(le=limit):
            return bool(value <= limit)
        case MinLen(min_length=limit):
            return len(value) >= limit
        case MaxLen(max_length=limit):
            return len(value) <= limit
    return False


def _optional(kinds: tuple[Any, ...], value: Any) -> Any:
    """Return a value of one type or None; which of several types a value has, pydantic knows better."""
    others = [kind for kind in kinds if kind is not types.NoneType]
    if value is None and len(others) < len(kinds):
        return None
    if len(others) > 1:
        raise UndecidedError
    return made(others[0], value)


def _one_of(choices: tuple[Any, ...], value: Any) -> Any:
    for choice in choices:
        if type(value) is type(choice) and value == choice:
            return value
    raise UndecidedError


def _list(kinds: tuple[Any, ...], value: Any) -> Any:
    if type(value) is not list:
        raise UndecidedError
    return [made(kinds[0], item) for item in value]


def _tuple(kinds: tuple[Any, ...], value: Any) -> Any:
    if type(value) not in (list, tuple) or kinds[1:] != (...,):
        raise UndecidedError
    return tuple(made(kinds[0], item) for item in value)


def _dict(kinds: tuple[Any, ...], value: Any) -> Any:
    if type(value) is not dict:
        raise UndecidedError
    return {made(kinds[0], key): made(kinds[1], item) for key, item in value.items()}


MAKERS: Mapping[Any, Callable[[tuple[Any, ...], Any], Any]] = {
    Annotated: _annotated,
    Union: _optional,
    types.UnionType: _optional,
    Literal: _one_of,
    list: _list,
    tuple: _tuple,
    dict: _dict,
}
"""What makes a value of a type with parts, by what `get_origin` returns."""


def _dataclass(kind: Any, value: Any) -> Any:
    if type(value) is not dict:
        raise UndecidedError
    declared, keeps_to_fields = _declared(kind)
    if keeps_to_fields and value.keys() - declared.keys():
        raise UndecidedError
    settings = {}
    for name, (kind_of_field, is_required) in declared.items():
        if name in value:
            settings[name] = made(kind_of_field, value[name])
        elif is_required:
            raise UndecidedError
    try:
        return kind(**settings)
    except ValueError as error:
        raise UndecidedError from error


@cache
def _declared(kind: Any) -> tuple[dict[str, tuple[Any, bool]], bool]:
    """Return the type of each field with whether it has no default, and whether other keys are refused."""
    config = getattr(kind, "__pydantic_config__", {})
    if not config.keys() <= KNOWN_CONFIG:
        raise UndecidedError
    try:
        hints = get_type_hints(kind, include_extras=True)
    except NameError as error:  # of a name that only type checkers import, be it in a variable that is no field
        raise UndecidedError from error
    declared = {}
    for field in dataclasses.fields(kind):
        if not field.init:
            raise UndecidedError
        is_required = field.default is MISSING and field.default_factory is MISSING
        declared[field.name] = hints[field.name], is_required
    return declared, config.get("extra", "ignore") != "ignore"
