"""Write docs/cli.md from the help texts: ``python docs/make_cli.py``, which docs/make_site.py runs."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ |= {"COLUMNS": "100", "TERMINAL_WIDTH": "100", "TERM": "dumb", "NO_COLOR": "1"}

from typer.main import get_command
from typer.testing import CliRunner

from sentcli.cli.app import app


def paths(command: Any, path: tuple[str, ...] = ()) -> Iterator[list[str]]:
    """Yield the words of a command and of all that are below it."""
    yield list(path)
    for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
        yield from paths(command.get_command(None, name), (*path, name))


def manual() -> str:
    """Return the page."""
    what = "After this page you know every option: it has what `sentcli COMMAND --help` prints,"
    parts = [f"# Command line\n\n{what}\nor `--help-all` where `--help` shows the common options alone.\n"]
    for command in paths(get_command(app)):
        text = CliRunner().invoke(app, [*command, "--help"], prog_name="sentcli").stdout
        if "--help-all" in text:
            text = CliRunner().invoke(app, [*command, "--help-all"], prog_name="sentcli").stdout
        lines = "\n".join(line.rstrip() for line in text.strip("\n").splitlines())
        parts.append(f"## {' '.join(['sentcli', *command])}\n\n```text\n{lines}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    (Path(__file__).parent / "cli.md").write_text(manual(), "utf-8")
