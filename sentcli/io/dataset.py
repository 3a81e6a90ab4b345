"""Directories of shards: ``vectors-00000.npy``, ``rows-00000.parquet``, ... and ``manifest.json``.

A shard's bytes depend on its own rows and the settings alone. So shards can be made in any order, by any number of
machines (each with a manifest of its part, ``manifest-00001-of-00004.json``), and one that is torn is made again.
"""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sentcli.encoder.checkpoint import file_digest
from sentcli.errors import InputError, SentcliError
from sentcli.io.atomic import replacing, write_json
from sentcli.io.readers import Block
from sentcli.io.writers import NpyWriter, ParquetWriter, Plan, Vectors

MANIFEST = "manifest.json"
PART = re.compile(r"manifest-(\d{5,})-of-(\d{5,})\.json")
SHARD_FILE = re.compile(r"(?:vectors-(\d{5,})\.npy|rows-(\d{5,})\.parquet)")
PARTIAL = re.compile(r"\.(.+)\.\d+\.partial")
FORMAT = 1


@dataclass(frozen=True)
class Part:
    """Which share of the shards one machine makes: number `number` of `of`, from 1."""

    number: int = 1
    of: int = 1

    @classmethod
    def parse(cls, text: str) -> Part:
        """Read ``I/N``.

        Raises:
            InputError: if it is something else, or I is not from 1 to N.
        """
        found = re.fullmatch(r"(\d+)/(\d+)", text.strip())
        part = cls(*map(int, found.groups())) if found else cls(0, 0)
        if not 1 <= part.number <= part.of:
            raise InputError(f"--shard {text}: give I/N with I from 1 to N, for example 1/4")
        return part

    def shards(self, total: int) -> range:
        """Return the numbers of its shards among `total`."""
        return range(total * (self.number - 1) // self.of, total * self.number // self.of)

    @property
    def manifest(self) -> str:
        """The name of its manifest."""
        return MANIFEST if self.of == 1 else f"manifest-{self.number:05d}-of-{self.of:05d}.json"


@dataclass
class Counts:
    """Rows of a shard, and what was found about them."""

    rows: int = 0
    empty: int = 0
    """Rows whose text is the empty string or white space."""
    duplicates: int = 0
    """Rows whose text stands in an earlier row of the shard."""
    truncated: int = 0
    """Rows longer than the model reads."""
    tokens_lost: int = 0
    """Tokens of them that no vector has seen."""
    tokens: int = 0
    """That the model saw, of each distinct text once."""

    def add(self, other: Counts) -> None:
        """Add the counts of further rows."""
        for name in asdict(self):
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass
class Shard:
    """One finished pair of files."""

    number: int
    first_row: int
    counts: Counts
    sha256: dict[str, str]

    @property
    def names(self) -> tuple[str, str]:
        """The files of vectors and of rows."""
        return shard_names(self.number)

    def to_dict(self) -> dict[str, Any]:
        """Return the form in the manifest."""
        vectors, rows = self.names
        counts = asdict(self.counts)
        return {
            "number": self.number,
            "vectors": vectors,
            "rows": rows,
            "first_row": self.first_row,
            "count": counts.pop("rows"),
            **counts,
            "sha256": self.sha256,
        }

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Shard:
        """Read the form in the manifest."""
        counts = Counts(rows=found["count"], **{n: found[n] for n in asdict(Counts()) if n != "rows"})
        return cls(found["number"], found["first_row"], counts, found["sha256"])

    def damage(self, folder: Path) -> str | None:
        """Say what is wrong with the files, or return None."""
        for name in self.names:
            if not (folder / name).exists():
                return f"{name} is missing"
            if file_digest(folder / name) != self.sha256.get(name):
                return f"{name} is damaged (its SHA-256 differs)"
        return None


def shard_names(number: int) -> tuple[str, str]:
    """Return the names of a shard's files, of vectors and of rows."""
    return f"vectors-{number:05d}.npy", f"rows-{number:05d}.parquet"


@dataclass
class Group:
    """Inputs that were encoded together: the first ones, or some that were appended."""

    inputs: list[dict[str, Any]]
    rows: int
    read: int
    """Rows of the inputs, those that were left out included."""


@dataclass
class Resumed:
    """What a directory holds already."""

    groups: list[Group] = field(default_factory=list)
    shards: dict[int, Shard] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)
    """Shards that were finished and are not whole any more."""


class DatasetWriter:
    """Writes the shards of one part that are not there yet.

    The manifest is renewed after each shard, so that a run that is killed at any moment goes on there.
    """

    def __init__(
        self,
        folder: Path,
        plan: Plan,
        shard_rows: int,
        inputs: Group,
        *,
        part: Part | None = None,
        resume: bool = False,
        append: bool = False,
    ) -> None:
        """Look at what is there.

        Args:
            folder: of the dataset.
            plan: of the rows that `inputs` hold.
            shard_rows: rows in a shard.
            inputs: what is encoded now.
            part: this machine's share.
            resume: keep finished shards of the same inputs and settings.
            append: add the inputs after those that are there, unless they are there already.

        Raises:
            InputError: if what is there was made from other inputs, or with another model or setting.
        """
        self.folder, self.plan, self.shard_rows, self.part = folder, plan, shard_rows, part or Part()
        there = self._read(inputs, append=append) if resume or append else Resumed()
        self.groups, self.shards, self.damaged = there.groups, there.shards, there.damaged
        if not self.groups or (append and self.groups[-1].inputs != inputs.inputs):
            self.groups.append(inputs)
        earlier = self.groups[:-1]
        self.first_row = sum(group.rows for group in earlier)
        self.first_number = sum(group.read for group in earlier)
        self.first_shard = sum(-(-group.rows // shard_rows) for group in earlier)
        total = -(-plan.rows // shard_rows)
        mine = self.part.shards(total)
        self.wanted = [n for n in mine if n + self.first_shard not in self.shards]
        """Shards that are still to be made, counted from the first one of these inputs."""
        self.rows_before = sum(self.shards[n + self.first_shard].counts.rows for n in mine if n not in set(self.wanted))
        self.stack = ExitStack()
        self.current: tuple[int, NpyWriter, ParquetWriter] | None = None
        self.counts = Counts()
        folder.mkdir(parents=True, exist_ok=True)
        self._clear([self.first_shard + n for n in mine])

    def _clear(self, mine: list[int]) -> None:
        """Delete what an interrupted or replaced run of this part has left."""
        for path in list(self.folder.iterdir()):
            partial = PARTIAL.fullmatch(path.name)
            name = partial.group(1) if partial else path.name
            found = SHARD_FILE.fullmatch(name)
            number = int(found.group(1) or found.group(2)) if found else None
            whole = self.part.of == 1
            ours = number in mine or (whole and number is not None) or name == self.part.manifest
            stale = whole and PART.fullmatch(name) is not None
            if stale or (ours and (partial or (number is not None and number not in self.shards))):
                path.unlink()

    def _read(self, inputs: Group, *, append: bool) -> Resumed:
        path = self.folder / self.part.manifest
        if not path.exists():
            if append:
                raise InputError(f"{self.folder} holds no dataset to append to; leave --append out to start one")
            return Resumed()
        manifest = load_manifest(path)
        self._compare(manifest, "settings", "shard_rows")
        groups = [Group(**group) for group in manifest["groups"]]
        same = groups[-1].inputs == inputs.inputs
        if not same and not append:
            difference = _inputs_difference(groups[-1].inputs, inputs.inputs)
            raise InputError(f"{self.folder} cannot be resumed, inputs differ: {difference}; use --overwrite")
        self._compare(manifest, "columns")
        done = sum(shard["count"] for shard in manifest["shards"])
        if not same and done != manifest["rows_total"]:
            raise InputError(
                f"{self.folder} is unfinished ({done} of {manifest['rows_total']} rows): finish it with the command "
                "that began it and --resume, then append"
            )
        found = Resumed(groups)
        for shard in map(Shard.from_dict, manifest["shards"]):
            problem = shard.damage(self.folder)
            if problem is None:
                found.shards[shard.number] = shard
            elif same and len(groups) == 1:
                found.damaged.append(problem)
            else:
                raise InputError(
                    f"{self.folder}: {problem}; it was made from earlier inputs, encode all with --overwrite"
                )
        return found

    def _compare(self, manifest: dict[str, Any], *keys: str) -> None:
        there, now = dict(manifest["settings"]), self.plan.settings
        if "model_fingerprint" in now and there.get("model_fingerprint") == now["model_fingerprint"]:
            there["model"] = now["model"]  # the same model under another path
        wanted = {"settings": now, "shard_rows": self.shard_rows, "columns": self._columns()}
        for key in keys:
            found = there if key == "settings" else manifest.get(key)
            if found != wanted[key]:
                raise InputError(
                    f"{self.folder} cannot be resumed, {key} differ: {_difference(found, wanted[key])}; use --overwrite"
                )

    def _columns(self) -> dict[str, str]:
        return {name: str(kind) for name, kind in self.plan.column_types.items()}

    def write(self, block: Block, vectors: Vectors, counts: Counts) -> None:
        """Append rows to their shard; one that is full is published."""
        if self.current is None:
            self._open(block.shard)
        assert self.current is not None and self.current[0] == block.shard
        for writer in self.current[1:]:
            writer.write(block, vectors)
        self.counts.add(counts)
        if self.counts.rows >= self._size(block.shard):
            self._publish()

    def _size(self, number: int) -> int:
        return min(self.shard_rows, self.plan.rows - number * self.shard_rows)

    def _open(self, number: int) -> None:
        plan = self.plan
        size = Plan(self._size(number), plan.dimension, plan.column_types, plan.settings, plan.dtype)
        names = shard_names(self.first_shard + number)
        vectors_path, rows_path = (self.stack.enter_context(replacing(self.folder / name)) for name in names)
        handle = self.stack.enter_context(vectors_path.open("wb"))
        rows_writer = self.stack.enter_context(ParquetWriter(rows_path, size, vectors=False))
        self.current = number, NpyWriter(handle, size), rows_writer

    def _publish(self) -> None:
        assert self.current is not None
        number = self.current[0]
        self.stack.close()
        names = shard_names(self.first_shard + number)
        digests = {name: file_digest(self.folder / name) for name in names}
        first_row = self.first_row + number * self.shard_rows
        shard = Shard(self.first_shard + number, first_row, self.counts, digests)
        self.shards[shard.number] = shard
        self.current, self.counts = None, Counts()
        self._write_manifest()

    def _write_manifest(self) -> None:
        shards = [self.shards[number] for number in sorted(self.shards)]
        manifest = {
            "format": FORMAT,
            "rows_total": sum(group.rows for group in self.groups),
            "rows_done": sum(shard.counts.rows for shard in shards),
            "dimension": self.plan.dimension,
            "dtype": self.plan.dtype,
            "shard_rows": self.shard_rows,
            "part": asdict(self.part),
            "counts": asdict(total_counts(shards)),
            "shards": [shard.to_dict() for shard in shards],
            "groups": [asdict(group) for group in self.groups],
            "columns": self._columns(),
            "settings": self.plan.settings,
        }
        write_json(self.folder / self.part.manifest, manifest)

    def __enter__(self) -> DatasetWriter:
        if self.wanted or not (self.folder / self.part.manifest).exists():
            self._write_manifest()
        return self

    def __exit__(self, *error: Any) -> None:
        self.stack.__exit__(*error)


def total_counts(shards: list[Shard]) -> Counts:
    """Add up the counts of shards."""
    total = Counts()
    for shard in shards:
        total.add(shard.counts)
    return total


def load_manifest(path: Path) -> dict[str, Any]:
    """Read one manifest.

    Raises:
        InputError: if there is none, or it is damaged.
    """
    try:
        manifest: dict[str, Any] = json.loads(path.read_text("utf-8"))
        if manifest["format"] != FORMAT:
            raise KeyError("format")
        for shard in manifest["shards"]:
            Shard.from_dict(shard)
        for group in manifest["groups"]:
            Group(**group)
    except FileNotFoundError as error:
        raise InputError(f"{path.parent} was not written by 'sentcli encode': it has no {path.name}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is damaged ({error}); encode again with --overwrite") from error
    return manifest


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a directory written by `encode`; those of several machines' parts are joined.

    Raises:
        InputError: if there is none, one is damaged, parts are missing or do not belong together.
    """
    if (folder / MANIFEST).exists():
        return load_manifest(folder / MANIFEST)
    found = {name.name: load_manifest(name) for name in sorted(folder.iterdir()) if PART.fullmatch(name.name)}
    if not found:
        return load_manifest(folder / MANIFEST)  # says that there is none
    parts = list(found.values())
    count = parts[0]["part"]["of"]
    missing = [n for n in range(1, count + 1) if Part(n, count).manifest not in found]
    if missing:
        raise InputError(f"{folder} lacks part {missing[0]} of {count}: there is no {Part(missing[0], count).manifest}")
    for name, part in found.items():
        for key in ("part", "settings", "groups", "shard_rows", "columns", "dimension", "dtype"):
            here, first = (p["part"]["of"] if key == "part" else p[key] for p in (part, parts[0]))
            if here != first:
                raise InputError(f"{folder}: {name} is of another dataset, {key} differ: {_difference(first, here)}")
    shards = sorted((shard for part in parts for shard in part["shards"]), key=lambda shard: int(shard["number"]))
    return {
        **parts[0],
        "part": asdict(Part()),
        "rows_done": sum(part["rows_done"] for part in parts),
        "counts": asdict(total_counts([Shard.from_dict(shard) for shard in shards])),
        "shards": shards,
    }


@dataclass(frozen=True)
class Checked:
    """What `check_dataset` found."""

    rows: int
    rows_total: int
    shards: int
    dimension: int
    dtype: str
    bytes: int
    counts: Counts
    problems: list[str]


def check_dataset(folder: Path) -> Checked:
    """Read a whole dataset and compare it with its manifest.

    Raises:
        InputError: if there is no readable manifest.
    """
    if not folder.is_dir():
        raise InputError(f"no such directory: {folder}")
    manifest = read_manifest(folder)
    shards = [Shard.from_dict(shard) for shard in manifest["shards"]]
    problems, size = [], 0
    expected = _expected_shards(manifest)
    for number in [n for n in expected if n not in {shard.number for shard in shards}]:
        problems.append(f"shard {number} (rows {expected[number][0]} to {sum(expected[number]) - 1}) is not there")
    for shard in shards:
        problem = shard.damage(folder) or _misfit(folder, shard, manifest, expected.get(shard.number))
        if problem is not None:
            problems.append(problem)
        else:
            size += sum((folder / name).stat().st_size for name in shard.names)
    known = {name for shard in shards for name in shard.names}
    strays = [p.name for p in folder.iterdir() if SHARD_FILE.fullmatch(p.name) and p.name not in known]
    problems += [f"{name} belongs to no shard of the manifest" for name in sorted(strays)]
    return Checked(
        rows=manifest["rows_done"],
        rows_total=manifest["rows_total"],
        shards=len(shards),
        dimension=manifest["dimension"],
        dtype=manifest["dtype"],
        bytes=size,
        counts=total_counts(shards),
        problems=problems,
    )


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


def require_whole(checked: Checked, folder: Path) -> None:
    """Raise the problems that were found.

    Raises:
        SentcliError: naming them.
    """
    if checked.problems:
        more = f" (and {len(checked.problems) - 5} more)" if len(checked.problems) > 5 else ""
        raise SentcliError(f"{folder}: {'; '.join(checked.problems[:5])}{more}; encode with --resume makes them again")


def _inputs_difference(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> str:
    for before, now in zip(old, new, strict=False):
        if before != now:
            return f"{now.get('name')}: {_difference(before, now)}"
    return f"{', '.join(i['name'] for i in old)} there, {', '.join(i['name'] for i in new)} now"


def _difference(old: Any, new: Any) -> str:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return f"{old!r} there, {new!r} now"
    changed = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return ", ".join(f"{key} {old.get(key)!r} there, {new.get(key)!r} now" for key in changed)
