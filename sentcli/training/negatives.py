"""The negatives of rows that have fewer than others, or none: as many for all, drawn with the seed of the run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, cycle, islice
from typing import Any

import numpy as np

from sentcli.errors import InputError

NEGATIVES_STREAM = 2**31 + 2
"""Sets the random numbers that draw negatives apart from those of order, views and subsets."""


def fill_negatives(rows_of_files: Sequence[list[tuple[Any, ...]]], count: int, seed: int) -> tuple[str, ...]:
    """Give each row of anchor, positive and negatives as many negatives as there are columns, and say what was drawn.

    A group of training has one size in FlagEmbedding (`train_group_size`): a row with fewer negatives has some of its
    own several times (``FlagEmbedding/abc/finetune/embedder/AbsDataset.py``), and for one without any its documentation
    advises to draw texts of the corpus, which are the positives and negatives of all rows here. It draws anew for each
    step, and here a row keeps what was drawn.

    Args:
        rows_of_files: the rows of each file, which are changed.
        count: the number of negatives.
        seed: of the run.

    Raises:
        InputError: if a row has no negative, and there is no text of another row.
    """
    generator = np.random.default_rng([seed, NEGATIVES_STREAM])
    pool: dict[str, None] = {}
    positives: dict[str, set[str]] = defaultdict(set)
    for anchor, positive, *negatives in chain.from_iterable(rows_of_files):
        pool.update(dict.fromkeys((positive, *negatives)))
        positives[anchor].add(positive)
    texts = list(pool)
    fewer = 0
    none = 0
    for rows in rows_of_files:
        for number, (anchor, positive, *negatives) in enumerate(rows):
            missing = count - len(negatives)
            if not missing:
                continue
            if negatives:
                fewer += 1
                repeats = np.resize(generator.permutation(len(negatives)), missing)
                added = [negatives[repeat] for repeat in repeats]
            else:
                none += 1
                added = _drawn(texts, {anchor, *positives[anchor]}, missing, generator)
            rows[number] = (anchor, positive, *negatives, *added)
    notes = []
    if fewer:
        notes.append(f"{fewer:,} rows have fewer than {count} negatives: some of theirs count several times")
    if none:
        notes.append(f"{none:,} rows have no negative: texts of other rows were drawn for them")
    return tuple(notes)


def _drawn(texts: Sequence[str], left_out: set[str], count: int, generator: np.random.Generator) -> list[str]:
    """Return texts that were drawn, each once if there are enough of them.

    Raises:
        InputError: if all of them are left out.
    """
    drawn: dict[str, None] = {}
    few = len(texts) <= 4 * (count + len(left_out))
    numbers: Iterable[int] = generator.permutation(len(texts)) if few else _without_end(len(texts), generator)
    for number in numbers:
        if texts[number] not in left_out:
            drawn[texts[number]] = None
        if len(drawn) == count:
            break
    if not drawn:
        raise InputError("a row has no negative, and there is no other text that could be drawn for it")
    return list(islice(cycle(drawn), count))


def _without_end(total: int, generator: np.random.Generator) -> Iterator[int]:
    """Yield random numbers below `total`: of many texts a few are drawn more quickly than all are put into an order."""
    while True:
        yield int(generator.integers(total))
