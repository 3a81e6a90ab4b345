"""Approximate search with faiss: the kinds of index by name, and how an index of a kind is built."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Le

from sentcli.errors import InputError, nearest
from sentcli.search.faiss_index import FaissIndex

FLAT = "flat"
SCANNED = "flat-bf16"
"""Exact search whose rows a GPU scans in bf16 first; it is asked for like an index, and there is nothing to build."""
KINDS = [FLAT, "hnsw", "ivf", "ivfpq", "sq8"]
"""The kinds of index by name.

* flat: exact search over the vectors themselves.
* hnsw: a graph with 32 links for each row (Malkov and Yashunin, 2020).
* ivf: an inverted file: the vectors are in about 4 sqrt(rows) clusters.
* ivfpq: an inverted file of product codes (Jegou et al., 2011) after a rotation (OPQ, Ge et al., 2013), with one byte
  for 8 dimensions.
* sq8: every row, with one byte for each dimension.
"""
RESCORED = {"ivfpq": 10, "sq8": 4}
"""How many rows are compared exactly for each requested hit, because an index of this kind holds codes."""
LEAST_ROWS_PER_CLUSTER = 39
"""The training rows for each cluster or code below which faiss warns."""


@dataclass(frozen=True)
class FaissRecipe:
    """How an index of faiss is built."""

    kind: str
    """One of `KINDS`, or a factory string of faiss."""
    factory: str
    rescore: Annotated[int, Ge(0), Le(10_000)] = 0
    """How many rows are compared exactly for each requested hit; 0 keeps the scores of the index."""

    @property
    def name(self) -> str:
        """The name of the folder of such an index."""
        if self.kind in KINDS:
            return self.kind
        plain = re.sub(r"[^a-z0-9_]+", "-", self.kind.lower()).strip("-")
        return f"faiss-{plain}"


def clusters_of(rows: int) -> int:
    """Return the number of clusters of an inverted file over so many rows."""
    usual = 2 ** round(math.log2(4 * math.sqrt(max(rows, 1))))
    return max(min(usual, rows // LEAST_ROWS_PER_CLUSTER), 1)


def product_code(rows: int, dimension: int) -> tuple[int, int]:
    """Return into how many parts a product quantiser cuts vectors, and how many bits stand for each part.

    Raises:
        InputError: if there are too few rows to learn the codes from.
    """
    bits = min(
        max(rows // LEAST_ROWS_PER_CLUSTER, 1).bit_length() - 1, 8
    )  # 256 codes where there are rows to learn them
    if bits < 4:
        raise InputError(
            f"ivfpq needs at least {LEAST_ROWS_PER_CLUSTER * 16} rows, there are {rows}: flat is exact and fast enough"
        )
    most = max(dimension // 8, 1)
    divisors = [parts for parts in range(1, most + 1) if dimension % parts == 0]
    return max(divisors), bits


def recipe(kind: str, rows: int, dimension: int) -> FaissRecipe:
    """Return how an index of a kind is built for a corpus of some size.

    Args:
        kind: one of `KINDS`, `SCANNED`, or a factory string of faiss such as ``IVF4096,Flat``.
        rows: the number of rows of the corpus.
        dimension: the dimension of its vectors.

    Raises:
        InputError: for a kind that does not exist, or that needs more rows.
    """
    clusters = clusters_of(rows)
    factories = {FLAT: "Flat", "hnsw": "HNSW32,Flat", "ivf": f"IVF{clusters},Flat", "sq8": "SQ8"}
    if kind == "ivfpq":
        parts, bits = product_code(rows, dimension)
        factories[kind] = f"OPQ{parts},IVF{clusters},PQ{parts}"
        if bits < 8:
            factories[kind] += f"x{bits}"
    if kind == SCANNED:
        return FaissRecipe(SCANNED, "Flat")
    if kind in factories:
        return FaissRecipe(kind, factories[kind], RESCORED.get(kind, 0))
    if re.fullmatch(r"[a-z0-9]+", kind):
        raise InputError(
            f"unknown index {kind!r}{nearest(kind, KINDS)}; one of {', '.join(KINDS)}, or a faiss factory string "
            "such as IVF4096,Flat"
        )
    factory = kind.upper()
    holds_codes = re.search(r"PQ|SQ|RQ|LSH|ITQ|AQ", factory) is not None and "RFLAT" not in factory
    return FaissRecipe(kind, kind, RESCORED["ivfpq"] if holds_codes else 0)


def index_bytes(kind: str, rows: int, dimension: int) -> int:
    """Return about how many bytes the files of an index of a kind take, besides the vectors themselves.

    Args:
        kind: one of `KINDS`, or a factory string of faiss.
        rows: the number of rows of the corpus.
        dimension: the dimension of its vectors.

    Raises:
        InputError: for a kind that does not exist, or that needs more rows.
    """
    if kind in (FLAT, SCANNED):
        return 0
    index = FaissIndex.empty(recipe(kind, rows, dimension).factory, dimension, "cosine", rows)
    # what was learned stands in the file of the trained index and in that of the rows
    return rows * index.row_bytes + 2 * index.learned_bytes
