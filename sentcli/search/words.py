"""How BM25 cuts texts into words, also of scripts that set no blanks between them.

Words are runs of two or more word characters. A run of Chinese, Japanese, Thai, Lao, Burmese or Khmer is a phrase and
no word, so its signs and its pairs of neighbouring signs stand for words (Kwok, "Comparing Representations in Chinese
Information Retrieval", SIGIR 1997). A text without such a run is cut as before.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Literal

Analyzer = Literal["words", "words+pairs"]
"""``words`` is that of indexes that were built before there were pairs of signs."""
PAIRS: Analyzer = "words+pairs"
UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f"
    r"\U00020000-\U0003ffff"
)
"""Thai, Lao, Burmese, Khmer, Japanese and Chinese, which have no blanks between words."""
MARKS = "".join(sign for sign in map(chr, range(0x300, 0x10000)) if unicodedata.category(sign).startswith("M"))
"""Signs that belong to the letter before them, such as vowels of Hindi, which are not in ``\\w``."""
SIGN = rf"(?=\w)[{UNSPACED}][{MARKS}]*"
WORD = r"(?u)\b\w\w+\b"
"""The pattern of bm25s."""
TOKEN = rf"(?u)(?:{SIGN}){{1,2}}|\b\w\w+\b"
"""The pattern of words, and of the signs and pairs of signs that `in_pairs` separates."""
_SIGN = re.compile(SIGN)
_RUN = re.compile(rf"(?:{SIGN})+")


def is_unspaced(text: str) -> bool:
    """Tell whether a text has a sign of a script without blanks between words."""
    return _SIGN.search(text) is not None


def in_pairs(texts: Iterable[str]) -> Iterator[str]:
    """Yield texts with blanks between the signs, and the pairs of signs, of each run without blanks."""
    for text in texts:
        if text.isascii():
            yield text
        else:
            yield _RUN.sub(_separated, text)


def _separated(run: re.Match[str]) -> str:
    signs = _SIGN.findall(run[0])
    pairs = map("".join, pairwise(signs))
    separated = " ".join([*signs, *pairs])
    return f" {separated} "
