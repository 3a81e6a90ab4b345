"""A model that collapses is said, with the step; it has no score there, and the best weights become the model."""

import json
import math

import numpy as np
import pytest
import torch

from sentcli import SentenceEncoder
from sentcli.training.gradients import Gradients
from sentcli.training.observer import COLLAPSED
from tests.tolerance import VECTORS
from tests.training.test_checkpoints import interrupted
from tests.training.test_gradients import prepared


def command(model, text, output, *options):
    return ("train", "--method", "simcse", "-m", model, "--data", text, "-o", output, *options)


def lines(folder):
    return list(map(json.loads, (folder / "metrics.jsonl").read_text().splitlines()))


@pytest.fixture
def collapsing(monkeypatch):
    """Let the vectors of all texts be equal after each step: the last layer gives its bias alone."""
    apply = Gradients.apply

    def collapse(self, rate):
        apply(self, rate)
        with torch.no_grad():
            self.model.encoder.backbone.encoder.layer[-1].output.LayerNorm.weight.zero_()

    monkeypatch.setattr(Gradients, "apply", collapse)


@pytest.fixture
def scored(tmp_path, sentences):
    """A table of pairs with scores."""
    words = [sentence for sentence in sentences if sentence.strip() and "\t" not in sentence]
    rows = [f"{words[number]}\t{words[number + 40]}\t{number % 6}" for number in range(30)]
    file = tmp_path / "scored.tsv"
    file.write_text("\n".join(["sentence1\tsentence2\tscore", *rows]) + "\n")
    return file


@pytest.mark.slow
def test_the_best_weights_become_the_model(collapsing, invoke, tiny_bert, text, scored, tmp_path):
    out = tmp_path / "m"
    options = ("--max-steps", 10, "--eval-every", 5, "--dev", scored, "--json", tmp_path / "r.json")
    done = invoke(*command(tiny_bert, text, out, *options), check=0)
    results = json.loads((tmp_path / "r.json").read_text())["results"]
    assert results["collapsed_step"] == 5 and results["best_step"] == 0
    assert results["dev"]["final"] is None and results["dev"]["best"] == results["dev"]["start"]
    scores = {line["step"]: line["dev_spearman"] for line in lines(out) if "dev_spearman" in line}
    assert scores == {0: results["dev"]["start"], 5: None, 10: None}
    assert "step 5" in done.stderr and "--learning-rate" in done.stderr
    assert "step 5" in (out / "README.md").read_text()
    start = SentenceEncoder.load(tiny_bert, backend="torch", pooling="cls").encode(["the cat sat", "a dog"])
    np.testing.assert_allclose(SentenceEncoder.load(out).encode(["the cat sat", "a dog"]), start, atol=VECTORS)
    page = tmp_path / "page.md"
    invoke("report", out, "-o", page, check=0)
    assert "since step 5" in page.read_text()


@pytest.mark.slow
def test_an_interrupted_run_that_has_collapsed_goes_on(
    collapsing, invoke, tiny_bert, text, scored, tmp_path, monkeypatch
):
    options = ("--max-steps", 10, "--eval-every", 2, "--save-every", 3, "--dev", scored)
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    invoke(*command(tiny_bert, text, whole, *options), check=0)
    interrupted(monkeypatch, invoke, 8, *command(tiny_bert, text, resumed, *options))
    invoke(*command(tiny_bert, text, resumed, *options, "--resume"), check=0)
    assert (whole / "model.safetensors").read_bytes() == (resumed / "model.safetensors").read_bytes()
    collapsed = [json.loads((folder / "sentcli.json").read_text())["results"]["collapsed_step"]
                 for folder in (whole, resumed)]  # fmt: skip
    assert collapsed[0] == collapsed[1] is not None


def test_every_seed_of_a_sweep_is_kept(collapsing, invoke, tiny_bert, text, scored, tmp_path):
    options = ("--max-steps", 4, "--eval-every", 2, "--dev", scored, "--seeds", "1,2")
    done = invoke(*command(tiny_bert, text, tmp_path / "sweep", *options, "--json", "-"), check=0)
    runs = json.loads(done.stdout)["results"]["runs"]
    assert len(runs) == 2
    for run in runs:
        assert run["collapsed_step"] is not None and run["dev"]["best"] is not None


@pytest.mark.slow
def test_without_a_dev_set_it_is_said_as_well(collapsing, invoke, tiny_bert, text, tmp_path):
    out = tmp_path / "m"
    done = invoke(*command(tiny_bert, text, out, "--max-steps", 30), check=0)
    spreads = {line["step"]: line["spread"] for line in lines(out) if "spread" in line}
    assert list(spreads) == [1, 25, 30]
    assert spreads[1] > COLLAPSED > spreads[25]
    assert "step 25" in done.stderr and "--learning-rate" in done.stderr
    assert json.loads((out / "sentcli.json").read_text())["results"]["collapsed_step"] == 25


def test_a_healthy_run_says_nothing(invoke, tiny_bert, text, scored, tmp_path):
    out = tmp_path / "m"
    done = invoke(*command(tiny_bert, text, out, "--max-steps", 3, "--batch-size", 8, "--dev", scored), check=0)
    assert "collapse" not in done.stderr
    assert "collapsed_step" not in json.loads((out / "sentcli.json").read_text())["results"]


def test_the_spread_is_that_of_vectors_without_dropout(tiny_bert, text):
    gradients, ((batch,),) = prepared(tiny_bert, text, batch=20)
    model = gradients.model
    state = torch.get_rng_state()
    spread = float(model.spread(batch).detach())
    assert torch.equal(torch.get_rng_state(), state) and model.training
    vectors = model.encoder.eval().features({name: values[:16] for name, values in batch.items()}).sentence
    mean = torch.nn.functional.normalize(vectors, dim=-1).mean(dim=0)
    assert spread == pytest.approx(math.sqrt(1 - float(mean.detach().square().sum())), rel=1e-6)
    same = {name: values[:1].expand(len(values), -1) for name, values in batch.items()}
    assert float(model.spread(same)) < 0, "of one text nothing can be said"
