"""The command line. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import atexit
import gc


def main() -> None:
    """Run the command line."""
    from sentcli.cli.app import app

    # At its end Python searches all objects for cycles, which takes a second once torch and transformers are loaded
    atexit.register(gc.freeze)
    app()
