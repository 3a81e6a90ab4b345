"""What the rows of a corpus are to those of a store, by their ids: as before, changed, new, or gone from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sentcli import console

if TYPE_CHECKING:
    from sentcli.arrays import BoolArray
    from sentcli.stores.row_vectors import RowVectors

_SAMPLE_TEXTS = 64
"""The most texts by which the time of encoding is told before anything is written: as far apart as there are many."""


@dataclass(frozen=True)
class Changes:
    """How many rows have changed, and what has to be encoded of them."""

    kept: int = 0
    """The rows that are there with the same text and columns."""
    changed: int = 0
    new: int = 0
    gone: int = 0
    """The rows of the store that the corpus does not have."""
    texts: int = 0
    """The distinct texts that the store does not have, which are encoded."""
    characters: int = 0
    """The characters of these texts."""
    sample: tuple[str, ...] = ()
    """Some of them, to measure the time that they take."""

    def __str__(self) -> str:
        rows = self.kept + self.changed + self.new
        return (
            f"{rows:,} rows: {self.kept:,} as before, {self.changed:,} changed, {self.new:,} new, {self.gone:,} gone; "
            f"{self.texts:,} texts encoded"
        )

    def to_dict(self) -> dict[str, int]:
        """Return the JSON form, which is the same for every store."""
        return {
            "kept": self.kept,
            "changed": self.changed,
            "new": self.new,
            "gone": self.gone,
            "encoded": self.texts,
        }

    def announced(self, title: str, vectors: RowVectors) -> dict[str, Any]:
        """Say what an update would change and how long it would take, and return that as JSON.

        Args:
            title: of the store.
            vectors: what makes the vectors of new texts.
        """
        seconds = 0.0
        if self.sample:
            sampled = max(sum(map(len, self.sample)), 1)
            seconds = vectors.seconds(self.sample) * self.characters / sampled
        console.note(f"{title}: {self}, in about {seconds:,.0f} s; nothing was written (--dry-run)")
        return {**self.to_dict(), "seconds_estimated": seconds}


class ChangeCount:
    """Counts what rows are to those of a store, block by block."""

    def __init__(self) -> None:
        self.kept = self.changed = self.new = 0
        self.characters = 0
        self.sample: list[str] = []
        self._apart = 1
        """How many texts lie between two of the sample."""
        self._digests: set[bytes] = set()
        """Those of the texts that the store does not have."""

    @property
    def rows(self) -> int:
        """The number of rows that were counted."""
        return self.kept + self.changed + self.new

    def add_rows(self, is_there: BoolArray, is_same: BoolArray) -> None:
        """Count rows.

        Args:
            is_there: whether the store has the id of each ``[rows]``.
            is_same: whether it has the row as it is ``[rows]``.
        """
        kept, there = int(is_same.sum()), int(is_there.sum())
        self.kept += kept
        self.changed += there - kept
        self.new += len(is_there) - there

    def add_texts(self, texts: Iterable[tuple[str, bytes]]) -> None:
        """Count texts that the store does not have, with their digests; each counts once."""
        for text, digest in texts:
            if digest in self._digests:
                continue
            if len(self._digests) % self._apart == 0:
                self.sample.append(text)
            if len(self.sample) == _SAMPLE_TEXTS:
                self.sample = self.sample[::2]
                self._apart *= 2
            self._digests.add(digest)
            self.characters += len(text)

    def total(self, gone: int) -> Changes:
        """Return the counts, given the number of rows that the corpus does not have."""
        texts = len(self._digests)
        return Changes(self.kept, self.changed, self.new, gone, texts, self.characters, tuple(self.sample))
