"""A GPU that is not waited for: what would wait in a step, and numbers that are looked at one step late.

The CPU stands in for the GPU: modules are told that it has a queue, so that they take the way of a GPU on it.
"""

import json
import re
import sys
from contextlib import nullcontext
from copy import deepcopy

import pytest
import torch
from safetensors.torch import load_file
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from sentcli.errors import SentcliError
from sentcli.methods import METHODS
from sentcli.model import attention, torch_model
from sentcli.objectives import base
from sentcli.training import gradients as training_gradients
from sentcli.training import training_model
from sentcli.training.gradients import UncorrectedAdamW
from tests.conftest import save_backbone
from tests.training.test_gradients import prepared

LOOKS = {
    "_local_scalar_dense", "nonzero", "masked_select", "unique_dim", "_unique2", "unique_consecutive", "equal",
    "_linalg_eigh",
}  # fmt: skip
"""Operations whose result or its shape the program has to know, or that look whether they succeeded."""
SELECTIONS = {"index", "index_put", "index_put_", "_index_put_impl_"}


class Waits(TorchDispatchMode):
    """Counts the operations that would wait for a GPU."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.__name__.partition(".")[0]
        by_mask = name in SELECTIONS and any(i is not None and i.dtype == torch.bool for i in args[1])
        if name in LOOKS or by_mask:
            self.found.append(name)
        return function(*args, **(kwargs or {}))


class Copies(TorchFunctionMode):
    """Counts the tensors that are made of lists or turned into lists."""

    def __init__(self, found):
        super().__init__()
        self.found = found

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in (torch.tensor, torch.as_tensor, torch.Tensor.tolist, torch.Tensor.numpy):
            self.found.append(function.__name__)
        return function(*args, **(kwargs or {}))


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    for module in (training_model, training_gradients, base):
        monkeypatch.setattr(module, "runs_ahead", lambda device: True)
    for module in (attention, torch_model):
        monkeypatch.setattr(module, "answers_at_once", lambda device: False)
    monkeypatch.setattr(training_model, "CpuKernels", nullcontext)
    monkeypatch.setattr(base, "CPU_ROWS", sys.maxsize)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "settings", "waits"),
    [
        ("simcse", {}, ["tolist"]),  # of the loss and the norm, one step late
        ("simcse", {"bias_correction": False}, ["tolist"]),
        ("simcse", {"accumulate": 2}, ["tolist"]),
        ("simcse", {"mini_batch_size": 8}, ["tolist"] * 2),  # the lengths of the parts
        ("informin-cl", {}, ["tolist"]),
        ("esimcse", {}, ["tolist"]),
        ("ct", {}, ["tolist"]),
        ("mirror-bert", {}, ["tolist"]),
        ("micse", {"ami__layers": "0:2"}, ["nonzero", "tolist"]),
        ("is-bert", {}, ["nonzero", "tolist"]),
        ("mlm", {}, ["nonzero"] * 2 + ["tolist"]),
        ("infocse", {"skip_from": 1, "layers": 1}, ["nonzero"] * 2 + ["tolist"]),
        ("whitenedcse", {}, ["_linalg_eigh"] * 3 + ["tolist"]),  # one for each view
    ],
)
def test_what_would_wait_for_a_gpu_in_a_step(tiny_bert, text, as_on_a_gpu, method, settings, waits):
    gradients, (first, second) = prepared(tiny_bert, text, method, steps=2, **settings)
    gradients.collect(first)
    gradients.apply(1e-5)
    counted = Waits()
    with counted, Copies(counted.found):
        gradients.collect(second)
        gradients.apply(1e-5)
    assert sorted(counted.found) == waits


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "roberta", "mpnet", "modernbert"])
@pytest.mark.parametrize("padded", [True, False])
def test_a_mask_that_is_not_looked_at_hides_the_same_tokens(tmp_path, kind, padded, monkeypatch):
    from sentcli import SentenceEncoder

    encoder = SentenceEncoder.load(save_backbone(tmp_path / kind, kind=kind))
    backbone = encoder.torch_module.backbone
    mask = torch.ones(3, 8, dtype=torch.long)
    mask[0, 5:] = 1 - int(padded)
    batch = {"input_ids": torch.arange(24).view(3, 8) % 20 + 5, "attention_mask": mask}
    expected = backbone(**batch).last_hidden_state
    attention.install(backbone)
    monkeypatch.setattr(attention, "answers_at_once", lambda device: False)
    found = backbone(**batch).last_hidden_state
    torch.testing.assert_close(found[mask == 1], expected[mask == 1], rtol=1e-5, atol=1e-5)


def trained(invoke, model, text, output, *options, check=0):
    command = ("train", "--method", "simcse", "-m", model, "--data", text, "-o", output, "--batch-size", 16)
    return invoke(*command, "--max-steps", 7, *options, check=check)


def lines(folder):
    """The lines of the metrics without the speed."""
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in record.items() if name != "sentences_per_second"} for record in records]


def test_numbers_that_are_looked_at_late_change_nothing(invoke, tiny_bert, text, dev, tmp_path, monkeypatch):
    options = ("--eval-data", dev, "--eval-every", 3, "--save-every", 2)
    trained(invoke, tiny_bert, text, tmp_path / "at-once", *options)
    monkeypatch.setattr(training_gradients, "runs_ahead", lambda device: True)
    trained(invoke, tiny_bert, text, tmp_path / "late", *options)
    assert lines(tmp_path / "late") == lines(tmp_path / "at-once")
    assert [line["step"] for line in lines(tmp_path / "late")] == [0, 1, 2, 3, 3, 4, 5, 6, 6, 7, 7]
    weights = [load_file(tmp_path / name / "model.safetensors") for name in ("at-once", "late")]
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())


def test_a_step_that_is_looked_at_late_stops_the_run_by_its_own_number(invoke, tiny_bert, text, tmp_path, monkeypatch):
    clip, calls = torch.nn.utils.clip_grad_norm_, []

    def nan(parameters, largest):
        calls.append(largest)
        return clip(parameters, largest) if len(calls) < 3 else torch.tensor(float("nan"))

    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", nan)
    monkeypatch.setattr(training_gradients, "runs_ahead", lambda device: True)
    result = trained(invoke, tiny_bert, text, tmp_path / "m", check=1)
    assert re.search(r"step 3: .*gradient .*nan.*failed-batch\.json", " ".join(result.stderr.split()))
    assert json.loads((tmp_path / "m" / "failed-batch.json").read_text())["step"] == 3
    assert [line["step"] for line in lines(tmp_path / "m")] == [1, 2]
    assert len(calls) == 4  # the next gradient was under way


@pytest.mark.parametrize("bias_correction", [True, False])
def test_weights_stay_where_the_gradient_is_not_finite(tiny_bert, text, as_on_a_gpu, bias_correction):
    gradients, steps = prepared(tiny_bert, text, steps=3, bias_correction=bias_correction)
    gradients.queue(steps[0])
    gradients.apply(1e-3)
    kept = {name: weight.clone() for name, weight in gradients.model.state_dict().items()}
    for step in steps[1:]:
        with torch.no_grad():
            gradients.trained[0].view(-1)[0] = torch.nan
        gradients.queue(step)
        gradients.apply(1e-3)
    kept[next(iter(kept))].view(-1)[0] = torch.nan
    for name, weight in gradients.model.state_dict().items():
        torch.testing.assert_close(weight, kept[name], rtol=0, atol=0, equal_nan=True, msg=name)


def test_rmsprop_cannot_leave_out_a_step_so_its_numbers_are_looked_at_before(tiny_bert, text, as_on_a_gpu):
    assert METHODS["ct"].settings.optimizer == "rmsprop"
    assert prepared(tiny_bert, text, "ct")[0].behind == 0
    assert prepared(tiny_bert, text, "simcse")[0].behind == 1


def test_a_step_that_does_not_fit_names_its_rows_and_what_helps(tiny_bert, text, as_on_a_gpu, monkeypatch):
    gradients, (batches,) = prepared(tiny_bert, text, "simcse")

    def too_large(*arguments):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr(gradients, "backward_whole", too_large)
    rows, tokens = batches[0]["input_ids"].shape
    with pytest.raises(SentcliError, match=f"a step of {rows} texts of {tokens} tokens.*--batch-size.*mini_batch_size"):
        gradients.queue(batches)


def uncorrected(gradients, state=None):
    """The weight after steps with these gradients, and the optimiser."""
    weight = torch.nn.Parameter(torch.full((4, 4), 0.5))
    optimizer = UncorrectedAdamW([weight], lr=0.1, weight_decay=0.1, fused=True)
    if state is not None:
        weight.data, saved = state[0].clone(), state[1]
        optimizer.load_state_dict(saved)
    for gradient in gradients:
        weight.grad = torch.full((4, 4), gradient)
        optimizer.step()
    return weight.detach(), optimizer


def test_the_count_of_uncorrected_adam_survives_a_checkpoint_with_and_without_it():
    expected, _ = uncorrected([1.0, -2.0, 0.5, 0.25])
    weight, optimizer = uncorrected([1.0, -2.0])
    for counted in (True, False):  # earlier versions wrote no count
        saved = deepcopy(optimizer.state_dict())
        if not counted:
            saved["param_groups"][0].pop("steps")
        assert torch.equal(uncorrected([0.5, 0.25], (weight, saved))[0], expected)


def test_uncorrected_adam_does_not_count_a_step_that_half_precision_left_out():
    weight = torch.nn.Parameter(torch.full((4, 4), 0.5))
    optimizer = UncorrectedAdamW([weight], lr=0.1, weight_decay=0.1, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for gradient in (1.0, torch.inf, -2.0):
        weight.grad = scaler.scale(torch.full((4, 4), gradient))
        scaler.step(optimizer)
        scaler.update()
    assert torch.equal(weight.detach(), uncorrected([1.0, -2.0])[0])
