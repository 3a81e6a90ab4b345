"""A heading begins a passage: what is cut together stands under one heading, and overlap stays under it."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentcli.io.blocks import blocks
from sentcli.io.pages import Heading, front_matter, headings, page_layout
from sentcli.io.readers import ReadOptions
from sentcli.io.text_inputs import text_sources
from sentcli.model.cutting import Cutter, Span
from sentcli.model.passages import BETWEEN_HEADINGS, COLUMNS, PassageRows
from sentcli.model.tokenizing import TextTokenizer
from sentcli.stores.inputs import read_inputs
from tests.examples import examples
from tests.model.test_cutting import BACKENDS, MAX_LENGTH

DOCS = Path(__file__).parents[2] / "docs"
CAT = "the cat sat on the mat. "
BODIES = [
    CAT,
    CAT * 6,
    f"{CAT * 2}\n\n{CAT * 2}",
    "- the cat\n  - the dog\n\n    # a heading of an item\n\n    the bird\n- the fish",
    "1. the cat\n\n   ## a heading of an item\n\n2. the dog",
    "```sh\n# a comment\nthe cat\n\n## another\n```",
    "~~~~\n# a comment\n~~~\n# as before\n~~~~",
    "    # code that is indented",
    "> # a heading of a quotation\n> the cat",
    "| the | cat |\n|---|---|\n| sat | # on |\n| the | mat |",
    "| the | cat |\n|---|---|\n" + "| sat. the | # on |\n" * 9 + "| the | mat |",
    "- the cat\n\n  | the |\n  |---|\n" + "  | sat on the mat. |\n" * 6 + "- the dog",
    "> | the |\n> |---|\n" + "> | sat |\n" * 8 + ">\n> the cat",
    "```py\nthe cat\n\n" + "    sat. on the mat\n" * 6 + "\nthe dog\n```",
    "the cat\n\n    sat. on\n\n" + "      the mat\n" * 9,
    "<div>\n# no heading\n</div>",
    "<!-- the cat\n\n# no heading\n\n-->",
    "#no heading",
    "***",
    "[link]: https://example.org",
    "猫が座る。",
]
"""Blocks of Markdown without a heading of the page."""
WORDS = ["the cat", "sat", "zanzibar on the mat", "`code` *of* [a link](x.md)"]


@st.composite
def pages(draw):
    """Return a page and its headings: their characters and levels."""
    newline = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    text = draw(st.sampled_from(["", "\n\n", "  \n"]))
    expected = []
    for level in draw(st.lists(st.integers(0, 6), max_size=12)):
        words = draw(st.sampled_from(WORDS))
        if level == 0:
            block = draw(st.sampled_from(BODIES))
        elif level < 3 and draw(st.booleans()):
            block = f"{words}\n{'=-'[level - 1] * 3}"
        else:
            block = f"{'#' * level} {words}{draw(st.sampled_from(['', ' #']))}"
        if level:
            expected.append((len(text.replace("\n", newline)), level))
        text += f"{block}\n\n"
    text = text.removesuffix(draw(st.sampled_from(["", "\n", "\n\n"])))
    return text.replace("\n", newline), expected


def a_cutter(tokens, overlap=0, backend="wordpiece"):
    return Cutter(TextTokenizer(BACKENDS[backend](), MAX_LENGTH, 0), tokens, overlap)


def words_under(heading: Heading, text: str, found: list[Heading]) -> str:
    """Return the text between a heading and the next one."""
    end = min([other.start for other in found if other.start > heading.start], default=len(text))
    return text[heading.end : end].strip()


def has_one_heading_above(span, text, found):
    """Tell whether a passage has no heading behind its first line that is no child of the one there."""
    begin = span.start + len(text[span.start : span.end]) - len(text[span.start : span.end].lstrip())
    inside = [heading for heading in found if begin <= heading.start < span.end]
    if not inside:
        return True
    first, *others = inside
    return first.start == begin and all(heading.level > first.level for heading in others)


def orphan(span, text, found) -> Heading | None:
    """Return the heading with which a passage ends, if it has text, or one below it has, that is not in the passage."""
    inside = [heading for heading in found if span.start <= heading.start and heading.end <= span.end]
    if not inside or text[inside[-1].end : span.end].strip():
        return None
    last = inside[-1]
    behind = found[found.index(last) + 1 :]
    has_child = bool(behind) and behind[0].level > last.level
    return last if words_under(last, text, found) or has_child else None


def room_for_more(cutter, span, text, found) -> bool:
    """Tell whether a passage that ends with a heading has room for the text below that, or the next heading and its."""
    end = span.end + len(text[span.end :]) - len(text[span.end :].lstrip())
    for heading in found:
        if heading.start == end:
            end = heading.end + len(text[heading.end :]) - len(text[heading.end :].lstrip())
            break
    alone = cutter.length(text[span.start : end + 1])
    in_document = cutter.length(text[: end + 1]) - cutter.length(text[: span.start])  # signs may be one token in there
    return max(alone, in_document) < cutter.tokens


@examples(150)
@given(page=pages(), tokens=st.integers(8, 60), part=st.sampled_from([0, 0.3, 0.5]))
@pytest.mark.parametrize("backend", BACKENDS)
def test_passages_stand_under_one_heading(backend, page, tokens, part):
    text, expected = page
    found = headings(text)
    assert [(heading.start, heading.level) for heading in found] == expected
    parts = page_layout(text)
    assert "".join(text[section.start : section.end] for section in parts.sections) == text
    cutter = a_cutter(tokens, int(tokens * part), backend)
    spans = cutter.cut(text, parts)
    assert (spans[0].start, spans[-1].end) == (0, len(text))
    for one, other in itertools.pairwise(spans):
        assert one.start < other.start <= one.end < other.end
    if not cutter.overlap:
        assert "".join(text[span.start : span.end] for span in spans) == text
    for span in spans:
        assert cutter.length(span.text_in(text)) <= tokens or span.end - span.start == 1
        assert text[slice(*span.header)] in ("", header_above(span, parts.rows, text))
        assert has_one_heading_above(span, text, found)
        if orphan(span, text, found):
            assert not room_for_more(cutter, span, text, found)


def header_above(span, rows, text) -> str:
    """Return the header row, and the line below it, of the table among whose rows a passage begins."""
    for part in rows:
        if part.is_table and part.first <= span.start < part.end:
            return text[part.start : part.first]
    return ""


def heading_at(place: int, found: list[Heading]) -> str | None:
    """Return the headings above a character as the column has them."""
    above: dict[int, str] = {}
    for heading in found:
        if heading.start <= place:
            above = {level: words for level, words in above.items() if level < heading.level}
            above[heading.level] = heading.words
    return BETWEEN_HEADINGS.join(above.values()) or None


def heading_of(span, text, found) -> str | None:
    """Return the headings above the first text of a passage, or of a section that is whole in it with all below it."""
    begin = span.start + len(text[span.start : span.end]) - len(text[span.start : span.end].lstrip())
    place = begin
    for heading in found:
        if not begin <= heading.start < span.end:
            continue
        place = heading.start
        borders = [other.start for other in found if other.start > place and other.level <= heading.level]
        if words_under(heading, text, found) or min(borders, default=len(text)) <= span.end:
            break
    return heading_at(place, found)


def rows_of(folder, cutter):
    """Return the passages of a folder of pages, by page."""
    sources = text_sources([str(folder)], pages=True)
    rows = {}
    for block in blocks(sources, ReadOptions("text", None, cut=PassageRows(cutter)), columns=COLUMNS):
        for number, text in enumerate(block.texts):
            row = {name: values[number] for name, values in block.columns.items()} | {"text": text}
            rows.setdefault(row["document"], []).append(row)
    return rows


@pytest.mark.slow
@pytest.mark.parametrize(("tokens", "overlap"), [(48, 0), (254, 16)])
def test_all_pages_of_the_documentation(tokens, overlap):
    cutter = a_cutter(tokens, overlap)
    rows = rows_of(DOCS, cutter)
    assert len(rows) > 50
    for page, passages in rows.items():
        text = front_matter((DOCS / page).read_text("utf-8").removesuffix("\n"), page)[1]
        found, parts = headings(text), page_layout(text)
        end = 0
        for row in passages:
            span = Span(row["start"], row["end"])
            header = header_above(span, parts.rows, text)
            if cutter.length(header) + overlap > tokens // 2:  # it would leave too little for rows
                header = ""
            assert row["text"] == header + text[span.start : span.end]
            assert span.start <= end < span.end
            end = span.end
            assert has_one_heading_above(span, text, found)
            assert row["heading"] == heading_of(span, text, found)
            if orphan(span, text, found):
                assert not room_for_more(cutter, span, text, found)
        assert end == len(text)


TABLE = "| name | price |\n| --- | --- |\n"
ROWS = [f"| the cat {number}. It sat. | {number} |\n" for number in range(12)]
CODE = [f"    the cat {number}. It sat.\n" for number in range(4)]


def texts_of(text, cutter):
    return [span.text_in(text) for span in cutter.cut(text, page_layout(text))]


@pytest.mark.parametrize("rows_in_both", [0, 1])
def test_the_header_row_of_a_table_stands_above_its_rows_in_each_passage(rows_in_both):
    text = f"# Prices\n\nthe cat.\n\n{TABLE}{''.join(ROWS)}\nthe dog.\n"
    length = a_cutter(8).length
    cutter = a_cutter(2 * length(TABLE) + 5 * length(ROWS[0]), rows_in_both * length(ROWS[-1]))
    found = texts_of(text, cutter)
    seen = []
    for passage in found:
        rows = [line for line in passage.splitlines(keepends=True) if line in ROWS]
        assert (TABLE in passage) == bool(rows)
        assert passage.count(TABLE) <= 1
        in_table = passage.partition(TABLE)[2].partition("\n\n")[0].splitlines()
        assert all(f"{line}\n" in ROWS for line in in_table if line)  # no row is cut
        seen += rows
    assert set(seen) == set(ROWS)
    assert (len(seen) > len(ROWS)) == bool(rows_in_both)


def test_a_header_row_that_leaves_too_little_for_rows_is_not_repeated():
    wide = f"| {'the cat ' * 30}|\n| --- |\n"
    text = wide + "".join(ROWS)
    found = texts_of(text, a_cutter(40))
    assert "".join(found) == text


def test_code_is_cut_at_blank_lines_else_between_lines_and_keeps_its_indentation():
    blocks_of_code = ["".join(CODE), "".join(CODE[::-1])]
    text = "```py\ndef cat():\n" + "\n".join(blocks_of_code) + "```\n"
    length = a_cutter(8).length
    first, second = texts_of(text, a_cutter(length(text) - 2))
    assert first.rstrip("\n").endswith(CODE[-1].rstrip("\n")) and second.startswith(CODE[-1])
    pieces = texts_of(text, a_cutter(length("".join(CODE[:2])) + 3))
    assert all(
        line in {"```py", "def cat():", "```", ""} or f"{line}\n" in CODE
        for piece in pieces
        for line in piece.splitlines()
    )
    assert len(pieces) > 3 and "".join(pieces) == text


SETUP = "# Setup\n\nPlug in.\n\n## Part 5\n\nThe last lines.\n\n"
DAMAGE = "## Damage\n\n### Water\n\nIt is not covered.\n"
WARRANTY = f"# Warranty\n\nTwo years.\n\n{DAMAGE}"


@pytest.mark.parametrize(
    ("text", "most", "expected"),
    [
        (SETUP + WARRANTY, SETUP + WARRANTY, ["Setup: # Setup", "Warranty: # Warranty"]),
        (
            SETUP + WARRANTY,
            DAMAGE,
            ["Setup: # Setup", "Setup > Part 5: ## Part 5", "Warranty: # Warranty", "Warranty > Damage: ## Damage"],
        ),
        (f"Above.\n\n{WARRANTY}", WARRANTY + WARRANTY, ["None: Above.", "Warranty: # Warranty"]),
        (f"\n\n{SETUP}# Warranty\n\nNo.", WARRANTY, ["Setup: # Setup", "Warranty: # Warranty"]),
        ("# One\n\n# Two\n\n## Three", WARRANTY, ["One: # One", "Two: # Two"]),
        (f"# One\n\n## Two\n\n{CAT * 3}", f"# One\n\n## Two\n\n{CAT}", ["One > Two: # One", f"One > Two: {CAT * 2}"]),
        ("no heading", WARRANTY, ["None: no heading"]),
    ],
)
def test_small_sections_are_joined_with_those_below_them(text, most, expected, tmp_path):
    (tmp_path / "page.md").write_text(text, "utf-8")
    (passages,) = rows_of(tmp_path, a_cutter(a_cutter(8).length(most))).values()
    first_lines = []
    for row in passages:
        first_lines.append(f"{row['heading']}: {row['text'].lstrip().splitlines()[0]}")
    assert first_lines == expected


def test_cutting_at_headings_is_recorded_of_pages_that_have_some(tmp_path):
    (tmp_path / "page.md").write_text("# One\n\nthe cat", "utf-8")
    (tmp_path / "plain.md").write_text("the cat", "utf-8")
    (tmp_path / "rows.md").write_text("the cat\n\n```\n# a comment\n```", "utf-8")
    (tmp_path / "text.txt").write_text("# the cat", "utf-8")
    for cut, recorded in ((PassageRows(a_cutter(8)), [True, False, True, False]), (None, [False] * 4)):
        inputs = read_inputs([str(tmp_path)], ReadOptions("text", None, cut=cut))
        assert ["cut" in facts for facts in inputs.identity()] == recorded
