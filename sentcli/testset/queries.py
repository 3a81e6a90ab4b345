"""The queries of a test set, from the structure of its documents."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeVar

import numpy as np

from sentcli import console
from sentcli.errors import InputError
from sentcli.search.words import MARKS, SIGN, UNSPACED
from sentcli.testset.documents import STRONG, Documents, QueryCandidate

NO_REST = "of documents without other text"
"""Why a document of which nothing is left has no query."""
Item = TypeVar("Item")
_LEAST_WORDS = 3
"""The words that a query has at least."""
LEAST_OWN = 8
"""A document of fewer words that others have as well says nothing of its own, such as "not available from ntis"."""
LEAST_SET_QUERIES = 10
"""The queries that a set has at least."""
QUERY_WORD = re.compile(rf"{SIGN}|[^\W{UNSPACED}]+(?:[{MARKS}]+[^\W{UNSPACED}]*)*")
"""A word with its marks; of scripts without blanks between the words, a sign."""
WORD_AND_SIGNS = re.compile(rf"({QUERY_WORD.pattern})[^\w<(\[{{]*")
"""A word with the signs behind it up to the next word, but for opening brackets."""
SHINGLE = 3
_LEAST_SHARED = 0.8
"""Near-equal documents share at least 0.8 of their sequences of three words, by Jaccard's measure (Broder, 1997)."""
_LEAST_COSINE = 0.9
"""The cosine of the word counts from which on the sequences of two documents are compared."""
WORD_VECTOR = 512
"""Dimensions of the word counts, into which words are hashed."""
_TEXTS_AT_A_TIME = 10_000
"""How many texts are counted at a time."""
UNSTRUCTURED = (
    f"gives fewer than {LEAST_SET_QUERIES} queries: it has no titles, headings, questions, links or sentences that may "
    "be some"
)
OTHER_QUERIES = (
    "Name a column with --title-field, or let a model write queries (--write-with MODEL), or give real queries and "
    "judge what is found (--queries FILE --judge N -m MODEL), or give judgements that you have (--judgements FILE)"
)
"""Where ``data make-set`` takes queries from that documents do not have."""


@dataclass(frozen=True)
class JudgedQuery:
    """A query and what is relevant for it."""

    id: str
    text: str
    relevant: Mapping[str, int]
    """The grade of each judged document by its id."""
    structure: str
    """What the query is made of: a `Structure`, or ``written``, ``given`` or ``judged``."""


@dataclass(frozen=True)
class QuerySet:
    """Queries, the documents without what stands in them, and what was left out."""

    queries: list[JudgedQuery]
    documents: Documents
    left_out: dict[str, int]
    """The number of queries by the reason."""
    near_equal: Mapping[int, frozenset[int]]
    """What `near_equal` returned for the documents."""


def structural_queries(documents: Documents, corpus: str, limit: int, seed: int) -> QuerySet:
    """Make queries of the structure of documents.

    Strong structures (titles, questions, headings, links, file names) are used if they give enough queries, else weak
    ones. What stands in a candidate is taken out of its document, also where the candidate is left out, so that the
    documents of queries look like all others.

    Args:
        documents: with candidates.
        corpus: its name, for messages.
        limit: the most queries; more are drawn at random.
        seed: of the draw.

    Raises:
        InputError: if there are fewer than `LEAST_SET_QUERIES`.
    """
    candidates = _strongest(documents.candidates)
    if not candidates:
        raise InputError(f"{corpus} {UNSTRUCTURED}. {OTHER_QUERIES}")
    remaining, emptied = _without_candidates(documents, candidates)
    neighbours = near_equal(remaining.texts)
    left_out: Counter[str] = Counter()
    groups: dict[tuple[str, ...], list[QueryCandidate]] = defaultdict(list)
    for candidate in candidates:
        document = candidate.document
        problem = query_problem(candidate.text)
        if problem is None and document in emptied:
            problem = NO_REST
        if problem is None:
            is_shared = document in neighbours
            problem = problem_of_rest(remaining.texts[document], is_shared)
        if problem is None:
            query_words = words(candidate.text)
            groups[query_words].append(candidate)
        else:
            left_out[problem] += 1
    usable: list[tuple[QueryCandidate, frozenset[int]]] = []
    for group in groups.values():
        first = group[0]
        relevant = with_near_equal(first.document, neighbours)
        if relevant.issuperset(candidate.document for candidate in group):
            usable.append((first, relevant))
        else:
            left_out["of several documents"] += len(group)
    if len(usable) < LEAST_SET_QUERIES:
        raise InputError(f"{corpus} {UNSTRUCTURED}. {OTHER_QUERIES}")
    left_out["beyond --limit"] = max(len(usable) - limit, 0)
    drawn = random_sample(usable, limit, seed)
    queries = []
    for number, (candidate, relevant) in enumerate(drawn, 1):
        grades = remaining.graded(relevant)
        query = JudgedQuery(f"q{number}", candidate.text, grades, candidate.structure)
        queries.append(query)
    return QuerySet(queries, remaining, dict(+left_out), neighbours)


def _strongest(candidates: Sequence[QueryCandidate]) -> list[QueryCandidate]:
    """Return the candidates of the strongest structures of which there are enough queries; empty if there are none."""
    for structures in (STRONG, ("summary",), ("first sentence",)):
        strong = []
        queries = 0
        for candidate in candidates:
            if candidate.structure in structures:
                strong.append(candidate)
                queries += query_problem(candidate.text) is None
        if queries >= LEAST_SET_QUERIES:
            return strong
    return []


def _without_candidates(documents: Documents, candidates: Sequence[QueryCandidate]) -> tuple[Documents, set[int]]:
    """Return documents without what stands in their candidates, and the positions of those of which nothing is left.

    These keep their title, or their text: they have no query, and are found by others as what stood above them.
    """
    texts = texts_without(documents, candidates)
    titles = documents.titles
    if candidates[0].structure != "first sentence":  # the others may be titles
        titles = [""] * len(texts)
    emptied = set()
    for position, text in enumerate(texts):
        if QUERY_WORD.search(text) is None:
            emptied.add(position)
            title = documents.titles[position]
            if title == titles[position]:
                texts[position] = documents.texts[position]
            else:
                texts[position] = title
    return replace(documents, texts=texts, titles=titles), emptied


def random_sample(items: Sequence[Item], count: int, seed: int) -> list[Item]:
    """Return so many items at random, in their order."""
    places = np.random.default_rng(seed).permutation(len(items))[:count]
    return [items[place] for place in sorted(places.tolist())]


def words(text: str) -> tuple[str, ...]:
    """Return the words of a text in lower case, without punctuation."""
    return tuple(QUERY_WORD.findall(text.casefold()))


def query_problem(query: str) -> str | None:
    """Return why a text is no query, as the manifest names it, or None."""
    query_words = words(query)
    if not any(map(str.isalpha, "".join(query_words))):
        return "numbers alone"
    if len(query_words) < _LEAST_WORDS:
        return "of one or two words"
    return None


def problem_of_rest(text: str, is_shared: bool) -> str | None:
    """Return why what is left of a document is no answer, as the manifest names it, or None.

    Args:
        text: what is left when the query is taken out.
        is_shared: whether other documents have it as well, or nearly.
    """
    if is_shared and len(words(text)) < LEAST_OWN:
        return "of documents with a few words left that others have, too"
    return None


def texts_without(documents: Documents, candidates: Sequence[QueryCandidate]) -> list[str]:
    """Return the texts of documents without what stands in their candidates, which may leave nothing of a text."""
    texts = list(documents.texts)
    for candidate in candidates:
        query_words = list(map(str.casefold, QUERY_WORD.findall(candidate.text)))
        count = len(query_words)
        if count < _LEAST_WORDS:
            continue
        text = texts[candidate.document]
        matches = list(WORD_AND_SIGNS.finditer(text))
        text_words = [match[1].casefold() for match in matches]
        parts = []
        end = 0
        for place in _places(query_words, text_words):
            start = matches[place].start()
            parts.append(text[end:start])
            end = matches[place + count - 1].end()
        parts.append(text[end:])
        texts[candidate.document] = " ".join(parts).strip()
    return texts


def _places(sought: Sequence[str], among: Sequence[str]) -> Iterator[int]:
    """Yield the places of a sequence of words among others, none of which overlap.

    Python searches texts in linear time, whatever they repeat, so the words are joined by a sign that no word has.
    """
    text = _joined(among)
    part = _joined(sought)
    place_at = {}
    start = 0
    for place, word in enumerate(among):
        place_at[start] = place
        start += len(word) + 1
    start = text.find(part)
    while start >= 0:
        yield place_at[start]
        start = text.find(part, start + len(part) - 1)


def _joined(text_words: Sequence[str]) -> str:
    return "\0" + "\0".join(text_words) + "\0"


def near_equal(texts: Sequence[str]) -> dict[int, frozenset[int]]:
    """Return for the position of each text that has equal or nearly equal ones their positions with its own.

    Equal texts have one set together, so that many of them take no more time than different ones. Other pairs are
    proposed by the cosine of their hashed word counts, through the search of ``analyze duplicates``, and share at least
    `_LEAST_SHARED` of their sequences of `SHINGLE` words.
    """
    from sklearn.feature_extraction.text import HashingVectorizer

    from sentcli.search.pairs import MOST_PAIRS, expected_pairs, pairs_above
    from sentcli.search.searcher import searcher_over

    positions: dict[str, list[int]] = defaultdict(list)
    for position, text in enumerate(texts):
        positions[text].append(position)
    distinct = list(positions)
    hashing = HashingVectorizer(analyzer=words, n_features=WORD_VECTOR, dtype=np.float32)
    vectors = []
    for start in range(0, len(distinct), _TEXTS_AT_A_TIME):
        block = distinct[start : start + _TEXTS_AT_A_TIME]
        vectors.append(hashing.transform(block).toarray())
    all_vectors = np.concatenate(vectors)
    searcher = searcher_over("flat", all_vectors)
    least = _LEAST_COSINE
    expected = expected_pairs(searcher, least)
    if expected.pairs > MOST_PAIRS:
        least = expected.proposed
    with console.counting("comparing", len(distinct)) as progress:
        pairs = pairs_above(searcher, least, progress)
    near: dict[int, set[int]] = defaultdict(set)
    sequences = cache(lambda number: _sequences(distinct[number]))
    firsts = pairs.first.tolist()
    seconds = pairs.second.tolist()
    for one, other in zip(firsts, seconds, strict=True):
        first = sequences(one)
        second = sequences(other)
        shared = len(first & second)
        if shared >= _LEAST_SHARED * len(first | second):
            near[one].add(other)
            near[other].add(one)
    groups: dict[int, frozenset[int]] = {}
    for number, text in enumerate(distinct):
        group = set(positions[text])
        for other in near.get(number, ()):
            group.update(positions[distinct[other]])
        if len(group) > 1:
            groups |= dict.fromkeys(positions[text], frozenset(group))
    return groups


def with_near_equal(position: int, near: Mapping[int, frozenset[int]]) -> frozenset[int]:
    """Return the position of a document with those of its near-equal ones, of which `near_equal` returned all."""
    return near.get(position) or frozenset({position})


def _sequences(text: str) -> set[tuple[str, ...]]:
    """Return all sequences of `SHINGLE` words of a text; of a shorter one, all its words."""
    text_words = words(text)
    count = max(len(text_words) - SHINGLE, 0) + 1
    return {text_words[place : place + SHINGLE] for place in range(count)}
