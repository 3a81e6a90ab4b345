"""The pages of the documentation: all stand in the navigation, and commands print the numbers that they show."""

import re
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from typer.main import get_command

from sentcli.cli.app import app

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def listed(entries):
    """Yield the pages of a navigation."""
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        else:
            for below in entry.values():
                yield from listed(below)


def test_every_page_is_in_the_navigation_once():
    """Those of the help texts and of the recipes are written when the site is built."""
    navigation = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]["nav"]
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} | {"cli.md", "recipes.md"}
    assert sorted(listed(navigation)) == sorted(pages)


def test_every_page_begins_with_a_paragraph_that_says_what_it_is_good_for():
    begins = re.compile(r"# .+\n\n\w")
    pages = {page.relative_to(DOCS).as_posix(): page.read_text("utf-8") for page in DOCS.rglob("*.md")}
    assert {name for name, text in pages.items() if not begins.match(text)} == set()


def test_the_first_page_leads_to_every_page():
    """It sends users, researchers and contributors, so that no page is for none of them."""
    navigation = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]["nav"]
    first = (DOCS / "index.md").read_text("utf-8")
    assert [page for page in listed(navigation) if page != "index.md" and f"({page})" not in first] == []


def test_the_first_page_has_every_command():
    rows = (DOCS / "index.md").read_text("utf-8").split("| command |")[1].split("\n\n")[0]
    commands = [f"`sentcli {name}`" for name in get_command(app).list_commands(None)]
    assert len(commands) > 10
    assert [command for command in commands if command not in rows] == []


def test_a_link_to_a_file_that_is_not_there_is_dead(tmp_path, monkeypatch):
    """Those between pages are Zensical's to find; `make check` builds the site."""
    monkeypatch.syspath_prepend(str(DOCS))
    (tmp_path / "below").mkdir()
    (tmp_path / "there.png").touch()
    links = '<a href="../there.png#x"></a> <a href=#top> <a href="https://e.org/x"> <img alt="" src="gone.png">'
    (tmp_path / "below" / "page.html").write_text(links, "utf-8")
    assert list(import_module("make_site").dead_links(tmp_path)) == ["below/page.html: gone.png"]


@pytest.fixture
def numbers(monkeypatch):
    """The script that runs again what pages show."""
    monkeypatch.syspath_prepend(str(DOCS))
    return import_module("check_numbers")


PAGE = """# A page

<!-- printed within {within}, in seconds
echo "step 3: dev 86.72 (best so far)"
echo '{{"step": 1, "loss": 0.12412, "sentences_per_second": 3.2, "other": 7}}'
-->
This printed

```text
{{"step": 1, "loss": 0.124,
 "sentences_per_second": 9}}
step 3: dev {score} ...
```
"""


@pytest.mark.parametrize(
    ("within", "score", "problems"),
    [("0.01", "86.73", 0), ("0.01", "86.75", 1), ("0.1", "86.75", 0), ("1 %", "86.0", 0), ("0.1 %", "86.0", 1)],
)
def test_numbers_of_a_page_are_compared_within_its_tolerance(numbers, tmp_path, within, score, problems):
    page = tmp_path / "page.md"
    page.write_text(PAGE.format(within=within, score=score))
    (printed,) = numbers.printed_in(page)
    assert len(printed.problems(numbers.output_of(printed, tmp_path))) == problems


def test_a_mark_of_another_form_is_no_check_that_is_left_out(numbers, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE.format(within="some", score="1.0"))
    with pytest.raises(ValueError, match=r"page\.md"):
        numbers.printed_in(page)


@pytest.mark.parametrize(
    "minutes", [pytest.param(False, marks=pytest.mark.slow), pytest.param(True, marks=pytest.mark.deep)]
)
def test_commands_print_the_numbers_of_the_pages(numbers, minilm, data, minutes):
    compared = 0
    for page in sorted(DOCS.rglob("*.md")):
        for printed in numbers.printed_in(page):
            if printed.takes_minutes == minutes:
                assert printed.problems(numbers.output_of(printed, data.resolve())) == []
                compared += 1
    assert compared >= 2
