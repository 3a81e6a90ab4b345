"""What `run.sh` of this folder computes beside the commands: ``choose`` the rates, and ``compare`` with SimCSE."""

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from scipy.stats import ttest_ind

HERE = Path(__file__).parent
SEEDS = [42, 43, 44]
SIMCSE = "simcse"


def runs(file: str) -> list[dict[str, Any]]:
    """Return the runs of a file beside this one."""
    lines = (HERE / file).read_text().splitlines()
    return [json.loads(line) for line in lines]


def name(point: dict[str, Any]) -> str:
    """Return the method of a run, with the way in which it learns lists."""
    kind = point.get("ranking.kind")
    return f"{point['method']}-{kind}" if kind else point["method"]


def choose() -> None:
    """Write a sweep of three seeds for each method but SimCSE, at the rate that was best on STS-B dev."""
    best: dict[str, tuple[float, dict[str, Any]]] = {}
    for run in runs("rates.jsonl"):
        score = run["results"]["best_dev_spearman"]
        found = best.get(name(run["point"]))
        if run["point"]["method"] != SIMCSE and (found is None or score > found[0]):
            best[name(run["point"])] = (score, run["point"])
    for method, file in (("simcse-plus-plus", "plus-plus"), ("rankcse", "rankcse")):
        lines = [f"seeds = {SEEDS}"]
        for _, point in best.values():
            if point["method"] == method:
                lines.append("\n[[grid]]")
                lines += [f'"{key}" = {json.dumps(value)}' for key, value in point.items() if key != "seed"]
        (HERE / f"{file}.toml").write_text("\n".join(lines) + "\n")


def compare() -> None:
    """Print the seven-task average of each method and its difference from SimCSE's (Welch's t, 95 %)."""
    averages: dict[str, dict[int, float]] = {}
    dev: dict[str, list[str]] = {}
    for run in runs("runs.jsonl"):
        averages.setdefault(name(run["point"]), {})[run["seed"]] = run["results"]["sts_average"]
    for run in runs("rates.jsonl"):
        rate = f"{run['point']['learning_rate']:g}: {run['results']['best_dev_spearman']:.2f}"
        dev.setdefault(name(run["point"]), []).append(rate)
    base = list(averages[SIMCSE].values())
    print("| method | seeds | STS average | difference from SimCSE | p | STS-B dev by rate, one seed |")
    print("| --- | ---: | ---: | ---: | ---: | --- |")
    for method, scores in averages.items():
        values = list(scores.values())
        cells = [method, str(len(values)), f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}"]
        if method == SIMCSE:
            cells += ["-", "-", "-"]
        else:
            test = ttest_ind(values, base, equal_var=False)
            low, high = test.confidence_interval()
            difference = statistics.mean(values) - statistics.mean(base)
            cells += [f"{difference:+.2f} ({low:+.2f} to {high:+.2f})", f"{test.pvalue:.3f}"]
            cells.append(", ".join(sorted(set(dev.get(method, [])))))
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    {"choose": choose, "compare": compare}[sys.argv[1]]()
