"""Check whole directories of shards: every file against its checksum, and every shard against the manifest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sentcli.arrays import AnyArray
from sentcli.errors import DataError, InputError, SentcliError, one_line
from sentcli.io.blocks import MANIFEST, Counts
from sentcli.io.dataset import Manifest, Shard, check_rows, read_manifest, remedy, shard_number
from sentcli.io.folder import Folder
from sentcli.io.writers import mapped_array


@dataclass(frozen=True)
class DatasetCheck:
    """The result of `check_dataset`."""

    rows: int
    rows_total: int
    shards: int
    dimension: int
    dtype: str
    bytes: int
    model: str
    counts: Counts
    problems: list[str]
    remedy: str | None
    """How a damaged dataset can be repaired."""


def check_dataset(place: Folder) -> DatasetCheck:
    """Read a whole dataset, and compare every file with its checksum and every shard with the manifest.

    The shards of a directory in a store are copied one after the other.
    """
    if not place.exists:
        raise InputError(f"no such directory: {place}")
    manifest = read_manifest(place)
    expected = _expected_shards(manifest)
    finished = {shard.number for shard in manifest.shards}
    problems: dict[int, str] = {}
    for number, (first, count) in enumerate(expected):
        if number not in finished:
            problems[number] = f"shard {number} (rows {first} to {first + count - 1}) is not there"
    listed: set[str] = set()
    size = 0
    for shard in manifest.shards:
        listed.update(shard.files)
        rows = expected[shard.number] if shard.number < len(expected) else None
        with place.held(shard) as folder:
            problem = shard.damage(folder) or _misfit(folder, shard, manifest.dimension, rows)
            if problem is None:
                size += sum((folder / name).stat().st_size for name in shard.files)
            else:
                problems[shard.number] = problem
    messages = list(problems.values())
    for name in sorted(place.names()):
        if shard_number(name) is not None and name not in listed:
            messages.append(f"{name} belongs to no shard of the manifest")
    remedy = None
    if messages:
        remedy = _remedy(place, manifest, min(problems, default=len(expected)))
    return DatasetCheck(
        rows=manifest.rows_done,
        rows_total=manifest.rows_total,
        shards=len(manifest.shards),
        dimension=manifest.dimension,
        dtype=manifest.dtype,
        bytes=size,
        model=manifest.settings.get("model", ""),
        counts=manifest.counts,
        problems=messages,
        remedy=remedy,
    )


def mapped_shard(folder: Path, shard: Shard, dimension: int, dtype: str) -> AnyArray:
    """Map a shard of a directory that `encode` wrote ``[rows, dimension]``.

    Args:
        folder: the directory.
        shard: in its manifest.
        dimension: the width of the array.
        dtype: the type of its numbers.

    Raises:
        DataError: if the file is missing or damaged, or has another shape or type than the manifest says.
    """
    path = folder / shard.vectors
    try:
        array = mapped_array(path)
    except (OSError, DataError) as error:
        raise DataError(path, f"damaged ({error}); {remedy(folder)}") from error
    if array.shape != (shard.count, dimension) or array.dtype != dtype:
        expected = f"{shard.count} vectors of {dimension} dimensions in {dtype}"
        raise DataError(path, f"holds {list(array.shape)} in {array.dtype}, not {expected}; {remedy(folder)}")
    return array


def require_whole(checked: DatasetCheck, folder: object) -> None:
    """Raise an error with the first problems of a check, if there are any."""
    problems = checked.problems
    if not problems:
        return
    first = "; ".join(problems[:5])
    if len(problems) > 5:
        first += f" (and {len(problems) - 5} more)"
    raise SentcliError(f"{folder}: {first}; {checked.remedy}")


def _remedy(place: Folder, manifest: Manifest, first_broken: int) -> str:
    """Return how a dataset whose first broken shard has this number can be repaired."""
    *earlier, _ = manifest.groups
    if MANIFEST not in place.names():
        return "encode that part again with --shard and --resume"
    if not earlier:
        return "encode with --resume makes what is missing"
    if first_broken >= manifest.shards_before(earlier):
        return "encode the input that was appended last again with --append"
    return "it was made from earlier inputs: encode all inputs again, with --overwrite or into another -o"


def _expected_shards(manifest: Manifest) -> list[tuple[int, int]]:
    """Return the first row and the number of rows of every shard."""
    expected: list[tuple[int, int]] = []
    first = 0
    size = manifest.shard_rows
    for group in manifest.groups:
        for start in range(0, group.rows, size):
            expected.append((first + start, min(size, group.rows - start)))
        first += group.rows
    return expected


def _misfit(folder: Path, shard: Shard, dimension: int, expected: tuple[int, int] | None) -> str | None:
    """Return how the files of a shard differ from the manifest, or None if they agree."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if expected != (shard.first_row, shard.count):
        return f"shard {shard.number} says rows {shard.first_row} and {shard.count}, expected {expected}"
    try:
        shape = mapped_array(folder / shard.vectors).shape
    except (OSError, DataError) as error:
        return f"{shard.vectors} is damaged ({error})"
    if shape != (shard.count, dimension):
        return f"{shard.vectors} has the shape {list(shape)}"
    try:
        metadata = pq.read_metadata(folder / shard.rows)
        check_rows(folder / shard.rows, metadata)
    except (pa.ArrowException, OSError, DataError) as error:
        return f"{shard.rows} is damaged ({one_line(error)})"
    if metadata.num_rows != shard.count:
        return f"{shard.rows} has {metadata.num_rows} rows"
    return None
