"""train --check-start: a few steps in a temporary folder tell whether a method gains from a start model."""

import json

import pytest


def checked(invoke, tmp_path, model, text, senteval, *options):
    """Return the exit code and the JSON of a check; nothing is written at the place of the output."""
    report = tmp_path / "check.json"
    call = ["train", "--method", "simcse", "-m", model, "--data", text, "--eval-data", senteval, "--check-start"]
    result = invoke(*call, "-o", tmp_path / "never", "--json", report, *options)
    assert not (tmp_path / "never").exists()
    return result.exit_code, json.loads(report.read_text())["results"] if report.exists() else {}


@pytest.mark.slow
def test_the_exit_code_says_whether_the_score_rose(invoke, tmp_path, tiny_bert, sentences, dev):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(sentences), "utf-8")
    code, results = checked(invoke, tmp_path, tiny_bert, text, dev, "--batch-size", 8, "--learning-rate", 1e-3)
    before, after = results["scores"]["simcse, before"], results["scores"]["simcse, after 30 steps"]
    assert before == results["scores"]["start, cls"]
    assert results["gains"] == (after > before)
    assert code == (0 if after > before else 3)
    code, results = checked(invoke, tmp_path, tiny_bert, text, dev, "--batch-size", 8, "--learning-rate", 1e-12)
    assert (code, results["gains"]) == (3, False)


def test_the_share_of_common_words_stands_beside_the_vectors(invoke, tmp_path, tiny_bert, sentences, dev):
    rows = [("a red house", "the red house", 5), ("a red house", "a red car", 3), ("green cars", "blue bike", 1)]
    file = dev / "STS" / "STSBenchmark" / "sts-dev.csv"
    file.write_text("".join(f"g\tf\ty\t{i}\t{gold}\t{a}\t{b}\n" for i, (a, b, gold) in enumerate(rows)), "utf-8")
    text = tmp_path / "text.txt"
    text.write_text("\n".join(sentences), "utf-8")
    _, results = checked(invoke, tmp_path, tiny_bert, text, dev, "--batch-size", 4)
    assert results["scores"]["shared content words, no model"] == pytest.approx(100)


@pytest.mark.parametrize("options", [["--seeds", "1,2"], ["--resume"], ["--method", "whitening"]])
def test_what_does_not_go_with_it_is_refused(invoke, tmp_path, tiny_bert, sentences, dev, options):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(sentences), "utf-8")
    assert checked(invoke, tmp_path, tiny_bert, text, dev, *options) == (2, {})


@pytest.mark.deep
@pytest.mark.parametrize(("model", "code"), [("sentcli-bert-mini", 3), ("minilm", 0)])
def test_the_two_starts_of_the_studies(invoke, tmp_path, data, short_dev, minilm, model, code):
    text, options = data / "corpus" / "wiki.txt", ["--limit", 2000, "--learning-rate", 1e-4, "--batch-size", 32]
    found, results = checked(invoke, tmp_path, model, text, short_dev, *options)
    assert found == code
    scores = results["scores"]
    below_words = max(v for k, v in scores.items() if k.startswith("start")) < scores["shared content words, no model"]
    assert below_words == (code == 3)
