"""The sections of ``analyze attention`` on pairs of views: cosine against mutual information."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

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
    about = "; ".join(
        "{}: positive pairs lie around cosine {:.2f} and {:.2f} nats, negative pairs around {:.2f} and {:.2f}; cosine "
        "tells them apart with AUC {:.3f}, mutual information with {:.3f}".format(
            name,
            *model_pairs.centroid("positives"),
            *model_pairs.centroid("negatives"),
            model_pairs.auc("cosine"),
            model_pairs.auc("information"),
        )
        for name, model_pairs in pairs.items()
    )
    note = ": their distance stands in the titles, in a plane where a unit is 1 of the cosine or 1 nat"
    labels = ("cosine of the sentence vectors", "attention mutual information (nats)")
    data, panels = _clouds(pairs, {"positives": "positives", "negatives": "negatives"}, 0, labels)
    title = "Cosine against attention mutual information"
    figure = Figure("cosine-mi", title, panels, data, about, CENTROIDS + note)
    page_sections = [
        Section("Positives and negatives", (description,), _pairs_table(pairs), file="pairs"),
        Section("Cosine against mutual information", figure=figure),
    ]
    if not trees:
        return page_sections
    differences = []
    for name, model_pairs in pairs.items():
        x, y = model_pairs.centroid("equal") - model_pairs.centroid("unequal")
        differences.append(
            f"{name}: pairs with equal trees have {'more' if y > 0 else 'less'} mutual information than others by "
            f"{abs(y):.2f} nats, and a cosine that is {'greater' if x > 0 else 'smaller'} by {abs(x):.2f}"
        )
    labels = (f"cosine {MINUS} the other group's mean", f"MI (nats) {MINUS} the other group's mean")
    note = ". Each group is drawn relative to the centroid of the other, so that they mirror each other"
    data, panels = _clouds(pairs, {"equal": "equal trees", "unequal": "unequal trees"}, 2, labels, mirrored=True)
    title = "Pairs of different texts, by whether their dependency trees are equal"
    figure = Figure("trees", title, panels, data, "; ".join(differences), CENTROIDS + note)
    return [
        *page_sections,
        Section("Trees", table=_trees_table(pairs), file="trees-table"),
        Section("Negatives by their dependency trees", figure=figure),
    ]


def _pairs_table(pairs: dict[str, AttentionPairs]) -> Table:
    rows = [
        {
            "model": name,
            "cosine +": float(model_pairs.centroid("positives")[0]),
            f"cosine {MINUS}": float(model_pairs.centroid("negatives")[0]),
            "MI +": float(model_pairs.centroid("positives")[1]),
            f"MI {MINUS}": float(model_pairs.centroid("negatives")[1]),
            "centroids apart": model_pairs.distance("positives", "negatives"),
            "AUC cosine": model_pairs.auc("cosine"),
            "AUC MI": model_pairs.auc("information"),
        }
        for name, model_pairs in pairs.items()
    ]
    notes = (
        f"Means of {len(next(iter(pairs.values())).of('positives')):,} positive pairs (+, two dropout views of a "
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
            if count := len(model_pairs.of(kind)):
                centroid = model_pairs.centroid(kind)
                values = (*centroid, *(centroid - model_pairs.centroid(other)))
                rows.append([name, kind.replace("_", ", ", 1).replace("_", " "), count, *map(float, values)])
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

    parts = []
    for name, model_pairs in pairs.items():
        panel = f"{name}: {model_pairs.distance(*kinds):.2f} apart"
        for kind, other in zip(kinds, reversed(kinds), strict=True):
            origin = model_pairs.centroid(other) if mirrored else 0.0
            points = (model_pairs.of(kind)[["cosine", "information"]] - origin).set_axis(["x", "y"], axis=1)
            centre = points.mean().to_frame().T
            parts.append(points.assign(panel=panel, series=kinds[kind]))
            parts.append(centre.assign(panel=panel, series=f"centroid, {kinds[kind]}"))
    data = pd.concat(parts)[["panel", "series", "x", "y"]]
    ends = {"xlim": style.limits(data["x"]), "ylim": style.limits(data["y"])}

    def draw(panel: str, axes: Axes) -> None:
        for number, (series, cloud) in enumerate(data[data["panel"] == panel].groupby("series", sort=False)):
            i = first + number // 2  # the series are a kind, its centroid, the other kind and its centroid
            centroid: Any = style.CENTRE | {"color": style.colour(i), "marker": style.marker(i)}
            look = centroid if number % 2 else style.dots(i, len(cloud))
            axes.scatter(cloud["x"], cloud["y"], label=series, **look)
        axes.set(title=panel, xlabel=labels[0], ylabel=labels[1], **ends)

    return data, {panel: partial(draw, panel) for panel in data["panel"].unique()}
