"""The look of figures, in the colours of the pages, which colour-blind readers can tell apart (Okabe and Ito, 2008)."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli.printable import safe

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

PAPER = "#ffffff"
INK = "#1b1f24"
QUIET = "#59636e"
GRID = "#d5dae0"
COLOURS = ("#0072b2", "#c84e00", "#00805e", "#b5478a", "#9a6700", "#6250b8")
"""The colours ``--c0`` to ``--c5`` of ``templates/page.css``, which has others for a dark page."""
MARKERS = ("o", "s", "D", "^", "v")
DASHES = ("solid", (0, (5, 2)), (0, (1.5, 1.5)), (0, (5, 2, 1.5, 2)))
"""The numbers of colours and markers have no common factor, so that many series differ in at least one of them."""
LINE_WIDTH = 0.01
"""The width of a line as a share of the height of its axes."""
MOST_MARKERS = 60
"""A line with more points than this has no markers."""
LONGEST_NAME = 300
"""A legend has at most so many characters of a name."""
IN_TURNS = "in turns where equal"
"""The entry of a legend that explains lines which lie on each other."""
VARIABLES = {PAPER: "paper", INK: "ink", QUIET: "quiet", GRID: "line"}
VARIABLES |= {colour: f"c{number}" for number, colour in enumerate(COLOURS)}
"""The variable of the page's style sheet that replaces each colour."""
SHEET = Path(__file__).parent / "templates" / "figures.mplstyle"
"""The style sheet of matplotlib."""
CENTRE: dict[str, Any] = {"s": 60, "edgecolors": INK, "linewidths": 1.2, "zorder": 3}
"""The look of a centroid in a scatter plot."""


def colour(series: int) -> str:
    """Return the colour of a series, the same in all panels."""
    return COLOURS[series % len(COLOURS)]


def marker(series: int) -> str:
    """Return the marker of a series."""
    return MARKERS[series % len(MARKERS)]


def line(series: int, *, markers: bool = True) -> dict[str, Any]:
    """Return colour, dashes and marker of a series, as ``Axes.plot`` takes them."""
    rounds = series // len(COLOURS)
    look = {"color": colour(series), "linestyle": DASHES[rounds % len(DASHES)], "marker": ""}
    if markers:
        look["marker"] = marker(series)
    return look


def dots(series: int, count: int) -> dict[str, Any]:
    """Return the look of a series with `count` points, as ``Axes.scatter`` takes it."""
    size = 14 if count <= 500 else 7
    return {"color": colour(series), "marker": marker(series), "s": size, "alpha": 0.6, "linewidths": 0}


def lines(axes: Axes, data: pd.DataFrame, names: Sequence[str]) -> None:
    """Draw the lines of a frame, and the bands of those that have one.

    Args:
        axes: of the panel.
        data: columns series, x and y, and low and high for the ends of a band.
        names: of all series of the figure, since a series looks the same in all panels.
    """
    parts = {str(name): part for name, part in data.groupby("series", sort=False)}
    turns = _turns(data, log=axes.get_yscale() == "log")
    for name, part in parts.items():
        number = names.index(name)
        x = part["x"].infer_objects()
        if "low" in part and part["low"].notna().any():
            low = part["low"].astype(float)
            high = part["high"].astype(float)
            axes.fill_between(x, low, high, color=colour(number), alpha=0.2, linewidth=0)
        look = line(number, markers=len(part) <= MOST_MARKERS)
        if name in turns:
            look |= turns[name]
        axes.plot(x, part["y"], label=name, **look)
    if turns:
        axes.plot([], [], linestyle="", label=IN_TURNS)


def error_bars(axes: Axes, data: pd.DataFrame, names: Sequence[str]) -> None:
    """Draw the points of some series with the ends of their intervals, given as for `lines`."""
    for number, name in enumerate(names):
        part = data[data["series"] == name]
        y = part["y"]
        look: dict[str, Any] = {"color": colour(number), "marker": marker(number), "linestyle": ""}
        whiskers = [y - part["low"], part["high"] - y]
        axes.errorbar(part["x"], y, yerr=whiskers, label=name, elinewidth=0.8, **look)


def _turns(data: pd.DataFrame, *, log: bool) -> dict[str, dict[str, Any]]:
    """Return the look of each of the lines that lie on another one.

    Lines lie on each other if they have the same places, at which they differ by less than their width.
    """
    import numpy as np

    heights = data["y"].to_numpy(float)
    if log:
        with np.errstate(all="ignore"):
            heights = np.log(heights)
    finite = heights[np.isfinite(heights)]
    width = LINE_WIDTH * float(np.ptp(finite)) if len(finite) else 0.0
    groups: list[tuple[list[Any], Any, list[str]]] = []  # places and heights of a line, and all that lie on it
    for name, part in data.assign(height=heights).groupby("series", sort=False):
        places = list(part["x"])
        own = part["height"].to_numpy()
        for of_group, height, members in groups:
            if places == of_group and np.allclose(own, height, rtol=0, atol=width, equal_nan=True):
                members.append(str(name))
                break
        else:
            groups.append((places, own, [str(name)]))
    turns = {}
    dash = 4.0  # in widths of the line
    for _, _, members in groups:
        count = len(members)
        if count == 1:
            continue
        pattern = (dash, dash * (count - 1))
        for turn, member in enumerate(members):  # each has dashes and markers where the others have none
            offset = dash * (count - turn) % (dash * count)
            turns[member] = {"linestyle": (offset, pattern), "markevery": (turn, count), "dash_capstyle": "butt"}
    return turns


def line_panels(
    data: pd.DataFrame, panels: Mapping[str, Mapping[str, Any]], names: Sequence[str] = (), *, whole: bool = False
) -> dict[str, Callable[[Axes], object]]:
    """Return a function for each panel that draws its lines.

    Args:
        data: columns panel, series, x and y, and low and high for the ends of a band.
        panels: the arguments of ``Axes.set`` for each panel; its title is its name.
        names: of all series, which look the same in all panels; if empty, each panel counts its own series.
        whole: label the x axis with whole numbers only.
    """
    words = [place for place in data["x"].unique() if isinstance(place, str)]

    def draw(panel: str, axes: Axes) -> None:
        own = data[data["panel"] == panel]
        axes.set(**{"title": panel, **panels[panel]})
        if words:
            axes.xaxis.update_units(words)  # type: ignore[no-untyped-call]  # the order, where a panel lacks some
        lines(axes, own, names or list(own["series"].unique()))
        if words:
            word_ticks(axes, words)
        if whole:
            whole_numbers(axes)
        if axes.get_xscale() == "log":
            plain_log_ticks(axes.xaxis, own["x"])
        if axes.get_yscale() == "log":
            plain_log_ticks(axes.yaxis)

    return {panel: partial(draw, panel) for panel in panels}


def short_label(name: object, longest: int = 60) -> str:
    """Return a name for a legend or beside a point, without control characters, cut to a length in characters."""
    text = safe(str(name))
    if len(text) <= longest:
        return text
    return f"{text[: longest - 1]}\N{HORIZONTAL ELLIPSIS}"


def word_ticks(axes: Axes, words: Sequence[str]) -> None:
    """Write a word at each of the first places of the x axis, turned where one is long."""
    turned: dict[str, Any] = {}
    if max(map(len, words)) > 4:
        turned = {"rotation": 45, "ha": "right"}
    axes.set_xticks(range(len(words)), list(map(short_label, words)), **turned)
    axes.xaxis.grid(visible=False)


def wrapped(name: object, room: float) -> str:
    """Return a name on as many lines as it needs; what tells it from others often stands at its end.

    Args:
        name: of a series or a panel.
        room: the characters that a line has room for.
    """
    return "\n".join(textwrap.wrap(short_label(name, LONGEST_NAME), max(10, int(room)), break_on_hyphens=False))


def whole_numbers(axes: Axes) -> None:
    """Label the x axis with whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))


def plain_number(value: float) -> str:
    """Return a number as short as it can be written, such as 1e-5."""
    return f"{value:g}".replace("e-0", "e-")


def plain_log_ticks(axis: Any, values: Iterable[float] = ()) -> None:
    """Label a logarithmic axis with plain numbers, also between the powers of ten if it spans few of them.

    Args:
        axis: the axis.
        values: at which there are points; if they are few, they are the ticks.
    """
    from matplotlib.ticker import LogLocator, MaxNLocator

    places = sorted(set(values))
    low, high = sorted(axis.get_view_interval())
    if 1 < len(places) <= 6:
        axis.set_ticks(places)
    elif low > 0 and high / low <= 5:
        axis.set_major_locator(MaxNLocator(5))
    elif low > 0 and high / low < 100:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(lambda value, _: plain_number(value))
    axis.set_minor_formatter(lambda *_: "")


def limits(*arrays: Any) -> tuple[float, float]:
    """Return the ends of an axis that several panels share, a little beyond the least and the greatest value."""
    low = float(min(map(min, arrays)))
    high = float(max(map(max, arrays)))
    margin = 0.04 * (high - low) or 0.04
    return low - margin, high + margin


def colour_bar(axes: Axes, colours: Any, label: str, *, log: bool = False) -> None:
    """Draw the scale of a panel's colours beside it."""
    bar = axes.get_figure(root=False).colorbar(colours, ax=axes, label=label)  # type: ignore[union-attr]
    bar.outline.set_visible(False)
    if log:
        plain_log_ticks(bar.ax.yaxis)
