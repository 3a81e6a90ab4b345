"""SentEval's protocol with one classifier after the other: what `sentcli.evaluation.probe` is compared with.

The order of random numbers is the toolkit's; every classifier has a module and an optimiser of torch.
"""

import copy

import numpy as np
import torch
from sklearn.model_selection import StratifiedKFold

PENALTIES = (1e-5, 1e-4, 1e-3, 1e-2)
FULL = {"folds": 10, "optimizer": torch.optim.Adam, "batch": 64, "tenacity": 5, "epochs": 4}
FAST = {"folds": 5, "optimizer": torch.optim.RMSprop, "batch": 128, "tenacity": 3, "epochs": 2}


class PlainClassifier:
    def __init__(self, width, classes, penalty, settings):
        self.random = np.random.RandomState(1111)  # the toolkit seeds numpy anew for every classifier
        torch.manual_seed(1111)
        self.settings = settings
        self.model = torch.nn.Linear(width, classes)
        self.optimizer = settings["optimizer"](self.model.parameters(), weight_decay=penalty)

    def fit(self, x, y, dev=None):
        if dev is None:
            order = self.random.permutation(len(x))
            held = int(0.05 * len(x))
            dev, x, y = (x[order[:held]], y[order[:held]]), x[order[held:]], y[order[held:]]
        x, y = torch.from_numpy(x), torch.from_numpy(y)
        best, kept, worse, done, stop = -1.0, None, 0, 0, False
        while not stop and done <= 200:
            for _ in range(self.settings["epochs"]):
                order = torch.from_numpy(self.random.permutation(len(x)))
                for rows in order.split(self.settings["batch"]):
                    self.optimizer.zero_grad()
                    torch.nn.functional.cross_entropy(self.model(x[rows]), y[rows]).backward()
                    self.optimizer.step()
            done += self.settings["epochs"]
            accuracy = self.score(*dev)
            if accuracy > best:
                best, kept = accuracy, copy.deepcopy(self.model)
            else:
                stop = worse >= self.settings["tenacity"]
                worse += 1
        self.model = kept
        return best

    @torch.no_grad()
    def predict(self, x):
        return self.model(torch.from_numpy(x)).argmax(dim=1).numpy()

    def score(self, x, y):
        return float((self.predict(x) == y).mean())


def folds_of(y, settings):
    return list(StratifiedKFold(settings["folds"], shuffle=True, random_state=1111).split(np.zeros(len(y)), y))


def chosen(x, y, classes, settings):
    """Return the best penalty of a cross-validation and its accuracy."""
    scores = []
    for penalty in PENALTIES:
        found = [
            PlainClassifier(x.shape[1], classes, penalty, settings).fit(x[fit], y[fit], (x[dev], y[dev]))
            for fit, dev in folds_of(y, settings)
        ]
        scores.append(round(100 * np.mean(found), 2))
    return PENALTIES[int(np.argmax(scores))], max(scores)


def nested(x, y, classes, settings):
    """Return dev accuracy and accuracy of a task without splits."""
    dev, test = [], []
    for fit, held in folds_of(y, settings):
        penalty, accuracy = chosen(x[fit], y[fit], classes, settings)
        model = PlainClassifier(x.shape[1], classes, penalty, settings)
        model.fit(x[fit], y[fit])
        dev.append(accuracy)
        test.append(round(100 * model.score(x[held], y[held]), 2))
    return float(np.mean(dev)), float(np.mean(test))


def with_test(x, y, test, classes, settings):
    """Return dev accuracy and accuracy of a task with a test set of its own."""
    penalty, accuracy = chosen(x, y, classes, settings)
    model = PlainClassifier(x.shape[1], classes, penalty, settings)
    model.fit(x, y)
    return accuracy, 100 * model.score(*test)


def with_dev_and_test(x, y, dev, test, classes, settings):
    """Return dev accuracy and accuracy of a task with all three."""
    models, scores = [], []
    for penalty in PENALTIES:
        models.append(PlainClassifier(x.shape[1], classes, penalty, settings))
        models[-1].fit(x, y, dev)
        scores.append(round(100 * models[-1].score(*dev), 2))
    best = int(np.argmax(scores))
    return max(scores), 100 * models[best].score(*test)
