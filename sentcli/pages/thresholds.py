"""What ``evaluate --threshold`` shows: from which similarity on hits are right, and how well probabilities hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.evaluation.evaluated import EvaluatedModel, OwnTask
from sentcli.evaluation.observed_hits import Observed
from sentcli.evaluation.observing import keep, observe, tasks_with_hits
from sentcli.evaluation.options import ThresholdOptions
from sentcli.evaluation.scores import ModelScores
from sentcli.evaluation.thresholds import LEAST_ABOVE, Threshold, find_threshold
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
    of_scores: Mapping[tuple[str, str], Threshold]
    """By the names of model and task."""

    def json(self, scores: ModelScores, task: str) -> Mapping[str, Any]:
        """Return the threshold of a model on a task."""
        threshold = self.of_scores.get((scores.model, task))
        if threshold is None:
            return {}
        entry = threshold_json(threshold)
        for score in scores.tasks:
            if score.task == task and "threshold" in score.metrics:  # that of the best F1, whose key this one has
                entry["f1_threshold"] = score.metrics["threshold"]
        return {"threshold": entry}

    def sections(self) -> Sequence[Section]:
        """Return a table of all thresholds, and a picture of the probabilities on each task."""
        table = _table(self)
        sections = [Section(table.title, table=table)]
        tasks = dict.fromkeys(task for _, task in self.of_scores)
        for number, task in enumerate(tasks, 1):
            of_models = {}
            for (model, of_task), threshold in self.of_scores.items():
                if of_task == task:
                    of_models[model] = threshold
            title = f"How often hits are right, by predicted probability: {task}"
            sections.append(Section(title, figure=_figure(title, of_models, number)))
        return sections

    @property
    def sentence(self) -> str:
        """From which similarity on hits are right, of each model and task."""
        return "\n".join(f"{model} on {task}: {_sentence(found)}" for (model, task), found in self.of_scores.items())


def find_thresholds(
    models: Sequence[EvaluatedModel], tasks: Sequence[OwnTask], options: ThresholdOptions
) -> list[Part]:
    """Find the threshold of each model on each task, and keep it where that is asked for.

    Args:
        models: those of the command.
        tasks: 0/1 pairs and retrieval sets.
        options: the precision, and the place that keeps what one model has learned from one task.

    Returns:
        The thresholds; nothing where no precision is given.

    Raises:
        InputError: if the data cannot carry a threshold.
    """
    precision = options.threshold
    place = options.keep_threshold
    if precision is None:
        return []
    of_scores = {}
    for model, task in product(models, tasks_with_hits(tasks)):
        threshold = find_threshold(observe(model, task), precision)
        of_scores[model.name, task.name] = threshold
        if place is not None:
            path = keep(place, model, task, threshold)
            console.note(f"{path}: retrieve shows the probability that a hit is right, and takes --least 0.9p")
        model.release()
    return [Thresholds(precision, of_scores)]


def threshold_json(threshold: Threshold) -> dict[str, Any]:
    """Return the entry of the JSON of a threshold."""
    observed = threshold.observed
    precision, similarity = threshold.highest
    form = threshold.curve.form
    entry = {
        "precision": threshold.precision,
        "similarity": threshold.similarity,
        "interval": threshold.interval,
        "held_out_precision": threshold.held_out_precision,
        "held_out_interval": threshold.held_out_interval,
        "held_out_hits": threshold.held_out_hits,
        "recall": threshold.recall,
        "form": form,
        "brier": threshold.brier[form],
        "brier_of": threshold.brier,
        "positives": observed.positives,
        "negatives": observed.negatives,
        "groups": observed.group_count,
        "depth": observed.source.depth,
        "reliability": [asdict(part) for part in threshold.reliability],
    }
    if threshold.similarity is None:
        entry["highest"] = {"precision": precision, "similarity": similarity}
    return entry


def _hits(observed: Observed) -> str:
    """Return what the hits are, with their number and how many of them are right."""
    share = 100 * observed.positives / len(observed)
    if observed.source.depth is None:
        what = f"{len(observed):,} pairs"
    else:
        what = f"{len(observed):,} first {observed.source.depth} documents of {observed.group_count:,} queries"
    return f"{what}, {share:.0f} % of them right"


def _sentence(threshold: Threshold) -> str:
    percent = f"{100 * threshold.precision:g} %"
    hits = _hits(threshold.observed)
    if threshold.similarity is None:
        precision, similarity = threshold.highest
        sentence = (
            f"no similarity from which on {percent} are right ({LEAST_ABOVE} hits at least); the highest precision is "
            f"{100 * precision:.0f} %, from {similarity:.5f} on"
        )
    else:
        low, high = threshold.interval
        ends = f"{low:.5f} or more; from none on it is sure"
        if high is not None:
            ends = f"{low:.5f} to {high:.5f}"
        sentence = f"from similarity {threshold.similarity:.5f} on ({ends}) {percent} are right"
    if threshold.held_out_precision is not None and threshold.held_out_interval is not None:
        least, most = threshold.held_out_interval
        interval = f"{100 * least:.0f} to {100 * most:.0f}"
        held_out = f"{100 * threshold.held_out_precision:.1f} % ({interval}) of {threshold.held_out_hits:,} hits"
        sentence += f"; by thresholds of other folds {held_out}, {100 * threshold.recall:.0f} % of the right ones"
    return f"{sentence} ({hits})"


def _table(thresholds: Thresholds) -> Table:
    percent = f"{100 * thresholds.precision:g} %"
    rows: list[dict[str, Any]] = []
    texts = {}
    for (model, task), found in thresholds.of_scores.items():
        texts[len(rows), 3] = _between(*found.interval)
        low, high = found.held_out_interval or (None, None)
        row = {
            "model": model,
            "data": task,
            "from": found.similarity,
            "interval": None,
            "held out": found.held_out_precision,
            "low": low,
            "high": high,
            "recall": found.recall,
            "right": found.observed.positives,
            "wrong": found.observed.negatives,
            "form": found.curve.form,
            "Brier": found.brier[found.curve.form],
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


def _figure(title: str, of_models: Mapping[str, Threshold], number: int) -> Figure:
    """Return the share of right hits against the predicted probability, which are equal if probabilities hold."""
    import pandas as pd

    rows = []
    for model, threshold in of_models.items():
        for part in threshold.reliability:
            low, high = part.interval
            label = f"{model}: {part.share:.3f} of {part.count:,} hits are right, {part.probability:.3f} predicted"
            place = {"x": part.probability, "y": part.share, "low": low, "high": high}
            rows.append({"panel": "reliability", "series": model, **place, "label": label, "count": part.count})
    data = pd.DataFrame(rows)
    alt = f"{title}; {len(data)} parts of the hits with their 95 % intervals beside the diagonal."
    note = "Each point is a tenth of the hits, with probabilities that were learned from other folds."
    panels = {"reliability": partial(_draw, data)}
    return Figure(f"reliability-{number}", title, panels, data, alt, note, columns=1)


def _draw(data: DataFrame, axes: Axes) -> None:
    from sentcli.pages import style

    axes.plot([0, 1], [0, 1], color=style.QUIET, linewidth=0.8)
    for number, (model, part) in enumerate(data.groupby("series", sort=False)):
        y = part["y"]
        whiskers = [y - part["low"], part["high"] - y]
        look: dict[str, Any] = {"color": style.colour(number), "marker": style.marker(number), "linestyle": ""}
        axes.errorbar(part["x"], y, yerr=whiskers, label=str(model), elinewidth=0.8, **look)
    axes.set(xlabel="predicted probability", ylabel="share of right hits", xlim=(0, 1), ylim=(0, 1))
