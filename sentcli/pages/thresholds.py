"""What ``evaluate --threshold`` shows: from which similarity on hits are right, and how well probabilities hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.errors import InputError
from sentcli.evaluation.evaluated import EvaluatedModel, OwnTask
from sentcli.evaluation.observing import keep, observe, tasks_with_hits
from sentcli.evaluation.options import ThresholdOptions
from sentcli.evaluation.scores import ModelScores
from sentcli.evaluation.thresholds import LEAST_ABOVE, find_threshold
from sentcli.pages.page import Figure, Section
from sentcli.pages.parts import Part
from sentcli.table import MISSING, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame


@dataclass(frozen=True)
class Thresholds(Part):
    """The thresholds of models on data of the user."""

    precision: float
    of_scores: Mapping[tuple[str, str], Mapping[str, Any]]
    """The entries of the JSON of each `Threshold`, by the names of model and task."""

    def json(self, scores: ModelScores, task: str) -> Mapping[str, Any]:
        """Return the threshold of a model on a task."""
        found = self.of_scores.get((scores.model, task))
        if found is None:
            return {}
        entry = dict(found)
        for score in scores.tasks:
            if score.task == task and "threshold" in score.metrics:  # that of the best F1, whose key this one has
                entry["f1_threshold"] = score.metrics["threshold"]
        return {"threshold": entry}

    def sections(self) -> Sequence[Section]:
        """Return a table of all thresholds, and a picture of the probabilities on each task."""
        sections = [Section.of(_table(self))]
        tasks = dict.fromkeys(task for _, task in self.of_scores)
        for number, task in enumerate(tasks, 1):
            of_models = {}
            for (model, of_task), entry in self.of_scores.items():
                if of_task == task:
                    of_models[model] = entry
            title = f"How often hits are right, by predicted probability: {task}"
            sections.append(
                Section(title, figure=_figure(title, of_models, f"reliability-{100 * self.precision:g}-{number}"))
            )
        return sections

    @property
    def sentence(self) -> str:
        """From which similarity on hits are right, of each model and task."""
        return "\n".join(f"{model} on {task}: {_sentence(found)}" for (model, task), found in self.of_scores.items())


def threshold_sections(scores: Sequence[ModelScores], shown: Mapping[str, str]) -> list[Section]:
    """Return the sections of the thresholds that stand in the JSON of models, those of one precision together.

    Args:
        scores: as they were read.
        shown: what is shown of the labels of models.
    """
    of_precisions: dict[float, dict[tuple[str, str], Mapping[str, Any]]] = {}
    for of_model in scores:
        for score in of_model.tasks:
            entry = score.details.get("threshold")
            if entry is not None:
                of_scores = of_precisions.setdefault(entry["precision"], {})
                of_scores[shown.get(of_model.label, of_model.label), score.task] = entry
    sections: list[Section] = []
    for precision, of_scores in of_precisions.items():
        sections += Thresholds(precision, of_scores).sections()
    return sections


def find_thresholds(scored: Sequence[tuple[EvaluatedModel, OwnTask]], options: ThresholdOptions) -> list[Part]:
    """Find the threshold of models on tasks, and keep it where that is asked for.

    Args:
        scored: models, and tasks on which they have a score; 0/1 pairs and retrieval sets may carry a threshold.
        options: the precision, and the place that keeps what one model has learned from one task.

    Returns:
        The thresholds; nothing where no precision is given. A model and a task that cannot carry one are named in a
        warning, if others can.

    Raises:
        InputError: if none can carry a threshold.
    """
    precision = options.threshold
    place = options.keep_threshold
    if precision is None or not scored:
        return []
    of_scores = {}
    failures = []
    for model, own_task in scored:
        for task in tasks_with_hits([own_task]):
            try:
                observed = observe(model, task)
                threshold = find_threshold(observed, precision)
            except InputError as error:
                failures.append((model.name, task.name, error))
                model.release()
                continue
            of_scores[model.name, task.name] = threshold.to_dict()
            if place is not None:
                keep(place, model, task, observed, threshold)
            model.release()
    if not of_scores:
        raise failures[0][2]
    for name, task_name, failure in failures:
        console.warn(f"{name} has no threshold on {task_name}: {failure}")
    return [Thresholds(precision, of_scores)]


def _hits(entry: Mapping[str, Any]) -> str:
    """Return what the hits are, with their number and how many of them are right."""
    count = entry["positives"] + entry["negatives"]
    share = 100 * entry["positives"] / count
    if entry["depth"] is None:
        what = f"{count:,} pairs"
    else:
        what = f"{count:,} first {entry['depth']} documents of {entry['groups']:,} queries"
    return f"{what}, {share:.0f} % of them right"


def _sentence(entry: Mapping[str, Any]) -> str:
    percent = f"{100 * entry['precision']:g} %"
    hits = _hits(entry)
    if entry["similarity"] is None:
        highest = entry["highest"]
        sentence = (
            f"no similarity from which on {percent} are right ({LEAST_ABOVE} hits at least); the highest precision is "
            f"{100 * highest['precision']:.0f} %, from {highest['similarity']:.5f} on"
        )
    else:
        low, high = entry["interval"]
        ends = f"{low:.5f} or more; from none on it is sure"
        if high is not None:
            ends = f"{low:.5f} to {high:.5f}"
        sentence = f"from similarity {entry['similarity']:.5f} on ({ends}) {percent} are right"
    held_out_precision, held_out_interval = entry["held_out_precision"], entry["held_out_interval"]
    if held_out_precision is not None and held_out_interval is not None:
        least, most = held_out_interval
        interval = f"{100 * least:.0f} to {100 * most:.0f}"
        held_out = f"{100 * held_out_precision:.1f} % ({interval}) of {entry['held_out_hits']:,} hits"
        sentence += f"; by thresholds of other folds {held_out}, {100 * entry['recall']:.0f} % of the right ones"
    return f"{sentence} ({hits})"


def _table(thresholds: Thresholds) -> Table:
    percent = f"{100 * thresholds.precision:g} %"
    rows: list[dict[str, Any]] = []
    texts = {}
    for (model, task), found in thresholds.of_scores.items():
        texts[len(rows), "interval"] = _between(*found["interval"])
        low, high = found["held_out_interval"] or (None, None)
        row = {
            "model": model,
            "data": task,
            "from": found["similarity"],
            "interval": None,
            "held out": found["held_out_precision"],
            "low": low,
            "high": high,
            "recall": found["recall"],
            "right": found["positives"],
            "wrong": found["negatives"],
            "form": found["form"],
            "Brier": found["brier"],
        }
        rows.append(row)
    formats = dict.fromkeys(("held out", "low", "high", "recall", "Brier"), ".4f") | {"from": ".5f"}
    notes = [
        "From: the similarity from which on so many are right, with its 95 % interval. Held out: the precision, its 95 "
        "% interval, and the share of the right ones that is kept, by thresholds of other folds.",
        "It holds where as large a share is right as here. Of a retrieval set, documents that nobody judged count as "
        "wrong.",
    ]
    return Table.of_rows(f"Where {percent} are right", rows, formats=formats, texts=texts, notes=notes)


def _between(low: float | None, high: float | None) -> str:
    if low is None:
        return MISSING
    if high is None:
        return f"{low:.5f} to {MISSING}"
    return f"{low:.5f} to {high:.5f}"


def _figure(title: str, of_models: Mapping[str, Mapping[str, Any]], name: str) -> Figure:
    """Return the share of right hits against the predicted probability, which are equal if probabilities hold."""
    import pandas as pd

    rows = []
    for model, entry in of_models.items():
        for part in entry["reliability"]:
            low, high = part["interval"]
            share, predicted, count = part["share"], part["probability"], part["count"]
            label = f"{model}: {share:.3f} of {count:,} hits are right, {predicted:.3f} predicted"
            place = {"x": predicted, "y": share, "low": low, "high": high}
            rows.append({"panel": "reliability", "series": model, **place, "label": label, "count": count})
    data = pd.DataFrame(rows)
    about = f"{title}; {len(data)} parts of the hits with their 95 % intervals beside the diagonal."
    note = "Each point is a tenth of the hits, with probabilities that were learned from other folds."
    panels = {"reliability": partial(_draw, data)}
    return Figure(name, title, panels, data, [about], note, columns=1)


def _draw(data: DataFrame, axes: Axes) -> None:
    from sentcli.pages import style

    axes.plot([0, 1], [0, 1], color=style.QUIET, linewidth=0.8)
    style.error_bars(axes, data, data["series"].unique())
    axes.set(xlabel="predicted probability", ylabel="share of right hits", xlim=(0, 1), ylim=(0, 1))
