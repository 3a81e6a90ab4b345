"""The tables and figures of ``analyze attention``: pairs of views, layers and heads, and one sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sentcli.analysis.attention.pairs import AttentionPairs
from sentcli.analysis.attention.views import Slice
from sentcli.arrays import Float64Array
from sentcli.pages import style
from sentcli.pages.page import Figure, Section
from sentcli.table import MINUS, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CENTROIDS = "Large marks are centroids"


def sections(pairs: dict[str, AttentionPairs], description: str, *, trees: bool) -> list[Section]:
    """Return the sections of all models, under a description of the choices; with trees also on pairs of texts."""
    about = []
    table = _pairs_table(pairs)
    for name, cosine, other_cosine, information, other_information, _, auc, auc_of_information in table.rows:
        about.append(
            f"{name}: positive pairs lie around cosine {cosine:.2f} and {information:.2f} nats, negative pairs around "
            f"{other_cosine:.2f} and {other_information:.2f}; cosine tells them apart with AUC {auc:.3f}, mutual "
            f"information with {auc_of_information:.3f}"
        )
    labels = ("cosine of the sentence vectors", "attention mutual information (nats)")
    data, panels = _clouds(pairs, {"positives": "positives", "negatives": "negatives"}, 0, labels)
    figure = Figure(
        name="cosine-mi",
        title="Cosine against attention mutual information",
        panels=panels,
        data=data,
        about=about,
        note=f"{CENTROIDS}: their distance stands in the titles, in a plane where a unit is 1 of the cosine or 1 nat",
    )
    page_sections = [
        Section("Positives and negatives", (description,), table, file="pairs"),
        Section("Cosine against mutual information", figure=figure),
    ]
    if trees:
        page_sections.append(Section("Trees", table=_trees_table(pairs), file="trees-table"))
        page_sections.append(Section("Negatives by their dependency trees", figure=_trees_figure(pairs)))
    return [*page_sections, *_head_sections(pairs)]


def _trees_figure(pairs: dict[str, AttentionPairs]) -> Figure:
    about = []
    for name, model_pairs in pairs.items():
        cosine, information = model_pairs.centroid("equal") - model_pairs.centroid("unequal")
        more = "more" if information > 0 else "less"
        greater = "greater" if cosine > 0 else "smaller"
        about.append(
            f"{name}: pairs with equal trees have {more} mutual information than others by {abs(information):.2f} "
            f"nats, and a cosine that is {greater} by {abs(cosine):.2f}"
        )
    labels = (f"cosine {MINUS} the other group's mean", f"MI (nats) {MINUS} the other group's mean")
    data, panels = _clouds(pairs, {"equal": "equal trees", "unequal": "unequal trees"}, 2, labels, mirrored=True)
    return Figure(
        name="trees",
        title="Pairs of different texts, by whether their dependency trees are equal",
        panels=panels,
        data=data,
        about=about,
        note=f"{CENTROIDS}. Each group is drawn relative to the centroid of the other, so that they mirror each other",
    )


def _pairs_table(pairs: dict[str, AttentionPairs]) -> Table:
    rows = []
    for name, model_pairs in pairs.items():
        cosine, information = model_pairs.centroid("positives").tolist()
        other_cosine, other_information = model_pairs.centroid("negatives").tolist()
        rows.append(
            {
                "model": name,
                "cosine +": cosine,
                f"cosine {MINUS}": other_cosine,
                "MI +": information,
                f"MI {MINUS}": other_information,
                "centroids apart": model_pairs.distance("positives", "negatives"),
                "AUC cosine": model_pairs.auc("cosine"),
                "AUC MI": model_pairs.auc("information"),
            }
        )
    count = len(next(iter(pairs.values())).of_kind("positives"))
    notes = (
        f"Means of {count:,} positive pairs (+, two dropout views of a "
        f"text) and as many negative ones ({MINUS}, views of two texts). MI: attention mutual information in nats.",
        "Centroids apart: distance of the two means in the plane of cosine and nats. AUC: how often a positive pair "
        "has the greater value than a negative one; 0.5 is chance.",
    )
    return Table.of_rows("Positives and negatives", rows, number=".4f", notes=notes)


def _trees_table(pairs: dict[str, AttentionPairs]) -> Table:
    others = {"equal": "unequal", "unequal": "equal", "unequal_as_long": "equal"}
    rows = []
    for name, model_pairs in pairs.items():
        for kind, other in others.items():
            count = len(model_pairs.of_kind(kind))
            if count:
                centroid = model_pairs.centroid(kind)
                normalised = centroid - model_pairs.centroid(other)
                words = kind.replace("_", ", ", 1).replace("_", " ")
                rows.append([name, words, count, *centroid.tolist(), *normalised.tolist()])
    notes = (
        f"{model_pairs.sharing:,} texts share their tree with another one, in {model_pairs.equal_trees:,} pairs. "
        "Trees are equal if part of speech, head and relation of every word are.",
        "Normalised: minus the centroid of the other group. As long: pairs of texts with as many tokens, since those "
        "with equal trees have that, too, and it raises the mutual information.",
    )
    columns = ("model", "trees", "pairs", "cosine", "MI", "cosine, normalised", "MI, normalised")
    return Table("Negatives by their dependency trees", columns, rows, number=".4f", notes=notes)


def _clouds(
    pairs: dict[str, AttentionPairs],
    kinds: dict[str, str],
    first: int,
    labels: tuple[str, str],
    *,
    mirrored: bool = False,
) -> tuple[pd.DataFrame, dict[str, Callable[[Axes], None]]]:
    """Return the points of two kinds of pairs with their centroids, and for each model a panel with both clouds.

    Args:
        pairs: of each model.
        kinds: the names of the two kinds by their keys in `AttentionPairs`.
        first: number of the colour of the first kind.
        labels: of the two axes.
        mirrored: draw each kind relative to the centroid of the other.
    """
    parts = []
    for name, model_pairs in pairs.items():
        panel = f"{name}: {model_pairs.distance(*kinds):.2f} apart"
        for kind, other in permutations(kinds):
            points = model_pairs.of_kind(kind)[["cosine", "information"]]
            points = points.set_axis(["x", "y"], axis=1)
            if mirrored:
                points = points - model_pairs.centroid(other)
            centre = points.mean().to_frame().T
            parts.append(points.assign(panel=panel, series=kinds[kind]))
            parts.append(centre.assign(panel=panel, series=f"centroid, {kinds[kind]}"))
    data = pd.concat(parts)[["panel", "series", "x", "y"]]
    ends = {"xlim": style.limits(data["x"]), "ylim": style.limits(data["y"])}

    def draw(panel: str, axes: Axes) -> None:
        clouds = data[data["panel"] == panel].groupby("series", sort=False)
        for number, (series, cloud) in enumerate(clouds):
            i = first + number // 2  # the series are a kind, its centroid, the other kind and its centroid
            look = style.dots(i, len(cloud))
            if number % 2:
                look = {"color": look["color"], "marker": look["marker"], **style.CENTRE}
            axes.scatter(cloud["x"], cloud["y"], label=series, **look)
        axes.set(title=panel, xlabel=labels[0], ylabel=labels[1], **ends)

    return data, {panel: partial(draw, panel) for panel in data["panel"].unique()}


def _head_sections(pairs: dict[str, AttentionPairs]) -> list[Section]:
    """Return the sections on the layers and heads of models."""
    grids = {}
    about = []
    for name, model_pairs in pairs.items():
        grids[f"{name}: mutual information"] = ("nats", model_pairs.information)
        grids[f"{name}: rho"] = ("rho of the log weights", model_pairs.correlation)
        means = model_pairs.information.mean(axis=1)
        by_layer = ", ".join(f"{mean:.2f}" for mean in means)
        about.append(f"{name}: mutual information by layer, from the first to the last: {by_layer} nats")
    title = "Agreement of the attention of two dropout views, for each layer and head"
    page_sections = [
        Section("Layers and heads", table=_heads_table(pairs), file="heads-table"),
        Section("Two views, head by head", figure=_grids_figure("heads", title, grids, about)),
    ]
    changes = _changes(pairs)
    if changes is not None:
        page_sections.append(Section("Heads that differ from the first model's", figure=changes))
    return page_sections


def _changes(pairs: dict[str, AttentionPairs]) -> Figure | None:
    """Return how far models differ from the first one; None if no other one has as many layers and heads."""
    first, *others = pairs
    base = pairs[first].information
    grids = {}
    about = []
    for name in others:
        information = pairs[name].information
        if information.shape == base.shape:
            change = information - base
            grids[name] = (f"nats more than {first}", change)
            layer, head = np.unravel_index(np.abs(change).argmax(), change.shape)
            greatest = change[layer, head]
            place = f"layer {layer + 1}, head {head + 1} ({greatest:+.3f})"
            about.append(f"{name}: {change.mean():+.3f} nats on average, most in {place}")
    if not grids:
        return None
    title = f"Mutual information of two views in each head, minus that of {first}"
    return _grids_figure("heads-change", title, grids, about)


def _heads_table(pairs: dict[str, AttentionPairs]) -> Table:
    """Return the table of the heads in which the views agree least and most, for each model."""
    rows = []
    for name, model_pairs in pairs.items():
        information = model_pairs.information
        layers, heads = information.shape
        least_layer, least_head = divmod(int(information.argmin()), heads)
        most_layer, most_head = divmod(int(information.argmax()), heads)
        rows.append(
            {
                "model": name,
                "layers": layers,
                "heads": heads,
                "mean MI": float(information.mean()),
                "mean rho": float(model_pairs.correlation.mean()),
                "least alike head": f"layer {least_layer + 1}, head {least_head + 1}",
                "least MI": float(information.min()),
                "most alike head": f"layer {most_layer + 1}, head {most_head + 1}",
                "greatest MI": float(information.max()),
            }
        )
    note = "Of two dropout views of a text, the mean over texts; layers and heads count from 1."
    return Table.of_rows("Agreement of two views in every head", rows, number=".4f", notes=(note,))


def _grids_figure(name: str, title: str, grids: dict[str, tuple[str, Float64Array]], about: Sequence[str]) -> Figure:
    """Return a panel with a value for each layer and head.

    Args:
        name: of the figure's files.
        title: of the figure.
        grids: title of a panel to the unit of its values, and the values ``[layers, heads]``; panels with the same
            unit have the same colours.
        about: what is shown, in words.
    """
    parts = []
    for panel, (unit, values) in grids.items():
        layer, head = np.indices(values.shape).reshape(2, -1) + 1
        part = {
            "panel": panel,
            "series": unit,
            "layer": layer,
            "head": head,
            "value": values.ravel(),
            "x": head,
            "y": layer,
        }
        parts.append(pd.DataFrame(part))
    data = pd.concat(parts)
    ends = data.groupby("series")["value"].agg(["min", "max"])

    def draw(panel: str, axes: Axes) -> None:
        unit, values = grids[panel]
        low, high = ends.loc[unit]
        layers, heads = values.shape
        axes.grid(visible=False)
        head_edges = np.arange(heads + 1) + 0.5
        layer_edges = np.arange(layers + 1) + 0.5
        cells = axes.pcolormesh(head_edges, layer_edges, values, vmin=low, vmax=high, rasterized=True)
        axes.set(title=panel, xlabel="head", ylabel="layer")
        axes.set(xticks=range(1, heads + 1), yticks=range(1, layers + 1))
        axes.yaxis.set_inverted(True)
        style.colour_bar(axes, cells, unit)

    panels = {panel: partial(draw, panel) for panel in grids}
    return Figure(name, title, panels, data, about)


def histograms(name: str, slices: Sequence[Slice], file: str, sentence: dict[str, Any]) -> Figure:
    """Return the joint histograms of the log weights of two views of a sentence, a panel for each slice."""
    from matplotlib.colors import LogNorm

    logarithms: list[Float64Array] = []
    for part in slices:
        logarithms += (part.first, part.second)
    ends = np.concatenate(logarithms)
    edges = np.linspace(ends.min(), ends.max(), 25)  # 24 bins in each direction
    centres = (edges[1:] + edges[:-1]) / 2
    counts = [np.histogram2d(part.second, part.first, bins=(edges, edges))[0] for part in slices]
    most = max(2.0, float(np.max(counts)))

    def draw(part: Slice, count: Float64Array, axes: Axes) -> None:
        axes.grid(visible=False)
        drawn = np.where(count > 0, count, np.nan)
        cells = axes.pcolormesh(edges, edges, drawn, norm=LogNorm(1.0, most), rasterized=True)
        title = f"{part.place}: rho {part.correlation:.2f}, MI {part.information:.2f}"
        axes.set(title=title, xlabel="ln attention, view 1", ylabel="ln attention, view 2")
        style.colour_bar(axes, cells, "positions", log=True)

    parts = []
    panels = {}
    for part, count in zip(slices, counts, strict=True):
        parts.append(_filled_bins(part, count, centres))
        panels[part.place] = partial(draw, part, count)
    closest = max(slices, key=lambda part: part.information)
    farthest = min(slices, key=lambda part: part.information)
    about = (
        f"{name}, {len(slices)} joint histograms: the points lie closest to the diagonal in {_in_words(closest)}, "
        f"and spread most in {_in_words(farthest)}"
    )
    quoted = f"\N{LEFT DOUBLE QUOTATION MARK}{sentence['text']}\N{RIGHT DOUBLE QUOTATION MARK}"
    return Figure(
        name=file,
        title=f"{name}: attention of two dropout views of one sentence of {sentence['tokens']} tokens",
        panels=panels,
        data=pd.concat(parts),
        about=[about],
        note=f"Weights that dropout removed in either view are left out. The sentence: {quoted}",
        columns=len({part.head for part in slices}),
    )


def _filled_bins(part: Slice, count: Float64Array, centres: Float64Array) -> pd.DataFrame:
    """Return a row for each bin of a joint histogram that holds a position, at the bin's centre."""
    rows, columns = np.nonzero(count)
    bins = {
        "panel": part.place,
        "series": "positions",
        "layer": part.layer + 1,
        "head": part.head + 1,
        "x": centres[columns],
        "y": centres[rows],
        "value": count[rows, columns],
    }
    return pd.DataFrame(bins)


def _in_words(part: Slice) -> str:
    return f"{part.place} (rho {part.correlation:.2f}, {part.information:.2f} nats)"
