"""A training run: the folder that it leaves, its log, its seeds, and how it ends."""

import hashlib
import json
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from sentcli import SentenceEncoder
from sentcli.methods.method import Settings
from sentcli.training.batches import Order
from tests.conftest import heed_ctrl_c, save_backbone
from tests.tolerance import VECTORS


def train(call, model, text, output, *options, check=0):
    return call(
        "train", "--method", "simcse", "-m", model, "--data", text, "-o", output, "--batch-size", 16, *options,
        check=check,
    )  # fmt: skip


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_a_run_writes_a_model_that_opens_everywhere(invoke, tiny_bert, text, dev, tmp_path, sentences):
    out = tmp_path / "new" / "folder"
    train(
        invoke, tiny_bert, text, out, "--max-steps", 6, "--eval-data", dev, "--eval-every", 4,
        "--json", tmp_path / "r.json", "--learning-rate", 1e-3,
    )  # fmt: skip
    results = json.loads((tmp_path / "r.json").read_text())["results"]
    assert {
        "start_dev_spearman", "best_dev_spearman", "best_step", "final_dev_spearman", "steps", "sentences_per_second",
    } <= set(results)  # fmt: skip
    steps = [line for line in lines(out) if "loss" in line]
    scores = {line["step"]: line["dev_spearman"] for line in lines(out) if "dev_spearman" in line}
    assert [line["step"] for line in steps] == [1, 2, 3, 4, 5, 6]
    assert all(line["contrastive"] == line["loss"] for line in steps)
    assert list(scores) == [0, 4, 6]
    assert results["best_dev_spearman"] == max(scores.values())
    assert results["start_dev_spearman"] == scores[0]

    encoder = SentenceEncoder.load(out)
    assert encoder.spec.pooling == "cls"
    from sentence_transformers import SentenceTransformer

    ours, theirs = encoder.encode(sentences), SentenceTransformer(str(out), device="cpu").encode(sentences)
    np.testing.assert_allclose(ours, theirs, atol=VECTORS)
    # what was kept is the best, not the last
    from sentcli.evaluation import sts

    again = sts.evaluate_similarity(encoder, sts.load_similarity_tasks(dev, ["STSBenchmark"], "dev"))
    assert again["STSBenchmark"].value == pytest.approx(results["best_dev_spearman"], abs=1e-3)

    config = json.loads((out / "sentcli.json").read_text())
    assert config["method"]["name"] == "simcse"
    assert config["method"]["contrastive"]["temperature"] == 0.05
    assert config["method"]["head"] == {"kind": "mlp"}
    assert config["settings"]["max_steps"] == 6
    assert config["data"][0]["sha256"] == hashlib.sha256(text.read_bytes()).hexdigest()
    from huggingface_hub import ModelCard

    card = ModelCard.load(out / "README.md")
    assert "simcse" in card.text and text.name in card.text and card.data.datasets is None
    (score,) = card.data.eval_results
    assert (score.dataset_name, score.metric_value) == ("STSBenchmark", results["best_dev_spearman"])
    assert not list(out.glob("best*")) and not list(out.glob(".*partial"))


@pytest.mark.slow
def test_the_training_head_never_encodes_unasked(invoke, tiny_bert, text, tmp_path, sentences):
    train(invoke, tiny_bert, text, tmp_path / "m", "--max-steps", 2)
    plain = SentenceEncoder.load(tmp_path / "m").encode(sentences)
    with_head = SentenceEncoder.load(tmp_path / "m", pooling="cls-head").encode(sentences)
    head = torch.nn.Linear(32, 32)
    from safetensors.torch import load_file

    stored = load_file(tmp_path / "m" / "training_head" / "model.safetensors")
    head.load_state_dict({name.removeprefix("dense."): value for name, value in stored.items()})
    with torch.no_grad():
        np.testing.assert_allclose(with_head, torch.tanh(head(torch.tensor(plain))), atol=VECTORS)
    train(invoke, tiny_bert, text, tmp_path / "n", "--max-steps", 2, "--set", "head=none")
    assert not (tmp_path / "n" / "training_head").exists()


def test_a_head_with_batch_norm_encodes_by_its_running_statistics(invoke, tiny_bert, text, tmp_path, sentences):
    """As in InfoCSE's table 9; DiffCSE's head is the same."""
    from safetensors.torch import load_file
    from sentence_transformers import SentenceTransformer

    from sentcli.methods.heads import BatchNormLayers

    train(invoke, tiny_bert, text, tmp_path / "m", "--max-steps", 5, "--set", "head=batchnorm")
    head = BatchNormLayers(32)
    head.load_state_dict(load_file(tmp_path / "m" / "training_head" / "model.safetensors"))
    plain = SentenceEncoder.load(tmp_path / "m").encode(sentences)
    with torch.no_grad():
        expected = head.eval()(torch.tensor(plain)[None])[0].numpy()
    with_head = SentenceEncoder.load(tmp_path / "m", pooling="cls-head", backend="torch")
    np.testing.assert_allclose(with_head.encode(sentences), expected, atol=VECTORS)
    assert with_head.spec.pooling == "cls-head"
    exported = SentenceEncoder.load(tmp_path / "m", pooling="cls-head", backend="onnx")
    np.testing.assert_allclose(exported.encode(sentences), expected, atol=1e-4)
    with_head.save(tmp_path / "saved")
    again = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_allclose(again.encode(sentences), expected, atol=VECTORS)


@pytest.mark.slow
def test_same_seed_same_bytes(invoke, tiny_bert, text, tmp_path):
    digests = {}
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        train(invoke, tiny_bert, text, tmp_path / name, "--max-steps", 3, "--seed", seed)
        digests[name] = hashlib.sha256((tmp_path / name / "model.safetensors").read_bytes()).hexdigest()
    assert digests["a"] == digests["b"] != digests["c"]


@pytest.mark.slow
def test_training_lowers_the_loss(invoke, tiny_bert, text, tmp_path):
    train(invoke, tiny_bert, text, tmp_path / "m", "--max-steps", 120, "--learning-rate", 3e-3)
    losses = [line["loss"] for line in lines(tmp_path / "m")]
    assert np.mean(losses[-5:]) < 0.5 * np.mean(losses[:5])


@pytest.mark.slow
def test_a_folder_of_text_files_and_a_directory_of_vectors_are_their_texts(invoke, tiny_bert, text, tmp_path):
    parts, rows = tmp_path / "parts", text.read_text("utf-8").splitlines(keepends=True)
    parts.mkdir()
    for name, share in (("a.txt", rows[:20]), ("b.txt", rows[20:])):
        (parts / name).write_text("".join(share), "utf-8")
    invoke("encode", text, "-o", tmp_path / "vectors", "-m", tiny_bert, "--shard-rows", 16, check=0)
    weights = []
    for number, data in enumerate((text, parts, tmp_path / "vectors")):
        train(invoke, tiny_bert, data, tmp_path / str(number), "--max-steps", 1)
        weights.append((tmp_path / str(number) / "model.safetensors").read_bytes())
    assert weights[0] == weights[1] == weights[2]


def test_data_from_several_files_and_tables(invoke, tiny_bert, text, tmp_path):
    table = tmp_path / "more.csv"
    table.write_text("id,body\n" + "".join(f"{i},a small cat {i}\n" for i in range(20)))
    plain = tmp_path / "other.csv"
    plain.write_text("body\n" + "".join(f"the old tree {i}\n" for i in range(20)))
    invoke(
        "train", "--method", "simcse", "-m", tiny_bert, "--data", table, plain, "-o", tmp_path / "m", "--max-steps", 1,
        "--text-field", "body", "--batch-size", 40, check=0,
    )  # fmt: skip
    config = json.loads((tmp_path / "m" / "sentcli.json").read_text())
    assert [entry["sentences"] for entry in config["data"]] == [20, 20]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--batch-size", "5000"], "5000 .*133 "),
        (["--batch-size", "1"], "batch_size .*2.*1"),
        (["--learning-rate", "0"], "learning_rate .*0"),
        (["--set", "temperatur=1"], "--set temperatur: simcse .*'temperature'"),
        (["--set", "temperature"], "--set temperature.*KEY=VALUE"),
        (["--set", "temperature=warm"], "--set temperature=warm"),
        (["--set", "head=big"], "head 'big'.*mlp, batchnorm, whitening, none"),
        (["--method", "simsce"], "'simsce'.*'simcse'"),
        (["--max-length", "41"], "--max-length 41 .*40 "),
        (["--eval-data", "/nonexistent"], "/nonexistent .*STS/.*SICK/"),
        (["--pooling", "clss"], "'clss'.*'cls'"),
    ],
)
def test_wrong_usage_starts_nothing(invoke, tiny_bert, text, tmp_path, options, message):
    result = train(invoke, tiny_bert, text, tmp_path / "m", *options, check=2)
    assert re.search(message, " ".join(result.stderr.split()))
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", ""), (b" \n\t\n\n", ""), (b"a\n\xff\n", ", line 2: ")],
)
def test_unusable_text(invoke, tiny_bert, tmp_path, content, message):
    (tmp_path / "bad.txt").write_bytes(content)
    result = train(invoke, tiny_bert, tmp_path / "bad.txt", tmp_path / "m", check=2)
    assert str(tmp_path / "bad.txt") + message in " ".join(result.stderr.split())
    assert not (tmp_path / "m").exists()


def test_existing_output(invoke, tiny_bert, text, tmp_path):
    train(invoke, tiny_bert, text, tmp_path / "m", "--max-steps", 1)
    before = (tmp_path / "m" / "model.safetensors").read_bytes()
    refused = train(invoke, tiny_bert, text, tmp_path / "m", "--max-steps", 2, check=2)
    assert "--overwrite" in refused.stderr
    assert (tmp_path / "m" / "model.safetensors").read_bytes() == before
    # a run that cannot start leaves the old one alone, also with --overwrite
    refused = train(invoke, tiny_bert, text, tmp_path / "m", "--overwrite", "--batch-size", 5000, check=2)
    assert "--batch-size" in refused.stderr
    assert (tmp_path / "m" / "model.safetensors").read_bytes() == before
    train(invoke, tiny_bert, text, tmp_path / "m", "--max-steps", 2, "--overwrite")
    assert (tmp_path / "m" / "model.safetensors").read_bytes() != before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    refused = train(invoke, tiny_bert, text, tmp_path / "mine", "--overwrite", check=2)
    assert re.search(rf"{tmp_path}/mine .*thesis\.tex.*-o", " ".join(refused.stderr.split()))
    assert (tmp_path / "mine" / "thesis.tex").exists()


def test_a_loss_that_is_not_a_number_stops(invoke, tmp_path, text):
    from safetensors.torch import load_file, save_file

    model = save_backbone(tmp_path / "broken")
    state = load_file(model / "model.safetensors")
    state["embeddings.LayerNorm.weight"][0] = float("nan")
    save_file(state, model / "model.safetensors", metadata={"format": "pt"})
    result = train(invoke, model, text, tmp_path / "m", check=1)
    assert re.search("step 1: .*loss .*nan", " ".join(result.stderr.split()))
    assert not (tmp_path / "m" / "model.safetensors").exists()


@pytest.mark.slow
def test_ctrl_c_ends_with_130_and_no_model(tiny_bert, text, tmp_path):
    arguments = ["train", "--method", "simcse", "-m", tiny_bert, "--data", text, "-o", tmp_path / "m", "--max-steps", 10**6, "--batch-size", 16]  # fmt: skip  # noqa: E501
    process = subprocess.Popen(
        [sys.executable, "-m", "sentcli", *map(str, arguments)],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_ctrl_c,
    )
    metrics = tmp_path / "m" / "metrics.jsonl"
    deadline = time.time() + 120
    while not (metrics.exists() and metrics.read_text().count("\n") > 3):
        assert time.time() < deadline and process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in stderr and "interrupted" in stderr
    assert re.search(f"{tmp_path}/m .*--resume", " ".join(stderr.split()))
    assert not (tmp_path / "m" / "model.safetensors").exists()


def test_epochs_are_permutations_and_depend_on_the_seed():
    def take(seed, batches):
        return [Order(10, 4, seed).batch(i) for i in range(batches)]

    first = take(1, 6)  # 3 batches an epoch: 4, 4, 2
    assert [len(batch) for batch in first] == [4, 4, 2] * 2
    for epoch in (first[:3], first[3:]):
        assert sorted(i for batch in epoch for i in batch) == list(range(10))
    assert first[:3] != first[3:]
    assert take(1, 6) == first != take(2, 6)
    assert [len(Order(9, 4, 0).batch(i)) for i in range(4)] == [4, 4, 4, 4]


def test_learning_rate_decays_linearly_to_zero():
    settings = Settings(learning_rate=1.0, warmup_steps=2)
    rates = [settings.learning_rate * settings.rate(step, 10) for step in range(11)]
    np.testing.assert_allclose(rates, [0, 0.5, 1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125, 0], atol=1e-12)


def test_adam_without_bias_correction():
    """The plain formulas of the first BERT code, weight decay included."""
    from sentcli.training.gradients import UncorrectedAdamW

    weight = torch.nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    optimizer = UncorrectedAdamW([weight], lr=0.1, eps=1e-12, weight_decay=0.5)
    value, first, second = weight.detach().clone(), torch.zeros(2).double(), torch.zeros(2).double()
    for step in range(30):
        gradient = torch.tensor([0.3, -0.1], dtype=torch.float64) * (step % 7 - 2.5)
        weight.grad = gradient.clone()
        optimizer.step()
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        value = value - 0.1 * 0.5 * value - 0.1 * first / (second.sqrt() + 1e-12)
        torch.testing.assert_close(weight.detach(), value, rtol=1e-6, atol=1e-9)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1)


def test_what_a_run_reads_is_never_inside_its_output(invoke, tiny_bert, text, tmp_path):
    train(invoke, tiny_bert, text, tmp_path / "m", "--max-steps", 1)
    before = (tmp_path / "m" / "model.safetensors").read_bytes()
    refused = train(invoke, tmp_path / "m", text, tmp_path / "m", "--overwrite", check=2)
    assert re.search(f"{tmp_path}/m.*-o", " ".join(refused.stderr.split()))
    assert (tmp_path / "m" / "model.safetensors").read_bytes() == before
    (tmp_path / "m" / "notes.txt").write_text("mine\n" * 20)
    train(invoke, tiny_bert, tmp_path / "m" / "notes.txt", tmp_path / "m", "--overwrite", check=2)
    train(invoke, tiny_bert, text, tmp_path / "m", "--overwrite", check=2)  # notes.txt is not the run's
    assert (tmp_path / "m" / "notes.txt").exists()
    train(invoke, tiny_bert, text, "-", check=2)


def test_a_link_to_an_empty_folder_is_an_output(invoke, tiny_bert, text, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    train(invoke, tiny_bert, text, tmp_path / "link", "--max-steps", 1)
    assert (tmp_path / "real" / "model.safetensors").exists()


@pytest.mark.parametrize(
    "pair",
    [
        "max_steps=-1",
        "clip_norm=-1",
        "temperature=0",
        "temperature=-0.05",
        "seed=-1",
        "weight_decay=-1",
        "learning_rate=nan",
    ],
)
def test_settings_out_of_range(invoke, tiny_bert, text, tmp_path, pair):
    result = train(invoke, tiny_bert, text, tmp_path / "m", "--set", pair, check=2)
    assert pair.split("=")[0] in result.stderr
    assert not (tmp_path / "m").exists()


class OneLayer(torch.nn.Linear):
    """What `BestKeeper` needs of a model."""

    has_spread = False

    def candidates(self):
        return {0: self}

    def products(self, candidate=0):
        return torch.nn.ModuleDict({"encoder": self})


def best_keeper(model, folder, scores, **settings):
    """Return a `BestKeeper` that reads its scores from an iterator."""
    from sentcli.training.dev import DevSet
    from sentcli.training.loop import BestKeeper
    from sentcli.training.run_folder import RunFolder

    dev = DevSet("STSBenchmark", "spearman", "dev_spearman", None)
    return BestKeeper(
        model,
        RunFolder(folder),
        lambda encoder, is_start: {"dev_spearman": next(scores)},
        None,
        Settings(**settings),
        dev,
    )


def test_of_equal_scores_the_earlier_weights_stay(tmp_path):
    model = OneLayer(2, 2)
    keeper = best_keeper(model, tmp_path / "m", iter([1.0, 5.0, 5.0]))
    keeper.evaluate(0)
    keeper.evaluate(10)
    kept = model.weight.detach().clone()
    model.weight.data += 1
    keeper.evaluate(20)
    keeper.restore_best()
    assert keeper.scores.best_step == 10
    torch.testing.assert_close(model.weight.detach(), kept)


@pytest.mark.parametrize(("keep_start", "kept"), [(True, 0), (False, 20)])
def test_the_start_weights_are_kept_only_if_they_may_be(tmp_path, keep_start, kept):
    model = OneLayer(2, 2)
    keeper = best_keeper(model, tmp_path / "m", iter([9.0, 4.0, 5.0, 3.0]), patience=3, keep_start=keep_start)
    weights = {}
    for step in (0, 10, 20, 30):
        model.weight.data += 1
        weights[step] = model.weight.detach().clone()
        keeper.evaluate(step)
    assert keeper.stopped is keep_start  # three scores after the best one, or one
    keeper.restore_best()
    torch.testing.assert_close(model.weight.detach(), weights[kept])
    assert (keeper.scores.start, keeper.scores.best_step) == (9.0, kept)


@pytest.mark.slow
@pytest.mark.parametrize(("scores", "warned"), [((50.0, 40.0), True), ((50.0, 60.0), False)])
def test_a_run_that_never_helps_says_so(invoke, tiny_bert, text, dev, tmp_path, monkeypatch, scores, warned):
    from sentcli.training.loop import BestKeeper

    given, evaluate = iter(scores), BestKeeper._evaluate

    def scored(self, step):
        score = next(given)
        self.score = lambda encoder, is_start: {"dev_spearman": score}
        evaluate(self, step)

    monkeypatch.setattr(BestKeeper, "_evaluate", scored)
    result = train(
        invoke, tiny_bert, text, tmp_path / "m", "--method", "simcse", "--eval-data", dev, "--max-steps", 2
    )  # fmt: skip
    assert ("--learning-rate" in result.stderr) is warned


@pytest.mark.slow
def test_without_the_start_a_run_keeps_trained_weights(invoke, tiny_bert, text, dev, tmp_path):
    train(
        invoke, tiny_bert, text, tmp_path / "m", "--method", "simcse", "--eval-data", dev, "--max-steps", 2,
        "--set", "keep_start=false", "--set", "learning_rate=1e-9", "--json", tmp_path / "r.json",
    )  # fmt: skip
    results = json.loads((tmp_path / "r.json").read_text())["results"]
    assert results["best_step"] == 2 and results["start_dev_spearman"] is not None


@pytest.mark.parametrize("option", [("--limit", "5"), ("--fraction", "0.1"), ()])
def test_a_batch_larger_than_what_an_option_leaves_names_both(option, invoke, tiny_bert, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"the cat sat {number}\n" for number in range(50 if option else 5)))
    words = ["train", "--method", "simcse", "-m", tiny_bert, "--data", text, "-o", tmp_path / "m", "--batch-size", 8]
    refused = " ".join(invoke(*words, *option, check=2).stderr.split())
    assert "--batch-size 8" in refused and (" ".join(option) or "text.txt") in refused
