"""What changes how a result reads is said when it happens, and what is shown cannot act on what shows it."""

import json
import os
import re
import threading
import time

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from sentcli import SentenceEncoder
from sentcli.errors import InputError
from sentcli.methods import get_method
from sentcli.training.pairs import read_training_pairs
from tests.conftest import save_backbone
from tests.evaluation.conftest import write_set
from tests.stores.outputs import message_of

STEPS = ("--batch-size", 8, "--max-steps", 2)


def edit(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


# Weights


@pytest.fixture
def folder(tmp_path):
    return save_backbone(tmp_path / "model")


def test_a_model_without_tensors_is_refused(folder, invoke, text, tmp_path):
    save_file({}, folder / "model.safetensors")
    for backend in ("auto", "torch", "onnx"):
        command = ("encode", text, "-m", folder, "-o", tmp_path / "v.npy", "--backend", backend)
        message = message_of(invoke(*command, check=2))
        assert re.search(f"{folder}: .*embeddings", message)


def test_an_index_of_weights_that_is_empty_is_refused(folder):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {}}')
    with pytest.raises(InputError, match=r"model\.safetensors\.index\.json .*weight_map"):
        SentenceEncoder.load(folder, backend="torch")


def test_weights_of_layers_that_the_configuration_lacks_are_refused(folder):
    edit(folder / "config.json", num_hidden_layers=1)
    with pytest.raises(InputError, match=rf"{folder}: 16 .*encoder\.layer\.1\."):
        SentenceEncoder.load(folder, backend="torch")


def test_a_head_that_does_not_encode_is_named(folder):
    state = load_file(folder / "model.safetensors")
    plain = SentenceEncoder.load(folder, backend="torch").encode(["the cat"])
    save_file(
        {**state, "classifier.weight": state["embeddings.LayerNorm.weight"].clone()}, folder / "model.safetensors"
    )
    notes = []
    encoder = SentenceEncoder.load(folder, backend="torch", notice=notes.append)
    assert any("classifier" in note for note in notes)
    assert np.array_equal(encoder.encode(["the cat"]), plain)


@pytest.mark.slow
def test_a_pooler_taken_for_a_head_is_said(folder, invoke, text, tmp_path):
    result = invoke("encode", text, "-m", folder, "--pooling", "cls-head", "-o", tmp_path / "v.npy", check=0)
    assert re.search(f"{folder}: --pooling cls-head .*pooler", message_of(result))


# Scores of pairs


def write_pairs(path, scores):
    words = ["the cat sat", "a dog ran", "the river is big", "a fish swam"]
    lines = [f"{words[i % 4]} {i}\t{words[(i + 1) % 4]}\t{score}\n" for i, score in enumerate(scores)]
    path.write_text("sentence1\tsentence2\tscore\n" + "".join(lines))
    return path


@pytest.mark.parametrize(
    ("scores", "ends", "expected"),
    [
        ([0, 0.5, 1], (0, 1), [0, 0.5, 1]),
        ([0, 2.5, 5], (0, 5), [0, 0.5, 1]),
        ([1, 1.5, 4], (0, 5), [0.2, 0.3, 0.8]),
        ([0, 50, 100], (0, 100), [0, 0.5, 1]),
        ([-1, 0, 1], (-1, 1), [0, 0.5, 1]),
        ([-10, 0, 30], (-10, 30), [0, 0.25, 1]),
    ],
)
def test_the_range_of_scores_is_told_from_them(tmp_path, scores, ends, expected):
    corpus, _ = read_training_pairs([str(write_pairs(tmp_path / "pairs.tsv", scores))])
    assert corpus.score_range == ends
    assert corpus.scores == pytest.approx(expected)


def test_a_range_that_is_given_holds_and_its_limits_are_checked(tmp_path):
    pairs = write_pairs(tmp_path / "pairs.tsv", [0, 0.5, 1])
    corpus, _ = read_training_pairs([str(pairs)], score_range=(0, 2))
    assert corpus.scores == [0, 0.25, 0.5]
    with pytest.raises(InputError, match=r"line 4: .*1.*0.*8"):
        read_training_pairs([str(pairs)], score_range=(0, 0.8))


@pytest.mark.parametrize("given", ["1", "1,0", "0,nan", "a,b"])
def test_a_range_is_two_numbers(tiny_bert, tmp_path, invoke, given):
    pairs = write_pairs(tmp_path / "pairs.tsv", range(6))
    command = ("train", "--method", "sts-regression", "-m", tiny_bert, "--data", pairs, "-o", tmp_path / "m", *STEPS)
    assert "--score-range" in message_of(invoke(*command, "--score-range", given, check=2))


def test_training_says_the_range_and_it_belongs_to_the_run(tiny_bert, tmp_path, invoke):
    pairs = write_pairs(tmp_path / "pairs.tsv", [i % 2 for i in range(16)])
    command = ("train", "--method", "sts-regression", "-m", tiny_bert, "--data", pairs, "-o", tmp_path / "m", *STEPS)
    assert re.search("warning: .*0 .*1 .*cosines .*0 .*1; --score-range", message_of(invoke(*command, check=0)))
    result = invoke(*command, "--score-range", "0,5", "--resume", check=2)
    assert "score_range" in message_of(result)


# Training


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ct", "mirror-bert"])
def test_methods_of_the_mean_pool_by_it(tiny_bert, text, tmp_path, invoke, method):
    assert get_method(method).pooling == "mean"
    invoke("train", "--method", method, "-m", tiny_bert, "--data", text, "-o", tmp_path / "m", *STEPS, check=0)
    assert SentenceEncoder.load(tmp_path / "m").spec.pooling == "mean"


def test_repeated_sentences_are_counted(tiny_bert, text, tmp_path, invoke):
    text.write_text(text.read_text() * 2)
    rows = len(text.read_text().splitlines())
    distinct = len(set(text.read_text().splitlines()))
    result = invoke(
        "train", "--method", "simcse", "-m", tiny_bert, "--data", text, "-o", tmp_path / "m", *STEPS, check=0
    )
    assert f"{rows - distinct} of {rows} sentences" in message_of(result)


@pytest.mark.slow
def test_a_run_without_evaluations_has_no_curves(tiny_bert, text, tmp_path, invoke):
    invoke("train", "--method", "simcse", "-m", tiny_bert, "--data", text, "-o", tmp_path / "m", *STEPS, check=0)
    result = invoke("analyze", "geometry", tmp_path / "m", "--texts", text, "-o", tmp_path / "g", check=0)
    assert re.search("warning: m .*--eval-data", message_of(result))
    assert not list((tmp_path / "g").glob("training-curves*"))


def test_a_sweep_checks_every_point_first_and_leaves_nothing(tiny_bert, text, tmp_path, invoke):
    sweep = tmp_path / "sweep.toml"
    sweep.write_text(f'[[grid]]\nmodel = ["{tiny_bert}", "{tmp_path / "nothing"}"]\n')
    command = ("train", "--method", "simcse", "--sweep", sweep, "--data", text, "-o", tmp_path / "m", *STEPS)
    message = message_of(invoke(*command, check=2))
    assert "nothing" in message and message.count("error") == 1
    assert not (tmp_path / "m").exists()


@pytest.mark.slow
def test_points_whose_names_are_alike_have_folders_of_their_own(tiny_bert, text, tmp_path, invoke):
    models = [save_backbone(tmp_path / name, seed=seed) for seed, name in enumerate(("a b", "a_b"))]
    sweep = tmp_path / "sweep.toml"
    sweep.write_text(f"[[grid]]\nmodel = {[str(model) for model in models]}\n")
    command = ("train", "--method", "simcse", "--sweep", sweep, "--data", text, "-o", tmp_path / "m", *STEPS)
    invoke(*command, check=0)
    assert len(list((tmp_path / "m").glob("*/model.safetensors"))) == 2


def test_a_grid_of_too_many_points_is_refused_at_once(tiny_bert, text, tmp_path, invoke):
    sweep = tmp_path / "sweep.toml"
    values = list(range(1, 200))
    sweep.write_text(f"[[grid]]\nbatch_size = {values}\nmax_steps = {values}\neval_every = {values}\n")
    command = ("train", "--method", "simcse", "--sweep", sweep, "-m", tiny_bert, "--data", text, "-o", tmp_path / "m")
    began = time.monotonic()
    assert "points" in message_of(invoke(*command, check=2))
    assert time.monotonic() - began < 10


def test_accumulate_has_a_bound(tiny_bert, text, tmp_path, invoke):
    command = ("train", "--method", "simcse", "-m", tiny_bert, "--data", text, "-o", tmp_path / "m")
    assert "accumulate" in message_of(invoke(*command, "--set", "accumulate=1000000000000", check=2))


# Encoding


@pytest.mark.slow
def test_rows_without_the_prompt_of_the_model_are_said(tiny_bert, text, tmp_path, invoke):
    SentenceEncoder.load(tiny_bert, pooling="mean").save(tmp_path / "m")
    edit(tmp_path / "m" / "config_sentence_transformers.json", prompts={"query": "find: ", "document": "text: "})
    plain = invoke("encode", text, "-m", tmp_path / "m", "-o", tmp_path / "a.npy", check=0)
    assert re.search(rf"{tmp_path}/m .*\(query, document\).*--prompt-name", message_of(plain))
    chosen = invoke(
        "encode", text, "-m", tmp_path / "m", "-o", tmp_path / "b.npy", "--prompt-name", "document", check=0
    )
    assert "--prompt-name" not in message_of(chosen)


@pytest.mark.slow
def test_a_very_long_line_is_cut_before_the_tokenizer(tiny_bert, tmp_path, run):
    resource = pytest.importorskip("resource")
    (tmp_path / "long.txt").write_text("the cat sat on the mat " * 2_000_000 + "\n" + "a dog\n")
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = run(
        "encode", tmp_path / "long.txt", "-m", tiny_bert, "-o", tmp_path / "v.npy", "--backend", "torch", check=0
    )
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 30  # CPU seconds; uncut it was above 60
    assert re.search(r"1 rows .*\b32 tokens .*--on-long", done.stderr)


# Files of retrieval sets


@pytest.mark.parametrize(
    ("corpus", "what"),
    [
        ([{"_id": "d1", "title": 5, "text": "a"}], "line 1: 'title' .*number"),
        ([{"_id": ["d1"], "text": "a"}], "line 1: '_id' .*list"),
    ],
)
def test_ids_and_titles_of_another_type_are_refused(tmp_path, tiny_bert, invoke, corpus, what):
    folder = write_set(tmp_path / "set", corpus=corpus)
    message = message_of(invoke("retrieve", "--beir", folder, "-m", tiny_bert, check=2))
    assert re.search(rf"corpus\.jsonl, {what}", message)


def test_a_judgement_of_twenty_digits_is_refused(tmp_path, tiny_bert, invoke):
    folder = write_set(tmp_path / "set", qrels="query-id\tcorpus-id\tscore\nq1\td1\t12345678901234567890\n")
    assert "line 2" in message_of(invoke("retrieve", "--beir", folder, "-m", tiny_bert, check=2))


# What is shown


def test_json_on_standard_output_acts_on_no_terminal(tiny_bert, tmp_path, run):
    (tmp_path / "rows.txt").write_text("a \u202e cat \x9b2J\n", "utf-8")
    done = run("encode", tmp_path / "rows.txt", "-m", tiny_bert, "-o", "-", check=0)
    assert "\u202e" not in done.stdout and "\x9b" not in done.stdout
    assert json.loads(done.stdout)["text"] == "a \u202e cat \x9b2J"
    found = run("retrieve", "--corpus", tmp_path / "rows.txt", "-m", tiny_bert, "--query", "x", "--hits", "-", check=0)
    assert "\u202e" not in found.stdout and "\u202e" in json.loads(found.stdout)["hits"][0]["text"]


def test_a_usage_error_acts_on_no_terminal(run):
    done = run("encode\u202e", check=2)
    assert "\u202e" not in done.stderr and "'encode'" in done.stderr


@pytest.mark.slow
def test_cells_are_no_formulas(tiny_bert, tmp_path, invoke):
    rows = [f"=cmd {i}" if i % 2 else f"the cat {i}" for i in range(14)]
    (tmp_path / "rows.txt").write_text("\n".join(rows) + "\n")
    other = save_backbone(tmp_path / "other", seed=3)
    texts = ("--texts", tmp_path / "rows.txt", "-o", tmp_path / "out")
    invoke("analyze", "compare", tiny_bert, other, *texts, "--neighbours", 2, check=0)
    cells = "".join(path.read_text() for path in (tmp_path / "out").glob("*.csv"))
    assert "'=cmd" in cells
    assert not any(cell.strip('"').startswith("=") for line in cells.splitlines() for cell in line.split(","))


def test_latex_takes_no_command_from_the_name_of_a_page(tmp_path):
    from sentcli.pages.page import PLAIN, Page
    from sentcli.pages.write import render

    with pytest.raises(InputError, match="LaTeX"):
        render(Page("a page", []), ".tex", PLAIN, "x}\\input{/etc/passwd}{")


def test_the_pipes_and_links_of_the_shell_are_inputs_still(tiny_bert, tmp_path, run):
    """A model folder of the hub's cache is made of links, and a text may come from a pipe."""
    linked = tmp_path / "linked"
    linked.mkdir()
    for path in tiny_bert.iterdir():
        (linked / path.name).symlink_to(path)
    os.mkfifo(tmp_path / "pipe")
    threading.Thread(target=lambda: (tmp_path / "pipe").write_text("the cat\n")).start()
    run("encode", tmp_path / "pipe", "-m", linked, "-o", tmp_path / "v.npy", check=0)


# Commands for the runner of a CI job


@pytest.mark.slow
@pytest.mark.parametrize("name", ["::stop-commands::x", " ::any::x", "##[group]x", "##vso[task.x]y"])
def test_the_name_of_a_set_is_no_command_for_a_runner(tmp_path, monkeypatch, invoke, tiny_bert, name):
    monkeypatch.chdir(tmp_path)
    write_set(tmp_path / name, qrels="query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\tgone\t1\n")
    (tmp_path / f"{name}.csv").write_text("text,label\na,b\n")
    for command in (("retrieve", "--beir", name), ("evaluate", f"{name}.csv"), ("data", "check", f"{name}.txt")):
        model = ("-m", tiny_bert) if command[0] != "data" else ()
        done = invoke(*command, *model)
        said = (done.stdout + done.stderr).splitlines()
        assert said and not any(line.lstrip().startswith("::") or re.search(r"##(\[|vso\[)", line) for line in said)
