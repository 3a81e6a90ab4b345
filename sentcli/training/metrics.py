"""The form of ``metrics.jsonl``, the log of a run: a line for each optimiser step and for each evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Le
from pydantic import BaseModel, StrictInt, ValidationError

from sentcli.errors import DataError
from sentcli.io.forms import Plain, decode, problem_of


class MetricsLine(BaseModel, extra="allow"):
    """A line of the log; all its other values are numbers, texts or null."""

    __pydantic_extra__: dict[str, Plain]
    step: Annotated[StrictInt, Ge(0), Le(2**53)]


def parsed(data: bytes, path: Path) -> list[dict[str, Any]]:
    """Return the lines of a log, or of its end; a last line that is not complete is left out.

    Args:
        data: the bytes of the lines.
        path: of the log, for messages.

    Raises:
        DataError: for a damaged line.
    """
    records, lines = [], data.split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            if line.strip():
                record = decode(line.decode())
                MetricsLine.model_validate(record)
                records.append(record)
        except ValueError as error:
            if number == len(lines):
                break
            problem = problem_of(MetricsLine, error) if isinstance(error, ValidationError) else error
            raise DataError(path, f"not a line of a training run: {problem}", line=number) from error
    return records
