"""Shards that are made by workers on a Ray cluster, each of which makes one at a time.

A worker reads the rows of its shard itself, from the mark before its first row, and puts the finished shard into the
directory of the output, on a disk that all see or in an object store; the process that began alone writes the manifest.
A worker that dies costs its shard, which another one makes again.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

from sentcli import console
from sentcli.arrays import Vectors
from sentcli.cluster.nodes import Node, Workers
from sentcli.cluster.pool import Event, Pool
from sentcli.encoder.loading import require_same_weights
from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.errors import InputError, SentcliError
from sentcli.io.blocks import Block, Counts, InputPosition, blocks
from sentcli.io.dataset import Shard
from sentcli.io.dataset_writer import DatasetWriter, ShardPlace, ShardWriter
from sentcli.io.folder import Folder, join_folder
from sentcli.io.places import is_remote
from sentcli.io.readers import ReadOptions
from sentcli.io.sources import Source, open_source
from sentcli.io.writers import OutputPlan
from sentcli.machine import bytes_depend_on, library_version
from sentcli.model.encoding import Backend, Batch, Batches, EncodeStats, LoadedModel, Progress
from sentcli.model.identity import EncoderIdentity
from sentcli.model.options import LoadOptions
from sentcli.stores.directory.texts import StoredTexts
from sentcli.stores.inputs import Inputs
from sentcli.stores.row_vectors import EncodedVectors, EncodeSettings, write_blocks


@dataclass(eq=False)
class RemoteBackend(Backend):
    """A `Backend` that runs its batches in a worker."""

    name: str
    device: str
    precision: str
    dimension: int
    default_batch_tokens: int
    batches: Batches
    streams: int = 1
    pool: Pool | None = None

    def run(self, batch: Batch, prompt_length: int) -> Vectors:
        """Return ``[B, dim]`` for a batch of the kind that `batches` names."""
        assert self.pool is not None
        return self.pool.call(_run_batch, batch, prompt_length)


@dataclass(frozen=True)
class WorkerFacts:
    """What a worker has loaded, and where."""

    node: str
    loaded: LoadedModel
    identity: EncoderIdentity
    protocol: dict[str, Any]
    """The choices that change vectors, which are the same in all workers."""
    bytes_depend_on: dict[str, Any]
    """Versions and hardware, which may change the last bits of vectors."""


class ShardWorker:
    """What a worker keeps: the encoder, and how far it is with its shard."""

    def __init__(self, name: str, path: str, options: LoadOptions) -> None:
        encoder = self.encoder = SentenceEncoder.load_with(path, options)
        backend, self.folders = encoder.backend, dict[str, Folder]()
        self.done, self.lock = EncodeStats(), Lock()
        remote = RemoteBackend(
            backend.name,
            backend.device,
            backend.precision,
            backend.dimension,
            backend.default_batch_tokens,
            encoder.local.backend.batches,
        )
        self.facts = WorkerFacts(
            node=socket.gethostname(),
            loaded=LoadedModel(name, encoder.local.spec, encoder.tokenizer, remote),
            identity=encoder.identity,
            protocol={
                **encoder.describe(),
                "device": backend.device.partition(":")[0],
                "dimension": backend.dimension,
                "batch_tokens": backend.default_batch_tokens,
            },
            bytes_depend_on={**bytes_depend_on(backend.device), "onnxruntime": library_version("onnxruntime")},
        )

    def advance(self, added: EncodeStats) -> None:
        """Count what has been encoded of the shard."""
        with self.lock:  # the engine has a thread of its own
            self.done = EncodeStats(self.done.texts + added.texts, tokens=self.done.tokens + added.tokens)


def encoder_pool(nodes: Sequence[Node], workers: Workers, model: str, options: LoadOptions) -> Pool:
    """Return a pool of workers on the connected cluster, each of which loads an encoder.

    Args:
        nodes: of the cluster, whose files of the model are compared first.
        workers: how many, and what each reserves.
        model: the name that the user gave for the model.
        options: how they load it.

    Raises:
        SentcliError: if the nodes differ.
    """
    path = require_same_weights(list(nodes), model)
    return Pool(workers, ShardWorker, (model, path, options), _check_worker)


def encoder_of(pool: Pool) -> SentenceEncoder:
    """Return the encoder that the workers have, for what describes and plans the work; its batches run in a worker."""
    facts: WorkerFacts = pool.first()
    facts.loaded.backend.pool = pool  # type: ignore[attr-defined]
    return SentenceEncoder(facts.loaded, facts.identity)


def _check_worker(facts: WorkerFacts, first: WorkerFacts) -> None:
    """Refuse a worker whose vectors would not be those of the first one, and warn of one whose last bits may differ."""
    different = [f"{key} {facts.protocol[key]!r}, not {value!r}" for key, value in first.protocol.items()
                 if facts.protocol[key] != value]  # fmt: skip
    if facts.identity.fingerprint != first.identity.fingerprint:
        different = ["another model (weights, tokenizer or modules)"]
    if different:
        raise SentcliError(f"node {facts.node} has {different[0]}, unlike {first.node}: its vectors would differ")
    pairs = ((key, facts.bytes_depend_on.get(key), value) for key, value in first.bytes_depend_on.items())
    if mixed := ", ".join(f"{key} {mine!r} and {other!r}" for key, mine, other in pairs if mine != other):
        console.warn(f"nodes {facts.node} and {first.node} differ ({mixed}), and so may the last bits of vectors")


def _run_batch(worker: ShardWorker, batch: Batch, prompt_length: int) -> Vectors:
    return worker.encoder.local.backend.start(batch, prompt_length)()


@dataclass(frozen=True)
class ShardRows:
    """The rows of one shard, as a worker gets them."""

    place: ShardPlace
    """Where the shard stands in its dataset."""
    plan: OutputPlan
    number: int
    """The number of the shard, from the first one of these inputs."""
    start: InputPosition
    """Where reading begins."""


@dataclass(frozen=True)
class ShardJob:
    """What all shards of an output share."""

    folder: str
    """The `Folder.full_name` of the directory."""
    manifest: str
    """The name of the manifest that the process writes which began."""
    sources: list[Source]
    sizes: list[int]
    """The bytes of each source."""
    options: ReadOptions
    reading: dict[str, Any]
    """The other arguments of `blocks`."""
    settings: EncodeSettings
    stored: StoredTexts | None
    """The directory as it is, if it is updated: its texts keep their vectors."""

    @classmethod
    def of(
        cls,
        writer: DatasetWriter,
        inputs: Inputs,
        reading: dict[str, Any],
        settings: EncodeSettings,
        stored: StoredTexts | None,
    ) -> ShardJob:
        """Return the job of an output; see `make_shards`."""
        return cls(
            folder=writer.folder.full_name,
            manifest=writer.part.manifest,
            sources=inputs.sources,
            sizes=[source.path.stat().st_size for source in inputs.sources],
            options=inputs.options,
            reading={**reading, "casts": inputs.survey.casts},
            settings=replace(settings, pool=None, encode=None, devices=()),
            stored=stored,
        )

    def blocks(self, rows: ShardRows, sources: list[Source]) -> Iterable[Block]:
        """Read the rows of a shard."""
        return blocks(sources, self.options, shards=[rows.number], start=rows.start, **self.reading)


def make_shards(
    settings: EncodeSettings,
    inputs: Inputs,
    reading: dict[str, Any],
    writer: DatasetWriter,
    stored: StoredTexts | None,
    progress: Progress,
) -> Counts:
    """Make the missing shards of an output in the workers of a pool, and enter them into the manifest.

    Args:
        settings: how rows are encoded, with the pool of `encoder_pool`.
        inputs: the inputs.
        reading: the arguments of `blocks` without sources, options and shards.
        writer: of the output.
        stored: the directory as it is, if it is updated.
        progress: called with the rows and tokens that were encoded.

    Raises:
        InputError: for a row that cannot be encoded: the first one of the inputs.
        SentcliError: for shards at which workers died again and again, after all others have been made.
    """
    pool = settings.pool
    assert pool is not None
    job = ShardJob.of(writer, inputs, reading, settings, stored)
    starts = {number: inputs.survey.position_before(number * writer.manifest.shard_rows) for number in writer.missing}
    waiting = deque(
        ShardRows(writer.shard_place(number), writer.shard_plan(number), number, start)
        for number, start in starts.items()
    )
    counts, shown = Counts(), dict[int, EncodeStats]()
    given_up, failed = dict[int, str](), dict[int, Exception]()
    try:
        events = pool.run_each(waiting, _make_shard, pool.ray.put(job), ask=_how_far)
        for event in (event for event in events if event.item is not None):
            rows = event.item
            before, now = shown.get(rows.number, EncodeStats()), _encoded(event)
            progress(EncodeStats(now.texts - before.texts, tokens=now.tokens - before.tokens))
            shown[rows.number] = now
            if event.kind == "done":
                writer.add(event.value[0])
                counts += event.value[1]
            elif event.kind == "again":
                console.warn(f"{event.value} at shard {rows.place.number}, which is made again")
            elif event.kind == "died":
                name, row = next(iter(job.blocks(rows, job.sources))).places[0]
                given_up[rows.number] = f"shard {rows.place.number}, which begins at {name}, row {row}: {event.value}"
            elif event.kind == "failed":
                failed[rows.number] = event.value
            if _is_over(waiting, pool.items, given_up, failed):
                break
    finally:
        if pool.items:
            pool.stop()
        writer.clear()  # of what workers that died have begun
    if failed:
        raise failed[min(failed)]
    if given_up:
        raise SentcliError(
            f"{'; '.join(given_up.values())}, perhaps for lack of memory; what is finished is kept, and --resume tries "
            "again"
        )
    return counts


def _is_over(
    waiting: deque[ShardRows],
    begun: Sequence[ShardRows],
    given_up: Mapping[int, str],
    failed: Mapping[int, Exception],
) -> bool:
    """Tell whether nothing more is made: after an error, when all shards before it are done, so that it is the first.

    The shards behind it are dropped.
    """
    # After so many shards that were given up, nothing more is tried
    if not failed and len(given_up) < 3:
        return False
    last = min(failed, default=-1)
    for shard in [shard for shard in waiting if shard.number >= last]:
        waiting.remove(shard)
    return not waiting and all(shard.number > last for shard in begun)


def _encoded(event: Event) -> EncodeStats:
    """Return what has been encoded of the shard of an event."""
    if event.kind == "done":
        return event.value[2]
    return event.value if event.kind == "works" else EncodeStats()


def _how_far(worker: ShardWorker) -> EncodeStats:
    return worker.done


def _make_shard(worker: ShardWorker, rows: ShardRows, job: ShardJob) -> tuple[Shard, Counts, EncodeStats]:
    """Make one shard in a worker.

    Raises:
        InputError: for a row that cannot be encoded, or if this node does not see the directory or an input.
    """
    node, worker.done = socket.gethostname(), EncodeStats()
    try:
        if job.folder not in worker.folders:
            worker.folders[job.folder] = join_folder(job.folder, job.manifest)
        sources = [_here(source, size) for source, size in zip(job.sources, job.sizes, strict=True)]
    except SentcliError as error:
        error.args = (f"node {node}: {error}",)
        raise
    output = worker.folders[job.folder]
    try:
        with ShardWriter(output, rows.place, rows.plan) as writer:
            vectors = EncodedVectors(worker.encoder, job.settings)
            of_shard = job.blocks(rows, sources)
            counts = write_blocks(of_shard, vectors, writer.write, str(output.path), job.stored, worker.advance)
            if not writer.full:
                read = f"{rows.plan.rows} rows, then {counts.rows}"
                raise SentcliError(f"the input has changed while it was read: {read}")
            return writer.publish(), counts, worker.done
    except OSError as error:
        raise SentcliError(f"node {node}: {error}") from error


def _here(source: Source, size: int) -> Source:
    """Return an input as this node sees it.

    Raises:
        InputError: if it does not.
    """
    seen = source.path.is_file() and source.path.stat().st_size == size
    if not seen and is_remote(source.name):
        source = replace(source, path=open_source(source.name).path)
        seen = source.path.stat().st_size == size
    if not seen:
        raise InputError(
            f"{source.name} is not here as it was read first; the inputs lie on a disk that all nodes share, or in an "
            "object store"
        )
    return source
