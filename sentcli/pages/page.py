"""What a page is made of, whatever it is written as: a list of sections with text, a table, a figure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sentcli.table import Table

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Figure:
    """A figure that is drawn when it is needed."""

    name: str
    title: str
    draw: Callable[[], Any]
    data: pd.DataFrame | None = None
    note: str = ""
    alt: str = ""


@dataclass(frozen=True)
class Section:
    """A part of a page."""

    title: str
    text: tuple[str, ...] = ()
    table: Table | None = None
    figure: Figure | None = None
    file: str = ""
    code: tuple[str, ...] = ()
    level: int = 2
    folded: bool = False


@dataclass(frozen=True)
class Page:
    """A report."""

    title: str
    sections: tuple[Section, ...]
    text: tuple[str, ...] = ()


@dataclass(frozen=True)
class Style:
    """How a page is written."""

    bold: bool = True
    intervals: bool | None = None
