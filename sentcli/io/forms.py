"""Files that people or earlier runs wrote, held against a declared form: a pydantic model says what may stand in them.

Inside of the package the values are trusted; here one place turns what is wrong into one message.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from sentcli.errors import DataError, InputError, nearest

Form = TypeVar("Form", bound=BaseModel)
Declared = TypeVar("Declared")
NAMES = {"dictionary": "table", "string": "text in quotes", "integer": "whole number", "list": "list"}
"""What pydantic calls a type, and people."""


def read_toml(kind: type[Form], file: Path) -> Form:
    """Read a TOML file.

    Raises:
        InputError: if there is no such file; DataError, with the place, if it is not of this form.
    """
    try:
        table = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(file, f"not valid TOML: {error}") from error
    return checked(kind, table, file)


def read_json_form(kind: type[Declared], path: Path, *, missing: str, remedy: str) -> Declared:
    """Read a JSON file of the program's own, whose form is a dataclass.

    Args:
        kind: the dataclass.
        path: of the file.
        missing: the message for a file that is not there.
        remedy: what to do about a damaged file; it ends the message.

    Raises:
        InputError: if the file is missing or torn, or a field of it is missing or of another type.
    """
    try:
        return TypeAdapter(kind).validate_json(path.read_bytes())
    except FileNotFoundError as error:
        raise InputError(missing) from error
    except ValidationError as error:
        raise InputError(f"{path} is damaged ({_problem(kind, error)}); {remedy}") from error


def checked(kind: type[Form], value: Any, file: Path | str) -> Form:
    """Return a value as the form that it should have; `file` is named in the message."""
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise DataError(file, _problem(kind, error)) from error


def _problem(kind: Any, error: ValidationError) -> str:
    """Return the first thing that is wrong: where, and what was expected there."""
    problems = error.errors()
    first = next((each for each in problems if each["type"] == "extra_forbidden"), problems[0])
    *parents, last = first["loc"] or ("",)
    place = ".".join(map(str, first["loc"]))
    match first["type"]:
        case "extra_forbidden" if not parents:
            known = [field.alias or name for name, field in kind.model_fields.items()]
            return f"unknown key {last!r}{nearest(str(last), known)}; one of: {', '.join(known)}"
        case "missing":
            return f"{place} is missing"
        case "value_error":
            return f"{place}: {first['ctx']['error']}" if place else str(first["ctx"]["error"])
    expected = first["msg"].replace("Input should be", "must be")
    for theirs, ours in NAMES.items():
        expected = expected.replace(f"valid {theirs}", ours)
    return f"{place}: {expected}, not {first['input']!r:.60}"
