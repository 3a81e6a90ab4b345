"""Perplexity on held-out text is transformers' on the same masks, and measuring it changes nothing."""

import json
import math
import re
import shutil

import pytest
import torch

from sentcli.objectives import masked_lm
from sentcli.objectives.base import by_length
from sentcli.objectives.masked_lm import IGNORED
from sentcli.training.options import EvaluationOptions
from sentcli.training.prepare import prepare
from sentcli.training.request import TrainRequest
from tests.conftest import save_backbone


@pytest.fixture
def held_out(tmp_path, sentences):
    path = tmp_path / "held-out.txt"
    path.write_text("\n".join(s for s in sentences if s.strip()), "utf-8")
    return path


def train(call, model, text, output, *options, check=0, method="mlm"):
    return call(
        "train", "--method", method, "-m", model, "--data", text, "-o", output, "--batch-size", 16, "--max-steps", 4,
        "--eval-every", 2, *options, check=check,
    )  # fmt: skip


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("options", [("mlm",), ("infocse", "--stage", "pretrain", "--set", "skip_from=1")])
def test_perplexity_is_logged_and_training_stays_the_same(invoke, tiny_bert, text, held_out, tmp_path, options):
    method, *more = options
    train(invoke, tiny_bert, text, tmp_path / "a", *more, method=method)
    result = train(
        invoke, tiny_bert, text, tmp_path / "b", *more, "--eval-text", held_out, "--json", tmp_path / "r.json",
        method=method,
    )  # fmt: skip
    one, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in "ab")
    assert one == other
    logged = [line for line in lines(tmp_path / "b") if "loss" not in line]
    assert [line["step"] for line in logged] == [0, 2, 4]
    for line in logged:
        assert line["held_out_perplexity"] == pytest.approx(math.exp(line["held_out_loss"]))
        assert "best" not in line
    results = json.loads((tmp_path / "r.json").read_text())["results"]
    assert results["held_out_perplexity"] == logged[-1]["held_out_perplexity"]
    assert results["best_dev_spearman"] is None
    assert "held-out-perplexity" in result.stderr and "on held-out text" in (tmp_path / "b" / "README.md").read_text()


def test_it_is_transformers_loss(tiny_bert, text, held_out, tmp_path):
    from transformers import BertForMaskedLM

    request = TrainRequest(
        "mlm",
        str(tiny_bert),
        [str(text)],
        tmp_path / "m",
        evaluation=EvaluationOptions(eval_text=str(held_out)),
        assignments=[("batch_size", 16)],
    )
    prepared = prepare(request)
    measure, model = prepared.held_out_text, prepared.model
    model.eval()
    theirs = BertForMaskedLM(model.encoder.backbone.config)
    head = measure.prediction.head
    theirs.bert.load_state_dict(model.encoder.backbone.state_dict(), strict=False)
    theirs.cls.predictions.transform.dense.load_state_dict(head.dense.state_dict())
    theirs.cls.predictions.transform.LayerNorm.load_state_dict(head.norm.state_dict())
    theirs.cls.predictions.bias.data.copy_(head.bias)
    theirs.tie_weights()
    total, count = 0.0, 0
    with torch.no_grad():
        for inputs, labels in measure.batches:
            chosen = int((labels != IGNORED).sum())
            if chosen:
                total += float(theirs.eval()(**inputs, labels=labels).loss) * chosen
            count += chosen
    assert measure.count == count > 20
    assert measure.loss(model.encoder) == pytest.approx(total / count, rel=1e-5)
    again = prepare(request).held_out_text
    assert all(torch.equal(a[1], b[1]) for a, b in zip(measure.batches, again.batches, strict=True))


@pytest.mark.slow
def test_both_kinds_of_evaluation(invoke, tiny_bert, text, held_out, dev, tmp_path):
    """The dev set says which weights are kept; the perplexity in the results is of those."""
    train(
        invoke, tiny_bert, text, tmp_path / "m", "--eval-text", held_out, "--eval-data", dev, "--learning-rate", 1e-2,
        "--json", tmp_path / "r.json",
    )  # fmt: skip
    logged = {line["step"]: line for line in lines(tmp_path / "m") if "loss" not in line}
    results = json.loads((tmp_path / "r.json").read_text())["results"]
    best = logged[results["best_step"]]
    assert best["dev_spearman"] == max(line["dev_spearman"] for line in logged.values())
    assert results["held_out_perplexity"] == pytest.approx(best["held_out_perplexity"], rel=1e-5)


def test_mlm_added_to_another_method(invoke, tiny_bert, text, held_out, tmp_path):
    more = ["--set", "objectives+=mlm", "--eval-text", held_out]
    train(invoke, tiny_bert, text, tmp_path / "m", *more, method="simcse")
    assert [line["step"] for line in lines(tmp_path / "m") if "held_out_perplexity" in line] == [0, 2, 4]


@pytest.mark.parametrize(("method", "message"), [("simcse", "mlm"), ("whitening", "whitening")])
def test_methods_without_words_are_refused(invoke, tiny_bert, text, held_out, tmp_path, method, message):
    result = invoke(
        "train", "--method", method, "-m", tiny_bert, "--data", text, "-o", tmp_path / "m", "--eval-text", held_out,
        check=2,
    )  # fmt: skip
    assert re.search(f"--eval-text .*{message}", " ".join(result.stderr.split()))
    assert not (tmp_path / "m").exists()


def test_unusable_text_is_refused(invoke, tiny_bert, text, tmp_path):
    (tmp_path / "empty.txt").write_text("\n \n")
    for name in ("empty.txt", "none.txt"):
        result = train(invoke, tiny_bert, text, tmp_path / "m", "--eval-text", tmp_path / name, check=2)
        assert str(tmp_path / name) in " ".join(result.stderr.split())
    output = tmp_path / "m"
    output.mkdir()
    shutil.copy(text, output / "t.txt")
    result = train(invoke, tiny_bert, text, output, "--eval-text", output / "t.txt", "--overwrite", check=2)
    assert (output / "t.txt").exists() and result.stderr


def test_rows_in_parts_give_the_loss_of_the_whole(tmp_path, text, monkeypatch):
    """Parts of similar length cut padding alone: loss and gradient of a batch stay."""
    model = save_backbone(tmp_path / "model", dropout=0.0)
    request = TrainRequest("mlm", str(model), [str(text)], tmp_path / "m", assignments=[("batch_size", 80)])
    prepared = prepare(request)
    tokens = prepared.tokenizer(list(prepared.corpus.sentences[:80]))
    from sentcli.methods.views import BatchTexts
    from sentcli.training.batches import TrainingBatch, to_tensors

    batch = to_tensors(TrainingBatch([tokens], BatchTexts([])), prepared.tokenizer.pad_id, 1, torch.device("cpu"))
    parts = list(by_length(batch))
    assert len(parts) == -(-len(tokens.ids) // 32)
    assert sorted(int(row) for rows, _ in parts for row in rows) == list(range(len(tokens.ids)))
    assert all(part["attention_mask"].any(dim=0).all() for _, part in parts)
    found = []
    for split in (by_length, lambda whole: [(None, dict(whole))]):
        monkeypatch.setattr(masked_lm, "by_length", split)
        torch.manual_seed(1)
        prepared.model.zero_grad()
        loss, _ = prepared.model(batch)
        loss.backward()
        found.append((loss.detach(), [p.grad.clone() for p in prepared.model.parameters() if p.grad is not None]))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-5, atol=0)
    for one, other in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)
