"""Directories of shards: ``vectors-00000.npy``, ``rows-00000.parquet``, ... and ``manifest.json``.

The bytes of a shard depend only on its own rows and the settings. So shards can be made in any order and by any number
of machines, each with a manifest of its part, ``manifest-00001-of-00004.json``, and a damaged shard can be made again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le
from pydantic import Field

from sentcli.errors import DataError, InputError
from sentcli.io.atomic import refuse_link
from sentcli.io.blocks import MANIFEST, Count, Counts, ShardShare
from sentcli.io.column_types import name_of
from sentcli.io.digests import damage
from sentcli.io.forms import read_json_form
from sentcli.io.places import Place

MOST_SHARDS = 1_000_000
CANARIES = "canaries"
"""The setting that does not decide the vectors but shows them; it differs in the last bits from machine to machine."""
CUT = "cut"
"""How a file of an `InputGroup` was cut into passages, where earlier versions cut it otherwise."""
PART = re.compile(r"manifest-(\d{5,})-of-(\d{5,})\.json")
SHARD_FILE = re.compile(r"(?:vectors-(\d{5,})\.npy|rows-(\d{5,})\.parquet)")
PARTIAL = re.compile(r"\.(.+)\.\d+\.partial")
MANIFEST_LOCK = re.compile(r"\.manifest.*\.lock")


@dataclass(frozen=True)
class Shard:
    """A finished pair of files, as the manifest lists it."""

    number: Count
    vectors: Annotated[str, Field(pattern=r"^vectors-\d{5,}\.npy$")]
    """The name of the file of vectors."""
    rows: Annotated[str, Field(pattern=r"^rows-\d{5,}\.parquet$")]
    """The name of the file of rows."""
    first_row: Count
    count: Count
    """The number of rows; the counts that follow are those of `Counts`."""
    empty: Count
    duplicates: Count
    truncated: Count
    tokens_lost: Count
    tokens: Count
    sha256: dict[str, str]
    """The SHA-256 of both files, by name."""

    def __post_init__(self) -> None:
        """Refuse a shard without the checksums of its files."""
        if not set(self.files) <= self.sha256.keys():
            raise ValueError(f"sha256 lacks {self.vectors} or {self.rows}")

    @property
    def files(self) -> tuple[str, str]:
        """The names of both files: vectors and rows."""
        return self.vectors, self.rows

    @property
    def counts(self) -> Counts:
        """The number of rows, and the counts over them."""
        return Counts(self.count, self.empty, self.duplicates, self.truncated, self.tokens_lost, self.tokens)

    def damage(self, folder: Path) -> str | None:
        """Return what is wrong with the files, or None if they are whole."""
        for name in self.files:
            problem = damage(folder / name, self.sha256.get(name))
            if problem:
                return f"{name} {problem}"
        return None


def shard_names(number: int) -> tuple[str, str]:
    """Return the names of the files of a shard: vectors and rows."""
    return f"vectors-{number:05d}.npy", f"rows-{number:05d}.parquet"


@dataclass(frozen=True)
class InputGroup:
    """Inputs that were encoded together, at first or when they were appended."""

    inputs: list[dict[str, Any]]
    rows: Count
    read: Count
    """The number of rows in the inputs, including rows without text that were left out."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The content of ``manifest.json``."""

    format: Literal[1] = 1
    rows_total: Count = 0
    rows_done: Count = 0
    dimension: Annotated[int, Ge(1), Le(2**24)]
    dtype: Annotated[str, Field(pattern="^(float32|float16|int8|uint8)$")]
    shard_rows: Annotated[int, Field(ge=1)]
    part: ShardShare
    counts: Counts = field(default_factory=Counts)
    shards: list[Shard] = field(default_factory=list)
    """The finished shards, in order."""
    groups: Annotated[list[InputGroup], Field(min_length=1)]
    columns: dict[str, str]
    """The Arrow types of the columns besides id and text."""
    settings: dict[str, Any]
    """Everything that decides the vectors."""

    @property
    def types(self) -> dict[str, str]:
        """The types of the columns besides id and text, by the names of ``--types``."""
        return {name: name_of(kind) for name, kind in self.columns.items()}

    @property
    def inputs(self) -> list[dict[str, Any]]:
        """The facts of all inputs, in order."""
        inputs: list[dict[str, Any]] = []
        for group in self.groups:
            inputs += group.inputs
        return inputs

    @property
    def records(self) -> int:
        """The number of rows, or of documents, that were read of all inputs."""
        return sum(group.read for group in self.groups)

    def with_shards(self, shards: Iterable[Shard]) -> Manifest:
        """Return the manifest with these finished shards and their counts."""
        ordered = sorted(shards, key=lambda shard: shard.number)
        counts = sum((shard.counts for shard in ordered), Counts())
        total = sum(group.rows for group in self.groups)
        return replace(self, shards=ordered, counts=counts, rows_done=counts.rows, rows_total=total)

    def shards_before(self, groups: list[InputGroup]) -> int:
        """Return how many shards these groups of inputs take."""
        return sum(-(-group.rows // self.shard_rows) for group in groups)


def check_rows(path: Path, metadata: Any) -> None:
    """Refuse a file of rows whose ids or texts are missing or no texts.

    Args:
        path: the file, for the message.
        metadata: the metadata of the Parquet file.

    Raises:
        DataError: with the type of the column.
    """
    import pyarrow as pa

    schema = metadata.schema.to_arrow_schema()
    for name in ("id", "text"):
        kind = None
        if schema.names.count(name) == 1:
            kind = schema.field(name).type
        if kind not in (pa.string(), pa.large_string()):
            raise DataError(path, f"its column {name!r} is {kind or 'missing'}, not text; {remedy(path.parent)}")


def remedy(folder: Path) -> str:
    """Return what to do about a damaged shard of a directory."""
    return f"sentcli encode --check {folder} says how it is made again"


def is_manifest(name: str) -> bool:
    """Tell whether a file of a directory is a manifest, be it that of a part."""
    return name == MANIFEST or PART.fullmatch(name) is not None


def holds_manifest(names: Iterable[str]) -> bool:
    """Tell whether a folder with files of these names was written by `encode`, be it finished or not."""
    return any(map(is_manifest, names))


def final_name(name: str) -> str:
    """Return the name that a file gets when it is complete; that of a complete file is the same."""
    partial = PARTIAL.fullmatch(name)
    if partial is None:
        return name
    return partial[1]


def shard_number(name: str) -> int | None:
    """Return the number of the shard that a file is one of the two of; None for other files."""
    match = SHARD_FILE.fullmatch(name)
    if match is None:
        return None
    return int(match[1] or match[2])


def is_own(name: str) -> bool:
    """Tell whether a file of a directory is one of those that `encode` writes: a shard, a manifest or a lock."""
    name = final_name(name)
    return is_manifest(name) or shard_number(name) is not None or MANIFEST_LOCK.fullmatch(name) is not None


def load_manifest(folder: Path | Place, file: str = MANIFEST) -> Manifest:
    """Read one manifest of a directory.

    Raises:
        InputError: if it is missing or damaged.
    """
    place = Place.of(folder)
    name = f"{place}/{file}"
    advice = "encode again with --overwrite"
    missing = f"{place} was not written by 'sentcli encode': it has no {file}"
    if place.path.is_dir():
        refuse_links(place.path)
    manifest = read_json_form(Manifest, place.path / file, missing=missing, remedy=advice, name=name)
    if manifest.shards_before(manifest.groups) > MOST_SHARDS:
        raise InputError(f"{name} is damaged (it claims more than {MOST_SHARDS:,} shards); {advice}")
    return manifest


def refuse_links(folder: Path) -> None:
    """Refuse a folder of shards in which a shard or a manifest is a link."""
    for path in folder.iterdir():
        if is_manifest(path.name) or SHARD_FILE.fullmatch(path.name):
            refuse_link(path)


def read_manifest(folder: Path | Place) -> Manifest:
    """Read the manifest of a directory that `encode` wrote, or join the manifests of the parts of several machines.

    Raises:
        InputError: if a manifest is missing or damaged, or the parts belong to different datasets.
    """
    place = Place.of(folder)
    names = sorted(path.name for path in place.path.iterdir() if PART.fullmatch(path.name))
    if not names or (place.path / MANIFEST).exists():
        return load_manifest(place)
    parts = [load_manifest(place, name) for name in names]
    count = parts[0].part.of
    for number in range(1, count + 1):
        manifest = ShardShare(number, count).manifest
        if manifest not in names:
            raise InputError(f"{place} lacks part {number} of {count}: there is no {manifest}")
    expected = _common_facts(parts[0])
    shards: list[Shard] = []
    for name, part in zip(names, parts, strict=True):
        for key, value in _common_facts(part).items():
            if value != expected[key]:
                differs = difference(expected[key], value)
                raise InputError(f"{place}: {name} is of another dataset, {key} differ: {differs}")
        shards += part.shards
    return replace(parts[0], part=ShardShare()).with_shards(shards)


def _common_facts(manifest: Manifest) -> dict[str, Any]:
    """Return the facts that all parts of a dataset share."""
    return {
        "part": manifest.part.of,
        "settings": {key: value for key, value in manifest.settings.items() if key != CANARIES},
        "groups": manifest.groups,
        "shard_rows": manifest.shard_rows,
        "columns": manifest.columns,
        "dimension": manifest.dimension,
        "dtype": manifest.dtype,
    }


def difference(old: Any, new: Any) -> str:
    """Describe how two values, or two dicts of settings, differ."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return f"{old!r} there, {new!r} now"
    changed = []
    for key in {**old, **new}:
        if old.get(key) != new.get(key):
            changed.append(f"{key} {old.get(key)!r} there, {new.get(key)!r} now")
    return ", ".join(changed)
