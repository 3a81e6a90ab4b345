"""Which modules decide vectors and scores, and whether one of them has changed: ``python -m tests.numbers``.

What sentcli keeps of vectors and scores is keyed by `identity.NUMBERS` instead of its source, so that an edit that
moves no number voids nothing. numbers.json holds that number and a digest of the code of each of these modules, without
comments, docstrings and annotations of types. Where one has changed, NUMBERS is raised if numbers may have moved, and

    python -m tests.numbers --write

records both. Where numbers are the same to the last digit (``tests.frozen`` says so), new code is recorded under the
old number.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from sentcli.model.identity import NUMBERS

ROOT = Path(__file__).parent.parent
RECORD = Path(__file__).with_name("numbers.json")
DECIDING = (
    "sentcli/model/**/*.py",
    "sentcli/encoder/*.py",
    "sentcli/onnx_export/*.py",
    "sentcli/evaluation/*.py",
    "sentcli/search/*.py",
    "sentcli/stores/*.py",
    "sentcli/compression.py",
    "sentcli/precision.py",
    "sentcli/devices.py",
)
"""Where the modules are that compute vectors and scores, or write and read what is kept of them."""
NOT_DECIDING = {
    "sentcli/evaluation/costs.py": "speeds and sizes, which are not kept",
    "sentcli/evaluation/estimate.py": "times and sizes, which are not kept",
    "sentcli/evaluation/options.py": "options",
    "sentcli/evaluation/papers.py": "what papers print",
    "sentcli/evaluation/published.py": "what papers print",
    "sentcli/evaluation/mteb_results.py": "scores of other programs",
    "sentcli/evaluation/table_check.py": "facts of a table",
    "sentcli/evaluation/observed_hits.py": "thresholds, which no cache keeps",
    "sentcli/evaluation/observing.py": "thresholds, which no cache keeps",
    "sentcli/evaluation/thresholds.py": "thresholds, which no cache keeps",
    "sentcli/search/calibration.py": "probabilities beside scores, which no cache keeps",
    "sentcli/search/options.py": "options",
    "sentcli/stores/__init__.py": "collections of a database, of which nothing is kept here",
    "sentcli/stores/collection_corpus.py": "collections of a database, of which nothing is kept here",
    "sentcli/stores/collection_vectors.py": "collections of a database, of which nothing is kept here",
    "sentcli/stores/database_collection.py": "collections of a database, of which nothing is kept here",
    "sentcli/stores/known_rows.py": "collections of a database, of which nothing is kept here",
    "sentcli/stores/record.py": "collections of a database, of which nothing is kept here",
    "sentcli/stores/row_places.py": "collections of a database, of which nothing is kept here",
    "sentcli/stores/store.py": "collections of a database, of which nothing is kept here",
}
"""The modules there that decide neither, with the reason."""


def main() -> None:
    """Say which deciding modules have changed; the exit code is 1 if one has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="record the code of now")
    if parser.parse_args().write:
        record = {"numbers": NUMBERS, "modules": digests()}
        RECORD.write_text(json.dumps(record, indent=2) + "\n", "utf-8")
        return
    problems = list(changes())
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


def digests() -> dict[str, str]:
    """Return a digest of the code of each deciding module, by its path."""
    paths: set[Path] = set()
    for pattern in DECIDING:
        paths.update(ROOT.glob(pattern))
    names = sorted(path.relative_to(ROOT).as_posix() for path in paths)
    return {name: code_digest((ROOT / name).read_text("utf-8")) for name in names if name not in NOT_DECIDING}


def code_digest(source: str) -> str:
    """Return a digest of what a source does: without comments, docstrings and annotations of types."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [statement for statement in node.body if not _is_docstring(statement)]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:16]


def _is_docstring(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def changes() -> Iterator[str]:
    """Yield a line for each deciding module that is not as numbers.json has it."""
    record = json.loads(RECORD.read_text("utf-8"))
    if record["numbers"] != NUMBERS:
        yield f"NUMBERS is {NUMBERS}, and {record['numbers']} was recorded: python -m tests.numbers --write"
        return
    modules = digests()
    for name in sorted(modules.keys() | record["modules"].keys()):
        if modules.get(name) != record["modules"].get(name):
            yield (
                f"{name} has changed: raise NUMBERS in sentcli/model/identity.py if vectors, scores or what is kept of "
                "them may have moved, then python -m tests.numbers --write"
            )


if __name__ == "__main__":
    main()
