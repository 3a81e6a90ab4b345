"""What is known of the processor before anything is computed on it."""

import pytest

from sentcli import machine


@pytest.fixture
def with_vnni(monkeypatch):
    monkeypatch.setattr(machine, "_cpuinfo", lambda key: "fma avx2 avx512_vnni")
    for name in machine.ONEDNN_LIMITS:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("limit", "saturates"), [("AVX2", True), ("avx512_core", True), ("AVX512_CORE_VNNI", False), ("ALL", False)]
)
def test_sums_of_8_bits_saturate_where_onednn_may_not_use_vnni(with_vnni, monkeypatch, limit, saturates):
    assert not machine.sums_saturate("openvino")
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    assert machine.sums_saturate("openvino") == saturates
    assert not machine.sums_saturate("onnx"), "onnxruntime does not heed it"


@pytest.mark.parametrize(
    ("flags", "saturates"), [("sse4_2 fma avx2", True), ("avx2 avx_vnni", False), ("avx2 amx_int8", False)]
)
def test_sums_of_8_bits_saturate_without_vnni(with_vnni, monkeypatch, flags, saturates):
    monkeypatch.setattr(machine, "_cpuinfo", lambda key: flags)
    assert machine.sums_saturate() == saturates
