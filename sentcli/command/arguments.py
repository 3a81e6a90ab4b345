"""The arguments of verbs: how the command line shows them, and how values from Python are bound and checked."""

from __future__ import annotations

import inspect
import re
import shlex
import types
import typing
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from sentcli.bounds import Flag, Holds
from sentcli.errors import InputError, nearest


@dataclass(frozen=True)
class Group:
    """How a verb takes a group of options."""

    panel: str | None = None
    without: Sequence[str] = ()
    """Fields that are no options of this verb; they keep their defaults."""


COMMAND_LINE = re.compile(r"sentcli [a-z][^;:()]*")
"""A command in a message, which is one in Python, too."""
OPTION = re.compile(r"(?<![\w-])(--?[a-z][\w-]*)(?: (?=[^a-z\s]))?")
"""An option in a message, with the space in front of its value unless a word follows."""


def with_keywords(message: str, arguments: Sequence[Argument]) -> str:
    """Return a message with the names of keywords in place of those of options, except in commands of a shell.

    Args:
        message: of an error.
        arguments: those of the verb.
    """
    names = {}
    for argument in arguments:
        keyword = f"{argument.name}="
        if bool in argument.kinds:
            keyword += "True "
        names[argument.long] = keyword
        if argument.flag.short:
            names[argument.flag.short] = keyword

    def keyword_of(option: re.Match[str]) -> str:
        keyword = names.get(option[1], option[0])
        if not option[0].endswith(" "):
            keyword = keyword.rstrip()
        return keyword

    def named(text: str) -> str:
        return OPTION.sub(keyword_of, text)

    parts = []
    behind = 0
    for command in COMMAND_LINE.finditer(message):
        parts += [named(message[behind : command.start()]), command[0]]
        behind = command.end()
    return "".join([*parts, named(message[behind:])])


@dataclass(frozen=True)
class Argument:
    """One argument of a verb."""

    name: str
    type: Any
    default: Any
    flag: Flag
    help: str
    bounds: tuple[Any, ...]
    holds: Holds | None = None
    group: str | None = None
    """The parameter of the function whose dataclass has this argument as a field."""

    @property
    def long(self) -> str:
        """The long name on the command line, such as ``--top-k``."""
        return self.flag.name or f"--{self.name.replace('_', '-')}"

    @property
    def option(self) -> str:
        """The name that messages use: ``--top-k``, ``-m``, or that of an argument without one."""
        if self.flag.positional:
            return self.name.upper()
        if self.flag.short == "-m":
            return "-m"
        return self.long

    @property
    def kinds(self) -> tuple[Any, ...]:
        """The types that its values may have."""
        return alternatives(self.type)

    @property
    def takes_list(self) -> bool:
        """Whether it may have several values."""
        return any(typing.get_origin(kind) is list for kind in self.kinds)

    @property
    def reads_files(self) -> bool:
        """Whether it names files of texts, which may also be frames or lists in memory."""
        return self.holds is Holds.TEXT_FILE

    @property
    def holds_text(self) -> bool:
        """Whether it is a text, or names something inside a file, and no file or folder."""
        return self.holds is Holds.WORDS

    def stream(self, value: Any) -> str | None:
        """Return the option with its value, if it then writes data to standard output."""
        if self.holds is Holds.OUTPUT and value == "-":
            return f"{self.long} -"
        if self.holds is Holds.PRINTED and value is not None:
            return f"{self.long} {value}"
        return None

    @property
    def required(self) -> bool:
        """Whether there is no default."""
        return self.default is inspect.Parameter.empty


def bound_arguments(
    function: Callable[..., Any], positional: Sequence[Any], keywords: dict[str, Any]
) -> dict[str, Any]:
    """Return the values of all parameters of a function by name.

    Raises:
        TypeError: for an unknown keyword, with the nearest one, or for a missing argument.
    """
    signature = inspect.signature(function)
    for name in keywords:
        if name not in signature.parameters:
            hint = nearest(name, list(signature.parameters))
            raise TypeError(f"{function.__name__}() got an unexpected keyword argument {name!r}{hint}")
    try:
        bound = signature.bind(*positional, **keywords)
    except TypeError as error:
        raise TypeError(f"{function.__name__}() {error}; help(sentcli.{function.__name__}) lists all") from None
    bound.apply_defaults()
    return bound.arguments


def check_rules(arguments: Sequence[Argument], values: Mapping[str, Any]) -> None:
    """Refuse arguments that need others, or that do not go with them, by their flags.

    Raises:
        InputError: which names both.
    """
    options: dict[str, str] = {}
    with_value: dict[str, Argument] = {}
    for argument in arguments:
        options[argument.name] = argument.option
        if _has_value(argument, values[argument.name]):
            with_value[argument.name] = argument
    for argument in with_value.values():
        _check_needs(argument, options, with_value, values)
        for rule in argument.flag.excludes.split():
            value, _, name = rule.rpartition(":")
            if name in with_value and value in ("", values[argument.name]):
                this = f"{argument.option} {value}".rstrip()
                raise InputError(f"{this} and {options[name]} do not go together")


def _check_needs(
    argument: Argument, options: Mapping[str, str], with_value: Container[str], values: Mapping[str, Any]
) -> None:
    """Refuse an argument that has a value without any of those that it needs.

    A rule names another argument, or one of the values that this may have, also among others.
    """
    needed = []
    for rule in argument.flag.needs.split():
        name, _, value = rule.partition("=")
        if not value and name in with_value:
            return
        if value and value in str(values[name]).replace(" ", "").split(","):
            return
        needed.append(f"{options[name]} {value}".rstrip())
    if needed:
        raise InputError(f"{argument.option} goes with {' or '.join(needed)}")


def command_line(name: str, arguments: Sequence[Argument], values: Mapping[str, Any]) -> str | None:
    """Return the command that does what a verb does with some values, or None if one of them is in memory.

    Args:
        name: of the verb on the command line.
        arguments: those that the command is to have; the others keep their defaults.
        values: of all arguments, without the secret parts of addresses.
    """
    from sentcli.io.sources import is_in_memory
    from sentcli.printable import without_secrets

    options: list[str] = []
    operands: list[str] = []
    for argument in arguments:
        value = values[argument.name]
        if value is None or value == argument.default:
            continue
        items = value if isinstance(value, list | tuple) else [value]
        for item in items:
            if argument.reads_files and is_in_memory(Path(item)):
                return None
            if argument.flag.positional:
                operands.append(str(item))
            else:
                options += _words_of(argument, item)
    words = [*operands, *options]
    if any(word.startswith("-") and word != "-" for word in operands):
        words = [*options, "--", *operands]
    return without_secrets(shlex.join(["sentcli", *name.split(), *words]))


def _words_of(argument: Argument, value: Any) -> list[str]:
    """Return the words of a command line that give an option one value."""
    if isinstance(value, bool):
        return [argument.long if value else f"--no-{argument.long[2:]}"]
    if str(value).startswith("-") and value != "-":
        return [f"{argument.long}={value}"]
    return [argument.option, str(value)]


def _has_value(argument: Argument, value: Any) -> bool:
    """Tell whether an argument has a value of the user's, and not its default or nothing."""
    return value is not None and value is not False and value != [] and value != argument.default


def converted(argument: Argument, value: Any) -> Any:
    """Convert a value from Python to the type of an argument: a list may be one value, a path may be text.

    Frames, tables, data sets, lists of dicts and lists of texts become files where files are read.

    Raises:
        InputError: if it is of another type, none of the choices, or out of bounds.
    """
    if value is None and argument.default is None:
        return None
    if argument.reads_files and not isinstance(value, str | Path):
        from sentcli.io.in_memory import in_files

        value = in_files(value, argument.name, is_list=list[str] in argument.kinds)
    from pydantic import ConfigDict, TypeAdapter, ValidationError

    kinds = argument.kinds
    if isinstance(value, list | tuple) and str in kinds:
        if argument.reads_files:
            raise InputError(f"{argument.name}: give one file, a table, or a list of texts; this is a list of others")
        value = ",".join(map(str, value))
    if argument.takes_list and not isinstance(value, list | tuple):
        value = [value]
    if str in kinds or list[str] in kinds:
        value = _paths_as_text(value)
    kind = argument.type
    if argument.bounds:
        kind = Annotated[kind, *argument.bounds]
    try:
        return TypeAdapter(kind, config=ConfigDict(coerce_numbers_to_str=True)).validate_python(value)
    except ValidationError as error:
        problem = error.errors()[0]["msg"]
        raise InputError(f"{argument.name}={value!r}: {problem[:1].lower()}{problem[1:]}") from None


def _paths_as_text(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return list(map(_paths_as_text, value))
    if isinstance(value, Path):
        return str(value)
    return value


def in_utf8(argument: Argument, value: Any) -> Any:
    """Return a value whose texts are whole; the locale of a shell may have made half signs of their bytes.

    Raises:
        InputError: for bytes that are no UTF-8.
    """
    if isinstance(value, list):
        return [in_utf8(argument, item) for item in value]
    if not argument.holds_text or not isinstance(value, str):
        return value
    try:
        return value.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeDecodeError as error:
        place = len(error.object[: error.start].decode("utf-8")) + 1
        raise InputError(f"{argument.option}: its character {place} is a byte that is no UTF-8") from error
    except UnicodeEncodeError as error:
        place = error.start + 1
        raise InputError(f"{argument.option}: its character {place} is half of a surrogate pair, no text") from error


def alternatives(kind: Any) -> tuple[Any, ...]:
    """Return the members of a union; of any other type the type itself."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return typing.get_args(kind)
    return (kind,)


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
    lines = [text.strip(), "", "Args:"]
    lines += [f"    {name}: {helps[name]}" for name in signature.parameters]
    calls = []
    for line in re.sub(r"\\?\n {4,}(?=-)", " ", examples).splitlines():
        call = in_python(line.strip(), function, verb, arguments, signature)
        if call is not None:
            calls.append(f"    {call}")
    if calls:
        lines += ["", "Examples:", *calls]
    return "\n".join(lines)


def in_python(
    line: str, function: str, verb: str, arguments: Sequence[Argument], signature: inspect.Signature
) -> str | None:
    """Return an example of the command line as a call, or None if it is of another verb or of several commands."""
    if {"|", "<", ">"} & set(line.split()):
        return None
    words = shlex.split(line)
    first = next(iter(signature.parameters))
    call = []
    if words[:3] == ["sentcli", "analyze", verb]:
        function = "analyze"
        first = ""
        call.append(repr(verb))
        values = _values_in(words[3:], arguments)
    elif words[:2] == ["sentcli", verb]:
        values = _values_in(words[2:], arguments)
    elif words[:3] == ["sentcli", "data", verb]:
        values = _values_in(words[3:], arguments)
    else:
        return None
    if values is None:
        return None
    for name, value in values.items():
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if name == first:
            call.insert(0, repr(value))
        else:
            call.append(f"{name}={value!r}")
    return f"sentcli.{function}({', '.join(call)})"


def _values_in(words: list[str], arguments: Sequence[Argument]) -> dict[str, Any] | None:
    """Return the values of arguments that the words of a command line name; None if one of them has no argument."""
    by_flag: dict[str, Argument] = {}
    positional: Argument | None = None
    for each in arguments:
        by_flag[each.long] = each
        by_flag[str(each.flag.short)] = each
        if each.flag.positional:
            positional = each
    values: dict[str, Any] = {}
    while words:
        word = words.pop(0)
        argument = positional
        if word.startswith("-") and word != "-":
            argument = by_flag.get(word)
        if argument is None:
            return None
        value = _value_of(argument, word, words)
        if argument.takes_list:
            values.setdefault(argument.name, []).append(value)
        else:
            values[argument.name] = value
    return values


def _value_of(argument: Argument, word: str, words: list[str]) -> Any:
    """Return the value of an argument: the word itself, or the word behind it, which is taken."""
    if argument.flag.positional:
        return word
    if bool in argument.kinds:
        return True
    value = words.pop(0)
    for kind in (float, int):
        if kind in argument.kinds:
            return kind(value)
    return value
