"""Classifiers trained together are those trained one after the other."""

import numpy as np
import pytest

from sentcli.errors import InputError
from sentcli.evaluation import probe, transfer
from sentcli.evaluation.transfer_tasks import Example, TransferTask
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
    return TransferTask("task", classes, kind, texts), transfer.TaskVectors(rows, np.stack(vectors), 0)


@pytest.mark.parametrize(("protocol", "settings"), [("full", plain.FULL), ("fast", plain.FAST)])
@pytest.mark.parametrize(("count", "classes"), [(203, 2), (151, 3)])
def test_nested_folds_are_those_of_the_toolkit(protocol, settings, count, classes):
    x, y = examples(count, classes)
    counted = []
    task, encoded = as_task("folds", classes, {"all": (x, y)})
    found = transfer.score(probe.PROTOCOLS[protocol], task, encoded, counted.append)
    dev, test = plain.nested(x, y, classes, settings)
    assert found.dev_accuracy == pytest.approx(dev, abs=0.01)
    assert found.accuracy == pytest.approx(test, abs=0.01)
    assert found.train == found.test == len(found.correct) == count
    folds = settings["folds"]
    assert sum(counted) == transfer.classifiers(probe.PROTOCOLS[protocol], task) == folds * (4 * folds + 1)


@pytest.mark.parametrize(("protocol", "settings"), [("full", plain.FULL), ("fast", plain.FAST)])
def test_a_test_set_of_its_own(protocol, settings):
    train, test = examples(307, 4), examples(120, 4, seed=1)
    task, encoded = as_task("test", 4, {"train": train, "test": test})
    found = transfer.score(probe.PROTOCOLS[protocol], task, encoded)
    assert (found.dev_accuracy, found.accuracy) == pytest.approx(plain.with_test(*train, test, 4, settings), abs=0.01)
    assert found.accuracy == pytest.approx(100 * np.mean(found.correct))


def test_a_development_set_of_its_own():
    train, dev, test = (examples(count, 2, seed) for seed, count in enumerate((500, 90, 110)))
    task, encoded = as_task("dev and test", 2, {"train": train, "dev": dev, "test": test})
    found = transfer.score(probe.PROTOCOLS["full"], task, encoded)
    wanted = plain.with_dev_and_test(*train, dev, test, 2, plain.FULL)
    assert (found.dev_accuracy, found.accuracy) == pytest.approx(wanted, abs=0.01)


def test_every_classifier_is_the_one_trained_alone():
    """Weights, not accuracies: folds of two sizes, classifiers that stop at different times."""
    x, y = examples(333, 2)
    folds = [probe.Fold(fit, dev) for fit, dev in probe.split(y, 10)]
    assert len({len(fold.train) for fold in folds}) == 2
    found = probe.PROTOCOLS["full"].train(x, y, 2, folds, [plain.PENALTIES] * 10, lambda count: None)
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
        found = probe.PROTOCOLS["lbfgs"].train(x, y, classes, [fold], [(0.5, 4.0)], lambda count: None)
        for run, strength in enumerate((0.5, 4.0)):
            alone = LogisticRegression(C=strength).fit(x[:200], y[:200])
            np.testing.assert_array_equal(found.predict(0, run, x), alone.predict(x))
            assert found.accuracy[0, run] == pytest.approx(alone.score(x[200:], y[200:]))


def test_the_first_of_equal_penalties_is_taken():
    accuracy = np.array([[0.5, 0.70001, 0.7], [0.5, 0.7, 0.70001]])
    assert probe_best(accuracy) == 1
    assert probe_best(np.array([[0.7, 0.70001]])) == 0, "equal to two decimals"


def probe_best(accuracy):
    return transfer.best(accuracy)[0]


def test_too_few_examples_for_the_folds():
    task, encoded = as_task("folds", 2, {"all": (np.zeros((12, 3), np.float32), np.array([0] * 3 + [1] * 9))})
    with pytest.raises(InputError, match="a class has 3 training examples, too few for 10 folds"):
        transfer.score(probe.PROTOCOLS["full"], task, encoded)
