"""Cut documents where a model's reading of them may end: at headings, else paragraphs, else sentences, else words.

A document is tokenised once. Its parts are runs of its tokens: each begins where the one before ends, or some tokens
before that, and every character of the document is in one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sentcli.errors import InputError
from sentcli.model.tokenizing import TextTokenizer, without_surrogates

Integers = npt.NDArray[np.int64]
PARAGRAPH = re.compile(r"\n[^\S\n]*\n\s*")
SENTENCE = re.compile(r"[.!?؟۔।]['\")\]”’»]*\s+|[。！？][」』”’）]*\s*")
LINE = re.compile(r"\n\s*")
WORD = re.compile(r"\s+")
SEGMENT = 100_000
"""Characters that are tokenised at a time; the tokenizer would take minutes for a text of many megabytes."""
FULL = 0.5
"""A passage that is not the last is at least this full, if a word ends in the rest of it."""


@dataclass(frozen=True)
class Span:
    """A passage of a document: its characters from `start` to before `end`."""

    start: int
    end: int


@dataclass(frozen=True)
class Cutter:
    """Cuts documents into passages of at most so many tokens.

    Args:
        tokenizer: of the model.
        tokens: the most tokens of a passage, special tokens not counted.
        overlap: the tokens at the end of a passage that the next one has, too.

    Raises:
        InputError: if the overlap is more than half of the tokens.
    """

    tokenizer: TextTokenizer
    tokens: int
    overlap: int = 0

    def __post_init__(self) -> None:
        """Refuse passages that would hardly get on."""
        if self.overlap * 2 > self.tokens:
            raise InputError(f"--overlap {self.overlap} is more than half of the {self.tokens} tokens of a passage")

    def cut(self, text: str, headings: Sequence[int] = (), reserved: int = 0) -> list[Span]:
        """Return the passages of a document, in order.

        Args:
            text: the document.
            headings: the characters at which headings begin.
            reserved: tokens of each passage that are left for what is put in front of it.

        Raises:
            InputError: if that leaves less than the overlap needs.
        """
        most = self.tokens - reserved
        if most <= 0 or self.overlap * 2 > most:
            raise InputError(
                f"what is put in front of its passages takes {reserved} of {self.tokens} tokens; give more "
                "--passage-tokens, less --overlap, or --context none"
            )
        starts = self._token_starts(text)
        if len(starts) <= most:
            return [Span(0, len(text))]
        starts = _behind_blanks(text, starts)
        boundaries = [np.array(headings, np.int64)]
        for pattern in (PARAGRAPH, SENTENCE, LINE, WORD):
            boundaries.append(_ends(pattern, text))
        borders = np.append(starts, len(text))
        borders[0] = 0
        spans: list[Span] = []
        for first, end in _Places(starts, boundaries, most, self.overlap).runs():
            whole = Span(int(borders[first]), int(borders[end]))
            for span in self._fitting(text, whole, most):
                _add(spans, span)
        return spans

    def length(self, text: str) -> int:
        """Return how many tokens a text has, special tokens not counted."""
        return len(self._token_starts(text))

    def _token_starts(self, text: str) -> Integers:
        """Return the character at which each token begins ``[tokens]``, in order; several may begin at one."""
        text = without_surrogates(text)
        found = [np.empty(0, np.int64)]
        for begin, segment in _segments(text):
            encoding = self.tokenizer.backend.encode(segment)
            for piece in (encoding, *encoding.overflowing):
                is_special = np.array(piece.special_tokens_mask, bool)
                offsets = np.array(piece.offsets, np.int64).reshape(-1, 2)
                found.append(offsets[~is_special, 0] + begin)
        return np.sort(np.concatenate(found))  # a tokenizer that cuts on the left gives the last piece first

    def _fitting(self, text: str, span: Span, most: int) -> Iterator[Span]:
        """Yield a passage, or its halves if it has more tokens by itself than it had as a part of the document."""
        part = text[span.start : span.end]
        if len(part) < 2 or len(self._token_starts(part)) <= most:
            yield span
            return
        middle = span.start + _near_middle(part)
        yield from self._fitting(text, Span(span.start, middle), most)
        yield from self._fitting(text, Span(middle, span.end), most)


class _Places:
    """Where passages may end, as numbers of tokens, the best kind of place first."""

    def __init__(self, starts: Integers, boundaries: Sequence[Integers], most: int, overlap: int) -> None:
        self.count, self.most, self.overlap = len(starts), most, overlap
        self.kinds: list[Integers] = []
        for characters in boundaries:
            places = np.searchsorted(starts, characters)
            self.kinds.append(np.unique(places))
        _, first_tokens = np.unique(starts, return_index=True)  # several tokens may be of one character
        self.kinds.append(np.append(first_tokens, self.count))

    def runs(self) -> Iterator[tuple[int, int]]:
        """Yield the first token of each passage, and the one behind its last."""
        first = end = 0
        while end < self.count:
            least = max(end, first + int(self.most * FULL))
            end = self._last(least, first + self.most)
            yield first, end
            first = self._first(first, end)

    def _last(self, least: int, most: int) -> int:
        """Return the last of the best places behind one and not behind another."""
        if most >= self.count:
            return self.count
        for kind in self.kinds:
            number = int(np.searchsorted(kind, most, "right")) - 1
            if number >= 0 and kind[number] > least:
                return int(kind[number])
        characters = self.kinds[-1]
        return int(characters[np.searchsorted(characters, least, "right")])

    def _first(self, before: int, end: int) -> int:
        """Return where the next passage begins: at its end, or at a word or character that both have."""
        if not self.overlap or end == self.count:
            return end
        for kind in self.kinds[-2:]:
            number = int(np.searchsorted(kind, max(end - self.overlap, before + 1)))
            if number < len(kind) and kind[number] < end:
                return int(kind[number])
        return end


def _add(spans: list[Span], span: Span) -> None:
    """Append a passage, unless the last one holds it; one that it holds is left out."""
    if spans and span.end <= spans[-1].end:
        return
    if spans and span.start <= spans[-1].start:
        spans.pop()
    spans.append(span)


def _behind_blanks(text: str, starts: Integers) -> Integers:
    """Return where tokens begin ``[tokens]`` without the blanks in front, which some tokenizers count to the word."""
    ends = _ends(WORD, text)
    if not len(ends):
        return starts
    begins = np.fromiter((match.start() for match in WORD.finditer(text)), np.int64, len(ends))
    blank = np.searchsorted(begins, starts, "right") - 1
    is_in_blank = (blank >= 0) & (starts < ends[blank])
    return np.where(is_in_blank, ends[blank], starts)


def _ends(pattern: re.Pattern[str], text: str) -> Integers:
    """Return the characters behind each match of a pattern."""
    return np.array([match.end() for match in pattern.finditer(text)], np.int64)


def _segments(text: str) -> Iterator[tuple[int, str]]:
    """Yield the parts of a text that are tokenised, each with its first character; they end at ends of lines."""
    begin = 0
    while len(text) - begin > SEGMENT:
        end = text.rfind("\n", begin, begin + SEGMENT) + 1
        if end <= begin:
            end = text.rfind(" ", begin, begin + SEGMENT) + 1
        if end <= begin:
            end = begin + SEGMENT
        yield begin, text[begin:end]
        begin = end
    yield begin, text[begin:]


def _near_middle(text: str) -> int:
    """Return a place near the middle of a text, behind a blank if there is one."""
    middle = len(text) // 2
    blank = text.rfind(" ", 1, middle)
    if blank > 0:
        return blank + 1
    return max(middle, 1)
