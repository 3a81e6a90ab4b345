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
    grids, about = {}, []
    for name, model_pairs in pairs.items():
        grids[f"{name}: mutual information"] = ("nats", model_pairs.information)
        grids[f"{name}: rho"] = ("rho of the log weights", model_pairs.correlation)
        by_layer = ", ".join(f"{value:.2f}" for value in model_pairs.information.mean(axis=1))
        about.append(f"{name}: mutual information by layer, from the first to the last: {by_layer} nats")
    title = "Agreement of the attention of two dropout views, for each layer and head"
    page_sections = [
        Section("Layers and heads", table=_table(pairs), file="heads-table"),
        Section("Two views, head by head", figure=_grids_figure("heads", title, grids, about)),
    ]
    changes = _changes(pairs)
    if changes is not None:
        page_sections.append(Section("Heads that differ from the first model's", figure=changes))
    return page_sections


def _changes(pairs: dict[str, AttentionPairs]) -> Figure | None:
    """Return how far models differ from the first one; None if no other one has as many layers and heads."""
    import numpy as np

    first, *others = pairs
    base = pairs[first].information
    grids, about = {}, []
    for name in others:
        if pairs[name].information.shape != base.shape:
            continue
        change = pairs[name].information - base
        grids[name] = (f"nats more than {first}", change)
        layer, head = np.unravel_index(np.abs(change).argmax(), change.shape)
        place = f"layer {layer + 1}, head {head + 1} ({change[layer, head]:+.3f})"
        about.append(f"{name}: {change.mean():+.3f} nats on average, most in {place}")
    if not grids:
        return None
    return _grids_figure(
        "heads-change", f"Mutual information of two views in each head, minus that of {first}", grids, about
    )


def _table(pairs: dict[str, AttentionPairs]) -> Table:
    """Return the table of the heads in which the views agree least and most, for each model."""
    rows = []
    for name, model_pairs in pairs.items():
        information = model_pairs.information
        layers, heads = information.shape
        row = {"model": name, "layers": layers, "heads": heads}
        row |= {"mean MI": float(information.mean()), "mean rho": float(model_pairs.correlation.mean())}
        places = {"least": ("least", information.argmin()), "most": ("greatest", information.argmax())}
        for alike, (value, place) in places.items():
            layer, head = divmod(int(place), heads)
            row[f"{alike} alike head"] = f"layer {layer + 1}, head {head + 1}"
            row[f"{value} MI"] = float(information[layer, head])
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
        place = {"panel": panel, "series": unit, "layer": layer, "head": head}
        parts.append(pd.DataFrame({**place, "value": values.ravel(), "x": head, "y": layer}))
    data = pd.concat(parts)
    ends = data.groupby("series")["value"].agg(["min", "max"])

    def draw(panel: str, axes: Axes) -> None:
        unit, values = grids[panel]
        low, high = ends.loc[unit]
        layers, heads = values.shape
        axes.grid(visible=False)
        edges = np.arange(heads + 1) + 0.5, np.arange(layers + 1) + 0.5
        cells = axes.pcolormesh(*edges, values, vmin=low, vmax=high, rasterized=True)
        axes.set(title=panel, xlabel="head", ylabel="layer", xticks=range(1, heads + 1), yticks=range(1, layers + 1))
        axes.yaxis.set_inverted(True)
        style.colour_bar(axes, cells, unit)

    return Figure(name, title, {panel: partial(draw, panel) for panel in grids}, data, "; ".join(about))


def histograms(name: str, slices: Sequence[Slice], file: str, sentence: dict[str, Any]) -> Figure:
    """Return the joint histograms of the log weights of two views of a sentence, a panel for each slice."""
    import numpy as np
    import pandas as pd
    from matplotlib.colors import LogNorm

    logarithms = np.concatenate([np.concatenate([part.first, part.second]) for part in slices])
    edges = np.linspace(logarithms.min(), logarithms.max(), 25)  # 24 bins in each direction
    centres = (edges[1:] + edges[:-1]) / 2
    counts = [np.histogram2d(part.second, part.first, bins=(edges, edges))[0] for part in slices]
    most = max(2.0, float(np.max(counts)))

    def draw(part: Slice, count: Doubles, axes: Axes) -> None:
        axes.grid(visible=False)
        drawn = np.where(count > 0, count, np.nan)
        cells = axes.pcolormesh(edges, edges, drawn, norm=LogNorm(1.0, most), rasterized=True)
        title = f"{part.place}: rho {part.correlation:.2f}, MI {part.information:.2f}"
        axes.set(title=title, xlabel="ln attention, view 1", ylabel="ln attention, view 2")
        style.colour_bar(axes, cells, "positions", log=True)

    parts, panels = [], {}
    for part, count in zip(slices, counts, strict=True):
        rows, columns = np.nonzero(count)
        place = {"panel": part.place, "series": "positions", "layer": part.layer + 1, "head": part.head + 1}
        values = {"x": centres[columns], "y": centres[rows], "value": count[rows, columns]}
        parts.append(pd.DataFrame({**place, **values}))
        panels[part.place] = partial(draw, part, count)
    closest = max(slices, key=lambda part: part.information)
    farthest = min(slices, key=lambda part: part.information)
    about = (
        f"{name}, {len(slices)} joint histograms: the points lie closest to the diagonal in {_in_words(closest)}, "
        f"and spread most in {_in_words(farthest)}"
    )
    title = f"{name}: attention of two dropout views of one sentence of {sentence['tokens']} tokens"
    quoted = f"\N{LEFT DOUBLE QUOTATION MARK}{sentence['text']}\N{RIGHT DOUBLE QUOTATION MARK}"
    note = f"Weights that dropout removed in either view are left out. The sentence: {quoted}"
    heads = len({part.head for part in slices})
    return Figure(file, title, panels, pd.concat(parts), about, note, columns=heads)


def _in_words(part: Slice) -> str:
    return f"{part.place} (rho {part.correlation:.2f}, {part.information:.2f} nats)"
