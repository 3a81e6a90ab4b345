"""One dataset made by several machines, verified, searched, and added to."""

import json
import re
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.stores.outputs import contents, manifest_of, message_of, rows_of, vectors_of
from tests.tolerance import VECTORS

TEXTS = [f"the cat {n} sat on {n % 7} mats" for n in range(23)] + ["", "a dog", "a dog"]
SHARDS = ["--shard-rows", 4]


@pytest.fixture
def source(write):
    return write("in/a.txt", TEXTS)


@pytest.fixture
def whole(encode, source, tmp_path):
    encode(source, "-o", tmp_path / "whole", *SHARDS)
    return tmp_path / "whole"


@pytest.fixture
def gathered(encode, source, tmp_path):
    """The shards of three machines in one folder."""
    folder = tmp_path / "gathered"
    folder.mkdir()
    for n in (1, 2, 3):
        encode(source, "-o", tmp_path / f"machine{n}", *SHARDS, "--shard", f"{n}/3")
        for path in (tmp_path / f"machine{n}").iterdir():
            path.rename(folder / path.name)
    return folder


def shards_in(folder):
    return {name: data for name, data in contents(folder).items() if not name.startswith("manifest")}


# Several machines


@pytest.mark.slow
def test_gathered_shards_are_those_of_one_machine(encode, whole, gathered):
    assert shards_in(gathered) == shards_in(whole)
    done = encode("--check", gathered)
    assert re.search(f"{gathered} .*26 rows .*7 shards.*32 dimensions .*float32", message_of(done))


@pytest.mark.slow
def test_machines_may_share_the_folder(encode, source, whole, tmp_path):
    out = tmp_path / "shared"
    for n in (2, 3, 1):
        encode(source, "-o", out, *SHARDS, "--shard", f"{n}/3")
    assert shards_in(out) == shards_in(whole)
    encode("--check", out)


@pytest.mark.slow
def test_search_finds_the_same_in_what_several_machines_made(invoke, tiny_bert, whole, gathered):
    answers = []
    for corpus in (whole, gathered):
        call = ["-m", tiny_bert, "--corpus", corpus, "--query", "a dog", "--query", "the cat 3", "--top-k", 5]
        done = invoke("retrieve", *call, "--json", "-", check=0)
        answers.append(json.loads(done.stdout)["results"])
    assert answers[0] == answers[1]
    assert {hit["id"] for hit in answers[0][0]["hits"][:2]} == {"24", "25"}


def test_each_machine_tells_its_own_rows(encode, source, tmp_path):
    done = encode(source, "-o", tmp_path / "out", *SHARDS, "--shard", "2/3", "--json", "-")
    assert json.loads(done.stdout)["results"]["rows_encoded"] == 8
    manifest = json.loads((tmp_path / "out" / "manifest-00002-of-00003.json").read_text())
    assert [shard["first_row"] for shard in manifest["shards"]] == [8, 12]
    assert (manifest["rows_done"], manifest["rows_total"]) == (8, 26)


@pytest.mark.slow
def test_more_machines_than_shards(encode, write, tmp_path):
    few = write("few.txt", ["cat", "dog"])
    for n in (1, 2, 3):
        encode(few, "-o", tmp_path / "out", "--shard-rows", 1, "--shard", f"{n}/3")
    encode("--check", tmp_path / "out")
    assert len(shards_in(tmp_path / "out")) == 4


@pytest.mark.slow
def test_one_machine_goes_on_where_it_was_stopped(encode, source, gathered, whole):
    (gathered / "vectors-00005.npy").unlink()
    (gathered / "rows-00004.parquet").write_bytes(b"torn")
    before = {path.name: path.stat().st_mtime_ns for path in gathered.iterdir()}
    encode(source, "-o", gathered, *SHARDS, "--shard", "3/3", "--resume")
    assert shards_in(gathered) == shards_in(whole)
    redone = {"vectors-00004.npy", "rows-00004.parquet", "vectors-00005.npy", "rows-00005.parquet"}
    changed = {path.name for path in gathered.iterdir() if path.stat().st_mtime_ns != before.get(path.name)}
    assert changed == redone | {"manifest-00003-of-00003.json"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["-o", "v.npy", "--shard", "1/2"], "--shard .*-o"),
        (["-o", "v", "--shard", "3/2"], "--shard 3/2: .*I/N"),
        (["-o", "v", "--shard", "1/2", "--append"], "--append .*--shard"),
        (["-o", "v.npy", "--append"], "--append .*-o"),
        (["-o", "v", "--append", "--overwrite"], "--overwrite .*--append"),
    ],
)
def test_options_that_do_not_go_together(encode, source, tmp_path, monkeypatch, options, words):
    monkeypatch.chdir(tmp_path)
    assert re.search(words, message_of(encode(source, *options, check=2)))
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_share_does_not_go_into_a_dataset_that_one_machine_made(encode, source, whole):
    before = contents(whole)
    failed = encode(source, "-o", whole, *SHARDS, "--shard", "1/2", "--resume", check=2)
    assert re.search(f"{whole} .*-o .*--shard", message_of(failed))
    assert contents(whole) == before


# Verifying


def test_a_dataset_is_reported_as_json(encode, whole, tmp_path):
    encode("--check", whole, "--json", tmp_path / "r.json")
    results = json.loads((tmp_path / "r.json").read_text())["results"]
    assert (results["rows"], results["rows_total"], results["shards"], results["problems"]) == (26, 26, 7, [])
    assert results["bytes"] == sum(path.stat().st_size for path in whole.glob("*-0*"))
    assert results["counts"]["duplicates"] == manifest_of(whole)["counts"]["duplicates"] == 1


def flip(path):
    content = bytearray(path.read_bytes())
    content[-7] ^= 1
    path.write_bytes(content)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda f: (f / "vectors-00003.npy").write_bytes(b""), "vectors-00003.npy .*SHA-256"),
        (lambda f: flip(f / "rows-00002.parquet"), "rows-00002.parquet .*SHA-256"),
        (lambda f: (f / "rows-00006.parquet").unlink(), "rows-00006.parquet "),
        (lambda f: shutil.copy(f / "vectors-00000.npy", f / "vectors-00077.npy"), "vectors-00077.npy "),
    ],
)
def test_damage_is_found_and_resume_mends_it(encode, source, whole, tmp_path, damage, words):
    before = contents(whole)
    damage(whole)
    failed = encode("--check", whole, "--json", tmp_path / "r.json", check=1)
    assert re.search(f"{whole}: {words}.*--resume", message_of(failed))
    assert len(json.loads((tmp_path / "r.json").read_text())["results"]["problems"]) == 1
    encode(source, "-o", whole, *SHARDS, "--resume")
    assert contents(whole) == before
    encode("--check", whole)


@pytest.mark.slow
def test_a_part_that_is_missing_is_named(encode, gathered):
    (gathered / "manifest-00002-of-00003.json").unlink()
    assert re.search(f"{gathered} .*manifest-00002-of-00003.json", message_of(encode("--check", gathered, check=2)))


@pytest.mark.parametrize("name", ["nothing", "in"])
def test_what_is_no_dataset_is_bad_input(encode, source, tmp_path, name):
    failed = encode("--check", tmp_path / name, check=2)
    assert str(tmp_path / name) in message_of(failed)


# Appending


@pytest.mark.slow
def test_rows_are_appended_and_their_ids_go_on(encode, source, whole, write, tmp_path):
    before = shards_in(whole)
    more = write("in/b.txt", ["a bird", "a dog", "a fish", "", "a mouse"])
    done = encode(more, "-o", whole, *SHARDS, "--append", "--json", "-")
    assert json.loads(done.stdout)["results"]["rows_encoded"] == 5
    rows = rows_of(whole, "id", "text")
    assert [row["id"] for row in rows] == [str(n) for n in range(31)]
    assert [row["text"] for row in rows][26:] == ["a bird", "a dog", "a fish", "", "a mouse"]
    assert before.items() <= shards_in(whole).items()
    encode("--check", whole)
    encode(more, "-o", tmp_path / "alone.npy", *SHARDS)
    np.testing.assert_allclose(vectors_of(whole)[26:], vectors_of(tmp_path / "alone.npy"), atol=VECTORS)
    assert [group["rows"] for group in manifest_of(whole)["groups"]] == [26, 5]


def test_ids_count_the_rows_that_were_left_out(encode, tmp_path):
    for name, texts in (("a", ["cat", None, "dog"]), ("b", [None, "bird"])):
        rows = [{"text": text} for text in texts]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    skip = ["--on-null", "skip"]
    encode(tmp_path / "a.jsonl", "-o", tmp_path / "v", *skip)
    encode(tmp_path / "b.jsonl", "-o", tmp_path / "v", *skip, "--append")
    assert [row["id"] for row in rows_of(tmp_path / "v", "id")] == ["0", "2", "4"]


def test_what_was_appended_is_found(encode, invoke, whole, write, tiny_bert):
    encode(write("in/b.txt", ["a small green mouse"]), "-o", whole, *SHARDS, "--append")
    call = ["retrieve", "-m", tiny_bert, "--corpus", whole, "--query", "a small green mouse", "--top-k", 1]
    (found,) = json.loads(invoke(*call, "--json", "-", check=0).stdout)["results"]
    assert (found["hits"][0]["id"], found["hits"][0]["text"]) == ("26", "a small green mouse")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "tiny_roberta"}, "tiny-roberta"),
        ({"more": ["--pooling", "cls"]}, "pooling 'mean' .*'cls' "),
        ({"more": ["--shard-rows", 5]}, "shard_rows .*4 .*5 "),
        ({"more": ["--output-dtype", "float16"]}, "output_dtype 'float32' .*'float16' "),
    ],
)
def test_nothing_else_is_appended(encode, whole, write, request, options, words):
    before = contents(whole)
    model = {"model": request.getfixturevalue(options["model"])} if "model" in options else {}
    call = [write("in/b.txt", ["a bird"]), "-o", whole, *SHARDS, "--append", *options.get("more", [])]
    assert re.search(words, message_of(encode(*call, **model, check=2)))
    assert contents(whole) == before


def test_other_columns_are_not_appended(encode, tmp_path):
    pq.write_table(pa.table({"text": ["a"], "n": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"text": ["b"], "m": [1]}), tmp_path / "b.parquet")
    encode(tmp_path / "a.parquet", "-o", tmp_path / "v")
    failed = encode(tmp_path / "b.parquet", "-o", tmp_path / "v", "--append", check=2)
    assert re.search("columns .*n 'int64' .*None .*m None .*'int64' ", message_of(failed))


def test_there_is_nothing_to_append_to(encode, source, tmp_path):
    failed = encode(source, "-o", tmp_path / "new", "--append", check=2)
    assert re.search(f"{tmp_path}/new .*--append", message_of(failed))
    assert not (tmp_path / "new").exists()


def test_rows_are_appended_to_what_several_machines_made(encode, source, whole, gathered, write):
    more = write("in/b.txt", ["a bird", "a dog", "a fish", "", "a mouse"])
    encode(more, "-o", gathered, *SHARDS, "--append")
    encode(more, "-o", whole, *SHARDS, "--append")
    assert sorted(contents(gathered)) == sorted(contents(whole)), "one manifest instead of three"
    assert shards_in(gathered) == shards_in(whole)
    encode("--check", gathered)


@pytest.mark.slow
def test_an_unfinished_part_takes_no_further_rows(encode, source, gathered, write):
    (gathered / "manifest-00002-of-00003.json").unlink()
    before = contents(gathered)
    failed = encode(write("in/b.txt", ["a bird"]), "-o", gathered, *SHARDS, "--append", check=2)
    assert re.search(f"{gathered} .*manifest-00002-of-00003.json", message_of(failed))
    assert contents(gathered) == before


@pytest.mark.parametrize(
    ("torn", "remedy"),
    [
        ("vectors-00001.npy", "--overwrite"),
        ("vectors-00008.npy", "--append"),
    ],
)
def test_what_makes_an_appended_dataset_whole_is_said_and_works(encode, source, whole, write, torn, remedy):
    more = write("in/b.txt", ["a bird", "a dog", "a fish", "", "a mouse"])
    call = [more, "-o", whole, *SHARDS, "--append"]
    encode(*call)
    before = contents(whole)
    (whole / torn).write_bytes(before[torn][:-1])
    assert re.search(f"{whole}: {torn} .*{remedy}", message_of(encode("--check", whole, check=1)))
    if remedy == "--append":
        assert f"{torn} " in message_of(encode(*call))
        assert contents(whole) == before
    else:
        assert re.search(f"{torn} .*{remedy}", message_of(encode(*call, check=2)))


def test_the_report_of_a_check_names_the_model(encode, whole, tiny_bert):
    assert json.loads(encode("--check", whole, "--json", "-").stdout)["model"] == str(tiny_bert)
