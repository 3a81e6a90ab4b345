"""Write directories of shards, the files of each shard and then the manifest."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from sentcli import console
from sentcli.arrays import AnyArray, Int64Array
from sentcli.errors import InputError
from sentcli.io import dataset
from sentcli.io.atomic import replacing
from sentcli.io.blocks import Block, Counts, ShardShare
from sentcli.io.dataset import CANARIES, CUT, InputGroup, Manifest, Shard, read_manifest
from sentcli.io.digests import file_digest
from sentcli.io.folder import Folder
from sentcli.io.forms import write_json
from sentcli.io.writers import OutputPlan, npy_writer, parquet_writer


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
        self.folder = folder
        self.place = place
        self.plan = plan
        self.counts = Counts()
        self.names = dataset.shard_names(place.number)
        vectors, rows = self.names
        with ExitStack() as stack:
            rows_path = stack.enter_context(replacing(folder.path / rows))
            write_rows = stack.enter_context(parquet_writer(rows_path, plan, with_vectors=False))
            vectors_path = stack.enter_context(replacing(folder.path / vectors))
            write_vectors = stack.enter_context(npy_writer(vectors_path, plan))
            self.open_files = write_vectors, write_rows
            self.stack = stack.pop_all()

    @property
    def full(self) -> bool:
        """Whether all rows of the plan have been written."""
        return self.counts.rows >= self.plan.rows

    def write(self, block: Block, vectors: AnyArray, counts: Counts) -> None:
        """Append rows."""
        for write in self.open_files:
            write(block, vectors)
        self.counts += counts

    def publish(self) -> Shard:
        """Put the finished files where the dataset lies, and return the shard as the manifest lists it."""
        self.stack.close()
        vectors, rows = self.names
        digests = {}
        for name in self.names:
            digests[name] = file_digest(self.folder.path / name)
        self.folder.publish(*self.names)
        counts = asdict(self.counts)
        count = counts.pop("rows")
        return Shard(self.place.number, vectors, rows, self.place.first_row, count, **counts, sha256=digests)

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
            InputError: if the existing dataset was made from other inputs or with other settings, or lacks rows of
                pages that an earlier version has cut otherwise.
        """
        self.folder = folder
        self.plan = plan
        self.part = part or ShardShare()
        self.damaged: list[str] = []
        """A sentence for each shard that was finished and is damaged now."""
        self.manifest = Manifest(
            dimension=plan.dimension,
            dtype=plan.dtype,
            shard_rows=shard_rows,
            part=self.part,
            groups=[inputs],
            columns={name: str(kind) for name, kind in plan.column_types.items()},
            settings=plan.settings,
        ).with_shards([])
        self.was_cut_otherwise = False
        """Whether the rows that are there are passages as an earlier version cut the same pages, and stay so."""
        if resume or append:
            self._continue(inputs, append=append)
        earlier = self.manifest.groups[:-1]
        self.first_row = 0
        self.first_number = 0
        for group in earlier:
            self.first_row += group.rows
            self.first_number += group.read
        self.first_shard = self.manifest.shards_before(earlier)
        self.share = self.part.shards(-(-self.plan.rows // shard_rows))
        """The numbers of this machine's shards, counted from the first shard of these inputs."""
        finished = self._finished()
        self.missing = [number for number in self.share if self.first_shard + number not in finished]
        """The numbers of the shards in `share` that are missing."""
        if self.was_cut_otherwise and self.missing:
            raise InputError(
                f"{self.folder} cannot be continued: an earlier version cut these pages otherwise, and some of their "
                "passages are missing; --overwrite encodes all anew"
            )
        self.expected = sum(map(self._size, self.missing))
        self.rows_before = sum(map(self._size, self.share)) - self.expected
        self.current: ShardWriter | None = None
        """The shard that is being written."""
        self.folder.path.mkdir(parents=True, exist_ok=True)
        dataset.refuse_links(self.folder.path)

    def _finished(self) -> set[int]:
        """Return the numbers of the finished shards in the dataset."""
        return {shard.number for shard in self.manifest.shards}

    def _continue(self, inputs: InputGroup, *, append: bool) -> None:
        """Take over the finished shards of the existing dataset, if it was made from the same inputs and settings."""
        old = self._old_manifest(append=append)
        if old is None:
            return
        self._require_same(old, "settings", "shard_rows", "dimension", "dtype", append=append)
        canaries = old.settings.get(CANARIES)
        if canaries is not None:  # those of the first rows stay
            self.manifest = replace(self.manifest, settings={**self.manifest.settings, CANARIES: canaries})
        last = old.groups[-1]
        same_inputs = _without_cut(last.inputs) == _without_cut(inputs.inputs)
        if same_inputs and last.inputs != inputs.inputs:
            self.was_cut_otherwise = True
            self.plan = replace(self.plan, rows=last.rows)
        if not same_inputs and not append:
            changed = _inputs_difference(last.inputs, inputs.inputs)
            raise InputError(
                f"{self.folder} cannot be resumed, inputs differ: {changed}; --update makes of it what these inputs "
                "are, --append adds rows, another -o keeps both, --overwrite replaces what is there"
            )
        self._require_same(old, "columns", append=append)
        if not same_inputs:
            self._check_appended(old, inputs)
        groups = old.groups if same_inputs else [*old.groups, inputs]
        whole = self._whole_shards(old, groups[:-1])
        self.manifest = replace(self.manifest, groups=groups).with_shards(whole)

    def _old_manifest(self, *, append: bool) -> Manifest | None:
        """Return the manifest of the existing dataset, or None if there is none and nothing has to be."""
        path = self.folder.path / self.part.manifest
        if path.exists():
            return dataset.load_manifest(self.folder, path.name)
        if not append:
            return None
        if self.folder.path.is_dir():
            for file in self.folder.path.iterdir():
                if dataset.PART.fullmatch(file.name):
                    return read_manifest(self.folder)
        raise InputError(f"{self.folder} holds no dataset to append to; leave --append out to start one")

    def _check_appended(self, old: Manifest, inputs: InputGroup) -> None:
        """Refuse to append to an unfinished dataset, or a file that it was made of; warn of one with the same bytes."""
        encoded: dict[tuple[str, str | None], None] = {}  # names and digests
        names: dict[str | None, str] = {}  # by digest
        for entry in old.inputs:
            encoded[entry["name"], entry.get("sha256")] = None
            names[entry.get("sha256")] = entry["name"]
        again = []
        others = []
        for entry in inputs.inputs:
            if (entry["name"], entry.get("sha256")) in encoded:
                again.append(entry["name"])
            else:
                others.append(entry["name"])
        if again:
            advice = "there is nothing to append"
            if others:
                advice = f"append {', '.join(others)} alone"
            raise InputError(f"{self.folder} has the rows of {', '.join(again)} already, with the same bytes: {advice}")
        for entry in inputs.inputs:
            digest = entry.get("sha256")
            if digest is not None and digest in names:
                same = names[digest]
                console.warn(f"{entry['name']} has the bytes of {same}, whose rows {self.folder} has: both are kept")
        if old.rows_done != old.rows_total:
            raise InputError(
                f"{self.folder} is unfinished ({old.rows_done} of {old.rows_total} rows): finish it with the command "
                "that began it and --resume, then append"
            )

    def _whole_shards(self, old: Manifest, earlier: list[InputGroup]) -> list[Shard]:
        """Return the finished shards that are whole, and note what is wrong with the others.

        Raises:
            InputError: for a damaged shard of earlier inputs, which cannot be made again from those of this run.
        """
        whole: list[Shard] = []
        first_own = old.shards_before(earlier)
        for shard in old.shards:
            problem = self.folder.damage(shard, old)
            if not problem:
                whole.append(shard)
                continue
            self.damaged.append(problem)
            if shard.number < first_own:
                raise InputError(
                    f"{self.folder}: {problem}; it was made from earlier inputs: encode all inputs into another -o, or "
                    "with --overwrite"
                )
        return whole

    def known_ids(self, hashes: Int64Array) -> int:
        """Return how many of some ids rows of earlier inputs have, which stand on this machine.

        Args:
            hashes: of the ids, by `hash` of this process ``[n]``.
        """
        import pyarrow.parquet as pq

        if not len(hashes):
            return 0
        is_known = np.zeros(len(hashes), bool)
        for shard in self.manifest.shards:
            if shard.number < self.first_shard:
                ids = pq.read_table(self.folder.path / shard.rows, columns=["id"])["id"].to_pylist()
                is_known |= np.isin(hashes, np.fromiter(map(hash, ids), np.int64, len(ids)))
        return int(is_known.sum())

    def _require_same(self, old: Manifest, *keys: str, append: bool) -> None:
        """Refuse to continue a dataset whose manifest has other values of these keys."""
        before = self._comparable(old)
        for key in keys:
            old_value = getattr(before, key)
            new_value = getattr(self.manifest, key)
            if isinstance(old_value, dict):  # a setting that is null is one of another version that was not used
                old_value = _without_nulls(old_value)
                new_value = _without_nulls(new_value)
            if old_value != new_value:
                differ = f"{key} differ: {dataset.difference(old_value, new_value)}"
                remedy = "give what is there, or another -o"
                if append:
                    raise InputError(f"{self.folder} cannot be added to, {differ}; {remedy}")
                raise InputError(f"{self.folder} cannot be resumed, {differ}; {remedy} (--overwrite replaces it)")

    def _comparable(self, old: Manifest) -> Manifest:
        """Return an old manifest with the settings of this run where a difference does not mean other vectors."""
        new = self.plan.settings
        settings = {**old.settings}
        for key in (CANARIES, "revision", "weights"):  # the fingerprint of the model says it
            settings[key] = new.get(key)
        if "model_fingerprint" in new and old.settings.get("model_fingerprint") == new["model_fingerprint"]:
            settings["model"] = new["model"]  # its path may be another one
        return replace(old, settings=settings)

    def clear(self) -> None:
        """Delete files that an interrupted or replaced run of this share has left, and manifests that were joined."""
        finished = self._finished()
        for file in self.folder.names():
            if self._is_left_over(file, finished):
                self.folder.remove(file)

    def _is_left_over(self, file: str, finished: set[int]) -> bool:
        """Tell whether a file belongs to no shard of those that are finished, and to no other machine."""
        name = dataset.final_name(file)
        is_partial = name != file
        makes_all = self.part.of == 1
        if makes_all and dataset.PART.fullmatch(name):
            return True
        number = dataset.shard_number(name)
        if number is None:
            return is_partial and name == self.part.manifest
        is_own = makes_all or number - self.first_shard in self.share
        return is_own and (is_partial or number not in finished)

    def write(self, block: Block, vectors: AnyArray, counts: Counts) -> None:
        """Append rows to their shard, and finish the shard when it is full."""
        if self.current is None:
            self.current = ShardWriter(self.folder, self.shard_place(block.shard), self.shard_plan(block.shard))
        self.current.write(block, vectors, counts)
        if self.current.full:
            shard = self.current.publish()
            self.current = None
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


def _without_nulls(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _without_cut(inputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what identifies inputs besides how they are cut."""
    files = []
    for facts in inputs:
        files.append({name: value for name, value in facts.items() if name != CUT})
    return files


def _inputs_difference(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> str:
    """Describe how two lists of inputs differ: by the facts of the first other one, or by their names."""
    for before, now in zip(old, new, strict=False):
        if before != now:
            return f"{now.get('name')}: {dataset.difference(before, now)}"
    return f"{_names(old)} there, {_names(new)} now"


def _names(inputs: list[dict[str, Any]]) -> str:
    return ", ".join(entry["name"] for entry in inputs)
