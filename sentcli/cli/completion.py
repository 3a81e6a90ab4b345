"""What a shell completes behind an option: the names that sentcli knows, and paths where one may stand.

Nothing here imports torch: a shell asks at every press of the tab key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

MOST = 200
"""The most paths that are proposed."""


def _methods() -> Iterable[str]:
    from sentcli.methods import METHODS

    return METHODS


def _recipes() -> Iterable[str]:
    from sentcli.methods.recipes import recipe_names

    return recipe_names()


def _models() -> Iterable[str]:
    from sentcli.zoo import zoo

    return zoo()


def _sets(kind: str | None = None) -> Iterable[str]:
    from sentcli.data.registry import registry

    return [name for name, dataset in registry().items() if kind in (None, dataset.kind)]


def _published() -> Iterable[str]:
    from sentcli.evaluation.published import published

    return ["list", *published()]


NAMES: dict[str, tuple[Callable[[], Iterable[str]], str]] = {
    "method": (_methods, ".py"),
    "after": (_methods, ""),
    "recipe": (_recipes, ".toml"),
    "model": (_models, "/"),
    "beir": (lambda: _sets("beir"), "/"),
    "against": (_published, ""),
    "names": (_sets, ""),
}
"""For arguments by name: what lists the known names, and how paths end that they take, too, with / for a folder."""


def completer(argument: str) -> Callable[[str], list[str]] | None:
    """Return what completes the values of an argument, given their beginning; None leaves it to the shell."""
    if argument not in NAMES:
        return None
    known, end = NAMES[argument]

    def complete(incomplete: str) -> list[str]:
        names = [name for name in known() if name.startswith(incomplete)]
        return [*names, *(_paths(incomplete, end) if end else [])]

    return complete


def _paths(incomplete: str, end: str) -> list[str]:
    """Return the folders, and the files with this end, whose path has this beginning."""
    folder, slash, start = incomplete.rpartition("/")
    found = []
    with suppress(OSError):
        for path in sorted(Path(folder + slash).iterdir()):
            hidden = path.name.startswith(".") and not start.startswith(".")
            if path.name.startswith(start) and not hidden and (path.is_dir() or path.name.endswith(end)):
                found.append(f"{folder}{slash}{path.name}{'/' if path.is_dir() else ''}")
    return found[:MOST]
