"""Check files that people or earlier runs wrote against a declared form, a pydantic model or a dataclass.

The first problem becomes one message with its place in the file; the rest of the package trusts the values.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

from annotated_types import Ge, Le
from pydantic import AfterValidator, BaseModel, StrictBool, StrictInt, TypeAdapter, ValidationError

from sentcli.errors import DataError, InputError, nearest
from sentcli.io.json_files import contents, decode, refuse_deep

LARGEST_NUMBER = 1e100


def _plain(value: Any) -> Any:
    """Refuse numbers with which sums, squares and axes of figures would overflow, and those that are not finite."""
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _plain(item)
    if isinstance(value, int | float) and not abs(value) <= LARGEST_NUMBER:
        raise ValueError(f"{value:.3g} is no number that a run gives")
    return value


Plain = Annotated[Any, AfterValidator(_plain)]
"""Any value of JSON without numbers that overflow."""
Number = Annotated[float, Ge(-LARGEST_NUMBER), Le(LARGEST_NUMBER)]
Scalar = StrictBool | StrictInt | Number | str | None
Setting = Scalar | list[Scalar]
"""A value of a setting."""
Form = TypeVar("Form", bound=BaseModel)
Declared = TypeVar("Declared")
TYPE_NAMES = {"dictionary": "table", "string": "text in quotes", "integer": "whole number", "list": "list"}
"""The names of types in messages, by pydantic's names."""


def read_toml(kind: type[Form], file: Path) -> Form:
    """Read a TOML file of a declared form.

    Raises:
        InputError: if the file cannot be read.
        DataError: if it is not valid TOML, or not of this form; the message names the place.
    """
    try:
        table = tomllib.loads(contents(file))
        refuse_deep(table)
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        raise DataError(file, f"not valid TOML: {error}") from error
    except RecursionError as error:
        raise DataError(file, "not valid TOML: it is nested too deeply") from error
    return checked(kind, table, file)


def read_json_form(kind: type[Declared], path: Path, *, missing: str, remedy: str, name: str | None = None) -> Declared:
    """Read a JSON file that sentcli wrote, whose form is a dataclass; numbers stay numbers and texts texts.

    Args:
        kind: the dataclass.
        path: the file.
        missing: the error message if the file is missing.
        remedy: what the user can do about a damaged file; ends the error message.
        name: of the file in the messages; None takes the path.

    Raises:
        InputError: if the file is missing or not valid JSON, or a field is missing or of another type.
    """
    name = name or str(path)
    try:
        text = contents(path)
        decode(text)
        return TypeAdapter(kind).validate_json(text, strict=True)
    except FileNotFoundError as error:
        raise InputError(missing) from error
    except OSError as error:
        raise InputError(f"cannot read {name}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is damaged (it is not UTF-8 text); {remedy}") from error
    except ValidationError as error:
        raise InputError(f"{name} is damaged ({problem_of(kind, error)}); {remedy}") from error
    except ValueError as error:
        raise InputError(f"{name} is damaged ({error}); {remedy}") from error


def checked(kind: type[Declared], value: Any, file: Path | str) -> Declared:
    """Return a value as the declared form, a pydantic model or a dataclass.

    Raises:
        DataError: if it does not have this form; the message names `file`.
    """
    try:
        form: Any = kind
        valid: Declared = _form(form).validate_python(value)
        return valid
    except ValidationError as error:
        raise DataError(file, problem_of(kind, error)) from error


@cache
def _form(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def problem_of(kind: Any, error: ValidationError) -> str:
    """Return a message about the first problem: its place in the file, and what was expected there."""
    problems = error.errors()
    first = next((problem for problem in problems if problem["type"] == "extra_forbidden"), problems[0])
    *parents, last = first["loc"] or ("",)
    place = ".".join(map(str, first["loc"]))
    match first["type"]:
        case "extra_forbidden" if not parents:
            keys = [field.alias or name for name, field in kind.model_fields.items()]
            return f"unknown key {last!r}{nearest(str(last), keys)}; one of: {', '.join(keys)}"
        case "missing":
            return f"{place} is missing"
        case "value_error":
            return f"{place}: {first['ctx']['error']}" if place else str(first["ctx"]["error"])
    expected = first["msg"].replace("Input should be", "must be")
    for pydantic_name, name in TYPE_NAMES.items():
        expected = expected.replace(f"valid {pydantic_name}", name)
    return f"{place + ':' if place else 'it'} {expected}, not {first['input']!r:.60}"
