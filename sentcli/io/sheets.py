"""Spreadsheets, read by a process of its own whose memory is bounded.

A few bytes may state a sheet of 17 billion cells, or a table of 4 billion texts. The library makes room for what is
stated, and ends the process that it is in where there is none.
"""

from __future__ import annotations

import io
import os
import pickle
import struct
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, BinaryIO
from xml.parsers import expat

from sentcli.machine import memory_left

BASE, TIMES = 2**31, 100
"""The most bytes that a spreadsheet may take: so many, and so many for each byte of it, unpacked."""
_MOST_SECONDS = 900
"""The most seconds of a processor that reading may take."""
_ROWS_AT_A_TIME = 1000
"""The rows that go from process to process at a time."""
_READ_CODE = "from sentcli.io.sheets import serve; serve()"


class SheetError(Exception):
    """A spreadsheet cannot be read."""


def sheet_names_and_rows(data: bytes) -> Iterator[Any]:
    """Yield the names of the sheets of a workbook, and then the cells of each row of the first one.

    Raises:
        SheetError: if it is damaged, or takes far more memory than its size tells.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", _READ_CODE, str(_most_memory(data))]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env=environment, **pipes) as process:  # type: ignore[call-overload]
        try:
            with suppress(BrokenPipeError), process.stdin:
                process.stdin.write(data)
            yield from _received(process.stdout)
        finally:
            process.kill()  # where the reader of the rows has seen enough


def _most_memory(data: bytes) -> int:
    """Return the most bytes that reading a workbook may take, by what its archive states and by what there is."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, ValueError, struct.error):
        unpacked = len(data)
    most = BASE + TIMES * unpacked
    left = memory_left()
    return most if left is None else min(most, left)


def _received(stream: BinaryIO) -> Iterator[Any]:
    while True:
        try:
            kind, *values = pickle.load(stream)
        except EOFError:
            raise SheetError(
                "it states more cells or texts than there is memory for; delete the empty rows and columns behind its "
                "cells, or save it as csv in UTF-8"
            ) from None
        if kind == "end":
            return
        if kind == "error":
            raise SheetError(*values)
        yield from values


def serve() -> None:
    """Read a workbook from standard input and write what it holds to standard output, in the process of its own."""
    with suppress(ImportError, ValueError, OSError):  # where there are no such limits
        import resource

        limit = int(sys.argv[1])
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CPU, (_MOST_SECONDS, _MOST_SECONDS))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    output = sys.stdout.buffer
    try:
        for message in _messages(sys.stdin.buffer.read()):
            pickle.dump(message, output)
    except MemoryError:
        return
    output.flush()


def _messages(data: bytes) -> Iterator[tuple[Any, ...]]:
    """Yield what is sent of a workbook: its names, its rows, and that these are all, or what is wrong with it."""
    import python_calamine as calamine

    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if "content.xml" in archive.namelist():  # python-calamine 0.9.1 reads .ods of broken XML without end
                with archive.open("content.xml") as content:
                    expat.ParserCreate().ParseFile(content)
        workbook = calamine.CalamineWorkbook.from_filelike(io.BytesIO(data))
        yield "names", workbook.sheet_names
        rows = workbook.get_sheet_by_index(0).to_python(skip_empty_area=False)
    except MemoryError:
        raise
    except BaseException as error:  # a panic of the library is no Exception
        yield "error", str(error)
        return
    for start in range(0, len(rows), _ROWS_AT_A_TIME):
        yield "rows", *rows[start : start + _ROWS_AT_A_TIME]
    yield ("end",)
