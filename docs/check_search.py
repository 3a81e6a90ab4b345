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
    "cache location": "export.md data.md models.md install.md",
    "chinese": "models.md",
    "choose model": "start/choose.md",
    "citation": "index.md",
    "clustering": "analyze.md",
    "compare two models": "evaluate.md start/choose.md",
    "confidence interval": "evaluate.md sts-eval.md retrieval-scores.md report.md",
    "cosine threshold": "thresholds.md",
    "cpu only": "install.md",
    "cross-encoder rerank": "retrieve.md methods/cross-encoder.md",
    "custom loss": "add-a-method.md combine.md",
    "data leakage": "labelled.md train.md sweeps.md",
    "deduplicate": "analyze.md",
    "delete rows": "places.md encode.md",
    "docker": "install.md",
    "duplicates": "analyze.md",
    "early stopping": "train-settings.md",
    "environment variables": "install.md",
    "exit code": "errors.md",
    "false negatives": "mine.md",
    "filter metadata": "retrieve.md",
    "fine-tune own data": "start/own-data.md labelled.md adapt.md start/train.md",
    "fp16 nan": "export.md errors.md",
    "gpu": "install.md scaling.md",
    "gradient accumulation": "scaling.md",
    "hard negatives": "mine.md",
    "hnsw": "indexes.md",
    "hybrid search": "retrieve.md",
    "index recall": "indexes.md retrieval-scores.md",
    "interrupted run": "encode.md train.md reproducibility.md",
    "isotropy": "analyze.md",
    "json output": "encode.md format.md",
    "k-means clusters": "analyze.md",
    "knowledge distillation": "methods/distill.md train.md",
    "learning rate": "train-settings.md train.md sweeps.md",
    "license commercial": "models.md data.md publish.md",
    "long documents": "encode.md studies/passages.md",
    "lora": "models.md",
    "matryoshka": "train-settings.md train.md",
    "max length": "encode.md train-settings.md models.md errors.md",
    "mean pooling cls": "models.md",
    "memory mapped": "scaling.md indexes.md",
    "milvus": "milvus.md",
    "mixed precision": "scaling.md",
    "model card": "publish.md train.md",
    "multi gpu": "scaling.md encode.md",
    "multilingual": "models.md start/choose.md",
    "nearest neighbours": "retrieve.md indexes.md",
    "normalize vectors": "python.md encode.md models.md",
    "offline": "install.md data.md",
    "onnx javascript": "export.md",
    "openvino": "export.md",
    "out of memory": "errors.md",
    "parquet csv": "format.md encode.md",
    "passages": "encode.md studies/passages.md",
    "pip install error": "install.md errors.md",
    "postgres": "postgres.md",
    "private model token": "models.md errors.md",
    "product quantization": "indexes.md",
    "progress bar": "encode.md",
    "prompt": "models.md retrieve.md",
    "proxy mirror": "data.md install.md errors.md",
    "push to hub": "publish.md",
    "python api": "python.md api.md",
    "quantize int8": "export.md",
    "query prefix": "models.md retrieve.md",
    "ray": "scaling.md",
    "reciprocal rank fusion": "retrieve.md",
    "resume": "encode.md train.md reproducibility.md",
    "s3": "remote.md",
    "seeds": "sweeps.md",
    "senteval": "senteval.md",
    "significance": "retrieval-scores.md evaluate.md",
    "static embeddings": "models.md methods/static.md",
    "stdin pipe": "encode.md",
    "t-sne": "analyze.md",
    "text truncated": "encode.md errors.md",
    "train reranker": "methods/cross-encoder.md",
    "update index": "indexes.md",
    "utf-8 error": "errors.md format.md",
    "version compatibility": "compatibility.md",
    "wandb tensorboard": "metrics.md",
    "which model": "models.md start/choose.md",
    "whitening": "methods/whitening.md methods/whitenedcse.md",
    "windows": "install.md",
}
"""What users type, and the pages of which one should come first.

Left out are `tokenizer` and `slow import`, of which no section says all, and `reproduce simcse`, for which the page on
reproducibility comes before that of the method: it says what is the same from one run to the next.
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
