"""Real input for the demo, from what every machine with a checkout has: ``python demo/prepare.py OUTPUT_FOLDER``.

    OUTPUT_FOLDER/docs/         the documentation, section by section, as a retrieval set in BEIR layout, with the
                                queries and judgements that stand beside this file
    OUTPUT_FOLDER/stdlib.txt    sentences from the docstrings of the Python standard library, to train on

Only the standard library is used, and nothing is downloaded. The same checkout and the same Python give the same bytes.
"""

from __future__ import annotations

import ast
import inspect
import json
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
DOCS = HERE.parent / "docs"
GENERATED = ("cli.md", "recipes.md")
"""Pages that are not prose: the help texts would answer every query about an option."""

SKIPPED_FOLDERS = ("site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "__pycache__")
WORDS = range(5, 41)
LETTERS = 0.8
"""Share of letters among the characters that are not blanks: below it, it is code, a table or a signature."""
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(])")
ABBREVIATIONS = ("e.g.", "i.e.", "etc.", "vs.", "cf.")


def slug(heading: str) -> str:
    """Return a heading in lower case with hyphens: ``Read metrics.jsonl`` becomes ``read-metrics-jsonl``."""
    return re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")


def docs_corpus(docs_folder: Path) -> list[dict[str, str]]:
    """Return the sections (``##``) of all pages as documents, in the order of page names.

    Args:
        docs_folder: a folder of Markdown files; generated pages are left out.

    Returns:
        Objects with ``_id`` (``page#slug-of-the-heading``), ``title`` (page title and heading) and ``text``
        (the body; blocks of code are kept as text, without their fences).
    """
    documents = []
    for path in sorted(docs_folder.glob("*.md")):
        if path.name in GENERATED:
            continue
        page = path.stem
        for level, heading, body in _parts(path.read_text("utf-8")):
            if level == 1:
                page = heading
            elif body:
                title = f"{page}: {heading}"
                documents.append({"_id": f"{path.stem}#{slug(heading)}", "title": title, "text": body})
    return documents


def _parts(markdown: str) -> Iterator[tuple[int, str, str]]:
    """Yield (level, heading, body) of each ``#`` and ``##``; a heading inside a block of code is none."""
    level, heading, body, fenced = 0, "", list[str](), False
    for line in [*markdown.splitlines(), "# "]:
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and (found := re.match(r"(##?) (.*)", line)):
            if level:
                yield level, heading, "\n".join(body).strip()
            level, heading, body = len(found[1]), found[2].strip(), []
        else:
            body.append(line)


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
    documents = docs_corpus(DOCS)
    write_lines(output / "docs" / "corpus.jsonl", [json.dumps(d, ensure_ascii=False) for d in documents])
    for name in ("queries.jsonl", "qrels/test.tsv"):
        shutil.copyfile(HERE / name, output / "docs" / name)
    harvested = stdlib_docstrings()
    write_lines(output / "stdlib.txt", harvested)
    queries = len((HERE / "queries.jsonl").read_text("utf-8").splitlines())
    print(f"{output / 'docs'}: {len(documents)} sections of the documentation, {queries} queries with judgements")
    print(f"{output / 'stdlib.txt'}: {len(harvested)} sentences from the docstrings of the standard library")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
