"""Pages as HTML, Markdown and LaTeX: all have the same tables, and texts of users never become markup."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentcli.errors import InputError
from sentcli.pages.page import Figure, Page, Section, Style
from sentcli.pages.write import check_suffix, latex_text, markdown_text, render, write_page
from sentcli.printable import safe
from sentcli.table import Table
from tests.examples import examples

NASTY = r"""<script>alert("x")</script> a_b%c&d #1 $x$ {y} ~^\z| [q] *s* `t` -- ''u'' !v ?`"""
NAMES = st.text(min_size=1, max_size=30).filter(lambda name: safe(name).strip())
VOID = ("meta", "link")


def page(name="minilm", figure=None):
    scores = Table(
        "Similarity: Spearman",
        ["model", "n", "STS16", "STS-B", "text"],
        [[name, 3, 78.99, 82.03, name], ["b", 1, 75.0, None, "two"], ["published: c", None, 80.0, 81.0, ""]],
        ranked=["STS16", "STS-B"],
        intervals={(0, "STS16"): (76.99, 80.99)},
        deviations={(1, "STS16"): 0.5},
        published=1,
        notes=(name,),
        interval_note="Intervals: 95 %.",
        wide=["text"],
        texts={(1, 3): "< 0.001"},
    )
    sections = (
        Section("Similarity", (name,), scores, figure, code=(name,)),
        Section(name, table=Table("t", ["x"], [[1], [2.5]]), folded=True, level=3),
    )
    return Page(name, sections, ("In short.",), "Made by a test.")


class Parsed(HTMLParser):
    """Tables of texts, tags with their attributes, and whether every tag is closed in order."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tables, self.tags, self.open, self.texts = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
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


def shown(made):
    """The tables of a page as all formats show them."""
    tables = [section.table for section in made.sections]
    return [
        [list(t.columns), *([t.shown(i, j) for j in range(len(t.columns))] for i in range(len(t.rows)))] for t in tables
    ]


def test_html_has_the_tables_of_the_page():
    assert Parsed(render(page(), ".html")).tables == shown(page())
    assert shown(page())[0][2] == ["b", "1", "75.00 ± 0.50", "< 0.001", "two"]


def test_html_stands_alone():
    text = render(page(), ".html")
    parsed = Parsed(text)
    local = {f"#{each['id']}" for _, each in parsed.tags if "id" in each}
    links = [value for _, each in parsed.tags for key, value in each.items() if key in ("src", "href", "srcset")]
    assert "data:," in links and all(link in local for link in links if link != "data:,")
    assert "@import" not in text and not re.search(r"url\((?!#)", text)
    assert not any("style" in each for _, each in parsed.tags)
    (policy,) = [each["content"] for _, each in parsed.tags if each.get("http-equiv")]
    assert policy.startswith("default-src 'none'; style-src 'sha256-") and "unsafe" not in policy
    assert "prefers-color-scheme: dark" in text
    assert render(page(), ".html") == text, "no date: the same results give the same bytes"


def test_bold_and_intervals_can_be_left_out():
    text, plain = render(page(), ".html"), render(page(), ".html", Style(bold=False, intervals=False))
    assert "<strong>78.99" in text and 'class="second">75.00' in text and "76.99 to 80.99" in text
    assert "<strong>" not in plain and 'class="second"' not in plain and "76.99" not in plain
    assert "Best of each column" in text and "Best of each column" not in plain
    for suffix, mark in ((".md", "**78.99**"), (".tex", r"\textbf{78.99}")):
        assert mark in render(page(), suffix) and mark not in render(page(), suffix, Style(bold=False))
        assert "76.99" not in render(page(), suffix)
        assert "(76.99 to 80.99)" in render(page(), suffix, Style(intervals=True))


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
    text = render(page(NASTY), ".md")
    words = [[[" ".join(cell.split()) for cell in row] for row in table] for table in shown(page(NASTY))]
    assert [[[" ".join(cell.split()) for cell in row] for row in table] for table in markdown_tables(text)] == words
    rules = [line for line in text.splitlines() if re.fullmatch(r"\|( -+:? \|)+", line)]
    assert rules == ["| --- | ---: | ---: | ---: | --- |", "| ---: |"]


LATEX = {
    r"\textbackslash{}": "\\", r"\textasciitilde{}": "~", r"\textasciicircum{}": "^", r"\textless{}": "<",
    r"\textgreater{}": ">", r"\textbar{}": "|", r"\texttt{\char34}": '"', r"\textasciigrave{}": "`", "{[}": "[",
    "{]}": "]", "{*}": "*", r"$\pm$": "±", r"$\times$": "×", "$-$": "−", "--": "–",
    r"\allowbreak{}": "", "{}": "",
    **{f"\\{sign}": sign for sign in "{}$&#%_"},
}  # fmt: skip


@examples(300)
@given(st.text(max_size=30))
def test_latex_prints_text_as_it_is(text):
    escaped = latex_text(text)
    signs = "|".join(map(re.escape, LATEX))
    printed = re.sub(signs, lambda sign: LATEX[sign[0]], escaped)
    assert printed == safe(text).replace("\N{REPLACEMENT CHARACTER}", "?")
    assert not set(re.sub(signs, "", escaped)) & set("\\{}$&#%_^~[]*\n")


@examples(200)
@given(NAMES)
def test_markdown_shows_text_as_it_is(text):
    ((_, (cell,)),) = markdown_tables(f"| x |\n| --- |\n| {markdown_text(text)} |\n")
    assert cell.split() == safe(text).split()


def assert_balanced(latex):
    """Braces and environments close in order, and no dollar is left alone."""
    bare = re.sub(r"\\[\\{}$&#%_]", "", latex)
    depth = 0
    for sign in re.findall("[{}]", bare):
        depth += 1 if sign == "{" else -1
        assert depth >= 0
    assert depth == 0 and bare.count("$") % 2 == 0
    open_environments = []
    for kind, name in re.findall(r"\\(begin|end){(\w+)}", latex):
        if kind == "begin":
            open_environments.append(name)
        else:
            assert open_environments.pop() == name
    assert not open_environments


@examples(300)
@given(st.text("_&%#${}~^\\-'` ab", min_size=1, max_size=20).filter(str.strip))
def test_latex_is_balanced_whatever_the_names_hold(name):
    assert_balanced(render(page(name, plot(name)), ".tex", Style(intervals=True), folder="figures").split("\n", 1)[1])


def plot(name):
    def draw(axes):
        axes.plot([0, 1], [0, 1], label=name)
        axes.plot([0, 1], [1, 0], label="other")
        axes.set(title=name, xlabel=name, ylabel=name)

    data = pd.DataFrame({"panel": [name], "series": [name], "x": [0.5], "y": [0.5], "label": [name]})
    return Figure("plot", name, {name: draw}, data, [name], name)


@pytest.mark.slow
@examples(12)
@given(NAMES)
def test_a_page_survives_any_name(name):
    made = page(name, plot(name))
    parsed = Parsed(render(made, ".html"))
    assert {tag for tag, _ in parsed.tags} <= {
        *("html", "head", "meta", "link", "title", "style", "body", "header", "main", "h1", "h2", "h3", "section"),
        *("details", "summary", "p", "div", "span", "strong", "pre", "code", "script", "figure", "figcaption"),
        *("table", "thead", "tbody", "tr", "th", "td"),
        *("svg", "text", "tspan", "g", "path", "defs", "use", "clippath", "rect"),
    }
    assert len([tag for tag, _ in parsed.tags if tag == "script"]) == 2, "data and script"
    data = next(text for text in parsed.texts if text.startswith('{"'))
    assert not set("<>&") & set(data) and json.loads(data)["0"]["groups"] == [safe(name)]
    assert parsed.tables[0][1][0] == safe(name)
    render(made, ".md", folder="figures")
    latex = render(made, ".tex", Style(intervals=True), folder="figures")
    assert_balanced(latex.split("\n", 1)[1])  # the first line is a comment


def test_latex_has_as_many_cells_as_columns():
    text = render(page(NASTY), ".tex")
    tables = re.findall(r"\\begin{tabular}{((?:[^{}]|{[^{}]*})*)}\n(.*?)\n\\end{tabular}", text, re.DOTALL)
    sizes = []
    for columns, body in tables:
        rows = [re.split(r"(?<!\\)&", line) for line in body.splitlines() if line.endswith(r"\\")]
        assert {len(row) for row in rows} == {len(re.findall(r"[lr]|p{[^}]*}", columns))}
        sizes.append(len(rows))
    assert sizes == [4, 3]
    assert text.count(r"\midrule") == 3, "published rows are set apart"


def test_a_table_of_latex_that_is_longer_than_a_page_goes_on_in_another_one():
    rows = [[f"setting {number}", "0123456789abcdef" * 4] for number in range(90)]
    table = Table("Configuration", ["setting", "value"], rows, notes=("Once.",), wide=("value",))
    text = render(Page("p", (Section("s", table=table), Section("t", table=Table("u", ["x"], [])))), ".tex")
    assert_balanced(text.split("\n", 1)[1])
    parts = text.split(r"\begin{table}")[1:4]
    assert [len(re.findall(r"setting \d", part)) for part in parts] == [40, 40, 10]
    assert text.count("(continued)") == 2 and text.count("Once.") == 1 and text.count(r"\label{") == 2
    assert r"0123456789abcdef\allowbreak{}0123456789abcdef" in text, "a line may break in a digest"


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles(tmp_path):
    write_page(page(NASTY, plot(NASTY)), tmp_path / "report.tex", Style(intervals=True))
    document = r"\documentclass{article}\usepackage{booktabs,graphicx}\begin{document}\input{report}\end{document}"
    (tmp_path / "main.tex").write_text(document, "utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "main.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True)
    assert done.returncode == 0, done.stdout.decode("utf-8", "replace")[-2000:]


@pytest.mark.slow
def test_figures_stand_beside_markdown_and_latex(tmp_path):
    for name in ("a.md", "b.tex", "c.HTML"):
        write_page(page(figure=plot("p")), tmp_path / name)
    names = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    figures = {f"{stem}-figures/plot{end}" for stem in "ab" for end in (".png", ".svg", ".pdf", ".csv")}
    assert names == {"a.md", "b.tex", "c.HTML"} | figures
    assert "](<a-figures/plot.png>)" in (tmp_path / "a.md").read_text("utf-8")
    with pytest.raises(InputError, match=r"d\.pdf.*\.html, \.md, \.tex"):
        check_suffix(tmp_path / "d.pdf")


def test_a_deviation_has_the_decimals_of_its_mean():
    from sentcli.table import Table

    table = Table("scores", ["model", "MRR@10"], [["ours", 0.7942]], formats={"MRR@10": ".4f"})
    table = replace(table, deviations={(0, "MRR@10"): 0.0008})
    assert table.shown(0, "MRR@10") == "0.7942 ± 0.0008"
