"""Training text: sentences and pairs from files, and subsets of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sentcli.errors import InputError
from sentcli.io.digests import file_digest
from sentcli.io.readers import ReadOptions
from sentcli.io.sources import open_source
from sentcli.io.texts import TextCollector

SUBSET_STREAM = 2**31 + 1
"""Sets the random numbers that draw a subset apart from those of order and views."""


@dataclass(frozen=True)
class Subset:
    """Which rows of the data are trained on."""

    limit: int | None = None
    """How many; None takes all."""
    fraction: float | None = None
    """How many, as a share of all, at least one."""
    seed: int | None = None
    """Draws them at random, a smaller subset always part of a larger; None takes the first."""

    def __post_init__(self) -> None:
        """Refuse what is no number of rows."""
        for name, value in (("limit", self.limit), ("subset_seed", self.seed)):
            if value is not None and (type(value) is not int or value < (name == "limit")):
                raise InputError(f"{name} {value!r}: expected a whole number, at least {int(name == 'limit')}")
        if self.fraction is not None and not (isinstance(self.fraction, (int, float)) and 0 < self.fraction <= 1):
            raise InputError(f"fraction {self.fraction!r}: expected a share above 0, at most 1")

    @property
    def read_limit(self) -> int | None:
        """After how many rows reading may stop."""
        return self.limit if self.seed is None and self.fraction is None else None

    def rows(self, count: int) -> npt.NDArray[np.int64]:
        """Return the chosen row numbers, in the order of the data."""
        wanted = count if self.fraction is None else max(1, round(self.fraction * count))
        wanted = min(wanted, count if self.limit is None else self.limit)
        if self.seed is None or wanted == count:
            return np.arange(min(wanted, count))
        return np.sort(np.random.default_rng([self.seed, SUBSET_STREAM]).permutation(count)[:wanted])


@dataclass(frozen=True)
class Corpus:
    """Sentences to train on."""

    sentences: Sequence[str]
    """Of pairs, the first sentences."""
    files: tuple[dict[str, object], ...]
    """Name, SHA-256 and number of sentences taken, of each file."""
    blank: int
    """Rows left out because they hold nothing but white space."""
    partners: list[str] | None = None
    """Of pairs, the second sentences."""
    scores: list[float] | None = None
    """Of pairs, between 0 and 1."""


def read_corpus(files: Sequence[str], *, text_field: str = "text", subset: Subset | None = None) -> Corpus:
    """Read sentences, one a line or one a row of a table.

    Args:
        files: paths as `open_source` takes them.
        text_field: column of a table.
        subset: which of the sentences.

    Raises:
        DataError: as the readers; InputError if there is no sentence at all.
    """
    subset = subset or Subset()
    collector = TextCollector(ReadOptions(text_field=text_field), subset.read_limit)
    taken, sources = [], [open_source(name) for name in files]
    for source in sources:
        taken.append(collector.read(source))
    texts = collector.texts()
    if not texts:
        raise InputError(f"no sentence to train on in {', '.join(files)}")
    chosen = subset.rows(len(texts))
    about = described([(Path(n).name, s.path) for n, s in zip(files, sources, strict=True)], taken, chosen)
    return Corpus(texts if len(chosen) == len(texts) else texts.select(chosen), about, collector.blank)


def described(
    files: list[tuple[str, Path]], taken: list[int], chosen: npt.NDArray[np.int64]
) -> tuple[dict[str, object], ...]:
    """Describe the files, given how many rows came from each and which of all rows were chosen."""
    counts = np.histogram(chosen, np.cumsum([0, *taken]))[0].tolist()
    return tuple(
        {"file": name, "sha256": file_digest(path), "sentences": count}
        for (name, path), count in zip(files, counts, strict=True)
    )
