"""The formats of outputs of vectors: what each keeps, and how it is written and read back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sentcli.errors import InputError, nearest
from sentcli.io.atomic import replacing
from sentcli.io.places import Place
from sentcli.io.writers import (
    OutputPlan,
    Vectors,
    Write,
    jsonl_writer,
    npy_writer,
    parquet_writer,
    read_npy,
    read_safetensors,
    safetensors_writer,
    stdout_writer,
)


@dataclass(frozen=True)
class OutputFormat:
    """A format of outputs; `output_format` tells it from the name of an output."""

    name: str
    """``stdout``, ``directory``, or the suffix of a file."""
    keeps_rows: bool = True
    """Whether ids, texts and other columns stand beside the vectors."""
    keeps_settings: bool = True
    """Whether the settings that decide the vectors are stored with them."""
    compresses: bool = False
    writer: Callable[[Path, OutputPlan], AbstractContextManager[Write]] | None = None
    """Opens a file to be written; None for what is no file."""
    read: Callable[[Place], tuple[Vectors, str | None]] | None = None
    """Returns the vectors of a file that keeps them alone, and the text of its settings; None for all others."""


STDOUT = OutputFormat("stdout", keeps_settings=False)
DIRECTORY = OutputFormat("directory")
"""A directory of shards, which `dataset_writer` writes."""
FILES = {
    form.name: form
    for form in (
        OutputFormat(".npy", keeps_rows=False, keeps_settings=False, writer=npy_writer, read=read_npy),
        OutputFormat(".parquet", compresses=True, writer=parquet_writer),
        OutputFormat(".jsonl", keeps_settings=False, writer=jsonl_writer),
        OutputFormat(".safetensors", keeps_rows=False, writer=safetensors_writer, read=read_safetensors),
    )
}
"""The formats of files, by their suffixes."""
VERSION = re.compile(r"\.v?\d(?!z$)")
"""The end of a version such as ``.0`` or ``.v2``, which is part of the name of a directory; ``.7z`` is an archive."""


def output_format(target: str) -> OutputFormat:
    """Return the format of an output by its name; ``-`` is standard output, and ``v2.0`` the name of a directory.

    Raises:
        InputError: for the suffix of another format, or one that is mistyped.
    """
    if target == "-":
        return STDOUT
    suffix = Path(target).suffix.lower()
    if suffix in FILES:
        return FILES[suffix]
    if suffix and not VERSION.match(suffix):
        hint = nearest(suffix, list(FILES))
        raise InputError(f"{target}: unknown output format {suffix!r}{hint}; use {', '.join(FILES)} or no suffix")
    return DIRECTORY


@contextmanager
def open_writer(target: str, plan: OutputPlan) -> Iterator[Write]:
    """Yield a function that writes to a file or to standard output.

    The file gets its name after the block, when it is complete.
    """
    form = output_format(target)
    if form is STDOUT:
        with stdout_writer() as write:
            yield write
        return
    if form.writer is None:
        raise ValueError(f"{target} is a directory of shards")
    with replacing(Path(target)) as temporary, form.writer(temporary, plan) as write:
        yield write
