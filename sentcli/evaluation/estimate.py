"""The time and the space that encoding a corpus will take, measured on a sample before anything is written."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli import console
from sentcli.errors import InputError, SentcliError
from sentcli.io.served import Served
from sentcli.machine import threads
from sentcli.model.options import LoadOptions, Precision
from sentcli.remaining import duration
from sentcli.table import Table
from sentcli.waiting import busy_note

if TYPE_CHECKING:
    from sentcli.compression import Compression
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.stores.inputs import Inputs

Prompt = tuple[str | None, str | None]
_SAMPLE_ROWS = 500
"""Rows that are encoded to measure."""
LEAST_SECONDS = 3.0
"""The sample is encoded again until so many seconds have passed; the fastest pass counts, as in `evaluate`."""
LEAST_PASSES = 2
MOST_PASSES = 4
WEIGHED = 8
"""One of so many blocks of rows is written, to see how large the files of rows become."""


@dataclass(frozen=True)
class Estimate:
    """The time and the space that encoding a corpus takes with one model in one precision."""

    model: str
    backend: str
    device: str
    precision: str
    dimension: int
    tokens_per_text: float
    """On average, of texts that are cut to the maximum length."""
    cut_rows: float
    """The share of texts that are longer than the maximum length."""
    texts_per_second: float
    load_seconds: float
    seconds: float
    """The time of the whole corpus, with loading the model."""
    bytes: int
    """The size of all vectors."""
    index_bytes: dict[str, int]
    """The size of an index of each kind over them that this corpus is large enough for, in bytes."""


@dataclass(frozen=True)
class CorpusSample:
    """Some texts and the sizes of a corpus, from reading it once."""

    texts: list[str]
    """A random sample of the texts that are encoded."""
    distinct: int
    """The number of all texts that are encoded; texts that are equal within a shard are encoded once."""
    rows_bytes: int
    """The size of the ids, texts and other columns as `encode` keeps them beside the vectors."""


def read_sample(files: Inputs, shard_rows: int) -> CorpusSample:
    """Read all rows once, draw at most `_SAMPLE_ROWS` texts, and write some blocks of rows to a temporary file."""
    from sentcli.io.sampling import reservoir_sample
    from sentcli.io.writers import OutputPlan, parquet_writer

    survey = files.survey
    weighed = 0
    plan = OutputPlan(survey.rows, 0, survey.column_types)

    def encoded(progress: Callable[[int], object], weigh: Callable[..., None]) -> Iterator[str]:
        nonlocal weighed
        shard = -1
        hashes = set[int]()  # of the texts of the shard so far
        for number, block in enumerate(files.blocks(shard_rows=shard_rows)):
            if number % WEIGHED == 0:
                weigh(block, np.empty((len(block), 0)))
                weighed += len(block)
            if block.shard != shard:
                shard = block.shard
                hashes = set()
            for text in block.encoded_texts:
                if hash(text) not in hashes:
                    hashes.add(hash(text))
                    yield text
            progress(len(block))

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rows.parquet")
        with (
            parquet_writer(file, plan, with_vectors=False) as weigh,
            console.counting("reading", survey.rows) as progress,
        ):
            texts, distinct = reservoir_sample(encoded(progress, weigh), _SAMPLE_ROWS)
        rows_bytes = file.stat().st_size * survey.rows / max(weighed, 1)
        return CorpusSample(texts, distinct, round(rows_bytes))


@dataclass(frozen=True)
class Estimates:
    """The estimates of several models for one corpus."""

    models: Sequence[Estimate]
    sample: CorpusSample
    rows: int
    shard_rows: int
    """The rows of a shard, within which equal texts are encoded once."""
    busy: str | None
    """A sentence that says that the machine is busy with something else; None if it is not."""

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of rows and of distinct texts of the corpus, and the size of its rows in bytes."""
        distinct = self.sample.distinct
        return {
            "rows": self.rows,
            "distinct": distinct,
            "duplicates": self.rows - distinct,
            "rows_bytes": self.sample.rows_bytes,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the results as JSON."""
        return {**self.counts, "models": [asdict(entry) for entry in self.models]}

    def tables(self) -> list[Table]:
        """Return what encoding takes, and what an index takes besides where one is worth it."""
        repeated = self.rows - self.sample.distinct
        size = len(self.sample.texts)
        notes = [
            f"{self.rows:,} rows, of which {repeated:,} repeat another one of the same {self.shard_rows:,} and are not "
            f"encoded again; measured on {size:,} of them, on this machine as it is busy now. Nothing was written.",
            f"A directory has about {_megabytes(self.sample.rows_bytes)} of ids, texts and other columns besides; "
            "a .parquet has the same in one file, somewhat compressed.",
        ]
        if self.busy is not None:
            notes.append(f"{self.busy.capitalize()}.")
        rows: list[dict[str, Any]] = []
        of_indexes: dict[str, dict[str, int]] = {}  # by model, of which the precision changes nothing
        kinds: dict[str, int] = {}
        for estimate in self.models:
            row = {
                "model": estimate.model,
                "precision": estimate.precision,
                "dimensions": estimate.dimension,
                "tokens a text": estimate.tokens_per_text,
                "% cut": 100 * estimate.cut_rows,
                "texts a second": estimate.texts_per_second,
                "time": duration(estimate.seconds),
                "vectors": _megabytes(estimate.bytes),
            }
            rows.append(row)
            of_indexes[estimate.model] = estimate.index_bytes
            kinds |= estimate.index_bytes
        formats = {"tokens a text": ".1f", "% cut": ".1f", "texts a second": ",.0f"}
        tables = [Table.of_rows("What encoding takes", rows, formats=formats, notes=notes)]
        if kinds:
            index_rows = []
            for model, sizes in of_indexes.items():
                index_rows.append([model, *map(_megabytes, map(sizes.__getitem__, kinds))])
            note = "sentcli index DIR --type TYPE builds it."
            tables.append(Table("An index takes besides", ["model", *kinds], index_rows, notes=[note]))
        return tables


def estimate_encoding(
    models: Sequence[str],
    options: LoadOptions,
    files: Inputs,
    shard_rows: int,
    compression: Compression,
    prompt: Prompt,
) -> Estimates:
    """Return what encoding takes with each model, in the precision that is asked for, else in fp32 and int8.

    Args:
        models: their names.
        options: how they are loaded.
        files: the corpus, which has been checked.
        shard_rows: the rows of a shard, within which equal texts are encoded once.
        compression: how vectors are made smaller.
        prompt: the name of one of the model's prompts, and the text in front of each row; see `prompt_text`.

    Raises:
        InputError: for a model that is served, or a corpus without texts.
    """
    for model in models:
        served = Served.parse(model)
        if served is not None:
            raise served.lacks("--estimate, which measures this machine")
    sample = read_sample(files, shard_rows)
    if not sample.texts:
        raise InputError("no row has a text: there is nothing to estimate")
    corpus = Estimates([], sample, files.survey.rows, shard_rows, busy_note(threads()))
    precisions: Sequence[Precision] = [options.precision]
    if options.precision == "auto" and options.on_cpu:
        precisions = ["fp32", "int8"]
    estimates = []
    for model in models:
        for precision in precisions:
            load = replace(options, precision=precision)
            try:
                estimates.append(_measure(model, load, sample.texts, corpus.counts, compression, prompt))
            except SentcliError as error:
                if precision != "int8" or options.precision != "auto":
                    raise
                console.note(f"{model}: no int8 here ({error})")
    return replace(corpus, models=estimates)


def _measure(
    model: str,
    options: LoadOptions,
    texts: Sequence[str],
    counts: dict[str, int],
    compression: Compression,
    prompt: Prompt,
) -> Estimate:
    from sentcli.encoder import load_encoder
    from sentcli.search import ann

    load_encoder(model, options)  # an export that has to be made first is kept
    started = time.perf_counter()
    encoder: SentenceEncoder = load_encoder(model, options)
    loaded = time.perf_counter() - started
    front = encoder.prompt_text(*prompt)
    tokens = encoder.tokenizer([front + text for text in texts])
    passes: list[float] = []
    encoder.encode_distinct(texts[:8], front)
    while len(passes) < LEAST_PASSES or (sum(passes) < LEAST_SECONDS and len(passes) < MOST_PASSES):
        started = time.perf_counter()
        encoder.encode_distinct(texts, front)
        passes.append(time.perf_counter() - started)
    speed = len(texts) / min(passes)
    dimension = compression.dimension(encoder.dimension)
    vector_bytes = dimension * np.dtype(compression.dtype).itemsize
    index_bytes = {}
    if compression.output_type != "binary":
        for kind in ann.KINDS:
            with suppress(SentcliError):  # there are too few rows for it, or faiss is not installed
                index_bytes[kind] = ann.index_bytes(kind, counts["rows"], dimension)
        index_bytes.pop(ann.FLAT, None)  # it is the vectors themselves
    return Estimate(
        model=model,
        backend=encoder.backend.name,
        device=encoder.backend.device,
        precision=encoder.backend.precision,
        dimension=compression.truncate_dim or encoder.dimension,
        tokens_per_text=float(tokens.lengths.mean()),
        cut_rows=float((tokens.excess_tokens > 0).mean()),
        texts_per_second=speed,
        load_seconds=loaded,
        seconds=loaded + counts["distinct"] / speed,
        bytes=vector_bytes * counts["rows"],
        index_bytes=index_bytes,
    )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
