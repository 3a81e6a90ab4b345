"""Look inside models: ``analyze(kind, ...)`` finds the kind and runs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from sentcli.analysis import ANALYSES
from sentcli.command.result import Result
from sentcli.errors import InputError, nearest


def analysis_kind(name: str) -> Callable[..., Result]:
    """Return the function of a kind of analysis.

    Raises:
        InputError: if there is no such kind.
    """
    if name not in ANALYSES:
        hint = nearest(name, list(ANALYSES))
        raise InputError(f"analyze has no kind {name!r}{hint}; there are: {', '.join(ANALYSES)}")
    module, _, function = ANALYSES[name].partition(":")
    return getattr(import_module(f"sentcli.analysis.{module}"), function)


def analyze(kind: str, paths: str | Path | Sequence[str | Path] | None = None, **options: Any) -> Result:
    """Run an analysis; it writes a folder with a page, figures and tables.

    Args:
        kind: one of `ANALYSES`.
        paths: what the command takes without a name: texts, runs, vectors, files of results, or two models.
        options: those of ``sentcli analyze KIND`` by their long names, such as ``output`` and ``model``.

    Returns:
        The numbers: ``to_dict()`` is the JSON, ``to_frame()`` the first table.

    Raises:
        SentcliError: whatever error the command ends with.
    """
    function = analysis_kind(kind)
    if paths is not None:
        arguments = function.verb.arguments  # type: ignore[attr-defined]
        positional = [argument.name for argument in arguments if argument.flag.positional]
        if not positional:
            raise InputError(f"analyze {kind} takes no paths")
        options[positional[0]] = paths
    return function(**options)
