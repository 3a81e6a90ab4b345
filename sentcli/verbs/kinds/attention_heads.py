"""What ``analyze attention`` shows of layers, heads, and of one sentence: how far two dropout views agree."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from sentcli.pages import style
from sentcli.pages.page import Figure
from sentcli.table import Table

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from matplotlib.axes import Axes

    from sentcli.analysis.attention_pairs import AttentionPairs
    from sentcli.analysis.attention_views import Slice

    Doubles = npt.NDArray[np.float64]

BINS = 24
"""A histogram has so many bins in each direction."""


def heads_table(pairs: dict[str, AttentionPairs]) -> Table:
    """Return how alike the views are in the heads of each model."""
    rows = []
    for name, each in pairs.items():
        mi = each.information
        row = [name, *mi.shape, float(mi.mean()), float(each.correlation.mean())]
        for place in (mi.argmin(), mi.argmax()):
            layer, head = divmod(int(place), mi.shape[1])
            row += [f"layer {layer + 1}, head {head + 1}", float(mi[layer, head])]
        rows.append(row)
    columns = ("model", "layers", "heads", "mean MI", "mean rho", "least alike head", "least MI", "most alike head")
    formats = dict.fromkeys(("mean MI", "mean rho", "least MI", "greatest MI"), ".4f")
    note = "Of two dropout views of a text, the mean over texts; layers and heads count from 1."
    title = "Agreement of two views in every head"
    return Table(title, (*columns, "greatest MI"), rows, formats=formats, notes=(note,))


def _grids_figure(
    name: str, title: str, grids: dict[str, tuple[str, Doubles]], about: Sequence[str], limits: dict[str, Any]
) -> Figure:
    """Return a panel with a value for each layer and head.

    Args:
        name: of the figure's files.
        title: of the figure.
        grids: title of a panel to the unit of its values, and the values ``[layers, heads]``.
        about: what is shown, in words.
        limits: unit to the ends of its colours.
    """
    import numpy as np
    import pandas as pd

    parts = []
    for panel, (unit, values) in grids.items():
        layer, head = np.indices(values.shape).reshape(2, -1) + 1
        columns = {"panel": panel, "series": unit, "layer": layer, "head": head, "value": values.ravel()}
        parts.append(pd.DataFrame(columns))

    def draw(panel: str, axes: Axes) -> None:
        unit, values = grids[panel]
        low, high = limits[unit]
        axes.grid(visible=False)
        edges = [np.arange(size + 1) + 0.5 for size in values.shape]
        cells = axes.pcolormesh(edges[1], edges[0], values, vmin=low, vmax=high, rasterized=True)
        axes.set(title=panel, xlabel="head", ylabel="layer")
        for axis, size in ((axes.xaxis, values.shape[1]), (axes.yaxis, values.shape[0])):
            axis.set_ticks(range(1, size + 1))
        axes.yaxis.set_inverted(True)
        style.colour_bar(axes, cells, unit)

    return Figure(name, title, [partial(draw, panel) for panel in grids], pd.concat(parts), "; ".join(about))


def _span(arrays: Sequence[Doubles]) -> tuple[float, float]:
    return min(float(array.min()) for array in arrays), max(float(array.max()) for array in arrays)


def heads_figure(pairs: dict[str, AttentionPairs]) -> Figure:
    """Return mutual information and rho of each layer and head, two panels for each model."""
    units = ("nats", "rho of the log weights")
    limits = {
        units[0]: _span([each.information for each in pairs.values()]),
        units[1]: _span([each.correlation for each in pairs.values()]),
    }
    grids, about = {}, []
    for name, each in pairs.items():
        grids[f"{name}: mutual information"] = (units[0], each.information)
        grids[f"{name}: rho"] = (units[1], each.correlation)
        by_layer = ", ".join(f"{value:.2f}" for value in each.information.mean(axis=1))
        about.append(f"{name}: mutual information by layer, from the first to the last: {by_layer} nats")
    title = "Agreement of the attention of two dropout views, for each layer and head"
    return _grids_figure("heads", title, grids, about, limits)


def changes_figure(pairs: dict[str, AttentionPairs]) -> Figure | None:
    """Return the mutual information of every head minus that of the first model, of models of the same size."""
    import numpy as np

    first, *others = pairs
    base = pairs[first].information
    unit = f"nats more than {first}"
    same = [name for name in others if pairs[name].information.shape == base.shape]
    if not same:
        return None
    grids = {name: (unit, pairs[name].information - base) for name in same}
    about = []
    for name, (_, values) in grids.items():
        layer, head = np.unravel_index(np.abs(values).argmax(), values.shape)
        about.append(
            f"{name}: {values.mean():+.3f} nats on average, most in layer {layer + 1}, head {head + 1} "
            f"({values[layer, head]:+.3f})"
        )
    title = f"Mutual information of two views in each head, minus that of {first}"
    limits = {unit: _span([values for _, values in grids.values()])}
    return _grids_figure("heads-change", title, grids, about, limits)


def histograms(name: str, slices: Sequence[Slice], file: str, sentence: str, tokens: int) -> Figure:
    """Return the joint histograms of the log weights of two views of a sentence, a panel for each slice."""
    import numpy as np
    import pandas as pd
    from matplotlib.colors import LogNorm

    filled = [part for part in slices if len(part.first)]
    edges = np.linspace(*_span([np.concatenate([part.first, part.second]) for part in filled]), BINS + 1)
    counts = [np.histogram2d(part.second, part.first, bins=(edges, edges))[0] for part in slices]
    most = max(2.0, *(float(count.max()) for count in counts))
    centres = (edges[1:] + edges[:-1]) / 2
    parts = []
    for part, count in zip(slices, counts, strict=True):
        rows, columns = np.nonzero(count)
        values = {"x": centres[columns], "y": centres[rows], "value": count[rows, columns]}
        parts.append(pd.DataFrame({"panel": _place(part), "layer": part.layer + 1, "head": part.head + 1, **values}))

    def draw(part: Slice, count: Doubles, axes: Axes) -> None:
        axes.grid(visible=False)
        shown = np.where(count > 0, count, np.nan)
        cells = axes.pcolormesh(edges, edges, shown, norm=LogNorm(1.0, most), rasterized=True)
        title = f"{_place(part)}: rho {part.correlation:.2f}, MI {part.information:.2f}"
        axes.set(title=title, xlabel="ln attention, view 1", ylabel="ln attention, view 2")
        style.colour_bar(axes, cells, "positions", log=True)

    least, greatest = (pick(slices, key=lambda part: part.information) for pick in (min, max))
    about = (
        f"{name}, {len(slices)} joint histograms: the points lie closest to the diagonal in {_values(greatest)}, and "
        f"spread most in {_values(least)}"
    )
    title = f"{name}: attention of two dropout views of one sentence of {tokens} tokens"
    quoted = f"\N{LEFT DOUBLE QUOTATION MARK}{sentence}\N{RIGHT DOUBLE QUOTATION MARK}"
    note = f"Weights that dropout removed in either view are left out. The sentence: {quoted}"
    panels = [partial(draw, part, count) for part, count in zip(slices, counts, strict=True)]
    heads = len({part.head for part in slices})
    return Figure(file, title, panels, pd.concat(parts), about, note, columns=heads)


def _place(part: Slice) -> str:
    return f"layer {part.layer + 1}, head {part.head + 1}"


def _values(part: Slice) -> str:
    return f"{_place(part)} (rho {part.correlation:.2f}, {part.information:.2f} nats)"
