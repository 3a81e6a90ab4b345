"""Passages from the command line: folders and tables in, rows that know their place, documents found by their best."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")

from sentcli import SentenceEncoder

ANIMALS = ["cat", "dog", "bird", "fish"]
SENTENCES = {animal: f"the {animal} sat on the mat. " for animal in ANIMALS}
PAGE = "---\ntitle: Big {animal}\nyear: {year}\n---\n# {animal}\n\n{sentences}\n\n## tree\n\n{sentences}\n"


@pytest.fixture
def model(tiny_bert):
    return ("-m", tiny_bert, "--backend", "torch")


@pytest.fixture
def pages(tmp_path):
    """A folder of Markdown files, one for each animal, a text and a file that is neither."""
    folder = tmp_path / "pages"
    (folder / "more").mkdir(parents=True)
    for year, animal in enumerate(ANIMALS, 2020):
        text = PAGE.format(animal=animal, year=year, sentences=SENTENCES[animal] * 4)
        (folder / "more" / f"{animal}.md").write_text(text)
    (folder / "river_house.txt").write_text("the woman plays near the river. " * 5)
    (folder / "picture.svg").write_text("<svg/>")
    return folder


@pytest.fixture
def table(tmp_path):
    """Documents in JSON Lines, with a title."""
    file = tmp_path / "documents.jsonl"
    rows = [{"id": f"d{animal}", "title": f"big {animal}", "text": SENTENCES[animal] * 6, "n": 1} for animal in ANIMALS]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def rows_of(folder):
    tables = [pq.read_table(path) for path in sorted(folder.glob("rows-*.parquet"))]
    return [row for table in tables for row in table.to_pylist()]


def vectors_of(folder):
    return np.concatenate([np.load(path) for path in sorted(folder.glob("vectors-*.npy"))])


def test_a_folder_of_pages_becomes_passages_that_know_their_place(pages, model, tmp_path, invoke):
    out = tmp_path / "v"
    invoke("encode", pages, "-o", out, *model, "--passages", "--passage-tokens", 16, "--context", "headings", check=0)
    rows = rows_of(out)
    texts = {
        f"more/{animal}.md": (pages / "more" / f"{animal}.md").read_text().partition("\n---\n")[2]
        for animal in sorted(ANIMALS)
    }
    texts["river_house.txt"] = (pages / "river_house.txt").read_text()
    assert list(dict.fromkeys(row["document"] for row in rows)) == list(texts)
    for document, text in texts.items():
        passages = [row for row in rows if row["document"] == document]
        assert "".join(row["text"] for row in passages) == text.removesuffix("\n")
        for number, row in enumerate(passages):
            assert (row["id"], row["passage"]) == (f"{document}#{number}", number)
            assert row["text"] == text[row["start"] : row["end"]]
    cat = [row for row in rows if row["document"] == "more/cat.md"]
    assert {row["title"] for row in cat} == {"Big cat"}
    assert {row["year"] for row in cat} == {2020}
    assert (cat[0]["heading"], cat[-1]["heading"]) == ("cat", "cat > tree")
    assert rows[-1]["title"] == "river house"
    settings = json.loads((out / "manifest.json").read_text())["settings"]
    assert settings["passages"] == {"tokens": 16, "overlap": 0, "context": "headings"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("context", "before"), [("none", ""), ("title", "big {animal}\n"), ("headings", "big {animal}\n")]
)
def test_vectors_are_those_of_context_and_passage(context, before, table, model, tiny_bert, tmp_path, invoke):
    out = tmp_path / "v"
    invoke("encode", table, "-o", out, *model, "--passages", "--passage-tokens", 14, "--context", context, check=0)
    rows = rows_of(out)
    assert len(rows) > 2 * len(ANIMALS)
    texts = [before.format(animal=row["document"][1:]) + row["text"] for row in rows]
    expected = SentenceEncoder.load(tiny_bert, backend="torch").encode(texts)
    np.testing.assert_allclose(vectors_of(out), expected, atol=1e-5)
    assert all(row["n"] == 1 for row in rows)


@pytest.mark.slow
def test_every_output_has_the_same_passages(table, model, tmp_path, invoke):
    cut = ("--passages", "--passage-tokens", 14, "--context", "title")
    invoke("encode", table, "-o", tmp_path / "v", *model, *cut, "--shard-rows", 3, check=0)
    rows, vectors = rows_of(tmp_path / "v"), vectors_of(tmp_path / "v")
    for name in ("v.npy", "v.parquet", "v.jsonl"):
        invoke("encode", table, "-o", tmp_path / name, *model, *cut, check=0)
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), vectors, atol=1e-5)
    in_parquet = pq.read_table(tmp_path / "v.parquet").to_pylist()
    in_lines = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text().splitlines()]
    for row, *others in zip(rows, in_parquet, in_lines, strict=True):
        for other in others:
            assert {name: other[name] for name in row} == row


def test_overlap_repeats_the_end_of_a_passage(table, model, tmp_path, invoke):
    cut = ("--passages", "--passage-tokens", 16, "--overlap", 6)
    invoke("encode", table, "-o", tmp_path / "v", *model, *cut, check=0)
    first, second, *_ = rows_of(tmp_path / "v")
    assert first["document"] == second["document"]
    assert first["start"] < second["start"] < first["end"]


def test_an_interrupted_directory_is_resumed_and_grows_by_documents(table, model, tmp_path, invoke):
    cut = ("--passages", "--passage-tokens", 14, "--shard-rows", 3)
    invoke("encode", table, "-o", tmp_path / "whole", *model, *cut, check=0)
    invoke("encode", table, "-o", tmp_path / "torn", *model, *cut, check=0)
    torn = tmp_path / "torn"
    (torn / "vectors-00001.npy").unlink()
    invoke("encode", table, "-o", torn, *model, *cut, "--resume", check=0)
    assert rows_of(torn) == rows_of(tmp_path / "whole")
    assert "passages" in invoke("encode", table, "-o", torn, *model, "--resume", check=2).stderr
    texts = tmp_path / "more.csv"
    texts.write_text("text\n" + "".join(f"{SENTENCES[animal] * 4}\n" for animal in ANIMALS))
    invoke("encode", texts, "-o", tmp_path / "numbered", *model, *cut, check=0)
    texts.write_text(texts.read_text() + "the river\n")
    invoke("encode", texts, "-o", tmp_path / "numbered", *model, *cut, "--append", check=0)
    assert {row["document"] for row in rows_of(tmp_path / "numbered")} == {str(number) for number in range(9)}


@pytest.mark.parametrize("to", ["directory", "hnsw", "milvus", "lance"])
def test_a_document_is_found_by_its_best_passage(to, pages, model, tmp_path, invoke, request):
    cut = ("--passages", "--passage-tokens", 16)
    if to == "milvus":
        request.getfixturevalue("soon_indexed")
        corpus = (f"milvus:{tmp_path}/m.db", "--collection", "pages")
        invoke("index", pages, "--to", *corpus, *model, *cut, check=0)
    elif to == "lance":
        pytest.importorskip("lancedb", reason="LanceDB comes with the extra sentcli[lance]")
        corpus = (f"lance:{tmp_path}/l",)
        invoke("index", pages, "--to", *corpus, *model, *cut, check=0)
    else:
        corpus = (tmp_path / "v",)
        kind = "flat" if to == "directory" else to
        invoke("index", pages, "-o", *corpus, *model, *cut, "--type", kind, check=0)

    def hits(*arguments):
        ask = ("retrieve", "--corpus", *corpus, *model, "--query", "the dog sat on the mat", "--json", "-")
        return json.loads(invoke(*ask, *arguments, check=0).stdout)["results"][0]["hits"]

    for mode in ("dense", "bm25", "rrf") if to == "directory" else ("dense", "rrf"):
        model_of_mode = ("--search", mode)
        if mode == "bm25":
            continue
        found = hits(*model_of_mode, "--top-k", 5)
        assert len({hit["document"] for hit in found}) == len(found) == 5
        assert [hit["rank"] for hit in found] == [1, 2, 3, 4, 5]
        several = hits(*model_of_mode, "--top-k", 50, "--per-document", 50)
        assert len({hit["document"] for hit in several}) == 5 < len(several)
        best = {}
        for hit in several:
            best.setdefault(hit["document"], hit["id"])
        assert [hit["id"] for hit in found] == list(best.values())
    (only,) = hits("--where", "year = 2021")
    assert only["document"] == "more/dog.md"
    text = (pages / only["document"]).read_text().partition("\n---\n")[2]
    assert text[only["start"] : only["end"]] == only["text"]
    assert only["columns"]["title"] == "Big dog"


def test_a_page_may_be_compressed(pages, model, tmp_path, invoke):
    import gzip

    page = pages / "more" / "cat.md"
    (pages / "more" / "cat.md.gz").write_bytes(gzip.compress(page.read_bytes()))
    page.unlink()
    invoke("encode", pages, "-o", tmp_path / "v", *model, "--passages", "--passage-tokens", 16, check=0)
    cat = [row for row in rows_of(tmp_path / "v") if row["document"] == "more/cat.md.gz"]
    assert {row["title"] for row in cat} == {"Big cat"}
    assert cat[-1]["heading"] == "cat > tree"


def test_passages_of_a_frame_are_rows_of_a_frame(tiny_bert):
    import pandas as pd

    import sentcli

    given = pd.DataFrame({"id": ["a", "b"], "text": [SENTENCES["cat"] * 6, "the dog"]}, index=[5, 7])
    result = sentcli.encode(given, model=str(tiny_bert), backend="torch", passages=True, passage_tokens=14)
    frame = result.frame
    assert list(dict.fromkeys(frame["document"])) == ["a", "b"]
    assert "".join(frame["text"][frame["document"] == "a"]) == given["text"][5]
    assert frame["embedding"].map(len).eq(32).all()


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("--passages", "--passage-tokens", 31), "--passage-tokens"),
        (("--passages", "--passage-tokens", 10, "--overlap", 8), "--overlap"),
        (("--passages", "--passage-tokens", 8, "--overlap", 4, "--context", "title"), "--context"),
        (("--passage-tokens", 8), "--passages"),
        (("--context", "title"), "--passages"),
    ],
)
def test_passages_that_cannot_be_are_refused_before_anything_is_written(
    arguments, names, table, model, tmp_path, invoke
):
    result = invoke("encode", table, "-o", tmp_path / "v", *model, *arguments, check=2)
    assert names in result.stderr
    assert not (tmp_path / "v").exists()


def test_what_does_not_go_with_passages_is_refused_by_name(table, pages, model, tmp_path, invoke):
    passage = ("--passages", "--passage-tokens", 14)
    taken = tmp_path / "taken.jsonl"
    taken.write_text('{"id": "a", "text": "the cat", "start": 1}\n')
    assert "start" in invoke("encode", taken, "-o", tmp_path / "v", *model, *passage, check=2).stderr
    assert "-m" in invoke("index", table, "-o", tmp_path / "v", *passage, check=2).stderr
    invoke("encode", table, "-o", tmp_path / "plain", *model, check=0)
    assert "--passages" in invoke("index", tmp_path / "plain", *passage, check=2).stderr
    ask = ("retrieve", "--corpus", tmp_path / "plain", *model, "--query", "dog", "--per-document", 2)
    assert "--per-document" in invoke(*ask, check=2).stderr
    served = invoke("encode", table, "-o", tmp_path / "w", "-m", "https://localhost:9/v1#name", *passage, check=2)
    assert "served" in served.stderr
    (tmp_path / "null.jsonl").write_text('{"id": "a", "text": null}\n')
    assert "null" in invoke("encode", tmp_path / "null.jsonl", "-o", tmp_path / "w", *model, *passage, check=2).stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["passage", "document", "start", "heading"])
def test_the_column_of_texts_may_be_called_as_one_of_passages(name, model, tmp_path, invoke):
    file = tmp_path / "documents.jsonl"
    file.write_text(json.dumps({"id": "a", name: SENTENCES["cat"] * 4, "n": 1}) + "\n")
    cut = ("--passages", "--passage-tokens", 14, "--text-field", name)
    invoke("encode", file, "-o", tmp_path / "v", *model, *cut, check=0)
    first, second, *_ = rows_of(tmp_path / "v")
    assert (first["document"], second["passage"], second["start"], first["heading"]) == ("a", 1, first["end"], None)
    assert first["text"] == SENTENCES["cat"][: first["end"]] or first["text"].startswith(SENTENCES["cat"])


def test_a_column_of_ids_that_is_not_the_one_is_refused_as_it_is_without_passages(model, tmp_path, invoke):
    file = tmp_path / "documents.jsonl"
    file.write_text('{"id": "a", "url": "u", "text": "the cat"}\n')
    for cut in ((), ("--passages",)):
        assert "'id'" in invoke("encode", file, "-o", tmp_path / "v", *model, "--id-field", "url", *cut, check=2).stderr


def test_a_page_with_carriage_returns_alone_has_its_headings(model, tmp_path, invoke):
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "old.md").write_bytes(b"# cat\rthe cat sat\r\r# dog\rthe dog sat on the mat")
    cut = ("--passages", "--passage-tokens", 8)
    invoke("encode", tmp_path / "pages", "-o", tmp_path / "v", *model, *cut, check=0)
    assert {row["text"][:5]: row["heading"] for row in rows_of(tmp_path / "v")}["# dog"] == "dog"


MATTERS = {
    "---\ntitle: Big cat\nyear: 2001\n---\n": {"title": "Big cat", "year": 2001},
    '+++\ntitle = "Big cat"\nyear = 2001\n+++\n': {"title": "Big cat", "year": 2001},
    "---\ntitle: Big: cat\n---\n": None,
    "+++\ntitle = Big cat\n+++\n": None,
}


@pytest.mark.parametrize("matter", MATTERS)
def test_front_matter_of_yaml_and_toml_is_read_and_other_is_named(matter, tiny_bert, tmp_path, invoke):
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "a.md").write_text(matter + "The cat sat.\n")
    model = ("-m", tiny_bert, "--backend", "torch")
    done = invoke("encode", pages, *model, "--passages", "-o", tmp_path / "out.jsonl", check=0)
    row = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])
    if MATTERS[matter] is None:
        assert row["text"].startswith(matter[:4]) and "a.md" in done.stderr
    else:
        assert {key: row[key] for key in ("title", "year")} == MATTERS[matter]
        assert row["text"] == "The cat sat."


WRITTEN_PAGE = """---
date: 2024-01-05
draft: yes
off: NO
version: 1.10
half: 0.5
zip: 01234
time: 12:30
n: {number}
tags: [a, 1.0]
place: {{at: 1.10}}
none: ~
---
The cat sat.
"""


def test_front_matter_is_what_is_written_and_typed_as_csv_is(tiny_bert, tmp_path, invoke):
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "a.md").write_text(WRITTEN_PAGE.format(number=7))
    (pages / "b.md").write_text(WRITTEN_PAGE.format(number="unknown"))
    call = ("encode", pages, "-m", tiny_bert, "--backend", "torch", "--passages", "-o")
    done = invoke(*call, tmp_path / "out.jsonl", check=0)
    row = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])
    written = {
        "date": "2024-01-05",
        "draft": "yes",
        "off": "NO",
        "version": "1.10",
        "half": 0.5,
        "zip": "01234",
        "time": "12:30",
    }
    written |= {"n": "7", "tags": "a, 1.0", "place": {"at": "1.10"}, "none": None, "title": ""}
    assert {key: row[key] for key in written} == written
    assert "half float" in done.stderr and "'unknown'" in done.stderr and "b.md" in done.stderr
    invoke(*call, tmp_path / "text.jsonl", "--types", "version=float", check=0)
    assert json.loads((tmp_path / "text.jsonl").read_text().splitlines()[0])["version"] == 1.1


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n"
for before, after in zip("abcdefg", "bcdefgh", strict=True):
    BOMB += f"{after}: &{after} [{', '.join([f'*{before}'] * 9)}]\n"
REFUSED = {
    "year: 1\nb: 2\nyear: 2\n": "line 4",
    "a:\n  k: 1\n  k: 2\n": "line 4",
    BOMB: "aliases",
    BOMB + "a: *h\n": "a",
    "x: &x\n  y: *x\n": "aliases",
}


@pytest.mark.parametrize("matter", REFUSED, ids=range(len(REFUSED)))
@pytest.mark.parametrize("verb", ["encode", "make-set"])
def test_front_matter_that_loses_or_multiplies_values_is_refused_with_its_file(
    verb, matter, tiny_bert, tmp_path, invoke
):
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "a.md").write_text(f"---\n{matter}---\nThe cat sat.\n")
    call = ("encode", pages, "-m", tiny_bert, "--passages", "-o", tmp_path / "out.jsonl")
    if verb == "make-set":
        call = ("data", "make-set", pages, "-o", tmp_path / "set")
    failed = invoke(*call, check=2)
    assert f"{pages / 'a.md'}" in failed.stderr and REFUSED[matter] in failed.stderr and "defect" not in failed.stderr


def test_aliases_of_a_few_values_are_read(tiny_bert, tmp_path, invoke):
    (tmp_path / "a.md").write_text("---\na: &a [x, y]\nb: *a\n---\nThe cat sat.\n")
    invoke("encode", tmp_path / "a.md", "-m", tiny_bert, "--passages", "-o", tmp_path / "out.jsonl", check=0)
    assert json.loads((tmp_path / "out.jsonl").read_text())["b"] == "x, y"


def as_cut_by_an_earlier_version(folder):
    """Take out of a manifest that its pages were cut at headings, and the last rows, as if there were fewer."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    (group,) = manifest["groups"]
    assert any("cut" in facts for facts in group["inputs"])
    for facts in group["inputs"]:
        facts.pop("cut", None)
    last = manifest["shards"].pop()
    for name in (last["vectors"], last["rows"]):
        (folder / name).unlink()
    group["rows"] = manifest["rows_done"] = manifest["rows_total"] = last["first_row"]
    path.write_text(json.dumps(manifest))


def test_a_directory_of_pages_that_an_earlier_version_cut_stays_until_it_is_updated(pages, model, tmp_path, invoke):
    cut = ("--passages", "--passage-tokens", 16, "--shard-rows", 5)
    encode = ("encode", pages, "-o", tmp_path / "v", *model, *cut)
    invoke(*encode, check=0)
    rows = rows_of(tmp_path / "v")
    as_cut_by_an_earlier_version(tmp_path / "v")
    before = rows_of(tmp_path / "v")
    assert 0 < len(before) < len(rows)
    for flag in ("--resume", "--append"):
        done = invoke(*encode, flag, "--json", "-", check=0)
        assert json.loads(done.stdout)["results"]["rows_encoded"] == 0
        assert "--update" in done.stderr and f"{len(before)} were there" in done.stderr
        assert rows_of(tmp_path / "v") == before
    updated = json.loads(invoke(*encode, "--update", "--json", "-", check=0).stdout)["results"]
    assert (updated["kept"], updated["new"]) == (len(before), len(rows) - len(before))
    assert rows_of(tmp_path / "v") == rows
    assert "--update" not in invoke(*encode, "--resume", check=0).stderr


def test_pages_that_an_earlier_version_began_to_cut_are_not_continued(pages, model, tmp_path, invoke):
    cut = ("--passages", "--passage-tokens", 16, "--shard-rows", 5)
    encode = ("encode", pages, "-o", tmp_path / "v", *model, *cut)
    invoke(*encode, check=0)
    rows = rows_of(tmp_path / "v")
    as_cut_by_an_earlier_version(tmp_path / "v")
    (tmp_path / "v" / "vectors-00000.npy").unlink()
    for flag in ("--resume", "--append"):
        refused = " ".join(invoke(*encode, flag, check=2).stderr.split())
        assert "earlier version cut these pages otherwise" in refused and "--overwrite" in refused
    invoke(*encode, "--overwrite", "--resume", check=0)
    assert rows_of(tmp_path / "v") == rows


@pytest.mark.slow
def test_a_finished_directory_that_an_earlier_version_cut_is_overwritten_when_that_is_asked(
    pages, model, tmp_path, invoke
):
    cut = ("--passages", "--passage-tokens", 16, "--shard-rows", 5)
    encode = ("encode", pages, "-o", tmp_path / "v", *model, *cut)
    invoke(*encode, check=0)
    rows = rows_of(tmp_path / "v")
    as_cut_by_an_earlier_version(tmp_path / "v")
    invoke(*encode, "--overwrite", "--resume", check=0)
    assert rows_of(tmp_path / "v") == rows


def test_overlap_stays_under_its_heading(model, tmp_path, invoke):
    (tmp_path / "pages").mkdir()
    text = "".join(f"# {animal}\n\n{SENTENCES[animal] * 2}\n\n" for animal in ANIMALS)
    (tmp_path / "pages" / "animals.md").write_text(text)
    cut = ("--passages", "--passage-tokens", 24, "--overlap", 8)
    invoke("encode", tmp_path / "pages", "-o", tmp_path / "v", *model, *cut, check=0)
    rows = rows_of(tmp_path / "v")
    assert [row["heading"] for row in rows] == ANIMALS
    for row in rows:
        assert row["text"].startswith(f"# {row['heading']}\n")
