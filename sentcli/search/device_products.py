"""The best rows of each query by inner products on a device of torch, at the rate of its matrix products.

It is for accelerators, because faiss may be built for the CPU alone, and runs on torch's ``cpu`` in the same way.
Nothing in it waits for the device, so that products, choices and copies follow each other there without a gap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor

from sentcli.arrays import AnyArray, Float32Array
from sentcli.devices import give_memory_back
from sentcli.errors import lacks_memory
from sentcli.model.spec import Similarity
from sentcli.search.device_memory import StagedCopies, as_tensor, prepared_there, rows_copied, search_errors
from sentcli.search.neighbours import Neighbours

Done = TypeVar("Done")
DEVICE_SIMILARITIES = 2**28
"""How many similarities are on a device at a time: 1 GiB in float32."""
TILE_DIVISOR = 8
"""The divisor of `DEVICE_SIMILARITIES` for the second attempt, after the memory of the device has ended."""
LEAST_QUERIES = 256
"""So many queries are compared with a tile of rows, if there are as many, whatever the number of rows: each tile is
read once for them."""
QUERY_MULTIPLE = 128
"""Products of a multiple of so many queries leave no part of a tile of the device's kernels empty."""
LARGEST_GROUP = 64
"""The most products of which the largest is taken first; also what the width of a tile is a multiple of."""


def largest(products: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the `k` largest products of each query and their columns, both ``[queries, k]``, in any order.

    The columns are cut into groups, of which the `k` with the largest maxima hold `k` largest products: any other
    group has no product above the least of these maxima. For n products of a query in groups of g, n numbers are read
    once for the maxima, and after that the n/g maxima several times and the k g members of the groups, which stand
    apart, a few times; `torch.topk` alone reads all n several times. The maximum is over an outer dimension, so that
    neighbouring threads read neighbouring numbers.

    Args:
        products: ``[queries, n]``, where n is a multiple of `LARGEST_GROUP`.
        k: at most n.
    """
    queries, width = products.shape
    size = _group_size(width, k)
    if size == 1:
        best = torch.topk(products, k, dim=1, sorted=False)
        return best.values, best.indices
    groups = width // size
    maxima = products.view(queries, size, groups).amax(dim=1)
    chosen = torch.topk(maxima, k, dim=1, sorted=False).indices
    members = groups * torch.arange(size, device=products.device)
    columns = (chosen[:, None, :] + members[:, None]).view(queries, size * k)
    best = torch.topk(products.gather(1, columns), k, dim=1, sorted=False)
    return best.values, columns.gather(1, best.indices)


def _group_size(width: int, k: int) -> int:
    """Return how many products are in a group: a power of 2 near sqrt(n / k), for which n/g + k g is least."""
    best = math.isqrt(max(width // k, 1))
    return int(min(1 << (best.bit_length() - 1), LARGEST_GROUP))


def ordered(scores: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Return scores and positions ``[queries, n]``, the best first; of equal scores the first position is first."""
    positions, order = positions.sort(dim=1)
    scores, best_first = scores.gather(1, order).sort(dim=1, descending=True, stable=True)
    return scores, positions.gather(1, best_first)


@contextmanager
def full_products() -> Iterator[None]:
    """Multiply float32 without TF32 and add products of bf16 in float32 inside the block, whatever the user has set."""
    matmul = torch.backends.cuda.matmul
    # torch 2.9 has a new name, and an error for settings that have been made by both names
    name: str = "allow_tf32"
    full: Any = False
    if hasattr(matmul, "fp32_precision"):
        name = "fp32_precision"
        full = "ieee"
    before = getattr(matmul, name)
    reduced = matmul.allow_bf16_reduced_precision_reduction
    setattr(matmul, name, full)
    matmul.allow_bf16_reduced_precision_reduction = False
    try:
        yield
    finally:
        setattr(matmul, name, before)
        matmul.allow_bf16_reduced_precision_reduction = reduced


def with_less_memory(work: Callable[[int], Done], device: torch.device) -> Done:
    """Do work that has so many similarities at a time, and where memory ends once more with fewer of them."""
    try:
        return work(DEVICE_SIMILARITIES)
    except RuntimeError as error:
        if not lacks_memory(error):
            raise
    give_memory_back(device)  # the tensors of the first attempt are gone with its error
    return work(DEVICE_SIMILARITIES // TILE_DIVISOR)


class Nearest:
    """The rows with the largest inner products with each query, which are on a device.

    Args:
        queries: ``[queries, dim]``, in float32 or bf16; rows are of the same type.
        k: how many rows.
        finite: all numbers of queries and rows are known to be finite. Where they are not, a product that is no number
            counts as the least one, as on the CPU.
    """

    def __init__(self, queries: Tensor, k: int, *, finite: bool) -> None:
        self.queries = queries
        self.k = k
        self.finite = finite
        self.scores = queries.new_empty((len(queries), 0))
        """``[queries, k]``, or fewer if there were fewer rows, in any order."""
        self.positions = torch.empty((len(queries), 0), dtype=torch.int64, device=queries.device)
        """The positions of the rows with these products ``[queries, k]``."""

    def add(self, rows: Tensor, first: int, hidden: Tensor | None = None) -> None:
        """Compare further rows.

        Args:
            rows: ``[n, dim]``.
            first: the position of the first of them.
            hidden: which rows are not to be found ``[n]``. At least `k` rows have to be left in all that is added.
        """
        if not len(rows) or not len(self.queries):
            return

        def best(similarities: int) -> tuple[Tensor, Tensor]:
            queries, width = _tile(len(self.queries), len(rows), similarities)
            parts = [(self.scores, self.positions)]
            for start in range(0, len(rows), width):
                tile = slice(start, start + width)
                hidden_there = None if hidden is None else hidden[tile]
                parts.append(self._of_tile(rows[tile], first + start, hidden_there, queries))
            return self._joined(parts)

        self.scores, self.positions = with_less_memory(best, rows.device)

    def _of_tile(self, rows: Tensor, first: int, hidden: Tensor | None, queries: int) -> tuple[Tensor, Tensor]:
        """Return the best of some rows for all queries, so many of which are compared at a time."""
        count = len(rows)
        width = -(-count // LARGEST_GROUP) * LARGEST_GROUP
        tile = self.queries.new_empty((queries, width))
        tile[:, count:] = -torch.inf
        parts = []
        for start in range(0, len(self.queries), queries):
            some = self.queries[start : start + queries]
            products = tile[: len(some)]
            self._multiply(some, rows, products[:, :count])
            if hidden is not None:
                products[:, :count].masked_fill_(hidden, -torch.inf)
            parts.append(largest(products, min(self.k, count)))
        scores, columns = zip(*parts, strict=True)
        return torch.cat(scores), torch.cat(columns) + first

    def _multiply(self, queries: Tensor, rows: Tensor, products: Tensor) -> None:
        """Write the products of queries and rows, which are finite or above those of hidden rows."""
        if len(queries) == 1:  # reads the rows once at the rate of the memory
            torch.mv(rows, queries[0], out=products[0])
        else:
            torch.mm(queries, rows.T, out=products)
        if not self.finite:
            least = torch.finfo(products.dtype).min
            products.nan_to_num_(nan=least, neginf=least, posinf=torch.inf)

    def _joined(self, parts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Return the best of several lists, the first of which may be empty."""
        filled = [part for part in parts if part[0].shape[1]]
        if len(filled) == 1:
            return filled[0]
        score_lists, position_lists = zip(*filled, strict=True)
        scores = torch.cat(score_lists, dim=1)
        positions = torch.cat(position_lists, dim=1)
        best = torch.topk(scores, min(self.k, scores.shape[1]), dim=1, sorted=False)
        return best.values, positions.gather(1, best.indices)

    def best(self) -> Neighbours:
        """Return the best rows in the memory of the host; of equal products the first row comes first."""
        scores, positions = ordered(self.scores, self.positions)
        if not self.finite:
            scores = scores.masked_fill(scores == torch.finfo(scores.dtype).min, -torch.inf)
        return Neighbours(positions.cpu().numpy(), scores.cpu().numpy())


def _tile(queries: int, rows: int, similarities: int) -> tuple[int, int]:
    """Return how many queries and rows are compared at a time: if it can be, all rows, with as many queries as fit.

    Fewer tiles have fewer lists to join. Where there are so many rows that few queries would fit, some rows are taken.
    """
    with_all_rows = similarities // (rows + LARGEST_GROUP)
    least = min(LEAST_QUERIES, similarities // LARGEST_GROUP)
    count = max(with_all_rows, least, 1)
    if count > QUERY_MULTIPLE:
        count -= count % QUERY_MULTIPLE
    count = min(count, queries)
    width = max(similarities // count // LARGEST_GROUP, 1) * LARGEST_GROUP
    return count, min(width, rows)


class BestOnDevice:
    """The best rows of each query on a device, of rows that come block by block from the host; see `products.BestRows`.

    Args:
        queries: `prepared` ``[queries, dim]``.
        k: how many rows.
        similarity: ``cosine`` or ``dot``.
        device: of torch.
    """

    def __init__(self, queries: Float32Array, k: int, similarity: Similarity, device: str) -> None:
        self.device = torch.device(device)
        self.similarity = similarity
        self.rows = 0
        with self._errors():
            self._copies = StagedCopies(self.device)
            self._nearest = Nearest(as_tensor(queries).to(self.device), k, finite=False)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        what = f"exact search in {self.rows:,} rows"
        with torch.inference_mode(), full_products(), search_errors(self.device, what, 4 * DEVICE_SIMILARITIES):
            yield

    def add(self, rows: AnyArray, first: int) -> None:
        """Compare further rows ``[n, dim]``, the first of which has this position; they need not be `prepared`."""
        size = rows_copied(rows.shape[1])
        self.rows += len(rows)
        with self._errors():
            for start in range(0, len(rows), size):
                there = self._copies.put(rows[start : start + size])
                there = prepared_there(there, self.similarity)
                self._nearest.add(there, first + start)

    def best(self) -> Neighbours:
        """Return the best rows so far, as `BestRows.best` does."""
        with self._errors():
            return self._nearest.best()
