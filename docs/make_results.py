"""Write the tables of the pages in docs/studies/ from docs/results/: ``python docs/make_results.py``.

A table stands between ``<!-- NAME -->`` and ``<!-- /NAME -->``; the text around it is written by hand. With
``--check``, fail if a table is stale.
"""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import adapting_tables as adapting
import numpy as np
import washed_tables as washed
from scipy.stats import kendalltau
from study_tables import AVERAGE, RESULTS, TASKS, markdown, printed, shared_words, spread

from sentcli.methods.recipes import load_recipe
from sentcli.training.records import Summary, read_results, summarize

DOCS = Path(__file__).parent
START = {"first-last-avg": "start", "whitening": "whitened"}
"""What rows of the start model are called, by the method that makes them."""
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
    rows.append([*shared_words(), "-"])
    return markdown(["", "seeds", "STS-B dev", *TASKS, "average", "published"], rows)


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


KINDS = {"judged": "judged by people", "joined": "ten documents joined", "pages": "headings of docs/"}
"""What the sets of the study of passages are."""


def passages() -> str:
    """Return what each way of reading finds, with the difference from cut documents."""
    found = json.loads((RESULTS / "passages.json").read_text("utf-8"))["sets"]
    rows = []
    for entry in found:
        counts = [f"{entry[key]:,}" for key in ("documents", "words", "queries")]
        cells = [f"{entry['set']}, {KINDS[entry['kind']]}", *counts]
        cells.append(f"{entry['ways']['cut']['ndcg@10']:.4f}")
        for way in ("chunk-mean", "passages", "passages with titles"):
            cells.append(_against_cut(entry["ways"].get(way)))
        rows.append(cells)
    head = ["set", "documents", "words", "queries", "cut", "chunk-mean", "passages", "with titles"]
    return markdown(head, rows)


def _against_cut(way: dict[str, Any] | None) -> str:
    """Return a difference with its interval, in bold where that excludes none."""
    if way is None:
        return "-"
    cell = f"{way['difference']:+.4f} ({way['low']:+.4f} to {way['high']:+.4f})"
    is_shown = way["low"] > 0 or way["high"] < 0
    return f"**{cell}**" if is_shown else cell


def readings() -> str:
    """Return the vectors of a document and the seconds that each way of reading took."""
    found = json.loads((RESULTS / "passages.json").read_text("utf-8"))["sets"]
    rows = []
    for entry in found:
        ways = entry["ways"]
        cut = ways["cut"]
        row = [f"{entry['set']}, {KINDS[entry['kind']]}", f"{100 * cut['cut'] / entry['documents']:.0f} %"]
        row += [f"{ways['passages']['vectors']:.2f}"]
        row += [f"{ways[way]['seconds'] / cut['seconds']:.1f}" for way in ("chunk-mean", "passages")]
        rows.append(row)
    return markdown(["set", "documents cut", "passages a document", "time of chunk-mean", "time of passages"], rows)


RIGHT = {"of_pages": "the page", "of_places": "the passage"}
"""What is right for a query in the study of headings."""


def headings() -> str:
    """Return what passages find that begin at headings, with the differences from those that need not."""
    found = json.loads((RESULTS / "headings.json").read_text("utf-8"))["sets"]
    rows = []
    for entry in found:
        counts = [f"{entry[key]}" for key in ("pages", "queries")]
        counts.append(" / ".join(f"{count:,}" for count in entry["passages"].values()))
        for measure, right in RIGHT.items():
            measured = entry[measure]
            row = [entry["set"], *counts, right, f"{measured['ndcg@10']['as before']:.4f}"]
            for pair in ("alone - as before", "joined - as before", "joined - alone"):
                row.append(_against_cut(measured[pair]))
            rows.append(row)
    ways = ["as before", "alone", "joined", "joined, from alone"]
    return markdown(["set", "pages", "queries", "passages", "right is", *ways], rows)


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
        "washes": washed.washes,
        "rates": washed.rates,
        "systems": washed.systems,
        "gains": washed.gains,
        "predictions": washed.predictions,
        "controls": washed.controls,
        "precision": washed.precision,
        "transfer": washed.transfer,
        "geometry": washed.geometry,
        "correlations": washed.correlations,
        "doses": washed.doses,
        "later": washed.later,
        "later-seeds": washed.later_seeds,
        "later-tasks": washed.later_tasks,
    },
    "methods/rankcse.md": {"later-tasks": washed.later_tasks},
    "methods/simcse-plus-plus.md": {"later-tasks": washed.later_tasks},
    "studies/choosing.md": {"choosing": choosing},
    "studies/passages.md": {"passages": passages, "readings": readings, "headings": headings},
    "studies/adapting.md": {"adaptations": adapting.adaptations, "parts": adapting.parts},
}

if __name__ == "__main__":
    main()
