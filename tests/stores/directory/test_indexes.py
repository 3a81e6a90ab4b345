"""``index --update``: vectors, indexes and words of a corpus that has changed are those of a fresh one."""

import hashlib
import json
import random

import pytest

from tests.tolerance import Near

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
    return [[(hit["id"], Near(hit["score"])) for hit in result["hits"]] for result in results]


@pytest.mark.slow
@pytest.mark.parametrize(
    "kinds",
    [
        *(pytest.param(kinds, marks=pytest.mark.deep) for kinds in (("flat",), ("hnsw",), ("ivf", "bm25"))),
        ("IVF8,PQ4x4", "hnsw", "bm25"),
    ],
)
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


@pytest.mark.parametrize("kind", ["hnsw", "ivf", "bm25"])
def test_a_damaged_index_is_found_before_anything_is_encoded(kind, rows, changed, model, tmp_path, invoke):
    corpus, folder = tmp_path / "corpus.jsonl", tmp_path / "out"
    write(corpus, rows)
    invoke("index", corpus, "-o", folder, *model, "--type", kind, check=0)
    for file in (folder / "indexes" / kind).iterdir():
        if file.suffix in (".faiss", ".npy"):
            file.write_bytes(file.read_bytes()[:-1] + b"?")
    write(corpus, changed)
    done = invoke("index", corpus, "-o", folder, *model, "--type", "flat", "--update")
    assert f"indexes/{kind}" in done.stderr
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    if kind == "bm25":  # its language is not known any more
        assert done.exit_code == 2
        return
    assert done.exit_code == 0
    invoke("index", folder, "--check", check=0)


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


@pytest.mark.slow
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


@pytest.mark.slow
def test_what_an_interrupted_update_left_does_not_keep_a_corpus_that_changes_again(
    rows, changed, model, tmp_path, invoke, monkeypatch
):
    from sentcli.verbs import index_directory as module

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


@pytest.mark.slow
def test_a_second_update_is_refused_while_indexes_are_built(rows, changed, model, tmp_path, invoke, monkeypatch):
    from sentcli.verbs import index_directory as module

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


def words_files(folder):
    """The files of an index of words but the one that names the shards of the rows."""
    files = (folder / "indexes" / "bm25").iterdir()
    return {path.name: path.read_bytes() for path in files if path.name != "rows.json"}


def update_words(corpus, out, model, invoke):
    """Update a directory and its index of words."""
    invoke("index", corpus, "-o", out, *model, "--type", "bm25", "--update", check=0)


@pytest.mark.slow
def test_updated_words_are_those_of_a_fresh_directory(rows, changed, model, tmp_path, invoke):
    corpus, out, fresh = tmp_path / "corpus.jsonl", tmp_path / "out", tmp_path / "fresh"
    write(corpus, rows)
    invoke("index", corpus, "-o", out, *model, "--type", "bm25", check=0)
    histories = [
        changed,
        [*changed, *({**row, "id": f"again-{row['id']}"} for row in changed[:9])],
        [{"id": "x", "text": "an unheard word"}, *rows[:50], {"id": "y", "text": ""}],
        rows,
    ]
    for number, now in enumerate(histories):
        write(corpus, now)
        update_words(corpus, out, model, invoke)
        invoke("index", corpus, "-o", fresh / str(number), *model, "--type", "bm25", check=0)
        assert words_files(out) == words_files(fresh / str(number))
    invoke("index", out, "--check", check=0)


@pytest.mark.parametrize("why", ["another language", "counts of earlier versions", "rows of before"])
def test_words_of_another_kind_are_searched_and_updated(why, rows, model, tmp_path, invoke):
    corpus, out, fresh = tmp_path / "corpus.jsonl", tmp_path / "out", tmp_path / "fresh"
    write(corpus, rows)
    language = ("--language", "none") if why == "another language" else ()
    invoke("index", corpus, "-o", out, *model, "--type", "bm25", *language, check=0)
    place = out / "indexes" / "bm25"
    if why == "counts of earlier versions":
        facts, listed = json.loads((place / "bm25.json").read_text()), json.loads((place / "rows.json").read_text())
        (place / "bm25.json").write_text(json.dumps({**facts, "cut_by": "bm25s 0.3, PyStemmer 3.0"}))
        (place / "counts.csc.index.npy").write_bytes(b"counts")
        for name in ("bm25.json", "counts.csc.index.npy"):
            listed["files"][name] = hashlib.sha256((place / name).read_bytes()).hexdigest()
        (place / "rows.json").write_text(json.dumps(listed))
        invoke("index", out, "--check", check=0)
    assert hits(invoke, out, (), "--search", "bm25", *language), "it is searched as before"
    if why == "rows of before":
        write(corpus, rows[7:])
        invoke("encode", corpus, "-o", out, *model, "--update", check=0)
    write(corpus, rows[3:])
    update_words(corpus, out, model, invoke)
    invoke("index", corpus, "-o", fresh, *model, "--type", "bm25", check=0)
    assert words_files(out) == words_files(fresh)


@pytest.mark.slow
def test_a_graph_stays_and_what_was_done_is_in_the_results(rows, changed, model, tmp_path, invoke):
    corpus, out = tmp_path / "corpus.jsonl", tmp_path / "out"
    write(corpus, rows)
    made = json.loads(invoke("index", corpus, "-o", out, *model, "--type", "hnsw", "--json", "-", check=0).stdout)
    keys = ("rows", "rows_added", "dead_nodes", "rebuild_due")
    assert [made["results"][key] for key in keys] == [400, 400, 0, []]
    for now in (rows[:350] + changed[-30:], rows[20:350], rows[20:350] + changed[-10:]):  # three in a row
        write(corpus, now)
        done = invoke("index", corpus, "-o", out, *model, "--type", "hnsw", "--update", "--json", "-", check=0)
        results = json.loads(done.stdout)["results"]
        assert results["rows"] == len(now)
        assert results["rows_added"] <= 30
        assert 0 < results["dead_nodes"] <= 150
        assert results["rebuild_due"] == []
        asked = [hit for query in hits(invoke, out, model, "--index", "hnsw") for hit in query]
        assert {id for id, _ in asked} <= {row["id"] for row in now}
        assert hits(invoke, out, model, "--index", "hnsw") == hits(invoke, out, model, "--index", "flat")
    write(corpus, rows[:100])
    done = invoke("index", corpus, "-o", out, *model, "--type", "hnsw", "--update", "--json", "-", check=0)
    assert json.loads(done.stdout)["results"]["rows_added"] == 100, "most nodes would be dead"


def test_a_graph_that_misses_its_recall_is_said_to_be_due(rows, model, tmp_path, invoke):
    corpus, out = tmp_path / "corpus.jsonl", tmp_path / "out"
    write(corpus, rows)
    invoke("index", corpus, "-o", out, *model, "--type", "hnsw", check=0)
    write(corpus, rows[9:])
    ask = ("index", corpus, "-o", out, *model, "--type", "hnsw", "--recall", "0.9999999", "--set", "efSearch=1")
    done = invoke(*ask, "--update", "--json", "-", check=0)
    assert json.loads(done.stdout)["results"]["rebuild_due"] == ["recall"]
    assert f"sentcli index {out} --type hnsw --overwrite" in done.stderr
    invoke("index", out, "--type", "hnsw", "--overwrite", check=0)
    assert json.loads((out / "indexes" / "hnsw" / "index.json").read_text())["format"] == 1


def test_an_update_says_what_has_changed_as_its_dry_run_does(model, tmp_path, invoke):
    corpus, out = tmp_path / "rows.jsonl", tmp_path / "out"
    command = ("index", corpus, "-o", out, *model, "--json", "-")
    write(corpus, [{"id": key, "text": f"the cat {key}"} for key in "abcd"])
    made = json.loads(invoke(*command, check=0).stdout)["results"]
    assert "kept" not in made
    write(corpus, [{"id": "a", "text": "the cat a"}, {"id": "b", "text": "a dog"}, {"id": "e", "text": "a bird"}])
    expected = {"kept": 1, "changed": 1, "new": 1, "gone": 2, "encoded": 2}
    for options in (("--dry-run",), ()):
        results = json.loads(invoke(*command, "--update", *options, check=0).stdout)["results"]
        assert {key: results[key] for key in expected} == expected
