"""Retrieval sets in BEIR layout: read once to find what is wrong, then block by block, so that they may be large.

What is known of sets by name is data, in ``models/retrieval.toml``.
"""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

from sentcli.errors import DataError, InputError
from sentcli.io.digests import file_digest
from sentcli.io.sources import open_source, records
from sentcli.zoo import models_folder

BLOCK = 50_000
"""Documents whose texts and vectors are in memory at a time."""
Qrels = dict[str, dict[str, int]]
"""Judgements by query id and document id."""


@dataclass(frozen=True)
class SetFacts:
    """What decides a set's score beside the model."""

    name: str
    title: str
    short: str = ""
    """The title for a narrow column, where that is another."""
    aliases: tuple[str, ...] = ()
    average: bool = False
    """Whether papers have it in their mean over BEIR."""
    split: str = "test"
    self_hits: Literal["kept", "removed"] = "kept"
    """A hit whose document is the query."""
    join_title: bool = True
    query_length: int | None = None
    """Tokens; None is the model's maximum length."""
    document_length: int | None = None
    forums: tuple[str, ...] = ()
    """The sets that this one is the mean of."""
    note: str = ""


@cache
def known_sets() -> dict[str, SetFacts]:
    """Return all sets that something is known of, in the order of the papers."""
    with (models_folder() / "retrieval.toml").open("rb") as handle:
        tables: dict[str, dict[str, Any]] = tomllib.load(handle)
    sets = {}
    for name, table in tables.items():
        lists = {key: tuple(value) for key, value in table.items() if isinstance(value, list)}
        sets[name] = SetFacts(name=name, **{**table, **lists})
    return sets


@cache
def _names() -> dict[str, str]:
    return {alias: each.name for each in known_sets().values() for alias in (each.name, *each.aliases)}


def canonical(name: str) -> str:
    """Return a set's name as ``sentcli data list`` has it, for its own or another name of it, in any case."""
    return _names().get(name.lower(), name)


def facts_of(name: str) -> SetFacts:
    """Return what is known of a set; of one that is not known, the usual."""
    return known_sets().get(canonical(name)) or SetFacts(name, title=name)


def averaged() -> frozenset[str]:
    """Return the sets that papers average."""
    return frozenset(name for name, each in known_sets().items() if each.average)


@dataclass(frozen=True)
class RetrievalSet:
    """A BEIR folder: queries and judgements in memory, of the documents only the ids."""

    name: str
    split: str
    facts: SetFacts
    corpus: Path
    digest: str
    """Of the content of its files."""
    ids: list[str]
    """Of the documents."""
    queries: dict[str, str]
    """Those with a judgement."""
    qrels: Qrels
    unjudged_queries: int
    """Without a judgement in this split; left out."""
    unknown_documents: int
    """Judgements whose document is not in the corpus; they count as not found."""
    unknown_queries: int
    """Judged queries that queries.jsonl does not have; left out."""
    empty_documents: int
    """Without title and text; they are encoded like others."""

    @property
    def without_relevant(self) -> int:
        """Judged queries of which no document is relevant: they score 0."""
        return sum(not any(score > 0 for score in judgements.values()) for judgements in self.qrels.values())

    @cached_property
    def own_rows(self) -> dict[str, int]:
        """The row of the document that is the query, by query id, where such hits are removed."""
        if self.facts.self_hits == "kept":
            return {}
        return {key: row for row, key in enumerate(self.ids) if key in self.queries}

    def blocks(self, size: int = BLOCK) -> Iterator[list[str]]:
        """Yield the texts of the documents in the order of `ids`.

        Raises:
            DataError: if the file is not the one that was read first.
        """
        block: list[str] = []
        row = 0
        for line, record in records(open_source(str(self.corpus))):
            if row >= len(self.ids) or self.ids[row] != str(record.get("_id")):
                raise DataError(self.corpus, "the file has changed since it was read first", line=line)
            row += 1
            block.append(document_text(record, join_title=self.facts.join_title))
            if len(block) == size:
                yield block
                block = []
        if row != len(self.ids):
            raise DataError(self.corpus, "the file has changed since it was read first")
        if block:
            yield block


@dataclass(frozen=True)
class Collection:
    """What is scored under one name: a set, or the forums whose mean it is."""

    name: str
    facts: SetFacts
    members: dict[str, RetrievalSet]
    """The set itself, or the forums, by the name of each alone, as in ``android``."""

    @property
    def split(self) -> str:
        """Which qrels are scored."""
        return next(iter(self.members.values())).split

    def protocol(self) -> dict[str, Any]:
        """Return what decides the scores beside the model."""
        choices: dict[str, Any] = {
            "split": self.split,
            "own_document": "left out" if self.facts.self_hits == "removed" else "kept",
        }
        return choices | ({"forums": len(self.members)} if self.facts.forums else {})


def load_collection(folder: Path, split: str | None = None) -> Collection:
    """Read a set, or the forums of one that is the mean of several.

    Args:
        folder: in BEIR layout, or with one such folder for each forum.
        split: None is the one that papers score.

    Raises:
        InputError: as `load_set`; also if a forum is missing.
    """
    name = folder.resolve().name
    facts = facts_of(name)
    if not facts.forums or _there(folder / "corpus.jsonl"):
        return Collection(name, facts, {name: load_set(folder, split)})
    missing = [forum for forum in facts.forums if not (folder / forum).is_dir()]
    if missing and folder.is_dir():
        raise InputError(
            f"{folder}: {facts.title} is the mean of {len(facts.forums)} sets, and these are missing: "
            f"{', '.join(missing)}. --beir {folder}/NAME scores one of those that are there"
        )
    return Collection(name, facts, {forum: load_set(folder / forum, split) for forum in facts.forums})


def load_set(folder: Path, split: str | None = None) -> RetrievalSet:
    """Read ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/<split>.tsv`` (each may be gzipped).

    Args:
        folder: of the set; its name says which facts hold.
        split: None is the one that papers score.

    Raises:
        InputError: if the folder is not in BEIR layout.
        DataError: a broken line, a document without id, the same id twice, judgements that do not parse.
    """
    if not folder.is_dir():
        raise InputError(
            f"{folder} is not a folder; BEIR sets are read from disk (corpus.jsonl, queries.jsonl, qrels/)"
        )
    name = folder.resolve().name
    facts = facts_of(name)
    split = split or facts.split
    parts = [_part(folder, part) for part in ("corpus.jsonl", "queries.jsonl", f"qrels/{split}.tsv")]
    qrels = read_qrels(parts[2])
    queries = {key: str(record["text"]) for _, key, record in _rows(parts[1])}
    rows = {key: not document_text(record) for _, key, record in _rows(parts[0])}
    for path, entries in ((parts[0], rows), (parts[1], queries)):
        if not entries:
            raise DataError(path, "the file is empty")
    judged = {query: judgements for query, judgements in qrels.items() if query in queries}
    if not judged:
        raise InputError(f"{folder}: no query of qrels/{split}.tsv is in queries.jsonl")
    return RetrievalSet(
        name=name,
        split=split,
        facts=facts,
        corpus=parts[0],
        digest=" ".join(map(file_digest, parts)),
        ids=list(rows),
        queries={query: queries[query] for query in judged},
        qrels=judged,
        unjudged_queries=len(queries) - len(judged),
        unknown_documents=sum(document not in rows for documents in judged.values() for document in documents),
        unknown_queries=len(qrels) - len(judged),
        empty_documents=sum(rows.values()),
    )


def document_text(record: dict[str, Any], *, join_title: bool = True) -> str:
    """Return what is encoded of a document: title and text, joined by a blank as BEIR does."""
    title = (record.get("title") or "") if join_title else ""
    return f"{title} {record['text']}".strip()


def _there(path: Path) -> bool:
    return path.exists() or path.with_name(path.name + ".gz").exists()


def _part(folder: Path, name: str) -> Path:
    path = folder / name
    if path.exists():
        return path
    packed = path.with_name(path.name + ".gz")
    if packed.exists():
        return packed
    has = ""
    if name.startswith("qrels/"):
        others = {each.name.partition(".tsv")[0] for each in path.parent.glob("*.tsv*")}
        has = f"; it has: {', '.join(sorted(others))}" if others else ""
    elif name == "corpus.jsonl":
        sets = sorted(each.name for each in folder.iterdir() if each.is_dir() and _there(each / name))
        has = f"; it holds sets: {', '.join(sets)}" if sets else ""
    raise InputError(f"{path} is missing: {folder} is not in BEIR layout{has}")


def _rows(path: Path) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield line, id and record of each line, with an id that no other has and a text."""
    seen: set[str] = set()
    for line, record in records(open_source(str(path))):
        key = record.get("_id")
        if key is None or key == "":
            raise DataError(path, "no '_id'", line=line)
        if str(key) in seen:
            raise DataError(path, f"the id {key!r} stands twice", line=line)
        if not isinstance(record.get("text"), str):
            raise DataError(path, "'text' is missing, null or no string", line=line)
        seen.add(str(key))
        yield line, str(key), record


def read_qrels(path: Path) -> Qrels:
    """Read ``query-id  corpus-id  score`` rows under a header line.

    Raises:
        DataError: for a row that does not parse.
    """
    qrels: Qrels = {}
    source = open_source(str(path), "txt")
    lines = (record["text"] for _, record in records(source))
    for number, row in enumerate(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE), 1):
        if number == 1 and (not row or not row[-1].strip().lstrip("-").isdigit()):
            continue  # the header
        if not row:
            continue
        try:
            query, document, score = row
            qrels.setdefault(query, {})[document] = int(score)
        except ValueError as error:
            raise DataError(path, "expected query-id, corpus-id and a whole number", line=number) from error
    return qrels
