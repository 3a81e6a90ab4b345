"""Rows of a corpus that stay on a device, and exact search among them.

They are kept in float32 where they fit. Else, or where that is asked for, they are in bf16, in half of the memory and
compared several times as fast: the best rows of such a scan are compared anew in float32, and a query is searched again
in float32 unless a bound on the error of the scan shows that no other row can be a hit. So hits are those of float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sentcli import console
from sentcli.arrays import AnyArray, BoolArray, Vectors
from sentcli.model.spec import Similarity
from sentcli.search import device_memory
from sentcli.search.device_memory import COPIED, StagedCopies, as_tensor, prepared_there, rows_copied, search_errors
from sentcli.search.device_products import DEVICE_SIMILARITIES, Nearest, full_products, ordered, with_less_memory
from sentcli.search.exact import Blocks, check_width, prepared, search_blocks
from sentcli.search.neighbours import Neighbours

SEARCH_BYTES = 6 * DEVICE_SIMILARITIES + 4 * COPIED
"""The bytes that a search takes beside the rows: similarities with their maxima, and blocks that are copied. Where less
than twice as much is free, rows may take half of it."""
SCANNED_FOR_A_HIT = 2
MORE_SCANNED = 64
"""How many rows of a scan are compared in float32 for each hit, and how many more. Of a million random rows of 384
dimensions the similarities at k = 10 and at rank 84 differ by several times the bound on the error."""
OUTPUT_ERROR = 2**-8
"""The greatest error of a product in bf16 as a share of it: twice that of rounding to 8 binary digits."""
SUM_ERROR = 2**-22
"""The error of a sum in float32 for each of its terms, as a share of the product of the lengths; tensor cores cut off
what they cannot hold instead of rounding it."""
OF_NORMS = 1.001
"""The factor that covers the rounding of the norms in a bound."""


@dataclass
class DeviceRows:
    """The rows of a corpus from position `first` on, as far as they are on a device."""

    blocks: Blocks
    similarity: Similarity
    device: torch.device
    first: int
    full: Tensor | None
    """`prepared` rows ``[n, dim]`` in float32; None where they do not fit."""
    rounded: Tensor | None
    """The prepared rows in bf16; None where no scan is needed, or where not even they fit."""
    longest: float = 0.0
    """The greatest length of a row."""
    lost: float = 0.0
    """The greatest length of what a row loses by being rounded to bf16."""
    asked: int = 0
    """How many queries were searched by a scan."""
    again: int = 0
    """How many of them were searched again in float32."""

    @classmethod
    def open(
        cls, blocks: Blocks, similarity: Similarity, device: str, *, first: int = 0, scan: bool = False
    ) -> DeviceRows:
        """Copy the rows to a device, in one pass, as far as they fit there.

        Args:
            blocks: the vectors of the corpus.
            similarity: ``cosine`` or ``dot``.
            device: of torch, such as ``cuda``, ``cuda:1``, ``mps`` or ``cpu``.
            first: the position of the first row that is searched.
            scan: keep the rows in bf16 too, which are scanned first, even where float32 alone would do.

        Raises:
            SentcliError: if the memory of the device ends although it was free, or the device fails.
        """
        place = torch.device(device)
        opened = cls(blocks, similarity, place, first, None, None)
        with opened._errors(0):
            free = device_memory.free_memory(place)
        count = len(opened)
        dimension = blocks.dimension
        room = None if free is None else (free - min(SEARCH_BYTES, free // 2)) / max(count * dimension, 1)
        keeps_full, keeps_rounded = kept_types(room, scan=scan)
        if not keeps_full and not keeps_rounded:
            console.note(
                f"{count:,} rows do not fit into the memory of the device {device}: they are copied there for each "
                "search"
            )
            return opened
        size = count * dimension * (4 * keeps_full + 2 * keeps_rounded)
        with opened._errors(size):
            if keeps_full:
                opened.full = torch.empty((count, dimension), device=place)
            if keeps_rounded:
                opened.rounded = torch.empty((count, dimension), dtype=torch.bfloat16, device=place)
            opened._fill()
        names = ["float32"] * keeps_full + ["bf16"] * keeps_rounded
        kinds = " and ".join(names)
        console.detail(f"{count:,} rows are on the device {device} in {kinds}: {size / 1e6:,.0f} MB")
        return opened

    def _fill(self) -> None:
        """Copy the rows, and measure their lengths and what rounding takes from them."""
        copies = StagedCopies(self.device)
        longest = torch.zeros((), device=self.device)
        lost = torch.zeros((), device=self.device)
        start = 0
        for block in self.blocks.since(self.first, rows_copied(self.blocks.dimension)):
            rows = prepared_there(copies.put(block), self.similarity)
            there = slice(start, start + len(rows))
            longest = torch.maximum(longest, _greatest_length(rows))
            if self.full is not None:
                self.full[there] = rows
            if self.rounded is not None:
                self.rounded[there] = rows
                lost = torch.maximum(lost, _greatest_length(rows - self.rounded[there].float()))
            start += len(rows)
        self.longest = float(longest)
        self.lost = float(lost)

    @contextmanager
    def _errors(self, size: int) -> Iterator[None]:
        what = f"exact search in {len(self):,} rows of {self.blocks.dimension} dimensions"
        with torch.inference_mode(), full_products(), search_errors(self.device, what, size):
            yield

    def __len__(self) -> int:
        return len(self.blocks) - self.first

    def search(self, queries: AnyArray, k: int, mask: BoolArray | None = None) -> Neighbours:
        """Return the `k` nearest rows of each query ``[queries, dim]``, or all rows if there are fewer.

        Of equal similarities the first row comes first; at the last hit any of the rows of equal similarity may be it.

        Args:
            queries: their vectors.
            k: the number of rows.
            mask: which rows of the whole corpus may be found; None stands for all.

        Raises:
            InputError: if the queries have another dimension.
            SentcliError: if the memory of the device ends, also with fewer similarities at a time, or the device fails.
        """
        check_width(queries, self.blocks.dimension, "query")
        allowed = len(self) if mask is None else int(np.count_nonzero(mask[self.first :]))
        k = min(k, allowed)
        if k < 1 or not len(queries):
            return Neighbours.none(len(queries))
        asked = prepared(queries, self.similarity)
        are_bounded = np.isfinite([self.longest, self.lost]).all() and np.isfinite(asked).all()
        if self.rounded is None or not are_bounded:
            return self._in_full(asked, k, mask)
        width = min(SCANNED_FOR_A_HIT * k + MORE_SCANNED, allowed)
        with self._errors(4 * DEVICE_SIMILARITIES):
            hits, is_sure = self._by_scan(asked, k, width, mask)
            if width == allowed:
                is_sure[:] = True  # no row was left out
        unsure = np.flatnonzero(~is_sure)
        if len(unsure):
            hits.overwrite(~is_sure, self._in_full(asked[unsure], k, mask))
        self._count(len(queries), len(unsure))
        return hits

    def _count(self, asked: int, again: int) -> None:
        """Count queries, and say at the first search how many were searched again."""
        if not self.asked:
            console.note(
                f"rows are scanned in bf16 and the best ones compared in float32; {again:,} of {asked:,} queries were "
                "searched again in float32"
            )
        self.asked += asked
        self.again += again

    def _in_full(self, asked: Vectors, k: int, mask: BoolArray | None) -> Neighbours:
        """Search in float32, by rows that are there or are copied in turns."""
        if self.full is None:
            device = str(self.device)
            return search_blocks(
                asked, self.blocks, k, first=self.first, mask=mask, similarity=self.similarity, device=device
            )
        with self._errors(4 * DEVICE_SIMILARITIES):
            queries = as_tensor(asked).to(self.device)
            are_finite = np.isfinite(asked).all() and np.isfinite(self.longest)
            nearest = Nearest(queries, k, finite=bool(are_finite))
            nearest.add(self.full, self.first, self._hidden(mask))
            return nearest.best()

    def _hidden(self, mask: BoolArray | None) -> Tensor | None:
        """Return on the device which rows may not be found ``[n]``."""
        if mask is None:
            return None
        return torch.from_numpy(~mask[self.first :]).to(self.device)

    def _by_scan(self, asked: Vectors, k: int, width: int, mask: BoolArray | None) -> tuple[Neighbours, BoolArray]:
        """Return the best of `width` rows that a scan in bf16 finds, and whether they surely are the best of all."""
        assert self.rounded is not None
        queries = as_tensor(asked).to(self.device)
        nearest = Nearest(queries.bfloat16(), width, finite=True)
        nearest.add(self.rounded, 0, self._hidden(mask))
        exact = self._compared(asked, queries, nearest.positions)
        scores, positions = ordered(exact, nearest.positions)
        most_of_others = self._most_of_others(queries, nearest.scores)
        is_sure = scores[:, k - 1] > most_of_others
        best_positions = positions[:, :k].cpu().numpy() + self.first
        best_scores = scores[:, :k].cpu().numpy()
        hits = Neighbours(best_positions, best_scores)
        return hits, is_sure.cpu().numpy()

    def _most_of_others(self, queries: Tensor, scanned: Tensor) -> Tensor:
        """Return what no similarity of a row exceeds that a scan has not found ``[queries]``.

        For a query q and a row r, whose roundings are q' and r', q r - q' r' = (q - q') r + q' (r - r'). By Cauchy and
        Schwarz that is at most |q - q'| |r| + |q'| |r - r'|, to which come the errors of the sum and of its
        rounding to bf16. The scan has given q' r' at most the least product of those that it has found.

        Args:
            queries: ``[queries, dim]`` in float32.
            scanned: the products of the scan ``[queries, found]``.
        """
        rounded = queries.bfloat16().float()
        lost = torch.linalg.vector_norm(queries - rounded, dim=1)
        kept = torch.linalg.vector_norm(rounded, dim=1)
        length = torch.linalg.vector_norm(queries, dim=1)
        error = lost * self.longest + kept * self.lost + SUM_ERROR * queries.shape[1] * length * self.longest
        least = scanned.amin(dim=1).float()
        return least + OUTPUT_ERROR * least.abs() + OF_NORMS * error

    def _compared(self, asked: Vectors, queries: Tensor, positions: Tensor) -> Tensor:
        """Return the similarities in float32 of queries with rows at some positions, both ``[queries, n]``."""
        if self.full is None:
            on_host = positions.cpu().numpy() + self.first
            hits = Neighbours(on_host, np.empty(on_host.shape, np.float32))
            exact = self.blocks.rescored(asked, hits, self.similarity).scores
            return torch.from_numpy(exact).to(self.device)
        full = self.full

        def compared(similarities: int) -> Tensor:
            size = max(similarities // (positions.shape[1] * full.shape[1]), 1)
            parts = []
            for start in range(0, len(queries), size):
                some = positions[start : start + size]
                rows = full[some.reshape(-1)].view(*some.shape, -1)
                columns = queries[start : start + size, :, None]
                parts.append(torch.bmm(rows, columns)[:, :, 0])
            return torch.cat(parts)

        return with_less_memory(compared, self.device)

    def protocol(self) -> dict[str, Any]:
        """Return what a scan did, for protocols: its precision, and the share of queries that were searched again."""
        if not self.asked:
            return {}
        return {"scan": "bf16", "searched_again": self.again / self.asked}


def _greatest_length(rows: Tensor) -> Tensor:
    """Return the greatest length of rows ``[n, dim]`` as a scalar on their device."""
    return torch.linalg.vector_norm(rows, dim=1).amax()


def kept_types(room: float | None, *, scan: bool) -> tuple[bool, bool]:
    """Return whether rows stay on a device in float32, and in bf16.

    Args:
        room: the bytes that there are for each number of the rows; None where nothing tells it.
        scan: a scan in bf16 is asked for.
    """
    has_room = 6 if room is None else room
    if scan and has_room >= 6:
        return True, True
    if not scan and has_room >= 4:
        return True, False
    return False, has_room >= 2
