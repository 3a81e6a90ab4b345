"""Refuse to release what is not ready, build the wheel and the sdist, and print the notes.

    python .ci/release.py [--no-tests]

Nothing is tagged or uploaded: the last lines say what to type for that.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def git(*words: str) -> str:
    """Return what git prints."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def version_of(root: Path) -> str:
    """Return the version that the package says."""
    text = (root / "sentcli" / "__init__.py").read_text("utf-8")
    found = re.search(r'^__version__ = "(\d+\.\d+\.\d+)"$', text, re.MULTILINE)
    if found is None:
        sys.exit("sentcli/__init__.py says no version like 1.2.3")
    return found[1]


def notes_of(root: Path, version: str) -> str:
    """Return the section of the changelog for a version, which has to say a date."""
    text = (root / "CHANGELOG.md").read_text("utf-8")
    found = re.search(rf"^## {re.escape(version)} \(([^)\n]+)\)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None:
        sys.exit(f"CHANGELOG.md has no section '## {version} (DATE)'")
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", found[1]):
        sys.exit(f"CHANGELOG.md: the section of {version} says {found[1]!r} instead of a date")
    return found[2].strip()


def check(root: Path, tags: list[str]) -> tuple[str, str]:
    """Return the version and its notes.

    Args:
        root: of the project.
        tags: of the versions that were released.
    """
    version = version_of(root)
    if f"v{version}" in tags:
        sys.exit(f"v{version} is released: bump __version__ in sentcli/__init__.py")
    cited = re.search(r"^version: (\S+)$", (root / "CITATION.cff").read_text("utf-8"), re.MULTILINE)
    if cited is None or cited[1] != version:
        sys.exit(f"CITATION.cff does not say version: {version}")
    minor = version.rpartition(".")[0]
    if not (root / "tests" / "kept" / minor).is_dir():
        sys.exit(f"tests/kept has no artefacts of {minor}: python -m tests.kept.make tests/kept/{minor}")
    return version, notes_of(root, version)


def main() -> None:
    """Check, test, build, and say what to type."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-tests", action="store_true", help="of this commit the tests have passed already")
    options = parser.parse_args()
    if git("status", "--porcelain"):
        sys.exit("the tree is dirty: commit or put away what is there")
    version, notes = check(ROOT, git("tag").split())
    if not options.no_tests:
        subprocess.run([ROOT / ".ci" / "run"], check=True)
        subprocess.run(["make", "test-deep"], cwd=ROOT, check=True)
    subprocess.run([sys.executable, "-m", "uv", "build", "--out-dir", ROOT / "dist"], cwd=ROOT, check=True)
    print(notes)
    print(f"\ngit tag -a v{version} -m {version} && git push origin v{version}\nuv publish dist/sentcli-{version}*")


if __name__ == "__main__":
    main()
