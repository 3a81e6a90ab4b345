"""Does a set that `data make-set` makes choose among models as people's judgements do?

    SENTCLI_DATA=... python benchmarks/choosing.py RESULTS.jsonl [--sets cranfield,cacm] [--queries 500] [--model DIR]
        [--without "minilm, cls"]

For each judged set whose documents have titles: nDCG@10 of every system on the judgements, on titles (their documents
without them), and on random crops of 8 words of the documents. Systems are encoders with several poolings, lengths and
precisions, further folders (--model), BM25, and hashed counts of words. Scores of single queries are kept in
RESULTS.jsonl, from which a run that was cut off goes on; ``python docs/make_results.py`` makes the table of
docs/studies/choosing.md of docs/results/choosing/scores.jsonl.
"""

import argparse
import json
import re
import tempfile
from pathlib import Path

import numpy as np
from common import data_folder, machine
from sklearn.feature_extraction.text import HashingVectorizer

from sentcli.evaluation.evaluated import EvaluatedModel
from sentcli.evaluation.retrieval import load_set
from sentcli.evaluation.retrieval_tasks import score_run
from sentcli.evaluation.set_search import SetSearch
from sentcli.model.options import LoadOptions
from sentcli.search.exact import search
from sentcli.search.options import SearchOptions
from sentcli.testset.queries import JudgedQuery, structural_queries, words
from sentcli.testset.reading import read_documents
from sentcli.testset.writing import write_set

TOP_K = 100
CROP_WORDS = 8
WITHOUT_MODEL = ("BM25", "hashed words")


def systems(models):
    """Yield the label and the options of each system; None stands for one without a model."""
    yield from ((label, None) for label in WITHOUT_MODEL)
    for pooling in ("mean", "cls", "max", "first-last-avg"):
        yield f"minilm, {pooling}", ("minilm", LoadOptions(pooling=pooling))
    for length in (16, 32, 64, 128):
        yield f"minilm, {length} tokens", ("minilm", LoadOptions(max_length=length))
    yield "minilm, int8", ("minilm", LoadOptions(precision="int8"))
    for pooling in ("mean", "cls", "first-last-avg"):
        yield f"sentcli-bert-mini, {pooling}", ("sentcli-bert-mini", LoadOptions(pooling=pooling))
    for model in models:
        yield model, (model, LoadOptions())


def sets_of(folder, target, limit):
    """Return the judged set, and sets of titles and of crops of the same documents."""
    documents = read_documents([str(folder)])
    titles = structural_queries(documents, str(folder), limit, seed=0)
    write_set(target / "titles", titles, "", {})
    generator, crops = np.random.default_rng(0), []
    bare = titles.documents
    long = [place for place, text in enumerate(bare.texts) if len(words(text)) >= 3 * CROP_WORDS]
    for number, place in enumerate(generator.permutation(long)[:limit].tolist()):
        found = re.findall(r"\S+", bare.texts[place])
        start = int(generator.integers(0, len(found) - CROP_WORDS + 1))
        text = " ".join(found[start : start + CROP_WORDS])
        crops.append(JudgedQuery(f"q{number}", text, {bare.ids[place]: 1}, "crop"))
    write_set(target / "crops", type(titles)(crops, bare, {}, 0), "", {})
    return {"judged": load_set(folder), "titles": load_set(target / "titles"), "crops": load_set(target / "crops")}


def values_of(label, choice, data):
    """Return nDCG@10 of each query."""
    found = SetSearch(data, SearchOptions(search="dense,bm25", top_k=TOP_K))
    if choice is not None:
        hits = found.by_vectors(EvaluatedModel(*choice)).hits
    elif label == "BM25":
        hits = found.by_words
    else:
        hashing = HashingVectorizer(analyzer=words, n_features=2048, dtype=np.float32)
        queries, rows = (hashing.transform(part).toarray() for part in (data.queries.values(), data.texts()))
        hits = search(queries, [rows], TOP_K, similarity="cosine", device="cpu")
    return score_run(data, found.run(hits), TOP_K).item_values["ndcg@10"].round(5).tolist()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("results", type=Path)
    parser.add_argument("--sets", default="cranfield,cacm,lisa,scifact")
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--without", action="append", default=[], metavar="SYSTEM")
    arguments = parser.parse_args()
    print(machine())
    lines = arguments.results.read_text("utf-8").splitlines() if arguments.results.exists() else []
    known = {(r["set"], r["kind"], r["system"]): r["values"] for r in map(json.loads, lines)}
    for name in arguments.sets.split(","):
        with tempfile.TemporaryDirectory() as target:
            sets = sets_of(data_folder() / "retrieval" / name, Path(target), arguments.queries)
            for label, choice in systems(arguments.model):
                if label in arguments.without:
                    continue
                for kind, data in sets.items():
                    if (name, kind, label) not in known:
                        known[name, kind, label] = values = values_of(label, choice, data)
                        with arguments.results.open("a", encoding="utf-8") as handle:
                            row = {"set": name, "kind": kind, "system": label, "values": values}
                            handle.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
