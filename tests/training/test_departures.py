"""What a run says of settings that are not those of its method or recipe, and of a start with nothing to learn."""

import json

import pytest

from sentcli.training import view
from sentcli.training.departures import departures
from sentcli.training.observer import StepInfo
from sentcli.training.request import TrainRequest


def request(text, tmp_path, *assignments, method="simcse"):
    return TrainRequest(method, "minilm", [str(text)], tmp_path / "m", assignments=list(assignments))


def test_what_the_user_chose_otherwise_is_named_with_both_values(text, tmp_path):
    assert departures(request(text, tmp_path)) == {}
    watched = [("seed", 7), ("eval_every", 10), ("precision", "bf16"), ("mini_batch_size", 8), ("learning_rate", 3e-5)]
    assert departures(request(text, tmp_path, *watched)) == {}
    chosen = [("batch_size", 16), ("contrastive.temperature", 0.1), ("objectives+", "ami"), ("head", "none")]
    found = departures(request(text, tmp_path, *chosen))
    others = {name for name in found if not name.startswith("head.")}
    assert others == {"batch_size", "contrastive.temperature", "ami"} and len(found) > len(others)
    assert "16" in found["batch_size"] and "64" in found["batch_size"]
    assert set(departures(request(text, tmp_path, ("objectives-", "ami"), method="micse"))) == {"ami"}


def test_the_run_its_configuration_and_its_card_say_it(invoke, tiny_bert, text, tmp_path):
    command = ("train", "--method", "simcse", "-m", tiny_bert, "--data", text, "--max-steps", 1)
    done = invoke(*command, "-o", tmp_path / "m", "--batch-size", 8, check=0)
    config = json.loads((tmp_path / "m" / "sentcli.json").read_text())
    assert set(config["departures"]) == {"batch_size", "max_steps"}
    for said in (done.stderr, (tmp_path / "m" / "README.md").read_text()):
        assert config["departures"]["batch_size"] in " ".join(said.split())


@pytest.mark.parametrize(("loss", "warns"), [(1e-6, True), (0.1, False)])
def test_a_start_that_has_nothing_to_learn_is_said_at_the_first_step(capsys, loss, warns):
    shown = view.TrainingView([], in_batch=["contrastive"])
    shown.step(StepInfo(1, 10, {"loss": loss, "contrastive": loss}, {}, 1e-5, 0.1, 10.0))
    assert ("temperature" in capsys.readouterr().err) == warns


def test_shares_of_another_step_name_it(capsys):
    shown = view.TrainingView([])
    values = {"loss": 1.0, "a": 0.5, "b": 0.5}
    shown.step(StepInfo(50, 200, values, {"a": 0.25, "b": 0.75}, 1e-5, 0.1, 10.0))
    shown.step(StepInfo(100, 200, values, {}, 1e-5, 0.1, 10.0))
    assert "at step 50" in capsys.readouterr().err
    shown.step(StepInfo(200, 200, values, {"a": 0.25, "b": 0.75}, 1e-5, 0.1, 10.0))
    assert "gradient)" in capsys.readouterr().err
