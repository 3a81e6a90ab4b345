"""Write the tables of the pages of results from docs/results/: ``python docs/make_results.py``.

A table stands between ``<!-- NAME -->`` and ``<!-- /NAME -->``; the text around it is written by hand. With
``--check``, fail if a table is stale.
"""

import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from sentcli.methods.recipes import load_recipe
from sentcli.training.sweep import Summary, read_results, summarize

DOCS = Path(__file__).parent
TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSBenchmark", "SICKRelatedness")
AVERAGE = "STS average"
START = {"first-last-avg": "start", "whitening": "whitened"}
"""Names of the start model's rows, by the method that makes them."""


def main() -> None:
    """Write or check the pages."""
    for page, tables in PAGES.items():
        fill(DOCS / page, tables)


def fill(page: Path, tables: dict[str, Callable[[], str]]) -> None:
    """Write or check a page."""
    old = page.read_text("utf-8")
    new = old
    for name, make in tables.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        new, count = pattern.subn(lambda found, make=make: f"{found[1]}{make()}{found[2]}", new)
        if count != 1:
            raise SystemExit(f"{page}: the marks of {name} are missing")
    if new == old:
        return
    if "--check" in sys.argv:
        raise SystemExit(f"{page} is stale: python docs/make_results.py")
    page.write_text(new, "utf-8")


def study() -> list[Summary]:
    """Return the runs at the papers' defaults."""
    return summarize(read_results(DOCS / "results" / "first-study.jsonl").values())


def sweep() -> list[Summary]:
    """Return the runs of the search for a learning rate."""
    return summarize(read_results(DOCS / "results" / "first-sweep.jsonl").values())


def best_settings() -> list[Summary]:
    """Return each method's runs that are best on the dev set: at its defaults, or at a point of the sweep."""
    best: dict[str, Summary] = {}
    for summary in [*study(), *sweep()]:
        method = summary.point["method"]
        if method not in best or dev(summary) > dev(best[method]):
            best[method] = summary
    return list(best.values())


def dev(summary: Summary) -> float:
    """Return the mean of the best scores on STS-B dev."""
    return float(summary.mean["best_dev_spearman"])


def simcse(found: list[Summary]) -> Summary:
    """Return the summary of SimCSE."""
    return next(summary for summary in found if summary.point["method"] == "simcse")


def gains(found: list[Summary]) -> str:
    """Return scores beside the gains over SimCSE, measured and published."""
    base, published = simcse(found), load_recipe("simcse-bert-base").published[AVERAGE].value
    rows = []
    for summary in found:
        paper = load_recipe(f"{summary.point['method']}-bert-base").published[AVERAGE].value
        rows.append(
            [
                name(summary),
                len(summary.runs),
                spread(summary, "best_dev_spearman"),
                f"{summary.mean['best_step']:.0f}",
                spread(summary, "sts_average"),
                f"{summary.mean['sts_average'] - base.mean['sts_average']:+.2f}",
                f"{paper - published:+.2f}",
            ]
        )
    head = "method", "seeds", "STS-B dev", "best step", "STS average", "over SimCSE", "published"
    return markdown(head, rows)


def tasks(found: list[Summary]) -> str:
    """Return the mean score of every task."""
    rows = [[name(s), *(f"{s.mean['sts'][task]:.2f}" for task in TASKS), spread(s, "sts_average")] for s in found]
    return markdown(["method", *TASKS, "average"], rows)


def rates() -> str:
    """Return the sweep, each method's defaults first."""
    rows = []
    methods = dict.fromkeys(summary.point["method"] for summary in sweep())
    for method in methods:
        for summary in [*study(), *sweep()]:
            if summary.point["method"] == method:
                scores = [spread(summary, key) for key in ("best_dev_spearman", "final_dev_spearman", "sts_average")]
                rows.append(
                    [name(summary), len(summary.runs), scores[0], f"{summary.mean['best_step']:.0f}", *scores[1:]]
                )
    return markdown(["method", "seeds", "best dev", "at step", "last dev", "STS average"], rows)


def shares() -> str:
    """Return each term's share of the gradient on the encoder."""
    rows = []
    for summary in study():
        parts = summary.mean.get("gradient_shares") or {}
        rows += [[summary.point["method"], term, f"{share:.3%}"] for term, share in parts.items()]
    return markdown(["method", "term", "share of the gradient"], rows)


def seeds() -> str:
    """Return how far two seeds lie apart."""
    rows = []
    for summary in study():
        if len(summary.runs) > 1:
            devs, averages = ([run[key] for run in summary.runs] for key in ("best_dev_spearman", "sts_average"))
            apart = [f"{max(values) - min(values):.2f}" for values in (devs, averages)]
            rows.append([summary.point["method"], len(summary.runs), *apart])
    return markdown(["method", "seeds", "STS-B dev, largest - smallest", "STS average, largest - smallest"], rows)


def runs(step: str) -> list[Summary]:
    """Return the runs of a step of the study, none if it has not been made."""
    file = DOCS / "results" / "study" / f"{step}.jsonl"
    return summarize(read_results(file).values()) if file.exists() else []


def searched() -> str:
    """Return STS-B dev by method and rate; the best rate of a method is bold."""
    found = runs("rates")
    tried = sorted({s.point["learning_rate"] for s in found})
    rows = []
    for method in dict.fromkeys(s.point["method"] for s in found):
        scores = {s.point["learning_rate"]: dev(s) for s in found if s.point["method"] == method}
        best = max(scores.values())
        cells = {rate: f"**{score:.2f}**" if score == best else f"{score:.2f}" for rate, score in scores.items()}
        rows.append([method, *(cells.get(rate, "-") for rate in tried)])
    return markdown(["method", *(f"{rate:g}" for rate in tried)], rows)


def main_table() -> str:
    """Return the start model and what each method makes of it with all of the text."""
    fitted = [*runs("baselines"), *runs("whitening")]
    rows = [[f"{START[s.point['method']]}, {s.point['pooling']}", "-", s] for s in fitted]
    rows += [[s.point["method"], len(s.runs), s] for s in runs("methods")]
    scores = [
        [
            *row,
            spread(s, "best_dev_spearman"),
            *(f"{s.mean['sts'][task]:.2f}" for task in TASKS),
            spread(s, "sts_average"),
        ]
        for *row, s in rows
    ]
    return markdown(["", "seeds", "STS-B dev", *TASKS, "average"], scores)


def name(summary: Summary) -> str:
    """Return the method and what is not its default."""
    others = [f"{key} {value}" for key, value in summary.point.items() if key != "method"]
    return ", ".join([summary.point["method"], *others])


def spread(summary: Summary, key: str) -> str:
    """Return mean and standard deviation."""
    if summary.mean.get(key) is None:
        return "-"
    sd = summary.sd.get(key)
    return f"{summary.mean[key]:.2f}" + (f" ± {sd:.2f}" if sd is not None else "")


def markdown(head: Iterable[Any], rows: Iterable[Iterable[Any]]) -> str:
    """Return a table; the first column is text."""
    lines = [list(map(str, head)), *([str(cell) for cell in row] for row in rows)]
    rule = ["---", *("---:" for _ in lines[0][1:])]
    return "".join(f"| {' | '.join(line)} |\n" for line in (lines[0], rule, *lines[1:]))


PAGES: dict[str, dict[str, Callable[[], str]]] = {
    "first-study.md": {
        "study": lambda: gains(study()),
        "tasks": lambda: tasks(study()),
        "rates": rates,
        "best": lambda: gains(best_settings()),
        "shares": shares,
        "seeds": seeds,
    },
    "results.md": {"main": main_table, "searched": searched},
}

if __name__ == "__main__":
    main()
