"""The curves of training runs: loss, dev scores and other evaluations over the steps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from sentcli.errors import InputError
from sentcli.pages import style
from sentcli.pages.page import Figure

if TYPE_CHECKING:
    from sentcli.analysis.runs import RunMetrics

ALIGNMENT = "alignment (lower: positives closer)"
UNIFORMITY = "uniformity (lower: more spread out)"
PERPLEXITY = "perplexity of held-out text"
LOGGED = {
    "dev_spearman": "dev (Spearman × 100)",
    "alignment": ALIGNMENT,
    "uniformity": UNIFORMITY,
    "held_out_perplexity": PERPLEXITY,
}
UNDRAWN = ("step", "best", "fitted")
"""Keys in the lines of evaluations that are no scores."""


def training_curves(runs: dict[str, RunMetrics]) -> Figure:
    """Return the curves of what runs logged at evaluations over their steps (WhitenedCSE, fig. 3)."""
    import pandas as pd

    parts = []
    about = []
    axes = {}
    for key, label in _logged(runs).items():
        title = label.split(" (")[0]
        key_in_words = key.replace("_", " ")
        for name, run in runs.items():
            steps, values = run.column(key)
            if steps:
                parts.append(pd.DataFrame({"panel": title, "series": name, "x": steps, "y": values}))
                about.append(f"{name}: {key_in_words} from {values[0]:.3f} to {values[-1]:.3f}")
                axes[title] = {"xlabel": "optimiser step", "ylabel": label}
    if PERPLEXITY in axes:
        axes[PERPLEXITY]["yscale"] = "log"
    data = pd.DataFrame(columns=["panel", "series", "x", "y"])
    if parts:
        data = pd.concat(parts)
    return Figure(
        name="training-curves",
        title="Evaluations of the training runs",
        panels=style.line_panels(data, axes, list(runs), whole=True),
        data=data,
        alt="; ".join(about),
        columns=3,
    )


def _logged(runs: dict[str, RunMetrics]) -> dict[str, str]:
    """Return what runs logged at evaluations, with the words for each."""
    labels: dict[str, str] = {}
    for run in runs.values():
        for key in chain.from_iterable(run.evaluations):
            labels[key] = key.replace("_", " ")
    labels |= LOGGED
    for key in UNDRAWN:
        labels.pop(key, None)
    return labels


DEV = "dev_"
"""How the names of scores on dev sets begin in the log of a run."""


def curve(folder: Path) -> Figure | None:
    """Return loss and dev scores by step; None if the log of the run has not two points of any.

    Args:
        folder: of the run.
    """
    import pandas as pd

    from sentcli.analysis.runs import read_metrics

    try:
        curves = _curves(read_metrics(folder))
    except InputError:  # nothing was trained by steps
        return None
    parts = []
    axes = {}
    about = []
    for name, (steps, values) in curves.items():
        if len(steps) >= 2:
            parts.append(pd.DataFrame({"panel": name, "series": folder.name, "x": steps, "y": values}))
            axes[name] = {"xlabel": "optimiser step", "ylabel": name}
            about.append(f"{name} from {values[0]:.4g} to {values[-1]:.4g}")
    if not parts:
        return None
    data = pd.concat(parts)
    return Figure(
        name="training-curve",
        title="Loss and dev scores",
        panels=style.line_panels(data, axes, whole=True),
        data=data,
        alt="; ".join(about),
        size=(4.6, 2.6),
    )


def _curves(metrics: RunMetrics) -> dict[str, tuple[Sequence[int], Sequence[float]]]:
    """Return steps and values of the loss and of each score on a dev set."""
    from sentcli.analysis.runs import thinned

    steps, losses = metrics.column("loss", metrics.steps)
    curves: dict[str, tuple[Sequence[int], Sequence[float]]] = {"loss": ((), ())}
    if steps:
        curves["loss"] = thinned(tuple(steps), tuple(losses))
    for key in chain.from_iterable(metrics.evaluations):
        if key.startswith(DEV):
            name = key.removeprefix(DEV).replace("_", " ")
            curves[name] = metrics.column(key)
    return curves
