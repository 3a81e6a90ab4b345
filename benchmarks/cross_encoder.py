"""Reranking: a cross-encoder of our own is trained, raced against sentence-transformers, and tried on retrieval sets.

    SENTCLI_DATA=... python benchmarks/cross_encoder.py train -o pairs-only
    SENTCLI_DATA=... python benchmarks/cross_encoder.py train --start pairs-only --titles 1000 -o cross-encoder
    SENTCLI_DATA=... python benchmarks/cross_encoder.py race cross-encoder
    SENTCLI_DATA=... python benchmarks/cross_encoder.py helps cross-encoder

`train` fine-tunes MiniLM on pairs of MRPC, SICK and Quora with sentence-transformers' trainer. Half of Quora's rows are
negatives: MiniLM's nearest other question. The last 500 pairs of Quora are left out, and `helps` searches them. With
`--titles` it goes on with titles of SciFact's documents and the first 100 words of their texts; half of the rows are
negatives, the best other document by BM25. Queries and judgements are not used. `race`
scores the first BM25 hits of SciFact's queries, and `helps` the first hits of MiniLM.

Claim of `race`: fp32 at least 1.5 times as fast as CrossEncoder.predict, nDCG@10 within 0.002.
"""

import argparse
import csv
import json
import random
import tempfile
from collections.abc import Callable
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
from common import data_folder, machine, report_pairs, seconds

import sentcli
from sentcli import SentenceEncoder
from sentcli.encoder.reranker import Reranker
from sentcli.evaluation.retrieval import RetrievalSet, SetRows, load_set
from sentcli.evaluation.retrieval_tasks import score_run
from sentcli.evaluation.set_search import SetSearch
from sentcli.search.bm25 import BM25
from sentcli.search.neighbours import Neighbours
from sentcli.search.options import SearchOptions

HELD_OUT = 500
"""Pairs of Quora at the end of the file that are not trained on."""


def quora() -> list[tuple[str, str]]:
    """Return the pairs of equal questions, in the order of the file."""
    with (data_folder() / "pairs" / "quora_pairs.tsv").open(encoding="utf-8") as handle:
        return [(row["question1"], row["question2"]) for row in csv.DictReader(handle, delimiter="\t")]


def rows(name: str, first: str, second: str, label: str) -> list[tuple[str, str, float]]:
    """Return the pairs of a file of SentEval with their labels."""
    with (data_folder() / "senteval" / name).open(encoding="utf-8-sig") as handle:
        table = csv.DictReader(handle, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [(row[first], row[second], float(row[label])) for row in table]


def training_rows(limit: int) -> list[tuple[str, str, float]]:
    """Return shuffled pairs with labels from 0 to 1: MRPC, SICK, and as many of Quora."""
    mrpc = rows("MRPC/msr_paraphrase_train.txt", "#1 String", "#2 String", "Quality")
    sick = rows("SICK/SICK_train.txt", "sentence_A", "sentence_B", "relatedness_score")
    pairs = quora()[:-HELD_OUT][: (len(mrpc) + len(sick)) // 2]
    vectors = SentenceEncoder.load("minilm").encode([second for _, second in pairs])
    similarity = vectors @ vectors.T
    np.fill_diagonal(similarity, -1)
    nearest = similarity.argmax(axis=1)
    found = [*mrpc, *((a, b, (score - 1) / 4) for a, b, score in sick)]
    for (first, second), other in zip(pairs, nearest, strict=True):
        found += [(first, second, 1.0), (first, pairs[other][1], 0.0)]
    random.Random(0).shuffle(found)
    return found[:limit]


def title_rows(count: int) -> list[tuple[str, str, float]]:
    """Return shuffled pairs of titles of SciFact and the texts below them, and of other texts."""
    with (data_folder() / "retrieval" / "scifact" / "corpus.jsonl").open(encoding="utf-8") as handle:
        documents = [json.loads(line) for line in handle]
    texts = [" ".join(document["text"].split()[:100]) for document in documents]
    chosen = random.Random(0).sample(range(len(documents)), count)
    found = []
    nearest = BM25.build(texts).search([documents[row]["title"] for row in chosen], 2).positions.tolist()
    for row, positions in zip(chosen, nearest, strict=True):
        other = next(position for position in positions if position != row)
        title = documents[row]["title"]
        found += [(title, texts[row], 1.0), (title, texts[other], 0.0)]
    random.Random(0).shuffle(found)
    return found


def train(options: argparse.Namespace) -> None:
    """Fine-tune MiniLM with sentence-transformers' trainer."""
    from datasets import Dataset
    from sentence_transformers import CrossEncoder
    from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
    from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss

    from sentcli.zoo import resolve

    found = title_rows(options.titles) if options.titles else training_rows(options.limit)
    model = CrossEncoder(options.start or str(resolve("minilm")[0]), num_labels=1, max_length=256)
    with tempfile.TemporaryDirectory() as work:
        settings = CrossEncoderTrainingArguments(
            output_dir=work,
            num_train_epochs=1,
            per_device_train_batch_size=32,
            learning_rate=5e-5,
            warmup_steps=50,
            save_strategy="no",
            report_to="none",
            logging_steps=50,
            seed=0,
        )
        columns = dict(zip(("first", "second", "label"), map(list, zip(*found, strict=True)), strict=True))
        loss = BinaryCrossEntropyLoss(model)
        CrossEncoderTrainer(model=model, args=settings, train_dataset=Dataset.from_dict(columns), loss=loss).train()
    model.save_pretrained(options.output)
    print(f"trained on {len(found):,} pairs")


def first_queries(data: RetrievalSet, count: int) -> RetrievalSet:
    """Return the set with its first queries alone."""
    queries = dict(islice(data.queries.items(), count))
    return replace(data, queries=queries, qrels={query: data.qrels[query] for query in queries})


def race(options: argparse.Namespace) -> None:
    """Time our fp32 and int8 against CrossEncoder in turns, and compare the order of hits."""
    import torch
    from scipy.stats import spearmanr
    from sentence_transformers import CrossEncoder

    print(machine())
    peer = CrossEncoder(options.model, device="cpu")
    exact, small = Reranker.load(options.model, backend="onnx"), Reranker.load(options.model, precision="int8")
    data = first_queries(load_set(data_folder() / "retrieval" / "scifact"), options.queries)
    search = SetSearch(data, SearchOptions(search="bm25", top_k=options.depth))
    found = search.by_words.positions
    places = np.unique(found[found >= 0]).tolist()
    texts = {place: row.text for place, row in zip(places, SetRows(data).take(places), strict=True)}
    by_query = [
        [(query, texts[place]) for place in row if place >= 0]
        for query, row in zip(data.queries.values(), found.tolist(), strict=True)
    ]
    pairs = [pair for of_query in by_query for pair in of_query]
    sides: dict[str, Callable[[list[tuple[str, str]]], np.ndarray]] = {
        "sentence-transformers fp32": lambda pairs: peer.predict(pairs),
        "sentcli onnx fp32": exact.scores,
        "sentcli onnx int8": small.scores,
    }
    scores = {name: np.asarray(side(pairs)) for name, side in sides.items()}
    print(f"{len(pairs)} pairs of {len(by_query)} queries, torch with {torch.get_num_threads()} threads")
    of_search = score_run(data, search.run(search.by_words), options.depth)
    print(f"BM25: nDCG@10 {of_search.metrics['ndcg@10']:.4f}")
    first = scores["sentence-transformers fp32"]
    for name, own in scores.items():
        ordered = np.full(found.shape, -np.inf, np.float32)
        ordered[found >= 0] = own
        metric = score_run(data, search.run(Neighbours(found, ordered)), options.depth).metrics["ndcg@10"]
        ends = np.cumsum([0, *map(len, by_query)])
        parts = [slice(a, b) for a, b in pairwise(ends)]
        correlation = np.mean([spearmanr(own[part], first[part]).statistic for part in parts])
        print(
            f"{name}: nDCG@10 {metric:.4f}; against the first: rank correlation within queries {correlation:.4f}, "
            f"largest difference of a score {np.abs(own - first).max():.1e}"
        )
    timed = [pair for of_query in by_query[: options.timed] for pair in of_query]
    times = [
        {name: seconds(lambda side=side: side(timed)) for name, side in sides.items()} for _ in range(options.runs)
    ]
    theirs, *ours = sides
    for name in ours:
        report_pairs(name, [(run[name], run[theirs]) for run in times], len(timed), "pairs")


def write_quora(folder: Path) -> Path:
    """Write the held-out pairs as a retrieval set: the second question of each pair is to be found by the first."""
    pairs = quora()
    place = {text: number for number, text in enumerate(dict.fromkeys(second for _, second in pairs))}
    (folder / "qrels").mkdir(parents=True)
    documents = [json.dumps({"_id": f"d{number}", "text": text}) + "\n" for text, number in place.items()]
    held = list(enumerate(pairs[-HELD_OUT:]))
    queries = [json.dumps({"_id": f"q{number}", "text": first}) + "\n" for number, (first, _) in held]
    qrels = [f"q{number}\td{place[second]}\t1\n" for number, (_, second) in held]
    (folder / "corpus.jsonl").write_text("".join(documents), "utf-8")
    (folder / "queries.jsonl").write_text("".join(queries), "utf-8")
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(qrels), "utf-8")
    return folder


def helps(options: argparse.Namespace) -> None:
    """Score MiniLM's hits on several sets, as they are and reranked."""
    with tempfile.TemporaryDirectory() as work:
        sets = [write_quora(Path(work) / "quora-held-out"), *(data_folder() / "retrieval" / n for n in options.sets)]
        for folder in sets:
            sentcli.retrieve(model="minilm", beir=str(folder), rerank=options.model, rerank_depth=options.depth).show()


def main() -> None:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True)
    trained = commands.add_parser("train")
    trained.add_argument("-o", "--output", required=True)
    trained.add_argument("--start", help="a cross-encoder to go on with")
    trained.add_argument("--titles", type=int, default=0, help="train on so many titles instead of the pairs")
    trained.add_argument("--limit", type=int, default=12_000)
    trained.set_defaults(work=train)
    raced = commands.add_parser("race")
    raced.add_argument("model")
    raced.add_argument("--queries", type=int, default=40)
    raced.add_argument("--depth", type=int, default=50)
    raced.add_argument("--timed", type=int, default=6, help="queries whose pairs are timed")
    raced.add_argument("--runs", type=int, default=5)
    raced.set_defaults(work=race)
    helped = commands.add_parser("helps")
    helped.add_argument("model")
    helped.add_argument("--depth", type=int, default=50)
    helped.add_argument("--sets", nargs="*", default=["cacm"])
    helped.set_defaults(work=helps)
    options = parser.parse_args()
    options.work(options)


if __name__ == "__main__":
    main()
