"""Tables of labelled text as tasks: against scikit-learn and sentence-transformers, and what is refused."""

import json
import shutil

import numpy as np
import pytest

from sentcli import SentenceEncoder
from sentcli.errors import InputError, SentcliError
from sentcli.evaluation import average_precision, significance
from sentcli.evaluation.average_precision import best_f1
from sentcli.evaluation.evaluated import EvaluatedModel
from sentcli.evaluation.labelled_data import load_tasks
from sentcli.evaluation.positives import positive_ranks
from sentcli.evaluation.retrieval_metrics import ranked
from sentcli.evaluation.score_json import score_of, score_record, task_json
from sentcli.evaluation.sts import cosine
from sentcli.stores.text_vectors import TextVectors

NOUNS = "cat dog bird fish man woman child river house tree mat".split()
VERBS = "sat ran flew swam plays eats sees finds".split()
TEXTS = [f"the {noun} {verb} near the {place}" for noun in NOUNS for verb in VERBS for place in ("house", "old river")]


def write(path, columns, rows):
    """Write a table of tab-separated values."""
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in (columns, *rows)))
    return str(path)


def of_vectors(texts, vectors):
    """Vectors of distinct texts, as tasks get them."""
    return TextVectors({text: row for row, text in enumerate(texts)}, vectors, np.zeros(len(texts), np.int64))


class Fixed:
    """A model with given vectors and no prompts."""

    def __init__(self, vectors_by_text):
        self.vectors_by_text, self.spec = vectors_by_text, self

    def role_prompt(self, role):
        return ""

    def encode_shown(self, label, texts, *, prompt=None):
        texts = list(dict.fromkeys(texts))
        return of_vectors(texts, np.array([self.vectors_by_text[text] for text in texts], np.float32))


@pytest.fixture(scope="module")
def prompted(tiny_bert, tmp_path_factory):
    """A folder of sentence-transformers whose model has prompts for queries and documents."""
    from sentence_transformers import SentenceTransformer

    folder = tmp_path_factory.mktemp("models") / "prompted"
    prompts = {"query": "the woman finds ", "document": "the dog sees "}
    SentenceTransformer(str(tiny_bert), device="cpu", prompts=prompts).save(str(folder))
    return folder


# Against the libraries that people know


def test_pairs_equal_sentence_transformers_with_prompts_and_several_positives(prompted, tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

    rows = [(TEXTS[i], TEXTS[100 + i]) for i in range(40)] + [(TEXTS[i], TEXTS[150 - i]) for i in range(10)]
    (task,) = load_tasks([write(tmp_path / "p.tsv", ["anchor", "positive"], rows)])
    ours = EvaluatedModel.of(SentenceEncoder.load(prompted, backend="torch")).measure([task])[0]
    queries = {f"q{i}": text for i, text in enumerate(dict.fromkeys(a for a, _ in rows))}
    corpus = {f"d{i}": text for i, text in enumerate(dict.fromkeys(p for _, p in rows))}
    relevant = {q: {d for d, text in corpus.items() if (anchor, text) in rows} for q, anchor in queries.items()}
    recalls = {"mrr_at_k": [10], "precision_recall_at_k": [1, 5, 10]}
    evaluator = InformationRetrievalEvaluator(queries, corpus, relevant, **recalls, write_csv=False)
    theirs = evaluator(SentenceTransformer(str(prompted), device="cpu"))
    for metric in ("mrr@10", "recall@1", "recall@5", "recall@10"):
        assert ours.metrics[metric] == pytest.approx(theirs[f"cosine_{metric}"], abs=1e-6)
    assert (ours.details["items"], ours.details["corpus"]) == (40, len(corpus))


def test_triplets_and_binary_pairs_equal_sentence_transformers(tiny_bert, tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.evaluation import BinaryClassificationEvaluator, TripletEvaluator

    triplets = [(TEXTS[i], TEXTS[i + 1], TEXTS[(7 * i + 90) % 170]) for i in range(29)]
    pairs = [(TEXTS[i], TEXTS[(5 * i + 1) % 170], int(i % 3 == 0)) for i in range(60)]
    tasks = load_tasks(
        [
            write(tmp_path / "t.tsv", ["anchor", "positive", "negative"], triplets),
            write(tmp_path / "b.tsv", ["sentence1", "sentence2", "label"], pairs),
        ]
    )
    of_triplets, of_pairs = EvaluatedModel.of(SentenceEncoder.load(tiny_bert, backend="torch")).measure(tasks)
    model = SentenceTransformer(str(tiny_bert), device="cpu")
    theirs = TripletEvaluator(*map(list, zip(*triplets, strict=True)), write_csv=False)(model)
    assert of_triplets.metrics["accuracy"] == pytest.approx(theirs["cosine_accuracy"])
    theirs = BinaryClassificationEvaluator(*map(list, zip(*pairs, strict=True)), write_csv=False)(model)
    assert of_pairs.metrics["average_precision"] == pytest.approx(theirs["cosine_ap"], abs=1e-6)
    assert of_pairs.metrics["f1"] == pytest.approx(theirs["cosine_f1"], abs=1e-6)
    assert of_pairs.metrics["threshold"] == pytest.approx(theirs["cosine_f1_threshold"], abs=1e-6)


def test_ties_are_ties_with_every_backend_batch_and_number_of_threads(tiny_bert, tmp_path, monkeypatch):
    """Cosines of equal texts, and of texts that differ in case alone, differed by rounding, which then ranked them."""
    import torch

    pairs = [(text, text.upper() if i % 3 else text) for i, text in enumerate(TEXTS[:24])]
    for i in range(24, 60):
        other = TEXTS[i + 60]
        pairs += [(TEXTS[i], other), (TEXTS[i].upper(), other.title())]
    labelled = [(*pair, int(i % 4 < 2) ^ (i % 2)) for i, pair in enumerate(pairs)]
    scored = [(*pair, (3 * i) % 5) for i, pair in enumerate(pairs)]
    tasks = load_tasks(
        [
            write(tmp_path / "b.tsv", ["sentence1", "sentence2", "label"], labelled),
            write(tmp_path / "s.tsv", ["sentence1", "sentence2", "score"], scored),
        ]
    )
    found = set()
    for backend, batch_tokens, threads in (("torch", None, 1), ("torch", 64, 2), ("onnx", None, 1), ("onnx", 64, 1)):
        encoder = SentenceEncoder.load(tiny_bert, backend=backend)
        if batch_tokens is not None:
            monkeypatch.setattr(encoder.backend, "default_batch_tokens", batch_tokens)
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        binary, similarity = EvaluatedModel.of(encoder).measure(tasks)
        torch.set_num_threads(before)
        metrics = [binary.metrics[metric] for metric in ("average_precision", "auc", "f1")]
        found.add((*metrics, similarity.metrics["spearman"], *binary.intervals["average_precision"]))
    assert len(found) == 1


@pytest.mark.slow
def test_binary_pairs_equal_scikit_learn(tmp_path):
    from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

    random = np.random.default_rng(0)
    vectors = random.normal(size=(170, 4)).astype(np.float32)
    pairs = [(TEXTS[i], TEXTS[(3 * i + 1) % 170], int(random.random() < 0.3)) for i in range(150)]
    (task,) = load_tasks([write(tmp_path / "b.tsv", ["sentence1", "sentence2", "label"], pairs)])
    score = task.score(None, of_vectors(TEXTS[:170], vectors))
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    predicted = np.array([float(unit[TEXTS.index(a)] @ unit[TEXTS.index(b)]) for a, b, _ in pairs])
    labels = np.array([label for *_, label in pairs])
    assert score.metrics["average_precision"] == pytest.approx(average_precision_score(labels, predicted), abs=1e-6)
    assert score.metrics["auc"] == pytest.approx(roc_auc_score(labels, predicted), abs=1e-6)
    every = [f1_score(labels, predicted >= threshold) for threshold in predicted]
    assert score.metrics["f1"] == pytest.approx(max(every), abs=1e-6)
    assert f1_score(labels, predicted >= score.metrics["threshold"]) == pytest.approx(max(every), abs=1e-6)
    low, high = score.intervals["average_precision"]
    assert low < score.value < high


def test_the_best_f1_takes_equal_similarities_together():
    assert best_f1(np.array([0.9, 0.5, 0.5, 0.1]), np.array([True, True, False, False])) == (0.8, pytest.approx(0.3))
    assert best_f1(np.array([0.5, 0.5]), np.array([True, False])) == (pytest.approx(2 / 3), 0.5)


@pytest.mark.parametrize("ties", [True, False])
def test_samples_of_average_precision_take_a_pair_once_at_its_own_place(ties):
    """In each sample the copies of a pair are left out while its precision is taken, and the pairs once are all."""
    from sklearn.metrics import average_precision_score

    random = np.random.default_rng(1)
    predicted, positive = random.random(40), random.random(40) < 0.4
    predicted = np.round(predicted, 1) if ties else predicted
    expected = average_precision_score(positive, predicted)
    value, without = average_precision._average_precisions(predicted, positive)
    assert value == pytest.approx(expected, abs=1e-12)
    for i in range(40):
        rest = np.arange(40) != i
        assert without[i] == pytest.approx(average_precision_score(positive[rest], predicted[rest]), abs=1e-12)
    draws = average_precision.precision_replicates(predicted, positive, 20)
    for draw, counts in zip(draws, np.concatenate(list(significance.resampled_counts(40, 20, 0))), strict=True):
        precisions = []
        for i in np.flatnonzero(positive & (counts > 0)):
            taken = (predicted >= predicted[i]) * np.where(np.arange(40) == i, 1, counts)
            precisions += int(counts[i]) * [taken[positive].sum() / taken.sum()]
        assert draw == pytest.approx(np.mean(precisions), abs=1e-12)


def test_few_positive_pairs_have_no_interval(tmp_path):
    rows = [(f"a {i}", f"b {i}", int(i < 9)) for i in range(60)]
    (task,) = load_tasks([write(tmp_path / "p.tsv", ["sentence1", "sentence2", "label"], rows)])
    texts = [text for a, b, _ in rows for text in (a, b)]
    score = task.score(None, of_vectors(texts, np.random.default_rng(0).normal(size=(120, 4)).astype(np.float32)))
    assert task_json(score)["interval"] is None and not score.intervals and not score.replicates
    assert 0 < task_json(score)["average_precision"] < 1


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_not_finite_have_no_score(bad):
    """NaN is below every threshold and above none, so F1 and reciprocal ranks were perfect."""
    scores, vectors = np.array([0.9, bad, 0.1]), np.array([[1, 0], [bad, 0], [0, 1]], np.float32)
    labels = np.array([True, False, True])
    for call in (
        lambda: best_f1(scores, labels),
        lambda: positive_ranks(vectors, vectors[::-1], [[0], [1], [2]], [-1, -1, -1]),
        lambda: cosine(vectors, vectors),
        lambda: of_vectors(["a", "b", "c"], vectors),
        lambda: average_precision.precision_replicates(scores, labels, 5),
        lambda: significance.spearman_replicates(scores, labels.astype(float), 5),
        lambda: ranked({"q": {"a": bad, "b": 0.5}}, {"q": {"a": 1}}),
    ):
        with pytest.raises(SentcliError):
            call()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The groups parameter")
@pytest.mark.parametrize("grouped", [pytest.param(False, marks=pytest.mark.deep), True])
def test_labels_equal_scikit_learns_nested_cross_validation(tmp_path, grouped):
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    random = np.random.default_rng(2)
    classes = [("bad", "fair", "good")[i % 3] for i in range(90)]
    vectors = (random.normal(size=(90, 3)) + 1.3 * np.eye(3)[np.arange(90) % 3]).astype(np.float32)
    texts = [f"{'word ' * (i % 7)}{i}" for i in range(90)]
    authors = [f"author {i * i % 41}" for i in range(90)]
    file = write(tmp_path / "l.tsv", ["text", "label", "author"], zip(texts, classes, authors, strict=True))
    (task,) = load_tasks([file], group_by="author" if grouped else None)
    score = task.score(None, of_vectors(texts, vectors))
    order = sorted(range(90), key=lambda i: (len(texts[i].split()), ("bad", "fair", "good").index(classes[i])))
    x, y, groups = vectors[order], np.array(classes)[order], np.array([authors.index(authors[i]) for i in order])
    shuffled = {"shuffle": True, "random_state": 1111}
    folds = StratifiedGroupKFold(10, **shuffled) if grouped else StratifiedKFold(10, **shuffled)
    groups = groups if grouped else np.arange(90)
    accuracies = []
    for train, test in folds.split(x, y, groups):
        assert not set(groups[train]) & set(groups[test])
        strengths = [2.0**power for power in range(-2, 4)]
        inner = [
            np.mean([_right(LogisticRegression(C=c, tol=1e-6), x[train][a], y[train][a], x[train][b], y[train][b])
                     for a, b in folds.split(x[train], y[train], groups[train])])
            for c in strengths
        ]  # fmt: skip
        chosen = strengths[int(np.argmax(np.round(100 * np.array(inner), 2)))]
        accuracies.append(_right(LogisticRegression(C=chosen, tol=1e-6), x[train], y[train], x[test], y[test]))
    assert score.metrics["accuracy"] == pytest.approx(np.mean(accuracies), abs=0.02)
    assert score.details["majority"] == pytest.approx(1 / 3)
    assert 0 < score.intervals["accuracy"][0] < score.value < score.intervals["accuracy"][1] < 1
    assert task.protocol.get("group_by") == ("author" if grouped else None)
    assert (task.identity == load_tasks([file])[0].identity) is not grouped


def _right(classifier, x, y, test_x, test_y):
    return float((classifier.fit(x, y).predict(test_x) == test_y).mean())


def test_copies_across_folds_are_counted_and_groups_take_them_away(tmp_path, capsys):
    texts = [f"{'word ' * (i % 4)}item {chr(97 + i % 26)}{chr(97 + i // 26)}" for i in range(60)]
    rows = [(text, ("bad", "good")[i % 2], str(i)) for i, text in enumerate(texts)]
    rows += [(texts[3], "good", "3"), (f"{texts[4].upper()} - 12!", "bad", "4")]
    file = write(tmp_path / "copies.tsv", ["text", "label", "source"], rows)
    (task,), (grouped,) = load_tasks([file]), load_tasks([file], group_by="source")
    copies = task.caveats["copies_across_folds"]
    assert copies == {"equal": 2, "nearly_equal": 2}
    assert grouped.caveats["copies_across_folds"] == {"equal": 0, "nearly_equal": 0}
    said = " ".join(capsys.readouterr().err.split())
    assert "4 of 62 texts stand in another fold" in said and said.count("--group-by") == 1


def test_what_groups_need(tmp_path):
    rows = [(f"text {i}", "ab"[i % 2], str(i % 7)) for i in range(60)]
    file = write(tmp_path / "few.tsv", ["text", "label", "author"], rows)
    with pytest.raises(InputError, match=r"7 groups .*10 folds"):
        load_tasks([file], group_by="author")
    with pytest.raises(InputError, match=r"few\.tsv, line 2: no column 'autor'.*author"):
        load_tasks([file], group_by="autor")
    pairs = write(
        tmp_path / "pairs.tsv", ["anchor", "positive", "author"], [(f"a{i}", f"b{i}", "x") for i in range(20)]
    )
    with pytest.raises(InputError, match=r"--group-by author .*pairs\.tsv has pairs"):
        load_tasks([pairs], group_by="author")


# What no model gains by


def test_equal_vectors_find_nothing(tmp_path):
    rows = [(f"a{i}", f"p{i}", f"n{i}") for i in range(20)]
    same = Fixed({text: [1.0, 0.0] for row in rows for text in row})
    pairs = write(tmp_path / "p.tsv", ["anchor", "positive"], [row[:2] for row in rows])
    triplets = write(tmp_path / "t.tsv", ["anchor", "positive", "negative"], rows)
    of_pairs, of_triplets = (
        task.score(same, of_vectors([], np.empty((0, 2)))) for task in load_tasks([pairs, triplets])
    )
    assert (of_pairs.metrics["mrr@10"], of_pairs.metrics["recall@10"]) == (0, 0)
    assert of_triplets.metrics["accuracy"] == 0


def test_ranks_of_several_positives_and_the_own_text():
    corpus = np.array([[1, 0], [0.9, 0.1], [0.8, 0.3], [0, 1]], np.float32)
    query = np.array([[1, 0]], np.float32)
    assert [ranks.tolist() for ranks in positive_ranks(query, corpus, [[3, 1]], [-1])] == [[2, 4]]
    assert [ranks.tolist() for ranks in positive_ranks(query, corpus, [[3, 1]], [0])] == [[1, 3]]
    assert [ranks.tolist() for ranks in positive_ranks(query, corpus, [[0, 1]], [0])] == [[1, 2]]


def test_an_anchor_is_no_answer_to_itself(tmp_path):
    rows = [(f"t{i}", f"t{(i + 1) % 12}") for i in range(12)]  # every anchor is the positive of another one
    angles = np.arange(12) * 0.1
    model = Fixed({f"t{i}": [np.cos(a), np.sin(a)] for i, a in enumerate(angles)})
    (task,) = load_tasks([write(tmp_path / "p.tsv", ["anchor", "positive"], rows)])
    score = task.score(model, of_vectors([], np.empty((0, 2))))
    assert score.metrics["mrr@10"] == pytest.approx((1 + 10 * 0.5) / 12)  # the text before is as near as the one after


# A model that learns


def test_live_weights_are_scored_each_time_and_never_kept(tiny_bert, tmp_path):
    import torch

    folder = beir(tmp_path / "set", "dev")
    pairs = write(tmp_path / "p.tsv", ["anchor", "positive"], [(TEXTS[i], TEXTS[80 + i]) for i in range(30)])
    scored = write(
        tmp_path / "s.tsv", ["sentence1", "sentence2", "score"], [(TEXTS[i], TEXTS[80 + i], i % 5) for i in range(30)]
    )
    tasks = load_tasks([str(folder), pairs, scored], resamples=0)
    model = EvaluatedModel.of(SentenceEncoder.load(tiny_bert, backend="torch"))
    before = [score.value for score in model.measure(tasks)]
    assert before == [score.value for score in model.measure(tasks)]
    with torch.no_grad():
        for parameter in model.load().torch_module.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)))
    scores = model.measure(tasks)
    assert all(old != new.value for old, new in zip(before, scores, strict=True))
    assert model.cached == []
    assert all(not score.replicates and not score.intervals for score in scores)


def beir(folder, *splits, relevant=1):
    """Write a retrieval set of 12 queries and 30 documents."""
    (folder / "qrels").mkdir(parents=True)
    documents = [{"_id": f"d{i}", "title": "", "text": TEXTS[i]} for i in range(30)]
    queries = [{"_id": f"q{i}", "text": TEXTS[60 + i]} for i in range(12)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(record) + "\n" for record in documents))
    (folder / "queries.jsonl").write_text("".join(json.dumps(record) + "\n" for record in queries))
    rows = "".join(f"q{i}\td{i + 3}\t{relevant}\n" for i in range(12))
    for split in splits:
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)
    return folder


# What is read and what is refused


@pytest.mark.parametrize(("splits", "chosen"), [(["dev", "test"], "dev"), (["test"], "test"), (["train"], "train")])
def test_a_set_is_scored_on_its_split_dev_or_its_only_one(tmp_path, splits, chosen):
    (task,) = load_tasks([str(beir(tmp_path / "set", *splits))])
    assert (task.kind.name, task.name, task.data.split) == ("retrieval", "set", chosen)


def test_sets_that_cannot_be_scored(tmp_path):
    cases = {
        "two .*test, train.*dev": beir(tmp_path / "two", "train", "test"),
        r"none/qrels/dev\.tsv: .*corpus\.jsonl": beir(tmp_path / "none", "dev", relevant=0),
        "dev.tsv: 12 judged": None,
    }
    for words, folder in list(cases.items())[:2]:
        with pytest.raises(InputError, match=words):
            load_tasks([str(folder)])
    few = beir(tmp_path / "few", "dev")
    qrels = (few / "qrels" / "dev.tsv").read_text().splitlines(keepends=True)
    (few / "qrels" / "dev.tsv").write_text("".join(qrels[:6]))
    with pytest.raises(InputError, match=r"dev\.tsv.*5.*10"):
        load_tasks([str(few)])


BINARY, LABELS = ["sentence1", "sentence2", "label"], ["text", "label"]
PAIRS, TRIPLETS = ["anchor", "positive"], ["anchor", "positive", "negative"]


@pytest.mark.parametrize(
    ("columns", "row", "words"),
    [
        (BINARY, lambda i: (f"a{i}", f"b{i}", 1), ": .*20 labels .*1"),
        (LABELS, lambda i: (f"a{i}", "x"), ": .*20 labels .*'x'"),
        (LABELS, lambda i: (f"a{i}", "x" if i else "y"), r", line 2: .*'y'.*\b1 .*\b12 "),
        (PAIRS, lambda i: (f"a{i}", " " if i == 4 else "b"), ", line 6: positive .*--skip-empty"),
        (PAIRS, lambda i: (f"a{i}", "b"), ": .*positives"),
        (PAIRS, lambda i: (f"a{i % 9}", f"b{i}"), ": 9 .*10"),
        (TRIPLETS, lambda i: (f"a{i}", f"b{i}", "b3"), ", line 5: negative.*positive.*'b3'"),
        (["sentence1", "sentence2", "score"], lambda i: (f"a{i}", f"b{i}", 2), ": 20 .*scores"),
    ],
)
def test_tables_that_cannot_be_scored(tmp_path, columns, row, words):
    file = write(tmp_path / "t.tsv", columns, [row(i) for i in range(20)])
    with pytest.raises(InputError, match=f"^{file}{words}"):
        load_tasks([file])


def test_too_few_rows_and_the_range_of_scores(tmp_path):
    rows = [(f"a{i}", f"b{i}", i) for i in range(12)]
    with pytest.raises(InputError, match=r"9.*10"):
        load_tasks([write(tmp_path / "few.tsv", ["sentence1", "sentence2", "score"], rows[:9])])
    file = write(tmp_path / "t.tsv", ["sentence1", "sentence2", "score"], rows)
    assert load_tasks([file])[0].description == "12 scored pairs, scores from 0 to 100"


def test_files_of_one_name_are_named_apart(tmp_path):
    rows = [(f"a{i}", f"b{i}") for i in range(12)]
    files = []
    for name in ("x/dev.tsv", "y/dev.tsv", "y/more.tsv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        files.append(write(tmp_path / name, PAIRS, rows))
    assert [task.name for task in load_tasks(files)] == ["x/dev.tsv", "y/dev.tsv", "more.tsv"]
    assert [task.name for task in load_tasks([str(tmp_path / "y")])] == ["dev.tsv", "more.tsv"]
    with pytest.raises(InputError, match=r"x/dev\.tsv"):
        load_tasks([files[0], str(tmp_path / "x")])


def test_options_of_tables_are_refused_where_there_is_none(tmp_path):
    folder = str(beir(tmp_path / "set", "dev"))
    with pytest.raises(InputError, match="--kind"):
        load_tasks([folder], kind="pairs")
    with pytest.raises(InputError, match="--pair-fields"):
        load_tasks([folder], fields="a,b")
    shutil.rmtree(tmp_path / "set" / "qrels")
    with pytest.raises(InputError, match=f"^{folder}/qrels/"):
        load_tasks([folder])


def test_a_file_of_sts_b_is_known_by_its_layout(tmp_path):
    lines = [f"g\tf\t2012\t{i}\t{i % 5}.0\ta  cat {i}\ta dog {i}\n" for i in range(12)]
    (tmp_path / "sts-dev.csv").write_text("".join(lines))
    (task,) = load_tasks([str(tmp_path / "sts-dev.csv")])
    assert task.texts[0] == "a cat 0"


def test_scores_come_back_from_the_cache_whole(tmp_path):
    (task,) = load_tasks([write(tmp_path / "p.tsv", PAIRS, [(f"a{i}", f"b{i}") for i in range(12)])])
    model = Fixed({text: np.eye(12)[i] for i in range(12) for text in (f"a{i}", f"b{i}")})
    score = task.score(model, of_vectors([], np.empty((0, 2))))
    again = score_of(json.loads(json.dumps(score_record(score))))
    assert task_json(again) == task_json(score)
    assert {key: task_json(again)[key] for key in ("kind", "metric", "value", "items")} == {
        "kind": "pairs", "metric": "mrr@10", "value": 1.0, "items": 12,
    }  # fmt: skip
