"""Cut documents at headings, and each part where a model's reading may end: paragraphs, else sentences, else words.

A section is cut by itself, or stays whole with all that are below it where they fit together. Tables and blocks of code
are cut between their lines, code at blank lines first, and a passage that begins among the rows of a table has its
header row above them. A document is tokenised once. The passages of a section are runs of its tokens: each begins where
the one before ends, or some tokens before that, and every character of the document is in one of them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np

from sentcli.arrays import Int64Array
from sentcli.errors import InputError
from sentcli.io.pages import LOWEST, Heading, PageLayout, RowBlock, TextSection
from sentcli.model.tokenizing import TextTokenizer, without_surrogates

PARAGRAPH = re.compile(r"\n[^\S\n]*\n\s*")
SENTENCE_END = re.compile(r"[.!?؟۔।]['\")\]”’»]*\s+|[。！？][」』”’）]*\s*")
_LINE = re.compile(r"\n\s*")
_WORD = re.compile(r"\s+")
SEGMENT = 100_000
"""Characters that are tokenised at a time; the tokenizer would take minutes for a text of many megabytes."""
NO_PAGE = PageLayout()
NO_HEADER = (0, 0)
FULL = 0.5
"""A passage that is not the last of its section is at least this full, if a word ends in the rest of it."""


@dataclass(frozen=True)
class Span:
    """A passage of a document: its characters from `start` to before `end`."""

    start: int
    end: int
    path: tuple[Heading, ...] = ()
    """The headings above its text, the highest first; of sections that are joined those above the first."""
    header: tuple[int, int] = NO_HEADER
    """The characters of the header row of the table among whose rows it begins; none if it begins elsewhere."""

    def text_in(self, document: str) -> str:
        """Return the text of the passage, below the header row that it needs."""
        return document[slice(*self.header)] + document[self.start : self.end]


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

    def cut(self, text: str, page: PageLayout = NO_PAGE, reserved: int = 0) -> list[Span]:
        """Return the passages of a document, in order.

        Args:
            text: the document.
            page: its sections, which are cut by themselves, and what has rows; empty if it is no page.
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
        sections = page.sections or [TextSection(0, len(text), 0, LOWEST)]
        if len(starts) <= most and len(sections) == 1:
            return [Span(0, len(text), sections[0].path)]

        def fits(start: int, end: int) -> bool:
            first, behind = np.searchsorted(starts, (start, end))
            return bool(behind - first <= most) and self.length(text[start:end]) <= most

        lines = _RowBlocks(page.rows)
        headers = _Headers(page.rows, [self._header_tokens(rows, text, most) for rows in page.rows])
        places = _Places(text, starts, lines, headers, most, self.overlap)
        spans: list[Span] = []
        for part in parts(sections, fits):
            first, last = np.searchsorted(starts, (part.start, part.end)).tolist()
            for whole in places.spans(part, first, last):
                for span in self._fitting(text, whole, most, part.body, headers):
                    _add(spans, replace(span, path=part.path))
        return spans

    def length(self, text: str) -> int:
        """Return how many tokens a text has, special tokens not counted."""
        return len(self._token_starts(text))

    def _token_starts(self, text: str) -> Int64Array:
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

    def _header_tokens(self, rows: RowBlock, text: str, most: int) -> int:
        """Return the tokens of the header row of a table; 0 if it has none, or one that leaves too little for rows."""
        if not rows.is_table:
            return 0
        tokens = self.length(text[rows.start : rows.first])
        if tokens + self.overlap > most // 2:
            return 0
        return tokens

    def _fitting(self, text: str, span: Span, most: int, body: int, headers: _Headers) -> Iterator[Span]:
        """Yield a passage, or its halves if it has more tokens by itself than it had as a part of the document."""
        if span.end - span.start < 2 or self.length(span.text_in(text)) <= most:
            yield span
            return
        begin = span.start
        if begin < body < span.end - 1:  # a heading keeps some of its text
            begin = body
        middle = begin + _near_middle(text[begin : span.end])
        yield from self._fitting(text, replace(span, end=middle), most, body, headers)
        header, _ = headers.above(middle)
        yield from self._fitting(text, Span(middle, span.end, header=header), most, body, headers)


class _RowBlocks:
    """Tables and blocks of code, inside of which only the beginnings of their lines are places to cut."""

    def __init__(self, rows: Sequence[RowBlock]) -> None:
        bounds = np.array([(part.start, part.first, part.last, part.end) for part in rows], np.int64)
        self.starts, self.first, self.last, self.ends = bounds.reshape(-1, 4).T

    def divide(self, characters: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return those of some characters that are outside of all, and those that may begin a line inside of one."""
        if not len(self.starts):
            return characters, characters[:0]
        number = np.searchsorted(self.starts, characters) - 1  # the last that begins before it
        is_inside = (number >= 0) & (characters < self.ends[number])
        begins_line = is_inside & (self.first[number] < characters) & (characters <= self.last[number])
        return characters[~is_inside], characters[begins_line]


class _Headers:
    """The header rows of tables."""

    def __init__(self, rows: Sequence[RowBlock], tokens: Sequence[int]) -> None:
        self.rows, self.tokens = rows, tokens

    def above(self, character: int) -> tuple[tuple[int, int], int]:
        """Return the characters and tokens of the header row that a passage needs that begins at a character."""
        number = bisect_right(self.rows, character, key=attrgetter("start")) - 1
        if number < 0 or not self.tokens[number]:
            return NO_HEADER, 0
        rows = self.rows[number]
        if not rows.first <= character < rows.end:
            return NO_HEADER, 0
        return (rows.start, rows.first), self.tokens[number]


class _Places:
    """Where passages may end, as numbers of tokens, the best kind of place first."""

    def __init__(
        self, text: str, starts: Int64Array, lines: _RowBlocks, headers: _Headers, most: int, overlap: int
    ) -> None:
        self.starts = _behind_blanks(text, starts)
        self.headers, self.most, self.overlap = headers, most, overlap
        _, first_tokens = np.unique(self.starts, return_index=True)  # several tokens may be of one character
        characters = np.append(self.starts[first_tokens], len(text))
        words = _ends(_WORD, text)
        outside, whole_lines = lines.divide(_ends(_LINE, text))
        sentences = np.append(lines.divide(_ends(SENTENCE_END, text))[0], whole_lines)
        paragraphs = np.concatenate(lines.divide(_ends(PARAGRAPH, text)))
        ends = [paragraphs, sentences, np.append(outside, whole_lines), words]
        self.kinds = [*map(self._numbers, ends), np.append(first_tokens, len(starts))]
        self.overlaps = []
        for kind in (words, characters):
            self.overlaps.append(self._numbers(np.append(lines.divide(kind)[0], whole_lines)))
        self.begins = self._with_blanks(text, whole_lines)

    def _numbers(self, characters: Int64Array) -> Int64Array:
        """Return the numbers of the tokens that begin at or behind some characters."""
        return np.unique(np.searchsorted(self.starts, characters))

    def _with_blanks(self, text: str, whole_lines: Int64Array) -> Int64Array:
        """Return where a passage begins that begins with each token ``[tokens]``: with the blanks before code."""
        begins = self.starts.copy()
        for character in whole_lines.tolist():
            tokens = slice(*np.searchsorted(self.starts, (character, character + 1)))
            begins[tokens] = text.rindex("\n", 0, character) + 1
        return begins

    def spans(self, part: TextSection, first: int, last: int) -> Iterator[Span]:
        """Yield the passages of a part of the document, whose tokens are those from `first` to before `last`."""
        body = int(np.searchsorted(self.starts, part.body))
        end, start = first, part.start
        while True:
            header, taken = self.headers.above(start)
            most = self.most - taken
            least = max(end, first + int(most * FULL))
            if body < first + most:
                least = max(least, body)  # the heading does not stand alone
            end = self._last(least, first + most, last)
            if end == last:
                yield Span(start, part.end, header=header)
                return
            yield Span(start, int(self.begins[end]), header=header)
            first = self._first(max(first + 1, body), end)
            start = int(self.begins[first])

    def _last(self, least: int, most: int, last: int) -> int:
        """Return the last of the best places behind one and not behind another; `last` if it is not behind that."""
        if most >= last:
            return last
        for kind in self.kinds:
            number = int(np.searchsorted(kind, most, "right")) - 1
            if number >= 0 and kind[number] > least:
                return int(kind[number])
        characters = self.kinds[-1]
        return min(int(characters[np.searchsorted(characters, least, "right")]), last)

    def _first(self, least: int, end: int) -> int:
        """Return where the next passage begins: at the end of one, or at a word, character or line that both have."""
        if not self.overlap:
            return end
        for kind in self.overlaps:
            number = int(np.searchsorted(kind, max(end - self.overlap, least)))
            if number < len(kind) and kind[number] < end:
                return int(kind[number])
        return end


def parts(sections: Sequence[TextSection], fits: Callable[[int, int], bool]) -> Iterator[TextSection]:
    """Yield what is cut by itself: sections, each joined with all below it where they fit together.

    Args:
        sections: of the document, in order.
        fits: tells whether the text between two characters fits in a passage.

    Yields:
        Sections from the first to the last character of what is joined. Where all does not fit, a heading that has no
        text of its own is joined with the first one below it, of which `body` and `path` are.
    """
    place = 0
    while place < len(sections):
        first, behind = _reach(sections, place, fits)
        yield replace(sections[first], start=sections[place].start, end=sections[behind - 1].end)
        place = behind


def _reach(sections: Sequence[TextSection], place: int, fits: Callable[[int, int], bool]) -> tuple[int, int]:
    """Return what is joined from a section on.

    Returns:
        The number of the first section that has text, or is joined with all below it, and of the first that is not
        joined with them.
    """
    start = sections[place].start
    while True:
        section = sections[place]
        behind = place + 1
        while behind < len(sections) and sections[behind].level > section.level:
            behind += 1
        has_none_below = behind == place + 1
        if has_none_below or fits(start, sections[behind - 1].end):
            return place, behind
        below = sections[place + 1]
        is_bare = section.body == section.end
        if not is_bare or not fits(start, min(below.body + 1, below.end)):
            return place, place + 1
        place += 1


def _add(spans: list[Span], span: Span) -> None:
    """Append a passage, unless the last one holds it; those that it holds are left out."""
    if spans and span.end <= spans[-1].end:
        return
    while spans and span.start <= spans[-1].start:
        spans.pop()
    spans.append(span)


def _behind_blanks(text: str, starts: Int64Array) -> Int64Array:
    """Return where tokens begin ``[tokens]`` without the blanks in front, which some tokenizers count to the word."""
    ends = _ends(_WORD, text)
    if not len(ends):
        return starts
    begins = np.fromiter((match.start() for match in _WORD.finditer(text)), np.int64, len(ends))
    blank = np.searchsorted(begins, starts, "right") - 1
    is_in_blank = (blank >= 0) & (starts < ends[blank])
    return np.where(is_in_blank, ends[blank], starts)


def _ends(pattern: re.Pattern[str], text: str) -> Int64Array:
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
