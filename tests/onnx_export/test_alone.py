"""An exported folder gives its vectors to a program that has the tokenizers library and onnxruntime alone."""

import json
import shutil

import numpy as np
import pytest
from tokenizers import Tokenizer

from sentcli import SentenceEncoder
from sentcli.onnx_export import alone
from tests.model import folders
from tests.model.folders import TEXTS
from tests.tolerance import VECTORS

OPTIONS = ("lower-case", "left", "short", "truncated", "default-prompt", "nothing")


def run_alone(folder, texts):
    """The program that docs/export.md prints."""
    import onnxruntime

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    found = tokenizer.encode_batch(texts)
    ids, mask = (np.array([getattr(e, key) for e in found], np.int64) for key in ("ids", "attention_mask"))
    return session.run(None, {"input_ids": ids, "attention_mask": mask})[0]


@pytest.mark.slow
@pytest.mark.parametrize("option", OPTIONS)
def test_the_program_of_the_docs_gives_the_models_vectors(option, tmp_path, invoke):
    folder = folders.make(tmp_path / "st", "mean", [option])
    invoke("export", "-m", folder, "-o", tmp_path / "out", check=0)
    texts = [*TEXTS, *alone.HOSTILE, "the end of " + "a long text " * 40 + "is here"]
    expected = SentenceEncoder.load(folder, backend="torch", device="cpu").encode(texts, prompt="")
    np.testing.assert_allclose(run_alone(tmp_path / "out", texts), expected, atol=VECTORS)


def test_a_folder_whose_tokenizer_alone_would_differ_is_not_written(tmp_path, invoke, monkeypatch):
    from sentcli.model import saving

    def without_lower_casing(model, folder):
        facts = json.loads(model.tokenizer.backend.to_str())
        backend = Tokenizer.from_str(json.dumps({**facts, "normalizer": None}))
        backend.enable_padding()
        backend.save(str(folder / "tokenizer.json"))

    monkeypatch.setattr(saving, "write_tokenizer_json", without_lower_casing)
    folder = folders.make(tmp_path / "st", "mean", ["lower-case"])
    result = invoke("export", "-m", folder, "-o", tmp_path / "out", check=1)
    assert "tokenizer.json" in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_model_without_a_maximum_length_is_exported(tmp_path, invoke):
    """No text without end is tried; the positions of T5 are relative, so that nothing limits a text."""
    from tests.model.folders import edit, plain

    folder = tmp_path / "t5"
    shutil.copytree(plain("t5"), folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    del settings["model_max_length"]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    edit(folder, "config.json", max_position_embeddings=None)
    invoke("export", "-m", folder, "-o", tmp_path / "out", "--pooling", "mean", check=0)
    long = "the cat sat on the mat " * 150
    expected = SentenceEncoder.load(folder, pooling="mean", backend="torch", device="cpu").encode([long])
    np.testing.assert_allclose(run_alone(tmp_path / "out", [long]), expected, atol=VECTORS)
    facts = json.loads((tmp_path / "out" / "export.json").read_text())
    assert facts["verification"]["longest"] < 5000
