"""Long histories of updates at 10,000 rows, and updates that are killed, against directories built anew."""

import json
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from sentcli.search.stored_vectors import SearchRequest
from sentcli.search.vector_directory import VectorDirectory
from tests.tolerance import rounding

pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")

WORDS = "the a cat dog bird fish sat ran flew swam on under mat house river tree man woman child plays red blue".split()
ROWS = 10_000
QUERIES = 200
KINDS = ("hnsw", "ivf", "bm25")


def text(generator):
    return " ".join(generator.choices(WORDS, k=generator.randint(5, 20)))


def fresh_rows(generator, count, name):
    return [{"id": f"{name}{number}", "text": text(generator)} for number in range(count)]


def inserted(rows, generator, name):
    return [*rows[:100], *fresh_rows(generator, 500, name), *rows[100:]]


def changed(rows, generator, name):
    chosen = set(generator.sample(range(len(rows)), 500))
    return [{**row, "text": text(generator)} if number in chosen else row for number, row in enumerate(rows)]


def deleted(rows, generator, name):
    return [row for row in rows if generator.random() > 0.07]


def reordered(rows, generator, name):
    return generator.sample(rows, len(rows))


def duplicated(rows, generator, name):
    return [*rows, *({**row, "id": f"{name}{row['id']}"} for row in generator.sample(rows, 300))]


def with_empty(rows, generator, name):
    return [*rows, {"id": f"{name}-", "text": ""}]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def hits(invoke, folder, questions, *options):
    ask = ("retrieve", "--corpus", folder, "--queries", questions, "--json", "-", *options)
    results = json.loads(invoke(*ask, check=0).stdout)["results"]
    return [[(hit["score"], hit["id"]) for hit in result["hits"]] for result in results]


def are_the_same(some, others):
    """Whether hits are the same, but for those of scores within 1e-6, which may stand in any order."""
    for mine, theirs in zip(some, others, strict=True):
        if not np.allclose([score for score, _ in mine], [score for score, _ in theirs], atol=rounding(32)):
            return False
        last = theirs[-1][0] + 2e-6
        if {id for score, id in mine if score > last} != {id for score, id in theirs if score > last}:
            return False
    return True


def recall_of(folder, kind, queries):
    """Recall@10 with the least effort that is tried, at which a difference would show; equal rows count as the same."""
    directory = VectorDirectory.open(folder)
    search, _ = directory.open_index(SearchRequest(kind))
    least = search.exactly().search(queries, 10).scores[:, -1:] - 1e-6
    return np.mean(search.search(queries, 10).scores >= least)


@pytest.mark.deep
@pytest.mark.parametrize("seed", [0, 1])
def test_histories_at_ten_thousand_rows(seed, tiny_bert, tmp_path, invoke):
    generator = random.Random(seed)
    model = ("-m", tiny_bert, "--backend", "torch")
    corpus, out, questions = tmp_path / "corpus.jsonl", tmp_path / "out", tmp_path / "questions.txt"
    questions.write_text("".join(f"{text(generator)}\n" for _ in range(QUERIES)))
    invoke("encode", questions, "-o", tmp_path / "questions.npy", *model, check=0)
    queries = np.load(tmp_path / "questions.npy").astype(np.float32)
    rows = fresh_rows(generator, ROWS, "r")
    write(corpus, rows)
    invoke("index", corpus, "-o", out, *model, "--type", KINDS[0], check=0)
    for kind in KINDS[1:]:
        invoke("index", out, "--type", kind, check=0)
    steps = [inserted, changed, deleted, reordered, duplicated, with_empty]
    generator.shuffle(steps)
    dead = 0
    for number, step in enumerate(steps):
        rows = step(rows, generator, f"s{number}-")
        write(corpus, rows)
        invoke("index", corpus, "-o", out, *model, "--update", check=0)
        dead = max(dead, VectorDirectory.open(out).read_index("hnsw").dead)
    assert dead > 500
    fresh = tmp_path / "fresh"
    invoke("index", corpus, "-o", fresh, *model, "--type", KINDS[0], check=0)
    for kind in KINDS[1:]:
        invoke("index", fresh, "--type", kind, check=0)
    for options in [(*model, "--index", "flat"), ("--search", "bm25"), (*model, "--search", "rrf", "--index", "flat")]:
        assert are_the_same(hits(invoke, out, questions, *options), hits(invoke, fresh, questions, *options)), options
    for kind in ("hnsw", "ivf"):
        assert recall_of(out, kind, queries) >= recall_of(fresh, kind, queries) - 0.005, kind
    invoke("index", out, "--check", check=0)


@pytest.mark.deep
def test_an_update_that_is_killed_leaves_the_old_directory_and_is_done_by_the_next(tiny_bert, tmp_path, invoke):
    generator = random.Random(0)
    model = ("-m", tiny_bert, "--backend", "torch")
    corpus, out = tmp_path / "corpus.jsonl", tmp_path / "out"
    rows = fresh_rows(generator, 3000, "r")
    write(corpus, rows)
    invoke("index", corpus, "-o", out, *model, "--type", "hnsw", check=0)
    invoke("index", out, "--type", "bm25", check=0)
    command = [sys.executable, "-m", "sentcli", "index", str(corpus), "-o", str(out), *map(str, model), "--update"]
    began = time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    seconds = time.monotonic() - began
    killed = 0
    for number in range(8):
        rows = changed(rows, generator, "")[30:]
        write(corpus, rows)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(seconds * (0.5 + number / 14))
        process.send_signal(signal.SIGKILL)
        killed += process.wait() != 0
        invoke("index", out, "--check", check=0)
        rows_there = json.loads((out / "manifest.json").read_text())["rows_done"]
        assert rows_there in (len(rows), len(rows) + 30)
        invoke("index", corpus, "-o", out, *model, "--update", check=0)
        directory = VectorDirectory.open(out)
        assert directory.check_index("hnsw") == directory.check_index("bm25") == []
        assert len(directory.blocks) == directory.read_index("hnsw").rows == len(rows)
    assert killed > 3
    assert list(tmp_path.glob(".out*")) == []
