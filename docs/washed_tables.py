"""The tables of docs/studies/washed.md, from docs/results/washed/."""

import csv
import json
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import pearsonr, permutation_test, rankdata, ttest_ind
from study_tables import AVERAGE, RESULTS, TASKS, markdown, over_seeds, printed, shared_words, spread

from sentcli.evaluation import significance
from sentcli.training.records import Summary, read_results, summarize

WASHED = RESULTS / "washed"
LATER = RESULTS / "later"
POOLINGS = ("cls", "mean", "first-last-avg")
MEASURES = {
    "alignment": 3,
    "uniformity": 2,
    "mean cosine": 3,
    "isotropy": 3,
    "effective rank": 0,
    "first direction %": 1,
}
"""The measures of `analyze geometry` that are shown, and their decimals."""
UNTRAINED = ("words", "raw", "whitened")
"""How the systems begin that need no training."""
MINI = "sentcli-bert-mini"


def washes() -> str:
    """Return the perplexity after each wash, and STS-B dev of its vectors, raw and whitened."""
    scores = {
        (kind, Path(run["point"]["model"]).name, run["point"]["pooling"]): run["results"]["best_dev_spearman"]
        for kind in ("raw", "whitened")
        for run in read_results(WASHED / f"{kind}.jsonl").values()
    }
    columns = [(kind, pooling) for kind in ("raw", "whitened") for pooling in POOLINGS]
    rows = []
    for name in dict.fromkeys(name for _, name, _ in scores):
        perplexity = stored(name)["results"]["held_out_perplexity"]
        found = [scores.get((kind, name, pooling)) for kind, pooling in columns]
        cells = ["-" if score is None else f"{score:.2f}" for score in found]
        rows.append([name.removeprefix("wash-"), f"{perplexity:.0f}", *cells])
    return markdown(["steps", "perplexity", *(" ".join(column) for column in columns)], rows)


def rates() -> str:
    """Return STS-B dev of each method by rate."""
    return by_rate(summary for summary in runs() if {*summary.point} == {"method", "learning_rate"})


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


def later() -> str:
    """Return STS-B dev of SimCSE++ and RankCSE by rate, seed 42, and of the seeds of SimCSE; all from a GPU."""
    scores: dict[str, dict[float, float]] = {}
    for run in read_results(LATER / "rates.jsonl").values():
        point = run["point"]
        name = ", ".join(filter(None, [point["method"], point.get("ranking.kind")]))
        scores.setdefault(name, {})[point["learning_rate"]] = run["results"]["best_dev_spearman"]
    rates = sorted({rate for by_rate in scores.values() for rate in by_rate})
    rows = []
    for name, by_rate in scores.items():
        best = max(by_rate, key=lambda rate: by_rate[rate])
        cells = {rate: f"{score:.2f}" for rate, score in by_rate.items()}
        cells[best] = f"**{cells[best]}**"
        rows.append([name, *(cells[rate] for rate in rates)])
    return markdown(["method", *(f"{rate:g}" for rate in rates)], rows)


def later_seeds() -> str:
    """Return what three seeds of SimCSE and the teacher of RankCSE have on the GPU."""
    teacher = json.loads((LATER / "gpu-teacher.json").read_text("utf-8"))["results"]
    rows = [["41, the teacher", f"{teacher['best_dev_spearman']:.2f}", "-"]]
    for run in read_results(LATER / "gpu.jsonl").values():
        results = run["results"]
        rows.append([run["seed"], f"{results['best_dev_spearman']:.2f}", f"{results['sts_average']:.2f}"])
    return markdown(["seed of SimCSE", "STS-B dev", "average of the seven tasks"], rows)


def later_tasks() -> str:
    """Return STS-B dev and the seven tasks of SimCSE, SimCSE++ and RankCSE, three seeds each."""
    dev: dict[str, list[float]] = {}
    averages: dict[str, dict[int, float]] = {}
    for run in read_results(LATER / "runs.jsonl").values():
        point = run["point"]
        name = ", ".join(filter(None, [point["method"], point.get("ranking.kind")]))
        dev.setdefault(name, []).append(run["results"]["best_dev_spearman"])
        averages.setdefault(name, {})[run["seed"]] = run["results"]["sts_average"]
    base = averages["simcse"]
    rows = []
    for name, of_seed in averages.items():
        scores = list(of_seed.values())
        cells = [name, len(scores), over_seeds(dev[name]), over_seeds(scores)]
        if name == "simcse":
            rows.append([*cells, "-", "-", "-"])
            continue
        test = ttest_ind(scores, list(base.values()), equal_var=False)
        low, high = test.confidence_interval()
        difference = statistics.fmean(scores) - statistics.fmean(base.values())
        by_seed = [f"{of_seed[seed] - base[seed]:+.2f}" for seed in sorted(base)]
        cells += [f"{difference:+.2f} ({low:+.2f} to {high:+.2f})", f"{test.pvalue:.3f}", ", ".join(by_seed)]
        rows.append(cells)
    head = ["method", "seeds", "STS-B dev", "average of the seven tasks", "difference from SimCSE", "p", "seed by seed"]
    return markdown(head, rows)


def first_dev(summary: Summary) -> float:
    """Return STS-B dev of seed 42, by which a rate is chosen."""
    return float(summary.runs[summary.seeds.index(42)]["best_dev_spearman"])


def systems() -> str:
    """Return the scores of words, of the start and of the methods, means over seeds."""
    found: dict[str, list[dict[str, Any]]] = {}
    for entry in stored("scores"):
        kind, _, variant = entry["system"].partition(" ")
        if not variant or (kind in UNTRAINED and "," not in variant):
            found.setdefault(entry["system"], []).append(entry)
    rows = [[*shared_words(), "-", "-"]]
    for name in sorted(found, key=place):
        entries = found[name]
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


def stored(name: str) -> Any:
    """Return what a file of the study holds."""
    return json.loads((WASHED / f"{name}.json").read_text("utf-8"))


def runs() -> list[Summary]:
    """Return the runs of training by their settings."""
    return summarize(read_results(WASHED / "runs.jsonl").values())


def place(system: str) -> int:
    """Return the place of a system in a table, where those come first that need no training."""
    kind = system.split()[0]
    return UNTRAINED.index(kind) if kind in UNTRAINED else len(UNTRAINED)


def further() -> list[dict[str, Any]]:
    """Return the transfer and the geometry of one seed of each system, with the STS average of that seed."""
    averages = {entry["digest"]: entry["average"] for entry in stored("scores")}
    entries = [entry | {AVERAGE: averages[entry["digest"]]} for entry in stored("further")]
    return sorted(entries, key=lambda entry: place(entry["system"]))


def tests(kind: str) -> list[dict[str, Any]]:
    """Return the predictions, which have a ``printed`` difference, or the controls, which have a ``share``."""
    return [test for test in stored("compared")["tests"] if kind in test]


def interval(found: dict[str, Any]) -> str:
    """Return a difference with its interval."""
    return f"{found['difference']:+.2f} ({found['low']:+.2f} to {found['high']:+.2f})"


def predictions() -> str:
    """Return what came of each prediction."""
    rows = [
        [
            test["name"],
            seeds_of(test),
            *means_of(test),
            interval(test),
            p_of(test),
            f"{test['printed']:+.2f}",
            test["verdict"],
        ]
        for test in tests("printed")
    ]
    return markdown(["", "seeds", "first", "second", "difference (95 %)", "p (Holm)", "printed", "it"], rows)


def controls() -> str:
    """Return the average of each control, and how far it lies from the middle of the gain."""
    rows = []
    for test in tests("share"):
        rows.append([test["name"], seeds_of(test), *means_of(test), interval(test), p_of(test), test["verdict"]])
    head = ["control", "seeds", "average", "middle of SimCSE's gain", "difference (95 %)", "p (Holm)", "it"]
    return markdown(head, rows)


def seeds_of(test: dict[str, Any]) -> str:
    """Return the number of seeds on both sides."""
    return " and ".join(map(str, test["seeds"]))


def means_of(test: dict[str, Any]) -> list[str]:
    """Return the means of both sides."""
    return [f"{mean:.2f}" for mean in test["means"]]


def p_of(test: dict[str, Any]) -> str:
    """Return the corrected p."""
    return "< 0.001" if test["p_holm"] < 0.001 else f"{test['p_holm']:.3f}"


def gains() -> str:
    """Return SimCSE's gain over the raw [CLS] after each wash."""
    rows = [
        [name, f"{found['means'][1]:.2f}", f"{found['means'][0]:.2f}", found["seeds"][0], interval(found)]
        for name, found in stored("compared")["gains"].items()
    ]
    return markdown(["wash", "raw [CLS]", "SimCSE", "seeds", "gain (95 %)"], rows)


def precision() -> str:
    """Return SimCSE in bf16, as all methods of the study run, and in fp32."""
    found = stored("compared")["precision"]
    return markdown(
        ["", "seeds", "bf16", "fp32", "difference (95 %)", "p"],
        [["simcse", seeds_of(found), *means_of(found), interval(found), f"{found['p']:.2f}"]],
    )


def transfer() -> str:
    """Return the accuracies of the seven transfer tasks, one seed of each system."""
    found = further()
    names = list(found[0]["transfer"])
    rows = [
        [entry["system"], *(f"{entry['transfer'][name]:.2f}" for name in names), f"{entry['average']:.2f}"]
        for entry in found
    ]
    return markdown(["", *names, "average"], rows)


def geometry() -> str:
    """Return the geometry of STS-B's sentences, one seed of each system, beside its STS average."""
    rows = [
        [
            entry["system"],
            entry["pooling"],
            *(f"{entry['geometry'][name]:.{digits}f}" for name, digits in MEASURES.items()),
            f"{entry[AVERAGE]:.2f}",
        ]
        for entry in further()
    ]
    return markdown(["", "pooling", *MEASURES, AVERAGE], rows)


def correlations() -> str:
    """Return how transfer and each measure of geometry follow the STS average over systems, by pooling.

    Spearman's correlation, with p by permutation, corrected for the columns of a row. Whitening is a dense layer behind
    a pooling.
    """
    found = further()
    groups = {
        "cls": [entry for entry in found if entry["pooling"] in ("cls", "cls+dense")],
        "cls, not whitened": [entry for entry in found if entry["pooling"] == "cls"],
        "mean": [entry for entry in found if entry["pooling"] in ("mean", "mean+dense")],
        "all": found,
    }
    rows = []
    for name, group in groups.items():
        scores = rankdata([entry[AVERAGE] for entry in group])
        columns = [[entry["average"] for entry in group]]
        columns += [[entry["geometry"][measure] for entry in group] for measure in MEASURES]
        results = [
            permutation_test(
                (rankdata(column),),
                lambda one, axis=-1, scores=scores: pearsonr(one, np.broadcast_to(scores, one.shape), axis=axis)[0],
                permutation_type="pairings",
                vectorized=True,
                rng=0,
            )
            for column in columns
        ]
        corrected = significance.holm([each.pvalue for each in results])
        shown = ["< 0.01" if p < 0.01 else f"{p:.2f}" for p in corrected]
        cells = [f"{each.statistic:+.2f} ({p})" for each, p in zip(results, shown, strict=True)]
        rows.append([name, len(group), *cells])
    return markdown(["pooling", "systems", "transfer", *MEASURES], rows)


def doses() -> str:
    """Return what sentcli-bert-mini is good for by how much it has read: raw, centred, and after SimCSE."""
    passes = {"mini-862": "0.25", "mini-3447": "1", "mini-6894": "2", "mini-13788": "4", MINI: "2, as it comes"}
    perplexities = {name: stored(name)["results"]["held_out_perplexity"] for name in passes if name != MINI}
    log = (RESULTS.parents[1] / "models" / MINI / "training-log.jsonl").read_text("utf-8").splitlines()
    perplexities[MINI] = json.loads(log[-1])["held_out_perplexity"]
    trained = {Path(summary.point.get("model", "")).name: summary for summary in runs()}
    tables = {}
    for pooling in POOLINGS:
        with (WASHED / f"doses-{pooling}.csv").open(encoding="utf-8", newline="") as handle:
            rows_of = [row for row in csv.DictReader(handle) if row["gold score"]]
        tables[pooling] = {row["values"]: float(row["gold score"]) for row in rows_of}
    rows = []
    for name, read in passes.items():
        vectors = [tables[pooling][f"{name}{kind}"] for kind in ("", ", centred") for pooling in POOLINGS]
        rows.append([
            read,
            f"{perplexities[name]:.1f}",
            *(f"{score:.2f}" for score in vectors),
            spread(trained[name], "best_dev_spearman"),
        ])  # fmt: skip
    head = [f"{kind} {pooling}" for kind in ("raw", "centred") for pooling in POOLINGS]
    return markdown(["passes", "perplexity", *head, "SimCSE"], rows)
