"""``analyze attention`` and ``analyze objectives`` from end to end on tiny models."""

import json
import re
import shutil
import sys

import pytest

from sentcli.io.sampling import DistinctTexts
from tests.analysis.test_attention import spacy_stand_in
from tests.analysis.test_objectives import steps, write_run
from tests.conftest import save_backbone

DRAWN = ("pairs.csv", "cosine-mi.png", "cosine-mi.svg", "cosine-mi.csv", "heads.png", "heads.csv", "index.html")


def result(folder):
    return json.loads((folder / "analysis.json").read_text("utf-8"))


@pytest.fixture
def drawn():
    """Figures are drawn."""


@pytest.fixture(autouse=True)
def undrawn(request, monkeypatch):
    """Drawing takes most of the time: leave it out where a test does not look at it."""
    if "drawn" not in request.fixturenames:
        # the page first: its module keeps what it has imported, and may be imported here
        monkeypatch.setattr("sentcli.pages.write.inline", lambda figure: [])
        monkeypatch.setattr(
            "sentcli.pages.figures.save_figure", lambda figure, folder: (folder / f"{figure.name}.png").touch()
        )


@pytest.fixture
def attention(invoke, text, tmp_path):
    """Run the kind on two layers, which is what the tiny models have."""

    def call(*arguments, check=0, layers="0:2", texts=text):
        given = [str(texts)] if texts else []
        return invoke(
            "analyze", "attention", *given, "--layers", layers, "-o", tmp_path / "out", *arguments, check=check
        )

    return call


@pytest.mark.slow
@pytest.mark.usefixtures("drawn")
def test_a_model_and_its_folder(attention, tiny_bert, tmp_path):
    attention("-m", tiny_bert, "--limit", 30)
    out = tmp_path / "out"
    names = {path.name for path in out.iterdir()}
    assert {*DRAWN, "attention-views.png", "attention-views.csv", "analysis.json"} <= names
    found = result(out)
    assert (found["command"], found["model"]) == ("analyze", str(tiny_bert))
    protocol, results = found["protocol"], found["results"]
    assert next(iter(protocol)) == "kind"
    assert protocol["layers"] == [1, 2] and protocol["max_length"] == 32 and protocol["backend"] == "torch"
    assert (results["texts"], results["positives"]["pairs"], results["negatives"]["pairs"]) == (30, 30, 30)
    assert protocol["texts"] == 30 < protocol["of"]
    assert [len(row) for row in results["mi"]] == [4, 4]
    assert results["positives"]["mean_cosine"] > results["negatives"]["mean_cosine"]
    assert results["sentence"]["tokens"] >= 8
    assert [(part["layer"], part["head"]) for part in results["sentence"]["slices"]] == [
        (layer, head) for layer in (1, 2) for head in (1, 2, 3)
    ]


@pytest.mark.slow
def test_same_seed_same_numbers(attention, tiny_bert, tmp_path):
    attention("-m", tiny_bert, "--limit", 12)
    first = result(tmp_path / "out")["results"]
    attention("-m", tiny_bert, "--limit", 12, "--overwrite")
    assert result(tmp_path / "out")["results"] == first
    attention("-m", tiny_bert, "--limit", 12, "--overwrite", "--seed", 1)
    assert result(tmp_path / "out")["results"]["mi"] != first["mi"]


def test_several_models_are_compared(attention, tiny_bert, tiny_roberta, tmp_path):
    done = attention("-m", tiny_bert, "-m", tiny_roberta, "--limit", 12, "--sentence", "the cat sat on the mat")
    out = tmp_path / "out"
    assert [one["model"] for one in result(out)] == [str(tiny_bert), str(tiny_roberta)]
    assert {one["results"]["sentence"]["text"] for one in result(out)} == {"the cat sat on the mat"}
    assert (out / "attention-views-2.png").exists() and (out / "heads-change.png").exists()
    assert "tiny-bert" in done.stdout and "tiny-roberta" in done.stdout


def test_a_sentence_by_its_number_and_other_heads(attention, tiny_bert, text, tmp_path):
    attention("-m", tiny_bert, "--limit", 12, "--sentence", 3, "--first-head", 3, "--slicing", "head-pairs")
    shown = result(tmp_path / "out")["results"]["sentence"]
    taken = DistinctTexts(12, 0)
    for line in text.read_text("utf-8").splitlines():
        taken.add(line, None)
    assert shown["text"] == list(taken.texts)[2]
    assert [part["head"] for part in shown["slices"]] == [3, 4, 3, 4]


def test_trees_of_spacy(attention, tiny_bert, tmp_path, monkeypatch):
    spacy_stand_in(monkeypatch)  # texts of the same number of words have the same tree
    attention("-m", tiny_bert, "--limit", 40, "--trees", "spacy")
    found = result(tmp_path / "out")
    assert found["protocol"]["trees"] == "spacy"
    trees = found["results"]["trees"]
    assert trees["equal"]["pairs"] == trees["pairs_with_equal_trees"] > 0
    assert (tmp_path / "out" / "trees.png").exists()
    assert {"trees-table.csv", "pairs.csv"} <= {path.name for path in (tmp_path / "out").iterdir()}


def conllu(count, trees):
    """Sentences of three words with so many different trees."""
    made = []
    for i in range(count):
        made.append(f"# text = the cat {'abcdefghijklmnopqrstuvwxyz'[i]}\n1\tthe\t_\tDET\t_\t_\t2\tdet\t_\t_\n")
        made.append(f"2\tcat\t_\tNOUN\t_\t_\t3\tnsubj{i % trees}\t_\t_\n3\tx\t_\tVERB\t_\t_\t0\troot\t_\t_\n\n")
    return "".join(made)


def test_trees_of_a_file_bring_their_texts(attention, tiny_bert, tmp_path):
    pytest.importorskip("conllu")
    file = tmp_path / "bank.conllu"
    file.write_text(conllu(20, 5))
    attention("-m", tiny_bert, "--trees", file, texts=None)
    results = result(tmp_path / "out")["results"]
    assert results["texts"] == 20
    assert results["trees"]["pairs_with_equal_trees"] == 5 * 6
    assert results["trees"]["unequal_as_long"]["pairs"] == 20
    for trees, message in ((20, r"two .*20 .*tree"), (1, "all .*20 .*tree")):
        file.write_text(conllu(20, trees))
        done = attention("-m", tiny_bert, "--trees", file, "--overwrite", texts=None, check=2)
        assert re.search(message, done.stderr)
    file.write_text(conllu(5, 2))
    done = attention("-m", tiny_bert, "--trees", file, "--overwrite", texts=None, check=2)
    assert re.search(f"{file}: 5 .*10", done.stderr)


@pytest.mark.parametrize(("arguments", "message"), [
    (["--dropout", 0], "/tiny-bert: .*--dropout 0.1"),
    (["--layers", "0:3"], "--layers: .*0:3 .*0:2"),
    (["--layers", "x"], "FIRST:END"),
    (["--layers", "0:1"], "--layers 0:1 .*layer-pairs"),
    (["--sentence", "999"], "--sentence 999"),
    (["--first-head", 5], "--first-head 5: .* 4 "),
    (["--trees", "nowhere.conllu"], "--trees nowhere.conllu .*txt"),
    (["--limit", 5], "--limit"),
    (["--slicing", "diagonal"], "diagonal"),
])  # fmt: skip
def test_bad_input_is_one_message(attention, tiny_bert, tmp_path, arguments, message):
    done = attention("-m", tiny_bert, *arguments, check=2)
    assert re.search(message, done.stderr)
    assert not (tmp_path / "out").exists()


def test_without_texts_or_models(attention, tiny_bert):
    assert "--trees" in attention("-m", tiny_bert, texts=None, check=2).stderr
    assert "-m" in attention(check=2).stderr


def test_equal_texts_and_few_texts(attention, tiny_bert, tmp_path):
    file = tmp_path / "same.txt"
    file.write_text("the cat\n" * 20)
    assert re.search(f"{file}: .*20 texts", attention("-m", tiny_bert, texts=file, check=2).stderr)
    file.write_text("the cat\na dog\n")
    assert re.search(f"{file}: 2 .*10", attention("-m", tiny_bert, texts=file, check=2).stderr)


@pytest.mark.slow
def test_an_export_has_no_attention(attention, invoke, tiny_bert, tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    invoke("export", "-m", tiny_bert, "-o", tmp_path / "exported", check=0)
    for path in (tmp_path / "exported").glob("*.safetensors"):
        path.unlink()
    done = attention("-m", tmp_path / "exported", check=2)
    assert f"{tmp_path}/exported " in done.stderr


def test_a_model_that_does_not_give_its_attention(attention, tiny_bert, monkeypatch):
    from sentcli.model import attention as recorded

    monkeypatch.setattr(recorded, "install", lambda backbone: False)
    done = attention("-m", tiny_bert, "--pooling", "cls", "--limit", 12, check=2)
    assert re.search("/tiny-bert: .*bert.*attention", done.stderr)
    assert len(done.stderr.strip().splitlines()) == 2, "what is taken, and the error"


def test_conllu_is_an_extra(attention, tiny_bert, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "conllu", None)
    done = attention("-m", tiny_bert, "--trees", tmp_path / "x.conllu", texts=None, check=1)
    assert "pip install 'sentcli[trees]'" in done.stderr


@pytest.fixture
def objectives(invoke, tmp_path):
    def call(*arguments, check=0):
        return invoke("analyze", "objectives", *arguments, "-o", tmp_path / "out", check=check)

    return call


@pytest.fixture(scope="module")
def trained(tiny_bert, tmp_path_factory):
    """A finished run with two terms and a whitening head of 8 groups."""
    from typer.testing import CliRunner

    from sentcli.cli.app import app

    folder = tmp_path_factory.mktemp("runs")
    (folder / "text.txt").write_text("".join(f"the cat sat on {n} mats\n" for n in range(64)))
    call = ["train", "--method", "informin-cl", "-m", tiny_bert, "--data", folder / "text.txt", "-o", folder / "run"]
    call += ["--set", "head=whitening", "--set", "head.num_groups=8", "--set", "share_every=2"]
    result = CliRunner().invoke(app, [str(part) for part in [*call, "--max-steps", 4, "--batch-size", 8]])
    assert result.exit_code == 0, result.stderr
    return folder / "run"


@pytest.mark.slow
@pytest.mark.usefixtures("drawn")
def test_shares_of_a_run_are_those_that_training_summed_up(objectives, trained, tmp_path):
    objectives(trained)
    out = tmp_path / "out"
    terms = result(out)["results"]["terms"]
    summed = json.loads((trained / "sentcli.json").read_text())["results"]["gradient_shares"]
    assert {name: term["mean_share"] for name, term in terms.items()} == pytest.approx(summed)
    assert terms["reconstruction"]["share_steps"] == [1, 2, 4]
    assert terms["reconstruction"]["weight"] == 0.4
    drawn = {path.name for path in out.iterdir()}
    assert {"terms.csv", "gradient-shares.png", "loss-terms.svg", "loss-terms.csv", "analysis.json"} <= drawn
    assert "whitening-groups.png" not in drawn


@pytest.mark.slow
def test_groups_before_and_after_training(objectives, trained, tiny_bert, text, tmp_path):
    objectives(trained, "-m", tiny_bert, "--pooling", "cls", "--texts", text)
    out = tmp_path / "out"
    after, before = result(out)
    assert (before["model"], after["model"]) == (str(tiny_bert), str(trained))
    assert "terms" in after["results"] and "terms" not in before["results"]
    for found in (before, after):
        assert found["results"]["whitening"]["groups"] == 8, "as the run whitens"
        assert found["results"]["whitening"]["columns"] == 4
        assert found["protocol"]["normalize"] is False
        assert len(found["results"]["whitening"]["conditions"]) == 8
    assert {"whitening-groups.png", "groups.csv", "every-group.csv"} <= {path.name for path in out.iterdir()}
    objectives(trained, "--texts", text, "--groups", 2, "--overwrite")
    assert result(out)["results"]["whitening"]["columns"] == 16


def test_models_that_pool_differently_are_pointed_out(objectives, trained, tiny_bert, text):
    done = objectives(trained, "-m", tiny_bert, "--texts", text)
    assert re.search("cls, mean.*--pooling", done.stderr)


def test_an_unfinished_run_and_one_without_shares(objectives, tmp_path, text):
    bare = [{key: value for key, value in line.items() if not key.startswith("share_")} for line in steps(4)]
    done = objectives(write_run(tmp_path / "going-on", bare, finished=False))
    assert re.search("/going-on .*4$", done.stderr, re.MULTILINE)
    assert re.search("/going-on .*--set share_every=50", done.stderr)
    assert not (tmp_path / "out" / "gradient-shares.png").exists()
    refused = objectives(tmp_path / "going-on", "--texts", text, "--overwrite", check=2)
    assert re.search("--texts: .*-m", refused.stderr)


@pytest.mark.parametrize(("arguments", "message"), [
    (["-m", "tiny"], "-m .*--texts"),
    (["--texts", "TEXT", "--groups", 5], "--groups 5 .*32 "),
    (["--texts", "nowhere.txt"], "nowhere.txt"),
    (["RUN"], "/run "),
])  # fmt: skip
def test_bad_input_of_objectives(objectives, trained, text, tmp_path, arguments, message):
    given = [{"TEXT": text, "RUN": trained}.get(part, part) for part in arguments]
    assert re.search(message, objectives(trained, *given, check=2).stderr)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_is_no_run(objectives, tmp_path, trained):
    (tmp_path / "empty").mkdir()
    assert re.search(r"/empty .*metrics\.jsonl", objectives(tmp_path / "empty", check=2).stderr)
    shutil.copytree(trained, tmp_path / "copy")
    (tmp_path / "copy" / "metrics.jsonl").write_text("")
    assert "/copy/metrics.jsonl " in objectives(tmp_path / "copy", check=2).stderr


def test_models_without_dropout_take_one(attention, tmp_path):
    model = save_backbone(tmp_path / "dry", dropout=0.0)
    assert re.search(f"{model}: .*--dropout 0.1", attention("-m", model, "--limit", 12, check=2).stderr)
    attention("-m", model, "--limit", 12, "--dropout", 0.1)
    assert result(tmp_path / "out")["protocol"]["dropout"] == 0.1
