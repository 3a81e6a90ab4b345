"""Writing a directory of shards, so that an interrupted run can be resumed and new rows can be added."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sentcli.errors import InputError
from sentcli.io.atomic import replacing
from sentcli.io.dataset import (
    FORMAT,
    PART,
    PARTIAL,
    SHARD_FILE,
    Counts,
    InputGroup,
    Shard,
    ShardShare,
    difference,
    load_manifest,
    read_manifest,
    shard_names,
    total_counts,
)
from sentcli.io.digests import file_digest
from sentcli.io.json_files import write_json
from sentcli.io.readers import Block
from sentcli.io.writers import NpyWriter, OutputPlan, ParquetWriter, Vectors


@dataclass
class Resumed:
    """What a directory holds already."""

    groups: list[InputGroup] = field(default_factory=list)
    shards: dict[int, Shard] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)
    """Shards that were finished and are not whole any more."""


class DatasetWriter:
    """Writes the shards of one part that are not there yet.

    The manifest is renewed after each shard, so that a run that is killed at any moment resumes there.
    """

    def __init__(
        self,
        folder: Path,
        plan: OutputPlan,
        shard_rows: int,
        inputs: InputGroup,
        *,
        part: ShardShare | None = None,
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
            append: add the inputs after those that are there, unless they are there already; parts that several
                machines made become one.
        """
        self.folder, self.plan, self.shard_rows, self.part = folder, plan, shard_rows, part or ShardShare()
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
        self._mine = [self.first_shard + n for n in mine]
        folder.mkdir(parents=True, exist_ok=True)

    def _clear(self) -> None:
        """Delete what an interrupted or replaced run of this part has left, and manifests that were joined."""
        for path in list(self.folder.iterdir()):
            partial = PARTIAL.fullmatch(path.name)
            name = partial.group(1) if partial else path.name
            found = SHARD_FILE.fullmatch(name)
            number = int(found.group(1) or found.group(2)) if found else None
            whole = self.part.of == 1
            ours = number in self._mine or (whole and number is not None) or name == self.part.manifest
            stale = whole and PART.fullmatch(name) is not None
            if stale or (ours and (partial or (number is not None and number not in self.shards))):
                path.unlink()

    def _read(self, inputs: InputGroup, *, append: bool) -> Resumed:
        path = self.folder / self.part.manifest
        gathered = append and self.folder.is_dir() and any(PART.fullmatch(each.name) for each in self.folder.iterdir())
        if not path.exists() and not gathered:
            if append:
                raise InputError(f"{self.folder} holds no dataset to append to; leave --append out to start one")
            return Resumed()
        manifest = load_manifest(path) if path.exists() else read_manifest(self.folder)
        self._compare(manifest, "settings", "shard_rows")
        groups = [InputGroup(**group) for group in manifest["groups"]]
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
        last = sum(-(-group.rows // self.shard_rows) for group in groups[:-1])
        for shard in map(Shard.from_dict, manifest["shards"]):
            problem = shard.damage(self.folder)
            if problem is None:
                found.shards[shard.number] = shard
            elif same and shard.number >= last:
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
                    f"{self.folder} cannot be resumed, {key} differ: {difference(found, wanted[key])}; use --overwrite"
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
        size = OutputPlan(self._size(number), plan.dimension, plan.column_types, plan.settings, plan.dtype)
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
        self._clear()  # only now: the manifest of what it deletes may have been the only one
        return self

    def __exit__(self, *error: Any) -> None:
        self.stack.__exit__(*error)


def _inputs_difference(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> str:
    for before, now in zip(old, new, strict=False):
        if before != now:
            return f"{now.get('name')}: {difference(before, now)}"
    return f"{', '.join(i['name'] for i in old)} there, {', '.join(i['name'] for i in new)} now"
