"""Search the site for what users type: ``python docs/check_search.py`` after docs/make_site.py (``make docs``).

The entries of the site's own search are ranked by the BM25 of ``sentcli retrieve``, since its search runs in a browser:
one entry for each section, whose title stands five times before the text, as titles weigh more there too. A page is
found where the first of its sections is. It fails for a page that does not come first.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
INDEX = ROOT / "site" / "search.json"
TAG = re.compile(r"<[^>]+>")
TITLE_WEIGHT = 5
SEARCHES = {
    "batch size": "scaling.md train-settings.md",
    "beir": "retrieval-scores.md",
    "bm25": "retrieve.md",
    "choose model": "start/choose.md",
    "citation": "index.md",
    "cosine threshold": "thresholds.md",
    "cross-encoder rerank": "retrieve.md methods/cross-encoder.md",
    "delete rows": "places.md encode.md",
    "duplicates": "analyze.md",
    "exit code": "errors.md",
    "gpu": "install.md scaling.md",
    "hard negatives": "mine.md",
    "long documents": "encode.md studies/passages.md",
    "lora": "models.md",
    "matryoshka": "train-settings.md train.md",
    "milvus": "milvus.md",
    "offline": "install.md data.md",
    "onnx javascript": "export.md",
    "out of memory": "errors.md",
    "passages": "encode.md studies/passages.md",
    "postgres": "postgres.md",
    "prompt": "models.md retrieve.md",
    "quantize int8": "export.md",
    "ray": "scaling.md",
    "resume": "encode.md train.md reproducibility.md",
    "s3": "remote.md",
    "seeds": "sweeps.md",
    "senteval": "senteval.md",
    "significance": "retrieval-scores.md evaluate.md",
    "update index": "indexes.md",
    "version compatibility": "compatibility.md",
}
"""What users type, and the pages of which one should come first.

Two are left out that find no right page: `which model`, of which BM25 keeps a word that nearly every page has, and
`docker`, which no page has.
"""


def document(entry: dict[str, Any]) -> dict[str, str]:
    """Return an entry of the site's search as a document whose title weighs more than its text."""
    text = TAG.sub(" ", entry["text"])
    return {"id": entry["location"], "text": f"{entry['title']}\n" * TITLE_WEIGHT + text}


def search(entries: list[dict[str, Any]]) -> list[list[str]]:
    """Return the names of the pages that each search finds, best first."""
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder, "sections.jsonl")
        corpus.write_text("".join(json.dumps(document(entry)) + "\n" for entry in entries), "utf-8")
        command = [sys.executable, "-m", "sentcli", "retrieve", "-q", "--search", "bm25", "--corpus", corpus]
        for query in SEARCHES:
            command += ["--query", query]
        command += ["--top-k", str(len(entries)), "--json", "-"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [pages_of(result["hits"]) for result in json.loads(done.stdout)["results"]]


def pages_of(hits: list[dict[str, Any]]) -> list[str]:
    """Return the pages of the sections that were found, each once."""
    pages = [hit["id"].partition("#")[0].replace(".html", ".md") for hit in hits]
    return list(dict.fromkeys(pages))


if __name__ == "__main__":
    missed = []
    found_pages = search(json.loads(INDEX.read_text("utf-8"))["items"])
    for (query, right), found in zip(SEARCHES.items(), found_pages, strict=True):
        rank = next((place for place, page in enumerate(found, 1) if page in right.split()), None)
        print(f"{query}: {right} is number {rank}; first come {', '.join(found[:3])}")
        if rank != 1:
            missed.append(query)
    if missed:
        sys.exit(f"{len(missed)} of {len(SEARCHES)} searches miss their page: {', '.join(missed)}")
