"""Training on labelled and on structured text, and choosing the weights on one's own data."""

import csv
import json
import re
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from sentcli import SentenceEncoder
from sentcli.methods.views import Crops
from sentcli.training.data import TrainingSentences
from sentcli.training.pairs import read_anchors, read_training_pairs
from tests.conftest import save_backbone
from tests.evaluation.conftest import write_set
from tests.tolerance import VECTORS, rounding

NOUNS = ["cat", "dog", "mat", "house", "tree", "river", "song", "book", "car", "bird", "boat", "king"]


def table(path, columns, rows):
    with path.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle)
        writer.writerow(columns)
        writer.writerows(rows)
    return path


@pytest.fixture
def triplets(tmp_path):
    rows = [
        (f"the {a}", f"a {a} and the {a}", f"the {b} is red") for a, b in zip(NOUNS, NOUNS[1:] + NOUNS[:1], strict=True)
    ]
    return table(tmp_path / "triplets.csv", ("anchor", "positive", "negative"), rows)


@pytest.fixture
def pairs(tmp_path):
    return table(tmp_path / "pairs.csv", ("question", "answer"), [(f"what is a {n}", f"the {n} sat") for n in NOUNS])


def train(invoke, data, model, out, *options, method="simcse", check=0):
    arguments = ("train", "--method", method, "-m", model, "--data", data, "-o", out, "--save-every", 0)
    return invoke(*arguments, *options, check=check)


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def said(result):
    return " ".join(result.stderr.split())


@pytest.fixture
def still(tmp_path):
    """A model without dropout, so that a loss can be computed again."""
    return save_backbone(tmp_path / "still", dropout=0.0)


def peer_loss(model, name, columns, **options):
    """sentence-transformers' loss of one batch, with [CLS] vectors of the same weights."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import losses
    from sentence_transformers.sentence_transformer import modules as parts

    peer = SentenceTransformer(modules=[parts.Transformer(str(model)), parts.Pooling(32, "cls")], device="cpu")
    labels = options.pop("labels", None)
    vectors = [torch.from_numpy(peer.encode(list(column))) for column in columns]
    return float(getattr(losses, name)(peer, **options).compute_loss_from_embeddings(vectors, labels))


def test_a_step_on_triplets_has_the_peers_loss(invoke, still, triplets, tmp_path):
    train(invoke, triplets, still, tmp_path / "m", "--batch-size", len(NOUNS), "--max-steps", 1)
    columns = list(zip(*list(csv.reader(triplets.open()))[1:], strict=True))
    expected = peer_loss(still, "MultipleNegativesRankingLoss", columns, scale=20.0)
    assert lines(tmp_path / "m")[0]["loss"] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("method", "peer"), [("cosent", "CoSENTLoss"), ("angle", "AnglELoss")])
def test_a_step_on_graded_pairs_has_the_peers_loss(invoke, still, tmp_path, method, peer):
    rows = [
        (f"the {n}", f"a {m} sat", i % 5) for i, (n, m) in enumerate(zip(NOUNS, NOUNS[3:] + NOUNS[:3], strict=True))
    ]
    data = table(tmp_path / "scored.csv", ("sentence1", "sentence2", "score"), rows)
    train(invoke, data, still, tmp_path / "m", "--batch-size", 12, "--max-steps", 1, "--pooling", "cls", method=method)
    first, second, scores = zip(*rows, strict=True)
    expected = peer_loss(still, peer, [first, second], labels=torch.tensor(scores, dtype=torch.float32))
    assert lines(tmp_path / "m")[0]["loss"] == pytest.approx(expected, abs=1e-4)


@pytest.mark.slow
def test_a_step_on_binary_pairs_has_the_peers_loss(invoke, still, tmp_path):
    rows = [
        (f"the {n}", f"a {m} sat", i % 2) for i, (n, m) in enumerate(zip(NOUNS, NOUNS[3:] + NOUNS[:3], strict=True))
    ]
    data = table(tmp_path / "binary.csv", ("sentence1", "sentence2", "label"), rows)
    options = ("--batch-size", 12, "--max-steps", 1, "--pooling", "cls")
    train(invoke, data, still, tmp_path / "m", *options, method="online-contrastive")
    first, second, labels = zip(*rows, strict=True)
    expected = peer_loss(still, "OnlineContrastiveLoss", [first, second], labels=torch.tensor(labels))
    assert lines(tmp_path / "m")[0]["loss"] == pytest.approx(expected, abs=1e-5)
    graded = table(
        tmp_path / "graded.csv", ("sentence1", "sentence2", "score"), [(*row[:2], i) for i, row in enumerate(rows)]
    )
    refused = train(invoke, graded, still, tmp_path / "n", *options, method="online-contrastive", check=2)
    assert re.search(r"graded\.csv .*sentence1, sentence2, score.*online-contrastive.*cosent", said(refused))


@pytest.mark.parametrize("differ", [False, True])
def test_a_training_without_a_gradient_says_so(differ, invoke, tiny_bert, tmp_path):
    rows = [(f"the cat {number}", f"a dog {number}", 3 + differ * (number % 2)) for number in range(12)]
    data = table(tmp_path / "graded.csv", ("sentence1", "sentence2", "score"), rows)
    done = train(invoke, data, tiny_bert, tmp_path / "m", "--batch-size", 4, "--max-steps", 3, method="cosent")
    results = json.loads((tmp_path / "m" / "sentcli.json").read_text())["results"]
    assert results.get("without_gradient", 0) == (0 if differ else 3)
    assert ("gradient" in said(done)) != differ


@pytest.mark.slow
def test_gradient_caching_leaves_the_weights_as_they_are(invoke, still, triplets, tmp_path):
    options = ("--batch-size", 12, "--max-steps", 2, "--learning-rate", 1e-3)
    train(invoke, triplets, still, tmp_path / "whole", *options)
    train(invoke, triplets, still, tmp_path / "parts", *options, "--set", "mini_batch_size=3")
    whole, parts = (SentenceEncoder.load(tmp_path / name).encode(NOUNS) for name in ("whole", "parts"))
    np.testing.assert_allclose(whole, parts, atol=VECTORS)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["simcse", "informin-cl", "infocse", "whitenedcse", "mirror-bert", "ct"])
def test_every_contrastive_method_takes_pairs(invoke, tiny_bert, pairs, tmp_path, method):
    options = ("--pair-fields", "question,answer", "--batch-size", 6, "--max-steps", 2)
    result = train(invoke, pairs, tiny_bert, tmp_path / "m", *options, method=method)
    assert "12 pairs" in said(result)
    assert (tmp_path / "m" / "model.safetensors").exists()


def test_micse_takes_pairs_without_its_attention_term(invoke, tiny_bert, triplets, tmp_path):
    refused = train(invoke, triplets, tiny_bert, tmp_path / "m", "--batch-size", 6, method="micse", check=2)
    assert "--set objectives-=ami" in said(refused)
    options = ("--batch-size", 6, "--max-steps", 2, "--set", "objectives-=ami")
    train(invoke, triplets, tiny_bert, tmp_path / "m", *options, method="micse")


@pytest.mark.parametrize(
    ("columns", "rows", "options", "message"),
    [
        (("anchor", "positive", "negative"), [("a", "b", "c"), ("d", "e", "e")], (), ", line 3: negative .*positive"),
        (("q", "a"), [("a", "b")], ("--pair-fields", "q,answer"), r"data\.csv, line 2: .*'answer'.*--pair-fields"),
        (("anchor", "positive"), [("", "b"), ("a", " ")], (), r"/data\.csv"),
        (("anchor", "positive"), [("a", "b")] * 3, (), "64 .*3"),
    ],
)  # fmt: skip
def test_pairs_that_cannot_be_trained_on_are_refused(invoke, tiny_bert, tmp_path, columns, rows, options, message):
    data = table(tmp_path / "data.csv", columns, rows)
    refused = train(invoke, data, tiny_bert, tmp_path / "m", *options, check=2)
    assert re.search(message, said(refused))
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("method", "message"), [("is-bert", "is-bert .*simcse"), ("mirror-bert", "mirror-bert .*simcse.*--pair-fields")]
)
def test_methods_that_cannot_learn_from_triplets_say_so(invoke, tiny_bert, triplets, tmp_path, method, message):
    assert re.search(message, said(train(invoke, triplets, tiny_bert, tmp_path / "m", method=method, check=2)))


@pytest.mark.slow
def test_the_recipe_of_supervised_simcse_takes_its_triplets(invoke, tiny_bert, tmp_path):
    rows = [(f"the {n}", f"a {n} sat", f"the {NOUNS[i - 3]} is red") for i, n in enumerate(NOUNS)]
    data = table(tmp_path / "nli_for_simcse.csv", ("sent0", "sent1", "hard_neg"), rows)
    options = ("-m", tiny_bert, "-o", tmp_path / "m", "--batch-size", 6, "--max-steps", 1)
    result = invoke("train", "--recipe", "simcse-sup-bert-base", "--data", data, *options, check=0)
    assert "12 triplets" in said(result)
    config = json.loads((tmp_path / "m" / "sentcli.json").read_text())
    assert config["method"]["views"] == {"kind": "pairs", "count": 3, "negatives": 1}
    assert (tmp_path / "m" / "training_head" / "model.safetensors").exists()
    text = tmp_path / "text.txt"
    text.write_text("a\nb\n")
    options = ("-m", tiny_bert, "-o", tmp_path / "n")
    refused = invoke("train", "--recipe", "simcse-sup-bert-base", "--data", text, *options, check=2)
    assert re.search(r"/text\.txt: .*\.csv", said(refused))


def test_each_side_is_trained_with_its_prompt(invoke, still, pairs, tmp_path):
    """The same loss as without prompts on texts that have them in front."""
    prompts = {"query": "the king ", "document": "a song "}
    rows = [(prompts["query"] + q, prompts["document"] + a) for q, a in list(csv.reader(pairs.open()))[1:]]
    written = table(tmp_path / "written.csv", ("anchor", "positive"), rows)
    options = ("--batch-size", 12, "--max-steps", 1, "--pooling", "cls")
    train(invoke, written, still, tmp_path / "written", *options)
    model = tmp_path / "with-prompts"  # the same weights, since this rate moves none of them
    train(invoke, written, still, model, *options, "--learning-rate", 1e-30)
    (model / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts}))
    train(invoke, pairs, model, tmp_path / "prompted", *options, "--pair-fields", "question,answer")
    assert lines(tmp_path / "prompted")[0]["loss"] == pytest.approx(lines(tmp_path / "written")[0]["loss"], abs=1e-5)


@pytest.mark.slow
def test_pairs_are_trained_at_the_models_own_length(invoke, tiny_bert, pairs, tmp_path):
    own = SentenceEncoder.load(tiny_bert).spec.max_length or 40
    options = ("--pair-fields", "question,answer", "--batch-size", 6, "--max-steps", 1)
    train(invoke, pairs, tiny_bert, tmp_path / "m", *options)
    assert json.loads((tmp_path / "m" / "sentcli.json").read_text())["settings"]["max_length"] == own
    train(invoke, pairs, tiny_bert, tmp_path / "n", *options, "--max-length", 16)
    assert json.loads((tmp_path / "n" / "sentcli.json").read_text())["settings"]["max_length"] == 16


@pytest.mark.slow
def test_columns_of_scored_pairs_are_named_for_both_stages(invoke, tiny_bert, tmp_path):
    rows = [(f"the {n}", f"a {NOUNS[i - 3]} sat", i % 5) for i, n in enumerate(NOUNS)]
    data = table(tmp_path / "scored.csv", ("x", "y", "z"), rows)
    options = ("--pair-fields", "x,y,z", "--after", "simcse", "--batch-size", 6, "--max-steps", 1)
    stages = ("--set", "before.max_steps=1", "--set", "before.batch_size=6")
    train(invoke, data, tiny_bert, tmp_path / "m", *options, *stages, method="sts-regression")
    assert (tmp_path / "m-simcse" / "model.safetensors").exists() and (tmp_path / "m" / "model.safetensors").exists()


def test_adjacent_texts_are_pairs_within_a_document(invoke, tiny_bert, tmp_path):
    from sentcli.training.pairs import read_adjacent

    text = tmp_path / "documents.txt"
    text.write_text("".join(f"the {n}\na {n} sat\nthe {n} is red\n\n" for n in NOUNS))
    read = read_adjacent([str(text)])
    pairs = list(zip(*read.texts, strict=True))
    assert pairs[:3] == [("the cat", "a cat sat"), ("a cat sat", "the cat is red"), ("the dog", "a dog sat")]
    assert len(pairs) == 2 * len(NOUNS)
    options = ("--set", "views=adjacent", "--batch-size", 6, "--max-steps", 2)
    assert "24 pairs" in said(train(invoke, text, tiny_bert, tmp_path / "m", *options))


def test_crops_are_spans_of_the_document():
    document = " ".join(f"w{i}" for i in range(100))
    corpus = TrainingSentences(([document, "one"],), (), 0)
    views = Crops(shortest=0.1, longest=0.5)
    drawn = [views.texts([0, 1], corpus, np.random.default_rng(seed)).views for seed in range(40)]
    spans = [text.split() for first, second in drawn for text in (first[0], second[0])]
    assert all(" ".join(span) in document for span in spans)
    assert {len(span) for span in spans} <= set(range(10, 51)) and len({len(span) for span in spans}) > 15
    assert all(text == "one" for first, second in drawn for text in (first[1], second[1]))


@pytest.mark.slow
def test_crops_train(invoke, tiny_bert, tmp_path):
    text = tmp_path / "documents.txt"
    text.write_text("".join(f"the {n} sat on the {m} and a {n} is red\n" for n in NOUNS for m in NOUNS[:3]))
    train(invoke, text, tiny_bert, tmp_path / "m", "--set", "views=crops", "--batch-size", 12, "--max-steps", 2)


@pytest.mark.slow
@pytest.mark.parametrize("views", ["crops", "adjacent"])
def test_texts_that_belong_together_have_the_length_of_the_model_and_no_head(invoke, minilm, tmp_path, views):
    text = tmp_path / "documents.txt"
    text.write_text("".join(f"{'the cat sat on a red mat ' * 16}{n}\n" for n in NOUNS[:3]))
    options = ("--set", f"views={views}", "--batch-size", 2, "--max-steps", 1)
    options += ("--set", "longest=0.95", "--set", "shortest=0.9") if views == "crops" else ()
    assert "tokens (--max-length)" not in said(train(invoke, text, minilm, tmp_path / "m", *options))
    assert not (tmp_path / "m" / "training_head").exists()


# Development sets


@pytest.fixture
def dev_pairs(tmp_path):
    return table(tmp_path / "dev.csv", ("anchor", "positive"), [(f"is this a {n}", f"the red {n}") for n in NOUNS])


@pytest.mark.slow
def test_a_dev_set_of_ones_own_chooses_the_weights(invoke, tiny_bert, triplets, dev_pairs, tmp_path, dev):
    options = ("--batch-size", 6, "--max-steps", 4, "--eval-every", 2, "--learning-rate", 1e-3, "--dev", dev_pairs)
    out = tmp_path / "m"
    train(invoke, triplets, tiny_bert, out, *options, "--eval-data", dev, "--json", tmp_path / "r.json")
    results = json.loads((tmp_path / "r.json").read_text())["results"]
    scores = {line["step"]: line for line in lines(out) if "dev_mrr@10" in line}
    assert list(scores) == [0, 2, 4] and all("STSBenchmark_spearman" in line for line in scores.values())
    own = {step: line["dev_mrr@10"] for step, line in scores.items()}
    assert results["dev"]["metric"] == "mrr@10" and results["dev"]["name"] == "dev.csv"
    assert results["dev"]["best"] == max(own.values()) and results["dev"]["start"] == own[0]
    assert own[results["dev"]["best_step"]] == results["dev"]["best"] and results["dev"]["final"] == own[4]
    assert results["best_step"] == results["dev"]["best_step"] and results["best_dev_spearman"] is None
    from sentcli.evaluation.evaluated import EvaluatedModel
    from sentcli.evaluation.labelled_data import load_tasks

    (again,) = EvaluatedModel.of(SentenceEncoder.load(out)).measure(load_tasks([str(dev_pairs)], resamples=0))
    assert again.value == pytest.approx(results["dev"]["best"], abs=1e-6)
    assert "mrr@10" in (out / "README.md").read_text()


@pytest.mark.slow
def test_seeds_are_compared_on_the_dev_set(invoke, tiny_bert, triplets, dev_pairs, tmp_path):
    options = ("--batch-size", 6, "--max-steps", 2, "--dev", dev_pairs, "--seeds", "1,2", "--json", tmp_path / "r.json")
    result = train(invoke, triplets, tiny_bert, tmp_path / "m", *options)
    found = json.loads((tmp_path / "r.json").read_text())["results"]
    assert found["mean"]["dev"]["best"] == pytest.approx(np.mean([run["dev"]["best"] for run in found["runs"]]))
    assert f"{found['mean']['dev']['best']:.4f}" in said(result) + result.stdout


def test_texts_of_the_dev_set_are_found_in_the_training_pairs(invoke, tiny_bert, triplets, tmp_path):
    leaking = table(
        tmp_path / "dev.csv", ("anchor", "positive"), [(" THE  cat", "x"), *((f"is a {n}", f"red {n}") for n in NOUNS)]
    )
    options = ("--batch-size", 6, "--max-steps", 1, "--dev", leaking)
    found = said(train(invoke, triplets, tiny_bert, tmp_path / "a", *options))
    assert re.search(r"\b1 triplets .*--no-leak", found)
    without = train(invoke, triplets, tiny_bert, tmp_path / "b", *options, "--no-leak")
    assert re.search(r"\b11 triplets.* 1 triplets", said(without)) and "--no-leak" not in said(without)


def test_a_sample_of_a_retrieval_set_is_fixed_and_has_what_is_relevant(invoke, tiny_bert, tmp_path):
    from sentcli.evaluation.labelled_data import load_tasks
    from sentcli.training.dev import DevSet, limited

    corpus = [{"_id": f"d{i}", "title": "", "text": f"the {n} sat on {i} mats"} for i, n in enumerate(NOUNS * 10)]
    queries = [{"_id": f"q{i}", "text": f"a {n}"} for i, n in enumerate(NOUNS * 2)]
    qrels = "query-id\tcorpus-id\tscore\n" + "".join(f"q{i}\td{i + 36}\t1\n" for i in range(24))
    folder = write_set(tmp_path / "set", corpus=corpus, queries=queries, qrels=qrels, split="dev")
    (task,) = load_tasks([str(folder)], resamples=0)
    samples = [limited([DevSet("set", "ndcg@10", "dev_ndcg@10", task)], 12, str(tiny_bert))[0].task for _ in range(2)]
    first, second = (sample.data for sample in samples)
    assert (first.ids, list(first.queries)) == (second.ids, list(second.queries))
    assert len(first.queries) == 12 and len(first.ids) < 120
    assert all(document in first.ids for query in first.queries for document in task.data.qrels[query])
    assert list(first.texts()) == [next(row["text"] for row in corpus if row["_id"] == key) for key in first.ids]
    text = tmp_path / "text.txt"
    text.write_text("".join(f"the {n} and a {m}\n" for n in NOUNS for m in NOUNS))
    options = ("--batch-size", 12, "--max-steps", 2, "--dev", folder, "--dev-limit", 12)
    result = train(invoke, text, tiny_bert, tmp_path / "m", *options)
    assert "set ndcg@10" in said(result)


def test_a_sample_of_rows_is_as_large_as_asked_for(invoke, tiny_bert, tmp_path):
    from sentcli.evaluation.labelled_data import load_tasks
    from sentcli.training.dev import DevSet, limited

    data = {
        "scored.csv": (("sentence1", "sentence2", "score"), [(f"a {i}", f"b {i}", i % 5) for i in range(40)]),
        "binary.csv": (("sentence1", "sentence2", "label"), [(f"a {i}", f"b {i}", i % 2) for i in range(40)]),
        "pairs.csv": (("anchor", "positive"), [(f"a {i}", f"b {i}") for i in range(40)]),
        "triplets.csv": (("anchor", "positive", "negative"), [(f"a {i}", f"b {i}", f"c {i}") for i in range(40)]),
    }
    texts = [(f"{'good' if i % 3 else 'bad'} {i}", "good" if i % 3 else "bad") for i in range(90)]
    data["labels.csv"] = (("text", "label"), texts)
    files = [str(table(tmp_path / name, *content)) for name, content in data.items()]
    sets = [DevSet(task.name, "", "", task) for task in load_tasks(files, resamples=0)]
    samples = {dev.name: dev.task.description.split()[0] for dev in limited(sets, 30, str(tiny_bert))}
    assert samples == dict.fromkeys(("scored.csv", "binary.csv", "pairs.csv", "triplets.csv"), "30") | {
        "labels.csv": "32"
    }


@pytest.mark.parametrize(
    ("rows", "columns", "message"),
    [
        ([("a", "b")] * 3, ("anchor", "positive"), "3 .*10"),
        ([(f"a {i}", f"b {i}", 1) for i in range(12)], ("sentence1", "sentence2", "label"), "12 labels .*1"),
        ([(f"a {i}", "") for i in range(12)], ("anchor", "positive"), ", line 2: positive "),
        ([(f"a {i}", f"b {i}") for i in range(12)], ("x", "y"), ".*--kind"),
    ],
)
def test_dev_sets_that_tell_nothing_are_refused_before_anything_is_written(
    invoke, tiny_bert, triplets, tmp_path, rows, columns, message
):
    dev = table(tmp_path / "dev.csv", columns, rows)
    refused = train(invoke, triplets, tiny_bert, tmp_path / "m", "--batch-size", 6, "--dev", dev, check=2)
    assert re.search(rf"dev\.csv.*{message}", said(refused))
    assert not (tmp_path / "m").exists()


# Which method learns from which table


@pytest.fixture
def tables(tmp_path):
    """A table of every kind that is told, with usual names and without."""
    texts = [(f"the {n} sat", f"a {NOUNS[i - 1]} is red") for i, n in enumerate(NOUNS)]
    duplicates = [(*pair, i % 2) for i, pair in enumerate(texts)]
    return {
        "binary": table(tmp_path / "binary.csv", ("question1", "question2", "is_duplicate"), duplicates),
        "named": table(
            tmp_path / "named.csv", ("q", "a", "v"), [(*row[:2], ("no", "yes")[row[2]]) for row in duplicates]
        ),
        "scored": table(
            tmp_path / "scored.csv", ("sentence1", "sentence2", "score"), [(*p, i) for i, p in enumerate(texts)]
        ),
        "labels": table(
            tmp_path / "labels.csv", ("text", "label"), [(a, "xy"[i % 2]) for i, (a, _) in enumerate(texts)]
        ),
        "pairs": table(tmp_path / "pairs.csv", ("anchor", "positive"), texts),
    }


@pytest.mark.parametrize(
    ("method", "kind", "fit"),
    [
        ("simcse", "binary", ["online-contrastive", "cosent"]),
        ("simcse", "named", ["online-contrastive", "cosent"]),
        ("simcse", "scored", ["cosent", "angle"]),
        ("is-bert", "binary", ["online-contrastive"]),
        ("online-contrastive", "scored", ["cosent"]),
        ("cosent", "pairs", ["simcse"]),
        ("cosent", "labels", ["supcon"]),
        ("supcon", "pairs", ["simcse"]),
        (None, "binary", ["online-contrastive"]),
        (None, "labels", ["supcon"]),
        ("simsce", "scored", ["cosent"]),
    ],
)
def test_a_method_that_does_not_learn_from_a_table_names_those_that_do(
    invoke, tiny_bert, tables, tmp_path, method, kind, fit
):
    options = ("--pair-fields", "q,a,v") if kind == "named" else ()
    named = ("--method", method) if method else ()
    refused = invoke("train", *named, "-m", tiny_bert, "--data", tables[kind], "-o", tmp_path / "m", *options, check=2)
    assert all(name in said(refused) for name in (tables[kind].name, *fit))
    assert not (tmp_path / "m").exists()


def test_a_column_of_scored_pairs_may_be_read_as_text(invoke, tiny_bert, tables, tmp_path):
    options = ("--batch-size", 6, "--max-steps", 1, "--text-field", "sentence1")
    assert "12 sentences" in said(train(invoke, tables["scored"], tiny_bert, tmp_path / "m", *options))


@pytest.mark.slow
def test_words_for_yes_and_no_train_and_what_was_taken_is_said(invoke, still, tables, tmp_path):
    options = ("--batch-size", 12, "--max-steps", 1, "--pooling", "cls")
    result = train(invoke, tables["binary"], still, tmp_path / "m", *options, method="online-contrastive")
    assert re.search(r"question1, question2, is_duplicate.*\b6 .*12 ", said(result))
    assert "'the cat sat'" in said(result)
    more = ("--pair-fields", "q,a,v")
    train(invoke, tables["named"], still, tmp_path / "n", *options, *more, method="online-contrastive")
    assert lines(tmp_path / "m")[0]["loss"] == pytest.approx(lines(tmp_path / "n")[0]["loss"], abs=rounding(512))


def test_labels_are_said_to_be_unused_and_supcon_uses_them(invoke, tiny_bert, tables, tmp_path):
    options = ("--batch-size", 6, "--max-steps", 2)
    result = train(invoke, tables["labels"], tiny_bert, tmp_path / "m", *options)
    assert re.search("simcse .*label.*supcon", said(result))
    result = train(invoke, tables["labels"], tiny_bert, tmp_path / "n", *options, method="supcon")
    assert re.search("12 texts .*2 classes", said(result))
    assert {"loss", "supcon"} <= lines(tmp_path / "n")[0].keys()
    other = table(tmp_path / "other.csv", ("body", "topic"), [(f"the {n}", "xy"[i % 2]) for i, n in enumerate(NOUNS)])
    train(invoke, other, tiny_bert, tmp_path / "o", *options, "--pair-fields", "body,topic", method="supcon")
    one = table(tmp_path / "one.csv", ("text", "label"), [(f"the {n}", "x") for n in NOUNS])
    refused = train(invoke, one, tiny_bert, tmp_path / "p", *options, method="supcon", check=2)
    assert re.search(r"one\.csv: .*'x'", said(refused))


@pytest.mark.slow
def test_supcon_brings_classes_together(invoke, still, tmp_path):
    rows = [(f"the {n} {'sat' if i % 2 else 'is red'}", "ab"[i % 2]) for i, n in enumerate(NOUNS)]
    data = table(tmp_path / "classes.csv", ("text", "label"), rows)
    options = ("--batch-size", 12, "--max-steps", 20, "--learning-rate", 1e-3, "--set", "dropout=0.1")
    train(invoke, data, still, tmp_path / "m", *options, method="supcon")
    losses = [line["loss"] for line in lines(tmp_path / "m") if "loss" in line]
    assert losses[-1] < losses[0] - 0.1


def test_several_negatives_of_json_lines_are_hard_negatives(invoke, tiny_bert, tmp_path):
    data = tmp_path / "t.jsonl"
    rows = [{"anchor": f"the {n}", "positive": f"a {n}", "negative": [f"no {n}", "a mat sat"]} for n in NOUNS]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = train(invoke, data, tiny_bert, tmp_path / "m", "--batch-size", 6, "--max-steps", 1)
    assert "12 triplets" in said(result)
    views = json.loads((tmp_path / "m" / "sentcli.json").read_text())["method"]["views"]
    assert views["negatives"] == 2


def test_a_second_file_of_another_kind_is_refused(invoke, tiny_bert, tables, tmp_path):
    call = ("train", "--method", "simcse", "-m", tiny_bert, "-o", tmp_path / "m", "--data", tables["pairs"])
    assert "binary.csv" in said(invoke(*call, "--data", tables["binary"], check=2))


def test_a_dev_set_has_the_named_columns_whatever_their_case(invoke, tiny_bert, tables, tmp_path):
    rows = [(f"is a {n} red", f"the {n}", ("no", "yes")[i % 2]) for i, n in enumerate(NOUNS)]
    dev = table(tmp_path / "dev.csv", ("Q", "A", "V"), rows)
    options = ("--pair-fields", "q,a,v", "--dev", dev, "--batch-size", 6, "--max-steps", 1)
    result = train(invoke, tables["named"], tiny_bert, tmp_path / "m", *options, method="online-contrastive")
    assert re.search(r"dev\.csv: .*Q, A, V.*\b6 .*12 ", said(result))


def test_the_printed_form_of_eq_2_refuses_hard_negatives_before_anything_is_written(invoke, tiny_bert, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("anchor,positive,negative\n" + "".join(f"a cat {i},the cat {i},a dog {i}\n" for i in range(20)))
    call = ["train", "--method", "simcse", "-m", tiny_bert, "--data", table, "-o", tmp_path / "m", "--max-steps", 1]
    call += ["--set", "mask_duplicates=false", "--set", "denominator=other-view", "--batch-size", 8]
    message = invoke(*call, check=2).stderr
    assert "denominator=other-view" in message and "--pair-fields" in message and not (tmp_path / "m").exists()
    invoke(*call, "--pair-fields", "anchor,positive", check=0)


# Rows with different numbers of negatives


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def of_flag(number, negatives):
    return {"query": f"q{number}", "pos": [f"p{number}"], "neg": [f"n{number} {i}" for i in range(negatives)]}


def test_each_row_has_as_many_negatives_as_the_one_with_most(tmp_path):
    """A row with fewer repeats its own, as in a group of FlagEmbedding, and one without any gets texts of others."""
    counts = [3, 1, 2, 0, 3]
    path = write_lines(tmp_path / "t.jsonl", [of_flag(number, count) for number, count in enumerate(counts)])
    corpus = read_anchors([str(path)], seed=1)
    assert [len(column) for column in corpus.texts] == [5] * 5
    for number, (_, positive, *negatives) in enumerate(zip(*corpus.texts, strict=True)):
        own = [f"n{number} {i}" for i in range(counts[number])]
        assert positive == f"p{number}"
        assert negatives[: len(own)] == own
        if own:
            assert set(negatives) == set(own)
        else:
            assert len(set(negatives)) == 3
            assert not {f"q{number}", f"p{number}"} & set(negatives)
    assert corpus.blank == 0
    again = read_anchors([str(path)], seed=1)
    assert again.texts == corpus.texts
    assert any(read_anchors([str(path)], seed=seed).texts != corpus.texts for seed in range(2, 6))


def test_no_negative_of_a_row_counts_far_more_often_than_another(tmp_path):
    """As in a group of FlagEmbedding, which draws from as many copies of a row's negatives as are needed."""
    path = write_lines(tmp_path / "t.jsonl", [of_flag(number, number + 1) for number in range(7)])
    for row in zip(*read_anchors([str(path)], seed=3).texts, strict=True):
        times = Counter(row[2:]).values()
        assert sum(times) == 7
        assert max(times) - min(times) <= 1


def test_of_many_texts_each_is_drawn_once_for_a_row(tmp_path):
    path = write_lines(tmp_path / "t.jsonl", [of_flag(0, 3), *(of_flag(number, 0) for number in range(1, 300))])
    corpus = read_anchors([str(path)], seed=1)
    rows = list(zip(*corpus.texts, strict=True))[1:]
    assert all(len({*row[2:]} - {row[1]}) == 3 for row in rows)
    times = Counter(text for row in rows for text in row[2:])
    assert len(times) > 250, "all texts are drawn, and not only some"
    assert max(times.values()) < 15


def test_texts_that_answer_the_same_anchor_are_never_drawn(tmp_path):
    rows = [{"query": "q", "pos": [f"p{i}"], "neg": []} for i in range(6)]
    path = write_lines(tmp_path / "t.jsonl", [*rows, {"query": "r", "pos": ["s"], "neg": ["n"]}])
    for seed in range(8):
        corpus = read_anchors([str(path)], seed=seed)
        assert set(corpus.texts[2][:6]) <= {"s", "n"}


@pytest.mark.slow
@pytest.mark.parametrize("form", ["csv", "jsonl", "null", "lists", "parquet", "two files"])
def test_no_row_is_left_out_for_its_negatives(invoke, tiny_bert, tmp_path, form):
    counts = [i % 4 for i in range(len(NOUNS))]
    rows = []
    for count, noun in zip(counts, NOUNS, strict=True):
        rows.append((f"the {noun}", f"a {noun} sat", *(f"no {noun} {i}" for i in range(count))))
    names = ("anchor", "positive", "negative_1", "negative_2", "negative_3")
    records = [dict(zip(names, row, strict=False)) for row in rows]
    files = [tmp_path / f"t.{form if form in ('csv', 'parquet') else 'jsonl'}"]
    match form:
        case "csv":
            table(files[0], names, [(*row, *[""] * (5 - len(row))) for row in rows])
        case "jsonl":
            write_lines(files[0], records)
        case "null":
            write_lines(files[0], [dict.fromkeys(names) | record for record in records])
        case "parquet":
            columns = [[record.get(name) for record in records] for name in names]
            pq.write_table(pa.table(columns, names=names), files[0])
        case "lists":
            write_lines(files[0], [{"anchor": a, "positive": p, "negative": n} for a, p, *n in rows])
        case "two files":
            files.append(tmp_path / "u.jsonl")
            write_lines(files[0], [record for record in records if len(record) < 4])
            write_lines(files[1], [record for record in records if len(record) >= 4])
    data = [word for file in files for word in ("--data", file)]
    out = tmp_path / "m"
    options = ("--batch-size", 6, "--max-steps", 1)
    result = invoke("train", "--method", "simcse", "-m", tiny_bert, *data, "-o", out, *options, check=0)
    config = json.loads((out / "sentcli.json").read_text())
    assert config["method"]["views"]["negatives"] == 3
    assert config["blank_rows"] == 0
    assert sum(file["sentences"] for file in config["data"]) == len(rows)
    assert re.search(rf"{counts.count(0)} rows have no negative", said(result))


def test_rows_that_lack_a_text_are_named_with_their_lines(invoke, tiny_bert, tmp_path):
    rows = [(f"the {noun}", f"a {noun}") for noun in NOUNS]
    rows[2] = ("", "a b")
    rows[5] = ("the c", " ")
    data = table(tmp_path / "data.csv", ("anchor", "positive"), rows)
    result = train(invoke, data, tiny_bert, tmp_path / "m", "--batch-size", 6, "--max-steps", 1)
    assert re.search(r"data\.csv line 4 \(anchor\), data\.csv line 7 \(positive\)", said(result))
    assert json.loads((tmp_path / "m" / "sentcli.json").read_text())["blank_rows"] == 2


def test_scored_pairs_that_lack_a_text_are_named(invoke, tiny_bert, tmp_path):
    rows = [(f"the {noun}", f"a {noun}", i % 6) for i, noun in enumerate(NOUNS)]
    rows[3] = ("the house", "", 2)
    data = table(tmp_path / "scored.csv", ("sentence1", "sentence2", "score"), rows)
    options = ("--batch-size", 4, "--max-steps", 1)
    done = train(invoke, data, tiny_bert, tmp_path / "m", *options, method="sts-regression")
    assert "1 pairs have an empty text: scored.csv line 5 (sentence2)" in said(done)


# Scores that squash the others


@pytest.mark.parametrize(("odd", "fitting"), [("1e9", "0,1e9"), ("-999", "-999,5"), ("-99", "-99,5"), ("99", "0,99")])
def test_a_score_far_from_the_others_is_refused_with_its_line(invoke, tiny_bert, tmp_path, odd, fitting):
    rows = [(f"the {noun}", f"a {noun}", i % 6) for i, noun in enumerate(NOUNS)]
    rows[4] = ("the car", "a car", odd)
    data = table(tmp_path / "scored.csv", ("sentence1", "sentence2", "score"), rows)
    options = ("--method", "sts-regression", "-m", tiny_bert, "--data", data, "--batch-size", 4, "--max-steps", 1)
    refused = invoke("train", *options, "-o", tmp_path / "m", check=2)
    assert re.search(r"scored\.csv, line 6: .*--score-range", said(refused))
    invoke("train", *options, "-o", tmp_path / "m", f"--score-range={fitting}", check=0)
    outside = invoke("train", *options, "-o", tmp_path / "n", "--score-range", "0,5", check=2)
    assert "scored.csv, line 6: " in said(outside)


@pytest.mark.parametrize(
    ("scores", "found"),
    [
        ([0, 120], (0, 120)), ([107, 107, 107, 112], (107, 112)), ([0, 20, 40, 60, 80, 120], (0, 120)),
        ([1, 2, 4, 8, 16, 32, 64, 128], (1, 128)), ([0, 1, 2, 97, 98, 99], (0, 100)), ([0.01, 0.02, 0.99], (0, 1)),
        ([0.9] * 9 + [0.95, -1], (-1, 1)), ([0, 0.1] * 10 + [5], (0, 5)), ([0, 0.1] * 3 + [5], (0, 5)),
    ],
)  # fmt: skip
def test_scores_that_are_spread_in_another_way_are_taken(tmp_path, scores, found):
    rows = [(f"a {i}", f"b {i}", score) for i, score in enumerate(scores)]
    data = table(tmp_path / "scored.csv", ("sentence1", "sentence2", "score"), rows)
    corpus, _ = read_training_pairs([str(data)])
    assert corpus.score_range == found


# Sentences that repeat


@pytest.mark.parametrize(
    ("method", "words"),
    [("mlm", None), ("simcse", "mask_duplicates"), ("ct", "analyze duplicates"), ("mirror-bert", "mask_duplicates")],
)
def test_repeated_sentences_are_said_where_they_are_negatives(invoke, tiny_bert, tmp_path, method, words):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"the {noun} is red\n" for noun in [*NOUNS, NOUNS[0]]), "utf-8")
    options = ("--batch-size", 8, "--max-steps", 1)
    done = said(train(invoke, text, tiny_bert, tmp_path / "m", *options, method=method))
    if words is None:
        assert "sentences repeat" not in done
    else:
        assert re.search(rf"1 of 13 sentences repeat .*{words}", done)


def test_repeated_sentences_are_not_said_where_they_are_masked(invoke, tiny_bert, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"the {noun} is red\n" for noun in [*NOUNS, NOUNS[0]]), "utf-8")
    options = ("--batch-size", 8, "--max-steps", 1, "--set", "mask_duplicates=true")
    assert "sentences repeat" not in said(train(invoke, text, tiny_bert, tmp_path / "m", *options))
