"""Judgements of people: the documents that models find, as a table to fill in, and the table read back."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sentcli.errors import DataError, InputError
from sentcli.evaluation.evaluated import EvaluatedModel
from sentcli.evaluation.known_sets import SetFacts
from sentcli.evaluation.retrieval import RetrievalSet
from sentcli.evaluation.set_search import SetSearch
from sentcli.io.digests import file_digest
from sentcli.io.formats import records
from sentcli.io.sources import open_source
from sentcli.search.options import SearchOptions
from sentcli.table import as_it_was, inert
from sentcli.testset.documents import Documents, free_id
from sentcli.testset.queries import LEAST_SET_QUERIES, JudgedQuery, QuerySet, near_equal
from sentcli.testset.writing import write_tsv

_JUDGED_HITS = 5
"""The first documents of each model that are judged."""
JUDGED_COLUMNS = ("query-id", "query", "document-id", "document", "relevance")
"""The columns of the table; a grade of relevance is 0 for not relevant, and more the better a document answers."""


NEEDED_COLUMNS = JUDGED_COLUMNS[:3]
"""The columns of which no cell may be empty."""


@dataclass(frozen=True)
class PooledQuery:
    """A query with the documents to judge, in random order."""

    query: JudgedQuery
    documents: list[tuple[str, str]]
    """The id and the text of each document."""


def read_unjudged_queries(file: str) -> list[JudgedQuery]:
    """Read queries to be judged: a file of lines, or a table with a column ``text`` or ``query``.

    Raises:
        DataError: for a row without a text, or with an id that names no query, or one that is there twice.
    """
    source = open_source(file)
    queries: dict[str, JudgedQuery] = {}
    for line, record in records(source):
        text = record.get("text", record.get("query"))
        if isinstance(text, str):
            text = text.strip()
        if not isinstance(text, str) or not text:
            raise source.error("no 'text' or 'query'", line)
        number = f"q{len(queries) + 1}"
        value = record.get("_id", record.get("id", number))
        key = free_id(source, value, queries, line)
        queries[key] = JudgedQuery(key, text, {}, "given")
    if not queries:
        raise DataError(source.name, "the file is empty")
    return list(queries.values())


def pooled(
    name: str, corpus: Path, documents: Documents, queries: Sequence[JudgedQuery], models: Sequence[str], seed: int
) -> list[PooledQuery]:
    """Search for queries with every model, and return the first `_JUDGED_HITS` documents of all, shuffled.

    Args:
        name: of the set.
        corpus: the file of the documents.
        documents: its content.
        queries: the queries.
        models: their names.
        seed: of the order.
    """
    texts = {query.id: query.text for query in queries}
    data = RetrievalSet(
        name=name,
        split="test",
        facts=SetFacts(name, title=name),
        corpus=corpus,
        digest=file_digest(corpus),
        ids=documents.ids,
        queries=texts,
        qrels={key: {} for key in texts},
    )
    search = SetSearch(data, SearchOptions(top_k=_JUDGED_HITS))
    positions = []
    for model in models:
        hits = search.by_vectors(EvaluatedModel(model)).hits
        positions.append(hits.positions[:, :_JUDGED_HITS])
    random = np.random.default_rng(seed)
    pool = []
    for query, row in zip(queries, np.concatenate(positions, 1), strict=True):
        candidates = []
        places = np.unique(row[row >= 0])
        for place in random.permutation(places).tolist():
            text = documents.title_and_text(place)
            candidates.append((documents.ids[place], text))
        pool.append(PooledQuery(query, candidates))
    return pool


def write_table(path: Path, pool: Sequence[PooledQuery]) -> None:
    """Write the documents to judge as TSV, a row for each, whose last column is to be filled in."""
    rows: list[Sequence[str]] = [JUDGED_COLUMNS]
    for entry in pool:
        query = entry.query
        query_text = _one_line(query.text)
        for key, text in entry.documents:
            cells = (query.id, query_text, key, _one_line(text), "")
            rows.append(list(map(inert, cells)))
    write_tsv(path, rows)


def _one_line(text: str) -> str:
    return re.sub(r"[\s\0]+", " ", text)


def judged_queries(file: str, documents: Documents) -> QuerySet:
    """Read the filled-in table as queries with graded judgements; documents stay as they are.

    A row without a grade is not judged, and a query without a relevant document is left out; both are counted. What is
    relevant is so with all documents that are equal or nearly.

    Raises:
        DataError: for an unknown document, a grade that is no whole number from 0, or two grades of one pair.
        InputError: if fewer than `LEAST_SET_QUERIES` queries have a relevant document.
    """
    left_out = Counter[str]()
    texts: dict[str, str] = {}
    grades: dict[str, dict[str, int]] = defaultdict(dict)
    for query, text, document, grade in _graded_rows(file, documents.places):
        texts.setdefault(query, text)
        if grade is None:
            left_out["documents without a grade"] += 1
        else:
            grades[query][document] = grade
    neighbours = near_equal(documents.texts)
    queries = []
    for key, judgements in grades.items():
        if not any(judgements.values()):
            left_out["queries without a relevant document"] += 1
            continue
        relevant = dict(judgements)
        for document, grade in judgements.items():
            position = documents.places[document]
            for place in neighbours.get(position, ()):
                neighbour = documents.ids[place]
                earlier_grade = relevant.get(neighbour, 0)
                relevant[neighbour] = max(grade, earlier_grade)
        queries.append(JudgedQuery(key, texts[key], relevant, "judged"))
    left_out["queries without a grade"] = len(texts) - len(grades)
    if len(queries) < LEAST_SET_QUERIES:
        raise InputError(f"{file}: {len(queries)} queries have a relevant document; {LEAST_SET_QUERIES} are needed")
    return QuerySet(queries, documents, dict(+left_out), neighbours)


def _unquoted(cell: Any, quoted: bool) -> Any:
    """Return a cell without the quotation marks in which spreadsheets write those of TSV that have some, or all."""
    if not isinstance(cell, str) or not re.fullmatch('".*"', cell, re.DOTALL):
        return cell
    if quoted or '""' in cell[1:-1]:
        return cell[1:-1].replace('""', '"')
    return cell


def _graded_rows(file: str, places: Mapping[str, int]) -> Iterator[tuple[str, str, str, int | None]]:
    """Yield id and text of the query, id of the document and its grade, if there is one, of each row.

    Args:
        file: the filled-in table.
        places: the documents of the corpus by their ids.
    """
    source = open_source(file)
    earlier: dict[tuple[str, str], int] = {}
    for line, row in records(source):
        record = _unquoted_row(row)
        if not any(record.values()):  # below the rows of a spreadsheet
            continue
        wrong = partial(source.error, line=line)
        missing = [name for name in JUDGED_COLUMNS if name not in record]
        missing += [name for name in NEEDED_COLUMNS if not record.get(name, True)]
        if missing:
            raise wrong(f"{', '.join(missing)} is missing; the columns are {', '.join(JUDGED_COLUMNS)}")
        query, text, document = (str(record[name]) for name in NEEDED_COLUMNS)
        if document not in places:
            raise wrong(f"there is no document {document!r} in the corpus")
        cell = record["relevance"]
        relevance = ""
        if cell is not None:
            relevance = str(cell).strip()
        if not re.fullmatch(r"(\d{1,9}(\.0)?)?", relevance):  # a spreadsheet has fractions alone
            raise wrong(f"the relevance {relevance!r} is no whole number from 0")
        grade = None
        if relevance:
            grade = int(float(relevance))
            if earlier.setdefault((query, document), grade) != grade:
                raise wrong(f"the document {document!r} has another relevance for the query {query!r} in a row before")
        yield query, text, document, grade


def _unquoted_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cells of a row by their columns as they were before a spreadsheet wrote them."""
    quoted = any(name.startswith('"') for name in row)
    cells = {}
    for name, cell in row.items():
        column = _unquoted(name, quoted)
        cells[column] = as_it_was(_unquoted(cell, quoted))
    return cells
