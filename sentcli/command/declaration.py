"""A verb is declared once: its signature gives the Python function, the flags of the command and their help.

Parameters are annotated with their bounds (``Ge`` and ``Le``) and with a `Flag` where name and type do not say how the
command line shows them. Their help stands in the docstring of the verb, under ``Args``.

A parameter whose type is a dataclass is a group of options: each field becomes an argument of its own, and the function
is called with the dataclass. The help of the fields stands in the docstring of the class, under ``Attributes``, unless
the verb explains them itself. A single argument that several verbs share is an annotated type with its help, ``Doc``.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from annotated_doc import Doc
from annotated_types import Ge, Le

from sentcli.bounds import Flag, Holds
from sentcli.command.arguments import (
    Argument,
    Group,
    alternatives,
    bound_arguments,
    check_rules,
    command_line,
    converted,
    docstring,
    in_utf8,
    with_keywords,
)
from sentcli.command.result import Result
from sentcli.errors import InputError, SentcliError
from sentcli.printable import remember_secrets_in, value_without_secrets

__all__ = ["Argument", "Flag", "Group", "Verb", "alternatives", "data_streams", "verb"]
R = TypeVar("R")
T = TypeVar("T")
InMemory = Callable[[Callable[[dict[str, Any]], Any], dict[str, Any]], Any]
"""Runs a verb on its values from Python."""
COMMON = "common"
"""The name of the group of `CommonOptions`, for which the function of a verb may have a parameter."""


@dataclass(frozen=True)
class CommonOptions:
    """The options of every verb.

    Attributes:
        json: Write the result as JSON; - is standard output.
        report: Write a page for people: a .html, .md or .tex file; several are written.
        quiet: No progress, notes or warnings.
        verbose: Say what is loaded and what runs.
    """

    json: Annotated[str | None, Holds.OUTPUT, Flag(metavar="FILE")] = None
    report: Annotated[list[Path] | None, Flag(metavar="FILE")] = None
    quiet: Annotated[bool, Flag("-q")] = False
    verbose: Annotated[bool, Flag("-v")] = False


@dataclass(frozen=True)
class Verb:
    """A public function and what its command line needs to know."""

    name: str
    """On the command line."""
    function: Callable[..., Any]
    arguments: tuple[Argument, ...]
    groups: dict[str, Any]
    """The parameters of the function that are groups, each with the dataclass that holds the defaults."""
    help: str
    """The help text of the command, with examples."""
    common: frozenset[str] = frozenset()
    """The arguments that ``--help`` shows; ``--help-all`` shows all. Without any, both show all."""

    def run(self, values: dict[str, Any]) -> Any:
        """Call the function with values for all arguments, and write the files of ``--json`` and ``--report``."""
        from sentcli import console
        from sentcli.io.places import public_arguments

        whole = {}
        for argument in self.arguments:
            value = in_utf8(argument, values[argument.name])
            whole[argument.name] = value
            if argument.reads_files and "" in _names_in(value):
                raise InputError(f"{argument.option}: the name of a file is empty")
            if not argument.holds_text:
                for place in _names_in(value):
                    remember_secrets_in(str(place))
        values = public_arguments(whole)
        asked = dict(values)
        check_rules(self.arguments, values)
        streams = data_streams(self.arguments, values)
        _check_outputs(self._outputs(values), self._paths(values), streams)
        common = CommonOptions(**self._taken(COMMON, values))
        for name, defaults in self.groups.items():
            if name == COMMON:
                values[name] = common
            else:
                values[name] = dataclasses.replace(defaults, **self._taken(name, values))
        with console.speaking(quiet=common.quiet, verbose=common.verbose, data_on_stdout=bool(streams)):
            try:
                result = self._with_command_line(self.function(**values), asked)
            except (SentcliError, KeyboardInterrupt, SystemExit) as error:
                outcome = getattr(error, "outcome", None)  # what was done before the work failed or was interrupted
                if outcome is not None:
                    _write_outputs(self._with_command_line(outcome, asked), CommonOptions(common.json))
                raise
            try:
                _write_outputs(result, common)
            except OSError as error:
                message = f"the work is done, but {error.filename or 'its report'} was not written: {error.strerror}"
                raise SentcliError(message) from error
        return result

    def _with_command_line(self, result: Any, values: Mapping[str, Any]) -> Any:
        """Return a result with the command that measured its scores, if it has some and there is a command."""
        if not getattr(result, "scores", ()):
            return result
        choices = [argument for argument in self.arguments if argument.group != COMMON]
        line = command_line(self.name, choices, values)
        if line is None:
            return result
        return result.measured_by(line)

    def _taken(self, group: str, values: dict[str, Any]) -> dict[str, Any]:
        """Take the values of the arguments of a group out of all values."""
        of_group = {}
        for argument in self.arguments:
            if argument.group == group:
                of_group[argument.name] = values.pop(argument.name)
        return of_group

    def _outputs(self, values: Mapping[str, Any]) -> list[tuple[str, Path]]:
        """Return the files of ``--json`` and ``--report``."""
        outputs = []
        if values["json"] not in (None, "-"):
            outputs.append(("--json", Path(values["json"])))
        for page in values.get("report") or []:
            outputs.append(("--report", page))
        return outputs

    def _paths(self, values: Mapping[str, Any]) -> list[str | Path]:
        """Return what the other arguments name, unless they hold words."""
        paths: list[str | Path] = []
        for argument in self.arguments:
            if argument.group == COMMON or argument.holds_text:
                continue
            paths += _names_in(values[argument.name])
        return paths


def _names_in(value: Any) -> list[str | Path]:
    """Return what a value of an argument names, which may be a list."""
    items = [value]
    if isinstance(value, list | tuple):
        items = list(value)
    return [item for item in items if isinstance(item, str | Path)]


def data_streams(arguments: Iterable[Argument], values: Mapping[str, Any]) -> list[str]:
    """Return the options, with their values, that write data to standard output; tables then go to standard error."""
    common_first = sorted(arguments, key=lambda argument: argument.group != COMMON)
    streams = []
    for argument in common_first:
        stream = argument.stream(values[argument.name])
        if stream is not None:
            streams.append(stream)
    return streams


def _check_outputs(outputs: Sequence[tuple[str, Path]], others: Iterable[str | Path], streams: Sequence[str]) -> None:
    """Check before the work that the files of ``--json`` and ``--report`` can be written.

    A file that exists is replaced, unless another argument names it.

    Args:
        outputs: the options with their files.
        others: what the other arguments name.
        streams: what `data_streams` returned.

    Raises:
        InputError: if one of them cannot be written.
    """
    if len(streams) > 1:
        raise InputError(f"{' and '.join(streams)} would both write to standard output")
    if streams:
        from sentcli.console import refuse_closed

        refuse_closed("stdout", streams[0])
    if not outputs:
        return
    from sentcli.io.atomic import check_output
    from sentcli.pages.write import check_suffix

    named_paths = {Path(other).resolve(): other for other in others}
    for option, path in outputs:
        if path.resolve() in named_paths:
            raise InputError(f"{option} {path} would replace {named_paths[path.resolve()]}; choose another file")
        named_paths[path.resolve()] = path
        if option == "--report":
            check_suffix(path)
        check_output(path, overwrite=True)


def _write_outputs(result: Any, common: CommonOptions) -> None:
    """Write a result as JSON and as pages, unless another process of the same training does."""
    if getattr(result, "silent", False):
        return
    if common.json is not None:
        from sentcli.io.forms import finite, write_json

        write_json(common.json, value_without_secrets(finite(result.to_dict())))
    if common.report:
        from sentcli import console

        result.write_pages(common.report)
        console.note(f"wrote {', '.join(map(str, common.report))}")


def verb(
    name: str, *, pages: bool = False, common: str = "", in_memory: InMemory | None = None
) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Make a public function of a declaration: groups become single arguments, and values are checked.

    Args:
        name: on the command line.
        pages: the result can be written as pages (``--report``).
        common: the names of the arguments that ``--help`` shows, with spaces in between; by default all.
        in_memory: runs the verb from Python, with a result in memory where no output is named.

    Raises:
        ValueError: if there is no argument of one of the common names.
    """

    def declare(function: Callable[..., R]) -> Callable[..., R]:
        declared = dataclasses.replace(_read(name, function, pages=pages), common=frozenset(common.split()))
        unknown = declared.common.difference(argument.name for argument in declared.arguments)
        if unknown:
            raise ValueError(f"{name} has no arguments {unknown}")
        signature = _flat_signature(declared, function)
        words = functools.partial(with_keywords, arguments=declared.arguments)

        @functools.wraps(function)
        def call(*args: Any, **keywords: Any) -> R:
            from sentcli import console

            values = bound_arguments(call, args, keywords)
            try:
                for argument in declared.arguments:
                    values[argument.name] = converted(argument, values[argument.name])
                run = declared.run
                if in_memory is not None:
                    run = functools.partial(in_memory, declared.run)
                with console.worded(words):
                    result: R = run(values)
                if isinstance(result, Result):
                    result.settle()
                return result
            except SentcliError as error:
                message = words(str(error))
                if in_memory is not None and "no such file" in message:
                    message += "; a list of texts in a list, [[...]], is texts for sure"
                error.args = (message,)
                raise

        call.__signature__ = signature  # type: ignore[attr-defined]
        call.__doc__ = docstring(call.__name__, declared.name, declared.help, signature, declared.arguments)
        call.verb = declared  # type: ignore[attr-defined]
        return call

    return declare


def _read(name: str, function: Callable[..., Any], *, pages: bool) -> Verb:
    """Read a verb from the signature and the docstring of its function."""
    arguments: list[Argument] = []
    groups: dict[str, Any] = {}
    text, helps = _documented(function)
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        kind, metadata = _parts(parameter.annotation)
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            group = _last(metadata, Group) or Group()
            groups[parameter.name] = parameter.default
            arguments += _of_group(parameter.name, parameter.default, group, helps)
        else:
            arguments.append(_argument(parameter.name, kind, metadata, parameter.default, helps))
    if COMMON not in groups:
        without: tuple[str, ...] = ()
        if not pages:
            without = ("report",)
        arguments += _of_group(COMMON, CommonOptions(), Group("Output", without), {})
    return Verb(name, function, tuple(arguments), groups, text)


def _documented(function_or_class: Any) -> tuple[str, dict[str, str]]:
    """Split a docstring into its text and the explanations of arguments or attributes by name."""
    text = inspect.cleandoc(function_or_class.__doc__ or "")
    text = text.replace("\nAttributes:\n", "\nArgs:\n")
    before, _, behind = text.partition("\nArgs:\n")
    section, _, after = behind.partition("\n\n")
    helps = {}
    for name, words in re.findall(r"^ {4}(\w+): (.*(?:\n {5,}.*)*)", section, re.MULTILINE):
        helps[name] = " ".join(words.split())
    return f"{before}\n{after}".strip(), helps


def _of_group(parameter: str, defaults: Any, group: Group, helps: Mapping[str, str]) -> list[Argument]:
    """Return the fields of a group as arguments; the verb's own help for a field has priority over the group's."""
    annotations = typing.get_type_hints(type(defaults), include_extras=True)
    _, own_helps = _documented(type(defaults))
    helps = {**own_helps, **helps}
    arguments = []
    for field in dataclasses.fields(defaults):
        name = field.name
        if name in group.without:
            continue
        kind, metadata = _parts(annotations[name])
        argument = _argument(name, kind, metadata, getattr(defaults, name), helps)
        flag = argument.flag
        if not flag.panel:
            flag = dataclasses.replace(flag, panel=group.panel)
        arguments.append(dataclasses.replace(argument, flag=flag, group=parameter))
    return arguments


def _parts(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    if typing.get_origin(annotation) is Annotated:
        kind, *metadata = typing.get_args(annotation)
        return kind, tuple(metadata)
    return annotation, ()


def _argument(name: str, kind: Any, metadata: Sequence[Any], default: Any, helps: Mapping[str, str]) -> Argument:
    """Return an argument, of which the verb explains in `helps` what its annotation does not."""
    documentation = _last(metadata, Doc)
    shared_help = "" if documentation is None else documentation.documentation
    return Argument(
        name=name,
        type=kind,
        default=default,
        flag=_last(metadata, Flag) or Flag(),  # a verb's own replaces a shared one
        help=helps.get(name) or shared_help,
        bounds=tuple(item for item in metadata if isinstance(item, Ge | Le)),
        holds=_last(metadata, Holds),
    )


def _last(metadata: Sequence[Any], kind: type[T]) -> T | None:
    """Return the last part of an annotation that is of a type."""
    for item in reversed(metadata):
        if isinstance(item, kind):
            return item
    return None


def _flat_signature(verb: Verb, function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature that callers see, with the fields of the groups as parameters."""
    ordered = sorted(verb.arguments, key=lambda argument: not argument.required)
    parameters = []
    place: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD  # of the first one; all others go by name
    for argument in ordered:
        parameters.append(inspect.Parameter(argument.name, place, default=argument.default, annotation=argument.type))
        place = inspect.Parameter.KEYWORD_ONLY
    returns = inspect.signature(function, eval_str=True).return_annotation
    return inspect.Signature(parameters, return_annotation=returns)
