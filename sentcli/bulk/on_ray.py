"""Encode on Ray: this process reads the inputs, and workers make the shards, each with the encoder in its memory.

The rows of a few shards are sent ahead of the workers, which put finished shards into the directory of the output, on a
disk that all see or in an object store; this process alone writes the manifest. A worker that dies costs its shard,
which another one makes again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from sentcli import cluster, console
from sentcli.bulk.encode import EncodeSettings
from sentcli.bulk.ray_worker import RemoteEncoder, ShardWorker, WorkerFacts
from sentcli.cluster_nodes import Node, Workers, was_taken_away
from sentcli.encoder.on_nodes import require_same_weights
from sentcli.errors import SentcliError, one_line
from sentcli.io.dataset import Counts
from sentcli.io.dataset_writer import DatasetWriter
from sentcli.io.readers import Block
from sentcli.model.encoding import EncodeStats, Progress

MOST_DEATHS = 3
"""A shard at which so many workers have died is given up."""
MOST_GIVEN_UP = 3
"""After so many shards that were given up, nothing more is tried."""
POLL_SECONDS = 1.0
"""How often the workers are asked how far they are."""
WAIT_SECONDS = 600.0
"""How long to wait for a worker while the cluster has no room for any."""
NO_ROOM = f"no worker has started for {WAIT_SECONDS / 60:.0f} minutes: the cluster has no room for one"


@contextmanager
def open_workers(found: list[Node], workers: Workers, model: str, load: dict[str, Any]) -> Iterator[RayWorkers]:
    """Start workers on the connected cluster, and wait for the first of them; they end with the block.

    Args:
        found: the nodes of the cluster, whose files of the model are compared first.
        workers: how many, and what each reserves.
        model: the name that the user gave for the model.
        load: the other arguments of `SentenceEncoder.load`.

    Raises:
        SentcliError: if the nodes differ, or the model cannot be loaded.
    """
    pool = RayWorkers(workers, model, {"model": require_same_weights(found, model), **load})
    try:
        pool.start()
        yield pool
    finally:
        pool.stop()


@dataclass
class _Shard:
    """A shard to be made."""

    number: int
    blocks: list[Any]
    """References to its blocks, which the workers get one by one."""
    deaths: int = 0
    shown: EncodeStats = field(default_factory=EncodeStats)
    """What the bar has been told of it."""


class RayWorkers:
    """Workers on Ray, a `ShardMaker`."""

    def __init__(self, workers: Workers, model: str, load: dict[str, Any]) -> None:
        self.ray, self.workers, self.arguments = cluster.require_ray(), workers, (model, load, workers.cpus)
        self.actor = self.ray.remote(
            num_cpus=workers.cpus,
            num_gpus=workers.gpus,
            max_restarts=0,
            max_concurrency=2,  # it tells how far it is while it makes a shard
            scheduling_strategy="SPREAD",
        )(ShardWorker)
        self.starting: dict[Any, Any] = {}
        """The workers that load the model, by the reference to their facts."""
        self.idle: list[Any] = []
        self.busy: dict[Any, tuple[Any, _Shard]] = {}
        """The workers that make a shard, by the reference to their result."""
        self.asked: dict[Any, _Shard] = {}
        """The shards whose workers were asked how far they are, by the reference to the answer."""
        self.failed_starts = 0
        """How many workers have died one after the other before the model was loaded."""
        self.mixed: set[str] = set()
        """How workers differ, as far as it was said."""
        self.first: WorkerFacts | None = None
        """The facts of the first worker, which all others have to match."""

    @property
    def encoder(self) -> RemoteEncoder:
        """The encoder that the workers have, for what describes and plans the work."""
        assert self.first is not None
        return RemoteEncoder(self.first.loaded, self.first.fingerprint)

    def start(self) -> None:
        """Start all workers, and wait for the first.

        Raises:
            SentcliError: if the model cannot be loaded, or no worker starts in time.
        """
        for _ in range(self.workers.count):
            self.start_one()
        self.any_idle()

    def any_idle(self) -> Any:
        """Return a worker that has nothing to do, after waiting for one if need be.

        Raises:
            SentcliError: if no worker starts in time.
        """
        while not self.idle:
            done, _ = self.ray.wait(list(self.starting), timeout=WAIT_SECONDS)
            if not done:
                raise SentcliError(NO_ROOM)
            self.started(done[0])
        return self.idle[0]

    def stop(self) -> None:
        """End all workers."""
        for actor in [*self.starting.values(), *self.idle, *(actor for actor, _ in self.busy.values())]:
            with suppress(Exception):
                self.ray.kill(actor)

    def start_one(self) -> None:
        """Start a worker, which loads the model."""
        actor = self.actor.remote(*self.arguments)
        self.starting[actor.describe.remote()] = actor

    def started(self, reference: Any) -> None:
        """Take a worker that has loaded the model.

        Raises:
            SentcliError: if it could not, or its model or versions are not those of the first one.
        """
        actor = self.starting.pop(reference)
        try:
            facts: WorkerFacts = self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except self.ray.exceptions.RayError as error:
            self.failed_starts += not was_taken_away(error)
            if self.failed_starts >= MOST_DEATHS:
                raise SentcliError(f"workers die while they load the model: {one_line(error)}") from error
            self.start_one()
            return
        if self.first is None:
            self.first = facts
            facts.loaded.backend.pool = self  # type: ignore[attr-defined]
        elif different := facts.difference(self.first):
            raise SentcliError(f"node {facts.node} has {different}, unlike {self.first.node}: its vectors would differ")
        elif (mixed := _different_bytes(facts, self.first)) and mixed not in self.mixed:
            self.mixed.add(mixed)
            console.warn(
                f"nodes {facts.node} and {self.first.node} differ ({mixed}), and so may the last bits of vectors"
            )
        self.failed_starts = 0
        self.idle.append(actor)

    def make(
        self, reader: Iterable[Block], writer: DatasetWriter, settings: EncodeSettings, progress: Progress
    ) -> Counts:
        """Make the shards of the blocks, and enter them into the manifest.

        Raises:
            InputError: for a row that cannot be encoded: the first one of the inputs.
            SentcliError: for shards at which workers died again and again, after all others have been made.
        """
        shards = (
            _Shard(number, [self.ray.put(block) for block in blocks])
            for number, blocks in groupby(reader, key=lambda block: block.shard)
        )
        try:
            return _Making(self, writer, settings, progress).run(shards)
        except BaseException:
            self.stop()
            raise
        finally:
            writer.clear()  # of what workers that died have begun


class _Making:
    """The making of the shards of one output."""

    def __init__(self, pool: RayWorkers, writer: DatasetWriter, settings: EncodeSettings, progress: Progress) -> None:
        self.pool, self.ray, self.writer, self.progress = pool, pool.ray, writer, progress
        self.settings = self.ray.put(replace(settings, elsewhere=None))
        self.waiting: deque[_Shard] = deque()
        self.counts = Counts()
        self.error: tuple[int, Exception] | None = None
        """The error of the first shard that has a row which cannot be encoded, with its number."""
        self.given_up: list[str] = []
        self.polled = self.working = time.monotonic()
        """When the workers were asked last, and when there was one last."""

    def run(self, shards: Iterator[_Shard]) -> Counts:
        """Make all shards, and return the counts over their rows."""
        writer, more = self.writer, True
        while more or self.waiting or self.pool.busy:
            while self.waiting and self.pool.idle:
                actor, given = self.pool.idle.pop(), self.waiting.popleft()
                where = writer.folder.full_name, writer.shard_place(given.number), writer.shard_plan(given.number)
                self.pool.busy[actor.make.remote(*where, self.settings, given.blocks)] = actor, given
            if more and len(self.waiting) < self.pool.workers.count:
                shard = next(shards, None)
                more = shard is not None
                if shard is not None:
                    self.waiting.append(shard)
                self._wait(0)
            else:
                self._wait(POLL_SECONDS)
            if self.error is not None or len(self.given_up) >= MOST_GIVEN_UP:
                more = False
                if self._earlier_are_done():
                    break
        if self.error is not None:
            raise self.error[1]
        if self.given_up:
            raise SentcliError(
                f"{'; '.join(self.given_up)}: {MOST_DEATHS} workers have died at it, perhaps for lack of memory; "
                "what is finished is kept, and --resume tries again"
            )
        return self.counts

    def _earlier_are_done(self) -> bool:
        """Drop the shards behind the one with the error, and tell whether all before it are done."""
        last = -1 if self.error is None else self.error[0]
        self.waiting = deque(shard for shard in self.waiting if shard.number < last)
        return not self.waiting and all(shard.number > last for _, shard in self.pool.busy.values())

    def _wait(self, seconds: float) -> None:
        """Take what the workers have done, and ask them now and then how far they are."""
        pool, now = self.pool, time.monotonic()
        if pool.busy or pool.idle:  # idle ones wait for rows, for example while --resume reads what is finished
            self.working = now
        elif now - self.working > WAIT_SECONDS:
            raise SentcliError(NO_ROOM)
        if now - self.polled > POLL_SECONDS and not pool.asked:
            self.polled = now
            pool.asked = {actor.progress.remote(): shard for actor, shard in pool.busy.values()}
        done, _ = self.ray.wait([*pool.busy, *pool.starting, *pool.asked], timeout=seconds)
        for reference in done:
            if reference in pool.starting:
                pool.started(reference)
            elif reference in pool.asked:
                shard = pool.asked.pop(reference)
                if any(shard is busy for _, busy in pool.busy.values()):
                    with suppress(self.ray.exceptions.RayError):  # its worker has died, which its shard will tell
                        self._show(shard, self.ray.get(reference))
            else:
                self._made(reference, *pool.busy.pop(reference))

    def _show(self, shard: _Shard, stats: EncodeStats) -> None:
        """Advance the bar to what has been encoded of a shard."""
        self.progress(EncodeStats(stats.texts - shard.shown.texts, tokens=stats.tokens - shard.shown.tokens))
        shard.shown = stats

    def _made(self, reference: Any, actor: Any, shard: _Shard) -> None:
        """Publish a shard, or put it back if its worker has died."""
        try:
            made, counts, stats = self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            if self.error is None or shard.number < self.error[0]:
                self.error = shard.number, error.cause
        except self.ray.exceptions.RayError as error:
            self._died(actor, shard, error)
        else:
            self.writer.add(made)
            self.counts += counts
            self._show(shard, stats)
            self.pool.idle.append(actor)

    def _died(self, actor: Any, shard: _Shard, error: Exception) -> None:
        with suppress(Exception):  # it may only be out of reach, and would write the shard beside another worker
            self.ray.kill(actor)
        shard.deaths += not was_taken_away(error)
        self._show(shard, EncodeStats())
        number = self.writer.shard_place(shard.number).number
        console.detail(f"shard {number}: {one_line(error)}")
        if shard.deaths < MOST_DEATHS:
            how = "was taken away with its node" if was_taken_away(error) else "has died"
            console.warn(f"a worker {how} at shard {number}, which is made again")
            self.waiting.appendleft(shard)
        else:
            name, row = self.ray.get(shard.blocks[0]).places[0]
            self.given_up.append(f"shard {number}, which begins at {name}, row {row}")
        self.pool.start_one()


def _different_bytes(facts: WorkerFacts, first: WorkerFacts) -> str:
    """Return versions and hardware in which two workers differ, or an empty string."""
    pairs = ((key, facts.bytes_depend_on.get(key), value) for key, value in first.bytes_depend_on.items())
    return ", ".join(f"{key} {mine!r} and {other!r}" for key, mine, other in pairs if mine != other)
