"""The command line. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import atexit
import gc
import os
import sys

STREAMS = {0: "stdin", 1: "stdout", 2: "stderr"}


def main() -> None:
    """Run the command line."""
    name_files_in_utf8()
    # With Python's threshold of 700 objects, the imports search for cycles hundreds of times: a fifteenth of the start
    gc.set_threshold(100_000)
    prepare_streams()
    from sentcli.cli.app import app

    # At its end Python searches all objects for cycles, which takes a second once torch and transformers are loaded
    atexit.register(gc.freeze)
    try:
        app()
    except OSError as error:  # the help page was to go where it cannot be written; verbs handle their own errors
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(f"error: standard output: {error.strerror}")


def name_files_in_utf8() -> None:
    """Begin anew in Python's UTF-8 mode where the locale has another encoding, and leave the streams as they are.

    The names of files are bytes. Python makes texts of them in the encoding of the locale, and the libraries that open
    files by themselves (faiss, tokenizers, Arrow, onnxruntime and others) make bytes of these in UTF-8 alone: of a name
    with an accent another one.
    """
    if sys.getfilesystemencoding() == "utf-8":
        return
    environment = {**os.environ, "PYTHONUTF8": "1"}
    if sys.__stdout__ is not None:
        environment.setdefault("PYTHONIOENCODING", sys.__stdout__.encoding)
    os.execve(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]], environment)


def prepare_streams() -> None:
    """Let the program write to each stream.

    Signs that the encoding of standard output lacks are replaced, unless the user has chosen what happens with them. A
    closed stream becomes an empty one, since the next file that is opened would get its number, and with it whatever
    a library prints. It is noted, so that no data goes there; see `console.refuse_closed`.
    """
    from sentcli import console
    from sentcli.printable import STRICT

    for number, name in STREAMS.items():
        if getattr(sys, name) is None:
            console.closed.add(name)
            _open_empty(number, name)
    if sys.stdout.errors in STRICT:
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]


def _open_empty(number: int, name: str) -> None:
    """Open what has no bytes and takes all as a standard stream."""
    empty = os.open(os.devnull, os.O_RDWR)
    if empty != number:
        os.dup2(empty, number)
        os.close(empty)
    os.set_inheritable(number, True)
    stream = open(number, "w" if number else "r", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    setattr(sys, name, stream)
