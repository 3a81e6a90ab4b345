"""What is published says what the hub and readers expect, and nothing of the machine it was made on."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import ModelCard

import sentcli
from tests.model import folders
from tests.onnx_export.models import save_model

SECRET = "qx7secretname"
"""A folder's name that no file of what is published may hold."""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home in a folder of that name, with start models and texts."""
    folder = tmp_path_factory.mktemp("homes") / SECRET
    (folder / "work").mkdir(parents=True)
    folders.make(folder / "work" / "start", "normalize", ["lower-case"])
    save_model(folder / "work" / "traced", "albert")
    lines = [f"the cat {n} sat near the {place}\n" for n in range(24) for place in ("house", "river", "tree")]
    (folder / "work" / "texts.txt").write_text("".join(lines))
    return folder / "work"


@pytest.fixture(scope="module")
def trained(home):
    """A folder that `train` made in that home."""
    options = {"set": ["batch_size=8", "max_steps=2"]}
    start, texts = str(home / "start"), str(home / "texts.txt")
    sentcli.train(method="simcse", model=start, data=[texts], output=home / "trained", **options)
    return home / "trained"


def holding(folder, word):
    """The files in a folder that hold a word, also in UTF-16."""
    forms = [word.encode(), word.encode("utf-16-le"), word.encode("utf-16-be")]
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return [path.name for path in files if any(form in path.read_bytes() for form in forms)]


@pytest.mark.slow
def test_a_trained_folder_names_no_place_on_this_machine(trained):
    assert holding(trained, SECRET) == []


EXPORTS = {
    "plain": {},
    "int8": {"precision": "int8"},
    "fp16": {"precision": "fp16", "layout": "hub"},
    "openvino": {"layout": "hub", "runtime": "openvino"},
    "openvino-int8": {"precision": "int8", "runtime": "openvino"},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "kind"),
    [
        ("start", "int8"),
        ("start", "openvino"),
        ("trained", "plain"),
        # test_a_traced_graph_equals_torch looks for what torch's exporter writes into a graph
        ("traced", "plain"),
        *(pytest.param("start", kind, marks=pytest.mark.deep) for kind in ("plain", "fp16", "openvino-int8")),
        *(pytest.param("traced", kind, marks=pytest.mark.deep) for kind in EXPORTS if kind != "plain"),
    ],
)
def test_an_export_names_no_place_on_this_machine(start, kind, home, trained, tmp_path):
    options = EXPORTS[kind]
    target = home / f"out-{tmp_path.name}"
    sentcli.export(model=str(home / start), output=target, verify=False, **options)
    assert holding(target, SECRET) == []
    assert holding(target, str(Path(sentcli.__file__).parent)) == []


@pytest.mark.slow
def test_a_run_with_a_first_stage_and_one_that_is_saved_name_none_either(home):
    table = [{"sentence1": f"the cat {n}", "sentence2": f"a dog {n}", "score": n % 6} for n in range(24)]
    path = home / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in table))
    options = {"set": ["max_steps=2", "batch_size=8", "before.max_steps=2", "before.batch_size=8"], "after": "simcse"}
    sentcli.train(method="sts-regression", model=str(home / "start"), data=[str(path)], output=home / "two", **options)
    assert holding(home / "two", SECRET) == []
    sentcli.SentenceEncoder.load(str(home / "two")).save(home / "saved")
    assert holding(home / "saved", SECRET) == []


def test_the_card_of_a_trained_folder(trained, home, monkeypatch, capsys):
    card = ModelCard.load(trained / "README.md")
    assert card.data.library_name == "sentence-transformers" and "sentcli" in card.data.tags
    assert card.data.datasets is None  # names of local files are no data sets of the hub
    assert "@inproceedings" in card.text and "Gao" in card.text
    program = card.text.partition("```python\n")[2].partition("```")[0]
    program = program.replace("OWNER/NAME", str(trained))
    assert printed(program, home, monkeypatch, capsys) == said_in(program)


def test_the_program_in_the_card_of_an_export_prints_what_the_card_says(trained, home, monkeypatch, capsys):
    sentcli.export(model=str(trained), output=home / "exported", torch_weights=False)
    card = ModelCard.load(home / "exported" / "README.md")
    assert card.data.library_name == "onnx"
    assert "@inproceedings" in card.text
    program = card.text.partition("```python\n")[2].partition("```")[0]
    assert printed(program, home / "exported", monkeypatch, capsys) == said_in(program)


def said_in(program):
    """The numbers that a program says it prints."""
    lines = [line.removeprefix("# ") for line in program.splitlines() if line.startswith("# [")]
    assert len(lines) == 3
    return np.array([json.loads(line) for line in lines]).round(3).tolist()


def printed(program, folder, monkeypatch, capsys):
    """The numbers that it prints."""
    monkeypatch.chdir(folder)
    capsys.readouterr()
    with np.printoptions(suppress=True):
        exec(program, {})  # as a reader of the card runs it
    numbers = re.findall(r"-?\d+\.\d*", capsys.readouterr().out)
    return np.array([float(number) for number in numbers]).reshape(3, 3).round(3).tolist()


def test_data_sets_of_the_hub_and_languages_are_named(tmp_path):
    from sentcli.model import cards

    files = ["hf://datasets/owner/name@v1/train/a.parquet", "/home/me/mine.txt", "hf://datasets/owner/name@v1/b.csv"]
    assert cards.data_sets_of(files) == ["owner/name"]
    (tmp_path / "README.md").write_text("---\nlanguage: [en, de]\nlicense: My own licence\ndatasets: [mine]\n---\n")
    source = cards.start_facts("acme/unknown", tmp_path)
    assert (source.base_model, source.languages) == ("acme/unknown", ["en", "de"])
    assert (source.licence, source.data_sets) == ("other", [])


def test_facts_keep_what_is_no_place(tmp_path):
    from sentcli.model.cards import without_folders

    facts = {
        "a": str(tmp_path / "x"),
        "b": ["acme/model", "1/2", "text with / in it", "~nobody-at-all/x"],
        "c": {"d": 3, "e": None},
    }
    assert without_folders(facts) == {**facts, "a": "x"}
