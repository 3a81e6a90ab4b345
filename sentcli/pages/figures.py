"""Writing figures to files, and as SVG inside a page, where they take the page's colours."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli.pages import style
from sentcli.pages.page import Figure
from sentcli.printable import safe
from sentcli.table import inert

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure as Canvas
    from matplotlib.figure import SubFigure
    from matplotlib.legend import Legend

STYLE = re.compile(r' style="([^"]*)"')
OWN_ID = re.compile(r' id="[\w.]+_\d+"')
"""Ids of matplotlib that nothing refers to; two figures on a page would have the same ones."""
_MARK = re.compile(
    r'<use xlink:href="#(?P<shape>[^"]*)" x="(?P<x>[^"]*)" y="(?P<y>[^"]*)" style="(?P<style>[^"]*)"/>\s*'
)
RUN = re.compile(r"(?:<use [^>]*/>\s*)+")
_FEW_MARKERS = 50
"""Fewer markers than this beside each other stay markers."""
MANY = 3000
"""More points than this are pixels in a file, and dots of a few lines instead of markers in a page."""

Point = tuple[float, float, str, str]
"""Place in an SVG in units of 1/72 inch from the top left corner, and text and group, shown under the pointer."""


@contextmanager
def drawn(figure: Figure, panels: Sequence[str], columns: int) -> Iterator[Canvas]:
    """Yield a canvas with some panels of a figure.

    Args:
        figure: the figure.
        panels: the names of some or all of its panels.
        columns: number of panels beside each other.
    """
    import matplotlib as mpl
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.text import Text

    columns = min(columns, len(panels))
    lines = -(-len(panels) // columns)
    # the salt makes ids within an SVG differ from those of other figures of a page, and the same every time
    salt: Any = {"svg.hashsalt": f"{figure.name} {list(figure.panels).index(panels[0])}"}
    with mpl.rc_context(salt, style.SHEET), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a page has fonts of its own
        warnings.filterwarnings("ignore", "constrained_layout not applied")  # legends get their room after the first
        width, height = figure.size
        engine = ConstrainedLayoutEngine(hspace=0, wspace=0)  # they grow with the figure, legend included
        canvas = Canvas(figsize=(width * columns, height * lines), layout=engine)
        FigureCanvasAgg(canvas)
        parts = np.asarray(canvas.subfigures(lines, columns, squeeze=False)).ravel()
        legends = []
        for part, panel in zip(parts, panels, strict=False):
            legend = _panel(part, figure.panels[panel])
            if legend is not None:
                legends.append(legend)
        canvas.draw_without_rendering()  # until then legends and ticks have no size
        if legends:  # with their size panels of a page line up
            tallest = max(legend.get_window_extent().height for legend in legends) / canvas.dpi
            canvas.set_figheight(canvas.get_figheight() + lines * tallest)
            canvas.draw_without_rendering()
        _separate_ticks(canvas)
        for text in canvas.findobj(Text):
            text.set_text("\n".join(map(safe, text.get_text().split("\n"))))  # legends and titles have several lines
        yield canvas


def _panel(part: SubFigure, panel: Callable[[Axes], object]) -> Legend | None:
    """Draw a panel with its legend below it, and return the legend if there is one."""
    axes = part.subplots()
    panel(axes)
    width = part.bbox.width / part.figure.dpi
    axes.set_title(style.wrapped(axes.get_title(loc="left"), 10 * width))  # characters that a line has room for
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) < 2:
        return None
    room = 14 * width
    labels = [style.wrapped(label, room - 5) for label in labels]
    longest = max(map(len, "\n".join(labels).split("\n")))
    columns = int(room // (longest + 5))
    columns = max(1, min(len(labels), columns))
    return part.legend(handles, labels, loc="outside lower left", ncols=columns)


def _separate_ticks(canvas: Canvas) -> None:
    """Take fewer ticks for x axes of numbers whose labels would touch each other."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, LogLocator, MaxNLocator

    for axes in canvas.axes:
        axis = axes.xaxis
        locator = axis.get_major_locator()
        for bins in range(6, 0, -1):
            if not _touch(axis):
                break
            if isinstance(locator, MaxNLocator):
                locator.set_params(nbins=bins)
            elif isinstance(locator, LogLocator):
                locator.set_params(numticks=bins + 1)
            elif isinstance(locator, FixedLocator) and not isinstance(axis.get_major_formatter(), FixedFormatter):
                locator = FixedLocator(axis.get_majorticklocs()[::2].tolist())
                axis.set_major_locator(locator)
            canvas.draw_without_rendering()


def _touch(axis: Axis) -> bool:
    """Tell whether two labels of an axis have less than a blank between them."""
    boxes = []
    for label in axis.get_ticklabels():
        if label.get_text() and label.get_visible():
            boxes.append(label.get_window_extent())
    if not boxes:
        return False
    boxes.sort(key=lambda box: box.x0)
    blank = 0.4 * max(box.height for box in boxes)
    return any(after.x0 - before.x1 < blank for before, after in pairwise(boxes))


def save_figure(figure: Figure, folder: Path) -> None:
    """Write a figure as PNG, SVG and PDF, and its data as CSV, into a folder that exists.

    The PDF has its fonts with it, as TrueType, and its lines as vectors; of many thousand points it has pixels.
    """
    import numpy as np

    with drawn(figure, list(figure.panels), figure.columns) as canvas:
        for axes in canvas.axes:
            clouds = axes.collections
            if sum(np.shape(cloud.get_offsets())[0] for cloud in clouds) > MANY:
                for cloud in clouds:
                    cloud.set_rasterized(True)
        title = {"Title": figure.title}
        about: dict[str, Any] = {  # a date would change the bytes
            ".png": title | {"Description": figure.alt},
            ".svg": title | {"Description": figure.alt, "Date": None},
            ".pdf": title | {"Subject": figure.alt, "CreationDate": None},
        }
        for suffix, metadata in about.items():
            picture = io.BytesIO()  # the PDF writer hides the error of a full disk behind one of its own
            canvas.savefig(picture, format=suffix[1:], metadata=metadata)
            (folder / f"{figure.name}{suffix}").write_bytes(picture.getvalue())
    save_frame(figure.data, folder / f"{figure.name}.csv")


def as_png(figure: Figure) -> bytes:
    """Return a figure as PNG."""
    buffer = io.BytesIO()
    with drawn(figure, list(figure.panels), figure.columns) as canvas:
        canvas.savefig(buffer, format="png")
    return buffer.getvalue()


def save_frame(frame: pd.DataFrame, path: Path) -> None:
    """Write a data frame as CSV; missing values are empty, and no text is a formula for a spreadsheet."""
    frame.rename(columns=inert).map(inert).to_csv(path, index=False, lineterminator="\n")


def inline(figure: Figure) -> list[tuple[str, list[Point]]]:
    """Return an SVG for each panel, and the panel's points.

    An SVG scales to the width of its place and has the colours of the page around it.
    """
    panels = []
    for panel in figure.panels:
        buffer = io.StringIO()
        with drawn(figure, (panel,), 1) as canvas:
            canvas.savefig(buffer, format="svg", transparent=True)
            points = _points(figure, panel, canvas)
        panels.append((_adapted(buffer.getvalue()), points))
    return panels


def _points(figure: Figure, panel: str, canvas: Canvas) -> list[Point]:
    """Return those points of a panel that lie on its drawn canvas."""
    data = figure.data
    if not {"panel", "series", "x", "y"} <= set(data):
        return []
    own = data[data["panel"] == panel]
    if "id" in own:
        own = own.dropna(subset="id")  # without an id are the places of names in a map
    if own.empty:
        return []
    axes = canvas.subfigs[0].axes[0]
    across = axes.convert_xunits(own["x"])  # type: ignore[no-untyped-call]
    up = own["y"].astype(float)
    places = list(zip(across, up, strict=True))
    pixels = axes.transData.transform(places) * (72 / canvas.dpi)
    width = 72 * canvas.get_figwidth()
    height = 72 * canvas.get_figheight()
    points = []
    for (x, y), row in zip(pixels.tolist(), own.to_dict("records"), strict=True):
        if 0 <= x <= width and 0 <= y <= height:  # beyond it lies what a logarithm does not have
            from_top = height - y
            points.append((round(x, 1), round(from_top, 1), _text(row), _group(row)))
    return points


def _text(row: dict[str, Any]) -> str:
    """Return the text of a row of a figure's data: its label, or else its numbers."""
    text = row.get("label")
    if not isinstance(text, str):
        x = _number(row, "x") or row["x"]
        text = f"{x}: {_number(row, 'y')}"
        low = _number(row, "low")
        high = _number(row, "high")
        if low and high:
            text += f" ({low} to {high})"
    if "id" in row:
        return f"{row['id']}: {text}"
    return text


def _group(row: dict[str, Any]) -> str:
    """Return the group of a row of a figure's data, by default its series with its value."""
    group = row.get("group")
    if isinstance(group, str):
        return group
    group = str(row["series"])
    value = _number(row, "value")
    if value:
        group += f": {value}"
    return group


def _number(row: dict[str, Any], key: str) -> str:
    """Return a number of a row in words; empty if it is missing or not a number."""
    value = row.get(key)
    if isinstance(value, int | float) and not isnan(value):
        return f"{value:.6g}"
    return ""


def _adapted(svg: str) -> str:
    """Return an SVG without header, metadata, styles, sizes and fonts, which the page has itself or forbids."""
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
    if len(_MARK.findall(body)) > MANY:
        body = RUN.sub(_as_dots, body)
    body = STYLE.sub(_attributes, OWN_ID.sub("", body))
    for colour, name in style.VARIABLES.items():
        body = body.replace(f'"{colour}"', f'"var(--{name})"')
    return body


def _as_dots(run: re.Match[str]) -> str:
    """Return a line of dots for all markers of each shape and look in a run of markers, which is a tenth as long."""
    markers = run[0]
    marks = list(_MARK.finditer(markers))
    if len(marks) < _FEW_MARKERS:
        return markers
    dots: dict[tuple[str, str], list[str]] = {}
    for mark in marks:
        x = float(mark["x"])
        y = float(mark["y"])
        same_look = dots.setdefault((mark["shape"], mark["style"]), [])
        same_look.append(f"M{x:.1f} {y:.1f}h0")
    lines = []
    for (shape, look), places in dots.items():
        outline = re.search(rf'<path id="{shape}" d="([^"]*)"', run.string)
        assert outline is not None
        reach = max(map(float, re.findall(r"[\d.]+", outline[1])))
        stroke = look.replace("fill", "stroke")
        stroke += f"; fill: none; stroke-width: {2 * reach:.2f}; stroke-linecap: round"
        path = "".join(places)
        lines.append(f'<path d="{path}" style="{stroke}"/>\n')
    return "".join(lines)


def _attributes(styled: re.Match[str]) -> str:
    """Return a style as attributes, because a page's policy forbids styles; the font is left to the page."""
    attributes = []
    for part in styled[1].split(";"):
        key, colon, value = part.partition(":")
        key = key.strip()
        if colon and key != "font-family":
            attributes.append(f' {key}="{value.strip()}"')
    return "".join(attributes)
