"""Encoding with exports: without torch, from the cache, and what is refused because it does not belong together."""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from sentcli import SentenceEncoder
from sentcli.encoder import loading
from sentcli.errors import InputError, MissingExtraError, SentcliError
from sentcli.io.digests import file_digest
from sentcli.onnx_export import making, publish
from tests.conftest import save_backbone, save_cross_encoder
from tests.tolerance import VECTORS

LIMIT = 0.99999
TEXTS = ["the cat sat on the mat", "a dog", "", "the " * 60, "a dog", "Ünïcödé 漢字 🙂", "the bird flew over the house"]


def cosines(first, second):
    return (first * second).sum(1) / (np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1))


def make_export(model, folder, precision="fp32", *, weights=True, **options):
    encoder = SentenceEncoder.load(model, backend="torch", **options)
    publish.export_model(encoder.on_torch().loaded, folder, precision, verify=False, weights=weights)
    return folder


def described(folder, **changes):
    """Change what an exported folder says about itself; `sha256` is made right for the files that are there."""
    said = json.loads((folder / "export.json").read_text())
    said |= {"sha256": {name: file_digest(folder / name) for name in said["sha256"]}, **changes}
    (folder / "export.json").write_text(json.dumps(said))


@pytest.fixture(scope="module")
def with_weights(tiny_bert, tmp_path_factory):
    return make_export(tiny_bert, tmp_path_factory.mktemp("onnx") / "with-weights")


@pytest.fixture(scope="module")
def without_weights(tiny_bert, tmp_path_factory):
    return make_export(tiny_bert, tmp_path_factory.mktemp("onnx") / "without-weights", weights=False)


@pytest.fixture
def export(with_weights, tmp_path):
    """A copy to damage."""
    return Path(shutil.copytree(with_weights, tmp_path / "export"))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache."""
    monkeypatch.setenv("SENTCLI_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "exports"


@pytest.fixture(scope="module")
def expected(tiny_bert):
    return SentenceEncoder.load(tiny_bert, backend="torch").encode(TEXTS)


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS), "utf-8")
    return path


@pytest.fixture
def no_torch(tmp_path):
    """An environment in which torch and transformers, and what else a small image lacks, cannot be imported."""
    folder = tmp_path / "no-torch"
    folder.mkdir()
    missing = ("torch", "transformers", "onnx", "onnx_ir", "onnxscript", "sentence_transformers")
    (folder / "sitecustomize.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({missing}))\n")
    return {"PYTHONPATH": str(folder)}


def exports_in(cache):
    return sorted(path.name for path in cache.iterdir() if not path.name.startswith(".")) if cache.exists() else []


# Without torch


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("with_weights", "v.npy"),
        ("without_weights", "v"),
        pytest.param("with_weights", "v", marks=pytest.mark.deep),
        pytest.param("without_weights", "v.npy", marks=pytest.mark.deep),
    ],
)
def test_an_exported_folder_encodes_without_torch(run, request, lines, tmp_path, no_torch, expected, folder, name):
    call = ["encode", lines, "-o", tmp_path / name, "-m", request.getfixturevalue(folder), "--json", "-"]
    done = run(*call, env=no_torch, check=0)
    assert "onnx on cpu, fp32" in done.stderr
    assert json.loads(done.stdout)["protocol"]["backend"] == "onnx"
    found = np.load(tmp_path / name if name == "v.npy" else tmp_path / name / "vectors-00000.npy")
    assert cosines(found, expected).min() >= LIMIT
    np.testing.assert_allclose(found, expected, atol=VECTORS)


@pytest.mark.slow
def test_a_model_whose_export_is_in_the_cache_encodes_without_torch(
    run, tiny_bert, lines, tmp_path, no_torch, cache, expected
):
    SentenceEncoder.load(tiny_bert, backend="onnx")
    done = run("encode", lines, "-o", tmp_path / "v.npy", "-m", tiny_bert, env=no_torch, check=0)
    assert "exporting" not in done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), expected, atol=VECTORS)


def test_torch_is_not_imported_even_where_it_is_installed(without_weights):
    script = f"""
import sys
from sentcli import SentenceEncoder
assert SentenceEncoder.load({str(without_weights)!r}).encode(["the cat"]).shape == (1, 32)
print({{"torch", "transformers", "onnx"}} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


# The same vectors


@pytest.mark.parametrize("budget", [1, 40, 100_000])
def test_vectors_equal_those_of_torch_in_batches_of_any_size(with_weights, expected, budget):
    found = SentenceEncoder.load(with_weights, backend="onnx").encode(TEXTS, batch_tokens=budget)
    assert cosines(found, expected).min() >= LIMIT
    np.testing.assert_allclose(found, expected, atol=VECTORS)


@pytest.mark.parametrize("options", [{"on_long": "chunk-mean"}, {"prompt": "the small "}])
def test_long_texts_and_prompts_are_treated_as_by_torch(with_weights, tiny_bert, options):
    found = SentenceEncoder.load(with_weights, backend="onnx").encode(TEXTS, **options)
    np.testing.assert_allclose(
        found, SentenceEncoder.load(tiny_bert, backend="torch").encode(TEXTS, **options), atol=VECTORS
    )


@pytest.mark.parametrize("cores", ["1", "3"])
def test_vectors_do_not_depend_on_the_number_of_threads(with_weights, expected, monkeypatch, cores):
    texts = [f"{text} {n}" for text in TEXTS for n in range(50)]
    one = SentenceEncoder.load(with_weights, backend="onnx")
    monkeypatch.setenv("OMP_NUM_THREADS", cores)
    other = SentenceEncoder.load(with_weights, backend="onnx")
    assert other.backend.streams == int(cores)
    np.testing.assert_array_equal(other.encode(texts), one.encode(texts))


def test_an_encoder_that_runs_an_export_is_saved_whole(with_weights, expected, tmp_path):
    encoder = SentenceEncoder.load(with_weights, backend="onnx")
    encoder.save(tmp_path / "saved")
    again = SentenceEncoder.load(tmp_path / "saved", backend="torch")
    np.testing.assert_allclose(again.encode(TEXTS), expected, atol=VECTORS)


def test_an_encoder_without_weights_cannot_be_saved(without_weights, tmp_path):
    with pytest.raises(InputError, match=r"model\.safetensors"):
        SentenceEncoder.load(without_weights).save(tmp_path / "saved")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["mean", "cls", "first-last-avg"])
def test_the_fingerprint_is_that_of_the_model_whatever_runs_it(tiny_bert, pooling):
    prints = {
        backend: SentenceEncoder.load(tiny_bert, backend=backend, pooling=pooling).fingerprint()
        for backend in ("torch", "onnx", "auto")
    }
    assert len(set(prints.values())) == 1, prints


@pytest.mark.slow
@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_an_export_has_the_fingerprint_of_its_model(tiny_bert, tmp_path, weights, precision):
    wanted = SentenceEncoder.load(tiny_bert, backend="torch").fingerprint()
    folder = make_export(tiny_bert, tmp_path / "export", precision=precision, weights=weights)
    assert SentenceEncoder.load(folder).fingerprint() == wanted
    if weights:
        assert SentenceEncoder.load(folder, backend="torch").fingerprint() == wanted
        again = make_export(folder, tmp_path / "again")
        assert SentenceEncoder.load(again).fingerprint() == wanted
        other = save_backbone(tmp_path / "other", seed=7)
        shutil.copy(other / "model.safetensors", folder / "model.safetensors")
        assert SentenceEncoder.load(folder, backend="torch").fingerprint() != wanted


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["mean", "first-last-avg"])
def test_an_export_without_weights_has_a_fingerprint_for_manifests(tiny_bert, tmp_path, invoke, lines, pooling):
    folder = make_export(tiny_bert, tmp_path / "export", weights=False, pooling=pooling)
    invoke("encode", lines, "-o", tmp_path / "v", "-m", folder, check=0)
    other = make_export(tiny_bert, tmp_path / "other", weights=False, pooling="cls")
    invoke("encode", lines, "-o", tmp_path / "v", "-m", other, "--resume", check=2)


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["cls", "first-last-avg"])
def test_naming_the_pooling_that_an_export_has_changes_nothing(tiny_bert, tmp_path, pooling):
    folder = make_export(tiny_bert, tmp_path / "export", weights=False, pooling=pooling)
    wanted = SentenceEncoder.load(folder).encode(TEXTS)
    np.testing.assert_array_equal(SentenceEncoder.load(folder, pooling=pooling).encode(TEXTS), wanted)


# Which backend, and which export


@pytest.mark.slow
def test_auto_makes_an_export_once_and_says_what_it_runs(invoke, tiny_bert, lines, tmp_path, cache):
    call = ["encode", lines, "-o", tmp_path / "v.npy", "-m", tiny_bert, "--pooling", "mean", "--overwrite"]
    first = invoke(*call, check=0)
    assert first.stderr.count(f"exporting {tiny_bert} in fp32 to {cache}") == 1
    assert "onnx on cpu, fp32" in first.stderr
    (name,) = exports_in(cache)
    graph = cache / name / "model.onnx"
    before = graph.stat().st_mtime_ns, np.load(tmp_path / "v.npy")
    second = invoke(*call, check=0)
    assert "exporting" not in second.stderr
    assert exports_in(cache) == [name]
    assert graph.stat().st_mtime_ns == before[0]
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), before[1])
    assert not (cache / name / "model.safetensors").exists(), "the weights are where they were"


def test_auto_does_not_trace_by_itself(tmp_path, cache):
    model = save_backbone(tmp_path / "albert", kind="albert")
    assert SentenceEncoder.load(model).backend.name == "torch"
    assert exports_in(cache) == []


@pytest.mark.slow
def test_auto_makes_no_export_where_it_may_not(tiny_bert, cache):
    assert SentenceEncoder.load(tiny_bert, make_export=False).backend.name == "torch"
    assert exports_in(cache) == []
    SentenceEncoder.load(tiny_bert)
    assert SentenceEncoder.load(tiny_bert, make_export=False).backend.name == "onnx"


def test_auto_runs_on_torch_where_the_export_fails(invoke, tiny_bert, lines, tmp_path, cache, expected, monkeypatch):
    def fail(*_, **__):
        raise SentcliError("it does not give the model's vectors")

    monkeypatch.setattr(publish, "export_model", fail)
    call = ["encode", lines, "-o", tmp_path / "v.npy", "-m", tiny_bert]
    failed = invoke(*call, "--backend", "onnx", check=1)
    assert "error: it does not give the model's vectors" in failed.stderr
    done = invoke(*call, "--json", "-", check=0)
    assert "running on torch: it does not give the model's vectors" in done.stderr
    assert json.loads(done.stdout)["protocol"]["backend"] == "torch"
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), expected)


def test_auto_runs_on_torch_where_the_cache_cannot_be_written(tiny_bert, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("SENTCLI_CACHE", str(tmp_path / "file"))
    said = []
    assert SentenceEncoder.load(tiny_bert, notice=said.append).backend.name == "torch"
    assert said[-1].startswith("running on torch: ")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_auto_runs_on_torch_with_a_cache_that_is_read_only(tiny_bert, cache):
    cache.parent.mkdir()
    cache.parent.chmod(0o500)
    said = []
    assert SentenceEncoder.load(tiny_bert, notice=said.append).backend.name == "torch"
    assert "Permission denied" in said[-1]


def test_an_export_in_a_cache_that_is_read_only_is_used(tiny_bert, cache, monkeypatch):
    SentenceEncoder.load(tiny_bert)

    def refuse(path, *_, **__):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "touch", refuse)
    assert SentenceEncoder.load(tiny_bert).backend.name == "onnx"


@pytest.mark.parametrize("missing", ["onnxruntime", "onnx"])
def test_without_the_libraries_auto_runs_on_torch_and_onnx_says_what_to_install(tiny_bert, cache, monkeypatch, missing):
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == missing else find(name, *more))
    monkeypatch.setitem(sys.modules, missing, None)
    assert SentenceEncoder.load(tiny_bert).backend.name == "torch"
    with pytest.raises(MissingExtraError, match=r"pip install 'sentcli\[cpu\]'"):
        SentenceEncoder.load(tiny_bert, backend="onnx")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["auto", "onnx"])
def test_an_export_of_another_pooling_is_not_used(with_weights, tiny_bert, cache, backend):
    found = SentenceEncoder.load(with_weights, pooling="cls", backend=backend)
    assert (found.backend.name, found.spec.pooling) == ("onnx", "cls")
    wanted = SentenceEncoder.load(tiny_bert, pooling="cls", backend="torch").encode(TEXTS)
    np.testing.assert_allclose(found.encode(TEXTS), wanted, atol=VECTORS)


@pytest.mark.parametrize("options", [{"pooling": "cls"}, {"normalize": True}, {"precision": "int8"}])
def test_what_an_export_without_weights_cannot_give_is_refused(without_weights, cache, options):
    with pytest.raises(InputError, match=str(without_weights)):
        SentenceEncoder.load(without_weights, backend="onnx", **options)


@pytest.mark.slow
def test_precision_and_normalisation_have_exports_of_their_own(tiny_bert, cache):
    wanted = SentenceEncoder.load(tiny_bert, backend="torch")
    for options in ({}, {"normalize": True}, {"precision": "int8"}):
        found = SentenceEncoder.load(tiny_bert, backend="onnx", **options)
        assert found.backend.precision == options.get("precision", "fp32")
        assert cosines(found.encode(TEXTS), wanted.encode(TEXTS)).min() > 0.99
        lengths = np.linalg.norm(found.encode(TEXTS), axis=1)
        assert np.allclose(lengths, 1, atol=VECTORS) == ("normalize" in options)
    assert len(exports_in(cache)) == 3


@pytest.mark.slow
def test_a_shorter_maximum_length_needs_no_export_of_its_own(tiny_bert, cache):
    SentenceEncoder.load(tiny_bert, backend="onnx")
    short = SentenceEncoder.load(tiny_bert, backend="onnx", max_length=8)
    assert len(exports_in(cache)) == 1
    wanted = SentenceEncoder.load(tiny_bert, backend="torch", max_length=8)
    np.testing.assert_allclose(short.encode(TEXTS), wanted.encode(TEXTS), atol=VECTORS)
    with pytest.raises(InputError, match=r"--max-length 41 .*40"):
        SentenceEncoder.load(tiny_bert, backend="onnx", max_length=41)


# What does not belong together


def message_of(folder, **options):
    with pytest.raises(SentcliError) as caught:
        SentenceEncoder.load(folder, **options)
    return str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["auto", "onnx"])
@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
def test_a_file_of_another_export_is_refused(export, tiny_roberta, tmp_path, name, backend):
    other = make_export(tiny_roberta, tmp_path / "other")
    shutil.copy(other / name, export / name)
    assert re.search(f"^{export / name} .*SHA-256", message_of(export, backend=backend))


@pytest.mark.parametrize("damage", [lambda p: p.write_bytes(p.read_bytes()[:-9]), lambda p: p.unlink()])
@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
def test_a_damaged_export_is_named(export, name, damage):
    damage(export / name)
    assert message_of(export).startswith(f"{export / name} is ")


def test_weights_that_have_changed_since_the_export_are_noticed(export, expected):
    state = load_file(export / "model.safetensors")
    save_file({name: value * 1.5 for name, value in state.items()}, export / "model.safetensors")
    for backend in ("auto", "onnx"):
        assert str(export / "model.onnx") in message_of(export, backend=backend)
    changed = SentenceEncoder.load(export, backend="torch").encode(TEXTS)
    assert np.abs(changed - expected).max() > 1e-3


@pytest.mark.slow
def test_a_model_that_has_changed_gets_a_new_export(tiny_bert, tmp_path, cache):
    model = Path(shutil.copytree(tiny_bert, tmp_path / "model"))
    before = SentenceEncoder.load(model).encode(TEXTS)
    state = load_file(model / "model.safetensors")
    save_file({name: value * 1.5 for name, value in state.items()}, model / "model.safetensors")
    after = SentenceEncoder.load(model)
    assert after.backend.name == "onnx"
    assert np.abs(after.encode(TEXTS) - before).max() > 1e-3
    np.testing.assert_allclose(
        after.encode(TEXTS), SentenceEncoder.load(model, backend="torch").encode(TEXTS), atol=VECTORS
    )


@pytest.mark.parametrize("backend", ["torch", "onnx", "auto"])
@pytest.mark.parametrize("kind", ["model", "export"])
def test_a_tokenizer_with_more_words_than_the_model_is_refused(
    tiny_bert, export, tmp_path, backend, kind, invoke, lines
):
    folder = export if kind == "export" else Path(shutil.copytree(tiny_bert, tmp_path / "model"))
    tokenizer = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["zebra"] = len(vocabulary)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")
    if kind == "export":
        described(folder)
    failed = invoke("encode", lines, "-o", tmp_path / "v.npy", "-m", folder, "--backend", backend, check=2)
    assert re.search(f"{folder}: .*{len(vocabulary)} .*{len(vocabulary) - 1}", failed.stderr)


def test_a_graph_that_onnxruntime_cannot_read_is_named(export):
    (export / "model.onnx").write_bytes(b"\x08\x0a" + b"\xff" * 200)
    described(export)
    assert message_of(export).startswith(f"onnxruntime cannot open {export / 'model.onnx'}: ")


def test_a_graph_of_another_program_is_refused(export):
    import onnx

    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n"])
    node = onnx.helper.make_node("Identity", ["x"], ["y"])
    result = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n"])
    graph = onnx.helper.make_graph([node], "other", [value], [result])
    opset = onnx.helper.make_opsetid("", 20)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=10), export / "model.onnx")
    described(export)
    assert re.search(r"model\.onnx .*\by\b.*\bx\b", message_of(export))


def test_a_graph_of_another_width_is_refused(export):
    described(export, dimension=48)
    assert re.search(r"model\.onnx .*32.*export\.json .*48", message_of(export))


@pytest.mark.parametrize("content", ["{", "[]", '{"format": 99}', '{"format": 1, "precision": "fp32"}'])
def test_a_damaged_description_is_named(export, content):
    (export / "export.json").write_text(content)
    assert str(export / "export.json") in message_of(export)


# Precisions and devices


def test_fp16_is_refused_on_a_cpu(tiny_bert, tmp_path):
    folder = make_export(tiny_bert, tmp_path / "half", "fp16")
    assert re.search(f"{folder} .*fp16", message_of(folder, backend="onnx", device="cpu"))
    assert SentenceEncoder.load(folder, backend="torch").backend.precision == "fp32"


def test_int8_is_refused_on_torch(invoke, tiny_bert, lines, tmp_path):
    call = ["encode", lines, "-o", tmp_path / "v.npy", "-m", tiny_bert, "--precision", "int8"]
    assert re.search("int8 .*onnx.*torch", invoke(*call, "--backend", "torch", check=2).stderr)
    assert "onnx on cpu, int8" in invoke(*call, check=0).stderr


@pytest.mark.parametrize("precision", ["auto", "int8"])
def test_an_int8_export_runs_in_int8(tiny_bert, tmp_path, expected, precision):
    folder = make_export(tiny_bert, tmp_path / "int8", "int8", weights=False)
    encoder = SentenceEncoder.load(folder, precision=precision)
    assert encoder.describe()["precision"] == "int8"
    assert 0.99 < cosines(encoder.encode(TEXTS), expected).mean() < 0.999999


def test_an_export_quantised_for_other_processors_is_said(tiny_bert, tmp_path, monkeypatch):
    monkeypatch.setattr(making, "sums_saturate", lambda runtime: False)
    folder = make_export(tiny_bert, tmp_path / "int8", "int8", weights=False)
    said = []
    monkeypatch.setattr(loading, "sums_saturate", lambda runtime: True)
    SentenceEncoder.load(folder, notice=said.append)
    assert "which this one lacks: its sums may overflow" in said[0]


def has_cuda():
    import onnxruntime

    return "CUDAExecutionProvider" in onnxruntime.get_available_providers()


@pytest.mark.skipif(has_cuda(), reason="this onnxruntime has CUDA")
def test_a_gpu_that_is_not_there_is_an_error_unless_the_cpu_is_accepted(
    invoke, with_weights, lines, tmp_path, expected
):
    call = ["encode", lines, "-o", tmp_path / "v.npy", "-m", with_weights, "--device", "cuda", "--backend", "onnx"]
    failed = invoke(*call, check=2)
    assert re.search("CPUExecutionProvider.*cuda", failed.stderr)
    assert "--allow-cpu-fallback" in failed.stderr
    assert not (tmp_path / "v.npy").exists()
    done = invoke(*call, "--allow-cpu-fallback", "--json", "-", check=0)
    assert "onnx on cpu, fp32" in done.stderr
    assert json.loads(done.stdout)["environment"]["device"] == "cpu"
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), expected, atol=VECTORS)


@pytest.mark.parametrize("device", ["mps", "cuda:x", "tpu"])
def test_devices_that_onnxruntime_does_not_have(with_weights, device):
    assert re.search(f"onnx .*cpu.*cuda.*{device!r}", message_of(with_weights, backend="onnx", device=device))


# OpenVINO


@pytest.fixture
def openvino():
    return pytest.importorskip("openvino")


def test_openvino_gives_the_same_vectors(openvino, with_weights, expected):
    encoder = SentenceEncoder.load(with_weights, backend="openvino")
    assert encoder.backend.name == "openvino"
    found = encoder.encode(TEXTS)
    assert cosines(found, expected).min() >= LIMIT
    np.testing.assert_allclose(found, expected, atol=VECTORS)
    np.testing.assert_allclose(encoder.encode(TEXTS, batch_tokens=1), found, atol=VECTORS)


@pytest.mark.slow
@pytest.mark.drawn
@pytest.mark.parametrize("kind", ["roberta", "mpnet", "distilbert", "electra"])
@pytest.mark.parametrize("pooling", ["cls", "lasttoken"])
def test_openvino_runs_every_architecture(openvino, tmp_path, kind, pooling):
    model = save_backbone(tmp_path / kind, kind=kind)
    found = SentenceEncoder.load(model, backend="openvino", pooling=pooling).encode(TEXTS)
    wanted = SentenceEncoder.load(model, backend="torch", pooling=pooling).encode(TEXTS)
    assert cosines(found, wanted).min() >= LIMIT


@pytest.mark.deep
def test_openvino_in_int8_has_an_export_of_its_own(openvino, tiny_bert, cache, expected):
    pytest.importorskip("nncf")
    for backend in ("onnx", "openvino", "openvino"):
        encoder = SentenceEncoder.load(tiny_bert, backend=backend, precision="int8")
        assert encoder.describe()["precision"] == "int8"
        assert cosines(encoder.encode(TEXTS), expected).mean() >= 0.99
    assert len(exports_in(cache)) == 2


@pytest.mark.deep
def test_int8_of_openvino_is_calibrated_on_own_texts(openvino, tiny_bert, tmp_path, invoke, cache):
    pytest.importorskip("nncf")
    own, out, other = tmp_path / "own.txt", tmp_path / "ov", tmp_path / "fixed"
    own.write_text("".join(f"report {i} on {'wine ' * (i % 9)}and boxes\n" for i in range(700)), "utf-8")
    call = ("export", "-m", tiny_bert, "--precision", "int8", "--runtime", "openvino", "--json", tmp_path / "e.json")
    assert invoke(*call, "-o", other).exit_code == 0
    usual = json.loads((tmp_path / "e.json").read_text("utf-8"))["results"]
    assert invoke(*call, "-o", out, "--texts", own).exit_code == 0
    results = json.loads((tmp_path / "e.json").read_text("utf-8"))["results"]
    assert results["texts"] == usual["texts"] + 300
    assert results["quantisation"]["activations"] != usual["quantisation"]["activations"]
    assert (out / "openvino.xml").exists() and not (out / "model.onnx").exists()

    lines = own.read_text("utf-8").split("\n")[:50]
    expected = SentenceEncoder.load(tiny_bert, backend="torch").encode(lines)
    for backend in ("auto", "openvino"):
        encoder = SentenceEncoder.load(out, backend=backend)
        assert (encoder.backend.name, encoder.describe()["precision"]) == ("openvino", "int8")
        assert cosines(encoder.encode(lines), expected).mean() >= 0.99
    assert not exports_in(cache)
    assert SentenceEncoder.load(out, backend="onnx").backend.name == "onnx"  # of the weights beside it


def test_what_own_texts_and_openvino_do_not_go_with(tiny_bert, tmp_path, invoke, lines):
    out = tmp_path / "no"
    assert invoke("export", "-m", tiny_bert, "-o", out, "--runtime", "openvino").exit_code == 2
    assert invoke("export", "-m", save_cross_encoder(tmp_path / "r"), "-o", out, "--texts", lines).exit_code == 2
    assert invoke("export", "-m", tiny_bert, "-o", out, "--texts", tmp_path / "none.txt").exit_code == 2
    (tmp_path / "few.txt").write_text("a text\nanother one\n", "utf-8")
    assert invoke("export", "-m", tiny_bert, "-o", out, "--texts", tmp_path / "few.txt").exit_code == 2
    assert invoke("export", "-m", tiny_bert, "-o", out, "--texts", lines, "--no-verify").exit_code == 2
    assert not out.exists()
    out.mkdir()
    (out / "own.txt").write_text(lines.read_text("utf-8"), "utf-8")
    (out / "export.json").write_text("{}", "utf-8")
    assert invoke("export", "-m", tiny_bert, "-o", out, "--overwrite", "--texts", out / "own.txt").exit_code == 2
    assert (out / "own.txt").exists()


@pytest.mark.slow
def test_two_exports_of_one_model_for_openvino_are_two_in_the_cache_of_scores(openvino, tiny_bert, tmp_path):
    from sentcli.model.identity import cache_key
    from sentcli.model.options import LoadOptions
    from sentcli.model.spec_files import read_spec

    pytest.importorskip("nncf")
    model, texts = (
        SentenceEncoder.load(tiny_bert, backend="torch").local,
        [f"row {i} of wine and boxes" for i in range(40)],
    )
    keys = []
    for name, own in (("a", ()), ("b", texts)):
        publish.export_model(model, tmp_path / name, "int8", runtime="openvino", texts=own, verify=False)
        keys.append(cache_key(read_spec(tmp_path / name), LoadOptions(device="cpu")))
    assert len({*keys}) == 2


def test_an_export_in_fp32_is_compared_on_own_texts_too(tiny_bert, tmp_path, invoke):
    found, own = [], tmp_path / "own.csv"
    own.write_text("body\n" + "".join(f"the cat sat on {i} mats\n" for i in range(12)), "utf-8")
    for more in ((), ("--texts", own, "--text-field", "body")):
        call = ("export", "-m", tiny_bert, "-o", tmp_path / "e", "--overwrite", "--json", tmp_path / "e.json")
        assert invoke(*call, *more).exit_code == 0
        found.append(json.loads((tmp_path / "e.json").read_text("utf-8"))["results"]["texts"])
    assert found[1] == found[0] + 6


def test_openvino_without_torch(openvino, run, without_weights, lines, tmp_path, no_torch, expected):
    call = ["encode", lines, "-o", tmp_path / "v.npy", "-m", without_weights, "--backend", "openvino"]
    assert "openvino on cpu, fp32" in run(*call, env=no_torch, check=0).stderr
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), expected, atol=VECTORS)


def test_openvino_runs_on_the_cpu_alone(openvino, with_weights):
    assert re.search("openvino .*cpu.*'cuda'", message_of(with_weights, backend="openvino", device="cuda"))


@pytest.mark.parametrize("good_calls", [0, 60])
def test_openvino_whose_rows_are_exchanged_is_found(openvino, invoke, with_weights, tmp_path, monkeypatch, good_calls):
    calls, infer = itertools.count(), openvino.InferRequest.infer

    def exchanged(request, inputs):
        outputs = infer(request, inputs)[0]
        return {0: outputs if next(calls) < good_calls else np.roll(outputs, 1, axis=0)}

    monkeypatch.setattr(openvino.InferRequest, "infer", exchanged)
    (tmp_path / "in.txt").write_text("".join(f"the cat number {i} ran\n" for i in range(300)))
    call = ["encode", tmp_path / "in.txt", "-o", tmp_path / "v.npy", "-m", with_weights, "--backend", "openvino"]
    assert "openvino" in invoke(*call, "--batch-tokens", 40, check=1).stderr
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".npy"] == []


@pytest.mark.slow
def test_openvino_with_weights_that_are_no_numbers_says_so(openvino, with_weights, monkeypatch):
    SentenceEncoder.load(with_weights, backend="openvino").encode(TEXTS)  # its first vectors are compared with torch's
    infer = openvino.InferRequest.infer
    monkeypatch.setattr(openvino.InferRequest, "infer", lambda self, inputs: {0: infer(self, inputs)[0] * np.nan})
    with pytest.raises(SentcliError, match="not finite"):
        SentenceEncoder.load(with_weights, backend="openvino").encode(TEXTS)


@pytest.mark.slow
def test_a_request_of_openvino_stays_with_its_thread(openvino, with_weights, monkeypatch):
    used, infer = set(), openvino.InferRequest.infer

    def noted(request, inputs):
        used.add((id(request), threading.get_ident()))
        return infer(request, inputs)

    monkeypatch.setattr(openvino.InferRequest, "infer", noted)
    monkeypatch.setattr("sentcli.model.openvino_backend.usable_cores", lambda: 3)
    monkeypatch.setattr("sentcli.model.encoding.CHUNK", 10)
    encoder = SentenceEncoder.load(with_weights, backend="openvino")
    used.clear()
    for _ in range(3):  # chunk after chunk, and call after call
        encoder.encode([f"the cat number {i} ran" for i in range(60)], batch_tokens=20)
    requests, threads = zip(*used, strict=True)
    assert len(used) == len(set(requests)) == len(set(threads)) == 3


def test_auto_does_not_take_openvino(openvino, with_weights, monkeypatch):
    assert SentenceEncoder.load(with_weights).backend.name == "onnx"
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert SentenceEncoder.load(with_weights).backend.name == "torch"


FORKED = """
import faulthandler, os, sys
from sentcli import SentenceEncoder
encoder = SentenceEncoder.load(sys.argv[1], backend="onnx")
texts = ["a cat", "a dog sat"]
vectors = encoder.encode(texts)
if (child := os.fork()) == 0:
    faulthandler.dump_traceback_later(20, exit=True)
    os._exit(2 + int((encoder.encode(texts) == vectors).all()))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes that are forked")
def test_a_forked_process_encodes(with_weights):
    alone = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "2"}
    ended = subprocess.run([sys.executable, "-c", FORKED, with_weights], timeout=60, check=False, env=alone)
    assert ended.returncode == 3


def test_without_openvino_its_backend_says_what_to_install(with_weights, monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(MissingExtraError, match=r"sentcli\[openvino\]"):
        SentenceEncoder.load(with_weights, backend="openvino")


# The cache


def test_of_several_that_want_an_export_one_makes_it(tiny_bert, cache, expected, monkeypatch):
    made, barrier = [], threading.Barrier(3)
    original = publish.export_model

    def counted(*arguments, **options):
        made.append(threading.get_ident())
        return original(*arguments, **options)

    def load():
        barrier.wait()
        found.append(SentenceEncoder.load(tiny_bert, backend="onnx").encode(TEXTS))

    found = []
    monkeypatch.setattr(publish, "export_model", counted)
    threads = [threading.Thread(target=load) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert len(exports_in(cache)) == 1
    assert len(found) == 3
    for vectors in found:
        np.testing.assert_allclose(vectors, expected, atol=VECTORS)


@pytest.mark.slow
def test_two_processes_that_want_an_export_at_once_make_one(tiny_bert, lines, tmp_path, cache, expected):
    calls = [["encode", lines, "-o", tmp_path / f"{n}.npy", "-m", tiny_bert, "--backend", "onnx"] for n in range(2)]
    started = [
        subprocess.Popen([sys.executable, "-m", "sentcli", *map(str, call)], stderr=subprocess.PIPE, text=True)
        for call in calls
    ]
    for process in started:
        errors = process.communicate(timeout=120)[1]
        assert process.returncode == 0, errors
    assert len(exports_in(cache)) == 1
    assert not list(cache.glob(".*.partial"))
    for n in range(2):
        np.testing.assert_allclose(np.load(tmp_path / f"{n}.npy"), expected, atol=VECTORS)


def kept_export(cache, name, size, used):
    """An export that was last used at a time."""
    folder = cache / name
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(bytes(size))
    (folder / "export.json").write_text("{}")
    os.utime(folder / "export.json", (used, used))
    return folder


def test_the_least_recently_used_exports_leave_a_full_cache(cache, monkeypatch):
    monkeypatch.setattr(loading, "MODEL_BYTES", 2500)
    old, older, recent = (kept_export(cache, n, 1000, t) for n, t in (("b", 200), ("a", 100), ("c", 300)))
    loading.prune(keep=recent)
    assert exports_in(cache) == ["b", "c"]
    monkeypatch.setattr(loading, "MODEL_BYTES", 10)
    loading.prune(keep=old)
    assert exports_in(cache) == ["b"], "what is needed now stays, however large and old it is"
    assert not older.exists()


def test_a_cache_that_is_not_full_is_left_alone(cache):
    folders = [kept_export(cache, name, 1000, 100) for name in "abc"]
    loading.prune(keep=folders[0])
    assert exports_in(cache) == ["a", "b", "c"]


def test_using_an_export_keeps_it_in_the_cache(tiny_bert, cache):
    SentenceEncoder.load(tiny_bert)
    (name,) = exports_in(cache)
    os.utime(cache / name / "export.json", (100, 100))
    SentenceEncoder.load(tiny_bert)
    assert (cache / name / "export.json").stat().st_mtime > 100


@pytest.mark.slow
def test_an_export_that_someone_has_half_deleted_is_made_again(tiny_bert, cache, expected):
    SentenceEncoder.load(tiny_bert)
    (name,) = exports_in(cache)
    (cache / name / "export.json").unlink()
    found = SentenceEncoder.load(tiny_bert)
    assert found.backend.name == "onnx"
    np.testing.assert_allclose(found.encode(TEXTS), expected, atol=VECTORS)


def test_another_half_deleted_export_does_not_matter(tiny_bert, cache):
    kept_export(cache, "half", 10, 100).joinpath("export.json").unlink()
    assert SentenceEncoder.load(tiny_bert, backend="onnx").backend.name == "onnx"


def test_a_damaged_export_in_the_cache_is_made_again(tiny_bert, cache, expected):
    SentenceEncoder.load(tiny_bert)
    (name,) = exports_in(cache)
    (cache / name / "model.onnx").write_bytes(b"torn")
    found = SentenceEncoder.load(tiny_bert)
    np.testing.assert_allclose(found.encode(TEXTS), expected, atol=VECTORS)


def test_architectures_that_are_written_are_those_that_auto_exports():
    from sentcli.onnx_export.transformer import GRAPH_FAMILIES

    assert set(loading.QUICK_ARCHITECTURES) == set(GRAPH_FAMILIES)


def test_half_precision_is_refused_on_a_cpu_before_it_is_exported(invoke, tiny_bert, lines, tmp_path, cache):
    call = ["encode", lines, "-o", tmp_path / "v.npy", "-m", tiny_bert, "--backend", "onnx", "--precision", "fp16"]
    assert "fp16" in invoke(*call, "--device", "cpu", check=2).stderr
    assert exports_in(cache) == []


def test_an_export_without_weights_has_one_pooling(invoke, without_weights, lines, tmp_path):
    call = ["encode", lines, "-o", tmp_path / "v.npy", "-m", without_weights, "--pooling", "max"]
    assert str(without_weights) in invoke(*call, check=2).stderr


def test_a_device_that_is_not_there_falls_back_to_the_export(tiny_bert, cache):
    encoder = SentenceEncoder.load(tiny_bert, device="cuda", allow_cpu_fallback=True)
    assert (encoder.backend.name, encoder.backend.device) == ("onnx", "cpu")
