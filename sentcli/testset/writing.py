"""A test set on disk: BEIR layout, with its manifest."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sentcli.evaluation.set_manifest import SetManifest
from sentcli.testset.queries import QuerySet

CORPUS_FILE, QUERIES_FILE, JUDGEMENTS_FILE = "corpus.jsonl", "queries.jsonl", "qrels/test.tsv"


def write_set(folder: Path, query_set: QuerySet, trust: str, settings: dict[str, Any]) -> SetManifest:
    """Write corpus, queries, judgements (split ``test``) and manifest into a folder, which is made.

    Queries that nobody has judged yet have no judgements.

    Args:
        folder: of the set.
        query_set: documents and queries.
        trust: a sentence for the manifest.
        settings: every choice besides the files.
    """
    documents = query_set.documents
    folder.mkdir(parents=True)
    corpus = []
    for key, title, text in zip(documents.ids, documents.titles, documents.texts, strict=True):
        corpus.append({"_id": key, "title": title, "text": text})
    write_jsonl(folder / CORPUS_FILE, corpus)
    queries = []
    judgements = []
    structures: Counter[str] = Counter()
    for query in query_set.queries:
        queries.append({"_id": query.id, "text": query.text})
        structures[query.structure] += 1
        for key, grade in query.relevant.items():
            judgements.append((query.id, key, grade))
    write_jsonl(folder / QUERIES_FILE, queries)
    text_fields = list(documents.text_fields)
    if judgements:
        (folder / JUDGEMENTS_FILE).parent.mkdir()
        write_tsv(folder / JUDGEMENTS_FILE, [("query-id", "corpus-id", "score"), *judgements])
    near = query_set.near_equal
    manifest = SetManifest(
        trust=trust,
        queries_from=dict(structures),
        documents=len(documents.ids),
        queries=len(queries),
        judgements=len(judgements),
        left_out=query_set.left_out,
        near_equal_pairs=(sum(map(len, near.values())) - len(near)) // 2,
        made_from=documents.origins,
        taken=documents.taken,
        settings=settings,
        corpus=documents.names,
        text_field=text_fields[0] if len(text_fields) == 1 else "text",
    )
    manifest.write(folder)
    return manifest


def write_tsv(path: Path, rows: Iterable[Sequence[Any]]) -> None:
    """Write rows whose cells have no tabs and ends of lines, without quotation marks, as BEIR has them."""
    with path.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.writer(handle, delimiter="\t", quoting=csv.QUOTE_NONE, quotechar=None, lineterminator="\n")
        writer.writerows(rows)


def write_jsonl(path: Path, rows: Iterable[dict[str, str]]) -> None:
    """Write objects, a line each."""
    with path.open("w", encoding="utf-8", newline="\n") as handle:
        handle.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
