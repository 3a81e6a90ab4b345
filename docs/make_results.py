"""Write the tables of the pages in docs/studies/ from docs/results/: ``python docs/make_results.py``.

A table stands between ``<!-- NAME -->`` and ``<!-- /NAME -->``; the text around it is written by hand. With
``--check``, fail if a table is stale.
"""

import json
import re
import statistics
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import kendalltau

from sentcli.evaluation.published import published
from sentcli.methods.recipes import load_recipe
from sentcli.training.records import Summary, read_results, summarize

DOCS = Path(__file__).parent
TASKS = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSBenchmark", "SICKRelatedness")
AVERAGE = "STS average"
START = {"first-last-avg": "start", "whitening": "whitened"}
"""What rows of the start model are called, by the method that makes them."""
PUBLISHED = {
    **dict.fromkeys(("start-first-last-avg", "raw first-last-avg"), "first-last-avg-bert-base"),
    **dict.fromkeys(("whitened-first-last-avg", "whitened first-last-avg"), "bert-whitening-bert-base"),
    "ct": "ct-bert-base-rescored",  # by SimCSE's authors, in the way of all others
}
"""What the printed scores of a row are called, where it is not ``NAME-bert-base``."""
NOT_AS_PUBLISHED = ("ct", "mirror-bert")
"""Methods that pool the mean and ran with [CLS] in the study."""


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


def records(step: str) -> list[dict[str, Any]]:
    """Return the runs of a step of the study."""
    return list(read_results(DOCS / "results" / "study" / f"{step}.jsonl").values())


def runs(step: str) -> list[Summary]:
    """Return the runs of a step of the study by their settings."""
    return summarize(records(step))


def by_rate(found: Iterable[Summary]) -> str:
    """Return STS-B dev by method and rate; the best rate of a method is bold."""
    scores: dict[str, dict[float, Summary]] = {}
    for summary in found:
        scores.setdefault(summary.point["method"], {})[summary.point["learning_rate"]] = summary
    tried = sorted({rate for summaries in scores.values() for rate in summaries})
    rows = []
    for method, summaries in scores.items():
        best = max(summaries, key=lambda rate: first_dev(summaries[rate]))
        cells = {rate: f"{first_dev(summary):.2f}" for rate, summary in summaries.items()}
        cells[best] = f"**{cells[best]}**"
        rows.append([method, *(cells.get(rate, "-") for rate in tried)])
    return markdown(["method", *(f"{rate:g}" for rate in tried)], rows)


def first_dev(summary: Summary) -> float:
    """Return STS-B dev of seed 42, by which a rate is chosen."""
    return float(summary.runs[summary.seeds.index(42)]["best_dev_spearman"])


def main_table() -> str:
    """Return the start model, what each method makes of it with all of the text, and shared words as a baseline."""
    fitted = [*runs("baselines"), *runs("whitening")]
    rows = [
        [
            label(s.point) + (" ([CLS])" if s.point["method"] in NOT_AS_PUBLISHED else ""),
            len(s.runs) if s.point["method"] not in START else "-",
            spread(s, "best_dev_spearman"),
            *(f"{s.mean['sts'][task]:.2f}" for task in TASKS),
            spread(s, "sts_average"),
            "-" if (paper := printed(label(s.point))) is None else f"{paper:.2f}",
        ]
        for s in [*fitted, *runs("methods")]
    ]
    words = json.loads((DOCS / "results" / "study" / "words.json").read_text("utf-8"))
    scores = [words["best_dev_spearman"], *(words["sts"][task] for task in TASKS), words["sts_average"]]
    rows.append(["shared content words, no model", "-", *(f"{score:.2f}" for score in scores), "-"])
    return markdown(["", "seeds", "STS-B dev", *TASKS, "average", "published"], rows)


def printed(name: str) -> float | None:
    """Return the STS average that is published for BERT-base, if there is one."""
    system = published().get(PUBLISHED.get(name, f"{name}-bert-base"))
    return system.scores[AVERAGE] if system else None


def agreement() -> str:
    """Return Kendall's correlation of the methods' averages here with the published ones."""
    scores = {s.point["method"]: s.mean["sts_average"] for s in runs("methods")}
    as_published = [method for method in scores if method not in NOT_AS_PUBLISHED]
    said = []
    for methods in (list(scores), as_published):
        result = kendalltau([scores[method] for method in methods], [printed(method) for method in methods])
        said.append(f"{result.statistic:.2f} (p {result.pvalue:.2f})")
    return (
        f"Kendall's tau with the published averages is {said[0]} over all {len(scores)} methods, and {said[1]} over\n"
        f"the {len(as_published)} without Contrastive Tension and Mirror-BERT, which ran with [CLS] and are published "
        "with the mean.\n"
    )


def changed(step: str) -> str:
    """Return the runs of a step beside those of the same method and seeds at its defaults."""
    rows = []
    for summary in runs(step):
        defaults = summarize(record for record in records("methods") if record["seed"] in summary.seeds)
        default = next(s for s in defaults if s.point["method"] == summary.point["method"])
        setting = ", ".join(f"{key} {value}" for key, value in summary.point.items() if key not in default.point)
        scores = [spread(s, key) for key in ("best_dev_spearman", "sts_average") for s in (summary, default)]
        rows.append([summary.point["method"], f"`{setting}`", *scores, second_term(summary), second_term(default)])
    head = "STS-B dev", "STS average", "gradient of the second term"
    return markdown(["method", "setting", *(cell for key in head for cell in (key, "at the default"))], rows)


def second_term(summary: Summary) -> str:
    """Return the share of the gradient of what a method adds to its contrastive term."""
    shares = list((summary.mean.get("gradient_shares") or {}).values())
    return f"{shares[1]:.2%}" if len(shares) == 2 else "-"


def label(point: dict[str, Any]) -> str:
    """Return the method, or what a row of the start model is called."""
    method = point["method"]
    return f"{START[method]}-{point['pooling']}" if method in START else str(method)


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


def chosen_systems() -> dict[str, dict[str, dict[str, Any]]]:
    """Return the nDCG@10 of each query by collection, system and kind of queries, from ``benchmarks/choosing.py``."""
    scores: dict[str, dict[str, dict[str, Any]]] = {}
    for line in (DOCS / "results" / "choosing" / "scores.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        scores.setdefault(row["set"], {}).setdefault(row["system"], {})[row["kind"]] = np.array(row["values"])
    return scores


def orders(systems: dict[str, dict[str, Any]], kind: str) -> tuple[str, str]:
    """Return Kendall's tau-b of a made set with the judgements, and its choice and what that loses, with intervals.

    Args:
        systems: the scores of the queries of each, by kind of queries.
        kind: of the made set.
    """
    generator = np.random.default_rng(0)
    drawn, means = [], []
    for source in ("judged", kind):
        values = np.stack([scores[source] for scores in systems.values()])
        rows = generator.integers(0, values.shape[1], (1000, values.shape[1]))
        drawn.append(values[:, rows].mean(axis=2))
        means.append(values.mean(axis=1))
    first, second = (np.sign(each.T[:, :, None] - each.T[:, None, :]) for each in drawn)
    both = (first**2).sum(axis=(1, 2)) * (second**2).sum(axis=(1, 2))
    low, high = np.quantile((first * second).sum(axis=(1, 2)) / np.sqrt(both), [0.025, 0.975])  # tau-b of each draw
    chosen, best = int(np.argmax(means[1])), int(np.argmax(means[0]))
    choice = f"{list(systems)[chosen]}, {means[0][best] - means[0][chosen]:.3f}"
    if chosen != best:
        choice += " ({:.3f} to {:.3f})".format(*np.quantile(drawn[0][best] - drawn[0][chosen], [0.025, 0.975]))
    return f"{kendalltau(*means).statistic:.2f} ({low:.2f} to {high:.2f})", choice


def choosing() -> str:
    """Return how well made sets order systems, and what the system loses that they choose."""
    rows = []
    for name, systems in chosen_systems().items():
        encoders = {label: scores for label, scores in systems.items() if label not in ("BM25", "hashed words")}
        count = len(next(iter(systems.values()))["judged"])
        for title, part in (("encoders", encoders), ("all", systems)):
            cells = [cell for kind in ("titles", "crops") for cell in orders(part, kind)]
            rows.append(f"| {name} | {count} | {len(part)} {title} | {' | '.join(cells)} |\n")
    head = "| set | judged queries | systems | titles: tau | chosen, loss | crops: tau | chosen, loss |\n"
    return head + "|---|---:|---|---|---|---|---|\n" + "".join(rows)


WASHED = DOCS / "results" / "washed"


def washes() -> str:
    """Return the perplexity after each wash, and STS-B dev of its vectors, raw and whitened."""
    scores = {
        (kind, Path(run["point"]["model"]).name, run["point"]["pooling"]): run["results"]["best_dev_spearman"]
        for kind in ("raw", "whitened")
        for run in read_results(WASHED / f"{kind}.jsonl").values()
    }
    columns = [(kind, pooling) for kind in ("raw", "whitened") for pooling in ("cls", "mean", "first-last-avg")]
    rows = []
    for name in dict.fromkeys(name for _, name, _ in scores):
        perplexity = json.loads((WASHED / f"{name}.json").read_text("utf-8"))["results"]["held_out_perplexity"]
        found = [scores.get((kind, name, pooling)) for kind, pooling in columns]
        cells = ["-" if score is None else f"{score:.2f}" for score in found]
        rows.append([name.removeprefix("wash-"), f"{perplexity:.0f}", *cells])
    return markdown(["steps", "perplexity", *(" ".join(column) for column in columns)], rows)


def washed_rates() -> str:
    """Return STS-B dev of each method by rate."""
    return by_rate(
        s for s in summarize(read_results(WASHED / "runs.jsonl").values()) if {*s.point} == {"method", "learning_rate"}
    )


def washed_systems() -> str:
    """Return the scores of the start and of the methods, means over seeds."""
    systems: dict[str, list[dict[str, Any]]] = {}
    others = {test["second"] for test in tests("share")}
    for entry in json.loads((WASHED / "scores.json").read_text("utf-8")):
        if "," not in entry["system"] and entry["system"] not in others:
            systems.setdefault(entry["system"], []).append(entry)
    rows = []
    for name, entries in systems.items():
        paper = printed(name)
        rows.append([
            name,
            "-" if entries[0]["seed"] is None else len(entries),
            over_seeds([entry["dev"] for entry in entries]),
            *(f"{statistics.fmean(entry['sts'][task] for entry in entries):.2f}" for task in TASKS),
            over_seeds([entry["average"] for entry in entries]),
            over_seeds([entry["recall@1"] for entry in entries], 1),
            "-" if paper is None else f"{paper:.2f}",
        ])  # fmt: skip
    return markdown(["", "seeds", "STS-B dev", *TASKS, "average", "recall@1", "published"], rows)


def over_seeds(values: list[float], digits: int = 2) -> str:
    """Return the mean, and the standard deviation if there are several."""
    sd = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.{digits}f}{sd}"


def compared() -> dict[str, Any]:
    """Return what ``run.sh compare`` has found."""
    found: dict[str, Any] = json.loads((WASHED / "compared.json").read_text("utf-8"))
    return found


def tests(kind: str) -> list[dict[str, Any]]:
    """Return the predictions, which have a ``printed`` difference, or the controls, which have a ``share``."""
    return [test for test in compared()["tests"] if kind in test]


def interval(found: dict[str, Any]) -> str:
    """Return a difference with its interval."""
    if found.get("low") is None:
        return "-"
    return f"{found['difference']:+.2f} ({found['low']:+.2f} to {found['high']:+.2f})"


def predictions() -> str:
    """Return what came of each prediction."""
    rows = [
        [
            test["name"],
            seeds_of(test),
            interval(test),
            p_of(test),
            f"{test['printed']:+.2f}",
            test["verdict"] or "not run",
        ]
        for test in tests("printed")
    ]
    return markdown(["", "seeds", "difference (95 %)", "p (Holm)", "printed", "it"], rows)


def controls() -> str:
    """Return the average of each control, and how far it lies from the middle of the gain."""
    rows = []
    for test in tests("share"):
        means = [f"{mean:.2f}" for mean in test.get("means", ())] or ["-", "-"]
        rows.append([test["name"], seeds_of(test), *means, interval(test), p_of(test), test["verdict"] or "not run"])
    head = ["control", "seeds", "average", "middle of SimCSE's gain", "difference (95 %)", "p (Holm)", "it"]
    return markdown(head, rows)


def seeds_of(test: dict[str, Any]) -> str:
    """Return the number of seeds on both sides."""
    return " and ".join(map(str, test.get("seeds", "-")))


def p_of(test: dict[str, Any]) -> str:
    """Return the corrected p."""
    p = test.get("p_holm")
    return "-" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def gains_by_wash() -> str:
    """Return SimCSE's gain over the raw [CLS] after each wash."""
    rows = [
        [name, f"{found['means'][1]:.2f}", f"{found['means'][0]:.2f}", found["seeds"][0], interval(found)]
        for name, found in compared()["gains"].items()
        if found is not None
    ]
    return markdown(["wash", "raw [CLS]", "SimCSE", "seeds", "gain (95 %)"], rows)


PAGES: dict[str, dict[str, Callable[[], str]]] = {
    "studies/first-study.md": {
        "study": lambda: gains(study()),
        "tasks": lambda: tasks(study()),
        "rates": rates,
        "best": lambda: gains(best_settings()),
        "shares": shares,
        "seeds": seeds,
    },
    "studies/results.md": {
        "main": main_table,
        "agreement": agreement,
        "changed": lambda: changed("ablations"),
    },
    "studies/washed.md": {
        "washes": washes,
        "rates": washed_rates,
        "systems": washed_systems,
        "gains": gains_by_wash,
        "predictions": predictions,
        "controls": controls,
    },
    "studies/choosing.md": {"choosing": choosing},
}

if __name__ == "__main__":
    main()
