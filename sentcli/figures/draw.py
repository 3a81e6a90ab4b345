"""Panels on matplotlib's axes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli.errors import MissingExtraError
from sentcli.figures import style
from sentcli.figures.figure import Area, Axis, Bars, Dots, Figure, Grid, Line, Mark, Names, Panel
from sentcli.printable import safe

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colorbar import Colorbar
    from matplotlib.figure import Figure as Canvas
    from matplotlib.figure import SubFigure

MANY = 3000
"""Points of a panel beyond which dots are drawn as pixels in an SVG."""
LONGEST = 40
"""Characters of a name in a legend or beside a point."""
NAME = (0.4, 0.07)
"""Width and height of a name beside a point, as shares of the axes."""
LINE = 0.2
"""Height of a line of a legend, in inches."""
WIDE = 28
"""Characters of a name that leaves no room for another one beside it in a legend."""


def require() -> None:
    """Refuse to start where matplotlib is missing.

    Raises:
        MissingExtraError: saying what to install.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plots", "drawing figures") from error


@contextmanager
def drawn(figure: Figure, panels: tuple[Panel, ...], columns: int) -> Iterator[Canvas]:
    """Yield some panels of a figure on one canvas, and close it.

    Args:
        figure: its name is the salt of ids.
        panels: of it.
        columns: panels beside each other.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    columns = min(columns, len(panels))
    lines = -(-len(panels) // columns)
    look: Any = style.settings(f"{figure.name} {figure.panels.index(panels[0])}")  # its keys are no plain strings
    with mpl.rc_context(look):
        width, height = style.PANEL
        canvas = Canvas(figsize=(width * columns, figure.height * height * lines), layout="constrained")
        FigureCanvasAgg(canvas)
        parts = np.asarray(canvas.subfigures(lines, columns, squeeze=False)).ravel()
        below = max(_panel(part, panel) for part, panel in zip(parts, panels, strict=False))
        canvas.set_figheight(canvas.get_figheight() + lines * below * LINE)
        yield canvas


def _panel(part: SubFigure, panel: Panel) -> int:
    """Draw a panel and return how many lines its legend takes."""
    axes = part.subplots()
    axes.set_title(safe(panel.title))
    colours: Any = None
    bars = [mark for mark in panel.marks if isinstance(mark, Bars)]
    for mark in panel.marks:
        if isinstance(mark, Bars):
            _bars(axes, mark, bars.index(mark), len(bars))
        else:
            colours = _mark(axes, mark, panel) or colours
    _axis(axes, panel.x, "x")
    _axis(axes, panel.y, "y", downwards=bool(bars) or any(isinstance(m, Grid) and not len(m.y) for m in panel.marks))
    if panel.square:
        axes.set_aspect("equal", adjustable="datalim")
    if panel.bare:
        axes.set(xticks=[], yticks=[])
    if colours is not None and panel.scale:
        _colour_bar(part.colorbar(colours, ax=axes, label=panel.scale), log=panel.scale_log)
    handles, labels = axes.get_legend_handles_labels()
    if not panel.legend or len(labels) < 2:
        return 0
    columns = 1 if max(map(len, labels)) > WIDE else 2
    part.legend(handles, labels, loc="outside lower left", ncols=columns)
    return -(-len(labels) // columns)


def _colour_bar(bar: Colorbar, *, log: bool) -> None:
    bar.outline.set_visible(False)
    if log:
        _log_ticks(bar.ax.yaxis)


def _log_ticks(axis: Any) -> None:
    """Label a logarithmic axis with plain numbers; one that spans few decades also between the powers of ten."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    low, high = sorted(axis.get_view_interval())
    if low > 0 and high / low < 100:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)) if high / low > 5 else MaxNLocator(5))
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(lambda *_: "")


def _axis(axes: Axes, axis: Axis, which: str, *, downwards: bool = False) -> None:
    kept = getattr(axes, f"{which}axis")
    kept.set_label_text(safe(axis.label))
    if axis.log:
        getattr(axes, f"set_{which}scale")("log")
        _log_ticks(kept)
    if axis.names:
        angle = {"rotation": 45, "ha": "right"} if which == "x" and max(map(len, axis.names)) > 4 else {}
        getattr(axes, f"set_{which}ticks")(range(len(axis.names)), [_short(name) for name in axis.names], **angle)
        kept.grid(False)
    if axis.limits is not None:
        getattr(axes, f"set_{which}lim")(*axis.limits)
    if downwards:
        kept.set_inverted(True)


def _short(name: str) -> str:
    name = safe(name)
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}\N{HORIZONTAL ELLIPSIS}"


def _look(series: int) -> tuple[str, str, Any]:
    """Return colour, marker and dashes of a series."""
    return (
        style.COLOURS[series % len(style.COLOURS)],
        style.MARKERS[series % len(style.MARKERS)],
        style.DASHES[series // len(style.COLOURS) % len(style.DASHES)],
    )


def _mark(axes: Axes, mark: Mark, panel: Panel) -> Any:
    """Draw a mark and return what a colour bar is made of, if it has colours for values."""
    if isinstance(mark, Grid):
        return _grid(axes, mark, panel)
    if isinstance(mark, Dots):
        return _dots(axes, mark, panel)
    if isinstance(mark, Names):
        _names(axes, mark)
        return None
    colour, marker, dashes = _look(mark.series)
    if isinstance(mark, Area):
        top = np.asarray(mark.y) + mark.base
        axes.fill_between(mark.x, mark.base, top, color=colour, alpha=0.3, linewidth=0)
        axes.plot(mark.x, top, color=colour, label=_short(mark.name), linestyle=dashes)
    elif isinstance(mark, Line):
        if len(mark.low):
            axes.fill_between(mark.x, mark.low, mark.high, color=colour, alpha=0.2, linewidth=0)
        shown = marker if mark.markers else ""
        axes.plot(mark.x, mark.y, color=colour, linestyle=dashes, marker=shown, label=_short(mark.name))
    return None


def _dots(axes: Axes, mark: Dots, panel: Panel) -> Any:
    colour, marker, _ = _look(mark.series)
    size = 60 if mark.large else 14 if len(mark.x) <= 500 else 7
    many = sum(len(other.x) for other in panel.marks if isinstance(other, Dots)) > MANY
    look: dict[str, Any] = {"marker": marker, "s": size, "label": _short(mark.name), "rasterized": many}
    if len(mark.values):
        scale = _norm(panel, np.asarray(mark.values, float))
        edge = {"edgecolors": style.INK, "linewidths": 0.6} if mark.large else {"linewidths": 0}
        points = axes.scatter(mark.x, mark.y, c=mark.values, cmap=style.SCALE, norm=scale, **edge, **look)
    else:
        edge = {"edgecolors": style.INK, "linewidths": 1.2, "zorder": 3} if mark.large else {"linewidths": 0}
        points = axes.scatter(mark.x, mark.y, c=colour, alpha=1.0 if mark.large else 0.6, **edge, **look)
    if mark.shown:
        _labels(axes, mark)
    return points if len(mark.values) else None


def _labels(axes: Axes, mark: Dots) -> None:
    """Write a name beside each point, on the side where there is room, and above the names that are in its way."""
    across, up = (_shares(np.asarray(values, float)) for values in (mark.x, mark.y))
    placed: list[tuple[float, float]] = []
    for i in np.argsort(up, kind="stable"):
        height = up[i]
        for other, taken in sorted(placed, key=lambda place: place[1]):
            if abs(other - across[i]) < NAME[0] and height - taken < NAME[1]:
                height = taken + NAME[1]
        placed.append((across[i], height))
        side = -1 if across[i] > 0.5 else 1
        raised = 4 + (height - up[i]) * style.PANEL[1] * 72 * 0.6  # points; axes take about so much of a panel
        where: Any = {
            "xytext": (7 * side, raised),
            "textcoords": "offset points",
            "ha": "right" if side < 0 else "left",
        }
        axes.annotate(_short(mark.labels[i]), (mark.x[i], mark.y[i]), fontsize=8, **where).set_in_layout(False)
    axes.margins(x=0.15, y=0.12)


def _shares(values: Any) -> Any:
    """Return where values lie between the least and the greatest, 0 to 1."""
    spread = float(np.ptp(values))
    return (values - values.min()) / spread if spread else np.full(len(values), 0.5)


def _names(axes: Axes, mark: Names) -> None:
    from matplotlib.patheffects import withStroke

    halo = [withStroke(linewidth=2.5, foreground=style.PAPER)]
    for x, y, label in zip(mark.x, mark.y, mark.labels, strict=True):
        axes.text(x, y, _short(label), ha="center", va="center", weight="bold", path_effects=halo, zorder=4)


def _norm(panel: Panel, values: Any) -> Any:
    from matplotlib.colors import LogNorm, Normalize

    low, high = panel.scale_limits or (float(np.nanmin(values)), float(np.nanmax(values)))
    return LogNorm(low, high) if panel.scale_log else Normalize(low, high)


def _grid(axes: Axes, mark: Grid, panel: Panel) -> Any:
    edges = [
        edges if len(edges) else np.arange(count + 1) - 0.5
        for edges, count in zip((mark.x, mark.y), mark.values.shape[::-1], strict=True)
    ]
    axes.grid(False)
    return axes.pcolormesh(
        *edges, mark.values, cmap=style.SCALE, norm=_norm(panel, mark.values), rasterized=True, shading="flat"
    )


def _bars(axes: Axes, mark: Bars, number: int, count: int) -> None:
    colour, _, _ = _look(mark.series)
    thick = 0.8 / count
    places = np.arange(len(mark.values)) + (number - (count - 1) / 2) * thick
    values = np.asarray(mark.values, float)
    error = np.abs(np.array([values - mark.low, np.asarray(mark.high) - values])) if len(mark.low) else None
    axes.barh(
        places, values, 0.9 * thick, xerr=error, color=colour, label=_short(mark.name), error_kw={"ecolor": style.INK}
    )
