"""Work on the connected Ray cluster: a pool of workers that call a function for each of many items.

A worker that dies is begun again, and its item with it. This is the only place that starts processes on a cluster and
waits for them.
"""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from sentcli import console
from sentcli.cluster import ClusterOptions
from sentcli.cluster.joining import connected, require_ray
from sentcli.cluster.nodes import Node, Workers, check_versions, nodes, plan_workers, was_taken_away
from sentcli.errors import SentcliError, one_line
from sentcli.machine import usable_cores

ATTEMPTS = 3
"""After so many workers have died at an item, or before they were ready, no other one is tried.

A node that is taken away does not count, for which Ray's own retries have no way (2.60).
"""
POLL_SECONDS = 1.0
"""How often it is asked how far the items are."""
WAIT_SECONDS = 600.0
"""How long to wait for a worker while the cluster has no room for any."""
NO_ROOM = f"no worker has started for {WAIT_SECONDS / 60:.0f} minutes: the cluster has no room for one"


@dataclass(frozen=True)
class Event:
    """What has happened to an item."""

    kind: Literal["works", "again", "died", "failed", "done"]
    """It is being worked on; its worker has died, and it is begun again, or has died too often; its function has raised
    an error; or it is done."""
    item: Any = None
    value: Any = None
    """How far the item is, the error, or the result of the function."""


class Worker:
    """The actor: it prepares once, and then calls a function for one item at a time.

    Args:
        prepare: makes what all calls of this process share, such as a loaded model.
        arguments: of `prepare`.
        threads: the number of threads that compute.
    """

    def __init__(self, prepare: Callable[..., Any], arguments: Sequence[Any], threads: int) -> None:
        os.environ["OMP_NUM_THREADS"] = str(threads)
        self.prepare, self.arguments = prepare, arguments
        self.shared: Any = None

    def start(self) -> Any:
        """Prepare, and return what `prepare` says about this worker: the attribute ``facts`` of its result."""
        self.shared = self.prepare(*self.arguments)
        return getattr(self.shared, "facts", None)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a function makes of what is shared and of the arguments."""
        return function(self.shared, *arguments)


def nothing() -> None:
    """Prepare nothing."""


class Pool:
    """Workers on the connected cluster, which end with the block.

    Args:
        workers: how many there are, and what each reserves.
        prepare: see `Worker`; a function of a module, as all functions that workers call.
        arguments: of `prepare`.
        check: called with the facts of each worker and those of the first; raises an error if they must not work
            together.
    """

    def __init__(
        self,
        workers: Workers,
        prepare: Callable[..., Any] = nothing,
        arguments: Sequence[Any] = (),
        check: Callable[[Any, Any], None] = lambda facts, first: None,
    ) -> None:
        self.ray, self.workers, self.check = require_ray(), workers, check
        self.arguments = prepare, arguments, workers.cpus
        self.actor = self.ray.remote(
            num_cpus=workers.cpus,
            num_gpus=workers.gpus,
            max_restarts=0,
            max_concurrency=2,  # it tells how far it is while it works on an item
            scheduling_strategy="SPREAD",
        )(Worker)
        self.starting: dict[Any, Any] = {}
        """The workers that prepare, by the reference to their facts."""
        self.idle: list[Any] = []
        self.busy: dict[Any, tuple[Any, Any]] = {}
        """The workers that work on an item, with the item, by the reference to the result."""
        self.facts: list[Any] = []
        """The facts of the first worker, which all others are compared with."""
        self.failed_starts = 0
        """How many workers have died one after the other before they were ready."""
        self.seen = time.monotonic()
        """When there was a worker last."""

    def __enter__(self) -> Pool:
        for _ in range(self.workers.count):
            self._start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End all workers."""
        for actor in [*self.starting.values(), *self.idle, *(actor for actor, _ in self.busy.values())]:
            with suppress(Exception):
                self.ray.kill(actor)

    @property
    def items(self) -> list[Any]:
        """The items that are being worked on."""
        return [item for _, item in self.busy.values()]

    def first(self) -> Any:
        """Return the facts of the first worker that is ready.

        Raises:
            SentcliError: if no worker starts in time, or `prepare` fails.
        """
        self._any_idle()
        return self.facts[0]

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function in a worker that has nothing to do, and return its result."""
        return self.ray.get(self._any_idle().call.remote(function, *arguments))

    def map(self, items: Sequence[Any], function: Callable[..., Any], *arguments: Any) -> Iterator[Any]:
        """Yield what a function returns for each item, in their order.

        Raises:
            SentcliError: if the workers of an item die again and again, and what the function raises.
        """
        ended: dict[int, Any] = {}
        order = iter(range(len(items)))
        due = next(order, None)
        for event in self.run_each(deque(enumerate(items)), _of_pair, function, *arguments):
            if event.kind in ("failed", "died"):
                raise event.value
            if event.kind == "done":
                ended[event.item[0]] = event.value
            while due in ended:
                yield ended.pop(due)
                due = next(order, None)

    def run_each(
        self,
        waiting: deque[Any],
        function: Callable[..., Any],
        *arguments: Any,
        ask: Callable[[Any], Any] | None = None,
    ) -> Iterator[Event]:
        """Call a function for each item, as many at a time as there are workers, and yield what happens.

        Args:
            waiting: the items, from the left; the caller may take some away, or end early.
            function: gets what the worker has prepared, the item and the arguments.
            arguments: further ones.
            ask: is called in the workers every second beside the function, and tells how far the item is.

        Yields:
            The events as they come, and after a second without any one without an item.

        Raises:
            SentcliError: if no worker starts in time, or `prepare` or `check` fails.
        """
        deaths: Counter[int] = Counter()
        asked: dict[Any, Any] = {}
        polled = time.monotonic()
        while waiting or self.busy:
            self._begin(waiting, function, arguments)
            if ask is not None and not asked and time.monotonic() - polled > POLL_SECONDS:
                polled = time.monotonic()
                asked = {actor.call.remote(ask): reference for reference, (actor, _) in self.busy.items()}
            done, _ = self.ray.wait([*self.busy, *self.starting, *asked], timeout=POLL_SECONDS)
            if not done:
                yield Event("works")
            for reference in done:
                if reference in self.starting:
                    self._admit(reference)
                elif reference in self.busy:
                    event = self._ended(reference, deaths)
                    if event.kind == "again":
                        waiting.appendleft(event.item)
                    yield event
                elif (work := asked.pop(reference)) in self.busy:
                    with suppress(self.ray.exceptions.RayError):  # the worker has died, which its item will tell
                        yield Event("works", self.busy[work][1], self.ray.get(reference))

    def _begin(self, waiting: deque[Any], function: Callable[..., Any], arguments: Sequence[Any]) -> None:
        """Give items to the workers that have nothing to do.

        Raises:
            SentcliError: if there has been no worker for long.
        """
        while waiting and self.idle:
            actor, item = self.idle.pop(), waiting.popleft()
            self.busy[actor.call.remote(function, item, *arguments)] = actor, item
        if self.busy or self.idle:
            self.seen = time.monotonic()
        elif time.monotonic() - self.seen > WAIT_SECONDS:
            raise SentcliError(NO_ROOM)

    def _ended(self, reference: Any, deaths: Counter[int]) -> Event:
        """Take the result of an item; deaths count by the identity of the item."""
        actor, item = self.busy.pop(reference)
        try:
            value = self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            self.idle.append(actor)
            return Event("failed", item, error.cause)
        except self.ray.exceptions.RayError as error:
            console.detail(f"{item}: {one_line(error)}")
            with suppress(Exception):  # it may only be out of reach, and would write beside another worker
                self.ray.kill(actor)
            self._start()
            taken = was_taken_away(error)
            deaths[id(item)] += not taken
            if deaths[id(item)] < ATTEMPTS:
                return Event("again", item, f"a worker {'was taken away with its node' if taken else 'has died'}")
            return Event("died", item, SentcliError(f"{ATTEMPTS} workers have died at it"))
        self.idle.append(actor)
        return Event("done", item, value)

    def _start(self) -> None:
        actor = self.actor.remote(*self.arguments)
        self.starting[actor.start.remote()] = actor

    def _any_idle(self) -> Any:
        while not self.idle:
            done, _ = self.ray.wait(list(self.starting), timeout=WAIT_SECONDS)
            if not done:
                raise SentcliError(NO_ROOM)
            self._admit(done[0])
        return self.idle[0]

    def _admit(self, reference: Any) -> None:
        """Take a worker that is ready.

        Raises:
            SentcliError: if it could not prepare, or must not work beside the first one.
        """
        actor = self.starting.pop(reference)
        try:
            facts = self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except self.ray.exceptions.RayError as error:
            self.failed_starts += not was_taken_away(error)
            if self.failed_starts >= ATTEMPTS:
                raise SentcliError(f"workers die before they are ready: {one_line(error)}") from error
            self._start()
            return
        self.facts = self.facts or [facts]
        self.check(facts, self.facts[0])
        self.failed_starts = 0
        self.idle.append(actor)


def _of_pair(shared: Any, pair: tuple[int, Any], function: Callable[..., Any], *arguments: Any) -> Any:
    return function(shared, pair[1], *arguments)


@contextmanager
def open_cluster(cluster: ClusterOptions, *, most: int, on_cpu: bool) -> Iterator[tuple[list[Node], Workers]]:
    """Join a cluster, compare the versions of sentcli on its nodes, and plan the workers.

    Args:
        cluster: its address and what workers reserve.
        most: no more workers than this.
        on_cpu: whether the work needs no GPU where there is one.

    Yields:
        The nodes and the plan.
    """
    assert cluster.ray is not None
    most = max(most, 1)  # for no rows, too, a worker says what the model is
    count = cluster.workers
    if count is not None:
        count = min(count, most)
    cpus = max(usable_cores(), (count or 1) * (cluster.cpus_per_worker or 1))  # as --devices cpu,cpu
    gpus = cluster.gpus_per_worker
    if on_cpu and gpus is None:
        gpus = 0.0
    with connected(cluster.ray, cpus):
        machines = nodes()
        check_versions(machines)
        workers = plan_workers(machines, count, cluster.cpus_per_worker, gpus)
        workers = replace(workers, count=min(workers.count, most))
        reserved = f"CPUs of each {workers.cpus}"
        if workers.gpus:
            reserved += f", GPUs of each {workers.gpus:g}"
        console.note(f"Ray ({cluster.ray}): nodes {len(machines)}, workers {workers.count}, {reserved}")
        yield machines, workers
