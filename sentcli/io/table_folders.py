"""Folders that hold one table: a data set that the datasets library has saved, and a table of Lance.

Such a folder becomes one file of Arrow, in a temporary folder, so that everything that reads files reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sentcli.errors import DataError, InputError, library_errors, required
from sentcli.io.forms import read_json
from sentcli.io.scratch import scratch

STATE, _SPLITS_FILE = "state.json", "dataset_dict.json"
"""The files by which the datasets library knows a saved data set, and several of them."""
OF_ROWS = ("_indices_data_files", "_indices_files")
"""The keys of files with the numbers of the rows that are taken, and their order."""


def is_table(folder: Path) -> bool:
    """Tell whether a folder holds one table, or several of which one has to be named."""
    return _is_lance(folder) or (folder / STATE).is_file() or (folder / _SPLITS_FILE).is_file()


def _is_lance(folder: Path) -> bool:
    return (folder / "_versions").is_dir()


def as_file(folder: Path, name: str) -> Path:
    """Return the rows of such a folder as a file of Arrow.

    Args:
        folder: for which `is_table` is true.
        name: of the folder, for messages.

    Raises:
        InputError: if it holds several tables, or Lance is not installed.
        DataError: if it is damaged.
    """
    import pyarrow as pa

    if (folder / _SPLITS_FILE).is_file():
        splits = sorted(path.name for path in folder.iterdir() if (path / STATE).is_file())
        choices = ", ".join(f"{name}/{split}" for split in splits)
        raise InputError(f"{name} holds several data sets: name one of them, {choices}")
    path = scratch() / "table.arrow"
    with library_errors(lambda why: DataError(name, f"not a readable table ({why})"), InputError, OSError):
        batch_source = _of_lance if _is_lance(folder) else _of_datasets
        batches = batch_source(folder, name)
        first = next(batches, None)
        if first is None:
            raise DataError(name, "the table is empty")
        with pa.OSFile(str(path), "wb") as handle, pa.ipc.new_stream(handle, first.schema) as writer:
            writer.write_batch(first)
            for batch in batches:
                writer.write_batch(batch)
    return path


def _of_datasets(folder: Path, name: str) -> Iterator[Any]:
    """Yield the rows of a data set as the library saves it: the streams of Arrow that its state lists."""
    import pyarrow as pa

    state = read_json(folder / STATE)
    entries = state.get("_data_files") if isinstance(state, dict) else None
    if not isinstance(entries, list):
        raise DataError(name, f"{STATE} lists no files of a data set")
    if any(state.get(key) for key in OF_ROWS):
        raise DataError(
            name, f"{STATE} names the rows that are taken, as early releases of datasets did: save it with a later one"
        )
    for entry in entries:
        file = entry.get("filename") if isinstance(entry, dict) else None
        if not isinstance(file, str) or Path(file).name != file:
            raise DataError(name, f"{STATE} lists {file!r}, which is no file of the folder")
        if not (folder / file).is_file():
            raise DataError(name, f"{STATE} lists {file}, which is missing: copy the folder again")
        with (folder / file).open("rb") as handle:
            yield from pa.ipc.open_stream(handle)


def _of_lance(folder: Path, name: str) -> Iterator[Any]:
    lance = required("lance", "pylance", "lance", f"{name}: a table of Lance")
    yield from lance.dataset(str(folder)).to_batches()
