"""The command line. Nothing heavy is imported before a command runs."""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    from sentcli.cli.app import app

    app()
