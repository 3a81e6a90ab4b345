"""Each distinct text of a shard is encoded once, and rows that name it again take its vector from the disk."""

from __future__ import annotations

import hashlib
import tempfile
from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from sentcli.bulk.engines import Engine
from sentcli.errors import InputError, SentcliError
from sentcli.io.dataset import Counts
from sentcli.io.readers import Block
from sentcli.io.writers import output_kind
from sentcli.model.encoding import Encoded, LongTextError, OnLong, Vectors


@dataclass
class _Underway:
    """A block whose new texts are being encoded."""

    block: Block
    where: npt.NDArray[np.int64]
    """The number of each row's text among the shard's distinct texts."""
    first: int
    """The number of the first text that is new."""
    new: list[int]
    """Rows that brought a new text."""
    future: Future[Encoded]


def encoded(
    reader: Iterable[Block], engine: Engine, output: str, on_long: OnLong
) -> Iterator[tuple[Block, Vectors, Counts]]:
    """Yield blocks with their vectors in order; some are read and encoded ahead.

    The vectors of a shard's texts are kept beside the output, where there is room for them.
    """
    underway: deque[_Underway] = deque()
    seen: dict[bytes, int] = {}
    shard: int | None = None
    folder = None if output_kind(output) == "stdout" else Path(output).resolve().parent
    with tempfile.TemporaryFile(dir=folder, prefix=".sentcli-spool-") as handle:
        spool = _Spool(handle)
        for block in reader:
            if block.shard != shard:
                shard, seen = block.shard, {}
            underway.append(_send(block, seen, engine))
            if len(underway) > engine.ahead:
                yield _receive(underway.popleft(), spool, on_long)
        while underway:
            yield _receive(underway.popleft(), spool, on_long)


def _send(block: Block, seen: dict[bytes, int], engine: Engine) -> _Underway:
    first = len(seen)
    keys = (hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest() for text in block.texts)
    where = np.fromiter((seen.setdefault(key, len(seen)) for key in keys), np.int64, len(block))
    brought = np.unique(where[where >= first], return_index=True)[1]
    new = np.flatnonzero(where >= first)[brought].tolist()
    return _Underway(block, where, first, new, engine.submit([block.texts[row] for row in new]))


def _receive(sent: _Underway, spool: _Spool, on_long: OnLong) -> tuple[Block, Vectors, Counts]:
    block = sent.block
    try:
        texts = sent.future.result()
    except LongTextError as error:
        row = sent.new[error.number]
        name, place = block.places[row]
        raise InputError(
            f"{name}, row {place} (id {block.ids[row]}): its text has {error.tokens} tokens, "
            f"more than {error.limit} (--on-long truncate or chunk-mean accepts it, --max-length changes the limit)"
        ) from error
    except BrokenProcessPool as error:
        raise SentcliError("a process that encodes has died, perhaps for lack of memory") from error
    if sent.first == 0:
        spool.clear()
    vectors, beyond = spool.recall(sent.where, sent.first, texts)
    counts = Counts(
        rows=len(block),
        empty=sum(not text.strip() for text in block.texts),
        duplicates=len(block) - len(sent.new),
        truncated=int(np.count_nonzero(beyond)),
        tokens_lost=0 if on_long == "chunk-mean" else int(beyond.sum()),
        tokens=texts.tokens,
    )
    return block, vectors, counts


class _Spool:
    """The vectors of the distinct texts of a shard, on disk, for rows that name one of them again."""

    def __init__(self, handle: IO[bytes]) -> None:
        self.handle = handle
        self.beyond = array("q")

    def clear(self) -> None:
        """Begin another shard."""
        self.handle.seek(0)
        self.handle.truncate()
        self.beyond = array("q")

    def recall(self, where: npt.NDArray[np.int64], first: int, texts: Encoded) -> tuple[Vectors, npt.NDArray[np.int64]]:
        """Keep new vectors, and return those of all rows with the tokens beyond the maximum length.

        Args:
            where: the number of each row's text ``[rows]``.
            first: the number of the first new one.
            texts: the new ones, encoded.
        """
        width = texts.vectors.shape[1]
        vectors = np.empty((len(where), width), np.float32)
        fresh = where >= first
        vectors[fresh] = texts.vectors[where[fresh] - first]
        for row in np.flatnonzero(~fresh):
            self.handle.seek(int(where[row]) * width * 4)
            vectors[row] = np.frombuffer(self.handle.read(width * 4), np.float32)
        self.handle.seek(0, 2)
        self.handle.write(texts.vectors.data)
        self.beyond.extend(texts.beyond.tolist())
        return vectors, np.array(self.beyond, np.int64)[where]
