"""`sentcli index`, and `sentcli retrieve` over what it built: from text to hits."""

import json
import re

import pytest

pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")

ANIMALS = ["cat", "dog", "bird", "fish"]
PLACES = ["mat", "house", "river", "tree"]
VERBS = ["sat on", "ran under", "flew over", "swam near"]
TEXTS = [f"the {size} {animal} {verb} the {place}"
         for size in ("big", "small") for animal in ANIMALS for verb in VERBS for place in PLACES]  # fmt: skip


def write_rows(path, texts, first=0):
    rows = [{"id": f"d{i}", "text": text, "year": 1900 + i, "note": None} for i, text in enumerate(texts, first)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def rows(tmp_path):
    """128 documents with two more columns."""
    return write_rows(tmp_path / "rows.jsonl", TEXTS)


@pytest.fixture
def folder(rows, tmp_path, invoke, tiny_bert):
    """`rows`, encoded and indexed."""
    invoke("index", rows, "-o", tmp_path / "i", "-m", tiny_bert, "--type", "hnsw", check=0)
    return tmp_path / "i"


def search(invoke, corpus, *arguments, model=None):
    models = () if model is None else ("-m", model)
    done = invoke("retrieve", "--corpus", corpus, *models, *arguments, "--json", "-", check=0)
    return json.loads(done.stdout)


def ids(report):
    return [[hit["id"] for hit in answer["hits"]] for answer in report["results"]]


@pytest.mark.slow
def test_vectors_that_a_search_has_made_are_not_made_again(invoke, rows, tmp_path, tiny_bert, monkeypatch):
    from sentcli import SentenceEncoder

    texts = [f"{text} of this test" for text in TEXTS]  # other tests share the cache
    write_rows(rows, texts)
    encoded = []
    plain = SentenceEncoder.encode_distinct

    def counted(self, texts, *arguments, **options):
        encoded.extend(texts)
        return plain(self, texts, *arguments, **options)

    monkeypatch.setattr(SentenceEncoder, "encode_distinct", counted)
    search(invoke, rows, "--query", texts[0], model=tiny_bert)
    assert set(encoded) >= set(texts)
    write_rows(rows, [*texts, "a new text of this test"])
    encoded.clear()
    invoke("index", rows, "-o", tmp_path / "i", "-m", tiny_bert, "--type", "flat", check=0)
    assert encoded == ["a new text of this test"]
    encoded.clear()
    invoke("index", rows, "-o", tmp_path / "j", "-m", tiny_bert, "--type", "flat", check=0)
    assert encoded == ["a new text of this test"], "an index keeps its vectors in its directory alone"


@pytest.mark.slow
def test_text_becomes_an_index_that_is_searched(invoke, rows, tmp_path, tiny_bert):
    arguments = ("index", rows, "-o", tmp_path / "i", "-m", tiny_bert, "--type", "hnsw")
    done = invoke(*arguments, "--json", tmp_path / "index.json", check=0)
    assert "128 rows added to the index hnsw (HNSW32,Flat)" in done.stderr
    assert "recall@10" in done.stdout
    report = json.loads((tmp_path / "index.json").read_text())
    assert (report["command"], report["results"]["rows"], report["results"]["kind"]) == ("index", 128, "hnsw")
    assert report["results"]["recall"]["chosen"]["recall"] >= 0.95
    options = ("--query", TEXTS[40], "--query", TEXTS[99], "--top-k", 5)
    found = search(invoke, tmp_path / "i", *options, model=tiny_bert)
    assert found["protocol"]["index"]["factory"] == "HNSW32,Flat"
    assert found["protocol"]["index"]["efSearch"] >= 16
    assert [answer[0] for answer in ids(found)] == ["d40", "d99"]
    first = found["results"][0]["hits"][0]
    assert first == {
        "rank": 1,
        "id": "d40",
        "score": pytest.approx(1.0, abs=1e-5),
        "text": TEXTS[40],
        "columns": {"year": 1940, "note": None},
    }
    exact = search(invoke, tmp_path / "i", *options, "--index", "flat", model=tiny_bert)
    assert exact["protocol"]["index"] == "exact"
    from_file = search(invoke, rows, *options, model=tiny_bert)
    assert ids(from_file) == ids(exact)


def test_rows_are_appended_and_found(invoke, folder, tmp_path, tiny_bert):
    new = write_rows(tmp_path / "new.jsonl", ["a green woman eats", "a blue child plays"], first=128)
    invoke("encode", new, "-o", folder, "-m", tiny_bert, "--append", check=0)
    query = ("--query", "a green woman eats", "--top-k", 1)
    done = invoke("retrieve", "--corpus", folder, "-m", tiny_bert, *query, check=0)
    assert "2 rows were added since the index was built; they are searched exactly" in done.stderr
    assert "d128" in done.stdout
    done = invoke("index", folder, "--type", "hnsw", check=0)
    assert "2 of 130 rows added to the index hnsw" in done.stderr
    more = write_rows(tmp_path / "more.jsonl", ["the old man sees a red tree"], first=130)
    done = invoke("index", more, "-o", folder, "-m", tiny_bert, "--type", "hnsw", "--append", check=0)
    assert "1 of 131 rows added to the index hnsw" in done.stderr
    assert ids(search(invoke, folder, "--query", "the old man sees a red tree", "--top-k", 1, model=tiny_bert)) == [
        ["d130"]
    ]
    assert ids(search(invoke, folder, *query, model=tiny_bert)) == [["d128"]]


@pytest.mark.slow
def test_the_same_command_again_changes_nothing(invoke, folder, rows, tmp_path, tiny_bert):
    before = sorted((path.name, path.stat().st_size) for path in folder.rglob("*") if path.suffix != ".json")
    done = invoke("index", rows, "-o", folder, "-m", tiny_bert, "--type", "hnsw", check=0)
    assert "0 of 128 rows added" in done.stderr
    assert before == sorted((path.name, path.stat().st_size) for path in folder.rglob("*") if path.suffix != ".json")


@pytest.mark.parametrize("change", ["model", "pooling", "length", "prompt"])
def test_queries_of_another_encoder_are_refused(invoke, folder, tiny_bert, tiny_roberta, change):
    model = tiny_roberta if change == "model" else tiny_bert
    options = {"pooling": ["--pooling", "cls"], "length": ["--max-length", "9"], "prompt": ["--doc-prompt", "x: "]}
    failed = invoke("retrieve", "--corpus", folder, "--query", "x", "-m", model, *options.get(change, []), check=2)
    words = "''.*'x: '" if change == "prompt" else f"{tiny_bert} .*{model}"
    assert re.search(f"{folder} .*{words}", failed.stderr)


def test_the_prompt_of_the_index_is_put_in_front_of_queries(invoke, rows, tmp_path, tiny_bert):
    options = ("-o", tmp_path / "i", "-m", tiny_bert, "--type", "ivf", "--query-prompt", "find ")
    invoke("index", rows, *options, check=0)
    found = search(invoke, tmp_path / "i", "--query", "the big cat", model=tiny_bert)
    assert found["protocol"]["query_prompt"] == "find "
    plain = search(invoke, rows, "--query", "the big cat", "--query-prompt", "find ", model=tiny_bert)
    assert found["results"][0]["hits"][0]["score"] == pytest.approx(plain["results"][0]["hits"][0]["score"], abs=1e-5)
    failed = invoke(
        "retrieve", "--corpus", tmp_path / "i", "--query", "x", "-m", tiny_bert, "--query-prompt", "see ", check=2
    )
    assert re.search("ivf .*'find '.*'see '.*--query-prompt", failed.stderr)
    failed = invoke(
        "retrieve", "--corpus", tmp_path / "i", "--query", "x", "-m", tiny_bert, "--query-prompt", "", check=2
    )
    assert re.search("ivf .*'find '.*''.*--query-prompt", failed.stderr)
    flat = search(invoke, tmp_path / "i", "--query", "the big cat", "--index", "flat", model=tiny_bert)
    assert flat["protocol"]["query_prompt"] == "find "


# Words


def test_words_are_searched_without_a_model(invoke, folder):
    found = search(invoke, folder, "--query", "swimming rivers", "--search", "bm25", "--top-k", 3)
    assert found["model"] == "bm25"
    assert all("river" in hit["text"] for hit in found["results"][0]["hits"])
    invoke("index", folder, "--type", "bm25", check=0)
    assert (folder / "indexes" / "bm25").is_dir()
    done = invoke(
        "retrieve", "--corpus", folder, "--query", "swimming rivers", "--search", "bm25", "--json", "-", check=0
    )
    assert "is made now" not in done.stderr
    assert json.loads(done.stdout)["results"][0]["hits"][:3] == found["results"][0]["hits"]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["rrf", "weighted"])
def test_both_ways_are_fused(invoke, folder, rows, tiny_bert, way):
    options = ("--query", "cats on a river", "--search", way, "--top-k", 8, "--index", "flat")
    found = search(invoke, folder, *options, model=tiny_bert)
    assert found["protocol"]["search"] == way
    assert ids(found) == ids(search(invoke, rows, *options, model=tiny_bert))
    dense = ids(search(invoke, folder, *options, "--search", "dense", model=tiny_bert))
    words = ids(search(invoke, folder, "--query", "cats on a river", "--search", "bm25", "--top-k", 8))
    assert ids(found) != dense
    assert ids(found) != words


def test_words_are_stemmed_in_the_language_that_is_asked_for(invoke, tmp_path, tiny_bert):
    rows = write_rows(tmp_path / "de.jsonl", ["die Häuser am Fluss", "das alte Haus", "ein Baum"])
    invoke("encode", rows, "-o", tmp_path / "v", "-m", tiny_bert, check=0)
    words = ("--query", "Häusern", "--search", "bm25")
    assert ids(search(invoke, tmp_path / "v", *words)) == [[]]
    assert len(ids(search(invoke, tmp_path / "v", *words, "--language", "german"))[0]) == 2
    assert len(ids(search(invoke, rows, *words, "--language", "german"))[0]) == 2
    invoke("index", tmp_path / "v", "--type", "bm25", "--language", "german", check=0)
    assert len(ids(search(invoke, tmp_path / "v", *words))[0]) == 2, "that of the index"
    assert ids(search(invoke, tmp_path / "v", *words, "--language", "english")) == [[]]


def test_words_of_rows_that_came_since_are_not_missed(invoke, folder, tmp_path, tiny_bert):
    invoke("index", folder, "--type", "bm25", check=0)
    new = write_rows(tmp_path / "new.jsonl", ["a zebra"], first=128)
    invoke("encode", new, "-o", folder, "-m", tiny_bert, "--append", check=0)
    assert ids(search(invoke, folder, "--query", "zebras", "--search", "bm25")) == [["d128"]]


# Queries and hits


def test_queries_come_from_a_file_or_from_stdin(invoke, folder, tmp_path, tiny_bert):
    table = tmp_path / "queries.jsonl"
    table.write_text("".join(json.dumps({"_id": f"q{i}", "text": TEXTS[i]}) + "\n" for i in range(25)))
    hits = tmp_path / "hits.jsonl"
    done = invoke(
        "retrieve", "--corpus", folder, "-m", tiny_bert, "--queries", table, "--top-k", 1, "--hits", hits, check=0
    )
    assert done.stdout == "", "hits that are written are not shown"
    lines = [json.loads(line) for line in hits.read_text().splitlines()]
    assert [(line["id"], line["query"], line["hits"][0]["id"]) for line in lines] == [
        (f"q{i}", TEXTS[i], f"d{i}") for i in range(25)
    ]
    shown = invoke("retrieve", "--corpus", folder, "-m", tiny_bert, "--queries", table, "--top-k", 1, check=0)
    assert "the hits of 20 of 25 queries are shown" in shown.stderr
    assert shown.stdout.count("rank") == 20

    typed = f"{TEXTS[3]}\n{TEXTS[5]}\n"
    options = ("-m", tiny_bert, "--queries", "-", "--top-k", 1, "--hits", "-")
    done = invoke("retrieve", "--corpus", folder, *options, stdin=typed, check=0)
    assert [json.loads(line)["hits"][0]["id"] for line in done.stdout.splitlines()] == ["d3", "d5"]
    options = (*options, "--query-format", "jsonl")
    done = invoke("retrieve", "--corpus", folder, *options, stdin=table.read_text(), check=0)
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [f"q{i}" for i in range(25)]
    failed = invoke("retrieve", "--corpus", folder, "-m", tiny_bert, "--query", "x", "--hits", hits, check=2)
    assert "exists; use --overwrite" in failed.stderr


@pytest.mark.slow
def test_more_hits_than_rows_are_all_rows(invoke, folder, tiny_bert):
    for index in ("flat", "hnsw"):
        found = search(invoke, folder, "--query", "cat", "--top-k", 500, "--index", index, model=tiny_bert)
        assert sorted(ids(found)[0]) == sorted(f"d{i}" for i in range(128))


@pytest.mark.slow
def test_columns_and_words_are_shown_and_markup_is_not_obeyed(run, tmp_path, tiny_bert):
    row = {"id": "1", "text": "The river [bold]runs[/bold]", "title": "On [red]rivers\x1b[2J", "empty": ""}
    (tmp_path / "c.jsonl").write_text(json.dumps(row) + "\n")
    arguments = ("retrieve", "--corpus", tmp_path / "c.jsonl", "--query", "RIVER", "-m", tiny_bert)
    shown = run(*arguments, check=0, env={"FORCE_COLOR": "1", "COLUMNS": "100"}).stdout
    assert "[bold]runs[/bold]" in shown
    assert "[red]" in shown
    assert "\x1b[2J" not in shown
    assert "\x1b[1;33mriver\x1b[0m" in shown, "the query's word is marked"
    assert "empty" not in shown


# Bad input


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{rows}"], "-o DIR"),
        (["{folder}", "-o", "x", "-m", "{model}"], "-o DIR"),
        (["{rows}", "-o", "{new}"], "--output.*-m"),
        (["{folder}", "--type", "hsnw"], "'hsnw'.*'hnsw'"),
        (["{folder}", "--type", "hnsw", "--set", "efSearch"], "expected KEY=N"),
        (["{folder}", "--type", "hnsw", "--set", "nprobe=4"], "'nprobe'"),
        (["{folder}", "--type", "ivfpq"], "ivfpq.*624.*128"),
        (["{folder}", "--type", "ivf", "--queries", "{rows}"], "--queries.*-m"),
        (["{folder}", "--type", "bm25", "--language", "klingon"], "'klingon'"),
        (
            ["{rows}", "-m", "{model}", "-o", "{new}", "--text-field", "body"],
            "rows.jsonl, line 1.*'body'.*--text",
        ),
        (["{rows}", "-m", "{model}", "-o", "{new}", "--type", "hsnw"], "'hsnw'"),
        (["{rows}", "-m", "{model}", "-o", "{new}", "--type", "Foo,Bar"], "'Foo,Bar'"),
        (["{rows}", "-m", "{model}", "-o", "{new}", "--type", "ivfpq"], "ivfpq.*624"),
        (["{rows}", "-m", "{model}", "-o", "{new}", "--type", "bm25", "--language", "xx"], "'xx'"),
        (["{rows}", "-m", "{model}", "-o", "{new}", "--queries", "{new}.txt"], r"new\.txt"),
        (["{rows}", "-m", "{model}", "-o", "{new}", "--check"], "--check.*--output"),
        (["{folder}", "--append"], "--append.*--output"),
        (["{folder}", "--type", "bm25", "--set", "nprobe=4"], "--type bm25.*--set"),
        (["{folder}", "--type", "hnsw", "--language", "german"], "--language.*--type bm25"),
        (["{folder}", "--type", "hnsw", "-m", "{other}"], "tiny-bert.*tiny-roberta"),
    ],
)
def test_wrong_usage_is_told_and_leaves_nothing(
    invoke, folder, rows, tmp_path, tiny_bert, tiny_roberta, arguments, words
):
    names = {"rows": rows, "folder": folder, "new": tmp_path / "new", "model": tiny_bert, "other": tiny_roberta}
    failed = invoke("index", *(argument.format(**names) for argument in arguments), check=2)
    assert re.search(words, failed.stderr)
    assert not (tmp_path / "new").exists()
    assert [path.name for path in (folder / "indexes").iterdir()] == ["hnsw"]


@pytest.mark.slow
def test_another_corpus_replaces_the_first(invoke, folder, tmp_path, tiny_bert):
    new = write_rows(tmp_path / "other.jsonl", [text.replace("cat", "man") for text in TEXTS[:64]], first=500)
    arguments = ("index", new, "-o", folder, "-m", tiny_bert, "--type", "hnsw")
    assert "--overwrite" in invoke(*arguments, check=2).stderr
    assert "64 rows added" in invoke(*arguments, "--overwrite", check=0).stderr
    assert ids(search(invoke, folder, "--query", "the big man sat on the mat", "--top-k", 1, model=tiny_bert)) == [
        ["d500"]
    ]


def test_the_report_says_how_and_where(invoke, folder):
    report = json.loads(invoke("index", folder, "--type", "ivf", "--json", "-", check=0).stdout)
    assert report["protocol"]["factory"].startswith("IVF")
    assert report["protocol"]["similarity"] == "cosine"
    assert report["environment"]["faiss-cpu"]
    checked = json.loads(invoke("index", folder, "--check", "--json", "-", check=0).stdout)
    assert checked["results"] == {"indexes": ["hnsw", "ivf"], "problems": []}


def test_ids_that_repeat_are_counted(invoke, tmp_path, tiny_bert):
    rows = tmp_path / "r.jsonl"
    rows.write_text("".join(json.dumps({"id": str(i % 3), "text": text}) + "\n" for i, text in enumerate(TEXTS[:5])))
    words = "2 rows have an id that another row has, too"
    assert words in invoke("retrieve", "--corpus", rows, "--query", "x", "-m", tiny_bert, check=0).stderr
    assert words in invoke("index", rows, "-o", tmp_path / "i", "-m", tiny_bert, check=0).stderr


def test_columns_of_any_kind_become_json(invoke, tmp_path, tiny_bert):
    import datetime

    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"text": ["a cat"], "day": [datetime.date(2020, 2, 3)], "x": [float("nan")], "l": [[1.5, None]]})
    pq.write_table(table, tmp_path / "r.parquet")
    (hit,) = search(invoke, tmp_path / "r.parquet", "--query", "cat", model=tiny_bert)["results"][0]["hits"]
    assert hit["columns"] == {"day": "2020-02-03", "x": None, "l": [1.5, None]}


@pytest.mark.slow
def test_flat_does_not_stand_in_the_way(invoke, folder, tiny_bert):
    invoke("index", folder, "--type", "flat", check=0)
    assert search(invoke, folder, "--query", "x", model=tiny_bert)["protocol"]["index"]["kind"] == "hnsw"


def test_a_check_finds_a_damaged_file(invoke, folder):
    assert "hnsw" in invoke("index", folder, "--check", check=0).stderr
    invoke("index", folder, "--type", "bm25", check=0)
    words = folder / "indexes" / "bm25" / "data.csc.index.npy"
    content = words.read_bytes()
    words.write_bytes(content[:-1] + b"x")
    assert str(words) in invoke("index", folder, "--check", check=1).stderr
    words.write_bytes(content)
    path = next((folder / "indexes" / "hnsw").glob("rows-*.faiss"))
    path.write_bytes(path.read_bytes()[:-7] + b"damaged")
    failed = invoke("index", folder, "--check", check=1)
    assert re.search(f"{path}.*SHA-256.*--overwrite", failed.stderr)
    invoke("index", folder, "--type", "hnsw", "--overwrite", check=0)
    invoke("index", folder, "--check", check=0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--query", "x", "--like", "y"], "--like.*--query"),
        (["--query", "x", "--search", "bm52"], "'bm52'.*'bm25'"),
        (["--query", "x", "--index", "ivf"], "'ivf'.*hnsw"),
        (["--query", "x", "--index", "bm25"], "--index bm25.*--search bm25"),
        (["--query", "x", "--hits", "-", "--json", "-"], "--json -.*--hits -"),
        (["--queries", "{empty}"], r"empty\.txt"),
        (["--query", "x", "--run", "a.trec"], "--run.*--beir"),
        (["--query", "x", "--exclude", "own"], "--exclude.*--in-domain"),
        (["--query", "x", "--search", "bm25"], "--search bm25.*-m"),
        (["--query", "x", "--language", "german"], "--language.*--search bm25"),
        (["--query", "x", "--search", "rrf", "--dense-weight", "0.3"], "--dense-weight.*--search weighted"),
    ],
)
def test_searches_that_make_no_sense_are_refused(invoke, folder, tmp_path, tiny_bert, arguments, words):
    (tmp_path / "empty.txt").write_text("")
    given = [argument.format(empty=tmp_path / "empty.txt") for argument in arguments]
    assert re.search(words, invoke("retrieve", "--corpus", folder, "-m", tiny_bert, *given, check=2).stderr)


def test_an_index_that_is_slower_than_exact_search_is_said_to_be():
    from sentcli.search.recall import recall_table

    point = {"effort": 8, "recall": 0.99, "queries_per_second": 100.0}
    measured = {"parameter": "nprobe", "k": 10, "points": [point], "chosen": point, "queries": 5, "of": "random rows"}
    slower, faster = (recall_table("ivf", {**measured, "exact_queries_per_second": rate}) for rate in (200.0, 50.0))
    assert any("--index flat" in note for note in slower.notes)
    assert not any("--index flat" in note for note in faster.notes)
