"""The vectors of rows, on the way from blocks of them to what writes them: a model makes them, or they are given.

The texts of some blocks are with the engine (`engine.py`) ahead of what is written, and come back in order. A text that
its shard has had is not encoded again: its vector is taken from a temporary file, the spool, so that memory holds a
hash and a number for each distinct text of one shard.
"""

from __future__ import annotations

import tempfile
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol, Self, TypeVar

import numpy as np

from sentcli import console
from sentcli.compression import Compression
from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.errors import InputError, SentcliError
from sentcli.io.atomic import room_explained
from sentcli.io.blocks import BLOCK_ROWS, Block, Counts
from sentcli.io.places import is_remote
from sentcli.io.writers import DIRECTORY, DTYPES, STDOUT, OutputFormat, output_format
from sentcli.model.encoding import Encoded, EncodeStats, LongTextError, OnLong, Progress, RefusedTextError
from sentcli.model.options import LoadOptions
from sentcli.stores.engine import EncodeTexts, Engine, Pending, open_processes, open_thread

AnyBlock = TypeVar("AnyBlock", bound=Block)

if TYPE_CHECKING:
    from sentcli.arrays import AnyArray, Digests, Int64Array, Vectors
    from sentcli.cluster.pool import Pool
    from sentcli.encoder.vector_facts import Passages, VectorFacts
    from sentcli.stores.inputs import Inputs

    WithVectors = tuple[AnyBlock, AnyArray, Counts]
    """Rows with their vectors ``[rows, dim]``, as they are written, and the counts over them."""
    Encode = Callable[[Iterable[AnyBlock], str | None, "StoredTextVectors | None"], Iterator[WithVectors[AnyBlock]]]
    """Yields blocks with their vectors, given the output beside which the spool lies, and what a store knows."""


class StoredTextVectors(Protocol):
    """The vectors that a store has of texts, which are not made again."""

    def encode(
        self, submit: Callable[[Sequence[str]], Pending], texts: Sequence[str], digests: Digests, progress: Progress
    ) -> Pending:
        """Let those texts be encoded that the store does not have; the vectors of the others are any."""

    def completed(
        self, encoded: Iterable[tuple[AnyBlock, Vectors, Counts]]
    ) -> Iterator[tuple[AnyBlock, Vectors, Counts]]:
        """Yield blocks with the tokens of the texts that the store has in their counts."""

    def put_back(self, block: Block, vectors: AnyArray) -> None:
        """Put the stored vectors of a block's texts in the place of its vectors ``[n, dim]``, which are written."""


class RowVectors(Protocol):
    """What gives rows their vectors."""

    encodes: bool
    """Whether a model makes them now."""

    @property
    def dimension(self) -> int:
        """The numbers of each vector, as they are written."""

    @property
    def dtype(self) -> str:
        """Their type, one of `writers.DTYPES`."""

    @property
    def block_rows(self) -> int:
        """The rows that are read together."""

    @property
    def origin(self) -> str:
        """Where they come from, in words."""

    def kept_settings(self, inputs: Inputs, form: OutputFormat) -> dict[str, Any]:
        """Return what an output keeps of how the vectors of its rows were made."""

    def opened(self, progress: Progress) -> AbstractContextManager[Encode[Any]]:
        """Open what makes the vectors of blocks; `progress` is called with the counts of what was encoded."""

    def seconds(self, texts: Sequence[str]) -> float:
        """Return how long texts take, in seconds."""

    def warn_of_cut(self, counts: Counts) -> None:
        """Warn of texts that are longer than the model reads."""


@dataclass(frozen=True)
class EncodeSettings:
    """How rows are encoded."""

    prompt: str = ""
    batch_tokens: int | None = None
    on_long: OnLong = "truncate"
    length_options: str = "--max-length"
    """The options of the command that decide what becomes of long texts, as a warning of them names them."""
    compression: Compression = field(default_factory=Compression)
    passages: Passages | None = None
    """How documents were cut into the rows; None if each row is one."""
    devices: Sequence[str] = ()
    """Several devices have a process each; an empty sequence takes that of the encoder."""
    load: LoadOptions = field(default_factory=LoadOptions)
    """How these processes load the model, each on a device of its own."""
    encode: EncodeTexts | None = None
    """Encodes texts in this process, instead of `SentenceEncoder.encode_distinct`, whose arguments it takes."""
    pool: Pool | None = None
    """Workers on a cluster that make the shards of a directory, if not this process."""

    @property
    def encoding(self) -> dict[str, Any]:
        """The arguments of `SentenceEncoder.encode_distinct`."""
        return {"prompt": self.prompt, "batch_tokens": self.batch_tokens, "on_long": self.on_long}


@dataclass(frozen=True)
class EncodedVectors:
    """Vectors that a model makes of texts."""

    encoder: SentenceEncoder
    settings: EncodeSettings = field(default_factory=EncodeSettings)
    encodes = True

    @classmethod
    def of_documents(
        cls,
        encoder: SentenceEncoder,
        load: LoadOptions,
        doc_prompt: str | None,
        passages: Passages | None,
        pool: Pool | None = None,
    ) -> Self:
        """Return the vectors of documents, which are taken from the cache where it has them, as after ``retrieve``.

        Args:
            encoder: the model.
            load: how it was loaded.
            doc_prompt: the text in front of each document; None takes the model's own.
            passages: how they were cut.
            pool: workers on a cluster, which have no cache.
        """
        from sentcli.stores.cached_encoder import CachedEncoder

        encode = None
        if pool is None:
            encode = CachedEncoder.of(encoder, load).encode_distinct
        prompt = encoder.spec.prompt_of_documents(doc_prompt)
        return cls(encoder, EncodeSettings(prompt, passages=passages, encode=encode, pool=pool))

    @property
    def dimension(self) -> int:
        """The numbers of each vector, after it was made smaller."""
        return self.settings.compression.dimension(self.encoder.dimension)

    @property
    def dtype(self) -> str:
        """Their type, as it is written."""
        return self.settings.compression.dtype

    @property
    def block_rows(self) -> int:
        """The rows that are read together; large batches need more texts of similar length to choose from."""
        return BLOCK_ROWS if self.encoder.backend.device == "cpu" else 65536

    @property
    def origin(self) -> str:
        """Where the model ran, or where its texts were sent."""
        encoder = self.encoder
        if encoder.sent is not None:
            return f"{encoder.model} was sent {encoder.sent}"
        return f"{encoder.backend.name} on {encoder.backend.device}, {encoder.backend.precision}"

    @cached_property
    def facts(self) -> VectorFacts:
        """How the vectors are made."""
        from sentcli.encoder.vector_facts import VectorFacts

        settings = self.settings
        made = (settings.compression, settings.passages, settings.on_long)
        return VectorFacts.of(self.encoder, settings.prompt, *made)

    def kept_settings(self, inputs: Inputs, form: OutputFormat) -> dict[str, Any]:
        """Return everything that decides the vectors of a row and their order."""
        if not form.keeps_settings:
            return {}
        encoder, settings, options = self.encoder, self.settings, inputs.options
        recorded = self.facts.recorded()
        recorded.pop("on_long", None)  # which stands further behind, whatever it is
        kept = {
            **recorded,
            **encoder.describe(),
            "on_long": settings.on_long,
            "batch_tokens": settings.batch_tokens or encoder.backend.default_batch_tokens,
            "block_rows": self.block_rows,
            "text_field": options.text_field,
            "id_field": options.id_field,
            "on_null": options.on_null,
        }
        if options.nulls:
            kept["null"] = list(options.nulls)
        if form is not DIRECTORY:
            kept["inputs"] = inputs.identity()
        return kept

    @contextmanager
    def opened(self, progress: Progress) -> Iterator[Encode[Any]]:
        """Open the engine of the model for the devices of the settings; several devices have a process each."""
        encoder, settings = self.encoder, self.settings
        if len(settings.devices) > 1:
            engine = open_processes(encoder.model, settings.load, settings.devices, settings.encoding, progress)
        else:
            engine = open_thread(settings.encode or encoder.encode_distinct, settings.encoding, progress)
        with engine as running:
            yield partial(_compressed, running, settings, progress)

    def seconds(self, texts: Sequence[str]) -> float:
        """Return how long encoding texts takes, which are encoded for that."""
        began = time.perf_counter()
        self.encoder.encode_distinct(texts, self.settings.prompt)
        return time.perf_counter() - began

    def warn_of_cut(self, counts: Counts) -> None:
        """Warn of texts that are longer than the model reads, and say what became of them."""
        if not counts.truncated:
            return
        fate = f"were cut, {counts.tokens_lost} tokens lost ({self.settings.length_options})"
        if self.settings.on_long == "chunk-mean":
            fate = "are the mean of their pieces"
        limit = self.encoder.spec.max_length
        console.warn(f"{counts.truncated} rows are longer than {limit} tokens and {fate}")


@dataclass(frozen=True)
class GivenVectors:
    """Vectors that are there already."""

    take: Callable[[Int64Array], AnyArray]
    """Returns the vectors of rows by their numbers ``[n, dimension]``."""
    dimension: int
    facts: dict[str, Any]
    """How they were made, as far as it is known."""
    name: str
    """The name of the file that holds them."""
    encodes = False
    block_rows = BLOCK_ROWS

    @cached_property
    def dtype(self) -> str:
        """Their type; what is none of `writers.DTYPES` is written as float32."""
        dtype = str(self.take(np.zeros(1, np.int64)).dtype)
        return dtype if dtype in DTYPES else "float32"

    @property
    def origin(self) -> str:
        """The file that holds them."""
        return f"vectors of {self.name}"

    def kept_settings(self, inputs: Inputs, form: OutputFormat) -> dict[str, Any]:
        """Return how they were made."""
        return self.facts

    def opened(self, progress: Progress) -> AbstractContextManager[Encode[Any]]:
        """Open nothing: they are taken."""
        return nullcontext(partial(self._taken, progress))

    def _taken(
        self,
        progress: Progress,
        blocks: Iterable[AnyBlock],
        output: str | None,
        stored: StoredTextVectors | None,
    ) -> Iterator[WithVectors[AnyBlock]]:
        for block in blocks:
            vectors = self.take(block.numbers).astype(self.dtype, copy=False)
            progress(EncodeStats(texts=len(block)))
            yield block, vectors, Counts(rows=len(block), empty=block.empty)

    def seconds(self, texts: Sequence[str]) -> float:
        """Return 0: nothing is encoded."""
        return 0.0

    def warn_of_cut(self, counts: Counts) -> None:
        """Say nothing: no text was read."""


def write_blocks(
    blocks: Iterable[AnyBlock],
    vectors: RowVectors,
    write: Callable[[AnyBlock, AnyArray, Counts], object],
    output: str | None = None,
    stored: StoredTextVectors | None = None,
    progress: Progress = lambda added: None,
) -> Counts:
    """Give blocks of rows their vectors, and write them in order.

    Args:
        blocks: the rows.
        vectors: gives them their vectors.
        write: takes a block, its vectors as they are written ``[rows, dim]``, and the counts over it.
        output: the path beside which texts that repeat are kept; None takes the temporary folder.
        stored: what a store has of texts already.
        progress: called with the counts of what was encoded, and of rows that repeat a text.

    Returns:
        The counts over all blocks.

    Raises:
        InputError: for a text that is too long, with ``on_long="error"``.
        SentcliError: if the engine fails.
    """
    counts = Counts()
    with vectors.opened(progress) as encode:
        for block, of_block, block_counts in encode(blocks, output, stored):
            write(block, of_block, block_counts)
            counts += block_counts
            progress(EncodeStats(texts=block_counts.duplicates))
    return counts


def advice_on_room(output: str | None) -> str:
    """Return what to do if the disk of an output is full; a directory keeps its finished shards."""
    goes_on = output is not None and output_format(output) is DIRECTORY
    return f"make room{' and go on with --resume' if goes_on else ', then give the same command again'}"


def _compressed(
    engine: Engine,
    settings: EncodeSettings,
    progress: Progress,
    blocks: Iterable[AnyBlock],
    output: str | None,
    stored: StoredTextVectors | None,
) -> Iterator[WithVectors[AnyBlock]]:
    """Yield blocks with their vectors as they are written, in order."""
    encoded: Iterator[Any] = _encoded(engine, settings, progress, blocks, output, stored)
    if stored is None:
        for block, vectors, counts in encoded:
            yield block, settings.compression.apply(vectors), counts
        return
    for block, vectors, counts in stored.completed(encoded):
        written = settings.compression.apply(vectors)
        stored.put_back(block, written)
        yield block, written, counts


@dataclass
class _Underway:
    """A block whose new texts are being encoded."""

    block: Block
    numbers: Int64Array
    """The number of each row's text among the shard's distinct texts ``[rows]``."""
    first: int
    """The number of the first new text."""
    new: list[int]
    """The row that each new text is from."""
    future: Pending


def _encoded(
    engine: Engine,
    settings: EncodeSettings,
    progress: Progress,
    blocks: Iterable[Block],
    output: str | None,
    stored: StoredTextVectors | None,
) -> Iterator[tuple[Block, Vectors, Counts]]:
    """Yield blocks with their vectors and counts in order, while further blocks are read and encoded.

    The vectors of a shard's texts are kept in a temporary file beside the output, whose disk has to have room for them.
    Those of texts that a store has are any.
    """
    underway: deque[_Underway] = deque()
    seen: dict[bytes, int] = {}
    shard: int | None = None
    folder, name = _spool_place(output)
    with (
        room_explained(name, advice_on_room(output)),
        tempfile.TemporaryFile(dir=folder, prefix=".sentcli-spool-") as handle,
    ):
        spool = _Spool(handle)
        for block in blocks:
            if block.shard != shard:
                shard, seen = block.shard, {}
            # only texts that the shard has not had before are encoded; `seen` has their numbers by their hashes
            first = len(seen)
            texts = block.encoded_texts
            keys = block.digests.tolist()
            numbers = np.fromiter((seen.setdefault(key, len(seen)) for key in keys), np.int64, len(block))
            first_rows = np.unique(numbers[numbers >= first], return_index=True)[1]
            new = np.flatnonzero(numbers >= first)[first_rows].tolist()
            new_texts = [texts[row] for row in new]
            if stored is None:
                future = engine.submit(new_texts)
            else:
                future = stored.encode(engine.submit, new_texts, block.digests[new], progress)
            underway.append(_Underway(block, numbers, first, new, future))
            if len(underway) > engine.ahead:
                yield _receive(underway.popleft(), spool, settings)
        while underway:
            yield _receive(underway.popleft(), spool, settings)


def _spool_place(output: str | None) -> tuple[Path | None, str]:
    """Return the folder of the temporary file beside an output, and what messages call it."""
    if output is None or output_format(output) is STDOUT or is_remote(output):
        return None, f"{tempfile.gettempdir()} (a temporary file; TMPDIR names another folder)"
    return Path(output).resolve().parent, f"{output} (a temporary file beside it)"


def _receive(underway: _Underway, spool: _Spool, settings: EncodeSettings) -> tuple[Block, Vectors, Counts]:
    """Wait for the new texts of a block, and return the block with its vectors and counts."""
    block = underway.block
    try:
        texts = underway.future.result()
    except LongTextError as error:
        row = underway.new[error.number]
        name, place = block.places[row]
        advice = "--max-length changes the limit"
        if "--on-long" in settings.length_options:
            advice = f"--on-long truncate or chunk-mean accepts it, {advice}"
        raise InputError(
            f"{name}, row {place} (id {block.ids[row]}): its text has {error.tokens} tokens, more than {error.limit} "
            f"({advice})"
        ) from error
    except RefusedTextError as error:
        row = underway.new[error.number]
        name, place = block.places[row]
        raise SentcliError(f"{name}, row {place} (id {block.ids[row]}): {error.problem}") from error
    except BrokenExecutor as error:
        raise SentcliError("a process that encodes has died, perhaps for lack of memory") from error
    vectors, excess_tokens = spool.recall(underway.numbers, underway.first, texts)
    counts = Counts(
        rows=len(block),
        empty=block.empty,
        duplicates=len(block) - len(underway.new),
        truncated=int(np.count_nonzero(excess_tokens)),
        tokens_lost=0 if settings.on_long == "chunk-mean" else int(excess_tokens.sum()),
        tokens=texts.tokens,
    )
    return block, vectors, counts


class _Spool:
    """The vectors of the distinct texts of a shard, kept on disk for rows that repeat one of these texts."""

    def __init__(self, handle: IO[bytes]) -> None:
        self.handle = handle
        self.excess_tokens = array("q")

    def recall(self, numbers: Int64Array, first: int, texts: Encoded) -> tuple[Vectors, Int64Array]:
        """Keep the vectors of new texts, and return the vectors of all rows of a block.

        Args:
            numbers: the number of each row's text ``[rows]``.
            first: the number of the first new text.
            texts: the new texts, encoded.

        Returns:
            The vectors ``[rows, dim]``, and the numbers of tokens beyond the maximum length ``[rows]``.
        """
        if first == 0:  # another shard begins
            self.handle.seek(0)
            self.handle.truncate()
            self.excess_tokens = array("q")
        width = texts.vectors.shape[1]
        vectors = np.empty((len(numbers), width), np.float32)
        is_new = numbers >= first
        vectors[is_new] = texts.vectors[numbers[is_new] - first]
        for row in np.flatnonzero(~is_new):
            self.handle.seek(int(numbers[row]) * width * 4)
            vectors[row] = np.frombuffer(self.handle.read(width * 4), np.float32)
        self.handle.seek(0, 2)
        self.handle.write(texts.vectors.data)
        self.excess_tokens.extend(texts.excess_tokens.tolist())
        return vectors, np.array(self.excess_tokens, np.int64)[numbers]
