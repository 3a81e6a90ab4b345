"""``sentcli analyze``: a command for each kind."""

from __future__ import annotations

import typer

from sentcli.cli.base import app, register
from sentcli.verbs.analyze import KINDS, kind_of

group = typer.Typer(no_args_is_help=True)


@group.callback()
def analyze() -> None:
    """Look inside models: the analyses and figures of the papers, for models of one's own.

    Every kind writes a folder: index.html to read, each figure as PNG and SVG
    with the CSV behind it, each table as CSV, and analysis.json.

    \b
    Examples:
      sentcli analyze geometry -m minilm -m runs/simcse --data downstream -o geometry
      sentcli analyze map sentences.txt -m minilm -m runs/simcse -o map
      sentcli analyze compare minilm runs/simcse --texts sentences.txt -o compare
    """  # noqa: D301


app.add_typer(group, name="analyze")
for name in KINDS:
    register(kind_of(name), group)
