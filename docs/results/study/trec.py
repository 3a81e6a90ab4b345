"""Accuracy of TREC by logistic regression on standardised vectors: to the end, and whatever the scale of a vector."""

import sys
from pathlib import Path

from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sentcli import SentenceEncoder
from sentcli.evaluation.transfer_data import load_examples

folder, *models = sys.argv[1:]
(task,) = load_examples(Path(folder), ["TREC"])
classes = task.labels
texts = {split: [example.texts[0] for example in examples] for split, examples in task.splits.items()}
for model in models:
    encoder = SentenceEncoder.load(model)
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    classifier.fit(encoder.encode(texts["train"]), classes["train"])
    print(Path(model).name, f"{100 * classifier.score(encoder.encode(texts['test']), classes['test']):.2f}")
