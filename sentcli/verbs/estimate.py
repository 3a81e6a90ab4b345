"""What encoding a corpus will take: measured on a sample of its rows, before anything is written."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli import console
from sentcli.errors import InputError, SentcliError
from sentcli.io.served import Served
from sentcli.machine import threads
from sentcli.model.options import LoadOptions
from sentcli.table import Table
from sentcli.verbs.result import Result
from sentcli.waiting import busy_note

if TYPE_CHECKING:
    from sentcli.bulk import Inputs
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.smaller import Smaller

Prompt = tuple[str | None, str | None]
SAMPLE = 500
"""Rows that are encoded to measure."""
LEAST_SECONDS, LEAST_PASSES, MOST_PASSES = 3.0, 2, 4
"""The sample is encoded again until so many seconds have passed; the fastest pass counts, as in `evaluate`."""


@dataclass(frozen=True)
class Estimate:
    """What one model takes in one precision."""

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


def sample_rows(files: Inputs, shard_rows: int) -> tuple[list[str], int]:
    """Read all rows once, and return some of the texts that are encoded, at random, and the number of all of them.

    Of texts that are equal within a shard the first one is encoded. At most `SAMPLE` are drawn.
    """
    from sentcli.io.readers import blocks
    from sentcli.io.sampling import drawn

    def encoded(progress: Callable[[int], object]) -> Iterator[str]:
        shard, seen = -1, set[int]()
        for block in blocks(files.sources, files.options, shard_rows=shard_rows):
            if block.shard != shard:
                shard, seen = block.shard, set()
            for text in block.texts:
                if hash(text) not in seen:
                    seen.add(hash(text))
                    yield text
            progress(len(block))

    with console.counting("reading", files.survey.rows) as progress:
        return drawn(encoded(progress), SAMPLE)


def estimate(
    models: Sequence[str], options: LoadOptions, files: Inputs, shard_rows: int, smaller: Smaller, prompt: Prompt
) -> Result:
    """Return what encoding takes with each model, in the precision that is asked for, else in fp32 and int8.

    Args:
        models: their names.
        options: how they are loaded.
        files: the corpus, which has been checked.
        shard_rows: the rows of a shard, within which equal texts are encoded once.
        smaller: how vectors are made smaller.
        prompt: the name of one of the model's prompts, and the text in front of each row; see `prompt_text`.

    Raises:
        InputError: for a model that is served, or a corpus without texts.
    """
    for served in filter(None, map(Served.parse, models)):
        raise served.lacks("--estimate, which measures this machine")
    texts, encoded = sample_rows(files, shard_rows)
    if not texts:
        raise InputError("no row has a text: there is nothing to estimate")
    counts = {"rows": files.survey.rows, "distinct": encoded, "duplicates": files.survey.rows - encoded}
    result = Result("encode", ", ".join(models), {"estimate": True, "sample": len(texts), **smaller.protocol()})
    estimates: list[Estimate] = []
    busy = busy_note(threads())
    for model in models:
        for precision in ("fp32", "int8") if options.precision == "auto" and options.on_cpu else (options.precision,):
            try:
                load = replace(options, precision=precision)
                estimates.append(_measure(model, load, texts, counts, smaller, prompt))
            except SentcliError as error:
                if precision != "int8" or options.precision != "auto":
                    raise
                console.note(f"{model}: no int8 here ({error})")
    result.ran_on(estimates[0].device, None)
    notes = [
        f"{counts['rows']:,} rows, of which {counts['duplicates']:,} repeat another one and are not encoded again; "
        f"measured on {len(texts):,} of them, on this machine as it is busy now. Nothing was written."
    ]
    if busy is not None:
        notes.append(f"{busy.capitalize()}.")
    models_json = [asdict(entry) for entry in estimates]
    return result.finish({**counts, "models": models_json}, [_table(estimates, notes)])


def _measure(
    model: str, options: LoadOptions, texts: Sequence[str], counts: dict[str, int], smaller: Smaller, prompt: Prompt
) -> Estimate:
    from sentcli.encoder.announce import load_encoder

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
    return Estimate(
        model=model,
        backend=encoder.backend.name,
        device=encoder.backend.device,
        precision=encoder.backend.precision,
        dimension=smaller.truncate_dim or encoder.dimension,
        tokens_per_text=float(tokens.lengths.mean()),
        cut_rows=float((tokens.beyond > 0).mean()),
        texts_per_second=speed,
        load_seconds=loaded,
        seconds=loaded + counts["distinct"] / speed,
        bytes=smaller.dimension(encoder.dimension) * np.dtype(smaller.dtype).itemsize * counts["rows"],
    )


def _table(estimates: Sequence[Estimate], notes: list[str]) -> Table:
    rows: list[list[Any]] = []
    for e in estimates:
        row = [e.model, e.precision, e.dimension, e.tokens_per_text, 100 * e.cut_rows, e.texts_per_second]
        rows.append([*row, console.duration(e.seconds), f"{e.bytes / 1e6:,.1f} MB"])
    columns = ["model", "precision", "dimensions", "tokens a text", "% cut", "texts a second", "time", "vectors"]
    formats = {"tokens a text": ".1f", "% cut": ".1f", "texts a second": ",.0f"}
    return Table("What encoding takes", columns, rows, formats=formats, notes=notes)
