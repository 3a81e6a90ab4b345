"""Retrieval sets in BEIR layout.

A corpus is read once to check it and then block by block, so that it may be larger than the memory.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli.arrays import Int64Array
from sentcli.errors import DataError, InputError
from sentcli.evaluation.beir_files import (
    Qrels,
    document_text,
    is_beir,
    read_qrels,
    records_by_id,
    relevant_documents,
    required_file,
)
from sentcli.evaluation.known_sets import SetFacts, set_facts
from sentcli.evaluation.set_manifest import SetManifest
from sentcli.io.digests import file_digest
from sentcli.io.formats import records
from sentcli.io.sources import open_source
from sentcli.printable import as_text
from sentcli.search.rows import BLOCK_DOCUMENTS, Document
from sentcli.search.words import plain

if TYPE_CHECKING:
    import pyarrow as pa

PROBLEMS = {
    "unknown_documents": "judgements name documents that are not in the corpus: they cannot be found",
    "unknown_queries": "judged queries are not in queries.jsonl and were left out",
    "contradictory": "pairs of query and document are judged twice, and differently: the last judgement counts",
    "without_relevant": "judged queries have no relevant document: they score 0",
    "unjudged_copies": "judgements call documents relevant of which others are copies that are not judged: what finds "
    "such a copy first scores less",
    "empty_documents": "documents have neither title nor text; they are searched like others",
}
"""Counts of a `RetrievalSet` that are printed as warnings where they are not 0."""


@dataclass(frozen=True)
class RetrievalSet:
    """A BEIR folder, with queries, judgements and the ids of the documents in memory."""

    name: str
    split: str
    facts: SetFacts
    corpus: Path
    digest: str
    """Checksums of its three files."""
    ids: list[str]
    """Ids of the documents, in the order of the file."""
    queries: dict[str, str]
    """Texts of the judged queries by id."""
    qrels: Qrels
    unjudged_queries: int = 0
    """Number of queries without a judgement in this split; they are left out."""
    unknown_documents: int = 0
    """Number of judgements whose document is not in the corpus; it counts as not found."""
    unknown_queries: int = 0
    """Number of judged queries that are not in queries.jsonl; they are left out."""
    contradictory: int = 0
    """Number of pairs of query and document with judgements that differ; the last one counts."""
    unjudged_copies: int = 0
    """Number of judgements of relevant documents of which another one is a copy that the query has no judgement of."""
    empty_documents: int = 0
    """Number of documents without title and text; they are encoded like others."""
    titled: bool = False
    """Whether a document has a title, which stands in front of its text."""
    trust: str = ""
    """How far to trust a set that ``data make-set`` made."""
    changed: tuple[str, ...] = ()
    """The files of such a set that have changed since."""

    @property
    def without_relevant(self) -> int:
        """The number of judged queries without a relevant document; they score 0."""
        return sum(not relevant_documents(judgements) for judgements in self.qrels.values())

    @property
    def findable(self) -> bool:
        """Whether at least one query has a relevant document in the corpus."""
        relevant = set().union(*map(relevant_documents, self.qrels.values()))
        return not relevant.isdisjoint(self.ids)

    @property
    def problems(self) -> list[str]:
        """What is wrong in the files but does not keep the set from being scored, as warnings."""
        problems = []
        for attribute, problem in PROBLEMS.items():
            count = getattr(self, attribute)
            if count:
                problems.append(f"{count} {problem}")
        for name in self.changed:
            problems.append(f"{name} has changed since the set was made")
        return problems

    @cached_property
    def own_rows(self) -> dict[str, int]:
        """The row of the document with the id of the query, by query id, for sets in which such hits are removed."""
        if self.facts.self_hits == "kept":
            return {}
        return {key: row for row, key in enumerate(self.ids) if key in self.queries}

    def texts(self) -> Iterator[str]:
        """Yield the texts of the documents in the order of `ids`; see `records` for errors."""
        for record in self.records():
            yield document_text(record, join_title=self.facts.join_title)

    def titled_texts(self) -> Iterator[tuple[str, str]]:
        """Yield title and text of the documents in the order of `ids`; a title is empty where it is not read."""
        for record in self.records():
            title = ""
            if self.facts.join_title:
                title = record.get("title") or ""
            yield title, document_text(record, join_title=False)

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield the documents as they stand in the file, in the order of `ids`.

        Raises:
            DataError: if the file is not the one that was read first.
        """
        row = 0
        for line, record in records(open_source(str(self.corpus))):
            if row >= len(self.ids) or self.ids[row] != str(record.get("_id")):
                raise DataError(self.corpus, "the file has changed since it was read first", line=line)
            row += 1
            yield record
        if row != len(self.ids):
            raise DataError(self.corpus, "the file has changed since it was read first")


@dataclass(frozen=True)
class SetRows:
    """The documents of a set as the rows of a corpus; see `search.rows.Rows`."""

    data: RetrievalSet

    @property
    def schema(self) -> dict[str, Any]:
        """The Arrow types of id and text."""
        import pyarrow as pa

        return {"id": pa.string(), "text": pa.string()}

    def __len__(self) -> int:
        return len(self.data.ids)

    def owned(self) -> Iterator[tuple[int, str]]:
        """Yield every text, with the row of its document."""
        return enumerate(self.data.texts())

    def texts(self) -> Iterator[str]:
        """Yield every text, in order."""
        for _, text in self.owned():
            yield text

    def take(self, positions: Sequence[int]) -> list[Document]:
        """Return the texts at these positions, in the order of the positions; the file is read through."""
        asked = set(positions)
        found = {}
        for place, (row, text) in enumerate(self.owned()):
            if place in asked:
                found[place] = Document(self.data.ids[row], text)
        return [found[place] for place in positions]

    def tables(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yield all rows with some columns, as tables of Arrow."""
        import pyarrow as pa

        owned = self.owned()
        while block := list(islice(owned, BLOCK_DOCUMENTS)):
            rows, texts = zip(*block, strict=True)
            ids = [self.data.ids[row] for row in rows]
            table = pa.table({"id": pa.array(ids, pa.string()), "text": pa.array(texts, pa.string())})
            yield table.select(list(names))


@dataclass(frozen=True)
class Collection:
    """A set, or the forums whose mean is scored as one set."""

    name: str
    facts: SetFacts
    members: dict[str, RetrievalSet]
    """The set itself, or the forums by their names, such as ``android``."""

    @property
    def split(self) -> str:
        """The split whose qrels are scored."""
        return next(iter(self.members.values())).split

    @property
    def full_names(self) -> dict[str, RetrievalSet]:
        """The members by the names that are shown; a forum is named as ``cqadupstack/android``."""
        if len(self.members) == 1:
            (data,) = self.members.values()
            return {self.name: data}
        return {f"{self.name}/{member}": data for member, data in self.members.items()}

    def protocol(self) -> dict[str, Any]:
        """Return the choices that decide the scores besides the model."""
        choices: dict[str, Any] = {
            "split": self.split,
            "own_document": "left out" if self.facts.self_hits == "removed" else "kept",
        }
        if self.facts.forums:
            choices["forums"] = len(self.members)
        return choices


def load_collection(folder: Path, split: str | None = None) -> Collection:
    """Read a set, or the forums of a set that is the mean of several.

    Args:
        folder: in BEIR layout, or with one such folder for each forum.
        split: whose qrels are read; None is the one that papers score.

    Raises:
        InputError: as `load_set`; also if a forum is missing.
    """
    name = as_text(folder.resolve().name)
    facts = set_facts(name)
    if not facts.forums or is_beir(folder):
        return Collection(name, facts, {name: load_set(folder, split)})
    missing = [forum for forum in facts.forums if not (folder / forum).is_dir()]
    if missing and folder.is_dir():
        raise InputError(
            f"{folder}: {facts.title} is the mean of {len(facts.forums)} sets, and these are missing: "
            f"{', '.join(missing)}. --beir {folder}/NAME scores one of those that are there"
        )
    members = {forum: load_set(folder / forum, split) for forum in facts.forums}
    return Collection(name, facts, members)


def load_set(folder: Path, split: str | None = None) -> RetrievalSet:
    """Read ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/<split>.tsv`` (each may be compressed).

    Args:
        folder: of the set; its name is looked up in `known_sets`.
        split: whose qrels are read; None is the one that papers score.

    Raises:
        InputError: if the folder is not in BEIR layout, or none of the judged queries is known.
        DataError: for a broken line, a document without id, the same id twice, or judgements that do not parse.
    """
    if not folder.is_dir():
        raise InputError(
            f"{folder} is not a folder; BEIR sets are read from disk (corpus.jsonl, queries.jsonl, qrels/)"
        )
    name = as_text(folder.resolve().name)
    facts = set_facts(name)
    if split is None:
        split = facts.split
    corpus_file = required_file(folder, "corpus.jsonl")
    queries_file = required_file(folder, "queries.jsonl")
    qrels_file = required_file(folder, f"qrels/{split}.tsv")
    qrels, contradictory = read_qrels(qrels_file)
    all_queries = {key: str(record["text"]) for key, record in records_by_id(queries_file)}
    ids: dict[str, None] = {}
    texts = array("q")
    titles = 0
    empty = 0
    for key, record in records_by_id(corpus_file):
        text = document_text(record, join_title=facts.join_title)
        ids[key] = None
        texts.append(hash(plain(text)))
        titles += bool(record.get("title"))
        empty += not document_text(record)
    if not ids:
        raise DataError(corpus_file, "the file is empty")
    if not all_queries:
        raise DataError(queries_file, "the file is empty")
    judged = {query: judgements for query, judgements in qrels.items() if query in all_queries}
    if not judged:
        raise InputError(f"{folder}: no query of qrels/{split}.tsv is in queries.jsonl")
    manifest = SetManifest.read(folder)
    return RetrievalSet(
        name=name,
        split=split,
        facts=facts,
        corpus=corpus_file,
        digest=" ".join(map(file_digest, (corpus_file, queries_file, qrels_file))),
        ids=list(ids),
        queries={query: all_queries[query] for query in judged},
        qrels=judged,
        unjudged_queries=len(all_queries) - len(judged),
        unknown_documents=sum(len(judgements.keys() - ids.keys()) for judgements in judged.values()),
        unknown_queries=len(qrels) - len(judged),
        contradictory=contradictory,
        unjudged_copies=_unjudged_copies(judged, list(ids), np.array(texts, np.int64)),
        empty_documents=empty,
        titled=facts.join_title and titles > 0,
        trust="" if manifest is None else manifest.trust,
        changed=() if manifest is None else tuple(manifest.changed(folder)),
    )


def _unjudged_copies(qrels: Qrels, ids: Sequence[str], texts: Int64Array) -> int:
    """Count the relevant documents of queries of which another document is a copy without a judgement of the query.

    Args:
        qrels: the judgements.
        ids: of all documents.
        texts: a number for the text of each document ``[documents]``.
    """
    order = np.argsort(texts, kind="stable")
    in_order = texts[order]
    is_equal = in_order[1:] == in_order[:-1]
    is_repeated = np.zeros(len(texts), np.bool_)
    is_repeated[order[1:][is_equal]] = is_repeated[order[:-1][is_equal]] = True
    is_repeated[texts == hash("")] = False  # documents without text are counted by themselves
    text_of: dict[str, int] = {}
    copies: defaultdict[int, set[str]] = defaultdict(set)
    for row in np.flatnonzero(is_repeated).tolist():
        text_of[ids[row]] = int(texts[row])
        copies[text_of[ids[row]]].add(ids[row])
    count = 0
    for judgements in qrels.values():
        for key in relevant_documents(judgements):
            if key in text_of:
                count += not copies[text_of[key]] <= judgements.keys()
    return count


def query_column(data: RetrievalSet, name: str) -> dict[str, str]:
    """Return a column of ``queries.jsonl`` by the ids of the judged queries, as text; empty where it is null.

    Raises:
        InputError: if a judged query does not have it.
    """
    path = required_file(data.corpus.parent, "queries.jsonl")
    column = {}
    for key, record in records_by_id(path):
        if key not in data.queries:
            continue
        if name not in record:
            others = ", ".join(sorted(record.keys() - {"_id", "text"})) or "none"
            raise InputError(f"{path}: the query {key!r} has no {name!r} (--by); it has: {others}")
        value = record[name]
        column[key] = "" if value is None else str(value)
    return column
