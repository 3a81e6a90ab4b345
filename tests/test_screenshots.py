"""docs/screenshots.py takes pictures of every kind of page that there is."""

from importlib import import_module
from pathlib import Path

import pytest

import sentcli
from sentcli.analysis import ANALYSES

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture
def script(monkeypatch):
    """The script, which imports the one beside it."""
    monkeypatch.syspath_prepend(str(DOCS))
    return import_module("screenshots")


def with_pages():
    """The verbs that have --report, and the one that makes nothing but pages."""
    verbs = [getattr(import_module(f"sentcli.verbs.{name}"), name) for name in sentcli.VERBS if name != "analyze"]
    declared = [verb.verb for verb in verbs]
    return {verb.name for verb in declared if any(argument.name == "report" for argument in verb.arguments)} | {
        "report"
    }


def test_every_kind_of_page_has_a_picture(script):
    taken = {command[0] for command in script.PAGES.values()}
    assert with_pages() >= {"evaluate", "sts-eval", "senteval", "retrieve"}
    assert with_pages() - taken == set()
    assert {command[1] for command in script.PAGES.values() if command[0] == "analyze"} == set(ANALYSES)
    assert any("--judge" in command for command in script.PAGES.values())


def test_without_chromium_it_says_so(script, tmp_path, monkeypatch):
    monkeypatch.setenv("SENTCLI_DATA", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="no chromium"):
        script.main(tmp_path / "pictures", [])
    assert not (tmp_path / "pictures").exists()
