"""`train --seeds` and `--sweep` with ``--ray``: the models and lines of one run after the other."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from sentcli.training.on_ray import RunJudge
from sentcli.training.sweep_file import Asha
from tests.stores.outputs import message_of

TINY = ["--batch-size", 16, "--max-steps", 4, "--learning-rate", "1e-3", "--save-every", 2, "--method", "simcse"]


@pytest.fixture
def train(exported, text, tmp_path, run):
    """Run `train` in a process of its own, with paths relative to its folder."""

    def call(*arguments, check=0):
        words = ["train", "-m", exported, "--data", text.name, *TINY, *arguments]
        if "--ray" not in arguments:
            return run(*words, check=check, cwd=tmp_path)
        command = [sys.executable, "-m", "sentcli", *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env={**os.environ}, timeout=300)
        assert done.returncode == check, (done.returncode, done.stdout, done.stderr)
        return done

    return call


def records(path):
    """The lines of a file of results, without what a run took."""
    lines = sorted(map(json.loads, path.read_text().splitlines()), key=lambda record: record["run"])
    for record in lines:
        for measured in ("sentences_per_second", "train_seconds", "eval_seconds"):
            del record["results"][measured]
    return lines


@pytest.mark.deep
def test_seeds_are_the_runs_of_one_after_the_other(two_nodes, train, tmp_path):
    train("-o", "plain", "--seeds", "1,2,3")
    on_ray = ["--ray", two_nodes.address, "--cpus-per-worker", 1]
    done = train("-o", "out", "--seeds", "1,2,3", *on_ray, "--json", "r.json")
    assert "3 of 3 " in message_of(done)
    for seed in (1, 2, 3):
        weights = [(tmp_path / name / f"seed={seed}" / "model.safetensors").read_bytes() for name in ("plain", "out")]
        assert weights[0] == weights[1]
    assert records(tmp_path / "plain" / "results.jsonl") == records(tmp_path / "out" / "results.jsonl")
    assert json.loads((tmp_path / "r.json").read_text())["results"]["seeds"] == [1, 2, 3]
    again = train("-o", "out", "--seeds", "1,2,3,4", "--ray", two_nodes.address, "--resume")
    assert message_of(again).count("finished before") == 3
    assert "seed=4: finished" in message_of(again)
    train("-o", "out", "--seeds", "1", "--ray", two_nodes.address, "--overwrite")
    assert len(records(tmp_path / "out" / "results.jsonl")) == 5, "a run that was made again has a new line"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_a_killed_run_goes_on_from_its_checkpoint(two_nodes, train, tmp_path):
    long = ["--seeds", "1", "--max-steps", 300, "--save-every", 20]
    train("-o", "plain", *long)
    metrics, killed = tmp_path / "out" / "seed=1" / "metrics.jsonl", []

    def kill():
        while not metrics.exists() or len(metrics.read_bytes().splitlines()) < 100:
            time.sleep(0.01)
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                if path.read_bytes().startswith(b"ray::Worker"):
                    killed.append(int(path.parent.name))
                    os.kill(killed[0], signal.SIGKILL)
                    return

    thread = threading.Thread(target=kill)
    thread.start()
    train("-o", "out", *long, "--ray", two_nodes.address, "--cpus-per-worker", 1)
    thread.join()
    assert killed
    weights = [(tmp_path / name / "seed=1" / "model.safetensors").read_bytes() for name in ("plain", "out")]
    assert weights[0] == weights[1]


@pytest.mark.deep
def test_a_run_that_fails_leaves_the_others(two_nodes, train, tmp_path):
    (tmp_path / "sweep.toml").write_text("[[grid]]\nbatch_size = [16, 100000, 8]\n")
    failed = train("-o", "out", "--sweep", "sweep.toml", "--ray", two_nodes.address, check=1)
    assert "error: 1 of 3 " in message_of(failed)
    assert "batch_size=100000" in message_of(failed)
    assert len(records(tmp_path / "out" / "results.jsonl")) == 2


@pytest.mark.deep
def test_a_sweep_that_asks_for_it_ends_runs_that_are_behind(train, tmp_path):
    """Half of the runs learn nothing, and four steps raise the others; one worker, so that the order is known."""
    rows = "the cat,the dog,0.9\nthe house,a river,0.1\nthe man,the woman,0.8\nred bird,small tree,0.2\n" * 3
    (tmp_path / "dev.csv").write_text(f"sentence1,sentence2,score\n{rows}")
    grid = "[[grid]]\nlearning_rate = [1e-3, 1e-9, 2e-9, 2e-3]\nseed = [3, 4]\n"
    asha = "[asha]\ngrace_period = 4\nreduction_factor = 2\n"
    steps = ["--max-steps", 16, "--eval-every", 2, "--dev", "dev.csv", "--set", "keep_start=true"]
    (tmp_path / "plain.toml").write_text(grid)
    (tmp_path / "asha.toml").write_text(grid + asha)
    train("-o", "plain", "--sweep", "plain.toml", *steps)
    on_ray = ["--sweep", "asha.toml", *steps, "--ray", "local", "--workers", 1]
    done = train("-o", "out", *on_ray, "--json", "r.json")
    lines = {
        name: {line["run"]: line for line in records(tmp_path / name / "results.jsonl")} for name in ("plain", "out")
    }
    ended = {run for run, line in lines["out"].items() if line["results"].get("ended_early")}
    assert ended
    assert ended != set(lines["out"]) == set(lines["plain"])
    for run, line in lines["out"].items():
        weights = [(tmp_path / name / run / "model.safetensors") for name in ("plain", "out")]
        metrics = [(tmp_path / name / run / "metrics.jsonl").read_text().splitlines() for name in ("plain", "out")]
        if run in ended:
            assert line["results"]["steps"] in (4, 8)
            assert re.search(rf"{re.escape(run)}: .*early.*step {line['results']['steps']}\b", message_of(done))
            assert len(metrics[1]) < len(metrics[0])
        else:
            assert line == lines["plain"][run]
            assert weights[0].read_bytes() == weights[1].read_bytes()
    for run, line in lines["out"].items():  # while they ran, the scores of each were shown
        evaluated = range(0, line["results"]["steps"] + 1, 2)
        assert all(f"{run}, step {step}: dev_spearman" in message_of(done) for step in evaluated)
    points = json.loads((tmp_path / "r.json").read_text())["results"]["points"]
    assert sum(run.get("ended_early", False) for point in points for run in point["runs"]) == len(ended)
    again = train("-o", "out", *on_ray, "--resume")
    assert message_of(again).count("finished before") == len(lines["out"])


@pytest.mark.deep
def test_a_damaged_log_is_named_where_its_scores_are_compared(two_nodes, train, tmp_path):
    rows = "the cat,the dog,0.9\nthe house,a river,0.1\nthe man,the woman,0.8\nred bird,small tree,0.2\n" * 3
    (tmp_path / "dev.csv").write_text(f"sentence1,sentence2,score\n{rows}")
    asha = "[asha]\ngrace_period = 100\nreduction_factor = 2\n"
    (tmp_path / "asha.toml").write_text(f"[[grid]]\nlearning_rate = [1e-3]\nseed = [1]\n{asha}")
    call = ["-o", "out", "--sweep", "asha.toml", "--eval-every", 2, "--dev", "dev.csv", "--ray", two_nodes.address]
    train(*call, "--workers", 1)
    (log,) = (tmp_path / "out").glob("*/metrics.jsonl")
    lines = log.read_text().splitlines()
    for spoiled in ('{"dev_spearman": 0.5}', '{"step": "two", "dev_spearman": 0.5}', "[1]"):
        log.write_text("\n".join([lines[0], spoiled, *lines[2:], ""]))
        message = message_of(train(*call, "--workers", 1, "--resume", check=2))
        assert "metrics.jsonl" in message and "line 2" in message and "defect" not in message
    log.write_text("\n".join([lines[0], '{"step": 1, "dev_spearman": "half"}', *lines[2:], ""]))
    assert "finished before" in message_of(train(*call, "--workers", 1, "--resume"))


def test_a_run_that_comes_again_ends_where_it_ended():
    judge = RunJudge(Asha(grace_period=2, reduction_factor=2))
    judge.take("first", [(2, 0.9), (4, 0.9)])
    assert not judge.ends("behind", 0, 0.5)
    assert judge.ends("behind", 2, 0.5)
    assert not judge.ends("behind", 1, 0.5)  # its process has died, and it is made again
    assert judge.ends("behind", 2, 0.6)
    assert not judge.ends("ahead", 2, 0.95)


@pytest.mark.deep
def test_runs_end_where_tunes_scheduler_ends_them():
    from ray.tune.schedulers import ASHAScheduler

    draw = random.Random(0)
    for grace, factor in ((1, 2), (4, 3), (5, 2.5)):
        settings = {"grace_period": grace, "reduction_factor": factor, "max_t": 10**9, "stop_last_trials": False}
        theirs = ASHAScheduler(time_attr="step", metric="score", mode="max", **settings)
        judge, trials = RunJudge(Asha(grace_period=grace, reduction_factor=factor)), {}
        for step in range(0, 60, 2):
            for run in draw.sample("abcdefgh", 8):
                trial = trials.setdefault(run, SimpleNamespace(trial_id=run))
                if step == 0:
                    theirs.on_trial_add(None, trial)
                if run in judge.ended:
                    continue
                score = draw.random()
                ended = theirs.on_trial_result(None, trial, {"step": step, "score": score}) == theirs.STOP
                assert judge.ends(run, step, score) == ended
        assert 0 < len(judge.ended) < 8


def test_ended_runs_need_a_cluster_and_scores(invoke, exported, text, tmp_path):
    (tmp_path / "s.toml").write_text("[[grid]]\nbatch_size = [16, 8]\n[asha]\ngrace_period = 4\n")
    call = ["train", "-m", exported, "--data", text, *TINY, "-o", tmp_path / "out", "--sweep", tmp_path / "s.toml"]
    assert re.search(r"s\.toml: \[asha\] .*--ray local", message_of(invoke(*call, check=2)))
    alone = invoke(*call, "--ray", "local", check=2)
    assert re.search(r"s\.toml: \[asha\] .*--dev .*--eval-data", message_of(alone))
    (tmp_path / "s.toml").write_text("[[grid]]\nbatch_size = [16, 8]\n[asha]\ngrace = 4\n")
    assert "asha" in message_of(invoke(*call, check=2))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--ray", "local"], "--ray .*--seeds .*--sweep"),
        (["--ray", "local", "--seeds", "1,2", "--log-to", "tensorboard"], "--log-to .*--ray"),
        (["--ray", "127.0.0.1:1", "--seeds", "1,2"], "--ray 127.0.0.1:1 .*Errno"),
        (["--workers", 2, "--seeds", "1,2"], "--workers .*--ray"),
    ],
)
def test_usage(invoke, exported, text, tmp_path, options, words):
    failed = invoke("train", "-m", exported, "--data", text, *TINY, "-o", tmp_path / "out", *options, check=2)
    assert re.search(words, message_of(failed))
    assert not (tmp_path / "out").exists()
