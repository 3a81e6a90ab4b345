"""`mine_negatives`: the hard negatives of queries, given texts, vectors and known positives.

A candidate whose score is near that of the positive is likely one that nobody has judged. So a negative's score has to
be below a share of the positive's: TopK-PercPos of Moreira et al., "NV-Retriever: Improving text embedding models with
effective hard-negative mining", arXiv 2407.15831, which takes 0.95. And a candidate that is about as near to the
positive as the query is likely says the same as the positive, as in the guided losses of Solatorio, "GISTEmbed: Guided
in-sample selection of training negatives for text embedding fine-tuning", arXiv 2402.16829; the same share decides.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress

from sentcli import console
from sentcli.arrays import Vectors
from sentcli.mining.candidates import CandidateSearch
from sentcli.mining.copies import MiningCorpus
from sentcli.mining.judging import Judge
from sentcli.mining.options import MiningOptions
from sentcli.model.spec import Similarity
from sentcli.search.exact import prepared, unit_length
from sentcli.search.neighbours import require_finite
from sentcli.search.words import plain

_QUERIES_AT_A_TIME = 1024
"""How many queries are searched for together; two lists of a thousand hits for each take 24 MB."""
REASONS = (
    "known positive",
    "equal to a positive",
    "equal to the query",
    "before the first rank",
    "near copy of a positive",
    "not below the share",
    "nearer to the positive",
    "judged relevant",
    "not needed",
)
"""Why a document that was found for a row is none of its negatives, in the order in which it is looked at."""


@dataclass(frozen=True)
class MiningQueries:
    """Queries, and the documents that are known of each."""

    texts: Sequence[str]
    positives: Sequence[Sequence[int]]
    """The positives of each query, as numbers of documents of the corpus."""
    left_out: Sequence[Sequence[int]] = ()
    """Other documents that are no candidates of each query, such as the query itself; empty for none of any."""


@dataclass(frozen=True)
class MinedRow:
    """A query with one of its positives, and the negatives of both."""

    query: int
    """The number of the query."""
    positive: int
    """The number of the document."""
    negatives: list[int]
    """The numbers of the documents, best first."""
    scores: list[float]
    """The scores of the positive and of each negative, by the vectors."""
    ranks: list[int]
    """The rank of each negative, from 1 among the documents that are no known positive."""
    judge_scores: list[float]
    """The scores of the positive and of each negative by the judge; empty without one."""


@dataclass(frozen=True)
class Mined:
    """The result of `mine_negatives`."""

    rows: list[MinedRow]
    """The rows that have all their negatives, in the order of queries and positives."""
    fell: dict[str, int]
    """How many documents that were found for a query and a positive are no negatives, by the reasons in `REASONS`."""
    short: int
    """The number of rows that were left out, because fewer negatives were left."""
    without_positive: int
    """The number of queries without a positive."""
    queries: int
    """The number of queries that have rows."""


@dataclass(frozen=True)
class _Known:
    """What is known of a query."""

    positives: frozenset[int]
    """Its positives and those of queries with an equal text, as numbers of documents."""
    groups: dict[int, str]
    """The numbers of the texts that are no candidates, with the reason."""


@dataclass
class _Row:
    """A row while its negatives are chosen."""

    query: int
    positive: int
    score: float
    passing: list[_Candidate]
    """The candidates that may be negatives, best first."""
    kept: list[_Candidate] = field(default_factory=list)
    looked_at: int = 0
    """How many of `passing` were kept or refused."""


@dataclass(frozen=True)
class _Candidate:
    """A document that was found for a query."""

    document: int
    rank: int
    score: float = 0.0


def mine_negatives(
    queries: MiningQueries,
    vectors: Vectors,
    corpus: MiningCorpus,
    document_vectors: Vectors,
    options: MiningOptions,
    *,
    similarity: Similarity = "cosine",
    judge: Judge | None = None,
    device: str = "cpu",
) -> Mined:
    """Find the hard negatives of queries.

    Ranks are counted from 1 among the documents that are neither a positive of the query, nor one of a query with an
    equal text, nor equal in text to one of these or to the query; of documents with an equal text there is one. What
    has a rank in `options.ranks` is a candidate, and falls if it is a near copy of a positive, if its score is not
    below the share of the positive's score, if its cosine with the positive is not below the share of the query's, or
    if the judge says so. A share X of a positive score p is X * p, and of a negative one p - (1 - X) * |p|, so that it
    is never above p. The first candidates that are left are the negatives.

    Args:
        queries: their texts and positives. A query with several positives makes several rows.
        vectors: of the queries, made with the prompt of queries ``[queries, dim]``.
        corpus: the documents, with all positives.
        document_vectors: of the documents, made with the prompt of documents ``[documents, dim]``.
        options: which candidates are looked at, and which are left out.
        similarity: of query and document, ``cosine`` or ``dot``.
        judge: scores query and document once more; None takes all that the vectors leave.
        device: of exact search.

    Returns:
        The rows, the same ones for the same input.

    Raises:
        InputError: if the first rank is behind the last document.
        SentcliError: if a vector is not finite.
    """
    require_finite(vectors)
    require_finite(document_vectors)
    known = _known(queries, corpus)
    search = CandidateSearch(corpus, document_vectors, options, similarity, device)
    choice = _Choice(queries, vectors, corpus, document_vectors, options, similarity)
    with console.counting("searching negatives", len(queries.texts)) as progress:
        for start in range(0, len(queries.texts), _QUERIES_AT_A_TIME):
            batch = slice(start, start + _QUERIES_AT_A_TIME)
            most_known = max(len(of_query.groups) for of_query in known[batch])
            found = search.find(queries.texts[batch], vectors[batch], most_known)
            for query, documents in enumerate(found.tolist(), start):
                if queries.positives[query]:
                    choice.add(query, known[query], documents)
                else:
                    choice.without_positive += 1
                progress(1)
    return choice.mined(judge)


def share_of(score: float, below: float) -> float:
    """Return the share of a positive's score that a negative's score has to be below, never above the score itself."""
    return score - (1 - below) * abs(score)


def _known(queries: MiningQueries, corpus: MiningCorpus) -> list[_Known]:
    """Return what is known of each query; queries with an equal text know the positives of each other."""
    positives: dict[str, set[int]] = defaultdict(set)
    for text, rows in zip(queries.texts, queries.positives, strict=True):
        positives[plain(text)].update(rows)
    known = []
    for query, text in enumerate(queries.texts):
        groups = {corpus.group_of(text): "equal to the query"}
        groups.pop(-1, None)
        if queries.left_out:
            for row in queries.left_out[query]:
                groups[int(corpus.groups[row])] = "equal to the query"
        of_text = frozenset(positives[plain(text)])
        for row in of_text:
            groups[int(corpus.groups[row])] = "equal to a positive"
        known.append(_Known(of_text, groups))
    return known


class _Choice:
    """Chooses negatives among what was found, query by query, and counts what falls."""

    def __init__(
        self,
        queries: MiningQueries,
        vectors: Vectors,
        corpus: MiningCorpus,
        document_vectors: Vectors,
        options: MiningOptions,
        similarity: Similarity,
    ) -> None:
        self.queries = queries
        self.corpus = corpus
        self.options = options
        self.query_vectors = prepared(vectors, similarity)
        self.document_vectors = prepared(document_vectors, similarity)
        self.unit_queries = unit_length(vectors)
        self.unit = unit_length(document_vectors)
        self.fell = Counter(dict.fromkeys(REASONS, 0))
        self.rows: list[_Row] = []
        self.without_positive = 0

    def add(self, query: int, known: _Known, found: Sequence[int]) -> None:
        """Add the rows of a query, given the documents that were found for it."""
        vector = self.query_vectors[query]
        fell, candidates = self._ranked(known, found, vector)
        positives = sorted(known.positives)
        near = self.corpus.near_copies(_documents(candidates), positives, self.unit, self.options.near)
        left = list(compress(candidates, ~near))
        fell["near copy of a positive"] = len(candidates) - len(left)
        seen: set[str] = set()
        for positive in self.queries.positives[query]:
            text = self.corpus.texts[positive]
            if text in seen:
                continue
            seen.add(text)
            score = float(self.document_vectors[positive] @ vector)
            bound = share_of(score, self.options.below)
            below = [candidate for candidate in left if candidate.score < bound]
            passing = below
            if self.options.apart:
                passing = self._apart(query, positive, below)
            self.fell.update(fell)
            self.fell["not below the share"] += len(left) - len(below)
            self.fell["nearer to the positive"] += len(below) - len(passing)
            row = _Row(query, positive, score, passing)
            self.rows.append(row)

    def _apart(self, query: int, positive: int, candidates: list[_Candidate]) -> list[_Candidate]:
        """Return the candidates that are farther from the positive than the query is."""
        vector = self.unit[positive]
        of_query = float(self.unit_queries[query] @ vector)
        bound = share_of(of_query, self.options.below)
        vectors = self.unit[_documents(candidates)]
        cosines = vectors @ vector
        is_apart = cosines < bound
        return list(compress(candidates, is_apart))

    def _ranked(self, known: _Known, found: Sequence[int], vector: Vectors) -> tuple[Counter[str], list[_Candidate]]:
        """Return the candidates among what was found, and how many documents are none, by the reason."""
        fell: Counter[str] = Counter()
        first, last = self.options.rank_bounds
        documents = []
        ranks = []
        rank = 0
        for document in found:
            if document < 0 or rank == last:
                break
            group = int(self.corpus.groups[document])
            reason = known.groups.get(group)
            if document in known.positives:
                reason = "known positive"
            if reason is not None:
                fell[reason] += 1
                continue
            rank += 1
            if rank < first:
                fell["before the first rank"] += 1
                continue
            documents.append(document)
            ranks.append(rank)
        vectors = self.document_vectors[documents]
        scores = vectors @ vector
        candidates = map(_Candidate, documents, ranks, scores.tolist())
        return fell, list(candidates)

    def mined(self, judge: Judge | None) -> Mined:
        """Return the rows with the first candidates that may be negatives."""
        count = self.options.negatives
        judged: dict[tuple[int, int], float] = {}
        if judge is not None:
            judged = self._judge(judge)
        else:
            for row in self.rows:
                row.kept = row.passing[:count]
                row.looked_at = len(row.kept)
        rows = []
        queries = set()
        for row in self.rows:
            self.fell["not needed"] += len(row.passing) - row.looked_at
            if len(row.kept) == count:
                queries.add(row.query)
                mined_row = _mined_row(row, judged)
                rows.append(mined_row)
        short = len(self.rows) - len(rows)
        return Mined(rows, dict(self.fell), short, self.without_positive, len(queries))

    def _judge(self, judge: Judge) -> dict[tuple[int, int], float]:
        """Choose the negatives that the judge leaves, and return its scores by query and document.

        The judge reads no more than is needed: of each row first as many candidates as it lacks, then as many as were
        refused, until it is whole or there are no more.
        """
        judged: dict[tuple[int, int], float] = {}
        lacking = self.rows
        while lacking:
            pairs: dict[tuple[int, int], None] = {}
            for row in lacking:
                pairs[row.query, row.positive] = None
                for candidate in self._next(row):
                    pairs[row.query, candidate.document] = None
            self._score(judge, pairs, judged)
            for row in lacking:
                self._choose(row, judge, judged)
            lacking = [row for row in lacking if self._next(row)]
        return judged

    def _next(self, row: _Row) -> list[_Candidate]:
        """Return the candidates of a row that the judge has to read next."""
        lacking = self.options.negatives - len(row.kept)
        end = row.looked_at + lacking
        return row.passing[row.looked_at : end]

    def _score(self, judge: Judge, pairs: Iterable[tuple[int, int]], judged: dict[tuple[int, int], float]) -> None:
        """Add the scores of those pairs of query and document that have none."""
        new = []
        texts = []
        for query, document in pairs:
            if (query, document) in judged:
                continue
            new.append((query, document))
            query_text = self.queries.texts[query]
            document_text = self.corpus.texts[document]
            texts.append((query_text, document_text))
        if texts:
            scores = judge.score(texts).tolist()
            judged.update(zip(new, scores, strict=True))

    def _choose(self, row: _Row, judge: Judge, judged: dict[tuple[int, int], float]) -> None:
        """Keep those of the next candidates that the judge scores below the share of the positive's score."""
        score = judged[row.query, row.positive]
        bound = share_of(judge.probability(score), self.options.below)
        candidates = self._next(row)
        for candidate in candidates:
            score = judged[row.query, candidate.document]
            if judge.probability(score) < bound:
                row.kept.append(candidate)
            else:
                self.fell["judged relevant"] += 1
        row.looked_at += len(candidates)


def _documents(candidates: Sequence[_Candidate]) -> list[int]:
    """Return the numbers of the documents."""
    return [candidate.document for candidate in candidates]


def _mined_row(row: _Row, judged: dict[tuple[int, int], float]) -> MinedRow:
    """Return a row whose negatives are chosen."""
    negatives = _documents(row.kept)
    scores = [row.score]
    ranks = []
    for candidate in row.kept:
        scores.append(candidate.score)
        ranks.append(candidate.rank)
    judge_scores = []
    if judged:
        for document in (row.positive, *negatives):
            score = judged[row.query, document]
            judge_scores.append(score)
    return MinedRow(row.query, row.positive, negatives, scores, ranks, judge_scores)
