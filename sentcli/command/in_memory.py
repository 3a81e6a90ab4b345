"""``encode`` from Python without an output: rows and vectors as a data frame."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sentcli.command.result import Result
from sentcli.io.scratch import scratch

if TYPE_CHECKING:
    import pandas as pd


def encoded_in_memory(run: Callable[[dict[str, Any]], Result], values: dict[str, Any]) -> Result:
    """Run the verb from Python; without an output the rows and their vectors are in the frame of the result."""
    if values["output"] is not None or values["check"] is not None or values["estimate"]:
        return run(values)
    import pyarrow.parquet as pq

    file = scratch() / "vectors.parquet"
    try:
        result = run({**values, "output": str(file)})
        frame = pq.read_table(file).to_pandas()
        if not values["passages"]:  # whose rows are others than those of the frame that was given
            frame = _as_given(frame, values["inputs"] or [], values["text_field"])
    finally:
        shutil.rmtree(file.parent, ignore_errors=True)
    return replace(result, make_frame=lambda: frame)


def _as_given(frame: pd.DataFrame, inputs: list[str], text_field: str) -> pd.DataFrame:
    """Return the rows of a frame of pandas under its own index, without those of its rows that were left out."""
    from sentcli.io.in_memory import frame_index
    from sentcli.io.readers import ReadOptions, rows
    from sentcli.io.sources import open_source

    if len(inputs) != 1:
        return frame
    index = frame_index(inputs[0])
    if index is None:
        return frame
    if len(frame) != len(index):
        read = rows(open_source(inputs[0]), ReadOptions(text_field, on_null="skip"))
        index = index[[row is not None for row in read]]
    return frame.set_axis(index)
