"""An index of faiss, in memory or mapped from a file: training, rows, search, and its parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from sentcli.arrays import AnyArray, BoolArray, Vectors
from sentcli.errors import DataError, InputError, SentcliError, nearest
from sentcli.machine import require_memory
from sentcli.model.spec import Similarity
from sentcli.search.exact import Blocks, check_width, prepare_in_place, prepared
from sentcli.search.faiss_border import WORKING, check_factory, check_room, faiss_errors, require_faiss
from sentcli.search.neighbours import Neighbours
from sentcli.search.node_rows import NodeRows
from sentcli.waiting import drop_lost_threads

OPQ_ROUNDS = 10
OPQ_ROWS = 16_384
"""faiss's own values are 50 rounds over 65,536 rows; these need a tenth of the time and gave a million rows the same
recall."""
NODES_AT_A_TIME = 16_384
"""How many vectors of a graph are read at a time."""
Parameter = Annotated[str, Field(pattern="^(efConstruction|nprobe|efSearch)$")]
"""The name of a parameter in a file."""
MOST_ON_GPU = 2048
"""The most hits that faiss finds on a GPU, and the most clusters that it looks at."""
EFFORTS = {"nprobe": [2**i for i in range(10)], "efSearch": [2**i for i in range(6, 11)]}
"""The search parameters, which trade speed for recall, with the values that are tried.

Queries lie further from rows than rows do. Graphs over 5,200 passages that kept 16 candidates had a recall@10 of 0.995
for rows and of 0.974 for 3,000 titles, 13 of which had none of theirs; with 64 it is 0.999 and 0.996.
"""
SETTINGS = ["efConstruction", *EFFORTS]
"""The parameters of faiss that a user may set."""


@dataclass(eq=False)
class FaissIndex:
    """An index of faiss, over unit vectors for cosine or over unchanged vectors for dot."""

    index: Any
    similarity: Similarity
    efforts: dict[str, int] = field(default_factory=dict)
    """The search parameters that were set."""
    owned: Any = None
    """An object that faiss points to but does not own, kept alive with the index."""
    on_cpu: FaissIndex | None = None
    """The original of a copy on a GPU."""
    nodes: NodeRows | None = None
    """The rows of a graph's nodes in the corpus, after rows have changed; None if they follow on each other."""

    @classmethod
    def empty(cls, factory: str, dimension: int, similarity: Similarity, rows: int = 0) -> FaissIndex:
        """Return an index without training and without rows.

        Args:
            factory: a factory string of faiss.
            dimension: of the vectors.
            similarity: of the vectors.
            rows: that are to come into it; 0 where that is not known.

        Raises:
            InputError: for a factory string that faiss does not accept, or more clusters than rows.
            SentcliError: if there is not enough memory.
        """
        faiss = require_faiss()
        check_factory(factory, dimension, rows)
        with faiss_errors(f"faiss does not take the index {factory!r} for {dimension} dimensions: {{why}}"):
            index = faiss.index_factory(dimension, factory, faiss.METRIC_INNER_PRODUCT)
        if not hasattr(index, "chain"):
            return cls(index, similarity)
        transform = faiss.downcast_VectorTransform(index.chain.at(0))
        if not isinstance(transform, faiss.OPQMatrix):
            return cls(index, similarity)
        transform.niter = OPQ_ROUNDS
        transform.max_train_points = OPQ_ROWS
        bits = re.search(r"PQ\d+x(\d)", factory)
        if bits is not None:  # the rotation is learned for codes of this size
            codes = faiss.ProductQuantizer(transform.d_out, transform.M, int(bits[1]))
            transform.pq = codes
            return cls(index, similarity, owned=codes)
        return cls(index, similarity)

    @classmethod
    def read(cls, path: Path, similarity: Similarity, *, mapped: bool = True) -> FaissIndex:
        """Open a file that `write` wrote.

        Args:
            path: the file.
            similarity: the similarity that the index was built for.
            mapped: leave the index on disk and read what a search needs; rows cannot be added to such an index.

        Raises:
            DataError: if faiss cannot read it.
        """
        faiss = require_faiss()
        # older releases map only inverted lists
        mapping = getattr(faiss, "IO_FLAG_MMAP_IFC", faiss.IO_FLAG_MMAP) if mapped else 0
        message = f"faiss {faiss.__version__} cannot read it ({{why}}); build it again"
        with faiss_errors(message, partial(DataError, path)):
            return cls(faiss.read_index(str(path), int(mapping)), similarity)

    def write(self, path: Path) -> None:
        """Write the index to a file.

        Raises:
            RuntimeError: if the file cannot be written.
        """
        require_faiss().write_index(self.index, str(path))

    @property
    def efforts_to_try(self) -> list[dict[str, int]]:
        """The settings of the search parameter that are tried; one empty setting if the index has no such parameter."""
        faiss = require_faiss()
        index = self.index
        while True:  # down to the index that has the parameter
            if isinstance(index, faiss.IndexRefine):
                index = faiss.downcast_index(index.base_index)
            elif isinstance(index, (faiss.IndexPreTransform, faiss.IndexIDMap)):
                index = faiss.downcast_index(index.index)
            else:
                break
        if isinstance(index, faiss.IndexIVF):
            clusters = int(index.nlist)
            probes = [number for number in EFFORTS["nprobe"] if number < clusters]
            return [{"nprobe": number} for number in [*probes, clusters]]
        if isinstance(index, faiss.IndexHNSW):
            return [{"efSearch": number} for number in EFFORTS["efSearch"]]
        return [{}]

    @property
    def row_bytes(self) -> int:
        """The approximate size of a row in a file, in bytes."""
        if self.on_cpu is not None:
            return self.on_cpu.row_bytes
        faiss = require_faiss()
        index = self.index
        inverted = faiss.try_extract_index_ivf(index)
        if inverted is not None:
            return int(inverted.code_size) + 8
        if isinstance(index, faiss.IndexFlatCodes):
            return int(index.code_size)
        vector_bytes = 4 * int(index.d)
        graph = faiss.downcast_index(index)
        links = 300
        if isinstance(graph, faiss.IndexHNSW):
            links = 4 * (graph.hnsw.nb_neighbors(0) + 8)
        return vector_bytes + links

    @property
    def learned_bytes(self) -> int:
        """The approximate size of what training learns (clusters, rotation, codes), in bytes."""
        faiss = require_faiss()
        index = self.index
        inverted = faiss.try_extract_index_ivf(index)
        if inverted is None:
            return 0
        dimension = int(index.d)
        vectors = int(inverted.nlist)
        if isinstance(index, faiss.IndexPreTransform):
            vectors += dimension  # the rotation
        quantiser = getattr(faiss.downcast_index(inverted), "pq", None)
        if quantiser is not None:
            vectors += int(quantiser.ksub)
        return vectors * 4 * dimension

    def set(self, parameter: str, value: int) -> None:
        """Set a parameter of faiss.

        Raises:
            InputError: if this index has none of that name.
        """
        if parameter not in SETTINGS:
            raise InputError(
                f"unknown parameter {parameter!r}{nearest(parameter, SETTINGS)}; one of {', '.join(SETTINGS)}"
            )
        faiss = require_faiss()
        on_cpu = self.on_cpu
        space = faiss.ParameterSpace() if on_cpu is None else faiss.GpuParameterSpace()
        with faiss_errors(f"this index has no parameter {parameter!r} ({{why}})"):
            space.set_index_parameter(self.index, parameter, value)
        if parameter != "efConstruction":
            self.efforts = {parameter: value}
        if on_cpu is not None:  # which searches what the GPU cannot
            on_cpu.set(parameter, value)

    def on(self, device: str) -> FaissIndex:
        """Return a copy on a GPU, or this index if the device is no CUDA device or faiss cannot copy it there.

        Args:
            device: a device of torch, such as ``cpu`` or ``cuda:1``.
        """
        faiss = require_faiss()
        if not device.startswith("cuda") or not faiss.get_num_gpus():
            return self
        resources = faiss.StandardGpuResources()
        number = int(device.partition(":")[2] or 0)
        try:
            copy = faiss.index_cpu_to_gpu(resources, number, self.index)
        except RuntimeError:  # faiss has no graphs on GPUs
            return self
        return FaissIndex(copy, self.similarity, self.efforts, resources, self)

    @contextmanager
    def built_on(self, device: str) -> Iterator[FaissIndex]:
        """Yield what is to be trained or filled: a copy on a GPU as `on` makes it, which comes back after the block.

        Where `on` makes none, it is this index.

        Args:
            device: a device of torch.

        Raises:
            SentcliError: if faiss cannot go on there, for example because the memory of the GPU ends.
        """
        copy = self.on(device)
        if copy is self:
            yield self
            return
        with faiss_errors(f"faiss cannot build the index on {device} ({{why}}); --device cpu can", SentcliError):
            yield copy
            self.index = require_faiss().index_gpu_to_cpu(copy.index)

    @property
    def is_graph(self) -> bool:
        """Whether it is a graph over whole vectors, which stays when rows change."""
        faiss = require_faiss()
        return isinstance(faiss.downcast_index(self.index), faiss.IndexHNSWFlat)

    def stored_vectors(self) -> Iterator[Vectors]:
        """Yield the vectors of a graph's nodes as it compares them, block by block ``[n, dim]``."""
        nodes = len(self)
        for first in range(0, nodes, NODES_AT_A_TIME):
            count = min(NODES_AT_A_TIME, nodes - first)
            yield self.index.reconstruct_n(first, count)

    def train(self, blocks: Blocks, device: str = "cpu") -> None:
        """Learn clusters and codes from a sample of the rows, if this kind of index needs training.

        Args:
            blocks: the rows.
            device: where they are learned, if faiss can do it there.

        Raises:
            InputError: if there are too few rows.
            SentcliError: if there is not enough memory.
        """
        if self.index.is_trained:
            return
        inverted = require_faiss().try_extract_index_ivf(self.index)
        rows = OPQ_ROWS
        if inverted is not None:
            rows = max(64 * int(inverted.nlist), rows)  # faiss asks for 39 rows for each cluster and uses up to 256
        _, sample = blocks.sample(rows)
        require_memory(sample.nbytes + WORKING, f"training an index with {len(sample):,} rows")
        too_few = f"{len(sample)} rows are too few to train this index ({{why}}); flat needs none"
        with faiss_errors(too_few), self.built_on(device) as built:
            prepare_in_place(sample, self.similarity)
            built.index.train(sample)

    def add(self, vectors: AnyArray) -> None:
        """Append rows ``[n, dim]``.

        Raises:
            InputError: if the rows have another dimension, or faiss cannot add rows to such an index.
        """
        check_width(vectors, self.index.d, "corpus")
        check_room(len(self) + len(vectors), self.row_bytes)
        refused = "rows cannot be added to this kind of index ({why})"
        if self.on_cpu is not None:
            refused = "rows cannot be added to an index on the GPU ({why}); --device cpu adds them"
        with faiss_errors(refused):
            rows = prepared(vectors, self.similarity)
            self.index.add(rows)

    def search(self, queries: AnyArray, k: int, mask: BoolArray | None = None) -> Neighbours:
        """Return about the `k` nearest rows of each query ``[queries, dim]``; position -1 where none was found.

        Args:
            queries: their vectors.
            k: the number of rows.
            mask: the rows that may be found; None stands for all. They are those of the index ``[rows]``, or of the
                whole corpus if it has `nodes`, and so are the positions that are returned.

        Raises:
            InputError: if the queries have another dimension.
        """
        index = self.index
        nodes = self.nodes
        check_width(queries, index.d, "query")
        k = min(k, self.rows)
        if nodes is not None:
            mask = nodes.that_may_be_found(mask)
        if not k or not len(queries):
            return Neighbours.none(len(queries))
        most = max(k, self.efforts.get("nprobe", 1))
        if self.on_cpu is not None and (most > MOST_ON_GPU or mask is not None):
            return self.on_cpu.search(queries, k, mask)
        options = {}
        if mask is not None or _needs_effort(index, k):
            options["params"] = _parameters(index, mask, k, nodes)
        drop_lost_threads()
        with faiss_errors("faiss cannot search: {why}", SentcliError):
            vectors = prepared(queries, self.similarity)
            scores, positions = index.search(vectors, k, **options)
        found = Neighbours(positions, scores)
        if nodes is None:
            return found
        return nodes.in_corpus(found)

    @property
    def rows(self) -> int:
        """The number of rows that can be found."""
        if self.nodes is None:
            return len(self)
        return self.nodes.living

    def __len__(self) -> int:
        return int(self.index.ntotal)


def _needs_effort(index: Any, k: int) -> bool:
    """Tell whether a graph has to look at more rows than it is set to, to find so many."""
    faiss = require_faiss()
    index = faiss.downcast_index(index)
    return isinstance(index, faiss.IndexHNSW) and index.hnsw.efSearch < k


def _parameters(index: Any, mask: BoolArray | None, k: int, nodes: NodeRows | None = None) -> Any:
    """Return the search parameters of an index of faiss that leave it as it is, but for the rows that may be found.

    A graph keeps at least as many candidates as rows are wanted; with fewer it ends before it has found them. Where
    nodes are dead it keeps more, so that as many of them are alive.

    Args:
        index: of faiss.
        mask: the rows that may be found ``[n]``; None stands for all.
        k: the number of rows that are wanted.
        nodes: of a graph whose rows have changed.
    """
    faiss = require_faiss()
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexPreTransform):
        return faiss.SearchParametersPreTransform(index_params=_parameters(index.index, mask, k))
    if isinstance(index, faiss.IndexRefine):
        inner = _parameters(index.base_index, mask, k)
        return faiss.IndexRefineSearchParameters(k_factor=index.k_factor, base_index_params=inner)
    selector = {}
    if mask is not None:
        bits = np.packbits(mask, bitorder="little")
        selector["sel"] = faiss.IDSelectorBitmap(bits)
    if isinstance(index, faiss.IndexIVF):
        return faiss.SearchParametersIVF(**selector, nprobe=index.nprobe)
    if isinstance(index, faiss.IndexHNSW):
        candidates = max(index.hnsw.efSearch, k)
        if nodes is not None:
            candidates = -(-candidates * len(nodes) // nodes.living)
        return faiss.SearchParametersHNSW(**selector, efSearch=candidates)
    return faiss.SearchParameters(**selector)
