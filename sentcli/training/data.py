"""Training text: sentences from files, and batches of them in a seeded order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli.encoder.checkpoint import file_digest
from sentcli.errors import DataError, InputError
from sentcli.evaluation import sts
from sentcli.io.readers import ReadOptions, rows
from sentcli.io.sources import open_source, records
from sentcli.methods.settings import steps_per_epoch

if TYPE_CHECKING:
    from sentcli.encoder.tokenizing import TextTokenizer, Tokens
    from sentcli.methods.views import Texts, ViewMaker

PAIR_COLUMNS = ("sentence1", "sentence2", "score")
HIGHEST_SCORE = 5.0
"""Of STS-B."""
VIEW_STREAM = 2**31
"""Sets the random numbers of the views apart from those of the order, whose second key is the epoch."""


@dataclass(frozen=True)
class Corpus:
    """Sentences to train on."""

    sentences: list[str]
    """Of pairs, the first sentences."""
    files: tuple[dict[str, object], ...]
    """Name, SHA-256 and number of sentences taken, of each file."""
    blank: int
    """Rows left out because they hold nothing but white space."""
    partners: list[str] | None = None
    """Of pairs, the second sentences."""
    scores: list[float] | None = None
    """Of pairs, between 0 and 1."""


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


def read_pairs(files: Sequence[str], *, limit: int | None = None) -> Corpus:
    """Read scored pairs of sentences.

    Args:
        files: a SentEval ``data/downstream`` folder, whose STS-B training set is read; SentEval's ``sts-train.csv``
            itself; or tables with the columns ``sentence1``, ``sentence2`` and ``score`` (0 to 5).
        limit: stop after this many pairs.

    Raises:
        InputError: if there is no pair, a column is missing, or a score is not between 0 and 5.
    """
    first: list[str] = []
    second: list[str] = []
    gold: list[float] = []
    described: list[dict[str, object]] = []
    for name in files:
        before = len(first)
        path, pairs = _pairs(name)
        for row, (one, two, score) in enumerate(pairs, 1):
            if limit is not None and len(first) == limit:
                break
            if not 0 <= score <= HIGHEST_SCORE:
                raise DataError(name, f"score {score} is not between 0 and {HIGHEST_SCORE:g}", line=row, unit="pair")
            first.append(one)
            second.append(two)
            gold.append(score / HIGHEST_SCORE)
        described.append({"file": path.name, "sha256": file_digest(path), "sentences": len(first) - before})
    if not first:
        raise InputError(f"no pair to train on in {', '.join(files)}")
    return Corpus(first, tuple(described), 0, second, gold)


def _pairs(name: str) -> tuple[Path, Iterator[tuple[str, str, float]]]:
    """Return the file that a name means, and its pairs."""
    path = Path(name)
    if path.is_dir() or path.name == sts.STSB_TRAIN.name:
        path = path / sts.STSB_TRAIN if path.is_dir() else path
        columns = sts.read_stsb(path)
        return path, zip(columns.first, columns.second, columns.gold.tolist(), strict=True)
    source = open_source(name)
    return source.path, (_pair(record, name, line) for line, record in records(source))


def _pair(record: dict[str, Any], name: str, line: int) -> tuple[str, str, float]:
    one, two, score = (record.get(key) for key in PAIR_COLUMNS)
    if not isinstance(one, str) or not isinstance(two, str) or score is None:
        found = ", ".join(record)
        raise DataError(name, f"pairs need the columns {', '.join(PAIR_COLUMNS)}; this row has {found}", line=line)
    try:
        return one, two, float(score)
    except (TypeError, ValueError) as error:
        raise DataError(name, f"the score {score!r} is not a number", line=line) from error


def batch_order(sentences: int, batch_size: int, seed: int, least: int = 2) -> Iterator[list[int]]:
    """Yield batches of row numbers without end; every epoch is a new permutation that depends on the seed alone.

    The last batch of an epoch is left out if it has fewer than `least` rows.
    """
    per_epoch = steps_per_epoch(sentences, batch_size, least)
    for epoch in range(2**31):
        order = np.random.default_rng([seed, epoch]).permutation(sentences).tolist()
        for step in range(per_epoch):
            yield order[step * batch_size : (step + 1) * batch_size]


@dataclass(frozen=True)
class Batch:
    """One batch of B rows, tokenised."""

    views: list[Tokens]
    """B texts a view; a single one stands for all views."""
    texts: Texts


def tokenised_batches(
    corpus: Corpus,
    tokenizer: TextTokenizer,
    batches: Iterator[list[int]],
    steps: int,
    views: ViewMaker,
    seed: int = 0,
) -> Iterator[Batch]:
    """Yield `steps` tokenised batches, each made while the one before is trained on."""

    def make(step: int, rows: list[int]) -> Batch:
        texts = views.texts(rows, corpus, np.random.default_rng([seed, VIEW_STREAM, step]))
        return Batch([tokenizer(view) for view in texts.views], texts)

    with ThreadPoolExecutor(1, thread_name_prefix="tokenise") as pool:
        waiting = [pool.submit(make, 0, next(batches))]
        for step in range(steps):
            batch = waiting.pop().result()
            if step + 1 < steps:
                waiting.append(pool.submit(make, step + 1, next(batches)))
            yield batch
