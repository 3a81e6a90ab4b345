"""The application with all its commands, in the order in which ``--help`` lists them."""

from __future__ import annotations

import typer

from sentcli.cli.base import app, register
from sentcli.verbs import data as data_verbs
from sentcli.verbs.doctor import doctor
from sentcli.verbs.encode import encode
from sentcli.verbs.export import export
from sentcli.verbs.index import index
from sentcli.verbs.retrieve import retrieve
from sentcli.verbs.senteval import senteval
from sentcli.verbs.sts_eval import sts_eval
from sentcli.verbs.train import train

__all__ = ["app"]

data = typer.Typer(no_args_is_help=True)


@data.callback()
def data_group() -> None:
    """List, fetch and check evaluation and training data.

    \b
    Examples:
      sentcli data list
      sentcli data get sts scifact
      sentcli data verify
    """  # noqa: D301


for verb in (train, encode, index, export, sts_eval, senteval, retrieve, doctor):
    register(verb)
app.add_typer(data, name="data")
for verb in (data_verbs.list_sets, data_verbs.get, data_verbs.verify):
    register(verb, data)
