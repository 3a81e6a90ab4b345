"""Making a command of a verb, and messages and exit codes of its errors."""

from __future__ import annotations

import _thread
import inspect
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any

import typer
from annotated_types import Ge
from typer.core import TyperCommand

from sentcli import console
from sentcli.bounds import Holds
from sentcli.command.declaration import Argument, Verb, alternatives, data_streams
from sentcli.errors import SentcliError, broken_library, interruption, lacks_memory, of_memory, unreadable_name
from sentcli.io.digests import CACHE, cache_folder
from sentcli.printable import without_secrets

_TERMINATED = 128 + signal.SIGTERM
"""The exit code of a command that SIGTERM ends, as a shell gives it."""
_AGAIN_SECONDS = 0.05
"""How long after a signal was lost it is raised again."""


def _methods() -> Iterable[str]:
    from sentcli.methods import METHODS

    return METHODS


def _recipes() -> Iterable[str]:
    from sentcli.methods.recipes import recipe_names

    return recipe_names()


def _models() -> Iterable[str]:
    from sentcli.zoo import zoo

    return zoo()


def _sets(kind: str | None = None) -> Iterable[str]:
    from sentcli.data.registry import registry

    return [name for name, dataset in registry().items() if kind in (None, dataset.kind)]


def _published() -> Iterable[str]:
    from sentcli.evaluation.published import published

    return ["list", *published()]


def _papers() -> Iterable[str]:
    from sentcli.evaluation.papers import paper_names

    return paper_names()


COMPLETIONS: dict[Holds, tuple[Callable[[], Iterable[str]], str]] = {
    Holds.METHOD: (_methods, ".py"),
    Holds.METHOD_NAME: (_methods, ""),
    Holds.RECIPE: (_recipes, ".toml"),
    Holds.MODEL: (_models, "/"),
    Holds.RETRIEVAL_SET: (lambda: _sets("beir"), "/"),
    Holds.PUBLISHED: (_published, ""),
    Holds.PAPER: (_papers, ""),
    Holds.DATA_SET: (_sets, ""),
}
"""What lists the known names of an argument, and how paths end that it takes, too, with / for a folder."""


def completer(argument: Argument) -> Callable[[str], list[str]] | None:
    """Return what completes the values of an argument, given their beginning; None leaves it to the shell."""
    if argument.holds not in COMPLETIONS:
        return None
    list_names, end = COMPLETIONS[argument.holds]

    def complete(incomplete: str) -> list[str]:
        completions = [name for name in list_names() if name.startswith(incomplete)]
        if end:
            completions += _paths(incomplete, end)
        return completions

    return complete


def _paths(incomplete: str, end: str) -> list[str]:
    """Return the folders, and the files with this end, whose path has this beginning."""
    folder, slash, start = incomplete.rpartition("/")
    paths = []
    with suppress(OSError):
        for path in sorted(Path(folder + slash).iterdir()):
            hidden = path.name.startswith(".") and not start.startswith(".")
            if path.name.startswith(start) and not hidden and (path.is_dir() or path.name.endswith(end)):
                paths.append(f"{folder}{slash}{path.name}{'/' if path.is_dir() else ''}")
    return paths[:200]  # the most paths that are proposed


@dataclass(frozen=True)
class Conversion:
    """Converts the value of a parameter by Typer's rules, but for values that these would leave as they are.

    Typer imports pydantic for the rules, and builds a validator for each parameter, also for one that was not given.
    """

    by_rules: Callable[[], Any]
    """Returns Typer's own conversion."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return a value as the type of a parameter."""
        takes_list = param.multiple or param.nargs == -1
        if value is None and takes_list:
            return ()
        if value is None or value is param.default:
            return value
        kind: Any = str
        texts = [value]
        if takes_list:
            kind = list[str]
            texts = value
        if param.type_descriptor.annotation == kind and all(type(text) is str for text in texts):
            return value
        return self.by_rules().coerce(value, param=param, ctx=ctx)


def convert_where_needed(parameters: list[Any]) -> list[Any]:
    """Let each parameter of a command take a `Conversion` in place of Typer's own, and return all of them.

    Typer documents none of the names that this needs: where a release lacks them, its own conversion stays.
    """
    for parameter in parameters:
        by_rules = getattr(type(parameter), "get_runtime_param", None)
        if by_rules is not None and hasattr(parameter, "type_descriptor"):
            parameter.get_runtime_param = partial(Conversion, by_rules.__get__(parameter))
    return parameters


Debug = Annotated[bool, typer.Option("--debug", help="Show a traceback with an error.", rich_help_panel="Output")]


class Command(TyperCommand):
    """A command whose help page folds long names of options, and shows the common options unless all are asked for."""

    common: frozenset[str] | None = None
    implied_values: Mapping[str, str] = {}
    """The values of options that are given without one, by their long names."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, with that of ``--help``."""
        return convert_where_needed(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words of the command line."""
        words: list[str] = []
        for word, following in zip_longest(args, args[1:], fillvalue="-"):
            words.append(word)
            if word in self.implied_values and following.startswith("-"):
                words.append(self.implied_values[word])
        return super().parse_args(ctx, words)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help page."""
        from typer import rich_utils

        for name in ("highlighter", "negative_highlighter"):
            highlight = getattr(rich_utils, name)
            if not isinstance(highlight, Folding):
                setattr(rich_utils, name, Folding(highlight))
        shown: list[Any] = []
        if self.common is not None and ALL not in ctx.meta:
            shown = [p for p in self.params if p.name not in self.common and not getattr(p, "hidden", True)]
        for parameter in shown:
            parameter.hidden = True
        try:
            super().format_help(ctx, formatter)
        finally:
            for parameter in shown:
                parameter.hidden = False


ALL = "sentcli.help-all"
"""The mark of a context in which all options are shown."""


def _help_all(context: typer.Context, value: bool) -> None:
    """Print the help page with all options, and exit."""
    if value:
        context.meta[ALL] = True
        typer.echo(context.get_help())
        raise typer.Exit


HelpAll = Annotated[bool, typer.Option("--help-all", callback=_help_all, is_eager=True, help="Show all options.")]


@dataclass(frozen=True)
class Folding:
    """A highlighter of names, which fold where there is no room for them."""

    highlight: Callable[[str], Any]

    def __call__(self, text: str) -> Any:
        """Return a name as rich's text."""
        shown = self.highlight(text)
        shown.overflow = "fold"
        return shown


def register(function: Any, group: typer.Typer) -> None:
    """Make a command of a verb: its declaration gives the flags, and its result is printed."""
    verb: Verb = function.verb

    def command_of_verb(**arguments: Any) -> None:
        debug = arguments.pop("debug")
        arguments.pop("help_all", None)
        # Typer gives an empty list for an option that may be repeated and was left out
        values: dict[str, Any] = dict.fromkeys(arguments)
        values.update({name: value for name, value in arguments.items() if value != []})
        data_on_stdout = bool(data_streams(verb.arguments, values))
        if data_on_stdout and hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(encoding="utf-8")  # data is UTF-8 whatever the terminal's locale
        with console.speaking(quiet=values["quiet"], verbose=values["verbose"], data_on_stdout=data_on_stdout):
            console.state.debug = debug
            _run(lambda: _show(verb.run(values)))

    parameters = [
        inspect.Parameter(a.name, inspect.Parameter.KEYWORD_ONLY, default=a.default, annotation=_annotation(a))
        for a in verb.arguments
    ]
    parameters.append(inspect.Parameter("debug", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Debug))
    if verb.common:
        help_all = inspect.Parameter("help_all", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=HelpAll)
        parameters.append(help_all)
    command_of_verb.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command_of_verb.__annotations__ = {p.name: p.annotation for p in parameters}
    required = any(argument.required for argument in verb.arguments)
    common = verb.common | {"help_all"} if verb.common else None
    implied_values = {
        argument.long: argument.flag.implied_value for argument in verb.arguments if argument.flag.implied_value
    }
    command_class = type("CommandOfVerb", (Command,), {"common": common, "implied_values": implied_values})
    group.command(verb.name, cls=command_class, no_args_is_help=required, help=unwrapped(verb.help))(command_of_verb)


def unwrapped(text: str) -> str:
    """Return a help text whose paragraphs are one line each, for a screen of any width; examples keep their lines."""
    paragraphs = []
    for paragraph in text.split("\n\n"):
        if not paragraph.startswith("\b"):
            paragraph = paragraph.replace("\n", " ")
        paragraphs.append(paragraph)
    return "\n\n".join(paragraphs)


def _annotation(argument: Argument) -> Any:
    """Return the type of an argument, annotated with its Typer option."""
    flag = argument.flag
    settings: dict[str, Any] = {"help": argument.help, "metavar": flag.metavar, "rich_help_panel": flag.panel}
    settings["autocompletion"] = completer(argument)
    settings["show_default"] = argument.default is not None and not argument.required
    for bound in argument.bounds:
        if isinstance(bound, Ge):
            settings["min"] = bound.ge
        else:
            settings["max"] = bound.le
    if flag.positional:
        return Annotated[argument.type, typer.Argument(**settings)]
    if flag.lists is not None:
        settings |= {"callback": _list_callback(flag.lists), "is_eager": True}
    name = argument.long
    if bool in alternatives(argument.type) and argument.default is not False:
        name = f"{name}/--no-{name[2:]}"
    names = [name]
    if flag.short:
        names.append(flag.short)
    return Annotated[argument.type, typer.Option(*names, **settings)]


def _list_callback(print_choices: Callable[[], None]) -> Callable[[str | None], str | None]:
    """Return a callback of an option that prints the choices and exits if the value is ``list``."""

    def callback(value: str | None) -> str | None:
        if value != "list":
            return value
        print_choices()
        raise typer.Exit

    return callback


def _show(result: Any) -> None:
    result.show()
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def _run(work: Callable[[], None]) -> None:
    """Do the work of a command and turn an error into one message and an exit code."""
    from sentcli.io.scratch import remove_scratch

    signal.signal(signal.SIGTERM, _terminated)
    sys.unraisablehook = _dropped
    try:
        work()
    except typer.Exit:
        raise
    except KeyboardInterrupt:
        raise _interrupted() from None
    except BrokenPipeError:  # the reader of our output has gone, as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    except Exception as error:
        signalled = interruption(error)
        if isinstance(signalled, KeyboardInterrupt):
            raise _interrupted() from None
        if signalled:
            raise signalled from None
        if console.state.debug:
            sys.stderr.write(without_secrets(traceback.format_exc(), of_host=True))
        if message := _message(error):  # it is empty if another process of this training prints it
            console.fail(message)
        raise typer.Exit(getattr(error, "exit_code", 1)) from None
    finally:
        remove_scratch()


def _interrupted() -> typer.Exit:
    console.fail("interrupted")
    return typer.Exit(130)


def _terminated(number: int, frame: object) -> None:
    """Exit with the shell's code for SIGTERM; the exception lets unfinished outputs be removed."""
    raise SystemExit(_TERMINATED)


def _dropped(dropped: sys.UnraisableHookArgs) -> None:
    """Raise what a signal raised once more where Python has dropped it, as in a finalizer or a callback of C.

    That is a moment later, since in here it would be dropped, too.
    """
    error = dropped.exc_value
    if isinstance(error, KeyboardInterrupt):
        number = signal.SIGINT
    elif isinstance(error, SystemExit) and error.code == _TERMINATED:
        number = signal.SIGTERM
    else:
        sys.__unraisablehook__(dropped)
        return
    again = threading.Timer(_AGAIN_SECONDS, _send, [number])
    again.daemon = True
    again.start()


def _send(number: signal.Signals) -> None:
    """Send the main thread a signal, which ends a wait of the system, too, where there are such signals."""
    main = threading.main_thread().ident
    if sys.platform == "win32" or main is None:
        _thread.interrupt_main(number)
    else:
        signal.pthread_kill(main, number)


def _message(error: Exception) -> str:
    if isinstance(error, SentcliError):
        return str(error)
    if lacks_memory(error):
        return str(of_memory("this", error))
    if str(error).startswith("Symlink loop from"):  # a RuntimeError of pathlib
        return str(error)
    if unreadable := unreadable_name(error):
        return str(unreadable)
    if isinstance(error, OSError) and error.strerror:
        advice = f"; {CACHE} names another folder for the cache" if _is_in_cache(error.filename) else ""
        if not error.filename:
            return error.strerror
        return f"{error.filename}: {error.strerror}{advice}"
    if broken := broken_library(error):
        return str(broken)
    return f"{type(error).__name__}: {error} (a defect of sentcli; --debug shows where)"


def _is_in_cache(name: object) -> bool:
    """Tell whether a name that an error of the system holds is that of a file or folder of the cache."""
    return isinstance(name, str | Path) and Path(name).is_relative_to(cache_folder(""))
