"""Two processes of batch b make the steps of one of batch 2b; the first writes; one that dies ends all."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from sentcli.errors import InputError
from sentcli.methods import METHODS
from sentcli.processes import joined_processes
from tests.conftest import WORDS, save_backbone
from tests.forked import Forked
from tests.training.test_checkpoints import digests

CASES = {
    "simcse": {},
    "informin-cl": {"mask_duplicates": "true"},
    "micse": {"objectives-": "ami", "queue_size": 40, "momentum_dropout": 0.0},  # attention is compared in each process
    "whitenedcse": {},
    "whitenedcse-zca": {"kind": "zca", "eps": 0.1},
    "infocse": {"objectives-": "auxiliary-mlm"},  # its head: batch normalisation
    "mirror-bert": {"views": "copies"},
    "ct": {"objectives+": "contrastive", "views.negatives": 3},  # InfoNCE sees the rows of each process that match
    "prompt-bert": {"template.first": "a [X] [MASK]", "template.second": ""},
    "simcse-cached": {"mini_batch_size": 3},
    "distill": {"objectives-": "similarities"},  # similarities are those within each process
}


def ranks(count):
    """Return the environment of each process, as torchrun would set it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
    common |= {"OMP_NUM_THREADS": "1"}
    return [{**common, "RANK": str(number), "LOCAL_RANK": str(number)} for number in range(count)]


def launch(count, command):
    """Start processes; returns them."""
    return [Forked(*command, env=env) for env in ranks(count)]


def finish(processes, timeout=240):
    """Wait for all; returns their exit codes and what they wrote to standard error."""
    said = [process.communicate(timeout=timeout)[1] for process in processes]
    return [process.returncode for process in processes], said


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Case to what one process of batch 16 and two of batch 8 came to."""
    folder = tmp_path_factory.mktemp("ranks")
    model = save_backbone(folder / "model")
    words = [word for word in WORDS if word.isalpha()]
    lines = [" ".join(words[(7 * i + k * k) % len(words)] for k in range(3 + i % 15)) for i in range(100)]
    (folder / "text.txt").write_text("\n".join([*lines, lines[0], lines[1]]))
    cases = {case: (next(m for m in METHODS if case.startswith(m)), settings) for case, settings in CASES.items()}
    found = {}
    for count, batch in ((1, 16), (2, 8)):
        out = folder / f"{count}.pt"
        arguments = ["tests.training.two_ranks", json.dumps(cases), model, folder / "text.txt", out, batch, 4, "cpu"]
        codes, said = finish(launch(count, arguments))
        assert codes == [0] * count, said
        found[count] = torch.load(out)
    return {case: (found[1][case], found[2][case]) for case in CASES}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_two_ranks_equal_one_of_twice_the_batch(trained, case):
    """Losses, gradients, weights, the queue and running statistics, in float64."""
    one, two = trained[case]
    torch.testing.assert_close(one["losses"], two["losses"], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(one["norms"], two["norms"], rtol=1e-8, atol=1e-9)
    assert one["gradients"].keys() == two["gradients"].keys()
    for name, gradient in one["gradients"].items():
        torch.testing.assert_close(gradient, two["gradients"][name], rtol=1e-6, atol=1e-9, msg=name)
    for name, tensor in one["state"].items():
        torch.testing.assert_close(tensor, two["state"][name], rtol=1e-6, atol=1e-7, msg=name)
    if case == "micse":
        assert int(one["state"]["stateful.contrastive.filled"]) == 40


def command(model, text, out, *options):
    return [
        "sentcli", "train", "--method", "micse", "--set", "ami.layers=0:2", "--set", "queue_size=20", "-m", model,
        "--data", text, "-o", out, "--batch-size", 8, "--max-steps", 6, "--save-every", 2, "--learning-rate", "1e-3",
        *options,
    ]  # fmt: skip


@pytest.mark.slow
def test_the_first_process_writes_and_a_run_resumes(tmp_path, tiny_bert, text, dev):
    options = ["--eval-data", dev, "--eval-every", 3, "--json", tmp_path / "r.json"]
    codes, said = finish(launch(2, command(tiny_bert, text, tmp_path / "whole", *options)))
    assert codes == [0, 0], said
    assert "STS-B dev" in said[0] and said[1] == ""
    assert json.loads((tmp_path / "r.json").read_text())["results"]["steps"] == 6
    lines = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == [1, 2, 3, 4, 5, 6]
    # killed together, as a scheduler does
    processes = launch(2, command(tiny_bert, text, tmp_path / "m", *options))
    wait_for(tmp_path / "m" / "metrics.jsonl", 5, processes)
    for process in processes:
        process.send_signal(signal.SIGKILL)
    finish(processes)
    codes, said = finish(launch(2, command(tiny_bert, text, tmp_path / "m", *options, "--resume")))
    assert codes == [0, 0], said
    assert digests(tmp_path / "m") == digests(tmp_path / "whole")
    # one process is another run
    codes, said = finish(launch(1, command(tiny_bert, text, tmp_path / "m", *options, "--resume")))
    assert codes == [2] and re.search("processes .*1 .*2", " ".join(said[0].split()))


def wait_for(metrics, lines, processes):
    deadline = time.time() + 120
    while not (metrics.exists() and metrics.read_text().count("\n") >= lines):
        assert time.time() < deadline and all(process.poll() is None for process in processes)
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_dead_rank_ends_all_with_one_message(tmp_path, tiny_bert, text, victim):
    processes = launch(2, command(tiny_bert, text, tmp_path / "m", "--max-steps", 100_000))
    wait_for(tmp_path / "m" / "metrics.jsonl", 5, processes)
    processes[victim].send_signal(signal.SIGKILL)
    began = time.time()
    codes, said = finish(processes)
    assert time.time() - began < 60
    assert codes[victim] == -signal.SIGKILL and codes[1 - victim] == 1
    errors = [line for line in said[1 - victim].splitlines() if "error" in line]
    assert len(errors) == 1 and re.search(f"process {1 - victim} of 2.*--resume", errors[0]), said
    assert "Traceback" not in said[1 - victim]


def test_bad_input_is_said_once(tmp_path, tiny_bert, text):
    codes, said = finish(launch(2, command(tiny_bert, text, tmp_path / "m", "--set", "temperature=0")))
    assert codes == [2, 2]
    assert "temperature" in said[0] and said[0].count("error:") == 1 and said[1] == ""
    codes, said = finish(launch(2, command(tiny_bert, text, tmp_path / "m", "--batch-size", 100)))
    assert codes == [2, 2] and re.search("100 .*2 .*133 ", said[0])


def test_what_fails_in_one_process_ends_the_other(tmp_path, tiny_bert, text):
    from safetensors.torch import load_file, save_file

    broken = save_backbone(tmp_path / "broken")
    state = load_file(broken / "model.safetensors")
    state["embeddings.LayerNorm.weight"][0] = float("nan")
    save_file(state, broken / "model.safetensors", metadata={"format": "pt"})
    codes, said = finish(launch(2, command(broken, text, tmp_path / "m")))
    assert codes == [1, 1]
    assert "".join(said).count("error:") == 1 and re.search("step 1: .*loss .*nan", "".join(said))


@pytest.mark.deep
@pytest.mark.parametrize("launcher", ["torchrun", "accelerate"])
def test_the_documented_launchers(tmp_path, tiny_bert, text, launcher):
    binary = Path(sys.executable).parent / launcher
    if not binary.exists():
        pytest.skip(f"{launcher} is not installed")
    start = {
        "torchrun": ["--nproc-per-node", 2],
        "accelerate": ["launch", "--multi_gpu", "--num_processes", 2, "--num_machines", 1, "--mixed_precision", "no"],
    }[launcher]
    arguments = [binary, *start, "-m", *command(tiny_bert, text, tmp_path / "m", "--device", "cpu")]
    done = subprocess.run(
        [str(argument) for argument in arguments],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "m" / "model.safetensors").exists()
    assert json.loads((tmp_path / "m" / "run.json").read_text())["processes"] == 2


LEFT = """
import sys
from pathlib import Path
from sentcli.cli import main

try:
    main()
finally:
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    sys.stderr.write("left: " + " ".join(name for name in names if "gloo" in name))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are named in /proc")
@pytest.mark.parametrize("fails", [False, True])
def test_no_thread_of_the_group_outlives_it(tmp_path, tiny_bert, text, fails):
    """A thread of gloo that frees a tensor while the interpreter ends aborts the process."""
    more = ["--set", "temperature=0"] if fails else []
    words = [sys.executable, "-c", LEFT, *map(str, command(tiny_bert, text, tmp_path / "m", *more)[1:])]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    codes, said = finish([subprocess.Popen(words, **pipes, env=env) for env in ranks(2)])
    assert codes == [2 if fails else 0] * 2, said
    assert all(words.endswith("left: ") for words in said), said


def test_more_processes_than_gpus_is_an_error_that_counts_them(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with (
        pytest.raises(InputError, match=r"'cuda:1' is not there: torch .* sees 1 CUDA devices"),
        joined_processes("cuda"),
    ):
        pass
