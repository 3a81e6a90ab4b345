"""The command line. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import atexit
import gc
import os
import sys


def main() -> None:
    """Run the command line."""
    # With Python's threshold of 700 objects, the imports search for cycles hundreds of times: a fifteenth of the start
    gc.set_threshold(100_000)
    from sentcli.cli.streams import prepare_streams

    prepare_streams()
    from sentcli.cli.app import app

    # At its end Python searches all objects for cycles, which takes a second once torch and transformers are loaded
    atexit.register(gc.freeze)
    try:
        app()
    except OSError as error:  # the help page was to go where it cannot be written; verbs handle their own errors
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(f"error: standard output: {error.strerror}")
