"""Folders as inputs of texts: what encode wrote, and folders of files; what is said of them."""

import json
import re
import unicodedata

import numpy as np
import pyarrow.parquet as pq
import pytest

from sentcli.errors import InputError
from sentcli.io.blocks import blocks, survey
from sentcli.io.formats import records
from sentcli.io.readers import ReadOptions
from sentcli.io.text_inputs import text_sources
from tests.tolerance import VECTORS

ROWS = [
    {"id": f"r{number}", "text": text, "stars": number} for number, text in enumerate(("the cat", "a dog", "a cat"))
]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def test_what_encode_wrote_is_encoded_with_another_model(invoke, table, tiny_bert, tiny_roberta, tmp_path):
    invoke("encode", table, "-o", tmp_path / "old", "-m", tiny_bert, "--shard-rows", 2, check=0)
    invoke("encode", table, "-o", tmp_path / "old.parquet", "-m", tiny_bert, check=0)
    for end in ("old", "old.parquet", "rows.jsonl"):
        done = invoke("encode", tmp_path / end, "-o", tmp_path / f"new-{end}.parquet", "-m", tiny_roberta, check=0)
        assert ("vectors are left out" in done.stderr) == (end == "old.parquet")
    old, file, rows = (pq.read_table(tmp_path / f"new-{end}.parquet") for end in ("old", "old.parquet", "rows.jsonl"))
    assert [part.drop_columns(["embedding"]).to_pylist() for part in (file, rows)] == [ROWS, ROWS]
    vectors = [part["embedding"].to_pylist() for part in (old, file, rows)]
    np.testing.assert_allclose(vectors, [vectors[0]] * 3, atol=VECTORS)
    assert old.drop_columns(["embedding"]).to_pylist() == ROWS
    failed = invoke("encode", tmp_path / "old", "-o", tmp_path / "old", "-m", tiny_roberta, "--overwrite", check=2)
    assert re.search("-o .*/old would replace .*rows-00000", failed.stderr)


def test_a_directory_that_is_not_whole_or_has_no_texts_says_so(invoke, table, tiny_bert, tmp_path):
    invoke("encode", table, "-o", tmp_path / "old", "-m", tiny_bert, check=0)
    manifest = json.loads((tmp_path / "old" / "manifest.json").read_text())
    rows = tmp_path / "old" / "rows-00000.parquet"
    pq.write_table(pq.read_table(rows).drop_columns(["text"]), rows)
    with pytest.raises(InputError, match=r"/old kept no texts: .*rows\.jsonl"):
        text_sources([str(tmp_path / "old")])
    manifest |= {"shards": [], "rows_done": 0}
    (tmp_path / "old" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=r"/old is unfinished .*0 of 3.*--resume"):
        text_sources([str(tmp_path / "old")])


def test_a_folder_of_files_is_read_and_what_is_left_out_is_said(invoke, tiny_bert, tmp_path):
    folder = tmp_path / "texts"
    (folder / "deep").mkdir(parents=True)
    for name, text in {
        "b.txt": "the cat\n",
        "deep/a.md": "# Head\n\na dog\n",
        "c.pdf": "%PDF",
        ".hidden.txt": "x\n",
    }.items():
        (folder / name).write_text(text)
    done = invoke("encode", folder, "-o", tmp_path / "v.npy", "-m", tiny_bert, check=0)
    assert len(np.load(tmp_path / "v.npy")) == 4
    said = " ".join(done.stderr.split())
    assert re.search(r"2 files .*\.pdf 1", said) and re.search(r"a\.md: Markdown .* line .*make-set", said)
    found = invoke("retrieve", "--corpus", folder, "--query", "a cat", "-m", tiny_bert, "--json", "-", check=0)
    assert len(json.loads(found.stdout)["results"][0]["hits"]) == 4
    (folder / "queries.jsonl").write_text("{}")
    with pytest.raises(InputError, match=r"retrieval set: .*/corpus\.jsonl"):
        text_sources([str(folder)])
    with pytest.raises(InputError, match="folder of a model"):
        text_sources([str(tiny_bert)])


def test_repeated_ids_are_counted_over_all_inputs(table, tmp_path):
    more = tmp_path / "more.csv"
    more.write_text("id,text\nr1,one\nr9,two\nr9,three\n")
    found = survey(text_sources([str(table), str(more)]), ReadOptions())
    assert found.repeated_ids == 2
    assert found.repeated == f"'r1' ({table}, line 2, and {more}, line 2)"
    (tmp_path / "lines.txt").write_text("same\nsame\n")
    assert survey(text_sources([str(tmp_path / "lines.txt")]), ReadOptions()).repeated_ids == 0


def test_repeated_ids_are_said_by_encode(invoke, table, tiny_bert, tmp_path):
    done = invoke("encode", table, table, "-o", tmp_path / "v.npy", "-m", tiny_bert, "--json", "-", check=0)
    assert json.loads(done.stdout)["results"]["repeated_ids"] == 3
    assert re.search("3 rows have the id of an earlier row: 'r0'", done.stderr)


@pytest.mark.parametrize("given", ["hive", "hive/*/*", "hive/**/*.jsonl"])
def test_folders_named_as_columns_give_columns(tmp_path, given):
    values = {"year=2023": 2023, "year=2024": 2024, "year=__HIVE_DEFAULT_PARTITION__": None}
    for folder, key in zip(values, "abc", strict=True):
        for place in (f"hive/{folder}", f"hive/{folder}/topic=a%20b"):
            (tmp_path / place).mkdir(parents=True)
            (tmp_path / place / "part-0.jsonl").write_text(json.dumps({"id": key, "text": "the cat"}) + "\n")
    sources = text_sources([str(tmp_path / given)])
    found = survey(sources, ReadOptions())
    rows = []
    for block in blocks(sources, ReadOptions(), columns=list(found.column_types), casts=found.casts):
        rows += zip(block.ids, block.columns["year"], strict=True)
        assert set(block.columns.get("topic", [None])) <= {None, "a b"}
    assert str(found.column_types["year"]) == "int64"
    assert set(rows) == set(zip("abc", values.values(), strict=True))
    identities = [json.dumps(source.identity().get("partition")) for source in sources]
    assert len(set(identities)) == len(sources)


def test_the_folder_of_a_file_that_is_named_is_no_column_and_a_files_own_column_stays(tmp_path):
    folder = tmp_path / "year=2024"
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"text": "the cat", "year": 1999}\n')
    for given, partition in ((folder, ()), (folder / "a.jsonl", ()), (tmp_path, (("year", "2024"),))):
        (source,) = text_sources([str(given)])
        assert source.partition == partition
        assert [record["year"] for _, record in records(source)] == [1999]


def test_passages_whose_context_is_not_read_are_said(invoke, tiny_bert, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"id": "a", "title": "the river", "text": "the cat sat"}\n')
    encode = ("encode", tmp_path / "a.jsonl", "-m", tiny_bert, "--passages", "--context")
    for context, count in (("title", 1), ("none", 0)):
        invoke(*encode, context, "-o", tmp_path / context, check=0)
        done = invoke("encode", tmp_path / context, "-m", tiny_bert, "-o", tmp_path / f"{context}-again", check=0)
        assert done.stderr.count("--context") == count


def test_many_pages_that_are_read_line_by_line_are_said_once(invoke, tiny_bert, tmp_path):
    (tmp_path / "pages").mkdir()
    for number in range(30):
        (tmp_path / "pages" / f"{number}.md").write_text(f"# Page {number}\n")
    done = invoke("encode", tmp_path / "pages", "-m", tiny_bert, "-o", tmp_path / "out", check=0)
    assert done.stderr.count("make-set") == 1 and done.stderr.count(".md") < 4


@pytest.mark.parametrize("form", ["NFC", "NFD"])  # as Linux and macOS write names
def test_the_title_of_a_text_file_is_its_name_with_all_accents(invoke, tiny_bert, tmp_path, form):
    folder = tmp_path / "texts"
    folder.mkdir()
    name = unicodedata.normalize(form, "Résumé_été")
    (folder / f"{name}.txt").write_text("the cat sat on the mat\n")
    invoke("encode", folder, "--passages", "-o", tmp_path / "v.parquet", "-m", tiny_bert, check=0)
    assert pq.read_table(tmp_path / "v.parquet")["title"].to_pylist() == [name.replace("_", " ")]
