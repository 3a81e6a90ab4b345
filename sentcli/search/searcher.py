"""Search by meaning over one corpus: exact, or with an index, or with both where an index lacks the newest rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sentcli.search import ann, exact, recall
from sentcli.search.ann import FaissIndex, FaissRecipe
from sentcli.search.blocks import Blocks
from sentcli.search.neighbours import Neighbours, Similarity, merge, prepared

HELD = 2**22
"""Hits that are held at a time: about 4,000 queries with a thousand each."""
RESCORED = 100
"""Rows that are compared exactly, at least, where an index holds codes."""


class Searcher:
    """Finds the nearest rows of a corpus.

    Args:
        parts: indexes over consecutive rows from the first one on; none is exact search.
        recipe: how they were built.
        blocks: the vectors.
        similarity: ``cosine`` or ``dot``.
        device: where exact search runs.
    """

    def __init__(
        self,
        parts: Sequence[FaissIndex],
        recipe: FaissRecipe,
        blocks: Blocks,
        similarity: Similarity = "cosine",
        device: str = "cpu",
    ) -> None:
        self.parts, self.recipe, self.blocks, self.similarity, self.device = parts, recipe, blocks, similarity, device
        self.indexed = sum(map(len, parts))

    def __len__(self) -> int:
        return len(self.blocks)

    def search(self, queries: npt.NDArray[np.generic], k: int) -> Neighbours:
        """Return the `k` nearest rows of each query ``[queries, dim]``; position -1 where an index found fewer.

        Raises:
            InputError: if the queries have another dimension.
        """
        k = min(k, len(self))
        together = max(HELD // max(self._wanted(k), 1), 1)
        if len(queries) <= together:
            return self._search(queries, k)
        found = [self._search(queries[start : start + together], k) for start in range(0, len(queries), together)]
        return Neighbours(np.concatenate([f.positions for f in found]), np.concatenate([f.scores for f in found]))

    def _wanted(self, k: int) -> int:
        """Return how many rows are asked of an index for `k` hits."""
        return max(k * self.recipe.rescore, RESCORED) if self.recipe.rescore else k

    def _search(self, queries: npt.NDArray[np.generic], k: int) -> Neighbours:
        asked = k < self.indexed  # for all of its rows an index is no help, and a graph may not reach each
        found = [self._approximate(queries, k)] if asked else []
        first = self.indexed if asked else 0
        if first < len(self):
            rest = self.blocks.since(first, exact.BLOCK)
            best = exact.search(queries, rest, k, similarity=self.similarity, device=self.device)
            found.append(Neighbours(best.positions + first, best.scores))
        return merge(found, k) if found else Neighbours.none(len(queries))

    def _approximate(self, queries: npt.NDArray[np.generic], k: int) -> Neighbours:
        rescore, wanted = self.recipe.rescore, self._wanted(k)
        first, best = 0, Neighbours.none(len(queries))
        for part in self.parts:
            found = part.search(queries, wanted)
            shifted = Neighbours(np.where(found.positions < 0, -1, found.positions + first), found.scores)
            best = merge([best, shifted], wanted)
            first += len(part)
        if rescore:
            best = self.blocks.rescored(prepared(queries, self.similarity), best, self.similarity)
        return merge([best], k)

    def set(self, parameter: str, value: int) -> None:
        """Set a parameter of every index; see `FaissIndex.set`."""
        for part in self.parts:
            part.set(parameter, value)

    @property
    def efforts(self) -> dict[str, int]:
        """Search parameters that were set."""
        return self.parts[0].efforts if self.parts else {}

    @property
    def effort_name(self) -> str | None:
        """The parameter that trades speed for recall, if there is one."""
        return self.parts[0].effort_name if self.parts else None

    @property
    def efforts_to_try(self) -> tuple[int | None, ...]:
        """Values of that parameter that make a difference."""
        return self.parts[0].efforts_to_try if self.parts else (None,)

    def described(self) -> dict[str, Any]:
        """Return what moves a number, for protocols."""
        if not self.parts:
            return {"kind": ann.FLAT}
        rescore = {"rescore": self.recipe.rescore} if self.recipe.rescore else {}
        return {"kind": self.recipe.kind, "factory": self.recipe.factory, **self.efforts, **rescore}


def build(
    kind: str, vectors: npt.NDArray[np.generic], similarity: Similarity = "cosine", *, target: float = recall.TARGET
) -> Searcher:
    """Return a search over vectors ``[n, dim]`` in memory, tuned on a sample of them.

    Args:
        kind: as in `ann.recipe`.
        vectors: of the corpus.
        similarity: ``cosine`` or ``dot``.
        target: recall@10 that search parameters are chosen for.

    Raises:
        InputError: as `ann.recipe`; also if the rows are too few for it.
    """
    blocks = Blocks([vectors])
    chosen = ann.recipe(kind, len(vectors), vectors.shape[1])
    if chosen.kind == ann.FLAT or not len(vectors):
        return Searcher([], chosen, blocks, similarity)
    index = FaissIndex.empty(chosen.factory, vectors.shape[1], similarity)
    if index.wants:
        index.train(blocks.sample(index.wants)[1])
    for block in blocks.since(0, exact.BLOCK):
        index.add(block)
    found = Searcher([index], chosen, blocks, similarity)
    recall.tune(found, recall.of_rows(blocks, similarity), target)
    return found
