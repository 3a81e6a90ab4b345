"""JSON and TOML files: read and checked against a declared form, a pydantic model or a dataclass, and written.

The first problem becomes one message with its place in the file; the rest of the package trusts the values. A file is
written whole or not at all.
"""

from __future__ import annotations

import errno
import json
import math
import re
import sys
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from annotated_types import Ge, Le

from sentcli.errors import DataError, InputError, nearest
from sentcli.io.atomic import regular, replacing
from sentcli.io.typed import UndecidedError, ValueCheck, made
from sentcli.printable import as_text, escaped, without_secrets

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

DEEPEST = 100
"""The most levels of lists and objects in each other."""
LARGEST_FILE = 2**28
"""The most bytes that a JSON or TOML file may have."""


def contents(path: Path) -> str:
    """Return the text of a file that is read whole.

    Raises:
        OSError: if it is missing, cannot be read, is no regular file (a pipe would be waited for), or is far too large.
        UnicodeDecodeError: if it is no UTF-8.
    """
    size = regular(path).st_size
    if size > LARGEST_FILE:
        raise OSError(errno.EFBIG, f"it has {size:,} bytes, which is too large", str(path))
    return path.read_text("utf-8")


def decode(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: if it is not valid JSON, is nested too deeply, or holds half of a surrogate pair, which is no text.
    """
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError("it holds half of a surrogate pair (\\ud800 to \\udfff), which is no text") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    refuse_deep(value)
    return value


def refuse_deep(value: Any) -> None:
    """Refuse lists and objects in each other that the code behind would not go through.

    Raises:
        ValueError: if there are more than `DEEPEST` levels of them.
    """
    level = [value]
    for _ in range(DEEPEST + 1):
        inner: list[Any] = []
        for part in level:
            if isinstance(part, dict):
                inner.extend(part.values())
            elif isinstance(part, list):
                inner.extend(part)
        level = inner
    if level:
        raise ValueError("it is nested too deeply")


def read_json(path: Path, missing: str | None = None, *, default: Any = None) -> Any:
    """Read a JSON file.

    Args:
        path: the file.
        missing: the error message if the file is missing.
        default: is returned if the file is missing, instead of an error.

    Raises:
        InputError: if the file is missing, cannot be read or is not valid JSON.
    """
    try:
        return decode(contents(path))
    except FileNotFoundError as error:
        if default is not None and not path.is_symlink():
            return default
        raise InputError(missing or f"{path} is missing") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path} is not valid JSON: {error}") from error


_HALF_OF_A_PAIR = re.compile("[\ud800-\udfff]")


def write_json(target: Path | str, value: Any) -> None:
    """Write indented JSON to a file, atomically, or to standard output (``-``).

    A byte of a file's name that is no UTF-8 stands as the text that `as_text` makes of it.

    Raises:
        ValueError: for a number that JSON cannot hold; see `finite`.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    text = _HALF_OF_A_PAIR.sub(lambda half: "\\" + as_text(half[0]), text)
    if target == "-":
        sys.stdout.write(escaped(text))
        sys.stdout.flush()
        return
    path = Path(target)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(text, "utf-8")


def finite(value: Any) -> Any:
    """Replace numbers that JSON cannot hold by null."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return list(map(finite, value))
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


LARGEST_NUMBER = 1e100


def _plain(value: Any) -> Any:
    """Refuse numbers with which sums, squares and axes of figures would overflow, and those that are not finite."""
    if isinstance(value, dict):
        for item in value.values():
            _plain(item)
    elif isinstance(value, list):
        for item in value:
            _plain(item)
    elif isinstance(value, int | float) and not abs(value) <= LARGEST_NUMBER:
        raise ValueError(f"{value:.3g} is no number that a run gives")
    return value


Plain = Annotated[Any, ValueCheck(_plain)]
"""Any value of JSON without numbers that overflow."""
Number = Annotated[float, Ge(-LARGEST_NUMBER), Le(LARGEST_NUMBER)]
Declared = TypeVar("Declared")
UNKNOWN_KEY = ("extra_forbidden", "unexpected_keyword_argument")
"""What pydantic calls a key that a model or a dataclass does not have."""
TYPE_NAMES = {
    "a valid dictionary": "a table",
    "a dictionary": "a table",
    "a valid string": "a text in quotes",
    "a valid integer": "a whole number",
    "a valid list": "a list",
}
"""The names of types in messages, by pydantic's names."""


def read_toml(kind: type[Declared], file: Path) -> Declared:
    """Read a TOML file of a declared form.

    Raises:
        InputError: if the file cannot be read.
        DataError: if it is not valid TOML, or not of this form; the message names the place.
    """
    import tomllib

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
        form: Declared = _strictly(kind, contents(path))
        return form
    except FileNotFoundError as error:
        raise InputError(missing) from error
    except OSError as error:
        raise InputError(f"cannot read {name}: {error.strerror}") from error
    except ValueError as error:
        problem = str(error)
        if isinstance(error, UnicodeDecodeError):
            problem = "it is not UTF-8 text"
        raise InputError(f"{name} is damaged ({problem}); {remedy}") from error


def _strictly(kind: Any, text: str) -> Any:
    """Return a JSON text as a dataclass, without any conversion of what stands there.

    Raises:
        ValueError: if it is not valid JSON, or does not have this form.
    """
    value = decode(text)
    try:
        return made(kind, value)
    except UndecidedError:
        from pydantic import ValidationError
    try:
        return adapter_of(kind).validate_json(text, strict=True)
    except ValidationError as error:
        raise ValueError(problem_of(kind, error)) from error


def checked(kind: type[Declared], value: Any, file: Path | str) -> Declared:
    """Return a value as the declared form, a pydantic model or a dataclass.

    Raises:
        DataError: if it does not have this form; the message names `file`.
    """
    form: Any = kind
    try:
        valid: Declared = made(form, value)
        return valid
    except UndecidedError:
        from pydantic import ValidationError
    try:
        valid = adapter_of(form).validate_python(value)
        return valid
    except ValidationError as error:
        raise DataError(file, problem_of(kind, error)) from error


@cache
def adapter_of(kind: Any) -> TypeAdapter[Any]:
    """Return what of pydantic judges values of a declared form; it is built once for each form."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def problem_of(kind: Any, error: ValidationError) -> str:
    """Return a message about the first problem: its place in the file, and what was expected there."""
    problems = error.errors()
    first = next((problem for problem in problems if problem["type"] in UNKNOWN_KEY), problems[0])
    parts = first["loc"]
    place = ".".join(map(str, parts))
    match first["type"]:
        case "extra_forbidden" | "unexpected_keyword_argument" if len(parts) == 1:
            keys = _keys(kind)
            return f"unknown key {parts[0]!r}{nearest(str(parts[0]), keys)}; one of: {', '.join(keys)}"
        case "missing":
            return f"{place} is missing"
        case "value_error":
            problem = str(first["ctx"]["error"])
            return f"{place}: {problem}" if place else problem
        case "extra_forbidden" | "unexpected_keyword_argument":
            return f"{place} is an unknown key"
    expected = re.sub(" or (an )?instance of .*", "", first["msg"]).replace("Input should be", "must be")
    for pydantic_name, name in TYPE_NAMES.items():
        expected = expected.replace(pydantic_name, name)
    subject = f"{place}:" if place else "it"
    value = without_secrets(repr(first["input"]), of_host=True)
    return f"{subject} {expected}, not {value:.60}"


def _keys(kind: Any) -> list[str]:
    """Return the keys that a file of a declared form may have."""
    if is_dataclass(kind):
        return [field.name for field in fields(kind)]
    return [field.alias or name for name, field in kind.model_fields.items()]
