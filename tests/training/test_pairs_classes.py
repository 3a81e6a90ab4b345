"""Training on pairs with a class, as SBERT does on natural language inference."""

import csv
import json
import re

import pytest
import torch

from sentcli.methods import METHODS
from sentcli.objectives import PairClasses, Views
from sentcli.objectives.pairs import SoftmaxLoss
from tests.conftest import WORDS

NAMES = ["entailment", "neutral", "contradiction"]


@pytest.fixture
def table(tmp_path):
    rows = [(f"the {a}", f"a {a} {WORDS[40 + i % 3]}", NAMES[i % 3]) for i, a in enumerate(WORDS[:36])]
    path = tmp_path / "nli.csv"
    with path.open("w", newline="") as handle:
        csv.writer(handle).writerows([("premise", "hypothesis", "label"), *rows, ("", "blank", "neutral")])
    return path


def train(invoke, model, data, out, *options, check=0):
    return invoke("train", "--method", "sbert-nli", "-m", model, "--data", data, "-o", out, *options, check=check)


def test_the_loss_is_the_peers():
    from sentence_transformers.sentence_transformer import losses

    class Given(torch.nn.Module):
        """Gives the vectors that it gets."""

        device = torch.device("cpu")

        def forward(self, features):
            return features

    torch.manual_seed(0)
    first, second, labels = torch.randn(9, 8), torch.randn(9, 8), torch.arange(9) % 3
    peer = losses.SoftmaxLoss(Given(), 8, 3)
    own = SoftmaxLoss(8, 3)
    own.layer.load_state_dict(peer.classifier.state_dict())
    expected = peer([{"sentence_embedding": first}, {"sentence_embedding": second}], labels)
    loss = own(Views({}, pooled=torch.stack([first, second]), labels=labels.float()))
    torch.testing.assert_close(loss, expected)


@pytest.mark.slow
def test_it_learns_the_classes_of_pairs(invoke, tiny_bert, table, tmp_path):
    train(invoke, tiny_bert, table, tmp_path / "m", "--max-steps", 60, "--learning-rate", "5e-3")
    lines = [json.loads(line) for line in (tmp_path / "m" / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    assert losses[0] == pytest.approx(1.1, abs=0.4), "three classes: ln 3"
    assert losses[-1] < 0.5 * losses[0]
    config = json.loads((tmp_path / "m" / "sentcli.json").read_text())
    assert (config["method"]["softmax"]["classes"], config["encoder"]["pooling"]) == (3, "mean")
    assert (config["data"][0]["sentences"], config["blank_rows"]) == (36, 1)
    assert not (tmp_path / "m" / "training_head").exists()


@pytest.mark.slow
def test_columns_by_name(invoke, tiny_bert, table, tmp_path):
    other = tmp_path / "other.csv"
    other.write_text(table.read_text().replace("premise,hypothesis,label", "a,b,judgement"))
    named = train(invoke, tiny_bert, other, tmp_path / "x", "--max-steps", 2, check=2)
    assert re.search("--pair-fields", named.stderr)
    train(invoke, tiny_bert, other, tmp_path / "x", "--max-steps", 2, "--pair-fields", "a,b,judgement")
    train(invoke, tiny_bert, table, tmp_path / "y", "--max-steps", 2)
    assert (tmp_path / "x" / "model.safetensors").read_bytes() == (tmp_path / "y" / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--set", "softmax.classes=2"], "3 classes"),
        (["--pair-fields", "premise,label"], "A,B,LABEL"),
        (["--pair-fields", "premise,hypothesis,nothing"], "nothing"),
        (["--set", "objectives+=supcon"], "supcon"),
        (["--set", "objectives+=regression"], "regression"),
    ],
)
def test_what_does_not_fit(invoke, tiny_bert, table, tmp_path, options, reason):
    assert re.search(reason, train(invoke, tiny_bert, table, tmp_path / "m", *options, check=2).stderr)


def test_a_table_of_classes_is_told_everywhere(invoke, tiny_bert, table, tmp_path):
    """One kind in all commands: `data check` names it, and what cannot learn from it or score it says so."""
    rows = table.read_text("utf-8").splitlines()[:-1]  # the last one has an empty text
    table.write_text("\n".join([*rows, *rows[1:4], "a twin,of it,neutral", "of it,a twin,entailment"]) + "\n", "utf-8")
    found = json.loads(invoke("data", "check", table, "--json", "-", check=0).stdout)["results"]
    assert (found["kind"], found["rows"], found["labels"]["neutral"]) == ("classed-pairs", 41, 14)
    assert found["contradictions"]["count"] == 0, "the order of the two texts matters"
    (command,) = found["commands"]
    assert "sbert-nli" in command
    for verb in (
        ("evaluate", table, "-m", tiny_bert),
        ("train", "--method", "simcse", "-m", tiny_bert, "--data", table, "-o", tmp_path / "m"),
        ("train", "--method", "cosent", "-m", tiny_bert, "--data", table, "-o", tmp_path / "m"),
        ("train", "--method", "sbert-nli", "-m", tiny_bert, "--data", table, "--dev", table, "-o", tmp_path / "m"),
    ):
        assert "sbert-nli" in invoke(*verb, check=2).stderr
    assert not (tmp_path / "m").exists()


def test_scores_are_no_classes_and_two_words_no_sure_ones(invoke, tiny_bert, table, tmp_path):
    scored, two = tmp_path / "scored.csv", tmp_path / "two.csv"
    text = table.read_text("utf-8")
    scored.write_text(text.replace("label", "score").replace("entailment", "4.2").replace("neutral", "3"), "utf-8")
    assert re.search("label", train(invoke, tiny_bert, scored, tmp_path / "m", check=2).stderr)
    two.write_text(text.replace("entailment", "ja").replace("neutral", "ja").replace("contradiction", "nein"), "utf-8")
    assert "--kind classed-pairs" in invoke("data", "check", two, check=2).stderr


def test_pairs_with_a_class_may_be_meant_as_pairs(invoke, tiny_bert, table, tmp_path):
    common = ("-m", tiny_bert, "--data", table, "--max-steps", 1, "--batch-size", 4)
    invoke("train", "--method", "simcse", "--kind", "pairs", *common, "-o", tmp_path / "pairs", check=0)
    invoke("train", "--method", "simcse", "--text-of", "pairs", *common, "-o", tmp_path / "texts", check=0)
    counts = [
        json.loads((tmp_path / n / "sentcli.json").read_text())["data"][0]["sentences"] for n in ("pairs", "texts")
    ]
    assert counts == [36, 72]


def test_numbers_may_be_classes(invoke, tiny_bert, table, tmp_path):
    numbered = tmp_path / "numbers.csv"
    text = table.read_text("utf-8")
    for number, name in enumerate(NAMES):
        text = text.replace(name, str(number))
    numbered.write_text(text, "utf-8")
    train(invoke, tiny_bert, numbered, tmp_path / "m", "--max-steps", 2)
    kinds = ("data", "check", numbered, "--kind", "classed-pairs", "--json", "-")
    assert json.loads(invoke(*kinds, check=0).stdout)["results"]["labels"]["2"] == 12


def test_the_papers_settings():
    method = METHODS["sbert-nli"]
    settings = method.settings
    assert (settings.batch_size, settings.learning_rate, settings.epochs, settings.warmup_share) == (16, 2e-5, 1, 0.1)
    assert (method.pooling, method.objectives["softmax"]) == ("mean", PairClasses())
