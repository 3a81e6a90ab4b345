"""What the words of a text are: of a document, of a query, of a kept index and of a collection alike.

A text is normalised first: compatible signs are one sign (NFKC), case is folded, and signs that nobody sees inside a
word, such as soft hyphens, are gone. Words are runs of two or more word characters with the marks that belong to them.
A run of Chinese, Japanese, Thai, Lao, Burmese or Khmer is a phrase and no word, so its signs and its pairs of
neighbouring signs stand for words (Kwok, "Comparing Representations in Chinese Information Retrieval", SIGIR 1997).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Literal

Analyzer = Literal["words", "words+pairs", "folded"]
"""``words`` is that of indexes that were built before there were pairs of signs, ``words+pairs`` that of indexes that
were built before texts were normalised; they are searched as they were built."""
FOLDED: Analyzer = "folded"
UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f"
    r"\U00020000-\U0003ffff"
)
"""Thai, Lao, Burmese, Khmer, Japanese and Chinese, which have no blanks between words."""
MARKS = "".join(sign for sign in map(chr, range(0x300, 0x10000)) if unicodedata.category(sign).startswith("M"))
"""Signs that belong to the letter before them, such as vowels of Hindi, which are not in ``\\w``."""
SIGN = rf"(?=\w)[{UNSPACED}][{MARKS}]*"
_PAIRS = rf"(?u)(?:{SIGN}){{1,2}}|"
PATTERNS: dict[Analyzer, str] = {
    "words": r"(?u)\b\w\w+\b",
    "words+pairs": rf"{_PAIRS}\b\w\w+\b",
    "folded": rf"{_PAIRS}\w[\w{MARKS}]+",
}
"""The pattern of the words of each analyzer; the first one is that of bm25s."""
UNSEEN = dict.fromkeys(map(ord, "\u00ad\u034f\u2060\ufe0e\ufe0f\ufeff"))
"""Signs inside words that only say how they are set: soft hyphens, joiners of words, variants of a sign."""
_DOTTED = re.compile("i\u0307+")
"""What the folding of case makes of the Turkish capital with a dot."""
_SIGN = re.compile(SIGN)
_RUN = re.compile(rf"(?:{SIGN})+")


def is_unspaced(text: str) -> bool:
    """Tell whether a text has a sign of a script without blanks between words."""
    return _SIGN.search(text) is not None


def folded(text: str) -> str:
    """Return a text as it is compared: compatible signs are one sign, case is folded, and unseen signs are gone."""
    if text.isascii():
        return text.lower()
    compatible = unicodedata.normalize("NFKC", text.translate(UNSEEN))
    lower = _DOTTED.sub("i", compatible.casefold())
    return unicodedata.normalize("NFKC", lower)


def plain(text: str) -> str:
    """Return a text as copies are told: those of one text differ in case, blanks, compatible and unseen signs alone."""
    return " ".join(folded(text).split())


def separated(texts: Iterable[str], analyzer: Analyzer) -> Iterator[str]:
    """Yield texts in which the pattern of an analyzer finds the words."""
    for text in texts:
        if analyzer == FOLDED:
            text = folded(text)
        if analyzer != "words" and not text.isascii():
            text = _RUN.sub(_in_pairs, text)
        yield text


def _in_pairs(run: re.Match[str]) -> str:
    """Return a run without blanks as its signs and its pairs of signs, with blanks between them."""
    signs = _SIGN.findall(run[0])
    pairs = map("".join, pairwise(signs))
    words = " ".join([*signs, *pairs])
    return f" {words} "
