"""The curve of a training run as a picture for a notebook."""

from __future__ import annotations

from io import StringIO
from pathlib import Path


def curve(log: Path) -> str:
    """Return loss and first dev score by step as SVG; an empty text without two points of either.

    Args:
        log: the ``metrics.jsonl`` of a run.
    """
    from matplotlib.figure import Figure

    from sentcli.training.records import parsed

    lines = parsed(log.read_bytes(), log) if log.is_file() else []
    losses = [(line["step"], line["loss"]) for line in lines if "loss" in line]
    evaluations = [line for line in lines if "best" in line]
    key = next((name for name in (evaluations or [{}])[0] if name not in ("step", "best")), "")
    scores = [(line["step"], line[key]) for line in evaluations if key in line]
    shown = {name: points for name, points in (("loss", losses), (key, scores)) if len(points) > 1}
    if not shown:
        return ""
    figure = Figure(figsize=(4.5 * len(shown), 2.4), layout="constrained")
    for axes, (name, points) in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown.items(), strict=True):
        axes.plot(*zip(*points, strict=True), marker="o" if name == key else None)
        axes.set(xlabel="step", title=name)
    svg = StringIO()
    figure.savefig(svg, format="svg")
    return svg.getvalue()[svg.getvalue().index("<svg") :]
