"""Write the sweeps of three seeds at the rates that were best, which `run.sh` of this folder runs."""

import json
from pathlib import Path
from typing import Any

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


if __name__ == "__main__":
    choose()
