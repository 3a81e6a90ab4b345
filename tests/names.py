"""That a public name stands for one thing: it is defined in one module of the package. ``python -m tests.names``.

A name counts where a module defines it at its top: a class, a function, a constant or an alias of a type, without an
underscore in front. What is imported is defined elsewhere, and type variables mean nothing outside of a signature.

`PLUGINS` holds the names that all plug-ins of a kind have, since the same is meant by them. A name that is repeated no
longer has to leave it.
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
    "BEFORE": Plugin(DATABASES, "what tells a collection as it was before it was replaced from the present one"),
    "INDEX_TYPES": Plugin(DATABASES, "what a database calls the types of indexes"),
    "METHOD": Plugin(("sentcli.methods.papers.*",), "the method that a file defines"),
    "NEXT": Plugin(DATABASES, "the end of the name of what will replace a collection"),
    "RECORD_KEY": Plugin(DATABASES, "where a database keeps the record of a collection"),
    "SCHEME": Plugin(DATABASES, "what stands in front of the addresses of a database"),
    "TABLE": Plugin(DATABASES, "the table of a database that is meant if no other is named"),
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


def main() -> None:
    """List each name that several modules define; the exit code is 1 if one of them may not be repeated."""
    found = repeated(definitions(ROOT))
    for name, modules in found.items():
        print(f"{name} ({reason_of(name)}): {', '.join(modules)}")
    problems = list(unexcused(found, PLUGINS))
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
    return "no reason"


def unexcused(found: Mapping[str, list[str]], plugins: Mapping[str, Plugin]) -> Iterator[str]:
    """Yield a line for each name that may not be repeated, and for each that is excused and not repeated."""
    for name, modules in found.items():
        patterns = plugins[name].modules if name in plugins else ()
        others = [module for module in modules if not any(fnmatchcase(module, pattern) for pattern in patterns)]
        if others:
            yield f"{name}: defined in {' and '.join(modules)}; let the name say which one it is, or make it private"
    for name in sorted(set(plugins) - set(found)):
        yield f"{name}: repeated no longer; take it out of the list in tests/names.py"


if __name__ == "__main__":
    main()
