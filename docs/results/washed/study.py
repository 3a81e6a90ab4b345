"""What `run.sh` of this folder computes beside the commands.

* ``study.py choose``: the folder of the start that the rule of docs/studies/washed.md takes.
* ``study.py pair-randomly OUT TEXT...``: a table of sentences, each beside another one of the text.
* ``study.py models [--further]``: the models that are here and have no scores in scores.json yet, as options ``-m``;
  with ``--further``, one seed of each method that is not in further.json yet.
* ``study.py keep STS IN_DOMAIN``: adds what ``sts-eval`` and ``retrieve`` have written to scores.json.
* ``study.py keep-further TRANSFER GEOMETRY``: adds what ``senteval`` and ``analyze geometry`` wrote to further.json.
* ``study.py compare``: the gate, the predictions and the controls, from scores.json and runs.jsonl.
"""

import argparse
import csv
import gzip
import json
import random
import statistics
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import ttest_ind

from sentcli.evaluation import score_json, significance

HERE = Path(__file__).parent
MODELS = Path("study/washed")
POOLED = ("raw", "whitened")
"""How the systems begin that are vectors of the start, a pooling each, and the files of their runs."""
FIXED = (*POOLED, "words")
"""How the systems begin that are one model without a seed."""
LENGTHS = (100, 300, 900)
GREATEST_PERPLEXITY = 250
FEWEST_PAIRS = 1186
"""The pairs of STS16, the smallest of the seven tasks."""
POOLINGS = ("cls", "mean", "first-last-avg")
LOW_SHOT = {"fraction": 0.001, "subset_seed": "seed"}
AMI = {"method": "micse", "contrastive.queue_size": 0, **LOW_SHOT}
POSITIVES = {"contrastive.positives_only": True}
METHODS = ("simcse", "informin-cl", "micse", "infocse", "whitenedcse", "is-bert", "mirror-bert", "ct")
TRAINED = {
    **{method: {"method": method} for method in METHODS},
    "simcse, 0.1 %": {"method": "simcse", **LOW_SHOT},
    "simcse + ami, 0.1 %": AMI | {"ami.weight": 1e-3},
    "simcse, positives only, 0.1 %": {"method": "simcse", **POSITIVES, **LOW_SHOT},
    "simcse + ami, positives only, 0.1 %": AMI | POSITIVES | {"ami.weight": 1e-3},
    "whitenedcse, zca": {"method": "whitenedcse", "head.kind": "zca"},
    "mirror-bert, cls": {"method": "mirror-bert", "pooling": "cls"},
    "infocse without contrast": {"method": "infocse", "objectives-": "contrastive"},
    "informin-cl, masked in place": {
        "method": "informin-cl", "objectives+": "mlm", "mlm.weight": 0.1, "mlm.in_place": True,
    },
    "more mlm, raw cls": {"method": "mlm", "pooling": "cls"},
    "random pairs": {
        "method": "simcse", "views": "pairs", "head": "mlp", "contrastive.mask_duplicates": False,
    },
    **{f"simcse, {steps} steps": {"method": "simcse", "model": f"study/washed/wash-{steps}"} for steps in LENGTHS[:2]},
    "simcse, fp32": {"method": "simcse", "precision": "fp32"},
    "simcse, second wash": {"method": "simcse", "model": "study/washed/wash-second"},
}  # fmt: skip
"""The settings of each trained system beside its learning rate and its seed."""


@cache
def lines(name: str) -> list[dict[str, Any]]:
    """Return the runs of a file, none if there is no such file."""
    path = HERE / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def runs(system: str) -> list[dict[str, Any]]:
    """Return the runs of a trained system at the rate that was chosen for its method, a run a seed."""
    point = TRAINED[system]
    found = [
        run for run in lines("runs") if {**run["point"], "learning_rate": None} == {**point, "learning_rate": None}
    ]
    tried = {run["point"]["learning_rate"]: run for run in found if run["seed"] == 42}
    if not tried:
        return []
    rate = max(tried, key=lambda rate: dev_of(tried[rate]))
    chosen = [run for run in found if run["point"]["learning_rate"] == rate]
    return sorted(chosen, key=lambda run: run["seed"])


def words() -> float:
    """Return the score on STS-B dev of the share of content words in common."""
    return json.loads((HERE.parent / "study" / "words.json").read_text("utf-8"))["best_dev_spearman"]


def choose() -> str:
    """Return the start that the rule takes: the shortest wash with poolings below the words and a fair perplexity."""
    for steps in LENGTHS:
        name = f"study/washed/wash-{steps}"
        scores = [dev_of(run) for run in lines("raw") if run["point"]["model"] == name]
        assert len(scores) == 3, f"{name} was not scored with three poolings"
        perplexity = json.loads((HERE / f"wash-{steps}.json").read_text("utf-8"))["results"]["held_out_perplexity"]
        if max(scores) < words() and perplexity <= GREATEST_PERPLEXITY:
            return Path(name).name
    return Path(name).name


def pair_randomly(out: Path, texts: list[Path]) -> None:
    """Write each sentence beside another one of the same text, drawn by seed 0."""
    sentences = []
    for path in texts:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as handle:
            sentences += [line for line in handle.read().splitlines() if line.strip()]
    others = random.Random(0).sample(sentences, len(sentences))
    with out.open("w", encoding="utf-8", newline="") as handle:
        csv.writer(handle).writerows([("anchor", "positive"), *zip(sentences, others, strict=True)])


@dataclass(frozen=True)
class Model:
    """A model that may be scored."""

    system: str
    seed: int | None
    dev: float
    """Its score on STS-B dev."""
    digest: str
    """Of the settings, the text and the start of its run."""


def folders() -> dict[str, Model]:
    """Return the models of the study by their folders, which may not be here any more."""
    found: dict[str, Model] = {}
    start = choose()
    for run in lines("words"):
        system = f"words {run['point']['weights']}"
        found[f"{MODELS}/words/{run['run']}"] = Model(system, None, dev_of(run), run["digest"])
    for kind in POOLED:
        for run in lines(kind):
            washed, pooling = Path(run["point"]["model"]).name, run["point"]["pooling"]
            if washed == start or (kind, pooling) == ("raw", "cls"):
                after = "" if washed == start else f", {washed.removeprefix('wash-')}"
                found[f"{MODELS}/{kind}/{run['run']}"] = Model(
                    f"{kind} {pooling}{after}", None, dev_of(run), run["digest"]
                )
    for system in TRAINED:
        for run in runs(system):
            folder = next(MODELS.glob(f"*/{run['run']}"), Path("gone") / run["run"])
            found[str(folder)] = Model(system, run["seed"], dev_of(run), run["digest"])
    return found


def dev_of(run: Mapping[str, Any]) -> float:
    """Return the best score of a run on STS-B dev."""
    return float(run["results"]["best_dev_spearman"])


def kept(name: str) -> list[dict[str, Any]]:
    """Return the models of scores.json or further.json."""
    path = HERE / name
    return json.loads(path.read_text("utf-8")) if path.exists() else []


def write(name: str, entries: Iterable[Mapping[str, Any]]) -> None:
    """Write scores.json or further.json, a line a model."""
    path = HERE / name
    partial = path.with_suffix(".partial")
    partial.write_text("[\n" + ",\n".join(map(json.dumps, entries)) + "\n]\n", "utf-8")
    partial.replace(path)


def listed(path: Path) -> list[dict[str, Any]]:
    """Return what a command wrote of each model, of which there may be one."""
    read = json.loads(path.read_text("utf-8"))
    return read if isinstance(read, list) else [read]


def models(further: bool) -> list[str]:
    """Return the options ``-m`` of the models that are to be scored."""
    here = {folder: model for folder, model in folders().items() if Path(folder).is_dir()}
    if further:
        known = {entry["system"] for entry in kept("further.json")}
        first = {model.system: folder for folder, model in reversed(here.items())}
        methods = (system for system in first if "," not in system and not system.startswith("words"))
        chosen = [first[system] for system in methods if system not in known]
    else:
        known = {entry["digest"] for entry in kept("scores.json")}
        chosen = [folder for folder, model in here.items() if model.digest not in known]
    return [text for folder in chosen for text in ("-m", folder)]


def keep(sts: Path, in_domain: Path) -> None:
    """Add the scores of models to scores.json: of each task, their mean, and 1,000 samples of the mean."""
    known = folders()
    chosen = {model.digest for model in known.values()}
    found = {entry["digest"]: entry for entry in kept("scores.json") if entry["digest"] in chosen}
    retrieval = {model["model"]: model for model in listed(in_domain)}
    for model in listed(sts):
        own = known[model["model"]]
        tasks = model["results"]
        draws = np.mean([score_json.unpack_values(task["draws"]["spearman"]) for task in tasks.values()], axis=0)
        (searched,) = retrieval[model["model"]]["results"].values()
        found[own.digest] = {
            **asdict(own),
            "average": model["average"],
            "sts": {name: task["spearman"] for name, task in tasks.items()},
            "recall@1": searched["recall@1"],
            "draws": score_json.pack_values(draws),
        }
    write("scores.json", found.values())


def keep_further(transfer: Path, geometry: Path) -> None:
    """Add the accuracies of transfer and the geometry of models to further.json."""
    known = folders()
    found = {entry["system"]: entry for entry in kept("further.json")}
    with geometry.open(encoding="utf-8", newline="") as handle:
        shapes = {row.pop("model"): row for row in csv.DictReader(handle)}
    for model in listed(transfer):
        own = known[model["model"]]
        shape = shapes[Path(model["model"]).name]
        found[own.system] = {
            **asdict(own),
            "pooling": model["protocol"]["pooling"],
            "average": model["average"],
            "transfer": {name: task["accuracy"] for name, task in model["results"].items()},
            "geometry": {name: float(value) for name, value in shape.items() if value},
        }
    write("further.json", found.values())


class Scores:
    """The scores of all systems, to compare them."""

    def __init__(self) -> None:
        self.by_system: dict[str, list[dict[str, Any]]] = {}
        for entry in kept("scores.json"):
            self.by_system.setdefault(entry["system"], []).append(entry)

    def of(self, system: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean of seven tasks of each seed ``[seeds]`` and the samples of it ``[seeds, draws]``."""
        entries = self.by_system.get(system, [])
        averages = np.array([entry["average"] for entry in entries])
        draws = [score_json.unpack_values(entry["draws"]) for entry in entries]
        return averages, np.stack(draws) if draws else np.zeros((0, 0))

    def compare(self, first: str, second: str) -> dict[str, Any] | None:
        """Return the difference of two systems, or None where one has no scores yet; a single one is fixed."""
        one, two = self.of(first), self.of(second)
        if not len(one[0]) or not len(two[0]):
            return None
        return self._difference(one, two, (first.split()[0] in FIXED, second.split()[0] in FIXED))

    def part(self, control: str, whole: str, base: str, share: float) -> dict[str, Any] | None:
        """Return by how much the gain of a control is more than a share of the gain of the whole."""
        (averages, draws), (raw, raw_draws) = self.of(whole), self.of(base)
        if not len(averages) or not len(raw) or not len(self.of(control)[0]):
            return None
        between = share * averages + (1 - share) * raw, share * draws + (1 - share) * raw_draws
        return self._difference(self.of(control), between, (False, False))

    @staticmethod
    def _difference(one: Sequence[Any], two: Sequence[Any], fixed: tuple[bool, bool]) -> dict[str, Any]:
        found = significance.compare_seeds(one[0], two[0], one[1], two[1], FEWEST_PAIRS, fixed)
        return {
            "seeds": [len(one[0]), len(two[0])],
            "means": [float(one[0].mean()), float(two[0].mean())],
            **asdict(found),
        }


def by_dev(first: str, second: str) -> dict[str, Any] | None:
    """Return the difference on STS-B dev, by Welch's test over seeds, or None where a system has no two runs."""
    one, two = ([dev_of(run) for run in runs(system)] for system in (first, second))
    if min(len(one), len(two)) < 2:
        return None
    test = ttest_ind(one, two, equal_var=False)
    low, high = test.confidence_interval(0.95)
    return {
        "seeds": [len(one), len(two)], "means": [statistics.fmean(one), statistics.fmean(two)],
        "difference": statistics.fmean(one) - statistics.fmean(two), "low": low, "high": high, "p": test.pvalue,
    }  # fmt: skip


def verdict(found: Mapping[str, Any] | None, printed: float) -> str | None:
    """Return what the rule says of a prediction; None where it has not run, or a system has one seed."""
    if found is None or found["low"] is None:
        return None
    if found["low"] > 0:
        return "holds" if found["low"] > printed / 3 else "direction holds"
    return "contradicted" if found["high"] < 0 else "not shown"


def compare() -> dict[str, Any]:
    """Return the gate, the predictions and controls with their verdicts, the gains after each wash, and bf16's."""
    table, file = Scores(), tomllib.loads((HERE / "predictions.toml").read_text("utf-8"))
    untrained = [
        f"{kind} {pooling}" for kind in POOLED for pooling in POOLINGS if f"{kind} {pooling}" in table.by_system
    ]
    best = max(untrained, key=lambda system: table.of(system)[0].mean())
    gate = table.compare("simcse", best)
    tests: list[dict[str, Any]] = []
    for prediction in file["prediction"]:
        pair = prediction["first"], prediction["second"]
        found = by_dev(*pair) if prediction.get("measure") == "dev" else table.compare(*pair)
        tests.append(prediction | (found or {}) | {"verdict": verdict(found, prediction["printed"])})
    for control in file["control"]:
        found = table.part(control["second"], "simcse", "raw cls", control["share"])
        keeps = None
        if found and found["low"] is not None:
            keeps = "holds" if found["high"] < 0 else "contradicted" if found["low"] > 0 else "not shown"
        tests.append(control | (found or {}) | {"verdict": keeps})
    for group in (tests[: len(file["prediction"])], tests[len(file["prediction"]) :]):
        # what has not run counts as a test whose p is 1
        corrected = significance.holm([1.0 if test.get("p") is None else test["p"] for test in group])
        for test, p in zip(group, corrected, strict=True):
            test["p_holm"] = None if test.get("p") is None else p
    pairs = {f"{steps} steps": (f"simcse, {steps} steps", f"raw cls, {steps}") for steps in LENGTHS[:2]}
    pairs |= {f"{LENGTHS[2]} steps": ("simcse", "raw cls"), "second wash": ("simcse, second wash", "raw cls, second")}
    washes = {name: table.compare(*pair) for name, pair in pairs.items()}
    precision = table.compare("simcse", "simcse, fp32")
    return {"gate": {"second": best, **(gate or {})}, "tests": tests, "gains": washes, "precision": precision}


def main() -> None:
    """Run a step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(dest="step", required=True)
    steps.add_parser("choose")
    pairs = steps.add_parser("pair-randomly")
    pairs.add_argument("out", type=Path)
    pairs.add_argument("texts", type=Path, nargs="+")
    steps.add_parser("models").add_argument("--further", action="store_true")
    keeping = steps.add_parser("keep")
    keeping.add_argument("sts", type=Path)
    keeping.add_argument("in_domain", type=Path)
    further = steps.add_parser("keep-further")
    further.add_argument("transfer", type=Path)
    further.add_argument("geometry", type=Path)
    steps.add_parser("compare")
    options = parser.parse_args()
    match options.step:
        case "choose":
            print(choose())
        case "pair-randomly":
            pair_randomly(options.out, options.texts)
        case "models":
            print("\n".join(models(options.further)))
        case "keep":
            keep(options.sts, options.in_domain)
        case "keep-further":
            keep_further(options.transfer, options.geometry)
        case "compare":
            print(json.dumps(compare(), indent=1))


if __name__ == "__main__":
    main()
