"""How often a model is opened, exported and asked for the vectors of a text when it is scored."""

import json
import shutil
from collections import Counter

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from sentcli import encoder
from sentcli.encoder import loading
from sentcli.encoder.sentence_encoder import SentenceEncoder
from tests.evaluation.conftest import write_downstream


@pytest.fixture
def counted(tmp_path, monkeypatch):
    """Counts of the models that are loaded and exported, and of how often each text is encoded, with an empty cache."""
    monkeypatch.setenv("SENTCLI_CACHE", str(tmp_path / "cache"))
    counts = {"loaded": 0, "exported": 0, "texts": Counter()}
    load, export, encode = loading.load_model, loading.make_export_in, SentenceEncoder.encode_distinct

    def load_counted(*given, **options):
        counts["loaded"] += 1
        return load(*given, **options)

    def export_counted(*given):
        counts["exported"] += 1
        return export(*given)

    def encode_counted(self, texts, *given, **options):
        counts["texts"].update(texts)
        return encode(self, texts, *given, **options)

    monkeypatch.setattr(loading, "load_model", load_counted)
    monkeypatch.setattr(loading, "make_export_in", export_counted)
    monkeypatch.setattr(SentenceEncoder, "encode_distinct", encode_counted)
    return counts


@pytest.fixture
def pairs(tmp_path, sentences):
    """A table of 12 scored pairs of 24 texts."""
    texts = list(dict.fromkeys(text for text in sentences if text.strip() and "\t" not in text))
    rows = [f"{texts[i]}\t{texts[i + 12]}\t{i % 6}" for i in range(12)]
    file = tmp_path / "mine.tsv"
    file.write_text("sentence1\tsentence2\tscore\n" + "\n".join(rows) + "\n", "utf-8")
    return file


def scored(invoke, *call):
    return json.loads(invoke(*call, "--json", "-", check=0).stdout)


@pytest.mark.slow
def test_a_model_is_exported_for_scoring_only_where_that_pays(pairs, tiny_bert, invoke, counted, monkeypatch):
    call = ["sts-eval", "-m", tiny_bert, "--pairs", pairs]
    few = scored(invoke, *call)
    assert few["protocol"]["backend"] == "torch" and counted["exported"] == 0
    assert scored(invoke, *call)["cached"] == ["mine"]
    monkeypatch.setattr(encoder, "EXPORT_PAYS_FROM", 25)  # one more than the texts of the table
    assert scored(invoke, *call, "--rerun")["protocol"]["backend"] == "torch" and counted["exported"] == 0
    monkeypatch.setattr(encoder, "EXPORT_PAYS_FROM", 24)
    many = scored(invoke, *call, "--rerun")
    assert many["protocol"]["backend"] == "onnx" and counted["exported"] == 1
    assert many["results"]["mine"]["spearman"] == few["results"]["mine"]["spearman"]
    monkeypatch.setattr(encoder, "EXPORT_PAYS_FROM", 25)  # an export that is there is used for few texts, too
    assert scored(invoke, *call, "--rerun")["protocol"]["backend"] == "onnx" and counted["exported"] == 1
    assert scored(invoke, *call, "--backend", "torch", "--rerun")["protocol"]["backend"] == "torch"


@pytest.mark.slow
def test_an_export_is_made_where_it_is_asked_for(pairs, tiny_bert, invoke, counted):
    found = scored(invoke, "sts-eval", "-m", tiny_bert, "--pairs", pairs, "--backend", "onnx")
    assert found["protocol"]["backend"] == "onnx" and counted["exported"] == 1


@pytest.mark.slow
def test_the_texts_of_a_retrieval_set_count(make_set, tiny_bert, invoke, counted, monkeypatch):
    call = ["retrieve", "-m", tiny_bert, "--beir", make_set()]
    assert scored(invoke, *call)["protocol"]["backend"] == "torch" and counted["exported"] == 0
    monkeypatch.setattr(encoder, "EXPORT_PAYS_FROM", 7)  # two queries and five documents
    assert scored(invoke, *call, "--rerun")["protocol"]["backend"] == "onnx" and counted["exported"] == 1


@pytest.mark.slow
def test_scoring_opens_a_model_once_and_encodes_a_text_once(pairs, make_set, tiny_bert, tmp_path, invoke, counted):
    downstream = write_downstream(tmp_path)
    calls = [
        ["sts-eval", "-m", tiny_bert, "--pairs", pairs],
        ["senteval", "-m", tiny_bert, "--data", downstream, "--tasks", "MR,CR", "--protocol", "fast"],
        ["retrieve", "-m", tiny_bert, "--beir", make_set(), "--beir", make_set("other"), "--search", "dense,bm25,rrf"],
    ]
    for call in calls:
        counted["loaded"] = 0
        counted["texts"].clear()
        scored(invoke, *call)
        assert counted["loaded"] == 1, call
        assert set(counted["texts"].values()) == {1}, call


@pytest.mark.slow
def test_evaluate_opens_a_model_to_score_it_and_to_measure_what_it_costs(pairs, tiny_bert, tmp_path, invoke, counted):
    counted["loaded"] = 0
    call = ["evaluate", pairs, "-m", tiny_bert, "--backend", "torch"]
    scored(invoke, *call)
    assert counted["loaded"] == 2
    scored(invoke, *call)
    assert counted["loaded"] == 4  # the scores are kept, and the costs are measured again


@pytest.fixture
def not_finite(tiny_bert, tmp_path):
    """A model whose vectors are not finite."""
    folder = shutil.copytree(tiny_bert, tmp_path / "not-finite")
    weights = load_file(folder / "model.safetensors")
    for name, array in weights.items():
        if "LayerNorm" in name:
            array[:] = np.nan
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.mark.slow
def test_a_model_without_vectors_leaves_thresholds_and_in_domain_scores_to_the_others(
    tiny_bert, not_finite, tmp_path, sentences, invoke
):
    """The first ended the command with an error that named no model, the second with a crash."""
    texts = list(dict.fromkeys(text for text in sentences if text.strip() and "\t" not in text))
    rows = []
    for number in range(130):
        first = f"{texts[number % len(texts)]} {number}"
        second = first
        if number % 2:
            second = f"{texts[(7 * number + 3) % len(texts)]} {number + 500}"
        rows.append(f"{first}\t{second}\t{1 - number % 2}")
    table = tmp_path / "binary.tsv"
    table.write_text("sentence1\tsentence2\tlabel\n" + "\n".join(rows) + "\n", "utf-8")
    scored_pairs = tmp_path / "scored.tsv"
    scored_pairs.write_text("sentence1\tsentence2\tscore\n" + "\n".join(rows) + "\n", "utf-8")
    call = ["evaluate", table, "--threshold", 0.8, "-m"]
    alone = scored(invoke, *call, tiny_bert)["results"]["binary.tsv"]
    first, other = scored(invoke, *call, not_finite, "-m", tiny_bert)
    assert other["results"]["binary.tsv"]["threshold"] == alone["threshold"]
    assert first["results"]["binary.tsv"]["value"] is None
    assert "not finite" in first["results"]["binary.tsv"]["reason"]
    invoke(*call, not_finite, check=1)
    call = ["retrieve", "--in-domain", scored_pairs, "-m"]
    alone = scored(invoke, *call, tiny_bert)["results"]["in-domain"]
    done = invoke(*call, tiny_bert, "-m", not_finite, "--json", tmp_path / "found.json", check=0)
    other, first = json.loads((tmp_path / "found.json").read_text())
    assert other["results"]["in-domain"] == alone
    assert [first["results"]["in-domain"][f"recall@{k}"] for k in (1, 5, 10)] == [None] * 3
    assert f"{not_finite} has no score on in-domain" in " ".join(done.stderr.split())
    invoke(*call, not_finite, check=1)


def test_a_model_without_vectors_leaves_the_ways_of_searching_to_the_others(
    tiny_bert, not_finite, make_set, tmp_path, invoke
):
    """It ended the command for all models."""
    grid = tmp_path / "grid.toml"
    grid.write_text('types = ["float32"]\nindexes = ["flat"]\ndimensions = []\nprecisions = []\nlengths = []\n')
    corpus = [{"_id": f"d{number}", "title": "", "text": f"the cat number {number}"} for number in range(30)]
    queries = [{"_id": f"q{number}", "text": f"cat {number}"} for number in range(20)]
    qrels = "".join(f"q{number}\td{number}\t1\n" for number in range(20))
    call = ["evaluate", make_set(corpus=corpus, queries=queries, qrels=qrels), "--variants", grid, "-m"]
    first, other = scored(invoke, *call, not_finite, "-m", tiny_bert)
    (name,) = other["results"]
    assert first["results"][name]["value"] is None and first["results"][name]["variants"] is None
    assert other["results"][name]["variants"][0]["difference"] == 0
