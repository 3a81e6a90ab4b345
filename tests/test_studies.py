"""The studies say nothing that their files in docs/results do not hold.

Tables between marks are written by ``docs/make_results.py``, and ``make check`` compares them. Here the rest of a page
is compared: every number with a decimal point is in such a table, in a sentence that is computed below from files,
or between ``<!-- printed -->`` and ``<!-- /printed -->``, where the page says that a command printed it and no file was
kept. Whether a sentence draws the right conclusion from its numbers, no test can tell.
"""

import csv
import json
import re
import statistics
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from sentcli.evaluation import score_json, significance
from sentcli.training.records import read_results

DOCS = Path(__file__).parent.parent / "docs"
RESULTS = DOCS / "results"
NUMBER = re.compile(r"(?<![\w.])\d+\.\d+(?![\w.])")
OTHERS = {
    # published: miCSE's table 2, and for BERT-base SimCSE's table 1 and SBERT's, both of [CLS]; IS-BERT's abstract
    "results": ["43.32", "69.81", "29.19", "31.40", "54.81"],
    "retrieval": [],
    "passages": [],
    "first-study": ["66.58"],
    "own-data": [],
    "choosing": [],
    "washed": [],
    "adapting": [],
}
"""Numbers that are of papers."""
COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def studied(name):
    return [record for record in read_results(RESULTS / f"{name}.jsonl").values()]


def of(name, method, key="sts_average", seed=None, **point):
    """Return the mean over the seeds of a number of the runs at a point of a study, and their deviation."""
    wanted = {"method": method, **point}
    runs = [r for r in studied(name) if all(r["point"].get(key) == value for key, value in wanted.items())]
    values = [run["results"][key] for run in runs if seed in (None, run["seed"])]
    assert values, (name, method, point)
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


def mean(name, method, key="sts_average", **more):
    return of(name, method, key, **more)[0]


def scored(file):
    """Return the value, the number of items and the samples of each model of a file of scores."""
    found = []
    for model in json.loads((RESULTS / file).read_text("utf-8")):
        (task,) = model["results"].values()
        metric = task.get("metric", "ndcg@10")
        found.append(
            (task[metric], task.get("items") or task["queries"], score_json.unpack_values(task["draws"][metric]))
        )
    return found


def ends(difference):
    return f"({difference.low:.4f} to {difference.high:.4f})"


def sts(start, name):
    """Return the scores of the start and the seeds on the seven tasks, and the difference over seeds and pairs."""
    models = json.loads((RESULTS / f"own/{start}-{name}-sts.json").read_text("utf-8"))
    draws = np.stack([
        np.mean([score_json.unpack_values(task["draws"]["spearman"]) for task in model["results"].values()], axis=0)
        for model in models
    ])  # fmt: skip
    averages = [model["average"] for model in models]
    fewest = min(task["pairs"] for task in models[0]["results"].values())
    return models, significance.compare_seeds(averages[1:], averages[:1], draws[1:], draws[:1], fewest, (False, True))


def similarity(start, name):
    """Return the cell of the scores on the seven tasks; those of minilm were not kept."""
    if start == "minilm":
        return ""
    return " " + ", ".join(f"{model['average']:.2f}" for model in sts(start, name)[0][1:]) + " |"


def own_tables():
    """Yield the rows of the tables of labelled data, the start of which is a fixed model beside two seeds."""
    whats = {"quora": "questions", "sick": "triplets", "mrpc": "pairs"}
    for start in ("sentcli-bert-mini", "minilm"):
        tested = {}
        for name in whats:
            before, *seeds = scored(f"own/{start}-{name}-test.json")
            draws = np.stack([samples for *_, samples in seeds])
            values = [value for value, *_ in seeds]
            tested[name] = significance.compare_seeds(
                values, [before[0]], draws, before[2][None], before[1], (False, True)
            )
            found, items = tested[name], f"{before[1]:,} {whats[name]}"
            title = "Quora" if name == "quora" else name.upper()
            row = f"| {title} | {items} | {before[0]:.4f} | {statistics.fmean(values):.4f} | "
            if not any(draws.std(axis=0)) and found.low == found.high == 0:
                yield row + f"0: both seeds kept the start | - |{similarity(start, name)}"
                continue
            bold = "**" if found.p < 0.01 else ""
            p = "< 0.001" if found.p < 0.001 else f"{found.p:.3f}"
            yield f"{row}{bold}{found.difference:+.4f}{bold} {ends(found)} | {p} |{similarity(start, name)}"
        if start == "minilm":
            corrected = significance.holm([0, 0, 0, tested["sick"].p, 0.9, 1])[3]
            yield f"corrected for six comparisons (Holm) p is {corrected:.3f}"


def structure_tables():
    """Yield the rows of the tables of structure, and what the text says of the fusions."""
    fused = []
    for start, name in [("sentcli-bert-mini", n) for n in ("CACM", "Cranfield", "SciFact")] + [("minilm", "CACM")]:
        models = scored(f"structure/{start}-{name.lower()}.json")

        def against(one, other, models=models):
            (value, items, draws), (base, _, others) = models[one], models[other]
            return significance.compare_two(value, base, draws, others, items)

        dense, titles, crops, bm25, rrf, titles_rrf, _ = (f"{value:.4f}" for value, *_ in models)
        by_titles, by_crops = against(1, 0), against(2, 0)
        cells = [name, str(models[0][1]), dense, titles, f"**{by_titles.difference:+.4f}** {ends(by_titles)}", crops]
        cells.append(f"{by_crops.difference:+.4f} {ends(by_crops)}")
        best = max((bm25, rrf, titles_rrf), key=float)
        cells += [f"**{value}**" if value == best else value for value in (bm25, rrf, titles_rrf)]
        yield f"| {' | '.join(cells)} |".replace("-0.0000", "0.0000")
        fused.append(against(5, 4))
        assert (
            by_titles.low > 0 and by_crops.low <= 0 <= by_crops.high and (start == "minilm" or against(4, 3).high < 0)
        )
    three, last = [f"+{found.difference:.4f}" for found in fused[:3]], fused[3]
    yield f"{three[0]}, {three[1]} and {three[2]} over the start's fusion"
    yield f"for minilm +{last.difference:.4f} {ends(last)}"
    over, not_shown = against(4, 0), against(4, 3)
    yield f"better than the vectors alone by {over.difference:.4f} {ends(over)}"
    yield f"(+{not_shown.difference:.4f}, {not_shown.low:.4f} to {not_shown.high:.4f})"


def own_data():
    yield from own_tables()
    yield from structure_tables()
    models, rise = sts("sentcli-bert-mini", "quora")
    by_task = {
        task: statistics.fmean(m["results"][task]["spearman"] for m in models[1:]) - line["spearman"]
        for task, line in models[0]["results"].items()
    }
    yield f"seven STS tasks, {models[0]['average']:.2f} before"
    yield (
        f"rises by {rise.difference:.1f} ({rise.low:.1f} to {rise.high:.1f}), STS16 with its questions by "
        f"{by_task['STS16']:.1f}, and SICK-R alone falls, by {-by_task['SICKRelatedness']:.1f}"
    )
    assert [task for task, change in by_task.items() if change < 0] == ["SICKRelatedness"]
    _, fall = sts("sentcli-bert-mini", "mrpc")
    yield f"cost {-fall.difference:.1f} ({-fall.high:.1f} to {-fall.low:.1f}) of the seven STS tasks"
    dev = [run["results"]["dev"] for run in studied("own/minilm-quora")]
    yield f"from {dev[0]['start']:.4f} to {dev[0]['best']:.4f} and {dev[1]['best']:.4f}"
    shares = []
    for run in (run for name in ("quora", "sick", "mrpc") for run in studied(f"own/sentcli-bert-mini-{name}")):
        evaluating, training = run["results"]["eval_seconds"], run["results"]["train_seconds"]
        shares.append(evaluating / (evaluating + training))
    yield f"Evaluations took {100 * min(shares):.0f} to {100 * max(shares):.0f} %"
    right = [round(300 * value) for value, *_ in scored("own/minilm-sick-test.json")]
    yield f"both seeds have {right[1]} of 300 right where the start has {right[0]}"
    assert right[1] == right[2]


def results():
    start = mean("study/baselines", "first-last-avg", pooling="first-last-avg")
    whitened = mean("study/whitening", "whitening", pooling="first-last-avg")
    simcse, sd = of("study/methods", "simcse")
    informin, informin_sd = of("study/methods", "informin-cl")
    is_bert = mean("study/methods", "is-bert")
    cls, fallen = (
        mean("study/baselines", "first-last-avg", pooling="cls"),
        {
            method: mean("study/methods", method)
            for method in ("simcse", "informin-cl", "mirror-bert", "infocse", "whitenedcse", "micse")
        },
    )
    yield f"fall from {cls:.2f} on the seven STS tasks to between 32 and 38"
    assert min(fallen.values()) > 32 and max(fallen.values()) < 38
    shared = measured("study/words.json")
    yield f"{shared['best_dev_spearman']:.2f} on STS-B dev and {shared['sts_average']:.2f} on the seven tasks"
    yield f"by {whitened - start:.1f} points here and by {66.28 - 56.70:.1f} on BERT"
    yield f"lands {whitened - is_bert:.1f} points below whitening, where it is published {66.58 - 66.28:.1f} above"
    yield f"{informin:.2f} and {simcse:.2f} with standard deviations of {informin_sd:.1f} and {sd:.1f}"
    lost = {method: mean("study/shares", method, fraction=0.001) - mean("study/methods", method)
            for method in ("infocse", "mirror-bert", "informin-cl", "simcse")}  # fmt: skip
    yield (f"InfoCSE loses {-lost['infocse']:.1f} points, Mirror-BERT, InforMin-CL and SimCSE gain "
           f"{lost['mirror-bert']:.1f}, {lost['informin-cl']:.1f} and {lost['simcse']:.1f}")  # fmt: skip
    behind = mean("study/shares", "simcse", fraction=0.001) - mean("study/shares", "micse", fraction=0.001)
    yield f"which its paper has {73.68 - 67.94:.1f} points ahead of SimCSE on 0.1 %, is {behind:.1f} behind it here"
    sds = {method: of("study/methods", method)[1] for method in ("micse", "whitenedcse", "infocse")}
    assert f"{sds['micse']:.1f}" == f"{sds['whitenedcse']:.1f}"
    yield (f"is {sds['micse']:.1f} for miCSE and WhitenedCSE, {sds['infocse']:.1f} for InfoCSE (two seeds each) and "
           f"{sd:.1f} and {informin_sd:.1f} for SimCSE and InforMin-CL")  # fmt: skip

    def changed(method, **point):
        return mean("study/ablations", method, **point) - mean("study/methods", method, seed=42)

    groups = changed("whitenedcse", **{"head.num_groups": 8})
    bare = changed("whitenedcse", head="mlp")
    yield f"has {-bare:.1f} points less of the average, and with 8 groups instead of 128 {-groups:.1f} less"
    yield f"three copies of a sentence have {changed('whitenedcse', **{'views.count': 2}):.1f} less than two"
    stronger = changed("infocse", **{"auxiliary-mlm.weight": 0.1, "auxiliary-mlm.rate": None})
    yield f"With lambda 0.1 instead of 1e-5 in InfoCSE it is {stronger:.1f} points higher"
    yield (f"is {changed('micse', **{'ami.weight': 0.0}):.1f} points above and "
           f"{-changed('micse', **{'contrastive.queue_size': 0}):.1f} below the default")  # fmt: skip
    yield f"InforMin-CL with lambda 40 instead of 0.4 has {changed('informin-cl'):.1f} more"
    yield f"SimCSE has {-changed('simcse'):.1f} points less"
    staged = {m: mean("study/methods", m, seed=42) - mean("study/stages", m) for m in ("infocse", "simcse")}
    yield f"InfoCSE ends {staged['infocse']:.1f} points lower than without it, and SimCSE {staged['simcse']:.1f}"
    transfer = {Path(r["model"]).name: r["average"] for r in measured("study/transfer.json")}
    less = transfer["start-first-last-avg"] - transfer["is-bert"]
    yield f"has {less:.1f} less than the untrained mean of the first and last layer"
    gains = [transfer[method] - transfer["start-cls"] for method in fallen]
    assert round(min(gains)) == 6 and round(max(gains)) == 8
    found = {Path(model["model"]).name: 100 * model["average"] for model in measured("study/beir.json")}
    whitened, is_bert = found.pop("whitened-first-last-avg"), found.pop("is-bert")
    most = max(value for name, value in found.items() if not name.startswith("start"))
    yield f"whitening has a mean of {whitened:.1f}, IS-BERT {is_bert:.1f}"
    yield f"and no other trained model more than {most:.1f}"
    by_pooling = followed()
    yield f"(r = {by_pooling[0]:.2f}), but that separates poolings"
    yield f"within the eight that pool by [CLS] r is {by_pooling[1]:.2f}"
    yield f"and {by_pooling[2]:.2f} within the seven of them that are trained"


def followed():
    """Return the correlation of the STS average with how far cosines follow shared content words.

    It is over all models, those that pool by [CLS], and the trained ones of these.
    """

    def rows(name, key):
        with (RESULTS / f"study/{name}.csv").open(encoding="utf-8", newline="") as handle:
            return {row[key]: row for row in csv.DictReader(handle)}

    averages = {name: float(row["STS average"]) for name, row in rows("geometry", "model").items()}
    shared = {name: float(row["other words in common"]) for name, row in rows("follows", "values").items()}
    cls = [name for name in averages if name not in ("start-first-last-avg", "whitened-first-last-avg", "is-bert")]
    groups = list(averages), cls, [name for name in cls if name != "start-cls"]
    return [statistics.correlation([shared[n] for n in group], [averages[n] for n in group]) for group in groups]


def measured(file):
    return json.loads((RESULTS / file).read_text("utf-8"))


def first_study():
    low = {
        (method, limit): of("low-shot", method, "best_dev_spearman", limit=limit)
        for method in ("simcse", "micse")
        for limit in (16, 320)
    }
    start = mean("low-shot", "simcse", "start_dev_spearman")
    for method, title in (("simcse", "simcse"), ("micse", "micse, without warm-up")):
        cells = [f"{low[method, limit][0]:.2f} ± {low[method, limit][1]:.2f}" for limit in (16, 320)]
        yield f"| {title} | 2 | {' | '.join(cells)} |"
    yield f"twenty steps of 16, from {start:.2f}"
    gains = [low["simcse", limit][0] - start for limit in (16, 320)]
    yield f"gains {gains[0]:.2f} from the sixteen and {gains[1]:.2f} from the 320"
    yield f"a standard deviation of up to {max(sd for _, sd in low.values()):.2f} over them"
    yield f"it has {start:.2f} on STS-B dev"
    first = mean("first-sweep", "is-bert", "best_dev_spearman", learning_rate=1e-5)
    lost = [first - mean("first-sweep", "is-bert", "final_dev_spearman", learning_rate=r) for r in (1e-5, 1e-4)]
    yield f"At 1e-5 and 1e-4 it loses {lost[0]:.1f} and {lost[1]:.0f} points on STS-B dev"
    before = mean("first-study", "is-bert", "start_dev_spearman")
    yield f"An IS-BERT run starts at {before:.1f} and not at {start:.2f}"
    ahead = mean("first-sweep", "infocse", learning_rate=3e-5) - mean("first-study", "simcse")
    yield f"it is {ahead:.1f} points ahead of SimCSE on the seven"
    once = {method: mean("first-study", method, seed=42) for method in ("simcse", "whitenedcse")}
    again = {method: mean("inside-study", method) for method in once}
    went = {method: f"from {once[method]:.2f} to" for method in once}
    yield f"{went['simcse']} {again['simcse']:.2f}, WhitenedCSE {went['whitenedcse']} **{again['whitenedcse']:.2f}**"
    yield f"in the first study, is {again['whitenedcse'] - again['simcse']:.1f} here"


def choosing():
    rows = [line.split("|")[1:-1] for line in page("choosing").splitlines() if " encoders |" in line]
    taus, losses = (
        [float(row[3].split()[0]) for row in rows],
        [float(row[4].split(", ")[-1].split()[0]) for row in rows],
    )
    *losses, worst = sorted(losses)
    yield f"mean tau {statistics.fmean(taus):.2f} over {len(rows)} sets"
    yield f"loses at most {max(losses):.3f} on {len(losses)} of them and {worst:.3f} on"


VERDICTS = ("holds", "direction holds", "not shown", "contradicted")


def around(test):
    """Return a difference with its interval."""
    return f"{test['difference']:.2f} ({test['low']:.2f} to {test['high']:.2f})"


def washed_runs(name, **point):
    """Return the results of the runs of a file of the washed study at a point."""
    found = [run for run in studied(f"washed/{name}") if point.items() <= run["point"].items()]
    assert found, point
    return [run["results"] for run in found]


def doses():
    """Yield what is said of sentcli-bert-mini by how much it has read."""
    with (RESULTS / "washed" / "doses-cls.csv").open(encoding="utf-8", newline="") as handle:
        raw = {row["values"]: row["gold score"] for row in csv.DictReader(handle)}
    mini = {steps: f"mini-{steps}" for steps in (862, 3447, 6894, 13788)}
    before = [float(raw[name]) for name in mini.values()]
    after = [mean("washed/runs", "simcse", "best_dev_spearman", model=f"study/washed/{name}") for name in mini.values()]
    yield f"its raw [CLS] rises from {before[0]:.2f} to {before[-1]:.2f} on STS-B dev"
    yield f"and SimCSE from {after[0]:.2f} to {after[-1]:.2f}"
    lost = sorted(one - other for one, other in zip(before, after, strict=True))
    assert lost[0] > 0
    yield f"made of, by {lost[0]:.2f} to {lost[-1]:.2f}"
    log = (DOCS.parent / "models" / "sentcli-bert-mini" / "training-log.jsonl").read_text("utf-8").splitlines()
    second = [measured("washed/mini-6894.json")["results"], json.loads(log[-1])]
    ours, shipped = (f"{each['held_out_perplexity']:.1f}" for each in second)
    other = float(raw["sentcli-bert-mini"])
    yield f"with a perplexity of {ours} and {shipped} their raw [CLS] have {before[2]:.2f} and {other:.2f}"


def transfer_and_geometry():
    """Yield what is said of transfer and of geometry, of one seed each."""
    entries = measured("washed/further.json")
    found = {entry["system"]: entry["average"] for entry in entries}
    best, second, *others = sorted(found, key=found.__getitem__, reverse=True)
    assert (best, second) == ("raw first-last-avg", "raw mean")
    yield f"the raw mean of first and last layer has {found[best]:.2f} and the raw mean {found[second]:.2f}"
    assert others[0] == "mirror-bert"
    trained = [found[name] for name in ("mirror-bert", "simcse", "whitened cls")]
    yield "Mirror-BERT {:.2f}, SimCSE {:.2f}, whitened [CLS] {:.2f}".format(*trained)
    yield f"SimCSE's raw [CLS] has {found['raw cls']:.2f}"
    averages = {entry["digest"]: entry["average"] for entry in measured("washed/scores.json")}
    inside = [(averages[entry["digest"]], entry["geometry"]) for entry in entries if entry["pooling"] == "cls"]
    assert len(inside) == 8
    scores = [score for score, _ in inside]

    def follows(measure):
        return spearmanr(scores, [geometry[measure] for _, geometry in inside]).statistic

    yield f"alignment ({follows('alignment'):+.2f}) and effective rank ({follows('effective rank'):+.2f})"
    assert round(follows("uniformity"), 2) == round(follows("mean cosine"), 2)
    yield f"uniformity and mean cosine ({follows('mean cosine'):+.2f} each)"
    yield f"first direction ({follows('first direction %'):+.2f})"


def measured_start():
    """Return STS-B dev of the raw [CLS] of the start."""
    (start,) = washed_runs("raw", model="study/washed/wash-900", pooling="cls")
    return start["best_dev_spearman"]


def attention_share():
    """Return the mean share of the attention term of the gradient with positives alone."""
    runs = washed_runs("runs", **{"method": "micse", "contrastive.positives_only": True})
    return statistics.fmean(run["gradient_shares"]["ami"] for run in runs)


def washed():
    found, shared = measured("washed/compared.json"), measured("study/words.json")
    gate, gain = found["gate"], found["gains"]["900 steps"]
    yield f"SimCSE reaches {gate['means'][0]:.2f} on the seven STS tasks over five seeds"
    yield f"{gate['difference']:.2f} ({gate['low']:.2f} to {gate['high']:.2f}) more than the best untrained pooling"
    yield f"{gain['difference']:.2f} ({gain['low']:.2f} to {gain['high']:.2f}) more than the raw [CLS]"
    assert (gate["second"], gate["seeds"]) == ("whitened cls", [5, 1])
    mlm, random = (test for test in found["tests"] if "share" in test)
    yield f"leave the raw [CLS] at {mlm['means'][0]:.2f}"
    yield f"paired at random takes it to {random['means'][0]:.2f} (three seeds each)"
    assert (mlm["verdict"], random["verdict"], mlm["seeds"], random["seeds"]) == ("holds", "holds", [3, 5], [3, 5])
    washes = list(found["gains"].values())
    ends = [f"{gain['means'][0]:.2f}" for gain in washes]
    yield f"ends at {ends[0]}, {ends[1]} and {ends[2]} after 100, 300 and 900 steps"
    said = [f"{gain['difference']:.2f} ({gain['low']:.2f} to {gain['high']:.2f})" for gain in washes]
    yield f"is {said[0]} and {said[1]} after 100 and 300 steps, two seeds each"
    yield f"and {said[3]} after a second one"
    assert min(gain["low"] for gain in washes[:2]) > max(gain["high"] for gain in washes[2:])
    yield f"A count of shared words has {shared['sts_average']:.2f}"
    yield f"need no model, have {shared['best_dev_spearman']:.2f}"
    yield f"which needs no model ({shared['best_dev_spearman']:.2f})"
    tests = [test for test in found["tests"] if "printed" in test]
    answers = [sum(test["verdict"] == kind for test in tests) for kind in VERDICTS]
    numbers = [COUNTS[answer] for answer in answers]
    yield "Of the ten predictions {} hold, {} in direction alone; {} are not shown, and {} is contradicted".format(
        *numbers
    )
    assert all(test["verdict"] == "holds" for test in tests[:4])
    ami, positives, groups, mirror, infocse, informin = tests[4:]
    yield f"loses {around(informin)} when it masks in place, where {informin['printed']:.2f} is printed"
    assert informin["low"] < informin["printed"] / 3 and infocse["high"] < infocse["printed"] / 3
    yield f"InfoCSE loses {around(infocse)} on STS-B dev without contrast, where {infocse['printed']:.2f} is printed"
    yield f"below the {measured_start():.2f} of its start"
    assert infocse["means"][1] < measured_start()
    yield f"is {around(mirror)} better than by [CLS], where {mirror['printed']:.2f} is printed"
    yield f"its p is {mirror['p_holm']:.3f}"
    yield f"full ZCA whitening: {around(groups)}"
    yield f"{around(ami)} where {ami['printed']:.2f} is printed"
    yield f"{positives['means'][0]:.2f} with the term and {positives['means'][1]:.2f} without it"
    yield f"makes {100 * attention_share():.1f} % of the gradient"
    yield f"has {-found['precision']['difference']:.2f} less in it than in fp32 ({found['precision']['low']:.2f} to"
    yield from doses()
    yield from transfer_and_geometry()


def adapting():
    """What the page says of adapt in words."""
    found = {path.stem: json.loads(path.read_text("utf-8"))["results"] for path in (RESULTS / "adapt").glob("*.json")}
    taken = sorted(name for name, record in found.items() if record["adopted"])
    yield f"taken on {COUNTS[len(taken)]} of {COUNTS[len(found)]} sets"
    assert not [name for name, record in found.items() if record["interval"][1] < 0], "one is worse"


SAID = {
    "adapting": adapting,
    "washed": washed,
    "results": results,
    "retrieval": list,
    "passages": list,
    "own-data": own_data,
    "first-study": first_study,
    "choosing": choosing,
}


def page(name):
    return (DOCS / "studies" / f"{name}.md").read_text("utf-8")


def words(text):
    return " ".join(text.split())


@pytest.mark.slow
@pytest.mark.parametrize("name", SAID)
def test_what_the_text_says_is_in_the_files(name):
    """Each sentence is computed, and must stand on the page as it comes out."""
    text = words(page(name))
    missing = [said for said in SAID[name]() if words(said) not in text]
    assert not missing


@pytest.mark.slow
@pytest.mark.parametrize("name", SAID)
def test_no_number_has_no_file_behind_it(name):
    text = page(name)
    tables = re.compile(r"<!-- ((?!/|printed)[\w-]+) -->\n(.*?)<!-- /\1 -->", re.DOTALL)
    pool = [float(value) for _, table in tables.findall(text) for value in NUMBER.findall(table)]
    text = tables.sub("", text)
    for region in re.findall(r"\n#+ [^\n]*\n(?:(?!\n#+ ).)*?<!-- printed -->.*?<!-- /printed -->", text, re.DOTALL):
        assert re.search(r"\bnot\s+kept\b|None of these numbers is kept", region), region[:80]
    text = re.sub(r"<!-- printed -->.*?<!-- /printed -->", "", text, flags=re.DOTALL)
    text = re.sub(r"```.*?```|`[^`\n]*`|\]\([^)]*\)", " ", text, flags=re.DOTALL)
    text = words(text)
    for said in SAID[name]():
        text = text.replace(words(re.sub(r"`[^`]*`", " ", said)), " ")

    def known(number):
        half = 0.5 * 10 ** -len(number.split(".")[1]) + 1e-9
        return number in OTHERS[name] or any(abs(value - float(number)) <= half for value in pool)

    unknown = [text[max(at.start() - 60, 0) : at.end() + 20] for at in NUMBER.finditer(text) if not known(at[0])]
    assert unknown == []
