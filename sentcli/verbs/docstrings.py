"""The docstring of a verb as Python's ``help()`` shows it: every argument, and examples in Python."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Sequence
from typing import Any

from sentcli.verbs.arguments import Argument, alternatives


def docstring(
    function: str, verb: str, help_text: str, signature: inspect.Signature, arguments: Sequence[Argument]
) -> str:
    """Return a docstring with all arguments and the examples of the command line that are of this verb.

    Args:
        function: the name of the function.
        verb: the name on the command line.
        help_text: the help of the command, with its examples.
        signature: of the function.
        arguments: all of them.
    """
    text, _, examples = help_text.replace("\b\n", "").partition("Examples:\n")
    helps = {argument.name: argument.help for argument in arguments}
    described = [f"    {name}: {helps[name]}" for name in signature.parameters]
    lines = [line.strip() for line in re.sub(r"\\?\n {4,}(?=-)", " ", examples).splitlines()]
    shown = [example for line in lines if (example := in_python(line, function, verb, arguments, signature))]
    section = ["", "Examples:", *(f"    {example}" for example in shown)] if shown else []
    return "\n".join([text.strip(), "", "Args:", *described, *section])


def in_python(
    line: str, function: str, verb: str, arguments: Sequence[Argument], signature: inspect.Signature
) -> str | None:
    """Return an example of the command line as a call, or None if it is of another verb or of several commands."""
    starts = (f"sentcli {group}{verb} " for group in ("", "analyze "))
    start = next((start for start in starts if line.startswith(start)), "")
    if not start or {"|", "<", ">"} & set(line.split()):
        return None
    of_flag = {flag: a for a in arguments for flag in (a.long, a.flag.short)}
    at_place = next((argument for argument in arguments if argument.flag.positional), None)
    words, values = shlex.split(line[len(start) :]), dict[str, Any]()
    while words:
        word = words.pop(0)
        argument = of_flag.get(word) if word.startswith("-") and word != "-" else at_place
        if argument is None:
            return None
        kinds = alternatives(argument.type)
        value: Any = word if argument is at_place else True if bool in kinds else words.pop(0)
        if int in kinds or float in kinds:
            value = float(value) if float in kinds else int(value)
        is_list = any(getattr(kind, "__origin__", None) is list for kind in kinds)
        values[argument.name] = [*values.get(argument.name, []), value] if is_list else value
    first = next(iter(signature.parameters))
    kind = [repr(verb)] if start.startswith("sentcli analyze") else []
    shown = {name: value[0] if isinstance(value, list) and len(value) == 1 else value for name, value in values.items()}
    leading = [repr(shown.pop(first))] if first in shown and not kind else []
    call = ", ".join([*kind, *leading, *(f"{name}={value!r}" for name, value in shown.items())])
    return f"sentcli.{'analyze' if kind else function}({call})"
