"""Runs the commands again whose output pages show, and compares the numbers within the tolerance that each page states.

A mark in a page is a comment in front of the block that shows the output:

    <!-- printed within 0.1, in seconds
    sentcli train --method simcse -m minilm --data sentences.txt -o trial --max-steps 2
    head -n 2 trial/metrics.jsonl
    -->

The tolerance is absolute, or a share of each number with ``%``. The commands run one after the other in an empty folder
that has ``sentences.txt`` and ``SentEval/data/downstream`` of the folder that ``SENTCLI_DATA`` names. Every line of the
block has to be among those that they print, with numbers that may differ by the tolerance; of an object of JSON the
keys that the page shows are compared, but for speeds. A line may end with ``...``.

    python docs/check_numbers.py             what takes seconds, as CI does
    python docs/check_numbers.py --all       before a release: what takes minutes, too
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
MARK = re.compile(
    r"<!-- printed within (?P<tolerance>[\d.]+)(?P<share> %)?, in (?P<time>seconds|minutes)\n(?P<commands>.*?)-->\n+"
    r"(?:[^\n`<]+\n)*\n*```(?:text|json)\n(?P<block>.*?)```",
    re.DOTALL,
)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
SPEEDS = ("sentences_per_second", "train_seconds", "eval_seconds")
"""Keys whose values are of this machine and this moment."""
RULES = "┏┡└┃━┓┩┘╇┳┴"
"""What rules of tables are made of."""


@dataclass(frozen=True)
class Printed:
    """A block of a page, and how it is made."""

    page: Path
    tolerance: float
    is_share: bool
    takes_minutes: bool
    commands: str
    lines: list[str]

    def problems(self, output: str) -> list[str]:
        """Return what the page shows and the output does not have."""
        objects, texts = _parts(output.splitlines())
        found = []
        for line in self.lines:
            if line.startswith("{"):
                is_there = any(self._same_object(json.loads(line), other) for other in objects)
            else:
                is_there = any(self._same_text(line, other) for other in texts)
            if not is_there:
                found.append(f"{self.page}: not printed any more: {line}")
        return found

    def _same_object(self, shown: dict[str, Any], printed: dict[str, Any]) -> bool:
        for key, value in shown.items():
            if key not in printed:
                return False
            if key not in SPEEDS and not self._same_value(value, printed[key]):
                return False
        return True

    def _same_value(self, shown: Any, printed: Any) -> bool:
        if isinstance(shown, bool) or not isinstance(shown, int | float):
            return bool(shown == printed)
        return self._near(shown, printed)

    def _same_text(self, shown: str, printed: str) -> bool:
        is_open = shown.endswith("...")
        shown = shown.removesuffix("...").rstrip()
        if is_open:
            pattern = NUMBER.sub("\0", shown)
            words = [re.escape(part) for part in pattern.split("\0")]
            start = re.match(NUMBER.pattern.join(words), printed)
            if start is None:
                return False
            printed = start[0]
        if NUMBER.split(shown) != NUMBER.split(printed):
            return False
        numbers = zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=True)
        return all(self._near(float(first), float(second)) for first, second in numbers)

    def _near(self, shown: float, printed: float) -> bool:
        """Tell whether a number is within the tolerance of what the page shows, besides digits that it leaves out."""
        allowed = self.tolerance
        if self.is_share:
            allowed *= abs(shown) / 100
        digits = str(shown).partition(".")[2]
        return math.isclose(shown, printed, rel_tol=0, abs_tol=allowed + 0.5 * 10 ** -len(digits))


def _parts(lines: list[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the objects of JSON among some lines, and the other lines with one space between words."""
    objects = []
    texts = []
    for line in lines:
        try:
            objects.append(json.loads(line))
        except ValueError:
            texts.append(" ".join(line.split()))
    return objects, texts


def shown_lines(block: str) -> list[str]:
    """Return the lines of a block, one with the lines that continue it, without the rules of tables."""
    lines: list[str] = []
    for line in block.rstrip().splitlines():
        if line.startswith(" ") and lines:
            lines[-1] += line
        elif not set(line.strip()) <= set(RULES):
            lines.append(line)
    return [" ".join(line.split()) for line in lines]


def printed_in(page: Path) -> list[Printed]:
    """Return the blocks of a page that have a mark.

    Raises:
        ValueError: if a mark is not of the form above.
    """
    text = page.read_text("utf-8")
    found = []
    for mark in MARK.finditer(text):
        found.append(
            Printed(
                page,
                float(mark["tolerance"]),
                bool(mark["share"]),
                mark["time"] == "minutes",
                mark["commands"],
                shown_lines(mark["block"]),
            )
        )
    if len(found) != text.count("<!-- printed within"):
        raise ValueError(f"{page}: a mark has another form than docs/check_numbers.py says")
    return found


def output_of(printed: Printed, data: Path) -> str:
    """Run the commands of a block in a folder of their own, and return what they print.

    Raises:
        subprocess.CalledProcessError: if one of them fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "sentences.txt").symlink_to(data / "corpus" / "wiki.txt")
        (place / "SentEval" / "data").mkdir(parents=True)
        (place / "SentEval" / "data" / "downstream").symlink_to(data / "senteval")
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["sh", "-ec", printed.commands],
            cwd=folder,
            env={**os.environ, "PATH": path, "COLUMNS": "200"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    if done.returncode:
        raise SystemExit(f"{printed.page}: {printed.commands}{done.stdout}")
    return done.stdout


def main() -> int:
    """Compare the blocks of all pages; the exit code is 1 if a number has moved on."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="also what takes minutes")
    parser.add_argument("pages", nargs="*", type=Path, help="of these pages alone")
    arguments = parser.parse_args()
    data = Path(os.environ["SENTCLI_DATA"]).resolve()
    pages = arguments.pages or sorted((ROOT / "docs").rglob("*.md"))
    problems = []
    for page in pages:
        for printed in printed_in(page.resolve()):
            if arguments.all or not printed.takes_minutes:
                output = output_of(printed, data)
                found = printed.problems(output)
                problems += found
                if found:
                    print(output)
    print("\n".join(problems) or "the numbers are those of the pages")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
