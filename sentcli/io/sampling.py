"""Samples of texts that are read one after the other, the same each time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from heapq import heappush, heappushpop
from typing import Generic, TypeVar

import numpy as np

Facts = TypeVar("Facts")


@dataclass(frozen=True)
class TextSample:
    """How many of some distinct texts were taken; its fields are a part of a protocol."""

    texts: int
    of: int
    """The number of all distinct texts."""
    seed: int

    @property
    def words(self) -> str:
        """The numbers for a note or a page."""
        if self.texts == self.of:
            return f"{self.of:,} distinct texts"
        return f"{self.texts:,} of {self.of:,} distinct texts (drawn with seed {self.seed})"


@dataclass
class DistinctTexts(Generic[Facts]):
    """The distinct ones of some texts, of which a sample is kept.

    A sample has the texts with the lowest keyed hashes. So it is the same for the same texts and seed, whatever their
    order and however often each comes; and of each text, but for 8 bytes, only what is kept is in memory.
    """

    limit: int | None
    """The greatest number of texts that are kept; None keeps all."""
    seed: int
    texts: dict[str, Facts] = field(default_factory=dict)
    """The facts that came with the first occurrence of each text that is kept."""
    seen: set[int] = field(default_factory=set)
    """The hashes of all texts."""
    highest: list[tuple[int, str]] = field(default_factory=list)
    """A heap of negated hashes and texts of those that are kept."""

    def add(self, text: str, facts: Facts) -> None:
        """Take a text with what is to be known of it; a text that came before is left out."""
        key = str(self.seed).encode()[:64]
        number = int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8, key=key).digest())
        if number in self.seen:
            return
        self.seen.add(number)
        if self.limit is None or len(self.texts) < self.limit:
            self.texts[text] = facts
            heappush(self.highest, (-number, text))
            return
        _, left_out = heappushpop(self.highest, (-number, text))
        if left_out != text:
            del self.texts[left_out]
            self.texts[text] = facts

    @property
    def sample(self) -> TextSample:
        """The numbers of texts, with the seed."""
        return TextSample(len(self.texts), len(self.seen), self.seed)


def reservoir_sample(texts: Iterable[str], count: int) -> tuple[list[str], int]:
    """Draw at most `count` of some texts, the same each time, and count all of them (Vitter's algorithm R)."""
    random = np.random.default_rng(0)
    sample: list[str] = []
    seen = 0
    for text in texts:
        seen += 1
        if seen <= count:
            sample.append(text)
            continue
        place = int(random.integers(0, seen))
        if place < count:
            sample[place] = text
    return sample, seen
