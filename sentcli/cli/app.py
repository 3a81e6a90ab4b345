"""The application: a command for each verb, whose module is imported when the command is asked for."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from sentcli import __version__
from sentcli.cli.base import convert_where_needed, register
from sentcli.printable import remember_secrets_in, safe, without_secrets

USAGE_ERROR: Any = typer.BadParameter.__base__
"""The class of all errors in the arguments."""
_PACKAGE = Path(__file__).parents[1]
CONTEXT = {"help_option_names": ["-h", "--help"]}


class Verbs(TyperGroup):
    """A group whose commands are made on demand: ``sentcli encode`` imports the module of no other verb."""

    verbs: Mapping[str, str | type[Verbs]] = {}
    """The ``module:function`` of each verb, or a group of verbs, in the order in which ``--help`` lists them."""

    @property
    def places(self) -> Mapping[str, str | type[Verbs]]:
        """Those of `verbs`, or what else a group finds."""
        return self.verbs

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        return list(self.places)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; for an unknown name None, after making all of them, so that click can suggest one."""
        for name in [cmd_name] if cmd_name in self.places else self.places:
            if name not in self.commands:
                self.commands[name] = _command(name, self.places[name])
        return self.commands.get(cmd_name)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters of the group, with that of ``--help``."""
        return convert_where_needed(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help page, for which no verb is imported: its first sentence stands in its source."""
        made, self.commands = self.commands, {n: TyperCommand(n, help=_help(p)) for n, p in self.places.items()}
        super().format_help(ctx, formatter)
        self.commands = made

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take the words of the group; the secrets in all words are noted, so that no usage error repeats one."""
        for word in args:
            remember_secrets_in(word)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; what a usage error quotes of the arguments is made safe to show."""
        try:
            return super().invoke(ctx)
        except USAGE_ERROR as error:
            error.message = "\n".join(map(safe, without_secrets(error.message).split("\n")))
            raise


def _help(place: str | type[Verbs]) -> str:
    """Return the docstring of a verb or of a group of verbs."""
    if not isinstance(place, str):
        return inspect.cleandoc(place.__doc__ or "")
    module, _, function = place.partition(":")
    file = Path(_PACKAGE, *module.split(".")).with_suffix(".py")
    body = ast.parse(file.read_text("utf-8")).body
    return next(ast.get_docstring(n) or "" for n in body if isinstance(n, ast.FunctionDef) and n.name == function)


@cache  # what its options accept is worked out once, too
def _command(name: str, place: str | type[Verbs]) -> Any:
    """Return the command of a verb or of a group of verbs."""
    return typer.main.get_command(_command_app(name, place))


def _command_app(name: str, place: str | type[Verbs]) -> typer.Typer:
    """Return the Typer application of a verb or of a group of verbs."""
    if not isinstance(place, str):
        app = _application(name=name, cls=place, add_completion=False, no_args_is_help=True)
        app.callback(help=_help(place))(lambda: None)
        return app
    app = _application(name=name, add_completion=False)
    module, _, function = place.partition(":")
    register(getattr(import_module(f"sentcli.{module}"), function), app)
    return app


def _application(**options: Any) -> typer.Typer:
    return typer.Typer(rich_markup_mode="rich", pretty_exceptions_enable=False, context_settings=CONTEXT, **options)


class DataVerbs(Verbs):
    """List, fetch and check evaluation and training data, make test sets, and mine hard negatives.

    \b
    Examples:
      sentcli data list
      sentcli data get sts scifact
      sentcli data verify
      sentcli data check faq.csv
      sentcli data make-set articles.csv -o articles-set
      sentcli data mine articles-set -m minilm -o triplets.jsonl
    """  # noqa: D301

    verbs: Mapping[str, str | type[Verbs]] = {
        "list": "verbs.data:list_sets",
        "get": "verbs.data:get",
        "verify": "verbs.data:verify",
        "check": "verbs.check:check",
        "make-set": "verbs.make_set:make_set",
        "mine": "verbs.mine:mine",
    }


class Analyze(Verbs):
    """Look inside models: the analyses and figures of the papers, for models of one's own.

    Every kind writes a folder: index.html to read, each figure as PDF, PNG and SVG
    with the CSV behind it, each table as CSV, and analysis.json.

    \b
    Examples:
      sentcli analyze geometry -m minilm -m runs/simcse --data downstream -o geometry
      sentcli analyze map sentences.txt -m minilm -m runs/simcse -o map
      sentcli analyze compare minilm runs/simcse --texts sentences.txt -o compare
    """  # noqa: D301

    @property
    def places(self) -> Mapping[str, str | type[Verbs]]:
        """The kinds of analysis."""
        from sentcli.analysis import ANALYSES

        return {name: f"analysis.{place}" for name, place in ANALYSES.items()}


class Sentcli(Verbs):
    """All verbs."""

    verbs: Mapping[str, str | type[Verbs]] = {
        "train": "verbs.train:train",
        "encode": "verbs.encode:encode",
        "index": "verbs.index:index",
        "adapt": "verbs.adapt:adapt",
        "migrate": "verbs.migrate:migrate",
        "export": "verbs.export:export",
        "evaluate": "verbs.evaluate:evaluate",
        "sts-eval": "verbs.sts_eval:sts_eval",
        "senteval": "verbs.senteval:senteval",
        "retrieve": "verbs.retrieve:retrieve",
        "report": "verbs.report:report",
        "doctor": "verbs.doctor:doctor",
        "analyze": Analyze,
        "data": DataVerbs,
    }


def _version(value: bool) -> None:
    if value:
        typer.echo(f"sentcli {__version__}")
        raise typer.Exit


app = _application(name="sentcli", cls=Sentcli, no_args_is_help=True)


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
      sentcli encode sentences.txt -o vectors.npy -m minilm
      sentcli sts-eval -m model --data SentEval/data/downstream
      sentcli retrieve -m model --corpus documents.jsonl --query "how to start"
    """  # noqa: D301
