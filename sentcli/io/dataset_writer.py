"""Write directories of shards, the files of each shard and then the manifest, and check them."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sentcli import console
from sentcli.errors import DataError, InputError, SentcliError, one_line
from sentcli.io import dataset
from sentcli.io.atomic import replacing
from sentcli.io.blocks import Block
from sentcli.io.dataset import (
    CANARIES,
    MANIFEST,
    SHARD_FILE,
    Counts,
    InputGroup,
    Manifest,
    Shard,
    ShardShare,
    check_rows,
    read_manifest,
)
from sentcli.io.digests import file_digest
from sentcli.io.folder import Folder
from sentcli.io.forms import write_json
from sentcli.io.writers import OutputPlan, Vectors, mapped_array, npy_writer, parquet_writer


@dataclass(frozen=True)
class ShardPlace:
    """Where a shard stands in its dataset: its number, and the number of its first row."""

    number: int
    first_row: int


class ShardWriter:
    """Writes the two files of one shard, which get their names when it is complete."""

    def __init__(self, folder: Folder, place: ShardPlace, plan: OutputPlan) -> None:
        """Open the files.

        Args:
            folder: where the dataset lies.
            place: where the shard stands in it.
            plan: the output for the rows of the shard.
        """
        self.folder, self.place, self.plan, self.counts = folder, place, plan, Counts()
        self.names = dataset.shard_names(place.number)
        with ExitStack() as stack:
            rows_path = stack.enter_context(replacing(folder.path / self.names[1]))
            write_rows = stack.enter_context(parquet_writer(rows_path, plan, with_vectors=False))
            vectors_path = stack.enter_context(replacing(folder.path / self.names[0]))
            write_vectors = stack.enter_context(npy_writer(vectors_path, plan))
            self.open_files = write_vectors, write_rows
            self.stack = stack.pop_all()

    @property
    def full(self) -> bool:
        """Whether all rows of the plan have been written."""
        return self.counts.rows >= self.plan.rows

    def write(self, block: Block, vectors: Vectors, counts: Counts) -> None:
        """Append rows."""
        for write in self.open_files:
            write(block, vectors)
        self.counts += counts

    def publish(self) -> Shard:
        """Put the finished files where the dataset lies, and return the shard as the manifest lists it."""
        self.stack.close()
        vectors, rows = self.names
        digests = {name: file_digest(self.folder.path / name) for name in self.names}
        self.folder.publish(*self.names)
        facts = asdict(self.counts)
        count = facts.pop("rows")
        return Shard(self.place.number, vectors, rows, self.place.first_row, count, **facts, sha256=digests)

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, *error: Any) -> None:
        self.stack.__exit__(*error)


class DatasetWriter:
    """Writes the missing shards of a dataset, or of one machine's share of it.

    The manifest is written anew after each shard, so that a run that is killed at any moment can be resumed.
    """

    def __init__(
        self,
        folder: Folder,
        plan: OutputPlan,
        shard_rows: int,
        inputs: InputGroup,
        *,
        part: ShardShare | None = None,
        resume: bool = False,
        append: bool = False,
    ) -> None:
        """Find out which shards are missing.

        Args:
            folder: where the dataset lies.
            plan: the output for the rows of `inputs`.
            shard_rows: the number of rows in a shard.
            inputs: the inputs of this run.
            part: this machine's share of the shards.
            resume: keep finished shards of the same inputs and settings.
            append: add the inputs after the existing ones, unless they are the last of these already; the parts of
                several machines become one dataset.

        Raises:
            InputError: if the existing dataset was made from other inputs or with other settings.
        """
        self.folder, self.plan, self.part = folder, plan, part or ShardShare()
        self.damaged: list[str] = []
        """What is wrong with each shard that was finished and is damaged now."""
        self.manifest = Manifest(
            dimension=plan.dimension,
            dtype=plan.dtype,
            shard_rows=shard_rows,
            part=self.part,
            groups=[inputs],
            columns={name: str(kind) for name, kind in plan.column_types.items()},
            settings=plan.settings,
        ).with_shards([])
        if resume or append:
            self._continue(inputs, append=append)
        earlier = self.manifest.groups[:-1]
        self.first_row = sum(group.rows for group in earlier)
        self.first_number = sum(group.read for group in earlier)
        self.first_shard = self.manifest.shards_before(earlier)
        finished = {shard.number - self.first_shard for shard in self.manifest.shards}
        self.share = self.part.shards(-(-plan.rows // shard_rows))
        """The numbers of this machine's shards, counted from the first shard of these inputs."""
        self.missing = [number for number in self.share if number not in finished]
        """The numbers of the shards in `share` that are missing."""
        self.expected = sum(map(self._size, self.missing))
        self.rows_before = sum(map(self._size, self.share)) - self.expected
        self.current: ShardWriter | None = None
        """The shard that is being written."""
        self.folder.path.mkdir(parents=True, exist_ok=True)
        dataset.refuse_links(self.folder.path)

    def _continue(self, inputs: InputGroup, *, append: bool) -> None:
        """Take over the finished shards of the existing dataset, if it was made from the same inputs and settings."""
        path = self.folder.path / self.part.manifest
        files = self.folder.path.iterdir() if append and self.folder.path.is_dir() else ()
        if not path.exists() and not any(dataset.PART.fullmatch(file.name) for file in files):
            if append:
                raise InputError(f"{self.folder} holds no dataset to append to; leave --append out to start one")
            return
        old = dataset.load_manifest(self.folder, path.name) if path.exists() else read_manifest(self.folder)
        self._require_same(old, "settings", "shard_rows", "dimension", "dtype", append=append)
        if old.settings.get(CANARIES) is not None:  # those of the first rows stay
            self.manifest = replace(
                self.manifest, settings={**self.manifest.settings, CANARIES: old.settings[CANARIES]}
            )
        same = old.groups[-1].inputs == inputs.inputs
        if not same and not append:
            changed = _inputs_difference(old.groups[-1].inputs, inputs.inputs)
            raise InputError(
                f"{self.folder} cannot be resumed, inputs differ: {changed}; --append adds rows, another -o keeps "
                "both, --overwrite replaces what is there"
            )
        self._require_same(old, "columns", append=append)
        if not same:
            self._refuse_known(old, inputs)
        if not same and old.rows_done != old.rows_total:
            raise InputError(
                f"{self.folder} is unfinished ({old.rows_done} of {old.rows_total} rows): finish it with the command "
                "that began it and --resume, then append"
            )
        problems = {shard.number: problem for shard in old.shards if (problem := self.folder.damage(shard, old))}
        last = old.shards_before(old.groups[:-1])
        for number, problem in problems.items():
            if not same or number < last:
                raise InputError(
                    f"{self.folder}: {problem}; it was made from earlier inputs: encode all inputs into another -o, or "
                    "with --overwrite"
                )
        self.damaged = list(problems.values())
        groups = old.groups if same else [*old.groups, inputs]
        whole = [shard for shard in old.shards if shard.number not in problems]
        self.manifest = replace(self.manifest, groups=groups).with_shards(whole)

    def _refuse_known(self, old: Manifest, inputs: InputGroup) -> None:
        """Refuse to append a file that the dataset was made of, and warn of one with the bytes of such a file."""
        known = [(entry["name"], entry.get("sha256")) for group in old.groups for entry in group.inputs]
        names = {digest: name for name, digest in known if digest is not None}
        again = [entry["name"] for entry in inputs.inputs if (entry["name"], entry.get("sha256")) in known]
        if again:
            others = [entry["name"] for entry in inputs.inputs if entry["name"] not in again]
            advice = f"append {', '.join(others)} alone" if others else "there is nothing to append"
            raise InputError(f"{self.folder} has the rows of {', '.join(again)} already, with the same bytes: {advice}")
        for entry in inputs.inputs:
            if (earlier := names.get(entry.get("sha256"))) is not None:
                console.warn(f"{entry['name']} has the bytes of {earlier}, whose rows {self.folder} has: both are kept")

    def known_ids(self, hashes: npt.NDArray[np.int64]) -> int:
        """Return how many of some ids rows of earlier inputs have, which stand on this machine.

        Args:
            hashes: of the ids, by `hash` of this process ``[n]``.
        """
        import pyarrow.parquet as pq

        earlier = [shard for shard in self.manifest.shards if shard.number < self.first_shard]
        there = np.zeros(len(hashes), bool)
        for shard in earlier if len(hashes) else ():
            column = pq.read_table(self.folder.path / shard.rows, columns=["id"])["id"].to_pylist()
            there |= np.isin(hashes, np.fromiter(map(hash, column), np.int64, len(column)))
        return int(there.sum())

    def _require_same(self, old: Manifest, *keys: str, append: bool) -> None:
        """Refuse to continue a dataset whose manifest has other values of these keys."""
        settings = self.plan.settings
        told_otherwise = {key: settings.get(key) for key in (CANARIES, "revision", "weights")}  # by the fingerprint
        old = replace(old, settings={**old.settings, **told_otherwise})
        if "model_fingerprint" in settings and old.settings.get("model_fingerprint") == settings["model_fingerprint"]:
            old = replace(old, settings={**old.settings, "model": settings["model"]})  # its path may be another one
        for key in keys:
            before, now = getattr(old, key), getattr(self.manifest, key)
            if isinstance(before, dict):  # a setting of another version that was not used
                before, now = ({name: v for name, v in d.items() if v is not None} for d in (before, now))
            if before != now:
                changed = dataset.difference(before, now)
                problem = f"{self.folder} cannot be {'added to' if append else 'resumed'}, {key} differ: {changed}"
                replaces = "" if append else " (--overwrite replaces it)"
                raise InputError(f"{problem}; give what is there, or another -o{replaces}")

    def clear(self) -> None:
        """Delete files that an interrupted or replaced run of this share has left, and manifests that were joined."""
        share = {self.first_shard + number for number in self.share}
        finished = {shard.number for shard in self.manifest.shards}
        whole = self.part.of == 1
        for file in self.folder.names():
            partial = dataset.PARTIAL.fullmatch(file)
            name = partial[1] if partial else file
            shard = SHARD_FILE.fullmatch(name)
            number = int(shard[1] or shard[2]) if shard else None
            own = number in share or (whole and number is not None) or name == self.part.manifest
            stale = whole and dataset.PART.fullmatch(name) is not None
            if stale or (own and (partial or (number is not None and number not in finished))):
                self.folder.remove(file)

    def write(self, block: Block, vectors: Vectors, counts: Counts) -> None:
        """Append rows to their shard, and finish the shard when it is full."""
        if self.current is None:
            self.current = ShardWriter(self.folder, self.shard_place(block.shard), self.shard_plan(block.shard))
        self.current.write(block, vectors, counts)
        if self.current.full:
            shard, self.current = self.current.publish(), None
            self.add(shard)

    def shard_place(self, number: int) -> ShardPlace:
        """Return where one of the shards of these inputs stands in the dataset."""
        return ShardPlace(self.first_shard + number, self.first_row + number * self.manifest.shard_rows)

    def shard_plan(self, number: int) -> OutputPlan:
        """Return the output for the rows of one of the shards of these inputs, whose bytes all machines make alike."""
        settings = {key: value for key, value in self.plan.settings.items() if key != CANARIES}
        return replace(self.plan, rows=self._size(number), settings=settings)

    def add(self, shard: Shard) -> None:
        """Enter a shard into the manifest, after its files were put where the dataset lies."""
        self.manifest = self.manifest.with_shards([*self.manifest.shards, shard])
        self._write_manifest()

    def _size(self, number: int) -> int:
        return min(self.manifest.shard_rows, self.plan.rows - number * self.manifest.shard_rows)

    def _write_manifest(self) -> None:
        write_json(self.folder.path / self.part.manifest, asdict(self.manifest))
        self.folder.publish(self.part.manifest)

    def __enter__(self) -> DatasetWriter:
        if self.missing or not (self.folder.path / self.part.manifest).exists():
            self._write_manifest()
        self.clear()  # only after the new manifest is written: it may delete the only other ones
        return self

    def __exit__(self, *error: Any) -> None:
        if self.current is not None:
            self.current.__exit__(*error)


def _inputs_difference(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> str:
    for before, now in zip(old, new, strict=False):
        if before != now:
            return f"{now.get('name')}: {dataset.difference(before, now)}"
    return f"{', '.join(i['name'] for i in old)} there, {', '.join(i['name'] for i in new)} now"


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
    expected, size = _expected_shards(manifest), 0
    finished = {shard.number for shard in manifest.shards}
    broken = {
        number: f"shard {number} (rows {first} to {first + count - 1}) is not there"
        for number, (first, count) in enumerate(expected)
        if number not in finished
    }
    for shard in manifest.shards:
        rows = expected[shard.number] if shard.number < len(expected) else None
        with place.held(shard) as folder:
            problem = shard.damage(folder) or _misfit(folder, shard, manifest.dimension, rows)
            if problem is not None:
                broken[shard.number] = problem
            else:
                size += sum((folder / name).stat().st_size for name in (shard.vectors, shard.rows))
    listed = {name for shard in manifest.shards for name in (shard.vectors, shard.rows)}
    strays = sorted(name for name in place.names() if SHARD_FILE.fullmatch(name) and name not in listed)
    problems = [*broken.values(), *(f"{name} belongs to no shard of the manifest" for name in strays)]
    return DatasetCheck(
        rows=manifest.rows_done,
        rows_total=manifest.rows_total,
        shards=len(manifest.shards),
        dimension=manifest.dimension,
        dtype=manifest.dtype,
        bytes=size,
        model=manifest.settings.get("model", ""),
        counts=manifest.counts,
        problems=problems,
        remedy=_remedy(place, manifest, min(broken, default=len(expected))) if problems else None,
    )


def require_whole(checked: DatasetCheck, folder: object) -> None:
    """Raise an error with the first problems of a check, if there are any."""
    if checked.problems:
        more = f" (and {len(checked.problems) - 5} more)" if len(checked.problems) > 5 else ""
        raise SentcliError(f"{folder}: {'; '.join(checked.problems[:5])}{more}; {checked.remedy}")


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
    first, size = 0, manifest.shard_rows
    for group in manifest.groups:
        expected += [(first + start, min(size, group.rows - start)) for start in range(0, group.rows, size)]
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
    count = metadata.num_rows
    return None if count == shard.count else f"{shard.rows} has {count} rows"
