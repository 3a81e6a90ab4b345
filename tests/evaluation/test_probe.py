"""Classifiers trained together are those trained one after the other."""

import numpy as np
import pytest

from sentcli.errors import InputError
from sentcli.evaluation import logistic, probe, transfer
from sentcli.evaluation.transfer_data import Example, Examples
from sentcli.stores.text_vectors import TextVectors
from tests.reference import plain_senteval as plain


def examples(count, classes, seed=0, width=6, noise=1.5):
    """Points around the corners of a simplex, many of them on the wrong side."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, count)
    x = np.eye(width, dtype=np.float32)[y] * 2 + rng.normal(0, noise, (count, width)).astype(np.float32)
    return x.astype(np.float32), y


def as_task(kind, classes, splits):
    """Return a task whose texts are the numbers of their vectors, with these vectors."""
    vectors, texts = [], {}
    for split, (x, y) in splits.items():
        texts[split] = [Example((str(len(vectors) + i),), int(label)) for i, label in enumerate(y)]
        vectors.extend(x)
    rows = {str(i): i for i in range(len(vectors))}
    return Examples("task", classes, kind, texts), TextVectors(rows, np.stack(vectors), np.zeros(len(vectors), int))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "settings", "count", "classes"),
    [pytest.param("full", plain.FULL, 151, 3, marks=pytest.mark.deep), ("fast", plain.FAST, 203, 2)],
)
def test_nested_folds_are_those_of_the_toolkit(protocol, settings, count, classes):
    x, y = examples(count, classes)
    counted = []
    task, encoded = as_task("folds", classes, {"all": (x, y)})
    found = transfer.score_transfer(transfer.PROTOCOLS[protocol], task, encoded, counted.append)
    dev, test = plain.nested(x, y, classes, settings)
    assert found.metrics["dev_accuracy"] == pytest.approx(dev, abs=0.01)
    assert found.metrics["accuracy"] == pytest.approx(test, abs=0.01)
    assert found.details["train"] == found.details["test"] == len(found.correct) == count
    folds = settings["folds"]
    assert sum(counted) == transfer.classifiers(transfer.PROTOCOLS[protocol], task) == folds * (4 * folds + 1)


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "settings"), [("full", plain.FULL), ("fast", plain.FAST)])
def test_a_test_set_of_its_own(protocol, settings):
    train, test = examples(307, 4), examples(120, 4, seed=1)
    task, encoded = as_task("test", 4, {"train": train, "test": test})
    found = transfer.score_transfer(transfer.PROTOCOLS[protocol], task, encoded)
    assert (found.metrics["dev_accuracy"], found.metrics["accuracy"]) == pytest.approx(
        plain.with_test(*train, test, 4, settings), abs=0.01
    )
    assert found.value == pytest.approx(100 * np.mean(found.correct))


def test_a_development_set_of_its_own():
    train, dev, test = (examples(count, 2, seed) for seed, count in enumerate((500, 90, 110)))
    task, encoded = as_task("dev and test", 2, {"train": train, "dev": dev, "test": test})
    found = transfer.score_transfer(transfer.PROTOCOLS["full"], task, encoded)
    wanted = plain.with_dev_and_test(*train, dev, test, 2, plain.FULL)
    assert (found.metrics["dev_accuracy"], found.metrics["accuracy"]) == pytest.approx(wanted, abs=0.01)


@pytest.mark.slow
def test_every_classifier_is_the_one_trained_alone():
    """Weights, not accuracies: folds of two sizes, classifiers that stop at different times."""
    x, y = examples(333, 2)
    folds = [probe.Fold(fit, dev) for fit, dev in probe.stratified(y, 10)]
    assert len({len(fold.train) for fold in folds}) == 2
    found = transfer.PROTOCOLS["full"].train(probe.Grid(x, y, 2, folds, [plain.PENALTIES] * 10), lambda count: None)
    for number, fold in enumerate(folds):
        for run, penalty in enumerate(plain.PENALTIES):
            alone = plain.PlainClassifier(x.shape[1], 2, penalty, plain.FULL)
            accuracy = alone.fit(x[fold.train], y[fold.train], (x[fold.dev], y[fold.dev]))
            assert found.accuracy[number, run] == pytest.approx(accuracy)
            weight = np.vstack([alone.model.weight.detach().numpy().T, alone.model.bias.detach().numpy()])
            np.testing.assert_allclose(found.weights[number, run], weight, atol=1e-4)


def test_lbfgs_is_scikit_learns():
    from sklearn.linear_model import LogisticRegression

    for classes in (2, 3):
        x, y = examples(260, classes)
        fold = probe.Fold(np.arange(200), np.arange(200, 260))
        small = probe.Fold(np.arange(20, 160), np.arange(200, 260))
        counted = []
        found = transfer.PROTOCOLS["lbfgs"].train(
            probe.Grid(x, y, classes, [fold, small], [(0.02, 4.0)] * 2), counted.append
        )
        assert sum(counted) == 4
        for number, part in enumerate((fold, small)):
            for run, strength in enumerate((0.02, 4.0)):
                alone = LogisticRegression(C=strength, tol=1e-8, max_iter=5000).fit(x[part.train], y[part.train])
                weight = found.weights[number, run]
                scores = x @ weight[:-1] + weight[-1]
                assert_same_log_odds(scores, alone.decision_function(x))
                assert found.accuracy[number, run] == pytest.approx(alone.score(x[200:], y[200:]), abs=0.01)


def assert_same_log_odds(scores, wanted):
    if wanted.ndim == 1:
        np.testing.assert_allclose(scores[:, 1] - scores[:, 0], wanted, atol=0.02)
    else:
        differences = scores - wanted  # a constant for all classes changes nothing
        np.testing.assert_allclose(differences - differences.mean(axis=1, keepdims=True), 0, atol=0.02)


def test_lbfgs_in_parts_is_the_same(monkeypatch):
    x, y = examples(300, 3)
    folds = [probe.Fold(fit, dev) for fit, dev in probe.stratified(y, 5)]
    whole = transfer.PROTOCOLS["lbfgs"].train(probe.Grid(x, y, 3, folds, [(0.5, 4.0)] * 5), lambda count: None)
    monkeypatch.setattr(logistic, "MOST_SCORES", 3000)
    parts = transfer.PROTOCOLS["lbfgs"].train(probe.Grid(x, y, 3, folds, [(0.5, 4.0)] * 5), lambda count: None)
    np.testing.assert_allclose(parts.weights, whole.weights, atol=1e-3)


def test_lbfgs_separable_classes_and_one_feature_that_is_huge():
    """Where steps have to be halved: nothing overflows, and everything is solved."""
    x = np.array([[1000.0, 1], [1200, 0], [-900, 1], [-1000, 0]] * 10, np.float32)
    y = np.array([1, 1, 0, 0] * 10)
    fold = probe.Fold(np.arange(40), np.arange(40))
    counted = []
    found = transfer.PROTOCOLS["lbfgs"].train(probe.Grid(x, y, 2, [fold], [(0.25, 8.0)]), counted.append)
    assert sum(counted) == 2 and np.isfinite(found.weights).all()
    assert found.accuracy.tolist() == [[1, 1]]


def test_the_first_of_equal_penalties_is_taken():
    accuracy = np.array([[0.5, 0.70001, 0.7], [0.5, 0.7, 0.70001]])
    assert probe_best(accuracy) == 1
    assert probe_best(np.array([[0.7, 0.70001]])) == 0, "equal to two decimals"


def probe_best(accuracy):
    return transfer.best(accuracy)[0]


def test_too_few_examples_for_the_folds():
    task, encoded = as_task("folds", 2, {"all": (np.zeros((12, 3), np.float32), np.array([0] * 3 + [1] * 9))})
    with pytest.raises(InputError, match=r"3.*10"):
        transfer.score_transfer(transfer.PROTOCOLS["full"], task, encoded)
