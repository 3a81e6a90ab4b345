"""Training text: sentences from files, and batches of them in a seeded order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sentcli.encoder.checkpoint import file_digest
from sentcli.errors import InputError
from sentcli.io.readers import ReadOptions, rows
from sentcli.io.sources import open_source
from sentcli.methods.settings import steps_per_epoch

if TYPE_CHECKING:
    from sentcli.encoder.tokenizing import TextTokenizer, Tokens


@dataclass(frozen=True)
class Corpus:
    """Sentences to train on."""

    sentences: list[str]
    files: tuple[dict[str, object], ...]
    """Name, SHA-256 and number of sentences taken, of each file."""
    blank: int
    """Rows left out because they hold nothing but white space."""


def read_corpus(files: Sequence[str], *, text_field: str = "text", limit: int | None = None) -> Corpus:
    """Read sentences, one a line or one a row of a table.

    Args:
        files: paths as `open_source` takes them.
        text_field: column of a table.
        limit: stop after this many sentences.

    Raises:
        DataError: as the readers; InputError if there is no sentence at all.
    """
    sentences: list[str] = []
    described: list[dict[str, object]] = []
    blank = 0
    for name in files:
        source = open_source(name)
        before = len(sentences)
        for row in rows(source, ReadOptions(text_field=text_field)):
            if limit is not None and len(sentences) == limit:
                break
            if row is None or not row.text.strip():
                blank += 1
            else:
                sentences.append(row.text)
        taken = len(sentences) - before
        described.append({"file": Path(name).name, "sha256": file_digest(source.path), "sentences": taken})
    if not sentences:
        raise InputError(f"no sentence to train on in {', '.join(files)}")
    return Corpus(sentences, tuple(described), blank)


def batch_order(sentences: int, batch_size: int, seed: int) -> Iterator[list[int]]:
    """Yield batches of row numbers without end; every epoch is a new permutation that depends on the seed alone."""
    per_epoch = steps_per_epoch(sentences, batch_size)
    for epoch in range(2**31):
        order = np.random.default_rng([seed, epoch]).permutation(sentences).tolist()
        for step in range(per_epoch):
            yield order[step * batch_size : (step + 1) * batch_size]


def tokenised_batches(
    sentences: Sequence[str], tokenizer: TextTokenizer, batches: Iterator[list[int]], steps: int
) -> Iterator[Tokens]:
    """Yield `steps` tokenised batches, each made while the one before is trained on."""
    with ThreadPoolExecutor(1, thread_name_prefix="tokenise") as pool:
        waiting = [pool.submit(tokenizer, [sentences[i] for i in next(batches)])]
        for step in range(steps):
            tokens = waiting.pop().result()
            if step + 1 < steps:
                waiting.append(pool.submit(tokenizer, [sentences[i] for i in next(batches)]))
            yield tokens
