"""BM25 search with the scores of Lucene, through bm25s.

A document's score is the sum over the query's words of idf * tf / (tf + k1 * (1 - b + b * length / mean length)), with
idf = ln(1 + (N - n + 0.5) / (n + 0.5)) (Robertson and Zaragoza, 2009, in the variant that Kamphuis et al., ECIR 2020,
call Lucene's). The words of a text are those of `words`, without stop words, stemmed by Snowball.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Le
from pydantic import BaseModel, RootModel

from sentcli import console
from sentcli.arrays import BoolArray, Float32Array, Int64Array
from sentcli.errors import DataError, InputError, nearest, one_line, required
from sentcli.io.atomic import regular
from sentcli.io.forms import Declared, read_json_form
from sentcli.io.writers import mapped_array
from sentcli.search.neighbours import Neighbours
from sentcli.search.words import FOLDED, PATTERNS, Analyzer, is_unspaced, separated

K1 = 1.2
B = 0.75
LANGUAGE = "english"
FACTS = "bm25.json"
"""The file that `BM25.save` writes last."""
NO_LANGUAGE = "none"
_LISTS = (
    "danish", "dutch", "english", "french", "german", "italian", "norwegian", "portuguese", "russian", "spanish",
    "swedish", "turkish",
)  # fmt: skip
STOP_WORDS = {**{name: name for name in _LISTS}, "porter": "english", "dutch_porter": "dutch"}
"""The list of bm25s for each algorithm of PyStemmer; the other languages keep all their words."""
BATCH_QUERIES = 1024
"""How many queries are split into words at a time."""


@dataclass(frozen=True)
class WordsRecord:
    """The content of the file `FACTS`."""

    rows: Annotated[int, Ge(0)]
    words: Annotated[int, Ge(0)]
    language: str
    k1: Annotated[float, Ge(0), Le(1e9)]
    b: Annotated[float, Ge(0), Le(1)]
    analyzer: Analyzer = "words"


class BM25Settings(BaseModel, extra="forbid"):
    """What bm25s reads of its settings, as it writes them for an index of Lucene's scores."""

    num_docs: Annotated[int, Ge(0)]
    k1: float
    b: float
    delta: float
    dtype: Literal["float32"]
    int_dtype: Literal["int32"]
    method: Literal["lucene"]
    idf_method: Literal["lucene"]
    backend: Literal["numpy"]
    version: str = ""


class BM25Vocabulary(RootModel[dict[str, Annotated[int, Ge(0)]]]):
    """The number of each word."""


ARRAYS = {"data.csc.index.npy": "f", "indices.csc.index.npy": "i", "indptr.csc.index.npy": "i"}
"""The arrays of bm25s, with NumPy's letters of fractions and whole numbers."""


class BM25:
    """A BM25 index; `build` makes one, and `open` reads one that `save` wrote."""

    def __init__(self, index: Any, rows: int, k1: float, b: float, language: str, analyzer: Analyzer = FOLDED) -> None:
        self._index = index
        """The index of bm25s; None if no document has a word."""
        self._rows = rows
        self.k1 = k1
        self.b = b
        self.language = language
        self.analyzer = analyzer

    def __len__(self) -> int:
        return self._rows

    @classmethod
    def build(cls, texts: Iterable[str], *, k1: float = K1, b: float = B, language: str = LANGUAGE) -> BM25:
        """Index documents; they may be empty, and there may be none.

        Args:
            texts: the text of each document.
            k1: how much repetitions of a word count; 0 counts a word once.
            b: how much the length of a document counts, from 0 to 1.
            language: an algorithm of PyStemmer, or ``none``, which neither stems nor leaves out stop words.

        Raises:
            InputError: for an unknown language, or parameters out of their bounds.
            MissingExtraError: if bm25s or PyStemmer is not installed.
        """
        if not (math.isfinite(k1) and k1 >= 0 and 0 <= b <= 1):
            raise InputError(f"BM25 with k1 {k1} and b {b}: k1 must be 0 or more, and b lie between 0 and 1")
        words = _tokenized(texts, language)
        rows = len(words.ids)
        index = None
        if words.vocab:
            index = require_bm25s().BM25(k1=k1, b=b, method="lucene", backend="numpy")
            in_alphabet = _in_alphabet(words.ids, words.vocab)
            index.index(in_alphabet, create_empty_token=False, show_progress=False)
        return cls(index, rows, k1, b, language)

    def search(self, queries: Sequence[str], k: int, mask: BoolArray | None = None) -> Neighbours:
        """Return the best documents of each query; of equal scores, the first document comes first.

        Args:
            queries: their texts.
            k: the number of documents.
            mask: the documents that may be found ``[documents]``; None stands for all. Their scores do not change.

        Returns:
            ``[queries, min(k, documents)]``, with position -1 and score 0 where fewer documents share a word with the
            query.
        """
        k = min(k, len(self))
        positions = np.full((len(queries), k), -1, np.int64)
        hits = Neighbours(positions, np.zeros(positions.shape, np.float32))
        check_language(self.language)
        if self.analyzer == "words" and any(map(is_unspaced, queries)):
            console.warn(
                "this BM25 index takes a run of Chinese or Japanese for one word and finds hardly anything: build it "
                "again with index --type bm25 --overwrite"
            )
        index = self._index
        if index is None:
            return hits
        for start in range(0, len(queries), BATCH_QUERIES):
            batch = queries[start : start + BATCH_QUERIES]
            words = _tokenized(batch, self.language, self.analyzer, return_ids=False)
            for row, tokens in enumerate(map(index.get_tokens_ids, words), start):
                if not tokens:
                    continue
                scores = index.get_scores_from_ids(tokens)
                if mask is not None:
                    scores = np.where(mask, scores, 0)
                best = _best(scores, k)
                count = len(best)
                hits.positions[row, :count] = best
                hits.scores[row, :count] = scores[best]
        return hits

    def save(self, folder: Path) -> None:
        """Write the files of bm25s and `FACTS` into a folder, which is created if needed."""
        folder.mkdir(parents=True, exist_ok=True)
        facts_file = folder / FACTS
        facts_file.unlink(missing_ok=True)
        words = 0
        index = self._index
        if index is not None:
            index.save(folder, show_progress=False)
            words = len(index.vocab_dict)
        facts = {"rows": len(self), "words": words, **self.protocol()}
        text = json.dumps(facts, indent=1)
        facts_file.write_text(f"{text}\n", "utf-8")

    @classmethod
    def open(cls, folder: Path) -> BM25:
        """Read an index that `save` wrote; its scores stay on disk until they are needed.

        Raises:
            InputError: if the folder holds no complete index.
            MissingExtraError: if bm25s or PyStemmer is not installed.
        """
        package = require_bm25s()
        index = None
        try:
            facts = _read(WordsRecord, folder / FACTS)
            if facts.words:
                _read(BM25Settings, folder / "params.index.json")
                _read(BM25Vocabulary, folder / "vocab.index.json")
                _check_arrays(folder)
                index = package.BM25.load(folder, mmap=True, backend="numpy", show_progress=False)
                _check(index, facts.rows, facts.words)
        except FileNotFoundError as error:
            missing = Path(error.filename or FACTS).name
            raise InputError(f"{folder} is no BM25 index, or not a whole one: {missing} is missing") from error
        except (OSError, EOFError, ValueError, InputError) as error:
            raise InputError(f"{folder} is no BM25 index, or a damaged one ({one_line(error)})") from error
        check_language(facts.language)
        return cls(index, facts.rows, facts.k1, facts.b, facts.language, facts.analyzer)

    def protocol(self) -> dict[str, Any]:
        """Return every choice that changes a score."""
        return words_protocol(self.k1, self.b, self.language, self.analyzer)


def _in_alphabet(ids: Sequence[Sequence[int]], vocabulary: dict[str, int]) -> tuple[list[list[int]], dict[str, int]]:
    """Return the words of documents, and the vocabulary, with numbers in the order of the alphabet.

    bm25s numbers stems as a set has them, which differs from process to process, and so would the files.

    Args:
        ids: the numbers of the words of each document.
        vocabulary: the number of each word that is there.
    """
    numbers = {word: number for number, word in enumerate(sorted(vocabulary))}
    number_of = [numbers[word] for word in sorted(vocabulary, key=vocabulary.__getitem__)]
    return [list(map(number_of.__getitem__, document)) for document in ids], numbers


def words_protocol(
    k1: float = K1, b: float = B, language: str = LANGUAGE, analyzer: Analyzer = FOLDED
) -> dict[str, Any]:
    """Return every choice that changes a score."""
    return {
        "method": "lucene",
        "k1": k1,
        "b": b,
        "language": language,
        "analyzer": analyzer,
        "stop_words": STOP_WORDS.get(language, "none"),
        "bm25s": require_bm25s().__version__,
    }


def require_bm25s() -> Any:
    """Return the bm25s module.

    Raises:
        MissingExtraError: if it is not installed.
    """
    return required("bm25s", "bm25s", "cpu", "BM25 search")


def check_language(language: str) -> None:
    """Refuse a language for which there is no stemmer.

    Raises:
        InputError: if it is neither one of PyStemmer's nor ``none``.
        MissingExtraError: if PyStemmer is not installed.
    """
    languages = [*_require_stemmer().algorithms(), NO_LANGUAGE]
    if language not in languages:
        hint = nearest(language, languages)
        raise InputError(f"BM25: unknown language {language!r}{hint}; one of: {', '.join(languages)}")


def _tokenized(texts: Iterable[str], language: str, analyzer: Analyzer = FOLDED, *, return_ids: bool = True) -> Any:
    """Return the words of texts as bm25s numbers them, or without `return_ids` each as it is."""
    check_language(language)
    stop_words: list[str] | str = STOP_WORDS.get(language, [])
    stemmer = None
    if language != NO_LANGUAGE:
        stemmer = _require_stemmer().Stemmer(language)
    return require_bm25s().tokenize(
        separated(texts, analyzer),
        token_pattern=PATTERNS[analyzer],
        stopwords=stop_words,
        stemmer=stemmer,
        return_ids=return_ids,
        show_progress=False,
    )


def _require_stemmer() -> Any:
    return required("Stemmer", "PyStemmer", "cpu", "BM25 search")


def _best(scores: Float32Array, k: int) -> Int64Array:
    """Return the positions of the `k` best scores above 0, best first, of equal scores in rising order."""
    positions = np.flatnonzero(scores > 0)
    surplus = len(positions) - k
    if surplus > 0:
        there = scores[positions]
        kth_best = np.partition(there, surplus)[surplus]
        above = positions[there > kth_best]
        equal = positions[there == kth_best]
        positions = np.concatenate([above, equal[: k - len(above)]])
    order = np.lexsort((positions, -scores[positions]))
    return positions[order]


def _read(kind: type[Declared], path: Path) -> Declared:
    """Read a JSON file of the index.

    Raises:
        FileNotFoundError: if it is missing.
        InputError: if it is damaged.
    """
    regular(path)
    return read_json_form(kind, path, missing="", remedy="build the index again")


def _check_arrays(folder: Path) -> None:
    """Refuse arrays of bm25s that are not flat, or hold numbers of another kind.

    Raises:
        DataError: which says what they are.
    """
    for name, kind in ARRAYS.items():
        array = mapped_array(folder / name)
        dtype = array.dtype
        if dtype.kind != kind or array.ndim != 1:
            raise DataError(folder / name, f"an array {list(array.shape)} of {dtype}")


def _check(index: Any, rows: int, words: int) -> None:
    """Check that the files of an index belong together.

    Raises:
        ValueError: if they do not.
    """
    scores = index.scores
    vocabulary = index.vocab_dict
    starts = scores["indptr"]
    lengths = np.diff(starts)
    if not len(starts) or starts[0] != 0 or (lengths < 0).any():
        raise ValueError("its lists of documents do not follow on each other")
    postings = int(starts[-1])
    sizes = [scores["num_docs"], len(vocabulary), len(starts), len(scores["data"]), len(scores["indices"])]
    if sizes != [rows, words, words + 1, postings, postings]:
        raise ValueError("its files do not belong together")
    if sorted(vocabulary.values()) != list(range(words)):
        raise ValueError("its words are not numbered in one row")
