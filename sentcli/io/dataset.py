"""Directories of shards: ``vectors-00000.npy``, ``rows-00000.parquet``, ... and ``manifest.json``.

A shard's bytes depend on its own rows and the settings alone. So shards can be made in any order, by any number of
machines (each with a manifest of its part, ``manifest-00001-of-00004.json``), and one that is torn is made again.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sentcli.errors import InputError
from sentcli.io.digests import file_digest

MANIFEST = "manifest.json"
PART = re.compile(r"manifest-(\d{5,})-of-(\d{5,})\.json")
SHARD_FILE = re.compile(r"(?:vectors-(\d{5,})\.npy|rows-(\d{5,})\.parquet)")
PARTIAL = re.compile(r"\.(.+)\.\d+\.partial")
FORMAT = 1


@dataclass(frozen=True)
class ShardShare:
    """Which share of the shards one machine makes: number `number` of `of`, from 1."""

    number: int = 1
    of: int = 1

    @classmethod
    def parse(cls, text: str) -> ShardShare:
        """Read ``I/N``."""
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
class InputGroup:
    """Inputs that were encoded together: the first ones, or some that were appended."""

    inputs: list[dict[str, Any]]
    rows: int
    read: int
    """Rows of the inputs, those that were left out included."""


def total_counts(shards: list[Shard]) -> Counts:
    """Add up the counts of shards."""
    total = Counts()
    for shard in shards:
        total.add(shard.counts)
    return total


def load_manifest(path: Path) -> dict[str, Any]:
    """Read one manifest."""
    try:
        manifest: dict[str, Any] = json.loads(path.read_text("utf-8"))
        if manifest["format"] != FORMAT:
            raise KeyError("format")
        for shard in manifest["shards"]:
            Shard.from_dict(shard)
        for group in manifest["groups"]:
            InputGroup(**group)
    except FileNotFoundError as error:
        raise InputError(f"{path.parent} was not written by 'sentcli encode': it has no {path.name}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is damaged ({error}); encode again with --overwrite") from error
    return manifest


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a directory written by `encode`; those of several machines' parts are joined."""
    if (folder / MANIFEST).exists():
        return load_manifest(folder / MANIFEST)
    found = {name.name: load_manifest(name) for name in sorted(folder.iterdir()) if PART.fullmatch(name.name)}
    if not found:
        return load_manifest(folder / MANIFEST)  # says that there is none
    parts = list(found.values())
    count = parts[0]["part"]["of"]
    missing = [n for n in range(1, count + 1) if ShardShare(n, count).manifest not in found]
    if missing:
        raise InputError(
            f"{folder} lacks part {missing[0]} of {count}: there is no {ShardShare(missing[0], count).manifest}"
        )
    for name, part in found.items():
        for key in ("part", "settings", "groups", "shard_rows", "columns", "dimension", "dtype"):
            here, first = (p["part"]["of"] if key == "part" else p[key] for p in (part, parts[0]))
            if here != first:
                raise InputError(f"{folder}: {name} is of another dataset, {key} differ: {difference(first, here)}")
    shards = sorted((shard for part in parts for shard in part["shards"]), key=lambda shard: int(shard["number"]))
    return {
        **parts[0],
        "part": asdict(ShardShare()),
        "rows_done": sum(part["rows_done"] for part in parts),
        "counts": asdict(total_counts([Shard.from_dict(shard) for shard in shards])),
        "shards": shards,
    }


def difference(old: Any, new: Any) -> str:
    """Say how two values, or two sets of settings, differ."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return f"{old!r} there, {new!r} now"
    changed = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return ", ".join(f"{key} {old.get(key)!r} there, {new.get(key)!r} now" for key in changed)
