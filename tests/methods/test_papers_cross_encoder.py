"""Training a cross-encoder, against sentence-transformers' loss and `CrossEncoder`."""

import csv
import json
import re

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from sentcli.encoder.reranker import Reranker
from tests.conftest import WORDS, save_backbone, save_cross_encoder

ROWS = [(f"the {a}", f"a {a} and the {b}", i % 6) for i, (a, b) in enumerate(zip(WORDS[:24], WORDS[3:27], strict=True))]
PAIRS = [row[:2] for row in ROWS]


def peer(folder, **options):
    from sentence_transformers import CrossEncoder

    return CrossEncoder(str(folder), device="cpu", **options)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "pairs.csv"
    with path.open("w", newline="") as handle:
        csv.writer(handle).writerows([("sentence1", "sentence2", "score"), *ROWS])
    return path


def train(invoke, model, data, out, *options, check=0):
    return invoke("train", "--method", "cross-encoder", "-m", model, "--data", data, "-o", out, *options, check=check)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_a_step_has_the_peers_loss(invoke, table, tmp_path, kind):
    start = save_cross_encoder(tmp_path / "start", kind)
    config = json.loads((start / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (start / "config.json").write_text(json.dumps(config))
    train(invoke, start, table, tmp_path / "m", "--batch-size", len(ROWS), "--max-steps", 1)
    logits = torch.from_numpy(peer(start).predict(PAIRS, activation_fn=torch.nn.Identity()))
    scores = torch.tensor([row[2] / 5 for row in ROWS])
    expected = torch.nn.functional.binary_cross_entropy_with_logits(logits, scores)
    first = json.loads((tmp_path / "m" / "metrics.jsonl").read_text().splitlines()[0])
    assert first["loss"] == pytest.approx(float(expected), abs=1e-5)


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_the_folder_is_a_cross_encoder_of_sentence_transformers(invoke, table, tmp_path, kind):
    start = save_backbone(tmp_path / "start", kind=kind)
    train(
        invoke, start, table, tmp_path / "m", "--max-steps", 60, "--learning-rate", "1e-2", "--set", "dropout=0",
        "--eval-every", 20, "--dev", table,
    )  # fmt: skip
    theirs = peer(tmp_path / "m").predict(PAIRS)
    np.testing.assert_allclose(Reranker.load(tmp_path / "m").scores(PAIRS), theirs, atol=1e-5)
    expected = 100 * spearmanr(theirs, [row[2] for row in ROWS]).statistic
    report = tmp_path / "scores.json"
    invoke("sts-eval", "-m", tmp_path / "m", "--pairs", table, "--json", report, check=0)
    scored = json.loads(report.read_text())
    assert scored["protocol"]["similarity"] == "cross-encoder"
    assert scored["results"]["pairs"]["spearman"] == pytest.approx(expected, abs=0.01)
    trained = json.loads((tmp_path / "m" / "sentcli.json").read_text())["results"]["dev"]
    assert trained["best"] == pytest.approx(expected, abs=0.01)
    assert expected > 60, "it has learnt the pairs"


def test_a_cross_encoder_goes_on_from_berts_pooler(tiny_bert):
    from sentcli import SentenceEncoder
    from sentcli.io.weights import load_state_dict
    from sentcli.model.cross_encoder_files import as_cross_encoder

    encoder = SentenceEncoder.load(tiny_bert, edit=as_cross_encoder)
    dense = encoder.torch_module.stack[-1].dense
    torch.testing.assert_close(dense.weight.detach(), load_state_dict(tiny_bert)["pooler.dense.weight"])


@pytest.mark.slow
def test_it_resumes_to_the_same_bytes(invoke, table, tmp_path):
    start = save_cross_encoder(tmp_path / "start")
    options = ("--max-steps", 6, "--save-every", 3, "--seed", 5)
    train(invoke, start, table, tmp_path / "whole", *options)
    train(invoke, tmp_path / "whole", table, tmp_path / "again", *options)
    whole, again = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "again"))
    assert whole != again, "training goes on from a cross-encoder that train made"
    train(invoke, start, table, tmp_path / "whole", *options, "--resume")
    assert (tmp_path / "whole" / "model.safetensors").read_bytes() == whole


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--set", "objectives+=regression"], "regression"),
        (["--text-of", "pairs"], "--text-of"),
    ],
)
def test_what_needs_vectors_is_refused(invoke, tiny_bert, table, tmp_path, options, reason):
    result = train(invoke, tiny_bert, table, tmp_path / "m", *options, check=2)
    assert re.search(reason, result.stderr)
    assert not (tmp_path / "m").exists()


def test_other_verbs_and_models_are_refused(invoke, table, tmp_path):
    cross_encoder = save_cross_encoder(tmp_path / "cross")
    for verb in (["encode", table, "-o", tmp_path / "v.npy"], ["sts-eval", "--pairs", table, "--pooling", "nothing"]):
        invoke(verb[0], *verb[1:], "-m", cross_encoder, check=2)
    labels = tmp_path / "labels.csv"
    labels.write_text("text,label\n" + "".join(f"{word},{i % 2}\n" for i, word in enumerate(WORDS[:30])))
    result = train(invoke, cross_encoder, table, tmp_path / "m", "--dev", labels, check=2)
    assert "vectors" in result.stderr
    other = train(invoke, save_backbone(tmp_path / "d", kind="distilbert"), table, tmp_path / "m", check=2)
    assert "BertForSequenceClassification" in other.stderr
    for method in ("sts-regression", "simcse"):
        call = ["train", "--method", method, "-m", cross_encoder, "--data", table, "-o", tmp_path / "m"]
        invoke(*call, "--set", "objectives+=pair-score", check=2)
