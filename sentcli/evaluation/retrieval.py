"""Retrieval sets in BEIR layout.

A corpus is read once to check it and then block by block, so that it may be larger than the memory. The facts of
known sets are in ``models/retrieval.toml``.
"""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sentcli.bounds import whole_number
from sentcli.errors import DataError, InputError
from sentcli.evaluation.set_manifest import SetManifest
from sentcli.io.atomic import regular
from sentcli.io.digests import file_digest
from sentcli.io.formats import id_of, kind_of, records
from sentcli.io.packed import PACKED
from sentcli.io.sources import open_source
from sentcli.search.rows import BLOCK_DOCUMENTS, Document
from sentcli.zoo import models_folder

if TYPE_CHECKING:
    import pyarrow as pa

HIGHEST_RELEVANCE = 2**31 - 1
"""The highest relevance of a judgement, and its negative the lowest: what the metrics can hold."""
PROBLEMS = {
    "unknown_documents": "judgements name documents that are not in the corpus: they cannot be found",
    "unknown_queries": "judged queries are not in queries.jsonl and were left out",
    "contradictory": "pairs of query and document are judged twice, and differently: the last judgement counts",
    "without_relevant": "judged queries have no relevant document: they score 0",
    "empty_documents": "documents have neither title nor text; they are searched like others",
}
"""Counts of a `RetrievalSet` that are printed as warnings where they are not 0."""
Qrels = dict[str, dict[str, int]]
"""Judgements by query id and document id."""


@dataclass(frozen=True)
class SetFacts:
    """The facts of a set that decide its score besides the model."""

    name: str
    title: str
    short: str = ""
    """A shorter title, for narrow columns."""
    aliases: tuple[str, ...] = ()
    average: bool = False
    """Whether the set is part of the mean over BEIR that papers print."""
    split: str = "test"
    self_hits: Literal["kept", "removed"] = "kept"
    """Whether a hit whose document is the query itself counts."""
    join_title: bool = True
    query_length: int | None = None
    """Tokens; None is the model's maximum length."""
    document_length: int | None = None
    forums: tuple[str, ...] = ()
    """The sets whose mean is the score of this one."""
    note: str = ""


@cache
def known_sets() -> dict[str, SetFacts]:
    """Return the facts of all known sets by name, in the order of the papers."""
    tables: dict[str, dict[str, Any]] = tomllib.loads((models_folder() / "retrieval.toml").read_text("utf-8"))
    sets = {}
    for name, table in tables.items():
        for key in ("aliases", "forums"):
            if key in table:
                table[key] = tuple(table[key])
        sets[name] = SetFacts(name=name, **table)
    return sets


@cache
def _names() -> dict[str, str]:
    """Return the name of each known set by its name and its aliases."""
    names = {}
    for facts in known_sets().values():
        names.update(dict.fromkeys((facts.name, *facts.aliases), facts.name))
    return names


def canonical(name: str) -> str:
    """Return the name that ``sentcli data list`` has for a set, given that name or an alias, in upper or lower case."""
    return _names().get(name.lower(), name)


def facts_of(name: str) -> SetFacts:
    """Return the facts of a set; an unknown one has the defaults."""
    return known_sets().get(canonical(name)) or SetFacts(name, title=name)


def averaged() -> frozenset[str]:
    """Return the names of the sets that papers average."""
    return frozenset(name for name, facts in known_sets().items() if facts.average)


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
        return sum(max(judgements.values(), default=0) <= 0 for judgements in self.qrels.values())

    @property
    def findable(self) -> bool:
        """Whether at least one query has a relevant document in the corpus."""
        relevant: set[str] = set()
        for judgements in self.qrels.values():
            relevant.update(document for document, relevance in judgements.items() if relevance > 0)
        return not relevant.isdisjoint(self.ids)

    @property
    def problems(self) -> list[str]:
        """What is wrong in the files but does not keep the set from being scored, as warnings."""
        problems = []
        for attribute, problem in PROBLEMS.items():
            count = getattr(self, attribute)
            if count:
                problems.append(f"{count} {problem}")
        problems += [f"{name} has changed since the set was made" for name in self.changed]
        return problems

    @cached_property
    def own_rows(self) -> dict[str, int]:
        """The row of the document with the id of the query, by query id, for sets in which such hits are removed."""
        if self.facts.self_hits == "kept":
            return {}
        return {key: row for row, key in enumerate(self.ids) if key in self.queries}

    def texts(self) -> Iterator[str]:
        """Yield the texts of the documents in the order of `ids`.

        Raises:
            DataError: if the file is not the one that was read first.
        """
        row = 0
        for line, record in records(open_source(str(self.corpus))):
            if row >= len(self.ids) or self.ids[row] != str(record.get("_id")):
                raise DataError(self.corpus, "the file has changed since it was read first", line=line)
            row += 1
            yield document_text(record, join_title=self.facts.join_title)
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

    def texts(self) -> Iterator[str]:
        """Yield every text, in order."""
        return self.data.texts()

    def take(self, positions: Sequence[int]) -> list[Document]:
        """Return the documents at these positions, in the order of the positions; the file is read through."""
        rows = set(positions)
        texts = {row: text for row, text in enumerate(self.texts()) if row in rows}
        return [Document(self.data.ids[row], texts[row]) for row in positions]

    def tables(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yield all rows with some columns, as tables of Arrow."""
        import pyarrow as pa

        rows = zip(self.data.ids, self.texts(), strict=True)
        while block := list(islice(rows, BLOCK_DOCUMENTS)):
            ids, texts = zip(*block, strict=True)
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
    name = folder.resolve().name
    facts = facts_of(name)
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
    name = folder.resolve().name
    facts = facts_of(name)
    if split is None:
        split = facts.split
    corpus_file = _file(folder, "corpus.jsonl")
    queries_file = _file(folder, "queries.jsonl")
    qrels_file = _file(folder, f"qrels/{split}.tsv")
    qrels, contradictory = read_qrels(qrels_file)
    queries = {key: str(record["text"]) for key, record in _records(queries_file)}
    titled = False
    is_empty: dict[str, bool] = {}
    for key, record in _records(corpus_file):
        titled = titled or (facts.join_title and bool(record.get("title")))
        is_empty[key] = not document_text(record)
    if not is_empty:
        raise DataError(corpus_file, "the file is empty")
    if not queries:
        raise DataError(queries_file, "the file is empty")
    manifest = SetManifest.read(folder)
    judged = {query: judgements for query, judgements in qrels.items() if query in queries}
    if not judged:
        raise InputError(f"{folder}: no query of qrels/{split}.tsv is in queries.jsonl")
    return RetrievalSet(
        name=name,
        split=split,
        facts=facts,
        corpus=corpus_file,
        digest=" ".join(map(file_digest, (corpus_file, queries_file, qrels_file))),
        ids=list(is_empty),
        queries={query: queries[query] for query in judged},
        qrels=judged,
        unjudged_queries=len(queries) - len(judged),
        unknown_documents=sum(document not in is_empty for document in chain.from_iterable(judged.values())),
        unknown_queries=len(qrels) - len(judged),
        contradictory=contradictory,
        empty_documents=sum(is_empty.values()),
        titled=titled,
        trust="" if manifest is None else manifest.trust,
        changed=() if manifest is None else tuple(manifest.changed(folder)),
    )


def query_column(data: RetrievalSet, name: str) -> dict[str, str]:
    """Return a column of ``queries.jsonl`` by the ids of the judged queries, as text; empty where it is null.

    Raises:
        InputError: if a judged query does not have it.
    """
    path = _file(data.corpus.parent, "queries.jsonl")
    columns = {}
    for key, record in _records(path):
        if key not in data.queries:
            continue
        if name not in record:
            others = ", ".join(sorted(record.keys() - {"_id", "text"})) or "none"
            raise InputError(f"{path}: the query {key!r} has no {name!r} (--by); it has: {others}")
        value = record[name]
        columns[key] = "" if value is None else str(value)
    return columns


def document_text(record: dict[str, Any], *, join_title: bool = True) -> str:
    """Return the text of a document that is encoded: title and text, joined by a blank as in BEIR."""
    title = record.get("title") if join_title else None
    return f"{title or ''} {record['text']}".strip()


def is_beir(folder: Path) -> bool:
    """Tell whether a folder holds a corpus in BEIR layout."""
    return beir_file(folder, "corpus.jsonl") is not None


def splits_of(folder: Path) -> list[str]:
    """Return the names of the splits that a set has judgements for."""
    return sorted({file.name.partition(".tsv")[0] for file in (folder / "qrels").glob("*.tsv*")})


def beir_file(folder: Path, name: str) -> Path | None:
    """Return the path of a file of a set, which may be compressed, or None if it is missing."""
    for ending in ("", *PACKED):
        path = folder / f"{name}{ending}"
        if path.exists():
            return path
    return None


def _file(folder: Path, name: str) -> Path:
    """Return the path of a file of a set, or raise an InputError that says what the folder has instead."""
    path = beir_file(folder, name)
    if path is not None:
        regular(path)
        return path
    hint = ""
    if name.startswith("qrels/"):
        splits = splits_of(folder)
        hint = f"; it has: {', '.join(splits)}" if splits else ", and nothing says which documents are relevant"
    elif name == "corpus.jsonl":
        sets = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and is_beir(entry))
        if sets:
            hint = f"; it holds sets: {', '.join(sets)}"
    raise InputError(f"{folder / name} is missing: {folder} is not in BEIR layout{hint}")


def _records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the id and the record of each line, after checking that the id is unique and there is a text."""
    seen: set[str] = set()
    for line, record in records(open_source(str(path))):
        if record.get("_id") in (None, ""):
            raise DataError(path, "no '_id'", line=line)
        try:
            key = id_of(record["_id"])
        except ValueError as error:
            raise DataError(path, f"'_id' {error}", line=line) from None
        if not isinstance(record.get("title") or "", str):
            raise DataError(path, f"'title' is {kind_of(record['title'])}, not a string", line=line)
        if key in seen:
            raise DataError(path, f"the id {key!r} stands twice", line=line)
        if not isinstance(record.get("text"), str):
            raise DataError(path, "'text' is missing, null or no string", line=line)
        seen.add(key)
        yield key, record


def read_qrels(path: Path) -> tuple[Qrels, int]:
    """Read ``query-id  corpus-id  score`` rows, below a header line if the first line is one.

    Returns:
        The judgements, the last one where a document is judged twice for a query, and the number of pairs of which two
        judgements differ.

    Raises:
        DataError: for a row that does not parse.
    """
    qrels: Qrels = {}
    contradicted: set[tuple[str, str]] = set()
    source = open_source(str(path), "txt")
    lines = (record["text"] for _, record in records(source))
    rows = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    for number, row in enumerate(rows, 1):
        if not row or (number == 1 and _is_header(row)):
            continue
        relevance = _relevance(row[-1].strip()) if len(row) == 3 else None
        if relevance is None:
            raise DataError(path, "expected query-id, corpus-id and a whole number", line=number)
        if abs(relevance) > HIGHEST_RELEVANCE:
            raise DataError(path, f"the relevance {row[-1]} is beyond {HIGHEST_RELEVANCE:,}", line=number)
        query, document = row[:2]
        judged = qrels.setdefault(query, {})
        if judged.get(document, relevance) != relevance:
            contradicted.add((query, document))
        judged[document] = relevance
    return qrels, len(contradicted)


def _is_header(row: Sequence[str]) -> bool:
    """Tell whether the first line has a name in the place of a number; any number, such as 1.0, is a judgement."""
    try:
        float(row[-1])
    except ValueError:
        return True
    return False


def _relevance(text: str) -> int | None:
    """Return a relevance, which may be written as 1.0, or None for anything else."""
    whole, _, fraction = text.partition(".")
    if fraction.strip("0"):
        return None
    return whole_number(whole, signed=True)
