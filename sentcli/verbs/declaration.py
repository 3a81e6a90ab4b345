"""A verb is declared once: its signature gives the Python function, the flags of the command and their help.

The parameters of a verb are annotated with ``Doc`` (what the argument means), ``Ge`` and ``Le`` (bounds) and `Flag`
(how it looks on the command line, where its name and type do not say that). A parameter whose type is a dataclass is a
group: each of its fields becomes an argument of its own, and the verb gets the dataclass. So options that several verbs
share are written down once.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar

from annotated_doc import Doc
from annotated_types import Ge, Le

from sentcli.errors import InputError, SentcliError

R = TypeVar("R")


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
    """Given without a name."""
    lists: Callable[[], None] | None = None
    """Prints the values to choose from, and the command ends, where the value is ``list``."""


@dataclass(frozen=True)
class Group:
    """How a verb takes a group of options."""

    panel: str | None = None
    without: Sequence[str] = ()
    """Fields that this verb does not have: they keep their defaults."""
    help: Mapping[str, str] = field(default_factory=dict)
    """Other help texts for some fields."""


@dataclass(frozen=True)
class Argument:
    """One argument of a verb."""

    name: str
    type: Any
    default: Any
    flag: Flag
    help: str
    bounds: tuple[Any, ...]
    group: str | None = None
    """The parameter of the function that takes it, if that is a group."""

    @property
    def required(self) -> bool:
        """Whether there is no default."""
        return self.default is inspect.Parameter.empty


class Result(Protocol):
    """What a verb returns."""

    def to_dict(self) -> Any:
        """Return the JSON that ``--json`` writes."""

    def show(self) -> None:
        """Print the result as the command does."""


class Pages(Protocol):
    """A result that can be written as a page."""

    def write_pages(self, files: Sequence[Path]) -> None:
        """Write it, in the format that the suffix of each file names."""


JSON = Argument(
    name="json",
    type=str | None,
    default=None,
    flag=Flag(metavar="FILE", panel="Output"),
    help="Write the result as JSON; - is standard output.",
    bounds=(),
)
REPORT = Argument(
    name="report",
    type=list[Path] | None,
    default=None,
    flag=Flag(metavar="FILE", panel="Output"),
    help="Write a page for people: a .html, .md or .tex file; several are written.",
    bounds=(),
)
QUIET = Argument("quiet", bool, False, Flag("-q", panel="Output"), "No progress, notes or warnings.", ())
VERBOSE = Argument("verbose", bool, False, Flag("-v", panel="Output"), "Say what is loaded and what runs.", ())


@dataclass(frozen=True)
class Verb:
    """A public function and what its command line needs to know."""

    name: str
    """On the command line."""
    function: Callable[..., Any]
    arguments: tuple[Argument, ...]
    groups: dict[str, Any]
    """By parameter of the function: the instance whose fields are the defaults."""

    def run(self, values: dict[str, Any]) -> Any:
        """Call the function with values for all arguments, and write what was asked for."""
        from sentcli import console
        from sentcli.verbs import outputs

        values = dict(values)
        target, pages = values.pop("json"), values.pop("report", None) or []
        given = {argument.name: values.pop(argument.name) for argument in (QUIET, VERBOSE)}
        outputs.check(target, pages, values)
        for name, defaults in self.groups.items():
            mine = {a.name: values.pop(a.name) for a in self.arguments if a.group == name}
            values[name] = dataclasses.replace(defaults, **mine)
        with console.speaking(**given, data_on_stdout=target == "-"):
            if "json" in inspect.signature(self.function).parameters:
                values["json"] = target
            try:
                result = self.function(**values)
            except SentcliError as error:
                if error.outcome is not None:
                    outputs.write(error.outcome, target, [])
                raise
            outputs.write(result, target, pages)
        return result


def verb(name: str, *, pages: bool = False) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Make a public function of a declaration: its groups are taken apart, its arguments are checked.

    Args:
        name: on the command line.
        pages: the result can be written as pages (``--report``).
    """

    def declare(function: Callable[..., R]) -> Callable[..., R]:
        declared = _read(name, function, pages=pages)
        signature = _flat_signature(declared, function)

        @functools.wraps(function)
        def call(*args: Any, **keywords: Any) -> R:
            bound = signature.bind(*args, **keywords)
            bound.apply_defaults()
            result: R = declared.run({a.name: _checked(a, bound.arguments[a.name]) for a in declared.arguments})
            return result

        call.__signature__ = signature  # type: ignore[attr-defined]
        call.verb = declared  # type: ignore[attr-defined]
        return call

    return declare


def _read(name: str, function: Callable[..., Any], *, pages: bool) -> Verb:
    """Read the arguments of a verb from its signature."""
    arguments: list[Argument] = []
    groups: dict[str, Any] = {}
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        kind, metadata = _parts(parameter.annotation)
        if parameter.name == JSON.name:
            continue  # every verb has it; this one wants to know
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            group = next((item for item in metadata if isinstance(item, Group)), Group())
            groups[parameter.name] = kind() if parameter.default is inspect.Parameter.empty else parameter.default
            arguments += _of_group(parameter.name, groups[parameter.name], group)
        else:
            arguments.append(_argument(parameter.name, kind, metadata, parameter.default))
    arguments += [JSON, *([REPORT] if pages else []), QUIET, VERBOSE]
    return Verb(name, function, tuple(arguments), groups)


def _of_group(parameter: str, defaults: Any, group: Group) -> list[Argument]:
    annotations = typing.get_type_hints(type(defaults), include_extras=True)
    found = []
    for each in dataclasses.fields(defaults):
        if each.name in group.without:
            continue
        kind, metadata = _parts(annotations[each.name])
        argument = _argument(each.name, kind, metadata, getattr(defaults, each.name))
        found.append(
            dataclasses.replace(
                argument,
                help=group.help.get(each.name, argument.help),
                flag=dataclasses.replace(argument.flag, panel=argument.flag.panel or group.panel),
                group=parameter,
            )
        )
    return found


def _parts(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    if typing.get_origin(annotation) is Annotated:
        kind, *metadata = typing.get_args(annotation)
        return kind, tuple(metadata)
    return annotation, ()


def _argument(name: str, kind: Any, metadata: Sequence[Any], default: Any) -> Argument:
    return Argument(
        name=name,
        type=kind,
        default=default,
        flag=next((item for item in metadata if isinstance(item, Flag)), Flag()),
        help=next((item.documentation for item in metadata if isinstance(item, Doc)), ""),
        bounds=tuple(item for item in metadata if isinstance(item, Ge | Le)),
    )


def _flat_signature(verb: Verb, function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature that callers see: groups are taken apart."""
    ordered = sorted(verb.arguments, key=lambda argument: not argument.required)
    parameters = [
        inspect.Parameter(
            argument.name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD if i == 0 else inspect.Parameter.KEYWORD_ONLY,
            default=argument.default,
            annotation=argument.type,
        )
        for i, argument in enumerate(ordered)
    ]
    returns = inspect.signature(function, eval_str=True).return_annotation
    return inspect.Signature(parameters, return_annotation=returns)


def _checked(argument: Argument, value: Any) -> Any:
    """Return a value of Python as the command line would give it: one value or a list, a path or its name.

    Raises:
        InputError: if it is of another type, no choice, or out of bounds.
    """
    if value is None and argument.default is None:
        return None
    from pydantic import ConfigDict, TypeAdapter, ValidationError

    kinds = alternatives(argument.type)
    if isinstance(value, list | tuple) and str in kinds:
        value = ",".join(map(str, value))
    if any(typing.get_origin(kind) is list for kind in kinds) and not isinstance(value, list | tuple):
        value = [value]
    texts = str in kinds or list[str] in kinds
    if texts and isinstance(value, list | tuple):
        value = [str(item) if isinstance(item, Path) else item for item in value]
    elif texts and isinstance(value, Path):
        value = str(value)
    kind: Any = Annotated[argument.type, *argument.bounds] if argument.bounds else argument.type
    try:
        return TypeAdapter(kind, config=ConfigDict(coerce_numbers_to_str=True)).validate_python(value)
    except ValidationError as error:
        problem = error.errors()[0]["msg"]
        raise InputError(f"{argument.name}={value!r}: {problem[:1].lower()}{problem[1:]}") from None


def alternatives(kind: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the type itself."""
    is_union = typing.get_origin(kind) in (typing.Union, types.UnionType)
    return typing.get_args(kind) if is_union else (kind,)
