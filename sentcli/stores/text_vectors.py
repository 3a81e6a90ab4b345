"""The vectors of distinct texts, which tasks look up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sentcli.arrays import AnyArray, Int64Array
from sentcli.model.encoding import Encoded
from sentcli.search.neighbours import require_finite


@dataclass(frozen=True)
class TextVectors:
    """The vectors of distinct texts."""

    rows: dict[str, int]
    """The row of each text in `vectors`."""
    vectors: AnyArray
    """``[texts, dim]``."""
    excess_tokens: Int64Array
    """The number of tokens of each text beyond the model's maximum length ``[texts]``."""

    def __post_init__(self) -> None:
        require_finite(self.vectors)

    @classmethod
    def joined(cls, parts: Sequence[tuple[Sequence[str], Encoded]]) -> TextVectors:
        """Return distinct texts with their vectors, which come in parts."""
        rows: dict[str, int] = {}
        for texts, _ in parts:
            for text in texts:
                rows[text] = len(rows)
        if len(parts) == 1:  # which is not copied
            _, encoded = parts[0]
            return cls(rows, encoded.vectors, encoded.excess_tokens)
        vectors = np.concatenate([encoded.vectors for _, encoded in parts])
        excess_tokens = np.concatenate([encoded.excess_tokens for _, encoded in parts])
        return cls(rows, vectors, excess_tokens)

    def rows_of(self, texts: Iterable[str]) -> Int64Array:
        """Return the rows of texts, which may repeat ``[n]``."""
        return np.array([self.rows[text] for text in texts], np.int64)

    def vectors_of(self, texts: Sequence[str]) -> AnyArray:
        """Return the vectors of texts, which may repeat ``[n, dim]``."""
        return self.vectors[self.rows_of(texts)]

    def truncated(self, texts: Iterable[str]) -> int:
        """Count the distinct texts that are longer than the model's maximum length."""
        return int(np.count_nonzero(self.excess_tokens[self.rows_of(set(texts))]))

    def zero(self, texts: Sequence[str]) -> int:
        """Count the texts, with repetitions, whose vector is zero; their similarity to any other is 0."""
        has_numbers = self.vectors_of(texts).any(axis=1)
        return int((~has_numbers).sum())


NO_VECTORS = TextVectors({}, np.empty((0, 0)), np.empty(0, np.int64))
