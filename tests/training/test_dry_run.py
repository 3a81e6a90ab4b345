"""What a dry run says of a training: runs, steps and time, with all that is scored, measured on little."""

import json
import shutil

import pytest

from sentcli.evaluation import transfer
from sentcli.evaluation.evaluated import EvaluatedModel
from sentcli.training import dry_run, scoring
from tests.evaluation.conftest import write_downstream
from tests.training.test_sweep import train


@pytest.mark.slow
def test_a_dry_run_says_runs_steps_and_time_and_writes_nothing(
    invoke, tiny_bert, text, dev, tmp_path, grid, monkeypatch
):
    monkeypatch.setenv("SENTCLI_CACHE", str(tmp_path / "cache"))  # which has no score of the start
    options = ["--sweep", grid, "--eval-data", dev, "--dry-run", "--json", "-"]
    done = train(invoke, tiny_bert, text, tmp_path / "out", *options)
    found = json.loads(done.stdout)["results"]
    assert (found["runs"], found["steps"], found["finished"]) == (8, 16, 0)
    assert {kind["runs"] for kind in found["kinds"]} == {4, 2} and not (tmp_path / "out").exists()
    of_runs = sum(kind["runs"] * kind["seconds"] for kind in found["kinds"])
    assert found["seconds"] == pytest.approx(of_runs + found["start_seconds"])
    assert all(kind["seconds"] > 0 and kind["evaluations"] == 1 for kind in found["kinds"])
    assert found["starts"] == 2 and found["start_seconds"] > 0  # with its pooling, and with the other one
    one = train(invoke, tiny_bert, text, tmp_path / "out", "--method", "simcse", "--dry-run", "--json", "-")
    assert json.loads(one.stdout)["results"]["runs"] == 1 and not (tmp_path / "out").exists()


@pytest.mark.slow
def test_runs_that_have_a_line_are_not_counted_again(invoke, tiny_bert, text, tmp_path):
    out = tmp_path / "out"
    options = ["--method", "simcse", "--seeds", "1,2,3", "--json", "-"]
    train(invoke, tiny_bert, text, out, *options)
    for folder in out.glob("seed=*"):
        shutil.rmtree(folder)
    lines = (out / "results.jsonl").read_text().splitlines(keepends=True)
    (out / "results.jsonl").write_text("".join(lines[:-1]))
    found = json.loads(train(invoke, tiny_bert, text, out, *options, "--resume", "--dry-run").stdout)["results"]
    assert (found["runs"], found["finished"], found["steps"]) == (3, 2, 2)
    anew = json.loads(train(invoke, tiny_bert, text, out, *options, "--overwrite", "--dry-run").stdout)["results"]
    assert anew["finished"] == 0


def test_what_is_scored_at_the_end_is_a_part_of_the_time(invoke, tiny_bert, text, tmp_path, monkeypatch):
    monkeypatch.setattr(dry_run, "test_seconds", lambda prepared: 1000.0)
    done = train(invoke, tiny_bert, text, tmp_path / "out", "--method", "simcse", "--dry-run", "--json", "-")
    assert json.loads(done.stdout)["results"]["seconds"] > 1000


@pytest.mark.slow
def test_evaluations_are_measured_once_for_encoders_that_are_alike(invoke, tiny_bert, text, dev, tmp_path, monkeypatch):
    measured = scoring.dev_values
    calls = []

    def counted(*given, **options):
        calls.append(given)
        return measured(*given, **options)

    monkeypatch.setattr(scoring, "dev_values", counted)
    (tmp_path / "s.toml").write_text("seeds = [1]\n[[grid]]\nmini_batch_size = [2, 4, 8]\n")
    options = ["--method", "simcse", "--sweep", tmp_path / "s.toml", "--eval-data", dev, "--pooling", "cls"]
    done = train(invoke, tiny_bert, text, tmp_path / "out", *options, "--dry-run", "--json", "-")
    assert len(json.loads(done.stdout)["results"]["kinds"]) == 3
    assert len(calls) == 1


def test_the_tests_at_the_end_are_measured_on_samples(invoke, tiny_bert, text, tmp_path, monkeypatch):
    data = write_downstream(tmp_path)
    encoded, trained = [], []
    encode, score = EvaluatedModel.encode, transfer.score_transfer

    def encode_counted(self, texts, *given, **options):
        encoded.append(len(texts))
        return encode(self, texts, *given, **options)

    def score_counted(trainer, examples, vectors):
        trained.append(len(examples.texts))
        return score(trainer, examples, vectors)

    monkeypatch.setattr(EvaluatedModel, "encode", encode_counted)
    monkeypatch.setattr(transfer, "score_transfer", score_counted)
    monkeypatch.setattr(dry_run, "SAMPLE_TEXTS", 20)
    options = ["--method", "simcse", "--senteval", data, "--senteval-protocol", "fast", "--dry-run", "--json", "-"]
    done = train(invoke, tiny_bert, text, tmp_path / "out", *options)
    assert json.loads(done.stdout)["results"]["kinds"][0]["seconds"] > 0
    assert encoded[0] == 8 and 20 <= encoded[1] < 40 and len(trained) == 1
