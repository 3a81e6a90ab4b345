"""The cache of vectors, by the model that made them and the hash of their text.

It is in the user's cache folder and can be deleted at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sentcli.arrays import BoolArray, Float32Array, Int64Array
from sentcli.bounds import whole_number
from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.errors import InputError
from sentcli.io.digests import cache_folder, least_recently_used
from sentcli.model.encoding import Encoded, EncodeStats, Progress

SIZE_VARIABLE = "SENTCLI_VECTOR_CACHE_MB"
DEFAULT_MEGABYTES = 2048
TEXTS_AT_A_TIME = 8192
"""Texts that are encoded before their vectors are written."""
SERVED_AT_A_TIME = 512
"""Texts that are encoded before their vectors are written, by a model that is served: its answers may have cost money,
and an error loses no more of them."""
LOOKED_UP = 500
"""Texts that are looked up in one query of the database."""


class VectorCache:
    """The cached vectors of one model, in a SQLite file; old files are deleted to stay below a size.

    If the file cannot be read or written, texts are encoded as without a cache.

    Args:
        key: hash of the model and of how it was loaded.
        fresh: encode all texts, and replace their cached vectors.
        megabytes: the greatest size of all files together; None is `size_limit`.
    """

    def __init__(self, key: str, *, fresh: bool = False, megabytes: int | None = None) -> None:
        self.key = key
        self.fresh = fresh
        if megabytes is None:
            megabytes = size_limit()
        self.limit = megabytes * 2**20

    def encode(
        self,
        encoder: SentenceEncoder,
        texts: Sequence[str],
        progress: Progress | None = None,
        prompt: str | None = None,
        *,
        keep: bool = True,
        **options: Any,
    ) -> Encoded:
        """Return vectors from the cache, after encoding missing ones.

        Args:
            encoder: the model.
            texts: distinct ones.
            progress: as in `SentenceEncoder.encode`.
            prompt: text in front of each; None is the model's default.
            keep: write the missing ones into the cache.
            options: other arguments of `SentenceEncoder.encode_distinct`.
        """
        prompt = encoder.prompt_text(prompt=prompt)
        vectors = np.empty((len(texts), encoder.dimension), np.float32)
        excess_tokens = np.zeros(len(texts), np.int64)
        hashes = _hashes(texts, prompt)
        file = _VectorFile(cache_folder("vectors") / f"{self.key[:32]}.db", self.limit)
        is_cached = np.zeros(len(texts), bool)
        if not self.fresh:
            is_cached = file.read(hashes, vectors, excess_tokens)
        if progress is not None and is_cached.any():
            progress(EncodeStats(texts=int(is_cached.sum())))
        missing = np.flatnonzero(~is_cached)
        if not keep:
            step = max(len(missing), 1)
        elif encoder.sent is None:
            step = TEXTS_AT_A_TIME
        else:
            step = SERVED_AT_A_TIME
        tokens = 0
        for start in range(0, len(missing), step):
            rows = missing[start : start + step]
            encoded = encoder.encode_distinct([texts[row] for row in rows], prompt, progress=progress, **options)
            vectors[rows] = encoded.vectors
            excess_tokens[rows] = encoded.excess_tokens
            tokens += encoded.tokens
            if keep:
                file.write([hashes[row] for row in rows], encoded)
        file.close()
        return Encoded(vectors, excess_tokens, tokens)


def _hashes(texts: Sequence[str], prompt: str) -> list[bytes]:
    """Return the hash of each text behind a prompt.

    The prompt is the key of the hashes and not joined with the texts, since some models do not pool it.
    """
    key = b""
    if prompt:
        key = hashlib.blake2b(prompt.encode("utf-8", "surrogatepass"), digest_size=32).digest()
    hashes = []
    for text in texts:
        content = text.encode("utf-8", "surrogatepass")
        hashes.append(hashlib.blake2b(content, digest_size=16, key=key).digest())
    return hashes


def size_limit() -> int:
    """Return the greatest size of all cached vectors in megabytes, from ``SENTCLI_VECTOR_CACHE_MB``; 0 caches none.

    Raises:
        InputError: if the variable is no whole number.
    """
    value = os.environ.get(SIZE_VARIABLE, str(DEFAULT_MEGABYTES))
    megabytes = whole_number(value)
    if megabytes is None:
        raise InputError(f"{SIZE_VARIABLE}={value}: expected a whole number of megabytes; 0 keeps no vectors")
    return megabytes


class _VectorFile:
    """Vectors by the hash of their text, in a SQLite file that may be missing, damaged or full."""

    def __init__(self, path: Path, limit: int) -> None:
        self.path = path
        self.limit = limit
        self.connection = self._open() if limit else None

    def _open(self) -> sqlite3.Connection | None:
        for _ in range(2):
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                connection = sqlite3.connect(self.path, timeout=30)
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS vectors (text BLOB PRIMARY KEY, vector BLOB, beyond INTEGER)"
                    " WITHOUT ROWID"
                )
                os.utime(self.path)  # it is in use
                return connection
            except sqlite3.OperationalError:  # no such folder, no right to write, locked
                return None
            except sqlite3.DatabaseError:  # damaged: a new file is made
                self.path.unlink(missing_ok=True)
            except OSError:
                return None
        return None

    def read(self, hashes: Sequence[bytes], vectors: Float32Array, excess_tokens: Int64Array) -> BoolArray:
        """Fill the rows of cached vectors, and return which rows these are ``[n]``."""
        is_cached = np.zeros(len(hashes), bool)
        if self.connection is None:
            return is_cached
        row_of_hash = {text_hash: row for row, text_hash in enumerate(hashes)}
        with self._close_on_error():
            for start in range(0, len(hashes), LOOKED_UP):
                block = hashes[start : start + LOOKED_UP]
                marks = ",".join("?" * len(block))
                query = f"SELECT text, vector, beyond FROM vectors WHERE text IN ({marks})"
                for text_hash, blob, tokens_beyond in self.connection.execute(query, block):
                    vector = np.frombuffer(blob, np.float32)
                    if len(vector) == vectors.shape[1]:
                        row = row_of_hash[text_hash]
                        vectors[row] = vector
                        excess_tokens[row] = tokens_beyond
                        is_cached[row] = True
        return is_cached

    def write(self, hashes: Sequence[bytes], encoded: Encoded) -> None:
        """Write vectors, after deleting the oldest files to make room; nothing happens if there is not enough room."""
        if self.connection is None:
            return
        size = encoded.vectors.nbytes + 64 * len(hashes)
        with contextlib.suppress(OSError):
            if self.path.stat().st_size + size > self.limit:
                return
            others = self.path.parent.glob("*.db")
            for file in least_recently_used(others, self.path, self.limit - size):
                file.unlink(missing_ok=True)
        rows = zip(hashes, map(bytes, encoded.vectors), encoded.excess_tokens.tolist(), strict=True)
        with self._close_on_error(), self.connection:
            self.connection.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)

    @contextlib.contextmanager
    def _close_on_error(self) -> Iterator[None]:
        """Close the file at an error, and delete it if it is damaged, so that the next run makes a new one."""
        try:
            yield
        except sqlite3.OperationalError:  # full, locked, gone
            self.close()
        except sqlite3.DatabaseError:
            self.close()
            self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the connection, which may be closed already."""
        if self.connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self.connection.close()
        self.connection = None
