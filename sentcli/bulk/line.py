"""The settings of an encoding, and the line from blocks of rows to a writer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy.typing as npt

from sentcli.bulk.engines import EncodeTexts, Engine, encode_blocks
from sentcli.io.blocks import Block
from sentcli.io.dataset import Counts, ShardShare
from sentcli.model.encoding import EncodeStats, OnLong, Progress
from sentcli.smaller import Smaller

if TYPE_CHECKING:
    from sentcli.cluster_pool import Pool


@dataclass(frozen=True)
class EncodeSettings:
    """How rows are encoded and written."""

    shard_rows: int = 100_000
    overwrite: bool = False
    """Whether a directory that is there is replaced, once the new one is complete."""
    stays_beside: bool = False
    """Whether the new directory is left in `Folder.successor` with `overwrite`, for an index to be built in it."""
    resume: bool = False
    append: bool = False
    part: ShardShare = field(default_factory=ShardShare)
    prompt: str = ""
    batch_tokens: int | None = None
    on_long: OnLong = "truncate"
    smaller: Smaller = field(default_factory=Smaller)
    devices: Sequence[str] = ()
    """Several devices have a process each; an empty sequence takes that of the encoder."""
    load: dict[str, Any] = field(default_factory=dict)
    """The arguments of `SentenceEncoder.load` for these processes."""
    encode: EncodeTexts | None = None
    """Encodes texts in this process, instead of `SentenceEncoder.encode_distinct`, whose arguments it takes."""
    pool: Pool | None = None
    """Workers on a cluster that make the shards, if not this process; for the output of a directory."""

    @property
    def encoding(self) -> dict[str, Any]:
        """The arguments of `SentenceEncoder.encode_distinct`."""
        return {"prompt": self.prompt, "batch_tokens": self.batch_tokens, "on_long": self.on_long}


class BlockWriter(Protocol):
    """Takes blocks with their vectors and counts."""

    def write(self, block: Block, vectors: npt.NDArray[Any], counts: Counts) -> None:
        """Append rows."""


def write_blocks(
    reader: Iterable[Block],
    engine: Engine,
    writer: BlockWriter,
    output: str,
    settings: EncodeSettings,
    progress: Progress,
) -> Counts:
    """Encode blocks and write them.

    Args:
        reader: the blocks.
        engine: encodes them.
        writer: takes them with their vectors.
        output: the path beside which texts that repeat are kept; see `encode_blocks`.
        settings: how they are encoded and written.
        progress: called with the rows that repeat a text; the engine counts the distinct texts.

    Returns:
        The counts over all blocks.
    """
    counts = Counts()
    for block, vectors, block_counts in encode_blocks(reader, engine, output, settings.on_long):
        writer.write(block, settings.smaller.apply(vectors), block_counts)
        counts += block_counts
        progress(EncodeStats(texts=block_counts.duplicates))
    return counts
