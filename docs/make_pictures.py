"""Make the pictures of the README from its commands: ``python docs/make_pictures.py`` (with Chromium installed)."""

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from browser import browser
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

DOCS = Path(__file__).resolve().parent
TARGET = DOCS / "pictures"
MODELS = ["-m", "minilm", "-m", "sentcli-bert-mini"]
MAKE_SET = ["data", "make-set", "docs", "-o", "docs-set", "--limit", "200"]
EVALUATE = ["evaluate", "docs-set", *MODELS]
MAP = ["analyze", "map", "docs-set/corpus.jsonl", *MODELS, "--clusters", "8", "-o", "docs-map"]
COLUMNS = 112
LARGEST = 200_000
"""The greatest size of a picture in bytes."""
FONTS = re.compile(r"@font-face \{\{.*?\}\}\s*", re.DOTALL)


def run(command: list[str], folder: Path) -> str:
    """Run a command of sentcli in a folder, and return what it prints on a terminal."""
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    print("sentcli", *command, flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "sentcli", *command], cwd=folder, env=environment, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


def terminal(command: list[str], printed: str) -> str:
    """Return a terminal with a command and what it printed, as SVG without fonts from elsewhere."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ sentcli {' '.join(command)}", style="bold"))
    console.print(Text.from_ansi(printed.rstrip()))
    template = FONTS.sub("", CONSOLE_SVG_FORMAT)
    return console.export_svg(title="sentcli", theme=DIMMED_MONOKAI, code_format=template, unique_id="evaluate")


def main() -> None:
    """Write the table of `evaluate`, and the map in light and dark."""
    TARGET.mkdir(exist_ok=True)
    with browser() as chromium, tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        (folder / "docs").symlink_to(DOCS)
        run(MAKE_SET, folder)
        (TARGET / "evaluate.svg").write_text(terminal(EVALUATE, run(EVALUATE, folder)), "utf-8")
        run(MAP, folder)
        for theme in ("light", "dark"):
            page, target = folder / "docs-map" / "index.html", TARGET / f"map-{theme}.png"
            chromium.picture(page, target, 1280, theme, "figure")
    for picture in sorted(TARGET.iterdir()):
        if picture.stat().st_size > LARGEST:
            sys.exit(f"{picture} has {picture.stat().st_size:,} bytes, more than {LARGEST:,}")
        print(picture, f"{picture.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
