"""Whether passages find more than documents that are cut: judged sets, documents that were joined, the project's pages.

    SENTCLI_DATA=... python benchmarks/passages.py [-m minilm] [--sets time cranfield cacm lisa] [-o FILE.json]

Each set is read in the ways of ``evaluate --variants``: cut to what the model reads, the mean of its pieces, passages,
and passages with the title of their document. The difference is that of nDCG@10 from documents that are cut, over the
same queries, with its 95 % interval. Joined documents are ten of a set in random order: they are long, and only one of
their parts answers a query. The pages are docs/ of the project, and their queries the headings, which are taken out.
"""

import argparse
import json
import random
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
from common import data_folder, machine

from sentcli.evaluation.evaluated import EvaluatedModel
from sentcli.evaluation.readings import FLAGS, encode_documents
from sentcli.evaluation.retrieval import RetrievalSet, load_set
from sentcli.evaluation.retrieval_metrics import relevant_documents
from sentcli.evaluation.retrieval_tasks import score_run
from sentcli.evaluation.significance import compare_two
from sentcli.search.options import SearchOptions
from sentcli.search.searcher import searcher_over
from sentcli.testset.queries import structural_queries
from sentcli.testset.reading import read_documents as read_corpus

JOINED = 10
"""Documents that are joined to one."""
TOP_K = 100


def write(folder: Path, documents: dict[str, str], queries: dict[str, str], qrels: dict[str, dict[str, int]]) -> Path:
    """Write a set in BEIR layout."""
    (folder / "qrels").mkdir(parents=True)
    corpus = [json.dumps({"_id": key, "title": "", "text": text}) for key, text in documents.items()]
    asked = [json.dumps({"_id": key, "text": text}) for key, text in queries.items()]
    lines = ["query-id\tcorpus-id\tscore"]
    for query, judged in qrels.items():
        lines += [f"{query}\t{document}\t{grade}" for document, grade in judged.items()]
    (folder / "corpus.jsonl").write_text("\n".join(corpus) + "\n", "utf-8")
    (folder / "queries.jsonl").write_text("\n".join(asked) + "\n", "utf-8")
    (folder / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n", "utf-8")
    return folder


def joined(data: RetrievalSet, folder: Path) -> Path:
    """Write a set whose documents are ten of another one's, in random order."""
    texts = list(zip(data.ids, data.texts(), strict=True))
    random.Random(0).shuffle(texts)
    documents, owner = {}, {}
    for start in range(0, len(texts), JOINED):
        part = texts[start : start + JOINED]
        key = f"j{start // JOINED}"
        documents[key] = "\n\n".join(text for _, text in part)
        owner |= dict.fromkeys((one for one, _ in part), key)
    qrels: dict[str, dict[str, int]] = defaultdict(dict)
    for query, judged in data.qrels.items():
        for document in relevant_documents(judged):
            if document in owner:
                qrels[query][owner[document]] = 1
    queries = {key: text for key, text in data.queries.items() if key in qrels}
    return write(folder, documents, queries, qrels)


def pages(docs: Path, folder: Path) -> Path:
    """Write the set of whole pages whose queries are their headings, which do not stand in them."""
    found = structural_queries(read_corpus([str(docs)]), str(docs), 1000, 0)
    texts: dict[str, list[str]] = defaultdict(list)
    for key, text in zip(found.documents.ids, found.documents.texts, strict=True):
        texts[key.partition("#")[0]].append(text)
    queries, qrels = {}, {}
    for query in found.queries:
        queries[query.id] = query.text
        qrels[query.id] = {key.partition("#")[0]: 1 for key in query.relevant}
    return write(folder, {page: "\n\n".join(parts) for page, parts in texts.items()}, queries, qrels)


def measured(name: str, kind: str, data: RetrievalSet, model: EvaluatedModel) -> dict[str, object]:
    """Return what each way of reading finds."""
    query_prompt, document_prompt = SearchOptions().prompts(model.spec)
    queries = list(data.queries.values())
    asked = model.encode(queries, prompt=query_prompt).vectors_of(queries)
    ways: dict[str, dict[str, object]] = {}
    cut = None
    for reading in FLAGS:
        if reading == "passages with titles" and not data.titled:
            continue
        began = time.perf_counter()
        read = encode_documents(model, data, reading, document_prompt, lambda added: None)
        seconds = time.perf_counter() - began
        hits = read.nearest(searcher_over("flat", read.vectors), asked, min(TOP_K, len(data.ids)))
        run = {}
        for query, positions, scores in zip(data.queries, hits.positions, hits.scores.tolist(), strict=True):
            run[query] = {data.ids[row]: score for row, score in zip(positions, scores, strict=True) if row >= 0}
        score = score_run(data, run, TOP_K)
        cut = cut or score
        replicates = score.replicates_of("ndcg@10"), cut.replicates_of("ndcg@10")
        difference = compare_two(score.value, cut.value, *replicates, len(data.queries))
        ways[reading] = {
            "ndcg@10": round(score.value, 4),
            "difference": round(difference.difference, 4),
            "low": round(difference.low, 4),
            "high": round(difference.high, 4),
            "vectors": round(read.per_document(len(data.ids)), 2),
            "cut": read.truncated,
            "seconds": round(seconds, 1),
        }
        print(name, reading, ways[reading], flush=True)
    words = float(np.mean([len(text.split()) for text in data.texts()]))
    counts = {"documents": len(data.ids), "queries": len(data.queries), "words": round(words)}
    return {"set": name, "kind": kind, **counts, "ways": ways}


def main() -> None:
    """Measure all sets and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", dest="model", default="minilm")
    parser.add_argument("--sets", nargs="+", default=["time", "cranfield", "cacm", "lisa"])
    parser.add_argument("-o", dest="output", type=Path)
    options = parser.parse_args()
    print(machine())
    model = EvaluatedModel(options.model, rerun=True)
    docs = Path(__file__).resolve().parent.parent / "docs"
    found = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        judged = {name: load_set(data_folder() / "retrieval" / name) for name in options.sets}
        for name, data in judged.items():
            found.append(measured(name, "judged", data, model))
        for name, data in judged.items():
            found.append(measured(name, "joined", load_set(joined(data, folder / f"{name}-joined")), model))
        found.append(measured("docs", "pages", load_set(pages(docs, folder / "pages")), model))
    if options.output is not None:
        options.output.write_text(json.dumps({"model": options.model, "sets": found}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
