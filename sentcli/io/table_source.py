"""Rows that are read as tables of Arrow, wherever they are kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol


class TableSource(Protocol):
    """The rows of a corpus, with id and text."""

    @property
    def schema(self) -> dict[str, Any]:
        """The Arrow types of all columns by name."""

    def __len__(self) -> int: ...

    def tables(self, names: Sequence[str]) -> Iterator[Any]:
        """Yield all rows with some columns."""
