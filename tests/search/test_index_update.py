"""``index --update``: vectors, indexes and words of a corpus that has changed are those of a fresh one."""

import json
import random

import pytest

pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")

WORDS = "the a cat dog bird fish sat ran flew swam on under mat house river tree".split()


@pytest.fixture
def model(tiny_bert):
    return ("-m", tiny_bert, "--backend", "torch")


def text(generator):
    return " ".join(generator.choices(WORDS, k=generator.randint(2, 9)))


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def rows():
    generator = random.Random(0)
    return [{"id": f"r{i}", "text": text(generator), "year": 2000 + i % 5} for i in range(400)]


@pytest.fixture
def changed(rows):
    """Rows of which some are gone, some have other texts, and some are new, in another order."""
    generator = random.Random(1)
    left = [dict(row) for row in rows if generator.random() > 0.2]
    for row in left:
        if generator.random() < 0.1:
            row["text"] = text(generator)
    generator.shuffle(left)
    return left + [{"id": f"n{i}", "text": text(generator), "year": 2001} for i in range(30)]


def hits(invoke, folder, model, *options):
    queries = [argument for word in WORDS[2:8] for argument in ("--query", f"the {word} on the mat")]
    ask = ("retrieve", "--corpus", folder, *model, *queries, "--json", "-", *options)
    results = json.loads(invoke(*ask, check=0).stdout)["results"]
    return [[(hit["id"], round(hit["score"], 5)) for hit in result["hits"]] for result in results]


@pytest.mark.parametrize("kinds", [("flat",), ("hnsw",), ("ivf", "bm25"), ("IVF8,PQ4x4", "hnsw", "bm25")])
def test_an_updated_index_finds_what_a_fresh_one_finds(kinds, rows, changed, model, tmp_path, invoke):
    corpus, out, fresh = tmp_path / "corpus.jsonl", tmp_path / "out", tmp_path / "fresh"
    write(corpus, rows)
    for number, kind in enumerate(kinds):
        source = (corpus, "-o", out, *model) if not number else (out,)
        invoke("index", *source, "--type", kind, check=0)
    write(corpus, changed)
    invoke("index", corpus, "-o", out, *model, "--update", check=0)
    for number, kind in enumerate(kinds):
        source = (corpus, "-o", fresh, *model) if not number else (fresh,)
        invoke("index", *source, "--type", kind, check=0)
    invoke("index", out, "--check", check=0)
    exact = ("--index", "flat")
    assert hits(invoke, out, model, *exact) == hits(invoke, fresh, model, *exact)
    for mode in ("bm25", "rrf"):
        options = ("--search", mode) if mode == "bm25" else ("--search", mode, *exact)
        with_model = () if mode == "bm25" else model
        assert hits(invoke, out, with_model, *options) == hits(invoke, fresh, with_model, *options)
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["rows_done"] == len(changed)
    for index in (out / "indexes").glob("*/index.json"):
        facts = json.loads(index.read_text())
        assert sum(file["rows"] for file in facts["files"]) in (0, len(changed))
        assert facts["recall"] is None or facts["recall"]["chosen"]["recall"] > 0.9


def test_clusters_that_were_learned_stay(rows, changed, model, tmp_path, invoke):
    corpus, out = tmp_path / "corpus.jsonl", tmp_path / "out"
    write(corpus, rows)
    invoke("index", corpus, "-o", out, *model, "--type", "ivf", check=0)
    trained = (out / "indexes" / "ivf" / "trained.faiss").read_bytes()
    write(corpus, changed)
    invoke("index", corpus, "-o", out, *model, "--type", "ivf", "--update", check=0)
    assert (out / "indexes" / "ivf" / "trained.faiss").read_bytes() == trained
    assert json.loads((out / "indexes" / "ivf" / "index.json").read_text())["built_for"] == len(rows)


def test_what_cannot_be_updated_is_said(rows, model, tmp_path, invoke):
    corpus, out = tmp_path / "corpus.jsonl", tmp_path / "out"
    write(corpus, rows)
    invoke("index", corpus, "-o", out, *model, "--update", check=0)  # there is nothing yet, so all is made
    write(corpus, rows[5:])
    before = (out / "manifest.json").read_bytes()
    dry = invoke("index", corpus, "-o", out, *model, "--update", "--dry-run", "--json", "-", check=0)
    assert json.loads(dry.stdout)["results"]["gone"] == 5
    assert (out / "manifest.json").read_bytes() == before
    assert "--output" in invoke("index", out, "--update", check=2).stderr
    assert "prompt" in invoke("index", corpus, "-o", out, *model, "--update", "--doc-prompt", "x ", check=2).stderr
    invoke("encode", corpus, "-o", tmp_path / "v.parquet", *model, check=0)
    given = invoke("index", tmp_path / "v.parquet", "-o", out, *model, "--update", check=2)
    assert "--overwrite" in given.stderr


def test_indexes_of_the_rows_before_are_built_again(rows, changed, model, tmp_path, invoke):
    corpus, out = tmp_path / "corpus.jsonl", tmp_path / "out"
    write(corpus, rows)
    invoke("index", corpus, "-o", out, *model, "--type", "hnsw", check=0)
    invoke("index", out, "--type", "bm25", check=0)
    write(corpus, changed)
    invoke("encode", corpus, "-o", out, *model, "--update", check=0)
    invoke("index", corpus, "-o", out, *model, "--update", check=0)
    invoke("index", out, "--check", check=0)
    assert sorted(path.name for path in (out / "indexes").iterdir()) == ["bm25", "hnsw"]


def test_what_an_interrupted_update_left_does_not_keep_a_corpus_that_changes_again(
    rows, changed, model, tmp_path, invoke, monkeypatch
):
    from sentcli.verbs import index_results as module

    corpus, out = tmp_path / "corpus.jsonl", tmp_path / "out"
    write(corpus, rows)
    invoke("index", corpus, "-o", out, *model, "--type", "hnsw", check=0)
    build_index = module.build_index

    def interrupted(*arguments):
        build_index(*arguments)
        raise KeyboardInterrupt

    write(corpus, changed)
    with monkeypatch.context() as patched:
        patched.setattr(module, "build_index", interrupted)
        invoke("index", corpus, "-o", out, *model, "--update", check=130)
    write(corpus, changed[7:])
    invoke("index", corpus, "-o", out, *model, "--update", check=0)
    invoke("index", out, "--check", check=0)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_second_update_is_refused_while_indexes_are_built(rows, changed, model, tmp_path, invoke, monkeypatch):
    from sentcli.verbs import index_results as module

    corpus, other, out = tmp_path / "corpus.jsonl", tmp_path / "other.jsonl", tmp_path / "out"
    write(corpus, rows)
    invoke("index", corpus, "-o", out, *model, "--type", "hnsw", check=0)
    write(corpus, changed)
    write(other, rows[9:])
    build_index = module.build_index
    refused = []

    def meanwhile(*arguments):
        monkeypatch.setattr(module, "build_index", build_index)
        for verb in ("index", "encode"):
            refused.append(invoke(verb, other, "-o", out, *model, "--update", check=2).stderr)
        return build_index(*arguments)

    monkeypatch.setattr(module, "build_index", meanwhile)
    invoke("index", corpus, "-o", out, *model, "--update", check=0)
    assert len(refused) == 2
    assert all("another process" in message for message in refused)
    invoke("index", out, "--check", check=0)
    assert json.loads((out / "manifest.json").read_text())["rows_done"] == len(changed)
