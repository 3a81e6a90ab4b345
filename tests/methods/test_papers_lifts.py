"""A small real training of every method on Wikipedia sentences, scored on every third pair of STS-B dev.

Two start models: all-MiniLM-L6-v2 by its [CLS] vector, which its authors never tuned, and a random two-layer BERT with
MiniLM's vocabulary, whose score comes from equal words alone.
"""

import json

import numpy as np
import pytest

pytestmark = pytest.mark.slow
deep = pytest.mark.deep
START = 80.29
"""What MiniLM's [CLS] has on these pairs."""


@pytest.fixture(scope="session")
def random_bert(tmp_path_factory, minilm):
    """A random BERT of 2 layers and 128 dimensions with the real vocabulary."""
    import torch
    from transformers import BertConfig, BertModel

    from sentcli import SentenceEncoder

    folder = tmp_path_factory.mktemp("models") / "random"
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=30522, hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=512,
        max_position_embeddings=128,
    )  # fmt: skip
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    SentenceEncoder.load(minilm).hf_tokenizer.save_pretrained(folder)
    return folder


def train(invoke, dev, out, method, model, *options):
    """Train and return the results and the lines of the steps; language models are not scored."""
    scored = [] if dev is None else ["--eval-data", dev]
    invoke("train", "--method", method, "-m", model, *scored, "-o", out, "--json", out / "r.json", *options, check=0)
    results = json.loads((out / "r.json").read_text())["results"]
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return results, [line for line in lines if "loss" in line]


@pytest.mark.parametrize(
    ("method", "steps", "options", "least"),
    [
        ("simcse", 12, [], 81.5),  # seen: 82.14; the others are pinned by the authors' steps in tests/reference
        pytest.param("simcse", 24, [], 82.2, marks=deep),  # 82.93
        pytest.param("informin-cl", 12, [], 81.5, marks=deep),  # 82.14
        # 82.19; the paper's warm-up is longer than this run
        pytest.param("micse", 12, ["--set", "warmup_steps=0"], 81.5, marks=deep),
        # 80.97; the scripts' 7e-6 is made for 30,000 steps
        pytest.param("infocse", 12, ["--learning-rate", "6e-5"], 80.6, marks=deep),
        pytest.param("whitenedcse", 12, ["--learning-rate", "6e-5"], 80.8, marks=deep),  # 81.30
        pytest.param("ct", 12, ["--max-length", "32", "--learning-rate", "2e-5"], 81.8, marks=deep),  # 82.48
        pytest.param("mirror-bert", 12, [], 81.5, marks=deep),  # 82.10
    ],
)
def test_minilm_gets_better(invoke, minilm, data, short_dev, tmp_path, method, steps, options, least):
    size = ["--limit", 32 * steps, "--batch-size", 32, "--max-steps", steps, "--eval-every", steps]
    text = ["--data", data / "corpus" / "wiki.txt", "--pooling", "cls"]
    results, lines = train(invoke, short_dev, tmp_path / "m", method, minilm, *text, *size, *options)
    assert results["start_dev_spearman"] == pytest.approx(START, abs=0.03)
    assert results["best_dev_spearman"] > least
    # MiniLM tells 32 sentences apart before it is trained: most losses are near 0.001 throughout, so only dev says much
    assert len(lines) == results["steps"] == steps
    assert all(np.isfinite(value) for line in lines for value in line.values())


@deep
def test_is_bert_lifts_a_random_model(invoke, random_bert, data, short_dev, tmp_path):
    results, _ = train(
        invoke, short_dev, tmp_path / "m", "is-bert", random_bert, "--data", data / "corpus" / "wiki.txt",
        "--limit", 12800, "--batch-size", 64, "--max-steps", 200, "--eval-every", 200, "--learning-rate", "1e-4",
        "--max-length", 32,
    )  # fmt: skip
    assert results["best_dev_spearman"] > results["start_dev_spearman"] + 5  # seen: 53.55 to 60.71


@deep
def test_scored_pairs_lift_a_random_model(invoke, random_bert, data, short_dev, tmp_path):
    results, _ = train(
        invoke, short_dev, tmp_path / "m", "sts-regression", random_bert, "--data", data / "senteval",
        "--max-steps", 200, "--eval-every", 100, "--learning-rate", "1e-3", "--pooling", "mean",
    )  # fmt: skip
    assert results["best_dev_spearman"] > results["start_dev_spearman"] + 12  # seen: 53.57 to 69.04


@pytest.mark.deep
@pytest.mark.parametrize(("method", "options"), [("mlm", []), ("infocse", ["--stage", "pretrain"])])
def test_language_models_learn_words(invoke, random_bert, data, tmp_path, method, options):
    _, lines = train(
        invoke, None, tmp_path / "m", method, random_bert, "--data", data / "corpus" / "wiki.txt", "--limit", 2560,
        "--batch-size", 32, "--max-steps", 80, "--learning-rate", "2e-3", "--max-length", 32, *options,
    )  # fmt: skip
    losses = [line["loss"] for line in lines]
    assert np.mean(losses[-20:]) < 0.8 * losses[0]  # the words' frequencies alone give about 0.75


@deep
def test_whitening_lifts_the_cls_vector(invoke, minilm, data, short_dev, tmp_path):
    options = ["--data", data / "corpus" / "wiki.txt", "--limit", 2000, "--pooling", "cls"]
    results, _ = train(invoke, short_dev, tmp_path / "m", "whitening", minilm, *options)
    assert results["final_dev_spearman"] > 84  # seen: 85.23
