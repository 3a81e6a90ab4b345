"""Where the result of a verb goes beside what it returns: JSON and pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sentcli.errors import InputError


def check(json: str | None, pages: Sequence[Path], others: Mapping[str, Any]) -> None:
    """Refuse a ``--json`` or ``--report`` that cannot be written before the work, not after it.

    A file that exists is replaced, unless it is named elsewhere among the arguments.
    """
    streams = [name for name in ("json", "output", "hits") if ({"json": json, **others}).get(name) == "-"]
    if len(streams) > 1:
        raise InputError(f"{' - and '.join(f'--{name}' for name in streams)} - would both write to standard output")
    targets = [("--json", Path(json))] if json not in (None, "-") else []
    targets += [("--report", page) for page in pages]
    if not targets:
        return
    from sentcli.io.atomic import check_output
    from sentcli.pages.write import check_suffix

    values = [item for value in others.values() for item in _listed(value)]
    taken = {Path(value).resolve(): value for value in values if isinstance(value, str | Path)}
    for option, path in targets:
        if path.resolve() in taken:
            raise InputError(f"{option} {path} would replace {taken[path.resolve()]}; choose another file")
        taken[path.resolve()] = path
        if option == "--report":
            check_suffix(path)
        check_output(path, overwrite=True)


def write(result: Any, json: str | None, pages: Sequence[Path]) -> None:
    """Write a result as JSON and as pages, unless another process does."""
    if getattr(result, "silent", False):
        return
    if json is not None:
        from sentcli.io.json_files import finite, write_json

        write_json(json, finite(result.to_dict()))
    if pages:
        from sentcli import console

        result.write_pages(pages)
        console.note(f"wrote {', '.join(map(str, pages))}")


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]
