"""How an option looks on the command line, where its name and its type do not say it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Flag:
    """How an argument looks on the command line."""

    short: str | None = None
    """A second name, such as ``-m``."""
    name: str | None = None
    """The long name, where Python reserves the word."""
    metavar: str | None = None
    panel: str | None = None
    """The heading that ``--help`` shows it under."""
    positional: bool = False
    """Whether it is an argument without a name."""
    needs: str = ""
    """The names of other arguments, with spaces in between: this one goes with any of them."""
    excludes: str = ""
    """The names of other arguments that do not go with this one."""
    lists: Callable[[], None] | None = None
    """Prints the choices; the command calls it and exits if the value is ``list``."""
