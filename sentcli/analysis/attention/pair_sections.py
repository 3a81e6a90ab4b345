"""The sections of ``analyze attention`` on pairs of views: cosine against mutual information."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from sentcli.pages import style
from sentcli.pages.page import Figure, Section
from sentcli.table import MINUS, Table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from sentcli.analysis.attention.pairs import AttentionPairs

CENTROIDS = "Large marks are centroids"


def sections(pairs: dict[str, AttentionPairs], description: str, *, trees: bool) -> list[Section]:
    """Return the sections on pairs of views, under a description of the choices; with trees also on pairs of texts."""
    about = []
    for name, model_pairs in pairs.items():
        cosine, information = model_pairs.centroid("positives")
        other_cosine, other_information = model_pairs.centroid("negatives")
        about.append(
            f"{name}: positive pairs lie around cosine {cosine:.2f} and {information:.2f} nats, negative pairs around "
            f"{other_cosine:.2f} and {other_information:.2f}; cosine tells them apart with AUC "
            f"{model_pairs.auc('cosine'):.3f}, mutual information with {model_pairs.auc('information'):.3f}"
        )
    note = ": their distance stands in the titles, in a plane where a unit is 1 of the cosine or 1 nat"
    labels = ("cosine of the sentence vectors", "attention mutual information (nats)")
    data, panels = _clouds(pairs, {"positives": "positives", "negatives": "negatives"}, 0, labels)
    title = "Cosine against attention mutual information"
    figure = Figure("cosine-mi", title, panels, data, "; ".join(about), CENTROIDS + note)
    page_sections = [
        Section("Positives and negatives", (description,), _pairs_table(pairs), file="pairs"),
        Section("Cosine against mutual information", figure=figure),
    ]
    if trees:
        page_sections.append(Section("Trees", table=_trees_table(pairs), file="trees-table"))
        page_sections.append(Section("Negatives by their dependency trees", figure=_trees_figure(pairs)))
    return page_sections


def _trees_figure(pairs: dict[str, AttentionPairs]) -> Figure:
    about = []
    for name, model_pairs in pairs.items():
        cosine, information = model_pairs.centroid("equal") - model_pairs.centroid("unequal")
        about.append(
            f"{name}: pairs with equal trees have {'more' if information > 0 else 'less'} mutual information than "
            f"others by {abs(information):.2f} nats, and a cosine that is {'greater' if cosine > 0 else 'smaller'} by "
            f"{abs(cosine):.2f}"
        )
    labels = (f"cosine {MINUS} the other group's mean", f"MI (nats) {MINUS} the other group's mean")
    note = ". Each group is drawn relative to the centroid of the other, so that they mirror each other"
    data, panels = _clouds(pairs, {"equal": "equal trees", "unequal": "unequal trees"}, 2, labels, mirrored=True)
    title = "Pairs of different texts, by whether their dependency trees are equal"
    return Figure("trees", title, panels, data, "; ".join(about), CENTROIDS + note)


def _pairs_table(pairs: dict[str, AttentionPairs]) -> Table:
    rows = []
    for name, model_pairs in pairs.items():
        cosine, information = model_pairs.centroid("positives").tolist()
        other_cosine, other_information = model_pairs.centroid("negatives").tolist()
        row = {
            "model": name,
            "cosine +": cosine,
            f"cosine {MINUS}": other_cosine,
            "MI +": information,
            f"MI {MINUS}": other_information,
            "centroids apart": model_pairs.distance("positives", "negatives"),
            "AUC cosine": model_pairs.auc("cosine"),
            "AUC MI": model_pairs.auc("information"),
        }
        rows.append(row)
    count = len(next(iter(pairs.values())).of("positives"))
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
            count = len(model_pairs.of(kind))
            if count:
                centroid = model_pairs.centroid(kind)
                normalised = centroid - model_pairs.centroid(other)
                words = kind.replace("_", ", ", 1).replace("_", " ")
                rows.append([name, words, count, *centroid.tolist(), *normalised.tolist()])
    last = list(pairs.values())[-1]
    notes = (
        f"{last.sharing:,} texts share their tree with another one, in {last.equal_trees:,} pairs. Trees are equal if "
        "part of speech, head and relation of every word are.",
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
    import pandas as pd

    first_kind, second_kind = kinds
    parts = []
    for name, model_pairs in pairs.items():
        panel = f"{name}: {model_pairs.distance(first_kind, second_kind):.2f} apart"
        for kind, other in ((first_kind, second_kind), (second_kind, first_kind)):
            points = model_pairs.of(kind)[["cosine", "information"]].set_axis(["x", "y"], axis=1)
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
