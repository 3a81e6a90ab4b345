"""How figures look: colours of the pages, told apart also by the colour-blind (after Okabe and Ito, 2008)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli.printable import safe

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

PAPER, INK, QUIET, GRID = "#ffffff", "#1b1f24", "#59636e", "#d5dae0"
COLOURS = ("#0072b2", "#c84e00", "#00805e", "#b5478a", "#9a6700", "#6250b8")
"""As ``--c0`` to ``--c5`` of ``templates/page.css``, where a dark page has its own."""
MARKERS = ("o", "s", "D", "^", "v")
DASHES = ("solid", (0, (5, 2)), (0, (1.5, 1.5)), (0, (5, 2, 1.5, 2)))
"""Colours, markers and dashes have no common factor: many series differ in one of them."""
VARIABLES = {PAPER: "paper", INK: "ink", QUIET: "quiet", GRID: "line", **{c: f"c{i}" for i, c in enumerate(COLOURS)}}
"""Colour to the variable of a page that takes its place."""
SHEET = Path(__file__).parent / "templates" / "figures.mplstyle"
"""Matplotlib's settings."""
LONGEST = 40
"""Characters of a name in a legend or beside a point."""
CENTRE: dict[str, Any] = {"s": 60, "edgecolors": INK, "linewidths": 1.2, "zorder": 3}
"""A large point of a scatter plot that stands for many."""


def colour(series: int) -> str:
    """Return the colour of a series, the same in all panels."""
    return COLOURS[series % len(COLOURS)]


def marker(series: int) -> str:
    """Return the marker of a series."""
    return MARKERS[series % len(MARKERS)]


def line(series: int, *, markers: bool = True) -> dict[str, Any]:
    """Return colour, dashes and marker of a series, as ``Axes.plot`` takes them."""
    dashes = DASHES[series // len(COLOURS) % len(DASHES)]
    return {"color": colour(series), "linestyle": dashes, "marker": marker(series) if markers else ""}


def dots(series: int, count: int) -> dict[str, Any]:
    """Return the look of so many points of a series, as ``Axes.scatter`` takes it."""
    size = 14 if count <= 500 else 7
    return {"color": colour(series), "marker": marker(series), "s": size, "alpha": 0.6, "linewidths": 0}


def lines(axes: Axes, data: pd.DataFrame, names: Sequence[str], *, markers: bool = True) -> None:
    """Draw the lines of a frame, and a band around those that have one.

    Args:
        axes: where.
        data: series, x and y; low and high are the ends of a band.
        names: of all series of the figure: a series looks the same in all panels.
        markers: draw the points, too.
    """
    for name, part in data.groupby("series", sort=False):
        look, x = line(names.index(name), markers=markers), part["x"].infer_objects()
        if "low" in part and part["low"].notna().any():
            band = part[["low", "high"]].astype(float)
            axes.fill_between(x, band["low"], band["high"], color=look["color"], alpha=0.2, linewidth=0)
        axes.plot(x, part["y"], label=short(name), **look)


def line_panels(
    data: pd.DataFrame,
    panels: Mapping[str, Mapping[str, Any]],
    names: Sequence[str] = (),
    *,
    markers: bool = True,
    whole: bool = False,
) -> list[Callable[[Axes], None]]:
    """Return for each panel a function that draws the lines of a frame there.

    Args:
        data: panel, series, x and y; low and high are the ends of a band.
        panels: a panel of the frame to what is set on its axes, in the words of ``Axes.set``; its title is its name.
        names: of all series, which look the same in all panels; without them, those of each panel.
        markers: draw the points, too.
        whole: label the x axis with whole numbers only.
    """

    def draw(panel: str, axes: Axes) -> None:
        own = data[data["panel"] == panel]
        lines(axes, own, names or list(own["series"].unique()), markers=markers)
        axes.set(**{"title": panel, **panels[panel]})
        if whole:
            whole_numbers(axes)
        for axis in (axes.xaxis, axes.yaxis):
            if axis.get_scale() == "log":
                plain_log_ticks(axis)

    return [partial(draw, panel) for panel in panels]


def short(name: object, longest: int = LONGEST) -> str:
    """Return a name as a figure shows it: without control characters, and cut."""
    text = safe(str(name))
    return text if len(text) <= longest else f"{text[: longest - 1]}\N{HORIZONTAL ELLIPSIS}"


def whole_numbers(axes: Axes) -> None:
    """Label the x axis with whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))


def log_axis(axes: Axes, which: str) -> None:
    """Make the ``x`` or ``y`` axis logarithmic, with plain numbers beside it."""
    getattr(axes, f"set_{which}scale")("log")
    plain_log_ticks(getattr(axes, f"{which}axis"))


def plain_log_ticks(axis: Any) -> None:
    """Label a logarithmic axis with plain numbers; one that spans few decades also between the powers of ten."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    low, high = sorted(axis.get_view_interval())
    if low > 0 and high / low < 100:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)) if high / low > 5 else MaxNLocator(5))
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(lambda *_: "")


def limits(*arrays: Any, room: float = 0.04) -> tuple[float, float]:
    """Return the ends of an axis that several panels share, with some room beyond the values."""
    low, high = (float(pick(pick(array) for array in arrays)) for pick in (min, max))
    margin = room * (high - low) or room
    return low - margin, high + margin


def colour_bar(axes: Axes, colours: Any, label: str, *, log: bool = False) -> None:
    """Draw what the colours of a panel mean beside it."""
    bar = axes.get_figure(root=False).colorbar(colours, ax=axes, label=label)  # type: ignore[union-attr]
    bar.outline.set_visible(False)
    if log:
        plain_log_ticks(bar.ax.yaxis)
