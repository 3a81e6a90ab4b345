"""Real input for the demo, from what every machine with a checkout has: ``python demo/prepare.py OUTPUT_FOLDER``.

    OUTPUT_FOLDER/docs/         sections of thirteen pages of this documentation as they once were, with queries and
                                judgements, as a retrieval set in BEIR layout: what stands beside this file, and stays
    OUTPUT_FOLDER/stdlib.txt    sentences from the docstrings of the Python standard library, to train on

Only the standard library is used, and nothing is downloaded. The same checkout and the same Python give the same bytes.
"""

from __future__ import annotations

import ast
import inspect
import random
import re
import shutil
import sys
import sysconfig
import tokenize
import warnings
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
SKIPPED_FOLDERS = ("site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "__pycache__")
WORDS = range(5, 41)
LETTERS = 0.8
"""Share of letters among the characters that are not blanks: below it, it is code, a table or a signature."""
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(])")
ABBREVIATIONS = ("e.g.", "i.e.", "etc.", "vs.", "cf.")


def stdlib_docstrings() -> list[str]:
    """Return distinct sentences from the docstrings of the installed standard library, in a seeded random order."""
    root = Path(sysconfig.get_path("stdlib"))
    found: dict[str, str] = {}
    for path in sorted(root.rglob("*.py"), key=lambda p: p.relative_to(root).as_posix()):
        if any(part in SKIPPED_FOLDERS for part in path.relative_to(root).parts[:-1]):
            continue
        for docstring in _docstrings(path):
            for sentence in sentences(docstring):
                found.setdefault(sentence.casefold(), sentence)
    kept = list(found.values())
    random.Random(0).shuffle(kept)  # one module's sentences would else stand together in a batch
    return kept


def _docstrings(path: Path) -> Iterator[str]:
    try:
        with tokenize.open(path) as handle, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's strings
            tree = ast.parse(handle.read())
    except (OSError, SyntaxError, ValueError):  # templates, and files that show what a syntax error is
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring = ast.get_docstring(node, clean=False)
            if docstring:
                yield inspect.cleandoc(docstring)


def sentences(docstring: str) -> Iterator[str]:
    """Yield the sentences of a docstring that are prose of 5 to 40 words; doctests are left out whole."""
    for paragraph in re.split(r"\n\s*\n", docstring):
        if ">>>" in paragraph:
            continue
        text = " ".join(paragraph.split())
        pieces: list[str] = []
        for piece in SENTENCE_END.split(text):
            if pieces and pieces[-1].endswith(ABBREVIATIONS):
                pieces[-1] += f" {piece}"
            else:
                pieces.append(piece)
        yield from filter(_is_prose, pieces)


def _is_prose(sentence: str) -> bool:
    solid = [character for character in sentence if not character.isspace()]
    letters = sum(character.isalpha() for character in solid)
    return len(sentence.split()) in WORDS and letters >= LETTERS * len(solid)


def write_lines(path: Path, lines: list[str]) -> None:
    """Write lines as UTF-8, each ended by a line feed on every system."""
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8", newline="\n")


def main(argv: list[str]) -> int:
    """Write everything and print the counts; `argv` holds the output folder."""
    if len(argv) != 1 or argv[0].startswith("-"):
        print("usage: python demo/prepare.py OUTPUT_FOLDER", file=sys.stderr)
        return 2
    output = Path(argv[0])
    (output / "docs" / "qrels").mkdir(parents=True, exist_ok=True)
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        shutil.copyfile(HERE / name, output / "docs" / name)
    harvested = stdlib_docstrings()
    write_lines(output / "stdlib.txt", harvested)
    sections, queries = (
        len((HERE / f"{name}.jsonl").read_text("utf-8").splitlines()) for name in ("corpus", "queries")
    )
    print(f"{output / 'docs'}: {sections} sections of the documentation, {queries} queries with judgements")
    print(f"{output / 'stdlib.txt'}: {len(harvested)} sentences from the docstrings of the standard library")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
