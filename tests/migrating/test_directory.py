"""A directory moves to another model if it is as good, returns in one step, and answers whatever interrupts that."""

import json
import shutil
import signal
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from filelock import FileLock

import sentcli
from sentcli.evaluation.baseline import compare_scores
from sentcli.migrating import directory as directory_move
from tests.conftest import save_backbone
from tests.forked import Forked
from tests.tolerance import VECTORS

pytest.importorskip("faiss", reason="search comes with the extra sentcli[cpu]")

NOUNS = "cat dog bird fish tree house river mat man woman child".split()
VERBS = "sat ran flew swam saw".split()
TORCH = ("--backend", "torch")


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    return save_backbone(tmp_path_factory.mktemp("other") / "model", seed=7)


@pytest.fixture(scope="module")
def worse(tmp_path_factory):
    """A model that does not see which words a text has."""
    import torch
    from transformers import BertModel

    folder = save_backbone(tmp_path_factory.mktemp("worse") / "model")
    model = BertModel.from_pretrained(folder, add_pooling_layer=False)
    torch.nn.init.zeros_(model.embeddings.word_embeddings.weight)
    model.save_pretrained(folder)
    return folder


def documents(count=60):
    """Documents with titles, which become queries."""
    rows = []
    for number in range(count):
        noun, verb = NOUNS[number % len(NOUNS)], VERBS[number % len(VERBS)]
        rows.append(
            {
                "id": f"d{number}",
                "title": f"the {noun} {verb} {number}",
                "text": f"a {noun} and a {NOUNS[number * 3 % len(NOUNS)]} {verb} on the river {number} under the mat",
                "year": 2000 + number % 5,
            }
        )
    return rows


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def corpus(tmp_path):
    write(tmp_path / "corpus.jsonl", documents())
    return tmp_path / "corpus.jsonl"


@pytest.fixture
def out(corpus, tiny_bert, tmp_path, invoke):
    invoke("encode", corpus, "-m", tiny_bert, *TORCH, "-o", tmp_path / "out", "--shard-rows", 16, check=0)
    return tmp_path / "out"


def files(folder):
    """The bytes of all files of a directory, without those that hold times."""
    content = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "indexes" not in path.parts:
            content[str(path.relative_to(folder))] = path.read_bytes()
    return content


def read(folder):
    """The rows of a directory, its vectors, and its manifest without the checksums of the vectors."""
    manifest = json.loads((folder / "manifest.json").read_text())
    vectors = []
    for shard in manifest["shards"]:
        vectors.append(np.load(folder / shard["vectors"]).astype(float))
        del shard["sha256"][shard["vectors"]]
    rows = [(folder / shard["rows"]).read_bytes() for shard in manifest["shards"]]
    return rows, np.concatenate(vectors), manifest


def require_equal(folder, fresh):
    found, expected = read(folder), read(fresh)
    assert found[0] == expected[0]
    np.testing.assert_allclose(found[1], expected[1], atol=VECTORS)
    assert found[2] == expected[2]


def migrate(invoke, folder, *options, check=0):
    done = invoke("migrate", folder, *options, "--json", "-", check=check)
    return json.loads(done.stdout)["results"]


def first(invoke, folder, *options):
    """The first hit of a query, which is encoded by the model that the directory names."""
    ask = ("retrieve", "--corpus", folder, "--query", "the cat sat", "--json", "-", *TORCH, *options)
    return json.loads(invoke(*ask, check=0).stdout)["results"][0]["hits"][0]


ENCODINGS = {
    "plain": (),
    "float16": ("--output-dtype", "float16"),
    "int8, shorter": ("--output-dtype", "int8", "--truncate-dim", 8),
    "signs": ("--output-dtype", "binary"),
    "mean of pieces": ("--on-long", "chunk-mean"),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", ENCODINGS)
def test_a_moved_directory_is_what_a_fresh_one_is(how, corpus, other, tiny_bert, tmp_path, invoke):
    options = (*ENCODINGS[how], *TORCH, "--shard-rows", 16)
    invoke("encode", corpus, "-m", tiny_bert, "-o", tmp_path / "out", *options, check=0)
    old = files(tmp_path / "out")
    results = migrate(invoke, tmp_path / "out", "-m", other, *TORCH, "--anyway")
    invoke("encode", corpus, "-m", other, "-o", tmp_path / "fresh", *options, check=0)
    require_equal(tmp_path / "out", tmp_path / "fresh")
    assert files(tmp_path / "out.before") == old
    assert results["rows"] == 60 and results["migrated"]
    assert {"metric", "old", "new", "difference", "interval", "passed", "same_hits"} <= results.keys()


@pytest.mark.slow
def test_appended_inputs_stay_apart(out, corpus, other, tiny_bert, tmp_path, invoke):
    more, fresh = tmp_path / "more.jsonl", tmp_path / "fresh"
    write(more, [{**row, "id": f"m{row['id']}"} for row in documents(20)])
    invoke("encode", more, "-o", out, "-m", tiny_bert, *TORCH, "--append", check=0)
    migrate(invoke, out, "-m", other, *TORCH, "--anyway")
    invoke("encode", corpus, "-m", other, *TORCH, "-o", fresh, "--shard-rows", 16, check=0)
    invoke("encode", more, "-m", other, *TORCH, "-o", fresh, "--append", check=0)
    require_equal(out, fresh)


@pytest.mark.slow
@pytest.mark.parametrize("context", ["none", "headings"])
def test_passages_move_as_they_are(context, other, tiny_bert, tmp_path, invoke):
    pages = tmp_path / "pages"
    pages.mkdir()
    for number, row in enumerate(documents(24)):
        noun = NOUNS[number % len(NOUNS)]
        sentences = " ".join(f"the {seen} saw the {row['text']} ." for seen in NOUNS[:4])
        (pages / f"p{number}.md").write_text(f"# {row['title']}\n\n{sentences}\n\n## the {noun}\n\n{sentences}\n")
    cut = ("--passages", "--passage-tokens", 20, "--overlap", 3, "--context", context)
    invoke("encode", pages, "-m", tiny_bert, *TORCH, *cut, "-o", tmp_path / "out", check=0)
    results = migrate(invoke, tmp_path / "out", "-m", other, *TORCH, "--anyway")
    assert results["set_documents"] == 24  # whole documents, put together of their passages
    invoke("encode", pages, "-m", other, *TORCH, *cut, "-o", tmp_path / "fresh", check=0)
    require_equal(tmp_path / "out", tmp_path / "fresh")  # both models have the same tokenizer


@pytest.mark.slow
def test_passages_are_updated_and_appended_after_a_move_to_a_model_that_reads_less(
    corpus, other, tiny_bert, tmp_path, invoke
):
    out, fresh, more = tmp_path / "out", tmp_path / "fresh", tmp_path / "more.jsonl"
    write(
        corpus, [{"id": f"d{n}", "title": f"t{n}", "text": f"the {NOUNS[n]} ran on the river. " * 4} for n in range(11)]
    )
    write(more, [{"id": "m", "title": "more", "text": "a bird sat. " * 9}])
    invoke("encode", corpus, "-m", tiny_bert, *TORCH, "-o", out, "--passages", check=0)
    of_other = ("-m", other, *TORCH, "--max-length", 10)
    moved = invoke("migrate", out, *of_other, "--anyway", check=0)
    assert "--passages" in moved.stderr
    update = ("encode", corpus, *of_other, "-o", out, "--update")
    refused = invoke(*update, check=2).stderr
    assert "--passages" in refused and "columns" not in refused  # before anything is read
    copied = shutil.copytree(out, tmp_path / "copied")
    invoke("encode", more, *of_other, "-o", copied, "--passages", "--append", check=0)
    invoke("encode", more, *of_other, "-o", copied, "--passages", "--append", check=0)  # there is nothing to add
    invoke(*update, "--passages", check=0)
    invoke("encode", corpus, *of_other, "-o", fresh, "--passages", check=0)
    require_equal(out, fresh)
    invoke("encode", corpus, "-m", other, *TORCH, "-o", out, "--passages", "--max-length", 10, "--update", check=0)
    assert "9" in invoke(*update, "--passages", "--passage-tokens", 9, check=2).stderr  # which the model does not read


def test_an_update_cuts_no_longer_passages_than_there_are(corpus, tiny_bert, tmp_path, invoke):
    out = tmp_path / "out"
    encode = ("encode", corpus, "-m", tiny_bert, *TORCH, "-o", out, "--passages")
    invoke(*encode, "--passage-tokens", 8, check=0)
    done = invoke(*encode, "--update", "--json", "-", check=0)
    results = json.loads(done.stdout)["results"]
    assert results["encoded"] == results["changed"] == results["new"] == 0
    assert "--passage-tokens 8" in invoke(*encode, "--update", "--passage-tokens", 10, check=2).stderr


def test_a_worse_model_is_refused_and_nothing_is_written(out, worse, invoke):
    before = files(out)
    results = migrate(invoke, out, "-m", worse, *TORCH, check=3)
    assert not results["passed"] and not results["migrated"]
    assert results["interval"][0] < -0.01 and results["same_hits"] < 1
    assert results["difference"] == pytest.approx(results["new"] - results["old"])
    assert files(out) == before
    assert not list(out.parent.glob("*before*")) and not list(out.parent.glob(".out*"))


@pytest.mark.parametrize("high", [-0.1, 0.1])
def test_more_queries_are_advised_unless_the_loss_is_proven(high, out, other, invoke, monkeypatch):
    def compared(*scores):
        found = compare_scores(*scores)
        return replace(found, difference=replace(found.difference, low=-0.3, high=high))

    monkeypatch.setattr("sentcli.migrating.gate.compare_scores", compared)
    done = invoke("migrate", out, "-m", other, *TORCH, check=3)
    assert ("--set" in done.stdout) == (high > 0)
    assert "--allow" in done.stdout and "--anyway" in done.stdout


@pytest.mark.slow
def test_the_same_loss_is_taken_where_it_is_allowed(out, other, invoke):
    results = migrate(invoke, out, "-m", other, *TORCH, "--allow", 1)
    assert results["passed"] and results["migrated"]
    assert first(invoke, out)["score"] > 0


def test_a_move_of_a_model_to_itself_passes_with_all_hits(out, tiny_bert, tmp_path, invoke):
    shutil.copytree(tiny_bert, tmp_path / "copy")
    again = ("-m", tmp_path / "copy", *TORCH)
    assert migrate(invoke, out, *again)["migrated"] is False  # it has these vectors already
    results = migrate(invoke, out, *again, "--max-length", 20)
    assert results["migrated"] and results["difference"] == 0 and results["same_hits"] == 1


@pytest.mark.slow
def test_dry_run_compares_and_writes_nothing(out, other, invoke):
    before = files(out)
    results = migrate(invoke, out, "-m", other, *TORCH, "--allow", 1, "--dry-run")
    assert results["passed"] and results["seconds_estimated"] > 0 and not results["migrated"]
    assert files(out) == before and not list(out.parent.glob("*before*"))


@pytest.mark.slow
def test_indexes_are_those_of_the_old_directory(out, other, tiny_bert, invoke):
    for kind in ("hnsw", "IVF4,Flat", "bm25"):
        invoke("index", out, "--type", kind, check=0)
    before = {path.name for path in (out / "indexes").iterdir()}
    migrate(invoke, out, "-m", other, *TORCH, "--anyway")
    invoke("index", out, "--check", check=0)
    assert {path.name for path in (out / "indexes").iterdir()} == before
    exact = first(invoke, out, "--index", "flat")
    assert first(invoke, out, "--index", "hnsw")["id"] == exact["id"]
    invoke("retrieve", "--corpus", out, "--query", "cat", "--search", "bm25", check=0)


def test_back_and_forth_and_drop(out, other, tiny_bert, invoke):
    old = files(out)
    migrate(invoke, out, "-m", other, *TORCH, "--anyway")
    new = files(out)
    assert migrate(invoke, out, "--back")["model"] == str(tiny_bert)
    assert files(out) == old and files(out.parent / "out.before") == new
    invoke("migrate", out, "-m", other, *TORCH, "--anyway", check=2)  # the one before would be lost
    assert "--update" not in invoke("migrate", out, "--back", check=0).stderr  # no row has changed
    invoke("migrate", out, "--back", check=0)
    assert migrate(invoke, out, "--back")["model"] == str(other)
    assert files(out) == new
    assert migrate(invoke, out, "--drop")["bytes"] > 0
    assert files(out) == new and not (out.parent / "out.before").exists()
    for verb in ("--back", "--drop"):
        invoke("migrate", out, verb, check=2)


def damage(file):
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


@pytest.mark.slow
def test_no_damaged_directory_takes_the_place_of_a_whole_one(out, other, invoke):
    migrate(invoke, out, "-m", other, *TORCH, "--anyway")
    before = out.with_name("out.before")
    damage(before / "vectors-00001.npy")
    present, old = files(out), files(before)
    refused = invoke("migrate", out, "--back", check=1).stderr
    assert "vectors-00001.npy" in refused
    assert (files(out), files(before)) == (present, old)
    damage(before / "vectors-00001.npy")  # which is whole again
    damage(out / "rows-00000.parquet")
    assert "rows-00000.parquet" in invoke("migrate", out, "--drop", check=1).stderr
    assert files(before).keys() == old.keys()
    invoke("migrate", out, "--back", check=0)
    assert "rows-00000.parquet" in files(before)


@pytest.mark.parametrize("kind", ["hnsw", pytest.param("bm25", marks=pytest.mark.slow)])
def test_no_damaged_index_takes_the_place_of_a_whole_one(out, other, invoke, kind):
    pytest.importorskip("bm25s", reason="search comes with the extra sentcli[cpu]")
    invoke("index", out, "--type", kind, check=0)
    migrate(invoke, out, "-m", other, *TORCH, "--anyway")
    before = out.with_name("out.before")
    index = next(file for file in sorted((before / "indexes" / kind).iterdir()) if file.suffix in (".faiss", ".npy"))
    damage(index)
    present, old = files(out), files(before)
    assert index.name in invoke("migrate", out, "--back", check=1).stderr
    assert (files(out), files(before)) == (present, old)
    invoke("index", before, "--type", kind, "--overwrite", check=0)  # what the message says
    damage(out / index.relative_to(before))
    assert index.name in invoke("migrate", out, "--drop", check=1).stderr
    invoke("migrate", out, "--back", check=0)


def test_back_exchanges_what_a_link_leads_to(out, other, tiny_bert, tmp_path, invoke):
    migrate(invoke, out, "-m", other, *TORCH, "--anyway")
    before = out.with_name("out.before")
    (tmp_path / "disk").mkdir()
    before.rename(tmp_path / "disk" / "kept")
    before.symlink_to(tmp_path / "disk" / "kept")
    new, old = files(out), files(before)
    results = migrate(invoke, out, "--back")
    assert results["before"] == str(before) and before.is_symlink() and not out.is_symlink()
    assert files(out) == old and files(tmp_path / "disk" / "kept") == new
    assert migrate(invoke, out, "--back")["model"] == str(other)
    assert files(out) == new


def test_a_link_to_the_old_directory_is_not_said_to_be_deleted(out, other, tmp_path, invoke):
    migrate(invoke, out, "-m", other, *TORCH, "--anyway")
    before = out.with_name("out.before")
    before.rename(tmp_path / "elsewhere")
    before.symlink_to(tmp_path / "elsewhere")
    assert "elsewhere" in invoke("migrate", out, "--drop", check=2).stderr
    assert before.is_symlink() and files(tmp_path / "elsewhere")


def test_drop_with_a_model_keeps_no_old_directory(out, other, invoke):
    migrate(invoke, out, "-m", other, *TORCH, "--anyway", "--drop")
    assert not (out.parent / "out.before").exists()
    assert first(invoke, out)["score"] > 0


def refused_at_once(invoke, folder, other, name=None):
    """The error of a move that is refused before anything is encoded or compared."""
    before = files(folder.parent)
    refused = invoke("migrate", name or folder, "-m", other, *TORCH, "--anyway", check=2)
    assert "take about" not in refused.stderr and files(folder.parent) == before
    return refused.stderr


@pytest.mark.parametrize("kind", ["file", "folder", "copy and notes"])
def test_what_others_have_named_so_stays(kind, out, other, invoke):
    kept = out.parent / "out.before"
    if kind == "file":
        kept.write_text("mine")
    elif kind == "folder":
        kept.mkdir()
        (kept / "notes").write_text("mine")
    else:
        shutil.copytree(out, kept)
        (kept / "notes").write_text("mine")
    assert "out.before" in refused_at_once(invoke, out, other)


@pytest.mark.slow
def test_the_folder_that_one_is_in_does_not_move(out, other, invoke, monkeypatch):
    monkeypatch.chdir(out)
    refused_at_once(invoke, out, other, ".")
    monkeypatch.chdir(out.parent)
    migrate(invoke, out, "-m", other, *TORCH, "--anyway")
    for folder, option in ((out, "--back"), (out.parent / "out.before", "--drop")):
        monkeypatch.chdir(folder)
        invoke("migrate", out, option, check=2)


@pytest.mark.parametrize("name", ["out.npy", "out.old"])
def test_a_directory_with_the_name_of_a_file_does_not_move(name, out, other, invoke):
    refused_at_once(invoke, out.rename(out.with_name(name)), other)


def test_a_model_that_is_served_is_asked_nothing(out, invoke):
    refused = invoke("migrate", out, "-m", "http://127.0.0.1:9/v1#m", "--anyway", check=2)
    assert "served" in refused.stderr


def test_links_beside_the_vectors_stay_links(out, other, tmp_path, invoke):
    (tmp_path / "elsewhere").mkdir()
    (out / ".git").mkdir()
    links = {"data": "../elsewhere", "gone": "nowhere", ".git/gone": "nowhere", "README": "manifest.json"}
    for name, target in links.items():
        (out / name).symlink_to(target)
    (tmp_path / "link").symlink_to("out")
    assert migrate(invoke, tmp_path / "link", "-m", other, *TORCH, "--anyway")["before"] == str(tmp_path / "out.before")
    for folder in (out, tmp_path / "out.before"):
        assert {name: str((folder / name).readlink()) for name in links} == links


@pytest.mark.slow
def test_parts_of_several_machines_become_one_directory(corpus, other, tiny_bert, tmp_path, invoke):
    for number in (1, 2):
        share = ("--shard", f"{number}/2", "--shard-rows", 16)
        invoke("encode", corpus, "-m", tiny_bert, *TORCH, "-o", tmp_path / "parts", *share, check=0)
        if number == 1:
            refused_at_once(invoke, tmp_path / "parts", other)
    invoke("encode", corpus, "-m", other, *TORCH, "-o", tmp_path / "fresh", "--shard-rows", 16, check=0)
    migrate(invoke, tmp_path / "parts", "-m", other, *TORCH, "--anyway")
    require_equal(tmp_path / "parts", tmp_path / "fresh")
    assert migrate(invoke, tmp_path / "parts", "--back")["model"] == str(tiny_bert)
    assert first(invoke, tmp_path / "parts")["id"]


@pytest.mark.slow
def test_an_index_that_is_built_meanwhile_is_not_lost(out, other, invoke, monkeypatch):
    original = directory_move._write_again

    def encode_and_index(*arguments):
        invoke("index", out, "--type", "hnsw", check=0)
        return original(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(directory_move, "_write_again", encode_and_index)
        assert "meanwhile" in invoke("migrate", out, "-m", other, *TORCH, "--anyway", check=2).stderr
    results = migrate(invoke, out, "-m", other, *TORCH, "--anyway")
    assert results["indexes"] == ["hnsw"] and results["rows_encoded"] == 0


def test_a_document_that_is_too_long_is_named_by_the_set(corpus, other, tiny_bert, tmp_path, invoke):
    strict = ("--on-long", "error")
    invoke("encode", corpus, "-m", tiny_bert, *TORCH, "-o", tmp_path / "out", *strict, check=0)
    refused = invoke("migrate", tmp_path / "out", "-m", other, *TORCH, "--max-length", 6, check=2)
    assert "d0" in refused.stderr and "documents.jsonl" not in refused.stderr


def test_back_says_that_rows_have_changed_since(out, corpus, other, invoke):
    migrate(invoke, out, "-m", other, *TORCH, "--anyway")
    write(corpus, documents(50))
    invoke("encode", corpus, "-m", other, *TORCH, "-o", out, "--update", check=0)
    back = invoke("migrate", out, "--back", check=0)
    assert "--update" in back.stderr


@pytest.mark.slow
def test_a_set_of_ones_own(out, corpus, other, tmp_path, invoke):
    folder = tmp_path / "mine"
    (folder / "qrels").mkdir(parents=True)
    write(folder / "corpus.jsonl", [{"_id": row["id"], "text": row["text"]} for row in documents(40)])
    write(folder / "queries.jsonl", [{"_id": f"q{i}", "text": f"the {noun} ran"} for i, noun in enumerate(NOUNS)])
    judged = "".join(f"q{i}\td{i}\t1\n" for i in range(len(NOUNS)))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    results = migrate(invoke, out, "-m", other, *TORCH, "--set", folder, "--allow", 1)
    assert results["queries"] == len(NOUNS) and results["set_documents"] == 40
    write(folder / "corpus.jsonl", [{"_id": f"d{i}" if i < 30 else f"x{i}", "text": f"the {i}"} for i in range(40)])
    invoke("migrate", out, "--drop", check=0)
    refused = invoke("migrate", out, "-m", other, *TORCH, "--max-length", 9, "--set", folder, check=2)
    assert "x30" in refused.stderr


@pytest.mark.slow
def test_a_corpus_of_which_no_set_can_be_made(other, tiny_bert, tmp_path, invoke):
    write(tmp_path / "few.jsonl", [{"id": str(i), "text": noun} for i, noun in enumerate(NOUNS)])
    invoke("encode", tmp_path / "few.jsonl", "-m", tiny_bert, *TORCH, "-o", tmp_path / "out", check=0)
    assert "--set" in invoke("migrate", tmp_path / "out", "-m", other, *TORCH, check=2).stderr
    results = migrate(invoke, tmp_path / "out", "-m", other, *TORCH, "--anyway")
    assert results["migrated"] and results["metric"] is None and results["passed"] is None


@pytest.mark.slow
def test_a_model_that_is_gone_cannot_be_compared(out, other, tiny_bert, tmp_path, invoke):
    manifest = json.loads((out / "manifest.json").read_text())
    manifest["settings"]["model"] = str(tmp_path / "gone")
    (out / "manifest.json").write_text(json.dumps(manifest))
    assert "--anyway" in invoke("migrate", out, "-m", other, *TORCH, check=2).stderr
    assert not migrate(invoke, out, "-m", other, *TORCH, "--anyway", "--dry-run")["migrated"]
    assert migrate(invoke, out, "-m", other, *TORCH, "--anyway")["migrated"]


def test_two_moves_at_once(out, other, invoke):
    with FileLock(out.parent / ".out-next.lock"):
        for options in (("-m", other, *TORCH), ("--back",), ("--drop",)):
            assert "another process" in invoke("migrate", out, *options, check=2).stderr


def spoilt(folder):
    """Directories that do not move."""
    manifest = json.loads((folder / "manifest.json").read_text())

    def changed(**values):
        (folder / "manifest.json").write_text(json.dumps({**manifest, **values}))

    yield lambda: shutil.copyfile(folder / "rows-00000.parquet", folder / "rows-00001.parquet")
    yield lambda: changed(shards=manifest["shards"][:1], rows_done=16)
    yield lambda: changed(settings={"text_field": "text"})
    yield lambda: (folder / "manifest.json").write_text("{")


@pytest.mark.parametrize("number", range(4))
def test_a_spoilt_directory_is_refused_by_name(number, out, other, invoke):
    list(spoilt(out))[number]()
    before = files(out)
    refused = invoke("migrate", out, "-m", other, *TORCH, "--anyway", check=2)
    assert "out" in refused.stderr and files(out) == before


@pytest.mark.slow
def test_an_index_that_does_not_fit_the_new_dimension(out, tiny_bert, tmp_path, invoke):
    invoke("index", out, "--type", "IVF2,PQ8x4", check=0)
    short = ("--anyway", "-m", save_backbone(tmp_path / "short"), *TORCH)
    before = files(out)
    import transformers

    config = transformers.BertConfig.from_pretrained(short[2])
    config.hidden_size = 36  # which 8 does not divide
    transformers.BertModel(config).save_pretrained(short[2])
    invoke("migrate", out, *short, check=2)
    assert files(out) == before and not list(out.parent.glob(".out-next*"))


MOVE = "sentcli.migrating.directory"
FOLDER = "sentcli.io.folder:Folder"
STEPS = (f"{MOVE}:_write_again", f"{MOVE}:build_index", f"{FOLDER}.keep_before", f"{FOLDER}.promote")


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_the_old_or_the_new_answers_after_a_kill(step, out, other, tmp_path, invoke):
    """The process ends right before, or right behind, each step of a move; the same command goes on."""
    invoke("index", out, "--type", "hnsw", check=0)
    options = ("-m", other, *TORCH, "--anyway")
    reference = tmp_path / "reference"
    shutil.copytree(out, reference)
    migrate(invoke, reference, *options)
    for when in ("before", "behind"):
        target = tmp_path / when
        shutil.copytree(out, target)
        process = Forked("tests.migrating.killed_move", step, when, "migrate", target, *options)
        process.communicate(120)
        assert process.returncode == -signal.SIGKILL
        assert first(invoke, target)["id"]
        results = migrate(invoke, target, *options)
        assert results["migrated"] or (step, when) == (STEPS[-1], "behind")
        require_equal(target, reference)
        assert files(tmp_path / f"{when}.before") == files(out)


@pytest.mark.slow
def test_from_python(out, other):
    result = sentcli.migrate(corpus=str(out), model=str(other), backend="torch", allow=1)
    assert result.to_dict()["results"]["migrated"]
    assert sentcli.migrate(corpus=str(out), back=True).to_dict()["results"]["rows"] == 60


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, pytest.param(6, marks=pytest.mark.deep)])
def test_the_wrong_model_is_refused_before_and_after(count, out, other, tiny_bert, tmp_path, invoke):
    models = [tiny_bert, other, *(save_backbone(tmp_path / f"m{seed}", seed=seed) for seed in range(20, 20 + count))]
    pairs = 0
    for current, following in pairwise(models):
        for model in models:
            wrong = model != current
            done = invoke("retrieve", "--corpus", out, "-m", model, *TORCH, "--query", "cat")
            assert done.exit_code == (2 if wrong else 0)
            pairs += wrong
        migrate(invoke, out, "-m", following, *TORCH, "--anyway", "--drop")
    assert pairs == (len(models) - 1) ** 2
