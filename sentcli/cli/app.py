"""The application: a command for each verb, whose module is imported when the command is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from sentcli import __version__
from sentcli.cli.base import register

CONTEXT = {"help_option_names": ["-h", "--help"]}
COMMANDS = {
    "train": "train:train",
    "encode": "encode:encode",
    "index": "index:index",
    "export": "export:export",
    "sts-eval": "sts_eval:sts_eval",
    "senteval": "senteval:senteval",
    "retrieve": "retrieve:retrieve",
    "doctor": "doctor:doctor",
    "data": "",
}
"""In the order in which ``--help`` lists them: module and function of a verb; empty for a group of `GROUPS`."""
GROUPS = {"data": ("data:list_sets", "data:get", "data:verify")}


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
    return typer.Typer(
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings=CONTEXT,
        **options,
    )


def _single(name: str) -> typer.Typer:
    made = _typer()
    register(_verb(COMMANDS[name]), made)
    return made


def _group(name: str) -> typer.Typer:
    made = _typer(no_args_is_help=True, name=name)
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


_HELP = {"data": _data}


def _version(value: bool) -> None:
    if value:
        typer.echo(f"sentcli {__version__}")
        raise typer.Exit


app = typer.Typer(
    name="sentcli",
    cls=Verbs,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings=CONTEXT,
)


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
