"""Read JSON files with clear error messages, and write them whole or not at all."""

from __future__ import annotations

import errno
import json
import math
import sys
from pathlib import Path
from typing import Any

from sentcli.console import escaped
from sentcli.errors import InputError
from sentcli.io.atomic import regular, replacing

LARGEST = 256 * 2**20
"""The most bytes that a JSON or TOML file may have."""
DEEPEST = 100
"""The most levels of lists and objects in each other."""


def contents(path: Path) -> str:
    """Return the text of a file that is read whole.

    Raises:
        OSError: if it is missing, cannot be read, is no regular file (a pipe would be waited for), or is far too large.
        UnicodeDecodeError: if it is no UTF-8.
    """
    size = regular(path).st_size
    if size > LARGEST:
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
        inner = [part.values() if isinstance(part, dict) else part for part in level if isinstance(part, (dict, list))]
        level = [item for items in inner for item in items]
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


def write_json(target: Path | str, value: Any) -> None:
    """Write indented JSON to a file, atomically, or to standard output (``-``).

    Raises:
        ValueError: for a number that JSON cannot hold; see `finite`.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    if target == "-":
        sys.stdout.write(escaped(text))
        sys.stdout.flush()
        return
    path = Path(target)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        # a file name may hold bytes that are no UTF-8
        temporary.write_text(text, "utf-8", errors="backslashreplace")


def finite(value: Any) -> Any:
    """Replace numbers that JSON cannot hold by null."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
