"""What negatives are mined for and among: a retrieval set, or a table of pairs, and a corpus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sentcli import console
from sentcli.data import dataset_path
from sentcli.errors import InputError
from sentcli.evaluation.beir_files import beir_file, document_text, is_beir, records_by_id, relevant_documents
from sentcli.evaluation.known_sets import canonical
from sentcli.evaluation.retrieval import RetrievalSet, load_collection
from sentcli.io.labelled import LabelledTable, read_table
from sentcli.io.labelled_kinds import DATA_KINDS
from sentcli.io.readers import ReadOptions
from sentcli.io.sources import open_source
from sentcli.io.table_layout import infer_layout
from sentcli.mining.mined import MiningQueries
from sentcli.search.rows import read_documents_of

TAKEN = ("pairs", "triplets", "binary")
"""The kinds of tables that have positives; of 0/1 pairs these are the pairs with 1."""


@dataclass
class MiningTexts:
    """Queries, documents, and which documents are positives of which queries."""

    query_ids: list[str] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    positives: list[list[int]] = field(default_factory=list)
    """The numbers of the documents that are positives of each query."""
    left_out: list[list[int]] = field(default_factory=list)
    """The numbers of other documents that are no candidates of each query."""
    ids: list[str | None] = field(default_factory=list)
    """The ids of the documents; None of a positive that is not in the corpus and has none."""
    documents: list[str] = field(default_factory=list)
    """The texts of the corpus, and behind them those of the positives that it lacks."""
    corpus: int = 0
    """The number of documents of the corpus."""
    unknown: int = 0
    """The number of judged positives that are not in the set's corpus; they are left out."""
    empty_rows: int = 0
    """The number of rows of a table, or of queries of a set, with an empty text; they are left out."""
    empty_positives: int = 0
    """The number of judged positives of a set that have no text; they are left out."""
    lengths: tuple[int | None, int | None] = (None, None)
    """The maximum lengths of queries and documents in tokens that the set is known for; None is the model's."""
    protocol: dict[str, Any] = field(default_factory=dict)
    """What was read of which files."""
    _numbers: dict[str, int] = field(default_factory=dict)
    """The number of the first document with each text; one that only `copies.plain` makes equal is another document."""

    @property
    def mining(self) -> MiningQueries:
        """The queries, for `mine`."""
        return MiningQueries(self.queries, self.positives, self.left_out)

    def add_corpus(self, documents: Iterable[tuple[str, str]]) -> None:
        """Add the documents of the corpus, given their ids and texts."""
        for key, text in documents:
            self._numbers.setdefault(text, len(self.documents))
            self.ids.append(key)
            self.documents.append(text)
        self.corpus = len(self.documents)

    def number_of(self, key: str | None, text: str) -> int:
        """Return the number of the document with a text, which is added if the corpus lacks it."""
        number = self._numbers.setdefault(text, len(self.documents))
        if number == len(self.documents):
            self.ids.append(key)
            self.documents.append(text)
        return number


@dataclass(frozen=True)
class CorpusFields:
    """The columns of a corpus."""

    text: str = "text"
    title: str | None = None
    """A title stands in front of its text, as in BEIR; None reads texts alone."""
    id: str | None = None


def read_mining(
    source: str,
    corpus: str | None,
    *,
    split: str | None = None,
    pair_fields: str | None = None,
    fields: CorpusFields | None = None,
) -> MiningTexts:
    """Read a retrieval set or a table of pairs, and the corpus in which negatives are looked for.

    Args:
        source: a folder in BEIR layout, the name of a set that ``data get`` has fetched, or a table.
        corpus: a file, a folder in BEIR layout, or a directory of ``encode``; None is the corpus of the set.
        split: of the set's judgements; None is its usual one.
        pair_fields: the columns of a table, as for `labelled.read_table`.
        fields: the columns of the corpus.

    Raises:
        InputError: if there is no such set or table, it has no positives, or options do not go with it.
    """
    fields = fields or CorpusFields()
    folder = dataset_path(Path(canonical(source)))
    if Path(source).exists():
        folder = Path(source)
    if folder.is_dir():
        if pair_fields is not None:
            raise InputError(f"--pair-fields {pair_fields} is of tables, and {source} is a folder")
        return _read_set(folder, corpus, split, fields)
    if split is not None:
        raise InputError(f"--split {split} is of retrieval sets, and {source} is a table")
    if corpus is None:
        raise InputError(f"{source} is a table of pairs: give the documents in which to look for negatives (--corpus)")
    return _read_pairs(source, corpus, pair_fields, fields)


def _read_set(folder: Path, corpus: str | None, split: str | None, fields: CorpusFields) -> MiningTexts:
    collection = load_collection(folder, split)
    if len(collection.members) > 1:
        names = ", ".join(collection.members)
        raise InputError(f"{folder} holds several sets: {names}; name one of them, as {folder}/NAME")
    (data,) = collection.members.values()
    for problem in data.problems:
        console.warn(f"{data.name}: {problem}")
    console.note(f"{data.name}: the queries of the split {data.split}; what trains on them is evaluated on others")
    texts = MiningTexts(unknown=data.unknown_documents)
    texts.lengths = data.facts.query_length, data.facts.document_length
    texts.protocol = {"set": str(folder), "split": data.split, "corpus": corpus}
    documents = dict(zip(data.ids, data.texts(), strict=True))
    numbers: dict[str, int] = {}
    if corpus is None:
        texts.add_corpus(documents.items())
        numbers = dict(zip(data.ids, range(len(data.ids)), strict=True))
    else:
        texts.add_corpus(_corpus(corpus, fields))
    for query, text in data.queries.items():
        if not text.strip():
            texts.empty_rows += 1
            continue
        positives = []
        for key in sorted(relevant_documents(data.qrels[query])):
            document = documents.get(key, "")
            if not document:
                texts.empty_positives += key in documents
            elif key in numbers:
                positives.append(numbers[key])
            else:
                number = texts.number_of(key, document)
                positives.append(number)
        texts.query_ids.append(query)
        texts.queries.append(text)
        texts.positives.append(positives)
        texts.left_out.append(_own(data, query, numbers))
    if not any(texts.positives):
        raise InputError(f"{folder}: no query of the split {data.split} has a relevant document in the corpus")
    return texts


def _own(data: RetrievalSet, query: str, numbers: dict[str, int]) -> list[int]:
    """Return the document that is the query itself, in sets that have such documents."""
    if query in data.own_rows and query in numbers:
        return [numbers[query]]
    return []


def _read_pairs(source: str, corpus: str, pair_fields: str | None, fields: CorpusFields) -> MiningTexts:
    table = _positive_pairs(source, pair_fields)
    texts = MiningTexts(empty_rows=table.skipped)
    texts.protocol = {"pairs": source, "pair_fields": pair_fields, "corpus": corpus}
    texts.add_corpus(_corpus(corpus, fields))
    number_of_query: dict[str, int] = {}
    for line, query, positive in zip(table.lines, table.texts[0], table.texts[1], strict=True):
        number = number_of_query.setdefault(query, len(number_of_query))
        if number == len(texts.queries):
            texts.query_ids.append(str(line))
            texts.queries.append(query)
            texts.positives.append([])
        document = texts.number_of(None, positive)
        texts.positives[number].append(document)
    return texts


def _positive_pairs(source: str, pair_fields: str | None) -> LabelledTable:
    """Return the pairs of anchor and positive of a table; of 0/1 pairs those with 1."""
    file = open_source(source)
    layout = infer_layout(file, fields=pair_fields)
    kind = layout.kind
    if kind not in TAKEN:
        raise InputError(
            f"{source}: {DATA_KINDS[kind].words} do not say which text is a positive of which; a table has the columns "
            "anchor and positive, or --pair-fields names both"
        )
    if kind == "triplets":
        console.note(f"{source}: its columns of negatives are not read")
        kind = "pairs"
        pair_fields = ",".join(layout.columns[:2])
    table = read_table(file, kind=kind, fields=pair_fields, on_empty="skip")
    console.note(f"{source}: {table.reading}")
    if kind == "binary":
        rows = [row for row, value in enumerate(table.values or []) if value == 1]
        table = table.of_rows(rows)
    if not len(table):
        raise InputError(f"{source}: no pair is one of query and positive")
    return table


def _corpus(name: str, fields: CorpusFields) -> Iterator[tuple[str, str]]:
    """Yield the ids and texts of a corpus."""
    path = Path(name)
    if path.is_dir() and is_beir(path):
        file = beir_file(path, "corpus.jsonl")
        assert file is not None
        for key, record in records_by_id(file):
            yield key, document_text(record)
        return
    title = fields.title
    documents = read_documents_of([name], ReadOptions(fields.text, fields.id))
    if title is not None and title not in documents.column_types:
        others = ", ".join(documents.column_types) or "no other columns"
        raise InputError(f"{name}: no column {title!r} for --title-field; it has {others}")
    for row in documents.rows:
        text = row.text
        if title is not None:
            text = f"{row.columns[title] or ''} {text}".strip()
        yield row.id, text
