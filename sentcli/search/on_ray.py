"""The files of an index on Ray: each is built by a task, on a node that sees the folder of the vectors."""

from __future__ import annotations

import os
import socket
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sentcli.cluster import require_ray
from sentcli.cluster_nodes import Workers, was_taken_away
from sentcli.errors import SentcliError, one_line
from sentcli.search.exact import require_faiss
from sentcli.search.index import FileSpan, FillFiles, fill_file
from sentcli.search.store import IndexFile, IndexManifest, Store

RETRIES = 2
"""How often a file is begun again after its process or node has died; a node that is taken away does not count."""


def filling_on_ray(workers: Workers) -> FillFiles:
    """Return what builds files of an index on the connected cluster, as many at a time as there are workers.

    Raises:
        SentcliError: from the iterator, if a file cannot be built.
    """

    def fill(store: Store, place: Path, manifest: IndexManifest, spans: list[FileSpan]) -> Iterator[IndexFile]:
        ray = require_ray()
        task = ray.remote(num_cpus=workers.cpus, max_retries=0, scheduling_strategy="SPREAD")(_fill_in_task)

        def begin(span: FileSpan) -> tuple[FileSpan, Any]:
            return span, task.remote(str(store.folder.resolve()), str(place.resolve()), manifest, span, workers.cpus)

        waiting = deque(spans)
        begun: deque[tuple[FileSpan, Any]] = deque()
        deaths: Counter[int] = Counter()
        while waiting or begun:
            references = [reference for _, reference in begun]
            running = ray.wait(references, num_returns=len(begun), timeout=0)[1] if begun else []
            if waiting and len(running) < workers.count:
                begun.append(begin(waiting.popleft()))
            elif references[0] not in running:
                span, reference = begun.popleft()
                made = _result(ray, span, reference, deaths)
                if made is None:
                    begun.appendleft(begin(span))
                else:
                    yield made
            else:
                ray.wait(running)

    return fill


def _result(ray: Any, span: FileSpan, reference: Any, deaths: Counter[int]) -> IndexFile | None:
    """Return the file, or None if its process has died and it is to be begun again; deaths count by the first row."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    except ray.exceptions.RayError as error:
        deaths[span.begin] += not was_taken_away(error)
        if deaths[span.begin] <= RETRIES:
            return None
        rows = f"rows {span.begin} to {span.end - 1} of the index"
        raise SentcliError(f"{rows}: {RETRIES + 1} processes have died at them ({one_line(error)})") from error


def _fill_in_task(folder: str, place: str, manifest: IndexManifest, span: FileSpan, threads: int) -> IndexFile:
    """Build one file in a process of Ray.

    Raises:
        SentcliError: also if this node does not see the folder.
    """
    os.environ["OMP_NUM_THREADS"] = str(threads)
    require_faiss().omp_set_num_threads(threads)
    try:
        return fill_file(Store.open(Path(folder)), Path(place), manifest, span, lambda rows: None)
    except OSError as error:
        shared = "all nodes have to see the vectors under the same path"
        raise SentcliError(f"node {socket.gethostname()}: {error}; {shared}") from None
