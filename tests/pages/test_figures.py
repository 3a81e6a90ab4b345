"""Figures: files are the same every time, an SVG in a page holds no style, points of a map lie where they are drawn."""

import csv
import json
import re
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from sentcli.pages import style
from sentcli.pages.figures import drawn, inline, save_figure
from sentcli.pages.page import Figure, Page, Section
from sentcli.pages.write import render
from sentcli.table import Table

NASTY = "</script><!-- <b>&\u2028 $x_1$ \x1b[31m"
SVG = "{http://www.w3.org/2000/svg}"


def figure(points=None, names=2, title="$x_1$ <b>& \x1b"):
    """Two panels, of which a page shows those `points` under the pointer."""
    data = pd.DataFrame({"series": ["a", "a", "b", "b"], "x": [0.0, 1, 0, 1], "y": [0.0, 1, 2, 4]})
    banded = data.assign(low=data["y"] - 0.1, high=data["y"] + 0.1)

    def lines(axes):
        style.lines(axes, banded, ["a", "b"])
        axes.set(title=title, xlabel="x", ylabel="y")

    def dots(axes):
        for i in range(names):
            axes.scatter(data["x"], data["y"] + i, label=f"series {i}", **style.dots(i, 4))
        axes.set(title="dots", ylabel="y")

    told = banded if points is None else points
    return Figure("both", "Both", {"lines": lines, "dots": dots}, told, ["lines and dots"])


@pytest.mark.slow
def test_files_hold_what_is_drawn(tmp_path):
    save_figure(figure(), tmp_path)
    assert (tmp_path / "both.png").read_bytes()[:4] == b"\x89PNG"
    ElementTree.parse(tmp_path / "both.svg")
    rows = list(csv.DictReader((tmp_path / "both.csv").open(encoding="utf-8")))
    assert [float(row["y"]) for row in rows] == [0, 1, 2, 4]
    assert [float(row["high"]) - float(row["low"]) for row in rows] == pytest.approx([0.2] * 4)


@pytest.mark.slow
def test_a_pdf_is_of_vectors_and_has_its_fonts(tmp_path):
    save_figure(figure(), tmp_path)
    pdf = (tmp_path / "both.pdf").read_bytes()
    assert pdf.startswith(b"%PDF-") and b"/Subtype /Image" not in pdf
    assert b"/FontFile2" in pdf, "fonts are embedded as TrueType"
    fonts = set(re.findall(rb"/Subtype /(Type\d|TrueType|CIDFontType\d)", pdf))
    assert b"Type3" not in fonts and b"CIDFontType2" in fonts


@pytest.mark.slow
def test_the_same_figure_has_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        save_figure(figure(), tmp_path / name)
    for file in (tmp_path / "one").iterdir():
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes(), file.name


def test_an_svg_in_a_page_takes_its_colours_and_holds_no_style():
    first, second = panels = [svg for svg, _ in inline(figure())]
    for svg in panels:
        ElementTree.fromstring(svg)
        assert "style=" not in svg and "<style" not in svg and "font-family" not in svg
        assert not set(re.findall(r'"(#[0-9a-f]{6})"', svg)) & set(style.VARIABLES)
    assert 'stroke="var(--c0)"' in first and "var(--ink)" in second
    ids = [set(re.findall(r' id="([^"]+)"', svg)) for svg in panels]
    assert all(ids), "clips and markers keep theirs"
    assert not ids[0] & ids[1], "two panels of a page do not share ids"


@pytest.mark.slow
def test_text_is_drawn_as_it_is():
    ((svg, _), *_) = inline(figure())
    text = " ".join(part.text or "" for part in ElementTree.fromstring(svg).iter(f"{SVG}text"))
    assert "$x_1$ <b>&" in text and "\x1b" not in text


def test_a_long_legend_takes_no_room_from_the_plot():
    heights = []
    for names in (2, 14):
        made = figure(names=names)
        with drawn(made, ["dots"], 1) as canvas:
            canvas.draw_without_rendering()
            heights.append(canvas.axes[0].get_window_extent().height)
    assert heights[1] > 0.95 * heights[0]


@pytest.mark.parametrize("count", [2, 5, 12])
def test_legends_and_titles_show_long_names_whole(count):
    """What tells a setting from others stands at the end of its name, which was cut."""
    names = [
        f"method-{n}, learning_rate 3e-05, contrastive.temperature 0.05, max_steps 1000, seed {n}" for n in range(count)
    ]
    rows = [("p", name, x, x * number) for number, name in enumerate(names) for x in (0, 1)]
    data = pd.DataFrame(rows, columns=["panel", "series", "x", "y"])
    title = "a panel whose title names the task and the settings of the system that it shows"
    panels = style.line_panels(data, {"p": {"title": title}}, names)
    with drawn(Figure("f", "t", panels, data, []), ["p"], 1) as canvas:
        canvas.draw_without_rendering()
        whole = canvas.bbox
        texts = [*canvas.subfigs[0].legends[0].get_texts(), canvas.axes[0]._left_title]
        assert [" ".join(text.get_text().split()) for text in texts] == [*names, title]
        for text in texts:
            box = text.get_window_extent()
            assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= whole.width and box.y1 <= whole.height


def test_a_logarithmic_axis_has_plain_numbers():
    def draw(axes):
        axes.plot([1e-5, 1e-2], [0, 1])
        axes.set_xlim(1e-6, 1)
        axes.set_xscale("log")
        style.plain_log_ticks(axes.xaxis)

    made = Figure("log", "Log", {"log": draw}, pd.DataFrame(), [])
    with drawn(made, ["log"], 1) as canvas:
        canvas.draw_without_rendering()
        labels = {tick.get_text() for tick in canvas.axes[0].get_xticklabels()}
    assert {"1e-6", "0.001"} <= labels


def drawn_lines(scale="linear", **values):
    """The SVG of lines of the given values at the places 1, 2 and so on."""
    parts = [pd.DataFrame({"series": name, "x": range(1, len(own) + 1), "y": own}) for name, own in values.items()]
    data = pd.concat(parts).assign(panel="p")
    panels = style.line_panels(data, {"p": {"yscale": scale}}, list(values))
    ((svg, _),) = inline(Figure("lines", "Lines", panels, data, []))
    return svg


def test_lines_on_each_other_are_drawn_in_turns():
    svg = drawn_lines(one=[1.0, 0.5, 0.1], two=[1.0, 0.5001, 0.1], three=[0.2, 0.9, 0.4])
    dashed = re.findall(r'stroke-dasharray="[^"]*" stroke-dashoffset="([^"]*)" stroke="var\(--(c\d)\)"', svg)
    assert {colour for _, colour in dashed} == {"c0", "c1"}, "the third line lies elsewhere"
    assert len({offset for offset, _ in dashed}) == 2, "one line has dashes where the other has none"
    assert style.IN_TURNS in svg and style.IN_TURNS not in drawn_lines(one=[1.0, 0.5], two=[0.9, 0.5])
    assert style.IN_TURNS not in drawn_lines("log", one=[1.0, 1e-3], two=[1.0, 2e-3]), "on this axis they lie apart"


def test_ticks_do_not_touch():
    def draw(axes):
        axes.plot([-0.028345, -0.028343], [0, 1])

    made = Figure("ticks", "Ticks", {"ticks": draw}, pd.DataFrame(), [], size=(2.2, 3.5))
    with drawn(made, ["ticks"], 1) as canvas:
        canvas.draw_without_rendering()
        boxes = [label.get_window_extent() for label in canvas.axes[0].get_xticklabels() if label.get_text()]
    boxes = sorted((box.x0, box.x1) for box in boxes)
    assert len(boxes) > 1
    assert all(end < start for (_, end), (start, _) in pairwise(boxes))


def test_many_points_are_dots_in_the_colours_of_the_page(tmp_path):
    count = 4000
    data = pd.DataFrame({"panel": "p", "series": "s", "x": np.arange(count), "y": np.arange(count) % 7})

    def draw(axes):
        axes.scatter(data["x"], data["y"], **style.dots(0, count))

    ((svg, points),) = inline(Figure("f", "t", {"p": draw}, data, ["alt"]))
    assert "<image" not in svg and len(points) == count
    (line,) = re.findall(r'<path d="(M[^"]*h0)"([^>]*)>', svg)
    assert line[0].count("h0") == count and 'stroke="var(--c0)"' in line[1] and 'fill="none"' in line[1]
    assert len(svg) < 40 * count


def test_names_are_cut():
    assert style.short_label("x" * 80) == "x" * 59 + "…"
    assert style.short_label("a\x1bb") == "a\N{REPLACEMENT CHARACTER}b"


@pytest.fixture(scope="module")
def page():
    """A page whose second panel tells the texts of two points."""
    place = {"panel": "dots", "x": [0.0, 1.0], "y": [0.0, 4.0]}
    points = pd.DataFrame({**place, "series": ["g", NASTY], "label": [NASTY, "two"]})
    return render(Page("p", (Section("s", figure=figure(points)),)), ".html")


def test_points_lie_where_they_are_drawn(page):
    """The markers of matplotlib's own SVG are the truth."""
    (data,) = re.findall(r'<script type="application/json" id="points">(.*?)</script>', page, re.DOTALL)
    told = json.loads(data)["0"]["panels"]
    assert told[0] == [] and len(told[1]) == 2
    svg = re.findall(r"<svg.*?</svg>", page, re.DOTALL)[1]
    drawn_at = {(float(x), float(y)) for x, y in re.findall(r'<use [^>]*x="([\d.]+)" y="([\d.]+)"', svg)}
    for x, y, *_ in told[1]:
        assert min(np.hypot(x - u, y - v) for u, v in drawn_at) < 0.2


def test_texts_of_points_never_become_markup(page):
    (data,) = re.findall(r'<script type="application/json" id="points">(.*?)</script>', page, re.DOTALL)
    assert not set("<>&\u2028") & set(data)
    told = json.loads(data)["0"]
    assert told["texts"][0].startswith("</script><!-- <b>&") and "\x1b" not in told["texts"][0]
    assert [point[2:] for point in told["panels"][1]] == [[0, 0], [1, 1]]
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert "unsafe" not in policy and policy.count("sha256-") == 2
    assert page.count("<script") == 2 and "<!--" not in page


def test_a_point_without_a_label_is_told_by_its_numbers():
    def draw(axes):
        axes.set_xscale("log")
        axes.plot([1, 10], [0.1, 0.25])

    place = {"panel": "p", "series": "loss", "x": [1, 10, 0], "y": [0.1, 0.25, 0.5], "low": [None, 0.2, None]}
    data = pd.DataFrame({**place, "high": [None, 0.3, None], "value": [None, 12345.0, None]})
    ((_, points),) = inline(Figure("f", "t", {"p": draw}, data, ["alt"]))
    assert [point[2:] for point in points] == [("1: 0.1", "loss"), ("10: 0.25 (0.2 to 0.3)", "loss: 12345")]


def test_a_point_over_a_name_lies_over_its_tick():
    def draw(axes):
        axes.xaxis.update_units(["cls", "mean"])
        axes.plot(["mean"], [0.5], "o")

    data = pd.DataFrame({"panel": "p", "series": "s", "x": ["mean"], "y": [0.5]})
    ((svg, ((x, y, *words),)),) = inline(Figure("f", "t", {"p": draw}, data, ["alt"]))
    assert words == ["mean: 0.5", "s"]
    at = [(float(u), float(v)) for u, v in re.findall(r'<use [^>]*x="([\d.]+)" y="([\d.]+)"', svg)]
    assert min(np.hypot(x - u, y - v) for u, v in at) < 0.2


def test_a_page_without_points_has_no_data(page):
    plain = render(Page("p", (Section("s", figure=figure()),)), ".html")
    assert "application/json" not in plain and "pointermove" not in plain and "pointermove" in page


def test_contents_link_to_the_sections():
    sections = [Section(f"Part {i}", ("text",)) for i in range(3)]
    text = render(Page("p", sections, ("In short.",), "made"), ".html")
    assert re.findall(r'<a href="#([^"]*)">', text) == re.findall(r'<section id="([^"]*)"', text)
    assert text.index("In short.") < text.index("<main>")


def test_a_narrow_section_alone_has_the_whole_width():
    narrow, broad = Table("t", ["a"], [[1]]), Table("t", list("abcdef"), [[1] * 6])
    sections = [Section("s", table=table) for table in (narrow, narrow, narrow, broad, narrow)]
    text = render(Page("p", sections), ".html")
    assert re.findall(r'<section id="section-(\d)" class="narrow">', text) == ["0", "1"]


def test_panels_line_up_whatever_their_legends():
    def panel(names):
        def draw(axes):
            for name in names:
                axes.plot([0, 1], [0, 1], label=name)
            axes.set(title="t", xlabel="x", ylabel="y")

        return draw

    long = [f"a name that takes a line of its own, {n}" for n in range(9)]
    panels = {"short": panel(["a", "b", "c", "d"]), "long": panel(long)}
    figure = Figure("f", "t", panels, pd.DataFrame({"x": [0]}), ["alt"])
    heights = []
    for one in panels:
        with drawn(figure, [one], 1) as canvas:
            canvas.draw_without_rendering()
            heights.append(canvas.subfigs[0].axes[0].get_window_extent().height)
    assert heights[0] == pytest.approx(heights[1], abs=0.5)
