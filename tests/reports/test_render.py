import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sentcli.evaluation.score_files import read_object
from sentcli.pages import latex, markdown, style
from sentcli.pages.figures import inline
from sentcli.pages.page import Figure, Page, Section, Style
from sentcli.pages.score_page import Choices, score_page
from sentcli.pages.systems import Pattern
from sentcli.pages.write import render
from sentcli.printable import safe
from sentcli.table import Table

from .conftest import make

NASTY = r"""<script>alert("x")</script> a_b%c&d #1 $x$ {y} ~^\z| [q] *s* `t` -- ''u'' !v ?`"""
NAMES = st.text(min_size=1, max_size=30).filter(lambda name: safe(name).strip())


def objects(name="minilm"):
    against = {"name": "x", "title": name, "source": "a & b"}
    against["tasks"] = {"STS16": {"measured": 78.99, "published": 80.0, "difference": -1.0, "runs": 1}}
    compared = {"with": name, "tasks": {"STS16": {"difference": -3.0, "low": -4.0, "high": -2.0, "p": 0.002}}}
    worse = {"STS16": 75.0, "STSBenchmark": 90.0}
    return [
        make(name, average=80.51, against=against), make("b", scores=worse, compared=compared),
        make("c", scores={"STS16": 74.0}), make("s1", scores=worse),
        make("s2", scores={"STS16": 74.0, "STSBenchmark": 1.0}),
        make(name, "senteval", {"MR": 80.0}), make(name, "retrieve", {"scifact": 0.5}),
    ]  # fmt: skip


def page(name="minilm", style=None, figures=True):
    runs = [read_object(one, f"{i}.json") for i, one in enumerate(objects(name))]
    return score_page(runs, Choices(groups=(Pattern.parse("--group", "seeds=s?"),), style=style), figures=figures)


def rendered(suffix, style=None, name="minilm"):
    """The page of `objects` as text; figures of scores are in HTML only."""
    return render(page(name, style, suffix == ".html"), suffix, style)


def texts_of(table):
    return [[table.shown(i, j) for j in range(len(table.columns))] for i in range(len(table.rows))]


class Parsed(HTMLParser):
    """Tables of texts, tags with their attributes, and whether every tag is closed in order."""

    VOID = ("meta", "link")

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tables, self.tags, self.open, self.texts = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)
        if {"td", "th"} & set(self.open) and "interval" not in self.tags[-1][1].get("class", ""):
            self.tables[-1][-1][-1] += data


def test_html_has_the_tables_of_the_page():
    made = page()
    parsed = Parsed(rendered(".html"))
    tables = [section.table for section in made.sections if section.table]
    assert len(parsed.tables) == len(tables)
    for shown, table in zip(parsed.tables, tables, strict=True):
        assert shown[0] == list(table.columns)
        assert shown[1:] == texts_of(table)
        assert len({len(row) for row in shown}) == 1


def test_html_stands_alone():
    text = rendered(".html")
    parsed = Parsed(text)
    links = [value for _, each in parsed.tags for key, value in each.items() if key in ("src", "href", "srcset")]
    local = {f"#{each['id']}" for _, each in parsed.tags if "id" in each}
    assert "data:," in links and all(link in local for link in links if link != "data:,")
    assert (
        "@import" not in text
        and not re.search(r"url\((?!#)", text)
        and not any("style" in each for _, each in parsed.tags)
    )
    (policy,) = [each["content"] for _, each in parsed.tags if each.get("http-equiv")]
    assert policy.startswith("default-src 'none'; style-src 'sha256-") and "unsafe" not in policy
    assert "prefers-color-scheme: dark" in text
    assert rendered(".html") == text  # no date: the same results give the same bytes


def test_html_figures_have_words():
    parsed = Parsed(rendered(".html"))
    figures = [each["aria-label"] for tag, each in parsed.tags if each.get("class") == "panels"]
    assert len(figures) == 3
    assert "Spearman correlation × 100: " in figures[0]
    assert "STS16, minilm: 78.99 (76.99 to 80.99)" in figures[0]


def test_bold_and_intervals_can_be_left_out():
    shown, plain = rendered(".html"), rendered(".html", Style(bold=False, intervals=False))
    assert shown.count("<strong>") >= 3 and 'class="second"' in shown and 'class="interval"' in shown
    assert "<strong>" not in plain and 'class="second"' not in plain and 'class="interval"' not in plain
    assert "76.99" in shown and "76.99" not in plain
    assert "Best of each column" in shown and "Best of each column" not in plain
    for suffix, mark in ((".md", "**78.99**"), (".tex", r"\textbf{78.99}")):
        assert mark in rendered(suffix) and mark not in rendered(suffix, Style(bold=False))
        assert "76.99" not in rendered(suffix)
        assert "(76.99 to 80.99)" in rendered(suffix, Style(intervals=True))


def markdown_tables(text):
    from markdown_it import MarkdownIt

    tables = []
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type == "table_open":
            tables.append([])
        elif token.type == "tr_open":
            tables[-1].append([])
        elif token.type == "inline" and token.level > 1:  # in a cell, not in a paragraph
            tables[-1][-1].append("".join(child.content for child in token.children))
    return tables


def test_markdown_has_the_tables_of_the_page():
    made = page(NASTY)
    text = rendered(".md", name=NASTY)
    tables = [section.table for section in made.sections if section.table]
    shown = markdown_tables(text)
    assert len(shown) == len(tables)
    for found, table in zip(shown, tables, strict=True):
        assert found[0] == list(table.columns)
        assert [[" ".join(c.split()) for c in row] for row in found[1:]] == [
            [" ".join(text.split()) for text in row] for row in texts_of(table)
        ]
    rules = [line for line in text.splitlines() if re.fullmatch(r"\|( -+:? \|)+", line)]
    assert rules[0] == "| --- | ---: | ---: | ---: | ---: |"  # model, n, two tasks, average


LATEX = {
    r"\textbackslash{}": "\\", r"\textasciitilde{}": "~", r"\textasciicircum{}": "^", r"\textless{}": "<",
    r"\textgreater{}": ">", r"\textbar{}": "|", r"\texttt{\char34}": '"', r"\textasciigrave{}": "`", "{[}": "[",
    "{]}": "]", "{*}": "*", r"$\pm$": "±", r"$\times$": "×", "$-$": "−", "--": "–", "{}": "",
    **{f"\\{sign}": sign for sign in "{}$&#%_"},
}  # fmt: skip


def unescaped(text):
    """What LaTeX prints."""
    return re.sub("|".join(map(re.escape, LATEX)), lambda found: LATEX[found[0]], text)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=30))
def test_latex_prints_text_as_it_is(text):
    shown = latex.escape(text)
    assert unescaped(shown) == safe(text).replace("\N{REPLACEMENT CHARACTER}", "?")
    bare = re.sub("|".join(map(re.escape, LATEX)), "", shown)
    assert not set(bare) & set("\\{}$&#%_^~[]*\n")


@settings(max_examples=200, deadline=None)
@given(NAMES)
def test_markdown_shows_text_as_it_is(text):
    ((_, (shown,)),) = markdown_tables(f"| x |\n| --- |\n| {markdown.escape(text)} |\n")
    assert shown.split() == safe(text).split()


@settings(max_examples=12, deadline=None)
@given(NAMES)
def test_a_page_survives_any_name(name):
    made = Page(
        name,
        (
            Section(
                name,
                text=(name,),
                table=Table(name, (name, f"{name} "), ((name, 1.0),), notes=(name,)),
                figure=one_point(name),
                code=(name,),
            ),
        ),
    )
    parsed = Parsed(render(made, ".html"))
    assert {tag for tag, _ in parsed.tags} <= {
        *(
            "html",
            "head",
            "meta",
            "link",
            "title",
            "style",
            "body",
            "header",
            "main",
            "h1",
            "h2",
            "section",
            "p",
            "div",
        ),
        *("table", "thead", "tbody", "tr", "th", "td", "figure", "figcaption", "pre", "code", "script"),
        *("svg", "text", "tspan", "g", "path", "defs", "use", "clippath", "rect"),
    }
    assert len([tag for tag, _ in parsed.tags if tag == "script"]) == 2, "data and script"
    data = next(text for text in parsed.texts if text.startswith('{"'))
    assert not set("<>&") & set(data)
    assert json.loads(data)["0"]["groups"] == [safe(name)]
    assert parsed.tables[0][1][0] == safe(name)
    render(made, ".md")
    render(made, ".tex")


def latex_rows(text):
    """The columns that each tabular asks for, and the cells of its rows."""
    for asked, body in re.findall(r"\\begin{tabular}{((?:[^{}]|{[^{}]*})*)}\n(.*?)\n\\end{tabular}", text, re.DOTALL):
        rows = [line for line in body.splitlines() if line.endswith(r"\\")]
        yield re.findall(r"[lr]|p{[^}]*}", asked), [re.split(r"(?<!\\)&", row) for row in rows]


def test_latex_has_as_many_cells_as_columns():
    made = page(NASTY)
    found = list(latex_rows(rendered(".tex", name=NASTY)))
    tables = [section.table for section in made.sections if section.table]
    assert len(found) == len(tables)
    for (columns, rows), table in zip(found, tables, strict=True):
        assert len(columns) == len(table.columns)
        assert len(rows) == 1 + len(table.rows)
        assert {len(row) for row in rows} == {len(columns)}


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles(tmp_path):
    (tmp_path / "report.tex").write_text(rendered(".tex", Style(intervals=True), NASTY), "utf-8")
    document = r"\documentclass{article}\usepackage{booktabs,graphicx}\begin{document}\input{report}\end{document}"
    (tmp_path / "main.tex").write_text(document, "utf-8")
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "main.tex"], cwd=tmp_path, capture_output=True
    )
    assert done.returncode == 0, done.stdout.decode("utf-8", "replace")[-2000:]
    assert b"Overfull" not in b"".join(re.findall(rb"Overfull[^\n]*alignment", done.stdout))


def one_point(name):
    data = pd.DataFrame([{"panel": 0, "x": 1.0, "y": 1.0, "group": name, "text": name}])

    def draw(axes):
        axes.plot(1.0, 1.0, "o", label=safe(name))
        axes.set_xlabel(safe(name))

    return Figure("f", name, (draw,), data, name, name, data)


def test_figures_of_scores_hold_their_numbers_and_differ_by_colour_or_shape():
    made = score_page([read_object(make(f"m{i}", scores={"STS16": 50.0 + i}), f"{i}.json") for i in range(30)])
    figure = made.sections[0].figure
    assert list(figure.data["value"]) == [50.0 + i for i in range(30)]
    assert list(figure.data["low"]) == [48.0 + i for i in range(30)]
    ((svg, places),) = inline(figure)
    assert len(places) == 30 and [x for x, _ in places] == sorted(x for x, _ in places)
    assert svg.count("var(--c0)")
    assert len({(style.colour(i), style.marker(i)) for i in range(30)}) == 30
