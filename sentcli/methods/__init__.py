"""The training methods, one file each in `sentcli.methods.papers`.

Adding a file there adds a method: names, help and docs are made from the files. Nothing heavy is imported before a
method is used, so that ``--help`` can list them quickly.

A `Method` (`methods/method.py`) is a frozen dataclass: objectives by name, how views are made, the head, the settings,
the pooling, and what few methods add (convolutions, a template, a second encoder, a transformation that is fitted).
Every part is a dataclass of its own whose fields are settings, so `configuring.py` changes any of them by name, the
reports list all of them, and no command knows a paper. The method files hold nothing else than the values, with
equation and table numbers, and the points in which paper and code differ.

`methods/papers/` has a file for each method, of its name; that is the list. `METHODS` imports a file when its method is
asked for, so the help can name them all without torch. An objective registers itself by the name in its class line. A
user's own file is the same thing outside of the package: `methods/method_file.py` runs it, for `--method FILE.py` on
the command line and nowhere else, and its SHA-256 becomes part of the run's identity.

Parts of a transformers model are reached in two files only. `model/surgery.py` copies lower or upper layers, sets
dropout and moves averages. `model/attention.py` registers an attention function with transformers that records the
weights of chosen layers and leaves the others to torch's fused attention.

What a setting may be stands in its annotation: `temperature: Positive`, `Literal["mean", "sum"]`, `Annotated[int,
Ge(2)]`. `bounds.py` checks it when the dataclass is made, so a method, a recipe, `--set` and a sweep all meet the same
message. `Objective.check` is left for what two settings only together forbid.

A structured file is read through its form and in no other way, whoever wrote it: a pydantic model or a dataclass, whose
fields say type and bounds. `io/forms.decode` refuses what no form could say (nesting, half surrogate pairs),
`io/forms.py` makes one message with the place of what does not fit, `mapped_array` does the same for arrays. A module
of an encoder is its own form. What native code trusts, such as an index of faiss, is compared with its checksum first.
`tests/faults/test_leaves.py` sets every value of every such file to every kind of value; a new file joins its
`READERS`.

Add a method works through an example.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from sentcli.errors import DataError, InputError, nearest
from sentcli.methods import papers

if TYPE_CHECKING:
    from pathlib import Path

    from sentcli.methods.configuring import configure
    from sentcli.methods.method import Method, Settings

__all__ = ["METHODS", "Method", "Settings", "configure", "get_method"]

LAZY = {"Method": "method", "Settings": "method", "configure": "configuring"}


def __getattr__(name: str) -> Any:
    """Import the names in `LAZY`, which need torch, on first use (PEP 562)."""
    if name in LAZY:
        return getattr(import_module(f"sentcli.methods.{LAZY[name]}"), name)
    raise AttributeError(f"module 'sentcli.methods' has no attribute {name!r}")


class MethodsByName(Mapping[str, "Method"]):
    """The methods of the package by the names of their files; a file is imported when its method is asked for."""

    @cached_property
    def modules(self) -> dict[str, str]:
        """The name of each method's module."""
        names = [module.name for module in iter_modules(papers.__path__)]
        return {name.replace("_", "-"): f"{papers.__name__}.{name}" for name in names}

    def __getitem__(self, name: str) -> Method:
        return import_module(self.modules[name]).METHOD

    def __iter__(self) -> Iterator[str]:
        return iter(self.modules)

    def __len__(self) -> int:
        return len(self.modules)

    def __contains__(self, name: object) -> bool:
        return name in self.modules


METHODS = MethodsByName()


def get_method(method: str | Method, stage: str | None = None) -> Method:
    """Return a method with the paper's settings.

    Args:
        method: a name, or a method that a user's own file defines.
        stage: the name of another training in the same paper.

    Raises:
        InputError: for an unknown method or stage.
    """
    if isinstance(method, str):
        refuse_file(method)
        if method not in METHODS:
            raise InputError(f"unknown method {method!r}{nearest(method, list(METHODS))}; one of: {', '.join(METHODS)}")
        method = METHODS[method]
    if stage is None:
        return method
    if stage not in method.stages:
        hint = nearest(stage, list(method.stages))
        stages = ", ".join(method.stages) or "none"
        raise InputError(f"--stage {stage}: {method.name} has no such stage{hint}; it has: {stages}")
    return method.stages[stage]


def refuse_file(method: object, where: Path | None = None) -> None:
    """Refuse a Python file as a method: only the user who types the command may run one.

    Args:
        method: the name of the method.
        where: the recipe or the sweep file that names it.

    Raises:
        InputError: if the name ends with ``.py``.
    """
    if str(method).endswith(".py"):
        message = (
            f"method {str(method)!r}: a file of Python is taken from --method on the command line alone, "
            "never from a recipe, a sweep file or --after"
        )
        if where is None:
            raise InputError(message)
        raise DataError(where, message)
