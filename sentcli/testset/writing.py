"""A test set on disk: BEIR layout, with its manifest."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sentcli.evaluation.set_manifest import SetManifest
from sentcli.testset.queries import Made


def write_set(folder: Path, made: Made, trust: str, settings: dict[str, Any]) -> SetManifest:
    """Write corpus, queries, judgements (split ``test``) and manifest into a folder, which is made.

    Queries that nobody has judged yet have no judgements.

    Args:
        folder: of the set.
        made: documents and queries.
        trust: a sentence for the manifest.
        settings: every choice besides the files.
    """
    documents = made.documents
    folder.mkdir(parents=True)
    rows = zip(documents.ids, documents.titles, documents.texts, strict=True)
    _write_jsonl(folder / "corpus.jsonl", [{"_id": key, "title": title, "text": text} for key, title, text in rows])
    _write_jsonl(folder / "queries.jsonl", [{"_id": query.id, "text": query.text} for query in made.queries])
    judgements = [(query.id, key, grade) for query in made.queries for key, grade in query.relevant.items()]
    if judgements:
        (folder / "qrels").mkdir()
        with (folder / "qrels" / "test.tsv").open("w", encoding="utf-8", newline="") as handle:
            writer = csv.writer(handle, delimiter="\t", quoting=csv.QUOTE_NONE, quotechar=None, lineterminator="\n")
            writer.writerows([("query-id", "corpus-id", "score"), *judgements])
    manifest = SetManifest(
        trust=trust,
        queries_from=dict(Counter(query.structure for query in made.queries)),
        documents=len(documents.ids),
        queries=len(made.queries),
        judgements=len(judgements),
        left_out=made.left_out,
        near_equal_pairs=made.near_equal,
        made_from=documents.origins,
        taken=documents.taken,
        settings=settings,
    )
    manifest.write(folder)
    return manifest


def _write_jsonl(path: Path, rows: Sequence[dict[str, str]]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as handle:
        handle.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
