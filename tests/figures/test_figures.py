"""Figures: what is drawn is what the CSV says, files are the same every time, an SVG in a page holds no style."""

import csv
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from sentcli.figures import style
from sentcli.figures.draw import drawn
from sentcli.figures.figure import Area, Axis, Bars, Dots, Figure, Grid, Line, Panel
from sentcli.figures.write import inline, save

pytest.importorskip("matplotlib", reason="figures come with the extra sentcli[plots]")

NASTY = "a $x_1$ <b>&\x1b[31m_"


def panel(*marks, title="Panel", **kwargs):
    return Panel(title, Axis("across (unit)"), Axis("up (unit)"), marks, **kwargs)


def every_mark():
    x = np.linspace(0, 1, 5)
    return Figure(
        "every-mark",
        "Every mark",
        "Five kinds of marks",
        (
            panel(Line("one", x, x**2, x**2 - 0.1, x**2 + 0.1), Line(NASTY, x, 1 - x, series=7), title=NASTY),
            panel(Dots("dots", x, x, values=x + 60, labels=list("abcde"), shown=True, large=True), scale="score"),
            panel(Area("low", x, x * (1 - x), base=1.0)),
            Panel("Bars", Axis("share (%)"), Axis("", names=("a", "b")), (Bars("s", [1, 2], [0.5, 1.5], [1.5, 3]),)),
            panel(Grid("grid", np.array([[1.0, 2.0], [3.0, np.nan]])), scale="nats"),
            panel(Grid("edges", np.ones((1, 2)), x=[0, 1, 3], y=[0, 2]), scale="count", scale_limits=(0, 2)),
        ),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("figures")


def test_the_csv_holds_what_is_drawn(folder):
    png, svg, table = save(every_mark(), folder)
    assert png.read_bytes()[:4] == b"\x89PNG"
    ElementTree.parse(svg)
    rows = list(csv.DictReader(table.open(encoding="utf-8")))
    assert list(rows[0]) == ["panel", "series", "x", "y", "low", "high", "value", "label"]
    line = [row for row in rows if row["series"] == "one"]
    assert [float(row["y"]) for row in line] == pytest.approx([0, 0.0625, 0.25, 0.5625, 1])
    assert [float(row["high"]) - float(row["low"]) for row in line] == pytest.approx([0.2] * 5)
    assert [row["label"] for row in rows if row["series"] == "dots"] == list("abcde")
    assert [(row["x"], row["y"]) for row in rows if row["series"] == "s"] == [("1", "0"), ("2", "1")]
    grid = [row for row in rows if row["series"] == "grid"]
    assert [float(row["value"]) for row in grid] == [1, 2, 3], "an empty cell has no row"
    assert [float(row["x"]) for row in rows if row["series"] == "edges"] == [0.5, 2], "centres of the cells"


def test_the_same_figure_has_the_same_bytes(folder, tmp_path):
    for first, again in zip(save(every_mark(), folder), save(every_mark(), tmp_path), strict=True):
        assert first.read_bytes() == again.read_bytes(), first.name


def test_an_svg_in_a_page_takes_its_colours_and_holds_no_style():
    first, second, *_ = panels = inline(every_mark())
    assert len(panels) == 6
    for svg in panels:
        ElementTree.fromstring(svg)
        assert "style=" not in svg and "<style" not in svg and "font-family" not in svg
    assert 'stroke="var(--c0)"' in first and "var(--ink)" in second
    assert not set(re.findall(r'"(#[0-9a-f]{6})"', first)) & set(style.VARIABLES)
    ids = [set(re.findall(r' id="([^"]+)"', svg)) for svg in panels]
    assert all(ids), "clips and markers keep theirs"
    assert not ids[0] & ids[1], "two panels of a page do not share ids"


def test_text_is_drawn_as_it_is():
    (svg, *_) = inline(every_mark())
    text = " ".join(part.text or "" for part in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"))
    assert "$x_1$ <b>&" in text and "\x1b" not in text


def test_axes_show_labels_limits_and_names():
    figure = Figure("axes", "t", "a", (
        Panel("p", Axis("rate", log=True, limits=(1e-6, 1)), Axis("", names=("first", "x" * 80)), (
            Dots("d", [1e-5, 1e-2], [0, 1]),
        )),
    ))  # fmt: skip
    with drawn(figure, figure.panels, 1) as canvas:
        (axes,) = canvas.subfigs[0].axes
        canvas.draw_without_rendering()
        assert axes.get_xscale() == "log" and axes.get_xlim() == (1e-6, 1) and axes.get_xlabel() == "rate"
        assert {"1e-06", "0.001"} <= {tick.get_text() for tick in axes.get_xticklabels()}
        first, second = (tick.get_text() for tick in axes.get_yticklabels())
        assert first == "first" and len(second) == 40, "long names are cut"


def test_bars_and_tables_read_from_the_top():
    for marks in (Bars("b", [1, 2]),), (Grid("g", np.ones((2, 2))),):
        figure = Figure("top", "t", "a", (panel(*marks),))
        with drawn(figure, figure.panels, 1) as canvas:
            low, high = canvas.subfigs[0].axes[0].get_ylim()
            assert low > high


def test_a_long_legend_takes_no_room_from_the_plot():
    heights = []
    for names in (2, 14):
        lines = [Line(f"series {i}", [0.0, 1.0], [0.0, float(i)], series=i) for i in range(names)]
        figure = Figure("legend", "Legend", "Many names", (panel(*lines),))
        with drawn(figure, figure.panels, 1) as canvas:
            canvas.draw_without_rendering()
            heights.append(canvas.axes[0].get_window_extent().height)
    assert heights[1] > 0.95 * heights[0]
