"""What has come of a file so far: ``NAME.part``, and beside it a note of whose bytes they are."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli.data.registry import Pin

if TYPE_CHECKING:
    import httpx2


@dataclass(frozen=True)
class PartialFile:
    """A file that is not whole yet, or not checked."""

    path: Path

    @property
    def size(self) -> int:
        """Return how many bytes are there."""
        return self.path.stat().st_size if self.path.exists() else 0

    def usable(self, source: str, pin: Pin) -> int:
        """Return how many bytes can be gone on with.

        With a checksum to compare at the end, those of any source; else only those of the same one, if it can tell
        whether the file is still the same.
        """
        trusted = pin.checks or self.validator(source) is not None
        return self.size if trusted and (pin.size is None or self.size <= pin.size) else 0

    def validator(self, source: str) -> str | None:
        """Return by what a source told which file it was giving, if the bytes are its."""
        note = self._noted()
        return note.get("validator") if note.get("url") == source else None

    def remember(self, source: str, answer: httpx2.Response) -> None:
        """Note whose bytes they are."""
        self._note.write_text(json.dumps({"url": source, "validator": validator(answer)}), "utf-8")

    def forget(self) -> None:
        """Delete it."""
        self.path.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)

    @property
    def _note(self) -> Path:
        return self.path.with_name(f"{self.path.name}.json")

    def _noted(self) -> dict[str, Any]:
        try:
            note = json.loads(self._note.read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return note if isinstance(note, dict) else {}


def validator(answer: httpx2.Response) -> str | None:
    """Return by what an answer tells that the file is still the same: a strong ETag, or a date."""
    tag: str = answer.headers.get("ETag", "")
    return tag if tag and not tag.startswith("W/") else answer.headers.get("Last-Modified")


def finish(path: Path, target: Path) -> None:
    """Give a checked file its final name."""
    with path.open("rb") as handle:
        os.fsync(handle.fileno())
    target.parent.mkdir(parents=True, exist_ok=True)
    path.replace(target)
    PartialFile(path).forget()
