"""The curves of training runs: loss, dev scores and other evaluations over the steps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sentcli.errors import InputError
from sentcli.pages import style
from sentcli.pages.page import Figure

if TYPE_CHECKING:
    from sentcli.analysis.runs import RunMetrics

ALIGNMENT, UNIFORMITY = "alignment (lower: positives closer)", "uniformity (lower: more spread out)"
PERPLEXITY = "perplexity of held-out text"
LOGGED = {
    "dev_spearman": "dev (Spearman × 100)",
    "alignment": ALIGNMENT,
    "uniformity": UNIFORMITY,
    "held_out_perplexity": PERPLEXITY,
}
UNDRAWN = ("step", "best", "fitted")
"""What else stands in the lines of evaluations."""


def training_curves(runs: dict[str, RunMetrics]) -> Figure:
    """Return the curves of what runs logged at evaluations over their steps (WhitenedCSE, fig. 3)."""
    import pandas as pd

    parts, words, axes = [pd.DataFrame(columns=["panel", "series", "x", "y"])], [], {}
    logged = {key: key.replace("_", " ") for run in runs.values() for line in run.evaluations for key in line}
    logged = {key: label for key, label in {**logged, **LOGGED}.items() if key not in UNDRAWN}
    for key, label in logged.items():
        title = label.split(" (")[0]
        for name, run in runs.items():
            steps, values = run.column(key)
            if steps:
                parts.append(pd.DataFrame({"panel": title, "series": name, "x": steps, "y": values}))
                words.append(f"{name}: {key.replace('_', ' ')} from {values[0]:.3f} to {values[-1]:.3f}")
                axes[title] = {"xlabel": "optimiser step", "ylabel": label}
    if PERPLEXITY in axes:
        axes[PERPLEXITY]["yscale"] = "log"
    data = pd.concat(parts[1:] or parts)
    panels = style.line_panels(data, axes, list(runs), whole=True)
    return Figure("training-curves", "Evaluations of the training runs", panels, data, "; ".join(words), columns=3)


DEV = "dev_"
"""How the names of scores on dev sets begin in the log of a run."""


def curve(folder: Path) -> Figure | None:
    """Return loss and dev scores by step; None if the log of the run has not two points of any.

    Args:
        folder: of the run.
    """
    import pandas as pd

    from sentcli.analysis.runs import read_metrics
    from sentcli.pages import style

    try:
        drawn = {name: points for name, points in _curves(read_metrics(folder)).items() if len(points[0]) > 1}
    except InputError:  # nothing was trained by steps
        drawn = {}
    if not drawn:
        return None
    parts = [
        pd.DataFrame({"panel": name, "series": folder.name, "x": steps, "y": values})
        for name, (steps, values) in drawn.items()
    ]
    data, axes = pd.concat(parts), {name: {"xlabel": "optimiser step", "ylabel": name} for name in drawn}
    about = "; ".join(f"{name} from {values[0]:.4g} to {values[-1]:.4g}" for name, (_, values) in drawn.items())
    panels = style.line_panels(data, axes, whole=True)
    return Figure("training-curve", "Loss and dev scores", panels, data, about, size=(4.6, 2.6))


def _curves(metrics: RunMetrics) -> dict[str, tuple[list[int], list[float]]]:
    """Return steps and values of the loss and of each score on a dev set."""
    from sentcli.analysis.runs import thinned

    logged = dict.fromkeys(key for line in metrics.evaluations for key in line)
    scores = [key for key in logged if key.startswith(DEV)]
    steps, losses = metrics.column("loss", metrics.steps)
    means = thinned(tuple(steps), tuple(losses)) if steps else ((), ())
    curves = {"loss": (list(means[0]), list(means[1]))}
    return curves | {key.removeprefix(DEV).replace("_", " "): metrics.column(key) for key in scores}
