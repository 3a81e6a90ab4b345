"""Figures as files, and as SVG within a page, where they take the page's colours."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sentcli.figures import style
from sentcli.figures.draw import drawn
from sentcli.figures.figure import COLUMNS, Figure

FORMATS = (".png", ".svg")
STYLE = re.compile(r' style="([^"]*)"')
OWN_ID = re.compile(r' id="[\w.]+_\d+"')
"""Names that matplotlib gives to its parts: nothing refers to them, and two figures of a page would have the same."""


def save(figure: Figure, folder: Path) -> list[Path]:
    """Write a figure as PNG and SVG, and what it shows as CSV; return the files.

    Args:
        figure: what is drawn.
        folder: is there.
    """
    paths = [folder / f"{figure.name}{suffix}" for suffix in FORMATS]
    with drawn(figure, figure.panels, figure.columns) as canvas:
        for path in paths:
            about = {"Title": figure.title, "Description": figure.alt}
            if path.suffix == ".svg":
                about |= {"Date": None}  # type: ignore[dict-item]  # the same bytes every time
            canvas.savefig(path, metadata=about)
    return [
        *paths,
        save_rows(folder / f"{figure.name}.csv", COLUMNS, [[r.get(c) for c in COLUMNS] for r in figure.rows()]),
    ]


def save_rows(path: Path, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Path:
    """Write a table as CSV; None is empty."""
    with path.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([["" if cell is None else _plain(cell) for cell in row] for row in rows])
    return path


def _plain(cell: Any) -> Any:
    """Return a number as Python has it: NumPy's have no more digits than they mean."""
    return cell.item() if hasattr(cell, "item") else cell


def inline(figure: Figure) -> list[str]:
    """Return an SVG for each panel, which scales to its place and has the colours of the page around it."""
    found = []
    for panel in figure.panels:
        buffer = io.StringIO()
        with drawn(figure, (panel,), 1) as canvas:
            canvas.savefig(buffer, format="svg", transparent=True)
        found.append(_adapted(buffer.getvalue()))
    return found


def _adapted(svg: str) -> str:
    """Return an SVG without what a page has itself or forbids: header, metadata, styles, sizes, fonts."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r"<style[^>]*>.*?</style>", "", body, flags=re.DOTALL)
    view = re.search(r'viewBox="([^"]*)"', body)
    assert view is not None
    head = (
        f'<svg class="drawn" viewBox="{view[1]}" aria-hidden="true" stroke-linejoin="round" '
        'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">'
    )
    body = head + body[body.index(">") + 1 :]
    body = STYLE.sub(_attributes, OWN_ID.sub("", body))
    for colour, name in style.VARIABLES.items():
        body = body.replace(f'"{colour}"', f'"var(--{name})"')
    return body


def _attributes(found: re.Match[str]) -> str:
    """Return a style as attributes: a page's policy forbids styles, and the page chooses the font."""
    pairs = [part.split(":", 1) for part in found[1].split(";") if ":" in part]
    kept = [(key.strip(), value.strip()) for key, value in pairs if key.strip() != "font-family"]
    return "".join(f' {key}="{value}"' for key, value in kept)
