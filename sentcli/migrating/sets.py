"""The retrieval set on which a corpus's model is compared with the one that it is to move to."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sentcli.errors import InputError
from sentcli.evaluation.labelled_data import load_tasks
from sentcli.evaluation.retrieval import RetrievalSet
from sentcli.evaluation.retrieval_tasks import retrieval_tasks
from sentcli.io.sampling import reservoir_sample
from sentcli.model.passages import title_columns
from sentcli.search.corpus_documents import CorpusDocuments
from sentcli.search.rows import Document
from sentcli.testset.documents import SUMMARY_FIELDS, TITLE_FIELDS
from sentcli.testset.queries import OTHER_QUERIES, structural_queries
from sentcli.testset.reading import read_documents
from sentcli.testset.trust import trust_in
from sentcli.testset.writing import write_set

DOCUMENTS = 10_000
"""The most documents of a set that is made of a corpus; more are drawn at random."""
QUERIES = 1000
"""The most queries of such a set."""
SEED = 0


def made_set(corpus: CorpusDocuments, folder: Path) -> RetrievalSet:
    """Make a set of the documents of a corpus, or of a random sample of them, as ``data make-set`` does.

    Args:
        corpus: the documents.
        folder: of the set, which is made.

    Raises:
        InputError: if the documents give too few queries.
    """
    file = folder.with_suffix(".jsonl")
    title_field = _title_field(corpus.columns)
    lines, _ = reservoir_sample(map(_as_line(title_field), corpus), DOCUMENTS)
    with file.open("w", encoding="utf-8", newline="\n") as handle:
        handle.writelines(lines)
    try:
        documents = read_documents([str(file)], "text", None if title_field is None else "title")
        query_set = structural_queries(documents, corpus.title, QUERIES, SEED)
    except InputError as error:
        reason = str(error).replace(str(file), corpus.title).removesuffix(f". {OTHER_QUERIES}")
        raise InputError(
            f"{reason}. So no set can be made of it to compare the models on: give one with --set, or move it with "
            "--anyway"
        ) from error
    documents.names = [corpus.title]
    write_set(folder, query_set, trust_in(query_set), {"limit": QUERIES, "documents": DOCUMENTS, "seed": SEED})
    return given_set(str(folder))


def _title_field(names: Sequence[str]) -> str | None:
    """Return the column that says best what a document is about; None if there is none of a usual name."""
    columns = title_columns(names)
    lower = {name.lower(): name for name in names}
    for usual in (*TITLE_FIELDS, *SUMMARY_FIELDS):
        if usual in lower:
            columns.append(lower[usual])
    return columns[0] if columns else None


def _as_line(title_field: str | None) -> Callable[[Document], str]:
    """Return what writes a document as a line of JSON."""

    def line(document: Document) -> str:
        record: dict[str, Any] = {"id": document.id, "text": document.text}
        title = document.columns.get(title_field) if title_field is not None else None
        if title_field is not None:
            record["title"] = title if isinstance(title, str) else ""
        return json.dumps(record, ensure_ascii=False) + "\n"

    return line


def given_set(name: str, option: str = "--set", split: str = "dev") -> RetrievalSet:
    """Return a retrieval set, in one split or its only one, as ``evaluate`` reads it.

    Args:
        name: its file or folder.
        option: the option that names it, for messages.
        split: of a set that has several.

    Raises:
        InputError: if it is no retrieval set.
    """
    tasks = retrieval_tasks(load_tasks([name], split=split), option)
    if len(tasks) > 1:
        raise InputError(
            f"{option} {name} holds several sets: {', '.join(task.name for task in tasks)}; name one of them"
        )
    return tasks[0].data


def require_documents(data: RetrievalSet, corpus: CorpusDocuments) -> None:
    """Refuse a set whose documents are not in a corpus: it says nothing about the search in it.

    A document is there if a document of the corpus has its id, or the part of it in front of ``#``, which is that of a
    page whose sections ``data make-set`` has taken for documents, or if a row has its text.

    Raises:
        InputError: which names the first document that is missing.
    """
    keys: set[str] = set()
    texts: set[int] = set()
    for document in corpus:
        keys.add(document.id)
        texts.add(hash(document.text))
    missing = []
    for key, (_, text) in zip(data.ids, data.titled_texts(), strict=True):
        if key not in keys and key.partition("#")[0] not in keys and hash(text) not in texts:
            missing.append(key)
    if missing:
        raise InputError(
            f"{len(missing):,} of the {len(data.ids):,} documents of {data.corpus.parent} are not in {corpus.title}, "
            f"first {missing[0]!r}: give a --set of its documents, or none, and one is made of them"
        )
