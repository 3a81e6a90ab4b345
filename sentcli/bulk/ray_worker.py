"""The actor of `encode --ray`, which keeps an encoder loaded and makes one shard at a time."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from sentcli import cluster
from sentcli.bulk.encode import EncodeSettings, write_blocks
from sentcli.bulk.engines import open_thread
from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.errors import SentcliError
from sentcli.io.dataset import Counts, Shard
from sentcli.io.dataset_writer import ShardPlace, ShardWriter
from sentcli.io.folder import Folder, join_folder
from sentcli.io.writers import OutputPlan
from sentcli.machine import bytes_depend_on, library_version
from sentcli.model.encoding import EncodeStats, LoadedModel, Vectors


@dataclass
class RemoteBackend:
    """A `Backend` that runs its batches in a worker."""

    name: str
    device: str
    precision: str
    dimension: int
    default_batch_tokens: int
    streams: int = 1
    pool: Any = None
    """The `RayWorkers`, of which one that has nothing to do is taken."""

    def run(self, batch: dict[str, npt.NDArray[np.int64]], prompt_length: int) -> Vectors:
        """Return ``[B, dim]`` for a padded batch."""
        return cluster.require_ray().get(self.pool.any_idle().run.remote(batch, prompt_length))


class RemoteEncoder(SentenceEncoder):
    """An encoder whose weights are in the workers; this process has its description and its tokenizer."""

    def __init__(self, loaded: LoadedModel, fingerprint: str) -> None:
        super().__init__(loaded)
        self._fingerprint = fingerprint

    def fingerprint(self) -> str:
        """Return the fingerprint that the workers have computed from their files."""
        return self._fingerprint


@dataclass(frozen=True)
class WorkerFacts:
    """What a worker has loaded, and where."""

    node: str
    loaded: LoadedModel
    fingerprint: str
    described: dict[str, Any]
    """The choices that change vectors, which are the same in all workers."""
    bytes_depend_on: dict[str, Any]
    """Versions and hardware, which may change the last bits of vectors."""

    def difference(self, first: WorkerFacts) -> str | None:
        """Return how this worker differs from the first one so that they must not work together, or None."""
        if self.fingerprint != first.fingerprint:
            return "another model (weights, tokenizer or modules)"
        for key, value in first.described.items():
            if self.described[key] != value:
                return f"{key} {self.described[key]!r}, not {value!r}"
        return None


class ShardWorker:
    """The actor: an encoder, and what it does with the rows of a shard."""

    def __init__(self, name: str, load: dict[str, Any], threads: int) -> None:
        """Prepare, without loading the model.

        Args:
            name: the name that the user gave for the model.
            load: the arguments of `SentenceEncoder.load`.
            threads: the number of threads that compute.
        """
        os.environ["OMP_NUM_THREADS"] = str(threads)
        self.name, self.load = name, load
        self.encoder: SentenceEncoder | None = None
        self.folders: dict[str, Folder] = {}
        """The directories of the shards by name."""
        self.done, self.lock = EncodeStats(), Lock()

    def describe(self) -> WorkerFacts:
        """Load the model, and return what it is."""
        encoder = self.encoder = SentenceEncoder.load(**self.load)
        backend = encoder.backend
        remote = RemoteBackend(
            backend.name, backend.device, backend.precision, backend.dimension, backend.default_batch_tokens
        )
        return WorkerFacts(
            node=socket.gethostname(),
            loaded=LoadedModel(self.name, encoder.spec, encoder.tokenizer, remote),
            fingerprint=encoder.fingerprint(),
            described={
                **encoder.describe(),
                "device": backend.device.partition(":")[0],
                "dimension": backend.dimension,
                "batch_tokens": backend.default_batch_tokens,
            },
            bytes_depend_on={**bytes_depend_on(backend.device), "onnxruntime": library_version("onnxruntime")},
        )

    def run(self, batch: dict[str, npt.NDArray[np.int64]], prompt_length: int) -> Vectors:
        """Run one padded batch."""
        assert self.encoder is not None
        return self.encoder.backend.run(batch, prompt_length)

    def progress(self) -> EncodeStats:
        """Return what has been encoded of the current shard."""
        return self.done

    def make(
        self, folder: str, place: ShardPlace, plan: OutputPlan, settings: EncodeSettings, rows: list[Any]
    ) -> tuple[Shard, Counts, EncodeStats]:
        """Make one shard.

        Args:
            folder: the `Folder.full_name` of its directory.
            place: where it stands in it.
            plan: the output for its rows.
            settings: how they are encoded.
            rows: references to the blocks of the shard.

        Raises:
            InputError: for a row that cannot be encoded, or if this node does not see the directory.
        """
        try:
            ray = cluster.require_ray()
            if folder not in self.folders:
                try:
                    self.folders[folder] = join_folder(folder, settings.part.manifest)
                except SentcliError as error:
                    error.args = (f"node {socket.gethostname()}: {error}",)
                    raise
            output = self.folders[folder]
            assert self.encoder is not None
            self.done = EncodeStats()
            reader = (ray.get(reference) for reference in rows)
            with (
                ShardWriter(output, place, plan) as writer,
                open_thread(self.encoder.encode_distinct, settings.encoding, self._advance) as engine,
            ):
                counts = write_blocks(reader, engine, writer, str(output.path), settings, self._advance)
                if not writer.full:
                    raise SentcliError(f"the input has changed while it was read: {plan.rows} rows, then {counts.rows}")
                return writer.publish(), counts, self.done
        except OSError as error:
            raise SentcliError(f"node {socket.gethostname()}: {error}") from error

    def _advance(self, added: EncodeStats) -> None:
        with self.lock:  # the engine has a thread of its own
            self.done = EncodeStats(self.done.texts + added.texts, tokens=self.done.tokens + added.tokens)
