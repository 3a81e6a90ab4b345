"""What users type and import, as a module of Python, by which griffe tells what a later version has broken.

A command is a function with its options as keywords, so that a flag that is gone, renamed, required or of another
default is found like one of a function. The names are those of docs/api.md; docs/compatibility.md says what is
promised. `make.py` keeps the module of a release.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import keyword
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from sentcli.cli.app import app

API = Path(__file__).parent.parent.parent / "docs" / "api.md"
BLOCK = re.compile(r"^::: (\S+)\n((?:[ ]{4}.*\n)*)", re.MULTILINE)


def surface() -> str:
    """Return the module."""
    parts = ['"""The public surface of sentcli."""']
    for path, command in _commands(get_command(app)):
        name = "_".join(["command", *path]).replace("-", "_")
        parts.append(_function(name, _signature(command)))
    for name, members in _listed():
        parts += _object(name, members)
    return "\n\n\n".join(parts) + "\n"


def _commands(group: Any, before: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the words and the command of each, those of groups as well."""
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if hasattr(command, "list_commands"):
            yield from _commands(command, (*before, name))
        else:
            yield (*before, name), command


def _signature(command: Any) -> inspect.Signature:
    """Return the arguments of a command: those without a name, and its options as keywords, each by every name."""
    positional = []
    keywords = []
    for option in command.params:
        default = inspect.Parameter.empty if option.required else option.default
        if option.param_type_name == "argument":
            positional.append(inspect.Parameter(option.name, inspect.Parameter.POSITIONAL_ONLY, default=default))
            continue
        for flag in [*option.opts, *option.secondary_opts]:
            name = flag.lstrip("-").replace("-", "_")
            if flag == name:
                continue
            if keyword.iskeyword(name):
                name += "_"
            if len(name) == 1:
                name = f"short_{name}"
            keywords.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default))
    return inspect.Signature([*positional, *keywords])


def _listed() -> Iterator[tuple[str, list[str]]]:
    """Yield the names of docs/api.md, with the members that it lists of each."""
    for name, options in BLOCK.findall(API.read_text("utf-8")):
        members = re.findall(r"\bmembers:\s*\[(.*?)\]", options)
        names = re.findall(r"^\s+- (\S+)$", options, re.MULTILINE)
        if members:
            names = members[0].split(", ")
        yield name, names


def _object(name: str, members: list[str]) -> Iterator[str]:
    """Yield the parts of the module for an object of docs/api.md."""
    found = _found(name)
    short = name.replace(".", "_")
    if inspect.ismodule(found):
        for member in members:
            yield from _object(f"{name}.{member}", [])
    elif inspect.isclass(found):
        lines = [f"class {short}:"]
        for base in found.__mro__:  # by which callers catch or pass it; griffe only counts the bases
            lines.append(f"    is_{base.__name__} = None")
        for member in members:
            lines += _member(found, member)
        yield "\n".join(lines)
    else:
        yield _function(short, inspect.signature(found))


def _member(found: type, member: str) -> list[str]:
    """Return the lines of a member of a class."""
    value = inspect.getattr_static(found, member, None)
    if isinstance(value, (classmethod, staticmethod)):
        value = value.__func__
    if not inspect.isfunction(value):
        return [f"    {member} = None"]
    return ["    " + line for line in _function(member, inspect.signature(value)).splitlines()]


def _found(name: str) -> Any:
    """Return the object with a dotted name.

    Raises:
        ModuleNotFoundError: if there is none.
    """
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(name)


def _function(name: str, signature: inspect.Signature) -> str:
    """Return a function without types, whose defaults are literals or dots."""
    parameters = []
    for parameter in signature.parameters.values():
        default = parameter.default
        if default is not inspect.Parameter.empty:
            default = _Written(_literal(default))
        parameters.append(parameter.replace(annotation=inspect.Parameter.empty, default=default))
    return f"def {name}{inspect.Signature(parameters)}: ..."


class _Written:
    """A default that stands in a signature as it is written."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _literal(value: Any) -> str:
    """Return a value as Python writes it, and dots for one that is no literal."""
    text = repr(value)
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return "..."
    return text
