"""The scores of the share of common content words, as a cosine would be scored: words.py SENTEVAL > words.json.

The similarity of two sentences is the Jaccard similarity of their sets of words that are no function words, which
`analyze similarity` calls "other words in common". It has no model and no weights.
"""

import json
import sys
from pathlib import Path

import numpy as np

from sentcli.evaluation import sts, sts_pairs
from sentcli.evaluation.pair_surface import surface


def spearman(data: Path, tasks: list[str] | None, split: str) -> dict[str, float]:
    """Return Spearman's correlation times 100 of each task, all pairs together."""
    scores = {}
    for name, subsets in sts_pairs.load_pairs(data, tasks, split).items():
        shared = [surface(pairs.first, pairs.second)["other_words"] for pairs in subsets]
        named = [(pairs.name, values, pairs.gold) for pairs, values in zip(subsets, shared, strict=True)]
        scores[name] = sts.correlations(name, named).value
    return scores


folder = Path(sys.argv[1])
scores = spearman(folder, None, "test")
(dev,) = spearman(folder, ["STSBenchmark"], "dev").values()
average = round(float(np.mean([round(score, 2) for score in scores.values()])), 2)
print(json.dumps({"best_dev_spearman": dev, "sts": scores, "sts_average": average}, indent=2))
