"""What all commands share: the Typer application they register with, and how errors reach the user."""

from __future__ import annotations

import functools
import inspect
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Annotated, Any

import typer
from annotated_types import Ge

from sentcli import __version__, console
from sentcli.errors import SentcliError
from sentcli.verbs.declaration import Argument, Verb, alternatives

app = typer.Typer(
    name="sentcli",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, notes or warnings.", rich_help_panel="Output")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Say what is loaded and what runs.", rich_help_panel="Output")
]
Debug = Annotated[bool, typer.Option("--debug", help="Show a traceback with an error.", rich_help_panel="Output")]
SHARED = {"quiet": Quiet, "verbose": Verbose, "debug": Debug}


def command(name: str, group: typer.Typer = app) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command: adds -q, -v and --debug, and turns errors into one message and an exit code."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(function, eval_str=True)
        shared = [
            inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind)
            for key, kind in SHARED.items()
        ]

        @functools.wraps(function)
        def wrapper(**arguments: Any) -> None:
            flags = {key: arguments.pop(key) for key in SHARED}
            data = "-" in (arguments.get("json"), arguments.get("output"), arguments.get("hits"))
            console.state.__dict__.update(flags, data_on_stdout=data)
            if data and hasattr(sys.stdout, "reconfigure"):
                sys.stdout.reconfigure(encoding="utf-8")  # data is UTF-8 whatever the terminal's locale
            _run(function, arguments)

        wrapper.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *shared])  # type: ignore[attr-defined]
        wrapper.__annotations__ = {p.name: p.annotation for p in wrapper.__signature__.parameters.values()}  # type: ignore[attr-defined]
        group.command(name, no_args_is_help=_has_required(signature))(wrapper)
        return wrapper

    return register


def register(function: Any, group: typer.Typer = app) -> None:
    """Make a command of a verb: its declaration gives the flags, and its result is printed."""
    verb: Verb = function.verb

    def command_of_verb(**arguments: Any) -> None:
        console.state.debug = arguments.pop("debug")
        values = {a.name: _given(arguments[a.name]) for a in verb.arguments}
        data = "-" in (values["json"], values.get("output"), values.get("hits"))
        console.state.__dict__.update(quiet=values["quiet"], verbose=values["verbose"], data_on_stdout=data)
        if data and hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(encoding="utf-8")  # data is UTF-8 whatever the terminal's locale
        _run(lambda: verb.run(values).show(), {})

    parameters = [
        inspect.Parameter(a.name, inspect.Parameter.KEYWORD_ONLY, default=a.default, annotation=_annotation(a))
        for a in verb.arguments
    ]
    parameters.append(inspect.Parameter("debug", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Debug))
    command_of_verb.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command_of_verb.__annotations__ = {p.name: p.annotation for p in parameters}
    required = any(argument.required for argument in verb.arguments)
    group.command(verb.name, no_args_is_help=required, help=inspect.cleandoc(function.__doc__ or ""))(command_of_verb)


def _given(value: Any) -> Any:
    """Return an empty list as None: an option that may be repeated and was not given."""
    return None if value == [] else value


def _annotation(argument: Argument) -> Any:
    """Return the type of an argument with what Typer is told of it."""
    flag = argument.flag
    told: dict[str, Any] = {"help": argument.help, "metavar": flag.metavar, "rich_help_panel": flag.panel}
    told["show_default"] = flag.show_default and argument.default is not None and not argument.required
    for bound in argument.bounds:
        told["min" if isinstance(bound, Ge) else "max"] = bound.ge if isinstance(bound, Ge) else bound.le
    if flag.positional:
        return Annotated[argument.type, typer.Argument(**told)]
    if flag.lists is not None:
        told |= {"callback": _lister(flag.lists), "is_eager": True}
    name = f"--{argument.name.replace('_', '-')}"
    if bool in alternatives(argument.type) and argument.default is not False:
        name = f"{name}/--no-{name[2:]}"
    return Annotated[argument.type, typer.Option(name, *([flag.short] if flag.short else []), **told)]


def _lister(print_choices: Callable[[], None]) -> Callable[[str | None], str | None]:
    """Return a callback that prints the choices and ends where the value is ``list``."""

    def listed(value: str | None) -> str | None:
        if value != "list":
            return value
        print_choices()
        raise typer.Exit

    return listed


def _has_required(signature: inspect.Signature) -> bool:
    return any(p.default is inspect.Parameter.empty for p in signature.parameters.values())


def _run(function: Callable[..., Any], arguments: dict[str, Any]) -> None:
    from sentcli.io.sources import remove_temporary_files

    signal.signal(signal.SIGTERM, _terminated)
    try:
        _check_report(arguments)
        function(**arguments)
    except typer.Exit:
        raise
    except KeyboardInterrupt:
        console.fail("interrupted")
        raise typer.Exit(130) from None
    except BrokenPipeError:  # the reader of our output has gone, as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    except Exception as error:
        if console.state.debug:
            traceback.print_exc()
        if message := _message(error):  # empty: another process of this training says it
            console.fail(message)
        raise typer.Exit(getattr(error, "exit_code", 1)) from None
    finally:
        remove_temporary_files()


def _terminated(number: int, frame: object) -> None:
    """Leave through the clean-up of unfinished outputs, with the shell's exit code for SIGTERM."""
    raise SystemExit(128 + number)


def _check_report(arguments: dict[str, Any]) -> None:
    """Refuse a --json or --report that cannot be written before the work, not after it; one that exists is replaced."""
    target = arguments.get("json")
    targets = [("--json", target)] if target not in (None, "-") else []
    targets += [("--report", page) for page in arguments.get("pages") or []]
    if not targets:
        return
    from pathlib import Path

    from sentcli.errors import InputError
    from sentcli.io.atomic import check_output
    from sentcli.reports.write import check_suffix

    others = [value for key, value in arguments.items() if key not in ("json", "pages")]
    flat = [item for value in others for item in (value if isinstance(value, list) else [value])]
    taken = {Path(other).resolve(): other for other in flat if isinstance(other, (str, Path))}
    for option, path in targets:
        if Path(path).resolve() in taken:
            raise InputError(f"{option} {path} would replace {taken[Path(path).resolve()]}; choose another file")
        taken[Path(path).resolve()] = path
        if option == "--report":
            check_suffix(Path(path))
        check_output(Path(path), overwrite=True)


def _message(error: Exception) -> str:
    if isinstance(error, SentcliError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return f"{type(error).__name__}: {error} (a defect of sentcli; --debug shows where)"


def _version(value: bool) -> None:
    if value:
        typer.echo(f"sentcli {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Train, measure, ship and search with sentence embeddings.

    \b
    Examples:
      sentcli train --method simcse -m minilm --data sentences.txt -o model
      sentcli encode sentences.txt -o vectors.npy -m model
      sentcli sts-eval -m model --data SentEval/data/downstream
      sentcli retrieve -m model --corpus documents.jsonl --query "how to start"
    """  # noqa: D301
