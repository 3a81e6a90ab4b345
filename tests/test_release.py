"""What is not ready is not released: the version, the changelog, the citation and the artefacts agree."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SPEC = importlib.util.spec_from_file_location("release", ROOT / ".ci" / "release.py")
release = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(release)

FILES = {
    "sentcli/__init__.py": '__version__ = "1.2.0"\n',
    "CITATION.cff": "version: 1.2.0\n",
    "CHANGELOG.md": "# Changelog\n\n## 1.2.0 (2027-01-31)\n\n- new\n\n## 1.1.0 (2026-12-24)\n\n- old\n",
    "tests/kept/1.2/hits.json": "{}",
}


@pytest.fixture
def root(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_what_is_ready_has_its_notes(root):
    assert release.check(root, ["v1.1.0"]) == ("1.2.0", "- new")


@pytest.mark.parametrize(
    ("file", "was", "now"),
    [
        ("sentcli/__init__.py", "1.2.0", "1.1.0"),  # it is released already
        ("sentcli/__init__.py", "1.2.0", "1.2.0.dev1"),
        ("CITATION.cff", "1.2.0", "1.1.0"),
        ("CHANGELOG.md", "2027-01-31", "unreleased"),
        ("CHANGELOG.md", "## 1.2.0", "## Unreleased"),
        ("tests/kept/1.2/hits.json", None, None),
    ],
)
def test_what_is_not_ready_is_refused(root, file, was, now):
    path = root / file
    if was is None:
        path.unlink()
        path.parent.rmdir()
    else:
        path.write_text(path.read_text().replace(was, now))
    with pytest.raises(SystemExit) as refused:
        release.check(root, ["v1.1.0"])
    assert refused.value.code


def test_the_changelog_of_this_project_is_short():
    assert len((ROOT / "CHANGELOG.md").read_text().splitlines()) <= 150
