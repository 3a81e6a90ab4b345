"""The sections of ``analyze attention`` on layers, heads and one sentence: how far two dropout views agree."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from sentcli.pages import style
from sentcli.pages.page import Figure, Section
from sentcli.table import Table

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from matplotlib.axes import Axes

    from sentcli.analysis.attention.pairs import AttentionPairs
    from sentcli.analysis.attention.views import Slice

    Doubles = npt.NDArray[np.float64]


def sections(pairs: dict[str, AttentionPairs]) -> list[Section]:
    """Return the sections on the layers and heads of models."""
    import numpy as np

    nats, rho = "nats", "rho of the log weights"
    grids, about = {}, []
    for name, model_pairs in pairs.items():
        grids[f"{name}: mutual information"] = (nats, model_pairs.information)
        grids[f"{name}: rho"] = (rho, model_pairs.correlation)
        by_layer = ", ".join(f"{value:.2f}" for value in model_pairs.information.mean(axis=1))
        about.append(f"{name}: mutual information by layer, from the first to the last: {by_layer} nats")
    title = "Agreement of the attention of two dropout views, for each layer and head"
    page_sections = [
        Section("Layers and heads", table=_table(pairs), file="heads-table"),
        Section("Two views, head by head", figure=_grids_figure("heads", title, grids, about)),
    ]
    first, *others = pairs
    base = pairs[first].information
    changes, about = {}, []
    for name in others:
        if pairs[name].information.shape == base.shape:
            values = pairs[name].information - base
            changes[name] = (f"nats more than {first}", values)
            layer, head = np.unravel_index(np.abs(values).argmax(), values.shape)
            about.append(
                f"{name}: {values.mean():+.3f} nats on average, most in layer {layer + 1}, head {head + 1} "
                f"({values[layer, head]:+.3f})"
            )
    if changes:
        title = f"Mutual information of two views in each head, minus that of {first}"
        figure = _grids_figure("heads-change", title, changes, about)
        page_sections.append(Section("Heads that differ from the first model's", figure=figure))
    return page_sections


def _table(pairs: dict[str, AttentionPairs]) -> Table:
    """Return the table of the heads in which the views agree least and most, for each model."""
    rows = []
    for name, model_pairs in pairs.items():
        mi = model_pairs.information
        row = {"model": name, "layers": mi.shape[0], "heads": mi.shape[1]}
        row |= {"mean MI": float(mi.mean()), "mean rho": float(model_pairs.correlation.mean())}
        for head, value, place in (("least", "least", mi.argmin()), ("most", "greatest", mi.argmax())):
            layer, number = divmod(int(place), mi.shape[1])
            row[f"{head} alike head"] = f"layer {layer + 1}, head {number + 1}"
            row[f"{value} MI"] = float(mi[layer, number])
        rows.append(row)
    note = "Of two dropout views of a text, the mean over texts; layers and heads count from 1."
    return Table.of_rows("Agreement of two views in every head", rows, number=".4f", notes=(note,))


def _grids_figure(name: str, title: str, grids: dict[str, tuple[str, Doubles]], about: Sequence[str]) -> Figure:
    """Return a panel with a value for each layer and head.

    Args:
        name: of the figure's files.
        title: of the figure.
        grids: title of a panel to the unit of its values, and the values ``[layers, heads]``; panels with the same
            unit have the same colours.
        about: what is shown, in words.
    """
    import numpy as np
    import pandas as pd

    parts = []
    for panel, (unit, values) in grids.items():
        layer, head = np.indices(values.shape).reshape(2, -1) + 1
        columns = {"panel": panel, "series": unit, "layer": layer, "head": head, "value": values.ravel()}
        parts.append(pd.DataFrame({**columns, "x": head, "y": layer}))
    data = pd.concat(parts)
    ends = data.groupby("series")["value"].agg(["min", "max"])

    def draw(panel: str, axes: Axes) -> None:
        unit, values = grids[panel]
        low, high = ends.loc[unit]
        axes.grid(visible=False)
        edges = [np.arange(size + 1) + 0.5 for size in values.shape]
        cells = axes.pcolormesh(edges[1], edges[0], values, vmin=low, vmax=high, rasterized=True)
        ticks = [range(1, size + 1) for size in values.shape]
        axes.set(title=panel, xlabel="head", ylabel="layer", xticks=ticks[1], yticks=ticks[0])
        axes.yaxis.set_inverted(True)
        style.colour_bar(axes, cells, unit)

    return Figure(name, title, {panel: partial(draw, panel) for panel in grids}, data, "; ".join(about))


def histograms(name: str, slices: Sequence[Slice], file: str, sentence: dict[str, Any]) -> Figure:
    """Return the joint histograms of the log weights of two views of a sentence, a panel for each slice."""
    import numpy as np
    import pandas as pd
    from matplotlib.colors import LogNorm

    logarithms = np.concatenate([view for part in slices for view in (part.first, part.second)])
    edges = np.linspace(logarithms.min(), logarithms.max(), 25)  # 24 bins in each direction
    counts = [np.histogram2d(part.second, part.first, bins=(edges, edges))[0] for part in slices]
    most = max(2.0, float(np.max(counts)))
    centres = (edges[1:] + edges[:-1]) / 2
    parts = []
    for part, count in zip(slices, counts, strict=True):
        rows, columns = np.nonzero(count)
        values = {"x": centres[columns], "y": centres[rows], "value": count[rows, columns]}
        place = {"panel": part.place, "series": "positions", "layer": part.layer + 1, "head": part.head + 1}
        parts.append(pd.DataFrame({**place, **values}))

    def draw(part: Slice, count: Doubles, axes: Axes) -> None:
        axes.grid(visible=False)
        shown = np.where(count > 0, count, np.nan)
        cells = axes.pcolormesh(edges, edges, shown, norm=LogNorm(1.0, most), rasterized=True)
        title = f"{part.place}: rho {part.correlation:.2f}, MI {part.information:.2f}"
        axes.set(title=title, xlabel="ln attention, view 1", ylabel="ln attention, view 2")
        style.colour_bar(axes, cells, "positions", log=True)

    greatest, least = (
        f"{part.place} (rho {part.correlation:.2f}, {part.information:.2f} nats)"
        for part in (pick(slices, key=lambda part: part.information) for pick in (max, min))
    )
    about = (
        f"{name}, {len(slices)} joint histograms: the points lie closest to the diagonal in {greatest}, and spread "
        f"most in {least}"
    )
    title = f"{name}: attention of two dropout views of one sentence of {sentence['tokens']} tokens"
    quoted = f"\N{LEFT DOUBLE QUOTATION MARK}{sentence['text']}\N{RIGHT DOUBLE QUOTATION MARK}"
    note = f"Weights that dropout removed in either view are left out. The sentence: {quoted}"
    panels = {part.place: partial(draw, part, count) for part, count in zip(slices, counts, strict=True)}
    return Figure(file, title, panels, pd.concat(parts), about, note, columns=len({part.head for part in slices}))
