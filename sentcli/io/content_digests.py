"""Digests of texts and vectors, by which equal ones are found among many."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from operator import methodcaller
from typing import Any

import numpy as np
import numpy.typing as npt

DIGEST = np.dtype("S16")
"""The type of a digest, whose bytes are compared."""
Digests = npt.NDArray[np.bytes_]


def text_digests(texts: Iterable[str]) -> Digests:
    """Return a digest of each text ``[n]``."""
    return _digests(map(methodcaller("encode", "utf-8", "surrogatepass"), texts))


def vector_digests(vectors: Iterable[npt.NDArray[Any]]) -> Digests:
    """Return a digest of each vector ``[n]``, which is contiguous."""
    return _digests(vector.data for vector in vectors)


def _digests(values: Iterable[bytes | memoryview]) -> Digests:
    digests = bytearray()
    for value in values:
        digests += blake2b(value, digest_size=DIGEST.itemsize).digest()
    return np.frombuffer(bytes(digests), DIGEST)
