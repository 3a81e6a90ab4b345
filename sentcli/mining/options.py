"""The options of mining, declared once for flags and for the function over texts and vectors."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Le

from sentcli.bounds import Flag, Holds
from sentcli.errors import InputError
from sentcli.model.spec import Similarity

Way = Literal["dense", "bm25", "rrf"]


@dataclass(frozen=True)
class MiningOptions:
    """Which documents become the negatives of a query.

    Attributes:
        search: How candidates are found: dense (exact search with the model), bm25, or rrf, both fused by rank.
        ranks: The candidates, by their ranks from 1 among the documents that are no known positive.
        below: A negative's score is below this share of the positive's, both by the model.
        apart: A negative's cosine with the positive is below the same share of the query's cosine with it.
        near: Cosine with a positive from which a document is its near copy and no negative.
        negatives: Negatives of each row.
        language: Language of bm25: english, or another that Snowball stems, or none.
        similarity: Similarity of query and document: cosine or dot; default: what the model's folder says, else cosine.
    """

    search: Way = "dense"
    ranks: Annotated[str, Holds.WORDS, Flag(metavar="A-B")] = "10-50"
    below: Annotated[float, Ge(0), Le(1), Flag(metavar="X")] = 0.95
    apart: bool = True
    near: Annotated[float, Ge(0), Le(1), Flag(metavar="COSINE")] = 0.9
    negatives: Annotated[int, Ge(1), Flag(metavar="N")] = 5
    language: Annotated[str | None, Flag(needs="search=bm25 search=rrf")] = None
    similarity: Similarity | None = None

    def __post_init__(self) -> None:
        """Check what has no bound of its own.

        Raises:
            InputError: for ranks that are none, or a share of 0, below which no score of a positive leaves a negative.
        """
        if not 0 < self.below <= 1:
            raise InputError(f"--below {self.below:g}: give a share of the positive's score above 0 and up to 1")
        _ = self.rank_bounds

    @property
    def rank_bounds(self) -> tuple[int, int]:
        """The first and the last rank, counted from 1.

        Raises:
            InputError: if they cannot be read, the first is below 1, or the last is below the first.
        """
        match = re.fullmatch(r"\s*(\d{1,9})\s*-\s*(\d{1,9})\s*", self.ranks, re.ASCII)
        if match is None:
            raise InputError(f"--ranks {self.ranks}: give the first and the last rank, such as 10-50")
        first, last = map(int, match.groups())
        if first < 1:
            raise InputError(f"--ranks {self.ranks}: ranks are counted from 1")
        if last < first:
            raise InputError(f"--ranks {self.ranks}: the last rank is before the first; give {last}-{first}")
        return first, last

    @property
    def by_words(self) -> bool:
        """Whether words are searched for."""
        return self.search != "dense"
