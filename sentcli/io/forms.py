"""Check files that people or earlier runs wrote against a declared form, a pydantic model or a dataclass.

The first problem becomes one message with its place in the file; the rest of the package trusts the values.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from sentcli.errors import DataError, InputError, nearest

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
        table = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(file, f"not valid TOML: {error}") from error
    return checked(kind, table, file)


def read_json_form(kind: type[Declared], path: Path, *, missing: str, remedy: str) -> Declared:
    """Read a JSON file that sentcli wrote, whose form is a dataclass.

    Args:
        kind: the dataclass.
        path: the file.
        missing: the error message if the file is missing.
        remedy: what the user can do about a damaged file; ends the error message.

    Raises:
        InputError: if the file is missing or not valid JSON, or a field is missing or of another type.
    """
    try:
        return TypeAdapter(kind).validate_json(path.read_bytes())
    except FileNotFoundError as error:
        raise InputError(missing) from error
    except ValidationError as error:
        raise InputError(f"{path} is damaged ({_problem(kind, error)}); {remedy}") from error


def checked(kind: type[Form], value: Any, file: Path | str) -> Form:
    """Return a value as the declared form.

    Raises:
        DataError: if it does not have this form; the message names `file`.
    """
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise DataError(file, _problem(kind, error)) from error


def _problem(kind: Any, error: ValidationError) -> str:
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
    return f"{place}: {expected}, not {first['input']!r:.60}"
