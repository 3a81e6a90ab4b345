"""Devices that are not there, that lack memory or that fail, and onnxruntime on a GPU, by stand-ins."""

import re
from typing import ClassVar

import numpy as np
import onnxruntime
import pytest
import torch

from sentcli import SentenceEncoder, devices, machine
from sentcli.errors import DeviceMemoryError, InputError, SentcliError
from sentcli.model.torch_backend import TorchBackend
from tests.tolerance import VECTORS

TEXTS = ["the cat sat", "a dog", "the small red fish swam under the old tree"] * 5
CUDA = torch.device("cuda")


@pytest.fixture
def on_linux_with_a_gpu(monkeypatch, tmp_path):
    """Let this machine look as if it had the driver of a GPU."""
    driver = tmp_path / "nvidiactl"
    driver.touch()
    monkeypatch.setattr(machine, "DRIVERS", (str(driver),))
    monkeypatch.setattr(machine.sys, "platform", "linux")


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_gpus_that_are_hidden_are_an_error_where_one_is_asked_for(on_linux_with_a_gpu, hidden, monkeypatch, tiny_bert):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert not machine.accelerator_in_sight()
    with pytest.raises(InputError, match=rf"'cuda'.*0 CUDA devices.*CUDA_VISIBLE_DEVICES is '{hidden}'"):
        SentenceEncoder.load(tiny_bert, backend="torch", device="cuda")
    with pytest.raises(InputError, match="not on cuda: CUDA_VISIBLE_DEVICES hides"):
        SentenceEncoder.load(tiny_bert, backend="onnx", device="cuda")
    notes = []
    SentenceEncoder.load(tiny_bert, device="auto", notice=notes.append)
    assert any("CUDA_VISIBLE_DEVICES" in note and "CPU" in note for note in notes)


def test_a_gpu_that_torch_cannot_use_is_said(on_linux_with_a_gpu, monkeypatch, tiny_bert):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr("sentcli.model.torch_backend.accelerator_in_sight", lambda: True)
    notes = []
    encoder = SentenceEncoder.load(tiny_bert, backend="torch", device="auto", notice=notes.append)
    assert encoder.backend.device == "cpu"
    assert any(re.search("although there is a GPU.*without CUDA", note) for note in notes)


def raised(error):
    with devices.device_errors(CUDA, "a batch of 3 texts"):
        raise error


def test_too_little_memory_names_the_work_and_what_is_free(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1_500_000_000, 80_000_000_000))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    for error in (
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ):
        with pytest.raises(DeviceMemoryError, match=r"cuda.*3 texts.*1\.5 of its 80\.0 GB are free"):
            raised(error)


@pytest.mark.parametrize(
    "said",
    [
        "CUDA error: unspecified launch failure",
        "CUDA error: no CUDA-capable device is detected",
        "CUDA driver error: device not ready",
        "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
    ],
)
def test_a_device_that_fails_is_named(said):
    with pytest.raises(SentcliError, match=f"cuda failed at a batch of 3 texts: {re.escape(said)}"):
        raised(RuntimeError(said))


def test_other_errors_stay_what_they_are():
    with pytest.raises(RuntimeError, match="shapes"):
        raised(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


class Moved:
    """A value on a stand-in for a GPU."""

    def __init__(self, array, device, number):
        self.array, self.place = array, (device, number)

    @staticmethod
    def ortvalue_from_numpy(array, device, number):
        return Moved(array, device, number)


class Bound:
    """The inputs and outputs of a stand-in for a session on a GPU."""

    def __init__(self):
        self.inputs, self.output, self.results = {}, None, None

    def bind_ortvalue_input(self, name, value):
        self.inputs[name] = value

    def bind_output(self, name, device, number):
        self.output = (name, device, number)

    def copy_outputs_to_cpu(self):
        return self.results


class Session:
    """A session that says it runs on a GPU; a batch of more tokens than its memory holds fails as onnxruntime does."""

    memory = 10**9
    places: ClassVar[list] = []

    def __init__(self, path, options, providers):
        self.providers = providers
        self.real = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def __getattr__(self, name):
        return getattr(self.real, name)

    def get_providers(self):
        return [self.providers[0][0], "CPUExecutionProvider"]

    def io_binding(self):
        return Bound()

    def run_with_iobinding(self, binding):
        name, *place = binding.output
        self.places.append({tuple(place), *(value.place for value in binding.inputs.values())})
        arrays = {key: value.array for key, value in binding.inputs.items()}
        if next(iter(arrays.values())).size > self.memory:
            raise RuntimeError("[ONNXRuntimeError] : 6 : Failed to allocate memory for requested buffer of size 99")
        binding.results = self.real.run([name], arrays)


@pytest.fixture
def runtime(monkeypatch):
    """onnxruntime as onnxruntime-gpu is; returns the levels of its log that were set."""
    levels: list[int] = []

    class Runtime:
        OrtValue, InferenceSession, SessionOptions = Moved, Session, onnxruntime.SessionOptions
        set_default_logger_severity = staticmethod(levels.append)

        @staticmethod
        def get_available_providers():
            return ["CUDAExecutionProvider", "CPUExecutionProvider"]

    monkeypatch.setattr(Session, "places", [])
    monkeypatch.setattr("sentcli.model.onnx_backend.required", lambda *names: Runtime)
    return levels


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_onnxruntime_on_a_gpu_gets_its_inputs_there_and_keeps_its_notes(runtime, minilm, device):
    expected = SentenceEncoder.load(minilm, backend="torch", device="cpu").encode(TEXTS)
    encoder = SentenceEncoder.load(minilm, backend="onnx", device=device)
    assert encoder.backend.device == device
    np.testing.assert_allclose(encoder.encode(TEXTS, batch_tokens=40), expected, atol=VECTORS)
    number = int(device.partition(":")[2] or 0)
    assert Session.places and all(places == {("cuda", number)} for places in Session.places)
    assert runtime and min(runtime) >= 3, "warnings are not written"
    (provider, options), *_ = encoder.backend.session.providers
    assert provider == "CUDAExecutionProvider" and ("device_id" in options) == (number > 0)


@pytest.mark.slow
def test_onnxruntime_with_too_little_memory_gets_smaller_batches(runtime, minilm, monkeypatch):
    encoder = SentenceEncoder.load(minilm, backend="onnx", device="cuda")
    expected = encoder.encode(TEXTS)
    monkeypatch.setattr(Session, "memory", 30)
    np.testing.assert_allclose(encoder.encode_distinct(TEXTS, batch_tokens=100).vectors, expected, atol=VECTORS)
    monkeypatch.setattr(Session, "memory", 2)
    with pytest.raises(SentcliError, match=r"cuda has too little memory.*25 tokens.*--batch-tokens"):
        encoder.encode(TEXTS, batch_tokens=100)


def test_a_gpu_of_another_process_is_not_used_after_a_fork(minilm, monkeypatch):
    backend = TorchBackend(CUDA, "fp32")
    backend.process = -1
    with pytest.raises(SentcliError, match="fork"):
        backend.run({"input_ids": np.ones((1, 3), np.int64), "attention_mask": np.ones((1, 3), np.int64)}, 0)
