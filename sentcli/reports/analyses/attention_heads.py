"""Agreement of two dropout views in every layer and head, and joint histograms of one sentence (miCSE, fig. 8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sentcli.figures.figure import Axis, Figure, Grid, Panel
from sentcli.reports.page import Column, Row, Table, number, word

if TYPE_CHECKING:
    import numpy.typing as npt

    from sentcli.analysis.attention_views import Slice
    from sentcli.reports.analyses.attention import Attended

    Doubles = npt.NDArray[np.float64]

BINS = 24
"""Of the histograms, in each direction."""


def heads_table(found: Sequence[Attended]) -> Table:
    """Return how alike the views are, a row for each model."""
    columns = [Column("model", "word"), Column("layers"), Column("heads"), Column("mean MI"), Column("mean rho")]
    columns += [Column("least alike head", "word"), Column("MI"), Column("most alike head", "word"), Column("MI ")]
    rows = []
    for one in found:
        mi, rho = one.pairs.information, one.pairs.correlation
        cells = [word(one.name), *(number(size, "{:.0f}") for size in mi.shape)]
        cells += [number(float(mi.mean()), "{:.4f}"), number(float(rho.mean()), "{:.4f}")]
        for place in (mi.argmin(), mi.argmax()):
            layer, head = np.unravel_index(place, mi.shape)
            cells += [word(f"layer {layer + 1}, head {head + 1}"), number(float(mi[layer, head]), "{:.4f}")]
        rows.append(Row(tuple(cells)))
    notes = ("Of two dropout views of a text, the mean over texts; layers and heads count from 1.",)
    return Table("Agreement of two views in every head", tuple(columns), tuple(rows), notes)


def heads_figure(found: Sequence[Attended]) -> Figure:
    """Return mutual information and rho of each layer and head, two panels for each model."""
    panels, about = [], []
    kinds = (("mutual information", "nats", "information"), ("rho", "rho of the log weights", "correlation"))
    for one in found:
        for title, unit, key in kinds:
            values = getattr(one.pairs, key)
            limits = _span([getattr(other.pairs, key) for other in found])
            axes = [Axis(what, names=tuple(str(i + 1) for i in range(size))) for what, size in _sides(values)]
            panels.append(Panel(f"{one.name}: {title}", axes[1], axes[0], (Grid(title, values),), unit, limits))
        mi = one.pairs.information
        layers = ", ".join(f"{value:.2f}" for value in mi.mean(axis=1))
        about.append(f"{one.name}: mutual information by layer, from the first to the last: {layers} nats")
    title = "Agreement of the attention of two dropout views, for each layer and head"
    return Figure("heads", title, "; ".join(about), tuple(panels))


def changes(found: Sequence[Attended]) -> Figure | None:
    """Return the mutual information of every head minus that of the first model, of models of the same size."""
    first = found[0]
    changes = [
        (one, one.pairs.information - first.pairs.information)
        for one in found[1:]
        if one.pairs.information.shape == first.pairs.information.shape
    ]
    panels, about = [], []
    for one, values in changes:
        axes = [Axis(what, names=tuple(str(i + 1) for i in range(size))) for what, size in _sides(values)]
        unit, limits = f"nats more than {first.name}", _span([values for _, values in changes])
        panels.append(Panel(one.name, axes[1], axes[0], (Grid("change", values),), unit, limits))
        layer, head = np.unravel_index(np.abs(values).argmax(), values.shape)
        about.append(
            f"{one.name}: {values.mean():+.3f} nats on average, most in layer {layer + 1}, head {head + 1} "
            f"({values[layer, head]:+.3f})"
        )
    title = f"Mutual information of two views in each head, minus that of {first.name}"
    return Figure("heads-change", title, "; ".join(about), tuple(panels)) if panels else None


def _sides(values: Doubles) -> tuple[tuple[str, int], tuple[str, int]]:
    return ("layer", values.shape[0]), ("head", values.shape[1])


def _span(arrays: Sequence[Doubles]) -> tuple[float, float]:
    return min(float(array.min()) for array in arrays), max(float(array.max()) for array in arrays)


def histograms(one: Attended, name: str, sentence: str, tokens: int) -> Figure:
    """Return the joint histograms of the log weights of two views of one sentence, a panel for each slice."""
    heads = len({part.head for part in one.slices})
    filled = [part for part in one.slices if len(part.first)]
    edges = np.linspace(*_span([np.concatenate([part.first, part.second]) for part in filled]), BINS + 1)
    counts = [np.histogram2d(part.second, part.first, bins=(edges, edges))[0] for part in one.slices]
    most = max(float(count.max()) for count in counts)
    panels = []
    for part, count in zip(one.slices, counts, strict=True):
        title = f"layer {part.layer + 1}, head {part.head + 1}: rho {part.correlation:.2f}, MI {part.information:.2f}"
        grid = Grid(title, np.where(count > 0, count, np.nan), edges, edges)
        axes = (Axis("ln attention, view 1"), Axis("ln attention, view 2"))
        panels.append(Panel(title, *axes, (grid,), "positions", (1.0, max(most, 2.0)), scale_log=True))
    least, greatest = (pick(one.slices, key=lambda part: part.information) for pick in (min, max))
    about = (
        f"{one.name}, {len(one.slices)} joint histograms: the points lie closest to the diagonal in "
        f"{_called(greatest)}, and spread most in {_called(least)}"
    )
    title = f"{one.name}: attention of two dropout views of one sentence of {tokens} tokens"
    note = "Weights that dropout removed in either view are left out. The sentence: \N{LEFT DOUBLE QUOTATION MARK}"
    return Figure(name, title, about, tuple(panels), f"{note}{sentence}\N{RIGHT DOUBLE QUOTATION MARK}", heads)


def _called(part: Slice) -> str:
    where = f"layer {part.layer + 1}, head {part.head + 1}"
    return f"{where} (rho {part.correlation:.2f}, {part.information:.2f} nats)"
