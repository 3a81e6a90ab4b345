"""Writing a directory of shards, so that an interrupted run can be resumed and new rows can be added."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from sentcli.errors import InputError
from sentcli.io.atomic import replacing
from sentcli.io.dataset import (
    PART,
    PARTIAL,
    SHARD_FILE,
    Counts,
    InputGroup,
    Manifest,
    Shard,
    ShardShare,
    difference,
    load_manifest,
    read_manifest,
    shard_names,
)
from sentcli.io.digests import file_digest
from sentcli.io.json_files import write_json
from sentcli.io.readers import Block
from sentcli.io.writers import OutputPlan, ParquetWriter, Vectors, npy_writer


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
        self.folder, self.plan, self.part = folder, plan, part or ShardShare()
        self.damaged: list[str] = []
        """What is wrong with shards that were finished and are not whole any more."""
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
        there = {shard.number - self.first_shard for shard in self.manifest.shards}
        self.mine = self.part.shards(-(-plan.rows // shard_rows))
        self.wanted = [number for number in self.mine if number not in there]
        """Shards that are still to be made, counted from the first one of these inputs."""
        self.expected = sum(map(self._size, self.wanted))
        self.rows_before = sum(map(self._size, self.mine)) - self.expected
        self.stack = ExitStack()
        self.writers: tuple[Any, ...] = ()
        """Of vectors and rows of the shard that is being made."""
        self.counts = Counts()
        folder.mkdir(parents=True, exist_ok=True)

    def _continue(self, inputs: InputGroup, *, append: bool) -> None:
        """Take over what is there, if it was made in the same way."""
        path = self.folder / self.part.manifest
        gathered = append and self.folder.is_dir() and any(PART.fullmatch(each.name) for each in self.folder.iterdir())
        if not path.exists() and not gathered:
            if append:
                raise InputError(f"{self.folder} holds no dataset to append to; leave --append out to start one")
            return
        old = load_manifest(path) if path.exists() else read_manifest(self.folder)
        self._require_same(old, "settings", "shard_rows")
        same = old.groups[-1].inputs == inputs.inputs
        if not same and not append:
            changed = _inputs_difference(old.groups[-1].inputs, inputs.inputs)
            raise InputError(f"{self.folder} cannot be resumed, inputs differ: {changed}; use --overwrite")
        self._require_same(old, "columns")
        if not same and old.rows_done != old.rows_total:
            raise InputError(
                f"{self.folder} is unfinished ({old.rows_done} of {old.rows_total} rows): finish it with the command "
                "that began it and --resume, then append"
            )
        problems = {shard.number: problem for shard in old.shards if (problem := shard.damage(self.folder))}
        last = old.shards_before(old.groups[:-1])
        for number, problem in problems.items():
            if not same or number < last:
                raise InputError(
                    f"{self.folder}: {problem}; it was made from earlier inputs, encode all with --overwrite"
                )
        self.damaged = list(problems.values())
        groups = old.groups if same else [*old.groups, inputs]
        whole = [shard for shard in old.shards if shard.number not in problems]
        self.manifest = replace(self.manifest, groups=groups).with_shards(whole)

    def _require_same(self, old: Manifest, *keys: str) -> None:
        there, now = old.settings, self.plan.settings
        if "model_fingerprint" in now and there.get("model_fingerprint") == now["model_fingerprint"]:
            old = replace(old, settings={**there, "model": now["model"]})  # the same model under another path
        for key in keys:
            before, here = getattr(old, key), getattr(self.manifest, key)
            if before != here:
                raise InputError(
                    f"{self.folder} cannot be resumed, {key} differ: {difference(before, here)}; use --overwrite"
                )

    def _clear(self) -> None:
        """Delete what an interrupted or replaced run of this part has left, and manifests that were joined."""
        mine = {self.first_shard + number for number in self.mine}
        finished = {shard.number for shard in self.manifest.shards}
        whole = self.part.of == 1
        for path in list(self.folder.iterdir()):
            partial = PARTIAL.fullmatch(path.name)
            name = partial[1] if partial else path.name
            shard = SHARD_FILE.fullmatch(name)
            number = int(shard[1] or shard[2]) if shard else None
            ours = number in mine or (whole and number is not None) or name == self.part.manifest
            stale = whole and PART.fullmatch(name) is not None
            if stale or (ours and (partial or (number is not None and number not in finished))):
                path.unlink()

    def write(self, block: Block, vectors: Vectors, counts: Counts) -> None:
        """Append rows to their shard; one that is full is published."""
        if not self.writers:
            self._open(block.shard)
        for writer in self.writers:
            writer.write(block, vectors)
        self.counts += counts
        if self.counts.rows >= self._size(block.shard):
            self._publish(block.shard)

    def _size(self, number: int) -> int:
        return min(self.manifest.shard_rows, self.plan.rows - number * self.manifest.shard_rows)

    def _open(self, number: int) -> None:
        plan = replace(self.plan, rows=self._size(number))
        names = shard_names(self.first_shard + number)
        vectors_path, rows_path = (self.stack.enter_context(replacing(self.folder / name)) for name in names)
        handle = self.stack.enter_context(vectors_path.open("wb"))
        rows_writer = self.stack.enter_context(ParquetWriter(rows_path, plan, vectors=False))
        self.writers = npy_writer(handle, plan), rows_writer

    def _publish(self, number: int) -> None:
        self.stack.close()
        vectors, rows = names = shard_names(self.first_shard + number)
        digests = {name: file_digest(self.folder / name) for name in names}
        first_row = self.first_row + number * self.manifest.shard_rows
        facts = asdict(self.counts)
        count = facts.pop("rows")
        shard = Shard(self.first_shard + number, vectors, rows, first_row, count, **facts, sha256=digests)
        self.manifest = self.manifest.with_shards([*self.manifest.shards, shard])
        self.writers, self.counts = (), Counts()
        self._write_manifest()

    def _write_manifest(self) -> None:
        write_json(self.folder / self.part.manifest, asdict(self.manifest))

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
