"""Exact search with torch, for accelerators where faiss is built for the CPU alone."""

from __future__ import annotations

import numpy as np

from sentcli.search.neighbours import Neighbours, Vectors

AT_A_TIME = 2**28
"""Similarities that are held on the device at a time: 1 GiB."""


def nearest(queries: Vectors, block: Vectors, k: int, device: str) -> Neighbours:
    """Return the `k` rows of `block` ``[n, dim]`` with the largest inner products with each query ``[queries, dim]``.

    Args:
        queries: on the host, as `block` is.
        block: of a corpus.
        k: at most n.
        device: of torch, such as ``cuda``, ``cuda:1``, ``mps``, ``cpu``.
    """
    import torch

    rows = torch.from_numpy(np.require(block, requirements="W")).to(device)  # a mapped file cannot be written to
    together = max(AT_A_TIME // len(block), 1)
    found = []
    for start in range(0, len(queries), together):
        some = torch.from_numpy(queries[start : start + together]).to(device)
        scores, positions = torch.topk(some @ rows.T, k, dim=1)
        found.append((positions.cpu().numpy(), scores.cpu().numpy()))
    return Neighbours(*(np.concatenate(side) for side in zip(*found, strict=True)))
