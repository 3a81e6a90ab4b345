"""A run that was interrupted goes on to the bytes of one that was not."""

import errno
import hashlib
import json
import os
import re
import signal
import time

import pytest
import safetensors.torch
from filelock import FileLock

from sentcli.evaluation import sts_pairs
from sentcli.model import saving
from sentcli.training import run_folder
from tests.conftest import save_backbone
from tests.forked import Forked

STEPS, EVERY = 9, 4
METHODS = {
    "simcse": [],
    "micse": ["--set", "ami.layers=0:2", "--set", "queue_size=40", "--set", "warmup_steps=2"],
    "infocse": ["--set", "auxiliary-mlm.skip_from=1", "--set", "auxiliary-mlm.layers=1"],
    "whitenedcse": ["--set", "kind=zca"],
    "is-bert": ["--set", "optimizer=rmsprop"],
    "ct": ["--set", "views=copies"],
    "mirror-bert": ["--set", "accumulate=2", "--set", "group_by_length=true"],
    "esimcse": ["--set", "queue_size=40"],
    "prompt-bert": ["--set", 'template.first=a "[X]" is [MASK].', "--set", "template.second=the : [X] or [MASK]"],
    "informin-cl": ["--set", "mini_batch_size=5", "--set", "bias_correction=false"],
}
IN_CI = ("simcse", "micse", "infocse", "whitenedcse", "is-bert", "informin-cl")


def arguments(model, text, out, *options, method="simcse"):
    return [
        "train", "--method", method, "-m", model, "--data", text, "-o", out, "--batch-size", 16, "--max-steps", STEPS,
        "--learning-rate", "1e-3", "--save-every", EVERY, *options,
    ]  # fmt: skip


def digests(folder):
    files = sorted(path for path in folder.rglob("*.safetensors"))
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def without_times(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "sentences_per_second"} for line in lines]


def interrupted(monkeypatch, invoke, at, *call):
    """Run until just before the weights of a step change, as a kill would leave it."""
    from sentcli.training.gradients import Gradients

    apply, count = Gradients.apply, 0

    def stop(self, rate):
        nonlocal count
        count += 1
        if count == at:
            raise KeyboardInterrupt
        apply(self, rate)

    with monkeypatch.context() as patch:
        patch.setattr(Gradients, "apply", stop)
        assert invoke(*call).exit_code == 130


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [method if method in IN_CI else pytest.param(method, marks=pytest.mark.deep) for method in METHODS],
)
def test_interrupted_anywhere_a_run_ends_with_the_same_bytes(
    invoke, tmp_path_factory, text, dev, tmp_path, monkeypatch, method
):
    model = save_backbone(tmp_path_factory.mktemp("model"), layers=2)
    options = [*METHODS[method], "--eval-data", dev, "--eval-every", 3]
    invoke(*arguments(model, text, tmp_path / "whole", *options, method=method), check=0)
    expected = digests(tmp_path / "whole")
    assert "model.safetensors" in expected
    for at in (2, 5, 9):
        call = arguments(model, text, tmp_path / str(at), *options, method=method)
        interrupted(monkeypatch, invoke, at, *call, "--json", tmp_path / "so-far.json")
        so_far = json.loads((tmp_path / "so-far.json").read_text())
        assert so_far["interrupted"] and so_far["results"]["steps"] == at - 1
        assert not (tmp_path / str(at) / "model.safetensors").exists()
        result = invoke(*call, "--resume", check=0)
        assert (re.search(f"checkpoint .*{(at - 1) // EVERY * EVERY}", result.stderr) is not None) == (at > EVERY)
        assert digests(tmp_path / str(at)) == expected
        assert without_times(tmp_path / str(at)) == without_times(tmp_path / "whole")
        assert not list((tmp_path / str(at)).glob("checkpoint*")) and not list((tmp_path / str(at)).glob("best*"))


def test_what_an_interrupted_run_has_done_is_not_what_the_run_that_it_replaces_had(
    invoke, tiny_bert, text, tmp_path, monkeypatch
):
    told = tmp_path / "so-far.json"
    call = arguments(tiny_bert, text, tmp_path / "m", "--json", told)
    invoke(*call, check=0)
    for at, steps in ((1, None), (3, 2)):
        told.unlink(missing_ok=True)
        interrupted(monkeypatch, invoke, at, *call, "--overwrite")
        assert (json.loads(told.read_text())["results"]["steps"] if told.exists() else None) == steps


@pytest.mark.slow
def test_two_interruptions_and_one_between_checkpoint_and_score(invoke, tiny_bert, text, dev, tmp_path, monkeypatch):
    options = ["--eval-data", dev, "--eval-every", 2]
    invoke(*arguments(tiny_bert, text, tmp_path / "whole", *options), check=0)
    call = arguments(tiny_bert, text, tmp_path / "m", *options)
    interrupted(monkeypatch, invoke, 8, *call)
    interrupted(monkeypatch, invoke, 2, *call, "--resume")
    invoke(*call, "--resume", check=0)
    assert digests(tmp_path / "m") == digests(tmp_path / "whole")


def test_killed_with_9(tiny_bert, text, dev, tmp_path, run):
    """The process is killed at whatever it is doing, several times."""
    options = ["--eval-data", dev, "--eval-every", 3, "--method", "micse", *METHODS["micse"]]
    run(*arguments(tiny_bert, text, tmp_path / "whole", *options), check=0)
    call = arguments(tiny_bert, text, tmp_path / "m", *options, "--resume")
    metrics = tmp_path / "m" / "metrics.jsonl"
    for lines in (3, 8, 11):
        process = Forked("sentcli", *call)
        deadline = time.time() + 120
        while not (metrics.exists() and metrics.read_text().count("\n") >= lines):
            assert time.time() < deadline
            if process.poll() is not None:
                break
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
    run(*call, check=0)
    assert digests(tmp_path / "m") == digests(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("moved", [None, 0, 4])
def test_killed_while_the_model_is_written(moved, invoke, tiny_bert, text, tmp_path, monkeypatch):
    """While the weights are written aside, and while the files that were compared are put in their places."""
    invoke(*arguments(tiny_bert, text, tmp_path / "whole"), check=0)
    call = arguments(tiny_bert, text, tmp_path / "m")
    write = saving.save_weights

    def stop(module, path):
        if path.name == "model.safetensors" and path.parent.name == run_folder.UNCHECKED:
            raise KeyboardInterrupt
        write(module, path)

    replace = type(tmp_path).replace
    places = []

    def stop_moving(path, target):
        if path.parent.name == run_folder.UNCHECKED:
            places.append(target)
            if len(places) > moved:
                raise KeyboardInterrupt
        return replace(path, target)

    with monkeypatch.context() as patch:
        if moved is None:
            patch.setattr(saving, "save_weights", stop)
        else:
            patch.setattr(type(tmp_path), "replace", stop_moving)
        assert invoke(*call).exit_code == 130
    assert not (tmp_path / "m" / "model.safetensors").exists()
    left = tmp_path / "m" / run_folder.UNCHECKED  # as kill -9 leaves it
    left.mkdir()
    (left / "model.safetensors").write_bytes(b"torn")
    invoke(*call, "--resume", check=0)
    assert digests(tmp_path / "m") == digests(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("rest", [(), (".run.json.1.partial",)])
def test_killed_before_the_first_step(rest, invoke, tiny_bert, text, tmp_path, monkeypatch):
    """What a run has written before its identity does not make its folder another's."""

    def stop(*arguments):
        raise KeyboardInterrupt

    call = arguments(tiny_bert, text, tmp_path / "m")
    with monkeypatch.context() as patch:
        patch.setattr(run_folder, "write_json", stop)
        assert invoke(*call).exit_code == 130
    for name in rest:
        (tmp_path / "m" / name).write_text("{")
    invoke(*call, "--resume", check=0)


@pytest.mark.slow
def test_a_finished_run_is_not_run_again(invoke, tiny_bert, text, tmp_path):
    call = arguments(tiny_bert, text, tmp_path / "m", "--json", tmp_path / "r.json")
    invoke(*call, "--resume", check=0)  # nothing there yet: it simply starts
    first = json.loads((tmp_path / "r.json").read_text())["results"]
    before = (tmp_path / "m" / "model.safetensors").stat().st_mtime_ns
    result = invoke(*call, "--resume", check=0)
    assert "finished" in result.stderr
    assert (tmp_path / "m" / "model.safetensors").stat().st_mtime_ns == before
    assert json.loads((tmp_path / "r.json").read_text())["results"] == first


@pytest.mark.slow
@pytest.mark.drawn
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--learning-rate", "2e-3"], "settings.learning_rate .*0.002 .*0.001"),
        (["--set", "temperature=0.1"], "method.contrastive.temperature .*0.1 .*0.05"),
        (["--seed", "1"], "settings.seed .*1 .*42"),
        (["--limit", "100"], "subset.limit .*100 .*None"),
        (["--pooling", "mean"], "encoder.pooling .*'mean' .*'cls'"),
    ],
)
@pytest.mark.parametrize("finished", [False, True])
def test_another_run_is_not_gone_on_with(invoke, tiny_bert, text, tmp_path, monkeypatch, options, message, finished):
    call = arguments(tiny_bert, text, tmp_path / "m")
    if finished:
        invoke(*call, check=0)
    else:
        interrupted(monkeypatch, invoke, 6, *call)
    before = {path.name: path.read_bytes() for path in (tmp_path / "m").iterdir() if path.is_file()}
    result = invoke(*call, *options, "--resume", check=2)
    assert re.search(f"{tmp_path}/m .*{message}", " ".join(result.stderr.split()))
    assert {path.name: path.read_bytes() for path in (tmp_path / "m").iterdir() if path.is_file()} == before


@pytest.mark.slow
def test_other_data_is_not_gone_on_with(invoke, tiny_bert, text, tmp_path, monkeypatch):
    call = arguments(tiny_bert, text, tmp_path / "m")
    interrupted(monkeypatch, invoke, 6, *call)
    text.write_text(text.read_text().replace("cat", "dog"))
    result = invoke(*call, "--resume", check=2)
    assert "data.0.sha256" in result.stderr


def test_going_on_says_from_where_and_what_changes_the_bytes(invoke, tiny_bert, text, tmp_path, monkeypatch):
    call = arguments(tiny_bert, text, tmp_path / "m")
    interrupted(monkeypatch, invoke, EVERY - 1, *call)
    started = invoke(*call, "--resume", check=0).stderr
    assert "checkpoint" in started and not re.search(r"checkpoint .*\d", started)
    call = arguments(tiny_bert, text, tmp_path / "n")
    interrupted(monkeypatch, invoke, EVERY + 1, *call)
    checkpoint = tmp_path / "n" / f"checkpoint-{EVERY:08d}.safetensors"
    (tmp_path / "plain").touch()
    assert checkpoint.stat().st_mode == (tmp_path / "plain").stat().st_mode
    started = json.loads((tmp_path / "n" / "run.json").read_text())
    started["environment"] |= {"torch": "1.0", "threads": -1}
    (tmp_path / "n" / "run.json").write_text(json.dumps(started))
    said = " ".join(invoke(*call, "--resume", check=0).stderr.split())
    assert re.search(rf"checkpoint .*\b{EVERY}\b", said)
    assert re.search(r"torch .*'1\.0'.*threads .*-1", said)


@pytest.mark.slow
@pytest.mark.parametrize("content", [b"{", b"3", b"\xff"])
def test_a_damaged_run_json_is_said(invoke, tiny_bert, text, tmp_path, monkeypatch, content):
    call = arguments(tiny_bert, text, tmp_path / "m")
    interrupted(monkeypatch, invoke, EVERY + 1, *call)
    (tmp_path / "m" / "run.json").write_bytes(content)
    assert re.search(r"m/run\.json .*--resume", " ".join(invoke(*call, "--resume", check=2).stderr.split()))


def test_a_folder_that_is_no_run_is_not_gone_on_with(invoke, tiny_bert, text, tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "model.safetensors").write_bytes(b"")
    result = invoke(*arguments(tiny_bert, text, tmp_path / "m"), "--resume", check=2)
    assert re.search(rf"{tmp_path}/m .*run\.json.*--resume", " ".join(result.stderr.split()))


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["flip", "cut", "json", "gone"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(invoke, tiny_bert, text, tmp_path, monkeypatch, damage):
    invoke(*arguments(tiny_bert, text, tmp_path / "whole"), check=0)
    call = arguments(tiny_bert, text, tmp_path / "m")
    interrupted(monkeypatch, invoke, 9, *call)
    weights = tmp_path / "m" / "checkpoint-00000008.safetensors"
    raw = bytearray(weights.read_bytes())
    match damage:
        case "flip":
            raw[-5] ^= 1
            weights.write_bytes(raw)
        case "cut":
            weights.write_bytes(raw[:-100])
        case "json":
            weights.with_suffix(".json").write_text("{")
        case "gone":
            weights.unlink()
    result = invoke(*call, "--resume", check=0)
    assert re.search("checkpoint .*8 .*checkpoint .*4", " ".join(result.stderr.split()))
    assert digests(tmp_path / "m") == digests(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_damaged_best_weights_are_found_before_the_training(
    invoke, tiny_bert, text, dev, tmp_path, monkeypatch, damage
):
    scored = ["--eval-data", dev, "--eval-every", 3]
    invoke(*arguments(tiny_bert, text, tmp_path / "whole", *scored), check=0)
    call = arguments(tiny_bert, text, tmp_path / "m", *scored)
    interrupted(monkeypatch, invoke, 9, *call)
    best = json.loads((tmp_path / "m" / "checkpoint-00000008.json").read_text())["scores"]["best_step"]
    path = tmp_path / "m" / f"best-{best:08d}.safetensors"
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.unlink() if damage == "gone" else path.write_bytes(content if damage == "flip" else content[:-100])
    said = " ".join(invoke(*call, "--resume", check=0).stderr.split())
    assert re.search(f"best .*{best}.*checkpoint .*8 ", said)
    assert digests(tmp_path / "m") == digests(tmp_path / "whole")


def test_shortened_metrics_are_said(invoke, tiny_bert, text, tmp_path, monkeypatch):
    call = arguments(tiny_bert, text, tmp_path / "m")
    interrupted(monkeypatch, invoke, 6, *call)
    (tmp_path / "m" / "metrics.jsonl").write_text("")
    assert "metrics.jsonl" in " ".join(invoke(*call, "--resume", check=0).stderr.split())
    assert [line["step"] for line in without_times(tmp_path / "m")] == [5, 6, 7, 8, 9]


@pytest.mark.slow
@pytest.mark.parametrize("content", [None, "{"])
def test_a_finished_run_without_its_configuration_is_said(invoke, tiny_bert, text, tmp_path, content):
    call = arguments(tiny_bert, text, tmp_path / "m")
    invoke(*call, check=0)
    path = tmp_path / "m" / "sentcli.json"
    path.unlink() if content is None else path.write_text(content)
    assert re.search(r"m/sentcli\.json .*--resume", " ".join(invoke(*call, "--resume", check=2).stderr.split()))


def test_a_fitted_model_gets_missing_scores(invoke, tiny_bert, tmp_path, dev, monkeypatch):
    monkeypatch.setattr(sts_pairs, "TASKS", ("STSBenchmark",))
    folder = dev / "STS" / "STSBenchmark"
    (folder / "sts-test.csv").write_bytes((folder / "sts-dev.csv").read_bytes())
    call = ["train", "--method", "first-last-avg", "-m", tiny_bert, "-o", tmp_path / "m", "--eval-data", dev]
    invoke(*call, check=0)
    invoke(*call, "--sts", "--resume", "--json", tmp_path / "r.json", check=0)
    results = json.loads((tmp_path / "r.json").read_text())["results"]
    assert results["sts"] == {"STSBenchmark": results["best_dev_spearman"]}


def test_a_full_disk_at_a_checkpoint(invoke, tiny_bert, text, tmp_path, monkeypatch):
    invoke(*arguments(tiny_bert, text, tmp_path / "whole"), check=0)
    call = arguments(tiny_bert, text, tmp_path / "m")
    save = safetensors.torch.save_file

    def full(tensors, path, metadata=None):
        if "00000008" in str(path):
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        save(tensors, path, metadata=metadata)

    with monkeypatch.context() as patch:
        patch.setattr(safetensors.torch, "save_file", full)
        result = invoke(*call, check=1)
    message = " ".join(result.stderr.split())
    assert re.search(rf"{tmp_path}/m: .*checkpoint .*8 .*kB.*GB.*4 .*--resume", message)
    names = sorted(path.name for path in (tmp_path / "m").glob("*checkpoint*"))
    assert names == ["checkpoint-00000004.json", "checkpoint-00000004.safetensors"]
    assert re.search("checkpoint .*4", invoke(*call, "--resume", check=0).stderr)
    assert digests(tmp_path / "m") == digests(tmp_path / "whole")


@pytest.mark.slow
def test_one_run_a_folder(invoke, tiny_bert, text, tmp_path):
    (tmp_path / "m").mkdir()
    with FileLock(tmp_path / "m" / ".lock"):
        for flag in ("--resume", "--overwrite"):
            result = invoke(*arguments(tiny_bert, text, tmp_path / "m"), flag, check=2)
            assert re.search(f"{tmp_path}/m: .*-o", " ".join(result.stderr.split()))
    invoke(*arguments(tiny_bert, text, tmp_path / "m"), check=0)
    assert not (tmp_path / "m" / ".lock").exists()


@pytest.mark.slow
def test_no_checkpoints_if_none_are_wanted(invoke, tiny_bert, text, tmp_path, monkeypatch):
    call = arguments(tiny_bert, text, tmp_path / "m", "--save-every", 0)
    interrupted(monkeypatch, invoke, 9, *call)
    assert not list((tmp_path / "m").glob("checkpoint*"))
    invoke(*call, "--resume", check=0)


@pytest.mark.parametrize("every", [0, 4, 3])
def test_the_disk_has_room_for_what_a_run_has_at_its_end(invoke, tiny_bert, text, dev, tmp_path, monkeypatch, every):
    """No checkpoint, one, or as many as stay; the weights that were written are added up before they are deleted."""
    stated, written = [], []
    monkeypatch.setattr(run_folder, "require_room", lambda folder, size, name: stated.append(size))
    put_in_place = run_folder.RunFolder._put_in_place

    def add_up(self):
        written.append(sum(path.stat().st_size for path in self.path.rglob("*.safetensors")))
        put_in_place(self)

    monkeypatch.setattr(run_folder.RunFolder, "_put_in_place", add_up)
    options = ("--max-steps", 8, "--eval-every", 8, "--eval-data", dev, "--save-every", every)
    command = ("train", "--method", "simcse", "-m", tiny_bert, "--data", text, "-o", tmp_path / "m", "--batch-size", 8)
    invoke(*command, *options, check=0)
    assert 0.9 * written[0] < stated[0] <= written[0]


@pytest.mark.parametrize("finished", [False, True])
def test_another_length_says_how_to_train_longer(invoke, tiny_bert, text, tmp_path, monkeypatch, finished):
    call = arguments(tiny_bert, text, tmp_path / "m")
    if finished:
        invoke(*call, check=0)
    else:
        interrupted(monkeypatch, invoke, 6, *call)
    longer = invoke(*call, "--max-steps", 40, "--resume", check=2)
    said = " ".join(longer.stderr.split())
    assert f"-m {tmp_path}/m" in said and ("finish" in said) != finished
    other = invoke(*call, "--max-steps", 40, "--seed", 7, "--resume", check=2)
    assert "-m " not in other.stderr
