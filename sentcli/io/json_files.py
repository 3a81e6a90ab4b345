"""Read JSON files with clear error messages, and write them whole or not at all."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

from sentcli.errors import InputError
from sentcli.io.atomic import replacing


def read_json(path: Path, missing: str | None = None, *, default: Any = None) -> Any:
    """Read a JSON file.

    Args:
        path: the file.
        missing: the error message if the file is missing.
        default: is returned if the file is missing, instead of an error.

    Raises:
        InputError: if the file is missing or not valid JSON.
    """
    try:
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        if default is not None:
            return default
        raise InputError(missing or f"{path} is missing") from error
    except (ValueError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not valid JSON: {error}") from error


def write_json(target: Path | str, value: Any) -> None:
    """Write indented JSON to a file, atomically, or to standard output (``-``).

    Raises:
        ValueError: for a number that JSON cannot hold; see `finite`.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    if target == "-":
        sys.stdout.write(text)
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
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
