"""The application: a command for each verb, whose module is imported when the command is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from sentcli import __version__
from sentcli.cli.base import register
from sentcli.verbs.analyze import KINDS

CONTEXT = {"help_option_names": ["-h", "--help"]}
COMMANDS = {
    "train": "train:train",
    "encode": "encode:encode",
    "index": "index:index",
    "export": "export:export",
    "sts-eval": "sts_eval:sts_eval",
    "senteval": "senteval:senteval",
    "retrieve": "retrieve:retrieve",
    "report": "report:report",
    "doctor": "doctor:doctor",
    "analyze": "",
    "data": "",
}
"""In the order in which ``--help`` lists them: module and function of a verb; empty for a group of `GROUPS`."""
GROUPS = {
    "analyze": tuple(f"kinds.{place}" for place in KINDS.values()),
    "data": ("data:list_sets", "data:get", "data:verify"),
}


class Verbs(TyperGroup):
    """The commands, each made when it is asked for: ``sentcli encode`` imports nothing of the others."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; of an unknown name none, and then all are there to suggest one of."""
        for name in [cmd_name] if cmd_name in COMMANDS else COMMANDS:
            if name not in self.commands:
                self.commands[name] = typer.main.get_command(_group(name) if name in GROUPS else _single(name))
        return self.commands.get(cmd_name)


def _verb(place: str) -> Any:
    module, _, function = place.partition(":")
    return getattr(import_module(f"sentcli.verbs.{module}"), function)


def _typer(**options: Any) -> typer.Typer:
    return typer.Typer(rich_markup_mode="rich", pretty_exceptions_enable=False, context_settings=CONTEXT, **options)


def _single(name: str) -> typer.Typer:
    made = _typer(add_completion=False)
    register(_verb(COMMANDS[name]), made)
    return made


def _group(name: str) -> typer.Typer:
    made = _typer(add_completion=False, no_args_is_help=True, name=name)
    made.callback()(_HELP[name])
    for place in GROUPS[name]:
        register(_verb(place), made)
    return made


def _data() -> None:
    """List, fetch and check evaluation and training data.

    \b
    Examples:
      sentcli data list
      sentcli data get sts scifact
      sentcli data verify
    """  # noqa: D301


def _analyze() -> None:
    """Look inside models: the analyses and figures of the papers, for models of one's own.

    Every kind writes a folder: index.html to read, each figure as PNG and SVG
    with the CSV behind it, each table as CSV, and analysis.json.

    \b
    Examples:
      sentcli analyze geometry -m minilm -m runs/simcse --data downstream -o geometry
      sentcli analyze map sentences.txt -m minilm -m runs/simcse -o map
      sentcli analyze compare minilm runs/simcse --texts sentences.txt -o compare
    """  # noqa: D301


_HELP = {"analyze": _analyze, "data": _data}


def _version(value: bool) -> None:
    if value:
        typer.echo(f"sentcli {__version__}")
        raise typer.Exit


app = _typer(name="sentcli", cls=Verbs, no_args_is_help=True)


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
