"""Colours and sizes of figures: those of the pages, told apart also by the colour-blind (after Okabe and Ito, 2008)."""

from __future__ import annotations

from typing import Any

PAPER, INK, QUIET, GRID = "#ffffff", "#1b1f24", "#59636e", "#d5dae0"
COLOURS = ("#0072b2", "#c84e00", "#00805e", "#b5478a", "#9a6700", "#6250b8")
"""As ``--c0`` to ``--c5`` of ``reports/templates/page.css``, where a dark page has its own."""
MARKERS = ("o", "s", "D", "^", "v")
DASHES = ("solid", (0, (5, 2)), (0, (1.5, 1.5)), (0, (5, 2, 1.5, 2)))
"""Colours, markers and dashes have no common factor: many series differ in one of them."""
SCALE = "viridis"
"""Of values: even steps of lightness."""
VARIABLES = {PAPER: "paper", INK: "ink", QUIET: "quiet", GRID: "line", **{c: f"c{i}" for i, c in enumerate(COLOURS)}}
"""Colour to the variable of a page that takes its place."""
PANEL = (4.6, 3.5)
"""Inches: a page shows a panel about this wide on a phone, and letters keep a readable size."""


def settings(salt: str) -> dict[str, Any]:
    """Return matplotlib's settings.

    Args:
        salt: makes ids within an SVG differ from those of other figures of a page, and the same every time.
    """
    return {
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "font.size": 9,
        "axes.titlesize": 10,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.labelsize": 9,
        "axes.edgecolor": QUIET,
        "axes.labelcolor": INK,
        "axes.titlecolor": INK,
        "axes.facecolor": "none",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "axes.grid": True,
        "grid.color": GRID,
        "grid.linewidth": 0.6,
        "xtick.color": QUIET,
        "ytick.color": QUIET,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "text.color": INK,
        "text.parse_math": False,
        "axes.unicode_minus": True,
        "legend.frameon": False,
        "legend.fontsize": 8.5,
        "lines.linewidth": 1.6,
        "lines.markersize": 4.5,
        "figure.facecolor": PAPER,
        "savefig.facecolor": PAPER,
        "savefig.dpi": 200,
        "svg.fonttype": "none",
        "svg.hashsalt": salt,
    }
