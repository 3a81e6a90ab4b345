"""After any history of changes an updated directory is what a fresh one would be, and texts keep their vectors."""

import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.faults.leaves import Leaf
from tests.tolerance import VECTORS

WORDS = "the a cat dog bird fish sat ran flew swam on under mat house river tree".split()
texts = st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join)
SHARD_ROWS = 4
TITLE_COLUMNS = ("title", "Title", "subject", "name")


@pytest.fixture(scope="module")
def model(tiny_bert):
    return ("-m", tiny_bert, "--backend", "torch")


def with_row(rows, place, **changes):
    """Rows of which one has other values."""
    return [{**row, **changes} if number == place else row for number, row in enumerate(rows)]


CHANGES = {
    "text": lambda rows, place, draw: with_row(rows, place, text=draw(texts)),
    "year": lambda rows, place, draw: with_row(rows, place, year=draw(st.integers(1990, 1993))),
    "delete": lambda rows, place, draw: rows[:place] + rows[place + 1 :],
    "reverse": lambda rows, place, draw: rows[::-1],
    "rename": lambda rows, place, draw: [{**row, "then": row.pop("year", 0)} for row in map(dict, rows)],
    "empty": lambda rows, place, draw: with_row(rows, place, text=""),
}


@st.composite
def histories(draw):
    """Rows, and the steps that change them: each step is the rows after it."""
    numbers = iter(range(1000))
    rows = []
    steps = []
    for _ in range(draw(st.integers(2, 4))):
        for _ in range(draw(st.integers(0, 8))):
            row = {"id": f"r{next(numbers)}", "text": draw(texts), "year": draw(st.integers(2000, 2003))}
            place = draw(st.integers(0, len(rows)))
            rows = [*rows[:place], row, *rows[place:]]
        for change in draw(st.lists(st.sampled_from(sorted(CHANGES)), max_size=4)):
            if rows:
                rows = CHANGES[change](rows, draw(st.integers(0, len(rows) - 1)), draw)
        if rows:
            steps.append(rows)
    return steps


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def read(folder):
    """The rows of a directory, its vectors, and its manifest without the checksums of the vectors."""
    manifest = json.loads((folder / "manifest.json").read_text())
    vectors = []
    for shard in manifest["shards"]:
        vectors.append(np.load(folder / shard["vectors"]))
        del shard["sha256"][shard["vectors"]]
    rows = [(folder / shard["rows"]).read_bytes() for shard in manifest["shards"]]
    return rows, np.concatenate(vectors), manifest


def vector_of_text(folder):
    """The vector of each text of a directory, with the titles that may stand in front of it."""
    found = {}
    for file in sorted(folder.glob("rows-*.parquet")):
        vectors = np.load(folder / file.name.replace("rows", "vectors").replace("parquet", "npy"))
        for row, vector in zip(pq.read_table(file).to_pylist(), vectors, strict=True):
            found.setdefault((*map(row.get, TITLE_COLUMNS), row["text"]), vector)
    return found


def check_history(steps, model, folder, invoke, *options):
    """Update a directory step by step, and compare it with a fresh one after each."""
    corpus, out, fresh = folder / "corpus.jsonl", folder / "out", folder / "fresh"
    encode = ("encode", corpus, *model, "--shard-rows", SHARD_ROWS, *options)
    for rows in steps:
        write(corpus, rows)
        before = vector_of_text(out) if out.exists() else {}
        invoke(*encode, "-o", out, "--update", check=0)
        invoke(*encode, "-o", fresh, "--overwrite", check=0)
        assert sorted(path.name for path in out.iterdir()) == sorted(path.name for path in fresh.iterdir())
        found, expected = read(out), read(fresh)
        assert found[0] == expected[0]
        # a difference below 1e-6 may be a last bit of what is kept in half precision
        last_bit = 2**-10 if found[1].dtype == np.float16 else 0
        np.testing.assert_allclose(found[1].astype(float), expected[1].astype(float), rtol=last_bit, atol=VECTORS)
        assert found[2] == expected[2]
        for text, vector in vector_of_text(out).items():
            if text in before:
                assert np.array_equal(vector, before[text])
    shutil.rmtree(out, ignore_errors=True)


@pytest.mark.slow
@examples(20)
@given(steps=histories())
def test_a_history_of_updates_ends_as_a_fresh_directory(steps, model, tmp_path, invoke):
    check_history(steps, model, tmp_path, invoke)


@pytest.mark.deep
@examples(200)
@given(
    steps=histories(),
    options=st.sampled_from(
        [(), ("--output-dtype", "float16"), ("--truncate-dim", 8), ("--passages", "--passage-tokens", 8)]
    ),
)
def test_many_histories_of_updates_end_as_fresh_directories(steps, options, model, tmp_path, invoke):
    check_history(steps, model, tmp_path, invoke, *options)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ("--output-dtype", "float16"),
        ("--output-dtype", "int8"),
        ("--output-dtype", "binary"),
        ("--truncate-dim", 8),
        ("--passages", "--passage-tokens", 8, "--context", "title"),
        ("--prompt", "cat "),
        ("--max-length", 8, "--on-long", "chunk-mean"),
    ],
)
def test_vectors_are_kept_in_every_form(options, model, tmp_path, invoke):
    rows = [{"id": f"r{i}", "title": f"the {WORDS[i]}", "text": " ".join(WORDS[i:] * 2)} for i in range(10)]
    changed = [{**row, "text": row["text"] + " tree"} if i == 2 else row for i, row in enumerate(rows)]
    check_history([rows, [{**rows[5], "id": "copy"}, *changed]], model, tmp_path, invoke, *options)


@pytest.mark.slow
@pytest.mark.parametrize("length", [6, 40], ids=["cut", "whole"])
def test_tokens_are_counted_as_of_a_fresh_directory(length, model, tmp_path, invoke):
    """Few and most texts of a shard are gone, others have come from another shard, and some are there twice."""
    rows = [{"id": f"r{i}", "text": " ".join(WORDS[: i % 11 + 1])} for i in range(16)]
    few = [rows[0], *rows[2:4], rows[9], *rows[4:]]
    most = [rows[3], rows[12], rows[13], rows[14], rows[15], *rows[5:9]]
    twice = [{**row, "id": f"{row['id']} {number}"} for number, row in enumerate([*most, *most])]
    few[3] = {**few[3], "id": "again"}
    check_history([rows, few, most, twice, rows], model, tmp_path, invoke, "--max-length", length)


def test_what_has_changed_is_counted_and_a_dry_run_writes_nothing(model, tmp_path, invoke):
    corpus, out = tmp_path / "corpus.jsonl", tmp_path / "out"
    rows = [{"id": f"r{i}", "text": f"the {WORDS[i]} sat"} for i in range(10)]
    write(corpus, rows)
    encode = ("encode", corpus, "-o", out, *model)
    invoke(*encode, check=0)
    changed = [*rows[3:], {"id": "new", "text": "a new river"}, {"id": "copy", "text": rows[0]["text"]}]
    changed[0] = {"id": "r3", "text": "another text"}
    write(corpus, changed)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    expected = {"kept": 6, "changed": 1, "new": 2, "gone": 3, "encoded": 2}
    dry = json.loads(invoke(*encode, "--update", "--dry-run", "--json", "-", check=0).stdout)["results"]
    assert {key: dry[key] for key in expected} == expected
    assert dry["seconds_estimated"] > 0
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    done = json.loads(invoke(*encode, "--update", "--json", "-", check=0).stdout)["results"]
    assert {key: done[key] for key in expected} == expected
    assert done["rows"] == 9


def test_a_directory_that_was_made_otherwise_is_refused(model, tiny_roberta, tmp_path, invoke):
    corpus, out = tmp_path / "corpus.jsonl", tmp_path / "out"
    write(corpus, [{"id": "a", "text": "the cat"}, {"id": "b", "text": "the dog"}])
    encode = ("encode", corpus, "-o", out, "--update")
    invoke(*encode, *model, check=0)
    before = (out / "manifest.json").read_bytes()
    for options, name in [
        (("--prompt", "x "), "prompt"),
        (("--pooling", "cls"), "pooling"),
        (("--max-length", 8), "max_length"),
        (("--output-dtype", "float16"), "output_dtype"),
        (("--passages",), "--passages"),
    ]:
        assert name in invoke(*encode, *model, *options, check=2).stderr
    assert "model_fingerprint" in invoke(*encode, "-m", tiny_roberta, "--backend", "torch", check=2).stderr
    assert (out / "manifest.json").read_bytes() == before


def test_an_update_that_is_interrupted_leaves_a_directory_that_is_not_called_unfinished(
    model, tmp_path, invoke, monkeypatch
):
    corpus, out = tmp_path / "corpus.jsonl", tmp_path / "out"
    write(corpus, [{"id": "a", "text": "the cat"}])
    for name in ("encode", "index"):
        made = (name, corpus, "-o", out, *model)
        invoke(*made, check=0)
        with monkeypatch.context() as patched:
            patched.setattr("sentcli.stores.writing.write_blocks", stopped)
            write(corpus, [{"id": "a", "text": f"the dog of {name}"}])
            assert "--update" in invoke(*made, *(["--resume"] if name == "encode" else []), check=2).stderr
            said = invoke(*made, "--update")
        assert said.exit_code == 130 and f"{out} is not finished" not in said.stderr
        assert f"{out} is whole" in said.stderr
        shutil.rmtree(out)
        for staging in tmp_path.glob(".out*"):
            if staging.is_dir():
                shutil.rmtree(staging)


def stopped(*arguments, **options):
    raise KeyboardInterrupt


def test_rows_that_cannot_be_told_apart_are_refused(model, tmp_path, invoke):
    corpus, out = tmp_path / "corpus.jsonl", tmp_path / "out"
    write(corpus, [{"id": "a", "text": "the cat"}, {"id": "b", "text": "the dog"}])
    encode = ("encode", corpus, "-o", out, *model, "--update")
    invoke(*encode, check=0)
    before = (out / "manifest.json").read_bytes()
    write(corpus, [{"id": "a", "text": "the cat"}, {"id": "a", "text": "the bird"}])
    assert "'a'" in invoke(*encode, check=2).stderr
    write(corpus, [{"text": "the cat"}, {"text": "the bird"}])
    assert "--id-field" in invoke(*encode, check=2).stderr
    write(corpus, [{"id": "a", "body": "the cat"}])
    assert "text" in invoke(*encode, check=2).stderr
    assert "directory" in invoke("encode", corpus, "-o", tmp_path / "v.npy", *model, "--update", check=2).stderr
    assert (out / "manifest.json").read_bytes() == before


def test_an_unfinished_directory_is_finished_first(model, tmp_path, invoke):
    corpus, out = tmp_path / "corpus.jsonl", tmp_path / "out"
    write(corpus, [{"id": f"r{i}", "text": f"the {word}"} for i, word in enumerate(WORDS)])
    encode = ("encode", corpus, "-o", out, *model, "--shard-rows", SHARD_ROWS)
    invoke(*encode, check=0)
    manifest = json.loads((out / "manifest.json").read_text())
    manifest["shards"].pop()
    manifest["rows_done"] -= SHARD_ROWS
    (out / "manifest.json").write_text(json.dumps(manifest))
    assert "--resume" in invoke(*encode, "--update", check=2).stderr


@pytest.mark.slow
@pytest.mark.parametrize("titles", [{"subject": "the cat"}, {"Title": "the cat", "name": "the dog"}])
def test_titles_in_any_column_keep_the_vectors_of_their_passages(titles, model, tmp_path, invoke):
    rows = [{"id": f"r{i}", **titles, "text": " ".join(WORDS[i:] * 2)} for i in range(6)]
    without = [{**row, **dict.fromkeys(titles, "")} for row in rows]
    options = ("--passages", "--passage-tokens", 8, "--context", "title")
    check_history([rows, rows, without], model, tmp_path, invoke, *options)


def test_titles_that_look_like_numbers_keep_the_vectors_of_their_passages(model, tmp_path, invoke):
    corpus, out = tmp_path / "corpus.csv", tmp_path / "out"
    corpus.write_text("id,title,year,text\na,007,7,the cat sat\nb,1984,8,the dog ran\n")
    encode = ("encode", corpus, "-o", out, *model, "--passages", "--context", "title", "--update", "--json", "-")
    invoke(*encode, check=0)
    assert json.loads(invoke(*encode, check=0).stdout)["results"]["encoded"] == 0
    table = pq.read_table(out / "rows-00000.parquet")
    assert table["title"].to_pylist() == ["007", "1984"]
    assert table["year"].to_pylist() == [7, 8]


def test_rows_are_compared_as_they_are_written(model, tmp_path, invoke):
    corpus, out = tmp_path / "corpus.jsonl", tmp_path / "out"
    write(corpus, [{"id": "a", "text": "the cat", "n": 1, "s": {"x": 1}}, {"id": "b", "text": "a", "n": 2.5, "s": {}}])
    encode = ("encode", corpus, "-o", out, *model, "--update", "--json", "-")
    invoke(*encode, check=0)
    results = json.loads(invoke(*encode, check=0).stdout)["results"]
    assert (results["kept"], results["changed"]) == (2, 0)


def test_a_long_text_among_known_ones_is_named(model, tmp_path, invoke):
    corpus, out = tmp_path / "corpus.jsonl", tmp_path / "out"
    rows = [{"id": f"r{i}", "text": f"the {WORDS[i]}"} for i in range(5)]
    encode = ("encode", corpus, "-o", out, *model, "--on-long", "error", "--update")
    write(corpus, rows)
    invoke(*encode, check=0)
    write(corpus, [*rows[:3], {"id": "long", "text": "cat " * 50}, *rows[3:]])
    assert "row 4 (id long)" in invoke(*encode, check=2).stderr


@pytest.mark.parametrize("name", ["vectors-00000.npy", "rows-00000.parquet"])
def test_a_damaged_directory_is_refused(name, model, tmp_path, invoke):
    corpus, out = tmp_path / "corpus.jsonl", tmp_path / "out"
    write(corpus, [{"id": "a", "text": "the cat"}, {"id": "b", "text": "the dog"}])
    encode = ("encode", corpus, "-o", out, *model, "--update")
    invoke(*encode, check=0)
    whole = (out / name).read_bytes()
    (out / name).write_bytes(whole[:-8] + b"\1" * 8)
    assert name in invoke(*encode, check=2).stderr
    (out / name).unlink()
    assert name in invoke(*encode, "--dry-run", check=2).stderr


@pytest.mark.parametrize(
    ("place", "kind"), [(("fortran_order",), "500 levels"), (("shape", 1), "gone"), (("shape", 1), "2**32")]
)
def test_a_shard_whose_head_is_wrong_is_named(place, kind, model, tmp_path, invoke):
    corpus, out = tmp_path / "corpus.jsonl", tmp_path / "out"
    write(corpus, [{"id": "a", "text": "the cat"}, {"id": "b", "text": "the dog"}])
    encode = ("encode", corpus, "-o", out, *model, "--update")
    invoke(*encode, check=0)
    Leaf("vectors-00000.npy", place, kind).spoil(out)  # the manifest has its sum
    write(corpus, [{"id": "a", "text": "the cat"}])
    message = invoke(*encode, check=2).stderr
    assert "vectors-00000.npy" in message and "a defect" not in message


def test_a_directory_that_another_process_replaced_is_not_mixed_with_what_was_read(
    model, tmp_path, invoke, monkeypatch
):
    from sentcli.stores.directory import changes as module

    corpus, out = tmp_path / "corpus.jsonl", tmp_path / "out"
    write(corpus, [{"id": "a", "text": "the cat"}, {"id": "b", "text": "the dog"}])
    encode = ("encode", corpus, "-o", out, *model)
    invoke(*encode, check=0)
    comparison = module.comparison

    def replaced_meanwhile(*arguments):
        found = comparison(*arguments)
        monkeypatch.undo()
        write(corpus, [{"id": "b", "text": "the dog"}, {"id": "a", "text": "the cat"}])
        invoke(*encode, "--overwrite", check=0)
        return found

    monkeypatch.setattr(module, "comparison", replaced_meanwhile)
    assert "again" in invoke(*encode, "--update", check=2).stderr
    invoke("encode", "--check", out, check=0)


def test_a_corpus_whose_rows_have_all_lost_their_texts_leaves_nothing(model, tmp_path, invoke):
    corpus, out = tmp_path / "corpus.jsonl", tmp_path / "out"
    encode = ("encode", corpus, "-o", out, *model, "--update", "--on-null", "skip")
    write(corpus, [{"id": "a", "text": "the cat"}])
    invoke(*encode, check=0)
    write(corpus, [{"id": "a", "text": None}])
    assert "1 gone" in invoke(*encode, check=0).stderr
