"""Cut documents into passages that a model reads whole: at headings, else paragraphs, else sentences, else words.

A document is tokenised once. Its passages are runs of its tokens: each begins where the one before ends, or some tokens
before that, and every character of the document is in one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sentcli.errors import DataError, InputError
from sentcli.io.pages import Heading, headings, is_markdown, path_at
from sentcli.io.row_batch import RowBatch
from sentcli.model.tokenizing import TextTokenizer, without_surrogates

Context = Literal["none", "title", "headings"]
"""What is put in front of a passage when it is encoded: nothing, the title of its document, or that and the headings
above it."""
COLUMNS = ("document", "passage", "start", "end", "heading")
"""The columns of passages: the id of the document, the number of the passage in it, from 0, its characters in the text
of the document, and the headings above it."""
TITLES = ("title", "headline", "heading", "subject", "name")
"""The columns that may hold the title of a document, in any case."""
BETWEEN_HEADINGS = " > "
ID = "id"

Integers = npt.NDArray[np.int64]
PARAGRAPH = re.compile(r"\n[^\S\n]*\n\s*")
SENTENCE = re.compile(r"[.!?؟۔।]['\")\]”’»]*\s+|[。！？][」』”’）]*\s*")
LINE = re.compile(r"\n\s*")
WORD = re.compile(r"\s+")
SEGMENT = 100_000
"""Characters that are tokenised at a time; the tokenizer would take minutes for a text of many megabytes."""
FULL = 0.5
"""A passage that is not the last is at least this full, if a word ends in the rest of it."""


def title_column(names: Iterable[str]) -> str | None:
    """Return the column that holds the titles of documents, or None."""
    by_name = {name.lower(): name for name in names}
    return next((by_name[title] for title in TITLES if title in by_name), None)


def context_of(title: str, path: str, context: Context) -> str:
    """Return what is put in front of a passage, with the end of its line; empty if there is nothing.

    Args:
        title: of the document.
        path: the headings above the passage, joined by `BETWEEN_HEADINGS`.
        context: which of them are taken.
    """
    if context == "none":
        return ""
    if context == "headings" and path:
        has_title = not title or path == title or path.startswith(f"{title}{BETWEEN_HEADINGS}")
        return f"{path}\n" if has_title else f"{title}{BETWEEN_HEADINGS}{path}\n"
    return f"{title}\n" if title else ""


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
        boundaries += [_ends(pattern, text) for pattern in (PARAGRAPH, SENTENCE, LINE, WORD)]
        places = _Places(starts, boundaries, most, self.overlap)
        spans: list[Span] = []
        for first, end in places.runs():
            begins = int(starts[first]) if first else 0
            ends = int(starts[end]) if end < len(starts) else len(text)
            for span in self._fitting(text, Span(begins, ends), most):
                _add(spans, span)
        return spans

    def length(self, text: str) -> int:
        """Return how many tokens a text has, special tokens not counted."""
        return len(self._token_starts(text))

    def _token_starts(self, text: str) -> Integers:
        """Return the character at which each token begins ``[tokens]``; several may begin at one."""
        text = without_surrogates(text)
        found = [np.empty(0, np.int64)]
        for begin, segment in _segments(text):
            encoding = self.tokenizer.backend.encode(segment)
            for piece in (encoding, *encoding.overflowing):
                is_special = np.array(piece.special_tokens_mask, bool)
                offsets = np.array(piece.offsets, np.int64).reshape(-1, 2)
                found.append(offsets[~is_special, 0] + begin)
        return np.concatenate(found)

    def _fitting(self, text: str, span: Span, most: int) -> Iterator[Span]:
        """Yield a passage, or its halves if it has more tokens by itself than it had as a part of the document."""
        part = text[span.start : span.end]
        if len(part) < 2 or len(self._token_starts(part)) <= most:
            yield span
            return
        middle = span.start + _near_middle(part)
        yield from self._fitting(text, Span(span.start, middle), most)
        yield from self._fitting(text, Span(middle, span.end), most)


@dataclass(frozen=True)
class PassageRows:
    """Makes passages of documents: rows with the columns of their document and `COLUMNS`.

    Args:
        cutter: cuts the texts.
        context: what will be put in front of each, which counts as tokens of it.
    """

    cutter: Cutter
    context: Context = "none"

    def __call__(self, documents: RowBatch, first_number: int) -> RowBatch:
        """Return the passages of some documents, in order.

        Args:
            documents: as they were read.
            first_number: the number of the first document, for ids that are numbers.

        Raises:
            DataError: for a document whose columns have a name of `COLUMNS`, or whose context takes all tokens.
        """
        source = documents.source
        with_headings = source.format == "page" and is_markdown(source.path)
        taken = [name for name in documents.names() if name in COLUMNS]
        if taken:
            raise DataError(source.name, f"column {taken[0]!r} is one that passages have: rename it in the input")
        titles = self._titles(documents)
        records: list[dict[str, Any]] = []
        contexts: list[str] = []
        rows: list[int] = []
        for row, text in enumerate(documents.texts):
            page_headings = headings(text) if with_headings else []
            key = None if documents.ids is None else documents.ids[row]
            document = str(first_number + documents.places[row]) if key is None else key
            try:
                passages = self._passages(text, titles[row], page_headings)
            except InputError as error:
                raise source.error(f"document {document!r}: {error}", documents.lines[row]) from None
            columns = documents.records[row]
            for number, (span, path) in enumerate(passages):
                own = (document, number, span.start, span.end, path or None)
                records.append(
                    {
                        **columns,
                        **dict(zip(COLUMNS, own, strict=True)),
                        documents.text_field: text[span.start : span.end],
                        ID: f"{document}#{number}",
                    }
                )
                contexts.append(context_of(titles[row], path, self.context))
                rows.append(row)
        if documents.id_field not in (None, ID):
            for record in records:
                record.pop(documents.id_field, None)
        return replace(
            documents,
            id_field=ID,
            places=[documents.places[row] for row in rows],
            lines=[documents.lines[row] for row in rows],
            texts=[record[documents.text_field] for record in records],
            ids=[record[ID] for record in records],
            records=records,
            without_text=frozenset(),
            contexts=contexts,
            cut_from=documents,
            made=frozenset(COLUMNS),
        )

    def _titles(self, documents: RowBatch) -> list[str]:
        """Return the title of each document; empty where it has none."""
        name = title_column(documents.names())
        if name is None or self.context == "none":
            return [""] * len(documents)
        return [value.strip() if isinstance(value, str) else "" for value in documents.column(name)]

    def _passages(self, text: str, title: str, page_headings: Sequence[Heading]) -> list[tuple[Span, str]]:
        """Return the passages of a document with the headings above each."""
        contexts = {context_of(title, "", self.context)}
        for heading in page_headings:
            contexts.add(context_of(title, _joined(path_at(page_headings, heading.start)), self.context))
        reserved = max(map(self.cutter.length, contexts))
        spans = self.cutter.cut(text, [heading.start for heading in page_headings], reserved)
        return [(span, _joined(path_at(page_headings, span.start))) for span in spans]


def _joined(path: Sequence[Heading]) -> str:
    return BETWEEN_HEADINGS.join(heading.words for heading in path)


class _Places:
    """Where passages may end, as numbers of tokens, the best kind of place first."""

    def __init__(self, starts: Integers, boundaries: Sequence[Integers], most: int, overlap: int) -> None:
        self.count, self.most, self.overlap = len(starts), most, overlap
        self.kinds = [np.unique(np.searchsorted(starts, characters)) for characters in boundaries]
        characters = np.unique(starts, return_index=True)[1]  # several tokens may be of one character
        self.kinds.append(np.append(characters, self.count))

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
    blanks = [match.span() for match in WORD.finditer(text)]
    if not blanks:
        return starts
    begins, ends = np.array(blanks, np.int64).T
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
    return blank + 1 if blank > 0 else max(middle, 1)
