"""The pages of the documentation: all stand in the navigation of the site, and the first one names every command."""

import tomllib
from importlib import import_module
from pathlib import Path

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
    navigation = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]["nav"]
    assert sorted(listed(navigation)) == sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


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
