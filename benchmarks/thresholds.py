"""Thresholds learned on one half of the data, and the precision that hits have from there on in the other half.

``python benchmarks/thresholds.py [-m MODEL ...] [--splits 20] PAIRS|SET=PRECISION ...``. The halves are of queries, or
of pairs that share no text; each of the splits is at random. Prints Markdown: the threshold of all data with its
interval, in how many splits one was found, the mean precision that was reached in the other halves and the number of
its hits, and the mean precision where the first model's threshold of all data is taken for every model.
"""

import argparse

import numpy as np

from sentcli.errors import InputError
from sentcli.evaluation.evaluated import EvaluatedModel
from sentcli.evaluation.labelled_data import load_tasks
from sentcli.evaluation.observed_hits import Observed
from sentcli.evaluation.observing import observe, tasks_with_hits
from sentcli.evaluation.thresholds import Threshold, find_threshold


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", action="append")
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("data", nargs="+")
    options = parser.parse_args()
    print("| data | hits, right | model | asked | from (95 %) | found | other half: precision | hits | first model's |")
    print("| --- | ---: | --- | ---: | --- | ---: | ---: | ---: | ---: |")
    for named in options.data:
        file, _, asked = named.rpartition("=")
        (task,) = tasks_with_hits(load_tasks([file]))
        of_first = None
        for name in options.model or ["minilm"]:
            hits = observe(EvaluatedModel(name), task)
            found = found_in(hits, float(asked))
            print(row(name, hits, found, float(asked), options.splits, of_first), flush=True)
            if of_first is None and found is not None:
                of_first = found.similarity


def found_in(hits: Observed, precision: float) -> Threshold | None:
    """Return the threshold of some hits; None where there are too few right or wrong ones."""
    try:
        return find_threshold(hits, precision)
    except InputError:
        return None


def row(
    name: str, hits: Observed, found: Threshold | None, precision: float, splits: int, of_first: float | None
) -> str:
    """Return the line of a model on a task."""
    numbers = np.unique(hits.groups)
    right, above, count = 0, 0, 0
    for seed in range(splits):
        chosen = np.random.default_rng(seed).permutation(numbers)[: len(numbers) // 2]
        in_half = np.isin(hits.groups, chosen)
        half = found_in(hits.part(in_half), precision)
        if half is not None and half.similarity is not None:
            other = hits.part(~in_half)
            kept = other.similarities >= half.similarity
            right, above, count = right + int(other.right[kept].sum()), above + int(kept.sum()), count + 1
    reached = f"{right / above:.3f}" if above else "none"
    interval = "refused"
    if found is not None and found.similarity is None:
        interval = "not reached"
    elif found is not None:
        low, high = found.interval
        upper = "no end" if high is None else f"{high:.4f}"
        interval = f"{found.similarity:.4f} ({low:.4f} to {upper})"
    of_other = ""
    if of_first is not None:
        kept = hits.similarities >= of_first
        of_other = f"{hits.right[kept].mean():.3f} of {kept.sum():,}" if kept.any() else "no hits"
    share = f"{len(hits):,}, {100 * hits.right.mean():.0f} %"
    mean_hits = f"{above / max(count, 1):.0f}"
    cells = [
        hits.source.name,
        share,
        name,
        f"{precision:g}",
        interval,
        f"{count} of {splits}",
        reached,
        mean_hits,
        of_other,
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
