"""Training a cross-encoder, against sentence-transformers' loss and `CrossEncoder`."""

import csv
import json
import re

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from sentcli.encoder.reranker import Reranker
from sentcli.evaluation.sts import resolved
from tests.conftest import WORDS, save_backbone, save_cross_encoder

ROWS = [(f"the {a}", f"a {a} and the {b}", i % 6) for i, (a, b) in enumerate(zip(WORDS[:24], WORDS[3:27], strict=True))]
PAIRS = [row[:2] for row in ROWS]
OF_BERT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
OF_MODERNBERT = {"attention_dropout": 0.0, "mlp_dropout": 0.0, "embedding_dropout": 0.0}
WITHOUT_DROPOUT = {"modernbert": OF_MODERNBERT, **dict.fromkeys(("bert", "roberta", "deberta", "deberta-v2"), OF_BERT)}


def slow(*values):
    """A case of a test that runs with the slow ones."""
    return pytest.param(*values, marks=pytest.mark.slow)


ALL_BUT_ONE = [
    slow("bert", {}), slow("roberta", {}), slow("deberta-v2", {}), slow("deberta", {"pooler_hidden_act": "tanh"}),
    slow("modernbert", {"classifier_pooling": "mean", "classifier_bias": True, "norm_bias": True}),
]  # fmt: skip
"""The classifiers that a step is compared for, without that of the quick test."""


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


@pytest.mark.parametrize(("kind", "settings"), [("modernbert", {}), *ALL_BUT_ONE])
def test_a_step_is_the_peers(invoke, table, tmp_path, kind, settings):
    from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss

    start = save_cross_encoder(tmp_path / "start", kind, **{**WITHOUT_DROPOUT[kind], **settings})
    # with so large an epsilon, a step of Adam tells the size of a gradient and not its sign alone
    train(
        invoke, start, table, tmp_path / "m", "--batch-size", len(ROWS), "--max-steps", 1, "--learning-rate", 0.01,
        *[word for change in ("warmup_share=0", "weight_decay=0", "adam_epsilon=1") for word in ("--set", change)],
    )  # fmt: skip
    theirs = peer(start)
    scores = torch.tensor([row[2] / 5 for row in ROWS])
    loss = BinaryCrossEntropyLoss(theirs)([[first for first, _ in PAIRS], [second for _, second in PAIRS]], scores)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
    torch.optim.AdamW(theirs.parameters(), lr=0.01, weight_decay=0, eps=1).step()
    first = json.loads((tmp_path / "m" / "metrics.jsonl").read_text().splitlines()[0])
    assert first["loss"] == pytest.approx(loss.item(), abs=1e-6)
    before = peer(start).model.state_dict()
    stepped = theirs.model.state_dict()
    found = peer(tmp_path / "m").model.state_dict()
    assert found.keys() == stepped.keys()
    moved = 0.0
    for name, weight in stepped.items():
        torch.testing.assert_close(found[name], weight, rtol=0, atol=1e-6)
        moved = max(moved, float((weight - before[name]).abs().max()))
    assert moved > 1e-4, "the step can be told from none"


OTHERS = [pytest.param(kind, marks=pytest.mark.deep) for kind in ("roberta", "deberta-v2", "deberta")]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "modernbert", *OTHERS])
def test_the_folder_is_a_cross_encoder_of_sentence_transformers(invoke, table, tmp_path, kind):
    start = save_backbone(tmp_path / "start", kind=kind)
    train(
        invoke, start, table, tmp_path / "m", "--max-steps", 60, "--learning-rate", "1e-2", "--set", "dropout=0",
        "--eval-every", 20, "--dev", table,
    )  # fmt: skip
    theirs = peer(tmp_path / "m").predict(PAIRS)
    scores = Reranker.load(tmp_path / "m").scores(PAIRS)
    np.testing.assert_allclose(scores, theirs, atol=1e-5)
    # of our scores, at the resolution at which they are ranked: in theirs, rounding breaks the ties of equal scores
    expected = 100 * spearmanr(resolved(scores, np.abs(scores).max()), [row[2] for row in ROWS]).statistic
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


def write_binary(path):
    with path.open("w", newline="") as handle:
        rows = [(first, second, score % 2) for first, second, score in ROWS]
        csv.writer(handle).writerows([("sentence1", "sentence2", "label"), *rows])
    return path


@pytest.mark.parametrize("dev", ["binary", "scored"])
def test_pairs_with_labels_are_a_dev_set(invoke, table, tmp_path, dev):
    """By average precision as they are, by Spearman's correlation where they are called scored."""
    from sklearn.metrics import average_precision_score

    start = save_cross_encoder(tmp_path / "start")
    pairs = write_binary(tmp_path / "labels.csv")
    kind = ["--kind", "scored"] if dev == "scored" else []
    train(invoke, start, table, tmp_path / "m", "--dev", pairs, *kind, "--max-steps", 2, "--eval-every", 1)
    found = json.loads((tmp_path / "m" / "sentcli.json").read_text())["results"]["dev"]
    labels = [row[2] % 2 for row in ROWS]
    theirs = peer(start).predict(PAIRS)
    if dev == "scored":
        assert (found["metric"], found["start"]) == ("spearman", pytest.approx(100 * spearmanr(theirs, labels)[0]))
    else:
        expected = average_precision_score(labels, theirs)
        assert (found["metric"], found["start"]) == ("average_precision", pytest.approx(expected))


def test_a_dev_set_that_needs_vectors_names_those_that_do_not(invoke, tiny_bert, table, tmp_path):
    triplets = tmp_path / "triplets.csv"
    rows = [(first, second, "a river") for first, second, _ in ROWS]
    with triplets.open("w", newline="") as handle:
        csv.writer(handle).writerows([("anchor", "positive", "negative"), *rows])
    done = train(invoke, tiny_bert, table, tmp_path / "m", "--dev", triplets, check=2)
    assert "--kind scored" in done.stderr
    assert "--kind binary" in done.stderr


def test_no_word_of_what_it_does_not_make(invoke, table, tmp_path):
    start = save_cross_encoder(tmp_path / "start")
    options = ("--dev", table, "--max-steps", 1, "--learning-rate", "1e-30")
    done = train(invoke, start, table, tmp_path / "m", *options)
    assert "no step was better" in done.stderr
    assert "vectors" not in done.stderr
    card = (tmp_path / "m" / "README.md").read_text()
    assert "pipeline_tag: text-ranking" in card
    assert "pipeline_tag: sentence-similarity" not in card
    assert "vectors" not in card
