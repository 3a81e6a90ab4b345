"""Verifying a directory of shards: every file against its checksum, every shard against the manifest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sentcli.errors import InputError, SentcliError
from sentcli.io.dataset import MANIFEST, SHARD_FILE, Counts, Shard, read_manifest, total_counts


@dataclass(frozen=True)
class DatasetCheck:
    """What `check_dataset` found."""

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
    """What makes a damaged dataset whole again."""


def check_dataset(folder: Path) -> DatasetCheck:
    """Read a whole dataset and compare it with its manifest."""
    if not folder.is_dir():
        raise InputError(f"no such directory: {folder}")
    manifest = read_manifest(folder)
    shards = [Shard.from_dict(shard) for shard in manifest["shards"]]
    expected, size = _expected_shards(manifest), 0
    there = {shard.number for shard in shards}
    broken = {
        number: f"shard {number} (rows {first} to {first + count - 1}) is not there"
        for number, (first, count) in expected.items()
        if number not in there
    }
    for shard in shards:
        problem = shard.damage(folder) or _misfit(folder, shard, manifest, expected.get(shard.number))
        if problem is not None:
            broken[shard.number] = problem
        else:
            size += sum((folder / name).stat().st_size for name in shard.names)
    known = {name for shard in shards for name in shard.names}
    strays = [p.name for p in folder.iterdir() if SHARD_FILE.fullmatch(p.name) and p.name not in known]
    problems = [*broken.values(), *(f"{name} belongs to no shard of the manifest" for name in sorted(strays))]
    return DatasetCheck(
        rows=manifest["rows_done"],
        rows_total=manifest["rows_total"],
        shards=len(shards),
        dimension=manifest["dimension"],
        dtype=manifest["dtype"],
        bytes=size,
        model=manifest["settings"].get("model", ""),
        counts=total_counts(shards),
        problems=problems,
        remedy=_remedy(folder, manifest, min(broken, default=len(expected))) if problems else None,
    )


def _remedy(folder: Path, manifest: dict[str, Any], first_broken: int) -> str:
    *earlier, _ = manifest["groups"]
    if not (folder / MANIFEST).exists():
        return "encode that part again with --shard and --resume"
    if not earlier:
        return "encode with --resume makes them again"
    if first_broken >= sum(-(-group["rows"] // manifest["shard_rows"]) for group in earlier):
        return "encode the input that was appended last again with --append"
    return "it was made from earlier inputs: encode all with --overwrite"


def _expected_shards(manifest: dict[str, Any]) -> dict[int, tuple[int, int]]:
    """Return first row and number of rows of every shard."""
    expected: dict[int, tuple[int, int]] = {}
    first = 0
    for group in manifest["groups"]:
        for start in range(0, group["rows"], manifest["shard_rows"]):
            count = min(manifest["shard_rows"], group["rows"] - start)
            expected[len(expected)] = first + start, count
        first += group["rows"]
    return expected


def _misfit(folder: Path, shard: Shard, manifest: dict[str, Any], expected: tuple[int, int] | None) -> str | None:
    import pyarrow.parquet as pq

    if expected != (shard.first_row, shard.counts.rows):
        return f"shard {shard.number} says rows {shard.first_row} and {shard.counts.rows}, expected {expected}"
    vectors, rows = shard.names
    shape = np.load(folder / vectors, mmap_mode="r", allow_pickle=False).shape
    if shape != (shard.counts.rows, manifest["dimension"]):
        return f"{vectors} has the shape {list(shape)}"
    count = pq.ParquetFile(folder / rows).metadata.num_rows
    return None if count == shard.counts.rows else f"{rows} has {count} rows"


def require_whole(checked: DatasetCheck, folder: Path) -> None:
    """Raise the problems that were found."""
    if checked.problems:
        more = f" (and {len(checked.problems) - 5} more)" if len(checked.problems) > 5 else ""
        raise SentcliError(f"{folder}: {'; '.join(checked.problems[:5])}{more}; {checked.remedy}")
