"""Accuracy of TREC by logistic regression on standardised vectors: to the end, and whatever the scale of a vector."""

import sys
from pathlib import Path

from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sentcli import SentenceEncoder


def read(file: Path) -> tuple[list[str], list[str]]:
    """Return questions and their coarse types."""
    lines = file.read_text("latin-1").splitlines()
    return [line.split(" ", 1)[1] for line in lines], [line.split(":", 1)[0] for line in lines]


folder, *models = sys.argv[1:]
train, test = (read(Path(folder) / "TREC" / f"{name}.label") for name in ("train_5500", "TREC_10"))
for model in models:
    encoder = SentenceEncoder.load(model)
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    classifier.fit(encoder.encode(train[0]), train[1])
    print(Path(model).name, f"{100 * classifier.score(encoder.encode(test[0]), test[1]):.2f}")
