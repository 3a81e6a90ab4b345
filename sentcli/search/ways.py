"""The ways to search: by vectors, by words, and by both, fused."""

from __future__ import annotations

from typing import Any, Literal, cast

from sentcli.errors import InputError, nearest
from sentcli.search import fusion
from sentcli.search.neighbours import Neighbours

Way = Literal["dense", "bm25", "rrf", "weighted"]
WAYS: tuple[Way, ...] = ("dense", "bm25", "rrf", "weighted")
FUSED = 1000
"""Hits of each list that are fused, at least."""


def parse_ways(text: str) -> list[Way]:
    """Read ``dense,bm25``.

    Raises:
        InputError: for a way that there is not, one that stands twice, or none.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in WAYS:
            raise InputError(f"--search: no way {name!r}{nearest(name, list(WAYS))}; one of: {', '.join(WAYS)}")
    if not names or len(set(names)) < len(names):
        raise InputError(f"--search {text!r}: name some of {', '.join(WAYS)}, each once")
    return cast(list[Way], names)


def depth(ways: list[Way] | tuple[Way, ...], k: int) -> int:
    """Return how many hits each list needs for `k` hits of some ways."""
    return max(k, FUSED) if {"rrf", "weighted"} & set(ways) else k


def fuse(way: Way, dense: Neighbours, by_words: Neighbours, k: int, dense_weight: float) -> Neighbours:
    """Return the `k` best of both lists, ``rrf`` or ``weighted``; see `fusion`."""
    parts = [dense, by_words]
    if way == "rrf":
        return fusion.reciprocal_rank(parts, k)
    return fusion.weighted(parts, [dense_weight, 1 - dense_weight], k)


def described(way: Way, k: int, dense_weight: float) -> dict[str, Any]:
    """Return what moves the scores of a fusion, for protocols; nothing for the other ways."""
    if way == "rrf":
        return {"rank_constant": fusion.CONSTANT, "fused": max(k, FUSED)}
    if way == "weighted":
        return {"dense_weight": dense_weight, "fused": max(k, FUSED)}
    return {}
