"""``datasets.lock.json``: what was fetched from where, so that it can be checked from then on."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock

from sentcli.errors import InputError
from sentcli.io.json_files import write_json

LOCK_FILE = "datasets.lock.json"
WORK = ".downloads"
"""The folder of what is not finished, in the data folder."""
FORMAT = 1


@dataclass(frozen=True)
class Fetched:
    """A file as it was when it was fetched."""

    url: str
    """Or the path of a file that was given by hand."""
    sha256: str
    size: int
    date: str

    @classmethod
    def now(cls, url: str, sha256: str, size: int) -> Fetched:
        """Return one with the time of this moment (UTC)."""
        return cls(url, sha256, size, datetime.now(UTC).isoformat(timespec="seconds"))


def read(folder: Path) -> dict[str, Fetched]:
    """Return what is recorded, by path below the data folder; an archive by ``SET: NAME``.

    Raises:
        InputError: if the lock file is damaged.
    """
    path = folder / LOCK_FILE
    try:
        content: dict[str, Any] = json.loads(path.read_text("utf-8"))
        if content["format"] != FORMAT:
            raise InputError(f"{path} is of format {content['format']}, which this version does not know")
        return {key: Fetched(**entry) for key, entry in content["files"].items()}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} is damaged ({error}); delete it, and files without a checksum are pinned anew"
        ) from error


def record(folder: Path, entries: dict[str, Fetched]) -> None:
    """Add entries to the lock file; processes take turns."""
    with FileLock(folder / WORK / f"{LOCK_FILE}.lock"):
        known = {**read(folder), **entries}
        files = {key: asdict(known[key]) for key in sorted(known)}
        write_json(folder / LOCK_FILE, {"format": FORMAT, "files": files})
