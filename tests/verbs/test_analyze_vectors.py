"""``analyze map``, ``similarity`` and ``compare`` from end to end, on tiny models."""

import csv
import json
import re

import numpy as np
import pytest

from sentcli.printable import safe
from tests.conftest import save_backbone


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    return save_backbone(tmp_path_factory.mktemp("models") / "other-bert", seed=1)


@pytest.fixture
def pairs(tmp_path, sentences):
    rng = np.random.default_rng(0)
    kept = [s for s in sentences if s.strip() and "\t" not in s]
    rows = [f"{a}\t{b}\t{rng.uniform(0, 5):.1f}" for a, b in zip(kept[:60], kept[60:120], strict=True)]
    path = tmp_path / "pairs.tsv"
    path.write_text("\n".join(["sentence1\tsentence2\tscore", *rows]) + "\n", "utf-8")
    return path


def rows_of(path):
    with path.open(encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(handle))


def distinct(path):
    return list(dict.fromkeys(line for line in path.read_text("utf-8").split("\n") if line.strip()))


def refused(invoke, words, *arguments):
    result = invoke(*arguments, check=2)
    assert "Traceback" not in result.stderr
    assert re.search(words, " ".join(result.stderr.split()))


MAP = ("--clusters", 3, "--neighbours", 5)


@pytest.mark.slow
def test_map_of_two_models(invoke, text, tiny_bert, other, tmp_path):
    out = tmp_path / "out"
    invoke("analyze", "map", text, "-m", tiny_bert, "-m", other, *MAP, "--whiten", "groups:8", "-o", out, check=0)
    found = json.loads((out / "analysis.json").read_text())
    assert [one["model"] for one in found] == [str(tiny_bert), str(other)]
    for one in found:
        assert one["command"] == "analyze"
        assert next(iter(one["protocol"])) == "kind"
        assert (one["protocol"]["kind"], one["protocol"]["whitening"]) == ("map", "groups:8")
        results = one["results"]
        assert sum(cluster["size"] for cluster in results["clusters"]) == results["texts"] == len(distinct(text))
        assert len(results["shared_neighbours"]) == 3
        assert 0 <= results["whitened"]["map_purity"] <= 1
    drawn = [row for row in rows_of(out / "map.csv") if row["series"] != "clusters"]
    assert sorted({row["panel"] for row in drawn}) == sorted(
        f"{name}{more}" for name in ("tiny-bert", "other-bert") for more in ("", ", whitened")
    )
    assert {row["label"] for row in drawn} == set(distinct(text))
    assert {path.name for path in out.iterdir()} >= {"index.html", "map.png", "map.svg", "maps.csv", "clusters-4.csv"}
    page = (out / "index.html").read_text("utf-8")
    (told,) = re.findall(r'<script type="application/json" id="points">(.*?)</script>', page, re.DOTALL)
    points = json.loads(told)["0"]
    assert points["texts"] == list(dict.fromkeys(safe(f"{row['id']}: {row['label']}") for row in drawn))
    assert [len(panel) for panel in points["panels"]] == [len(distinct(text))] * 4
    assert points["groups"] == list(dict.fromkeys(row["series"] for row in drawn))


@pytest.mark.slow
def test_positives_lie_closer_than_texts(invoke, text, tiny_bert, tmp_path):
    few = tmp_path / "few.txt"
    few.write_text("\n".join(distinct(text)[:12]) + "\n", "utf-8")
    call = ("analyze", "map", few, "-m", tiny_bert, "--pooling", "mean", *MAP, "--positives", 3, "--whiten", "groups:8")
    invoke(*call, "-o", tmp_path / "out", check=0)
    found = json.loads((tmp_path / "out" / "analysis.json").read_text())
    results = found["results"]
    assert (results["texts"], found["protocol"]["positives"]) == (12, 3)
    assert sum(cluster["size"] for cluster in results["clusters"]) == 36
    for measured in (results, results["whitened"]):
        assert 0 < measured["positives_apart"] < measured["texts_apart"] < 4
    drawn = [row for row in rows_of(tmp_path / "out" / "map.csv") if row["panel"] == "tiny-bert"]
    assert len(drawn) == 36
    assert len({row["series"] for row in drawn}) == 12, "each text has its colour"
    assert len({(row["x"], row["y"]) for row in drawn}) == 36
    invoke(*call, "-o", tmp_path / "again", check=0)
    again = json.loads((tmp_path / "again" / "analysis.json").read_text())
    assert again["results"]["positives_apart"] == results["positives_apart"], "the seed draws the dropout"


def test_positives_need_dropout_and_texts(invoke, text, tmp_path):
    still = save_backbone(tmp_path / "still", dropout=0.0)
    call = ("analyze", "map", text, "-m", still, *MAP, "--positives", 2, "-o", tmp_path / "out")
    refused(invoke, "--positives.*dropout", *call)
    invoke("encode", text, "-o", tmp_path / "vectors", "-m", still, check=0)
    refused(
        invoke,
        "--positives.*texts",
        "analyze",
        "map",
        tmp_path / "vectors",
        *MAP,
        "--positives",
        2,
        "-o",
        tmp_path / "o",
    )


@pytest.mark.slow
def test_a_map_of_stored_vectors_is_that_of_their_texts_and_names_each_point(invoke, tiny_bert, tmp_path, sentences):
    kept = list(dict.fromkeys(s for s in sentences if s.strip()))[:40]
    table = tmp_path / "t.jsonl"
    rows = [{"id": f"d{i}", "text": text, "topic": "ab"[i % 2]} for i, text in enumerate([kept[0], *kept, ""])]
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = {}
    for name, model in (("t.jsonl", ("-m", tiny_bert)), ("t.parquet", ()), ("t.npy", ()), ("t", ())):
        if not model:
            invoke("encode", table, "-o", tmp_path / name, "-m", tiny_bert, check=0)
        out = tmp_path / f"{name}-map"
        done = invoke("analyze", "map", tmp_path / name, *model, *MAP, "--limit", 30, "-o", out, "--json", "-", check=0)
        protocol = json.loads(done.stdout)["protocol"]
        assert {key: protocol[key] for key in ("texts", "of", "seed")} == {"texts": 30, "of": 40, "seed": 42}
        assert all("30 of 40" in said for said in (done.stderr, (out / "index.html").read_text("utf-8")))
        drawn = [row for row in rows_of(out / "map.csv") if row["series"] != "clusters"]
        found[name] = {row["id"]: (row["text"], row["cluster"], row["cluster_name"]) for row in drawn}
        (names,) = ({row["cluster"]: row["name"] for row in rows_of(path)} for path in [out / "clusters-1.csv"])
        assert all(name == names[cluster] for _, cluster, name in found[name].values())
    texts = {key: text for key, (text, _, _) in found["t"].items()}
    assert texts.items() <= {row["id"]: row["text"] for row in [rows[0], *rows[2:-1]]}.items()
    assert len(texts) == 30 and not {"d38", "d39", "d40"}.isdisjoint(texts), "not the first"
    assert all(one == found["t"] for one in found.values())
    call = ("analyze", "map", tmp_path / "t.parquet", "--label-field", "topic", *MAP, "-o", tmp_path / "labelled")
    invoke(*call, check=0)
    assert {row["series"] for row in rows_of(tmp_path / "labelled" / "map.csv")} == {"a", "b"}
    invoke("encode", table, "-o", tmp_path / "bits", "-m", tiny_bert, "--output-dtype", "binary", check=0)
    refused(invoke, "/bits .*--output-dtype", "analyze", "map", tmp_path / "bits", "-o", tmp_path / "out")


@pytest.mark.slow
def test_map_repeats_with_its_seed_and_compares_labels(invoke, tiny_bert, tmp_path, sentences):
    kept = list(dict.fromkeys(s for s in sentences if s.strip() and "," not in s))
    table = tmp_path / "table.csv"
    table.write_text("body,topic\n" + "".join(f'"{s}",{"ab"[len(s) > 40]}\n' for s in kept), "utf-8")
    found = []
    for name in ("one", "two"):
        out = tmp_path / name
        invoke("analyze", "map", table, "--text-field", "body", "--label-field", "topic", "-m", tiny_bert, *MAP,
               "-o", out, check=0)  # fmt: skip
        found.append((out / "map.csv").read_bytes())
        results = json.loads((out / "analysis.json").read_text())["results"]
    assert found[0] == found[1]
    assert results["label_purity"] >= 0.5
    assert -1 <= results["adjusted_mutual_information"] <= 1
    assert {row["series"] for row in rows_of(out / "map.csv")} == {"a", "b"}


def test_map_refuses_what_it_cannot_map(invoke, text, tiny_bert, tmp_path):
    start = ("analyze", "map", text, "-o", tmp_path / "out")
    refused(invoke, "models .*-m", *start)
    refused(invoke, "--whiten pca: .*zca", *start, "-m", tiny_bert, "--whiten", "pca")
    refused(invoke, "--whiten groups:5: .*32 ", *start, "-m", tiny_bert, "--whiten", "groups:5")
    refused(invoke, "--clusters 500", *start, "-m", tiny_bert, "--clusters", 500)
    refused(invoke, r"text\.txt, row 1: .*'topic'", *start, "-m", tiny_bert, "--label-field", "topic")
    few = tmp_path / "few.txt"
    few.write_text("one\ntwo\nthree\n")
    refused(invoke, r"few\.txt: 3 .*10", "analyze", "map", few, "-m", tiny_bert, "-o", tmp_path / "out")
    few.write_text("same\n" * 30)
    refused(invoke, r"few\.txt: .*30 texts", "analyze", "map", few, "-m", tiny_bert, "-o", tmp_path / "out")
    refused(invoke, "none.txt", "analyze", "map", tmp_path / "none.txt", "-m", tiny_bert, "-o", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_similarity_has_the_correlations_of_sts_eval(invoke, pairs, tiny_bert, other, tmp_path):
    out, scores = tmp_path / "out", tmp_path / "scores.json"
    invoke("analyze", "similarity", "-m", tiny_bert, "-m", other, "--pairs", pairs, "--top", 4, "-o", out, check=0)
    invoke("sts-eval", "-m", tiny_bert, "--pairs", pairs, "--json", scores, check=0)
    found = json.loads((out / "analysis.json").read_text())
    expected = json.loads(scores.read_text())["results"]["pairs"]
    assert found[0]["results"]["spearman"] == pytest.approx(expected["spearman"])
    assert found[0]["results"]["pearson"] == pytest.approx(expected["pearson"])
    for one in found:
        assert one["protocol"]["kind"] == "similarity"
        assert sum(part["pairs"] for part in one["results"]["bins"]) == 60
        least, most = ([abs(pair["rank_difference"]) for pair in one["results"][key]] for key in
                       ("least_agreed", "most_agreed"))  # fmt: skip
        assert len(least) == len(most) == 4
        assert least == sorted(least, reverse=True)
        assert most == sorted(most)
        assert least[-1] >= most[-1]
        follows = one["results"]["follows"]
        assert follows["raw"]["gold"] == pytest.approx(one["results"]["spearman"])
        assert follows["raw"].keys() == follows["centred"].keys()
    assert len(rows_of(out / "follows.csv")) == 5
    assert sum(float(row["pairs"]) for row in rows_of(out / "bins.csv")) == 120, "a row for each model and bin"
    dots = [row for row in rows_of(out / "similarity-scatter.csv") if row["series"] == "pairs"]
    assert len(dots) == 120
    names = {"similarity-scatter.png", "similarity-density.svg", "correlations.csv", "bins.csv", "least-agreed-2.csv"}
    assert {path.name for path in out.iterdir()} >= names


def test_similarity_refuses_what_it_cannot_compare(invoke, tiny_bert, tmp_path):
    start = ("analyze", "similarity", "-o", tmp_path / "out")
    refused(invoke, "models .*-m", *start, "--pairs", "x.tsv")
    refused(invoke, "--data.*--pairs", *start, "-m", tiny_bert)
    few = tmp_path / "few.tsv"
    few.write_text("sentence1\tsentence2\tscore\n" + "a\tb\t1\nc\td\t2\n")
    refused(invoke, r"few\.tsv: 2 .*10", *start, "-m", tiny_bert, "--pairs", few)


@pytest.mark.slow
def test_compare_models_vectors_and_directories(invoke, text, tiny_bert, other, tmp_path):
    vectors, encoded = tmp_path / "b.npy", tmp_path / "encoded"
    out = [tmp_path / name for name in ("models", "vectors", "directory")]
    end = ("--texts", text, "--neighbours", 5, "--top", 3, "-o")
    invoke("analyze", "compare", tiny_bert, other, *end, out[0], check=0)
    invoke("encode", text, "-m", other, "-o", vectors, check=0)
    invoke("analyze", "compare", tiny_bert, "-m", vectors, *end, out[1], check=0)
    invoke("encode", text, "-m", other, "-o", encoded, "--shard-rows", 50, check=0)
    invoke("analyze", "compare", tiny_bert, encoded, *end, out[2], check=0)
    found = [json.loads((folder / "analysis.json").read_text()) for folder in out]
    first, second = found[0]
    assert (first["model"], second["protocol"]["compared_with"]) == (str(tiny_bert), str(tiny_bert))
    assert sum(first["results"]["histogram"]) == first["results"]["texts"] == len(distinct(text))
    for key in ("overlap", "jaccard", "histogram"):
        assert [one["results"][key] for both in found for one in both] == [first["results"][key]] * 6
    changed = first["results"]["most_changed"]
    assert len(changed) == 3
    own = {near["text"] for near in changed[0]["neighbours"]}
    others = {near["text"] for near in second["results"]["most_changed"][0]["neighbours"]}
    assert len(own & others) == changed[0]["shared"]
    assert changed[0]["text"] not in own
    assert len(rows_of(out[0] / "most-changed.csv")) == 3
    assert {path.name for path in out[0].iterdir()} >= {"index.html", "compare.png", "compare.svg", "compare.csv"}
    assert sum(row["label"] in distinct(text) for row in rows_of(out[0] / "compare.csv")) == len(distinct(text))


def test_compare_refuses_what_does_not_belong_together(invoke, text, tiny_bert, tmp_path):
    vectors = tmp_path / "short.npy"
    np.save(vectors, np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32))
    start = ("analyze", "compare", "--texts", text, "-o", tmp_path / "out")
    refused(invoke, r"short\.npy .*20 .*text\.txt .*133 ", *start, tiny_bert, vectors)
    refused(invoke, "compare .*-m", *start, tiny_bert)
    refused(invoke, str(tiny_bert), *start, tiny_bert, "-m", tiny_bert)
    refused(invoke, r"/none\.npy", *start, tiny_bert, tmp_path / "none.npy")
    assert not (tmp_path / "out").exists()
