"""Reports as the commands write them, without running a model."""

import json

import pytest

PROTOCOL = {
    "sts-eval": {
        "correlation": "spearman",
        "aggregation": "all (subsets concatenated)",
        "similarity": "cosine",
        "split": "test",
        "interval_draws": 1000,
    },
    "senteval": {"name": "full", "features": "pooled vectors before normalisation", "folds": 10, "seed": 1111},
    "retrieve": {"similarity": "cosine", "index": "exact", "top_k": 1000, "split": "test", "own_document": "kept"},
}
SETTINGS = {"pooling": "mean", "normalize": True, "max_length": 256, "backend": "torch", "precision": "fp32"}


def make(model="minilm", command="sts-eval", scores=None, **more):
    """One object of a report; `more` goes into it, settings of the protocol too."""
    scores = {"STS16": 78.99, "STSBenchmark": 82.03} if scores is None else scores
    protocol = {**PROTOCOL[command], **SETTINGS, **more.pop("protocol", {})}
    if command == "sts-eval":
        results = {
            task: {"spearman": score, "pearson": 1.0, "pairs": 9, "spearman_mean": 2.0, "subsets": {task: score}}
            | ({} if score is None else {"interval": [score - 2, score + 2]})
            for task, score in scores.items()
        }
    elif command == "senteval":
        results = {task: {"accuracy": score, "dev_accuracy": 1.0, "test": 9} for task, score in scores.items()}
    else:
        results = {
            task: {"ndcg@1": 0.1, "ndcg@10": score, "recall@100": 0.9, "queries": 3} for task, score in scores.items()
        }
    found = {"command": command, "model": model, "protocol": protocol, "results": results}
    return found | {"environment": {"torch": "2.6", "device": "cpu"}, "elapsed_seconds": 1.5} | more


@pytest.fixture
def write(tmp_path):
    """Write values as JSON files; returns their paths."""

    def call(*values):
        paths = [tmp_path / f"{number}.json" for number, _ in enumerate(values)]
        for path, value in zip(paths, values, strict=True):
            path.write_text(json.dumps(value), "utf-8")
        return paths

    return call
