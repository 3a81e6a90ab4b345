"""That a public name stands for one thing: it is defined in one module of the package. ``python -m tests.names``.

A name counts where a module defines it at its top: a class, a function, a constant or an alias of a type, without an
underscore in front. What is imported is defined elsewhere, and type variables mean nothing outside of a signature.

`PLUGINS` holds the names that all plug-ins of a kind have, since the same is meant by them. `TO_MERGE` holds those that
are to be merged or renamed. A name that is repeated no longer has to leave the lists.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
TYPE_VARIABLES = {"TypeVar", "ParamSpec"}
DATABASES = ("*.lance.*", "*.milvus.*", "*.postgres.*")


class Plugin(NamedTuple):
    """A name that all plug-ins of a kind have."""

    modules: tuple[str, ...]
    """Patterns of the modules that may define it."""
    reason: str


PLUGINS = {
    "INDEX_TYPES": Plugin(DATABASES, "what a database calls the types of indexes"),
    "METHOD": Plugin(("sentcli.methods.papers.*",), "the method that a file defines"),
    "RECORD_KEY": Plugin(DATABASES, "where a database keeps the record of a collection"),
    "answering": Plugin(DATABASES, "turns the errors of a database into messages"),
    "connect": Plugin(DATABASES, "opens a database"),
    "filter_of": Plugin(DATABASES, "a condition in the language of a database"),
    "indexes_of": Plugin(DATABASES, "the indexes of a collection in a database"),
    "place_of": Plugin(DATABASES, "where a database lies"),
    "require_room_in": Plugin(DATABASES, "whether a database has room"),
    "schema_of": Plugin(("sentcli.io.vector_columns", *DATABASES), "the fields of a table"),
    "sections": Plugin(("sentcli.analysis.*.sections",), "the sections of the page of a kind of analysis"),
    "with_ids": Plugin(DATABASES, "a filter for some ids in the language of a database"),
}
TO_MERGE = {
    "ADVICE": "what messages of a migration, of probabilities and of LanceDB advise",
    "BEFORE": "the tag and the ends of names of a collection before it was replaced",
    "FILES": "the files of bulk, which only it uses, and the formats of files of vectors",
    "INDEXES": "the folder of indexes, and a query of PostgreSQL for them",
    "KINDS": "the kinds of indexes, and the types of columns in PostgreSQL",
    "METHODS": "the methods of training, and pgvector's names of indexes",
    "MOST_ROWS": "a bound of the rows of a product, and of those of a request to Milvus",
    "NEXT": "the ends of the names of what will replace a collection",
    "OLD": "kernels of the BLAS, and the end of the name of a collection",
    "REQUEST_HITS": "the same number for LanceDB and PostgreSQL",
    "REQUEST_QUERIES": "the same number for LanceDB and PostgreSQL",
    "REQUEST_ROWS": "the rows of a request to LanceDB and to Milvus",
    "ROWS_AT_A_TIME": "rows that are hashed, read or asked for together",
    "Record": "the JSON object of a command, and what a collection says about itself",
    "SCANNED": "an index that is scanned, and how many times the hits a scan proposes",
    "SCHEME": "the pattern of a scheme, and those of LanceDB and Milvus",
    "SECONDS": "the same number for Milvus and PostgreSQL",
    "SETTINGS": "the settings of indexes in faiss, and in PostgreSQL",
    "TABLE": "the same name for LanceDB and PostgreSQL",
    "build": "builds an index in a directory, and a search in memory",
    "counting": "counts the changes of an update, and shows a bar",
    "fitted": "queries made as small as a collection, and rows with its columns",
    "protocol": "the choices of BM25, and of a fusion",
    "read_rows": "the rows of a collection's input, and those of files of documents",
    "reading": "turns the errors of Parquet and of LanceDB into messages",
    "row_hashes": "a number of each row of an update of a directory, and of a collection",
    "rows_so_far": "the rows of an unfinished directory, and of an unfinished index",
    "search": "searches a corpus, and blocks of vectors",
    "verify": "the verb for data sets, and the check of what encode, index and export wrote",
}


def main() -> None:
    """List each name that several modules define; the exit code is 1 if one of them may not be repeated."""
    found = repeated(definitions(ROOT))
    for name, modules in found.items():
        print(f"{name} ({reason_of(name)}): {', '.join(modules)}")
    problems = list(unexcused(found, PLUGINS, TO_MERGE))
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


def definitions(root: Path) -> dict[str, list[str]]:
    """Return the modules that define each public name, for the package below a folder."""
    modules: dict[str, list[str]] = defaultdict(list)
    for path in sorted((root / "sentcli").rglob("*.py")):
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        for name in sorted(set(public_names(path.read_text("utf-8")))):
            modules[name].append(module)
    return modules


def public_names(text: str) -> Iterator[str]:
    """Yield the public names that the source of a module defines."""
    for name in _defined(ast.parse(text).body):
        if not name.startswith("_"):
            yield name


def _defined(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Yield the names that statements at the top of a module define, also under a condition."""
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield statement.name
        elif isinstance(statement, ast.Assign) and not _is_type_variable(statement.value):
            for target in statement.targets:
                yield from _assigned(target)
        elif isinstance(statement, ast.AnnAssign):
            yield from _assigned(statement.target)
        elif isinstance(statement, (ast.If, ast.Try)):
            yield from _defined(statement.body)
            yield from _defined(statement.orelse)


def _assigned(target: ast.expr) -> Iterator[str]:
    """Yield the names that an assignment gives values to."""
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Tuple):
        for part in target.elts:
            yield from _assigned(part)


def _is_type_variable(value: ast.expr) -> bool:
    """Tell whether a type variable is made."""
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in TYPE_VARIABLES


def repeated(modules: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return the names that several modules define, in order, with these modules."""
    return {name: modules[name] for name in sorted(modules) if len(modules[name]) > 1}


def reason_of(name: str) -> str:
    """Return why a name may be repeated."""
    if name in PLUGINS:
        return PLUGINS[name].reason
    if name in TO_MERGE:
        return f"to be merged: {TO_MERGE[name]}"
    return "no reason"


def unexcused(
    found: Mapping[str, list[str]], plugins: Mapping[str, Plugin], to_merge: Mapping[str, str]
) -> Iterator[str]:
    """Yield a line for each name that may not be repeated, and for each that is excused and not repeated."""
    for name, modules in found.items():
        if name in to_merge:
            continue
        patterns = plugins[name].modules if name in plugins else ()
        others = [module for module in modules if not any(fnmatchcase(module, pattern) for pattern in patterns)]
        if others:
            yield f"{name}: defined in {' and '.join(modules)}; let the name say which one it is, or make it private"
    for name in sorted({*plugins, *to_merge} - set(found)):
        yield f"{name}: repeated no longer; take it out of the lists in tests/names.py"


if __name__ == "__main__":
    main()
