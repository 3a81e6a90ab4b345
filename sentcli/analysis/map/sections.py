"""The figure and the tables of maps."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sentcli.analysis.map.maps import Maps, points_of
from sentcli.analysis.map.texts import MOST_COLOURS
from sentcli.pages import style
from sentcli.pages.figures import MANY
from sentcli.pages.page import Figure, Section
from sentcli.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_LARGE_FIGURE = (5.8, 4.9)
"""Width and height in inches of the only map of many texts."""
CLUSTER_NOTE = (
    "Colour and marker: cluster of the vectors (k-means), the same in all panels where they share texts enough; words: "
    "what sets a cluster apart"
)
"""The note of a figure of maps that are coloured by clusters."""
NEAR = 0.08
"""The radius in which the points around another one are counted, as a share of the map's width."""


def sections(maps: Maps, note: str) -> list[Section]:
    """Return figure and tables of at least one map, under a note on texts and settings."""
    page_sections = [
        Section("Maps", (note,), figure=_figure(maps)),
        Section("Numbers", table=_numbers(maps), file="maps"),
    ]
    if len(maps.maps) > 1:
        page_sections.append(Section("Shared neighbours", table=_shared(maps), file="shared-neighbours"))
    heads = {"number": "cluster", "name": "name", "example": "nearest to its centre", "size": "texts"}
    words = (
        "Name: the words that set the cluster apart, by class-based tf-idf (Grootendorst, 2022); English function "
        "words are left out."
    )
    for number, (name, map_) in enumerate(maps.maps.items(), 1):
        frame = map_.clusters[list(heads)].rename(columns=heads)
        table = Table.of_frame(f"Clusters of {name}", frame, notes=(words,), wide=("name", "nearest to its centre"))
        page_sections.append(Section.of(table, file=f"clusters-{number}", folded=True))
    return page_sections


def _figure(maps: Maps) -> Figure:
    """Return a panel for each map, coloured by labels if there are few enough of them, else by clusters."""
    labels = maps.inputs.labels
    if labels is not None and len(labels.cat.categories) > MOST_COLOURS:
        labels = None
    note = CLUSTER_NOTE if labels is None else f"Colour and marker: {labels.name}"
    dots = []
    numbers = []
    panels = {}
    about = []
    for name, map_ in maps.maps.items():
        points = points_of(map_, maps.inputs, labels).assign(panel=name)
        dots.append(points)
        places = None
        if labels is None:
            places = _places(points).assign(panel=name)
            numbers.append(places)
        panels[name] = partial(_draw, name, points, places)
        same_cluster = 10 * map_.measures["map_purity"]
        also_near = 10 * map_.measures["neighbour_overlap"]
        about.append(
            f"{name}: of 10 nearest points, {same_cluster:.1f} are in the same cluster, and of 10 "
            f"nearest texts by cosine {also_near:.1f} are among the nearest points"
        )
    columns = ["panel", "series", "x", "y", "label", "id", "text", "cluster", "cluster_name"]
    is_large = len(panels) == 1 and maps.inputs.count > MANY
    return Figure(
        name="map",
        title="Maps of the texts (t-SNE)",
        panels=panels,
        data=pd.concat([*dots, *numbers]).reindex(columns=columns).astype({"cluster": "Int64"}),
        about=about,
        note=note,
        size=_LARGE_FIGURE if is_large else (4.6, 4.375),
    )


def _places(dots: pd.DataFrame) -> pd.DataFrame:
    """Return the place of the number of each cluster: its point with the most others of the cluster around it."""
    from scipy.spatial import KDTree

    width = max(np.ptp(dots["x"]), np.ptp(dots["y"]))
    rows = []
    for group, part in dots.groupby("group"):
        points = part[["x", "y"]].to_numpy()
        counts = KDTree(points).query_ball_point(points, NEAR * width, return_length=True)
        x, y = points[counts.argmax()]
        rows.append({"series": "clusters", "x": x, "y": y, "label": str(group + 1)})
    return pd.DataFrame(rows)


def _draw(name: str, dots: pd.DataFrame, places: pd.DataFrame | None, axes: Axes) -> None:
    from matplotlib.patheffects import withStroke

    for group, part in dots.groupby("group"):
        label = style.short_label(part["series"].iloc[0])
        axes.scatter(part["x"], part["y"], label=label, **style.dots(group, len(part)))
    if places is not None:
        halo: Any = [withStroke(linewidth=2.5, foreground=style.PAPER)]
        for place in places.itertuples():
            text = axes.text(place.x, place.y, place.label, ha="center", va="center", weight="bold", zorder=4)
            text.set_path_effects(halo)
    axes.set(title=name, xlabel="t-SNE 1 (no unit)", ylabel="t-SNE 2 (no unit)", xticks=[], yticks=[])


def _numbers(maps: Maps) -> Table:
    """Return a row for each map with its measures."""
    rows = [{"model": name, **map_.measures} for name, map_ in maps.maps.items()]
    frame = pd.DataFrame(rows)
    shares = {"map_purity": "map purity %", "neighbour_overlap": "neighbours kept %", "label_purity": "label purity %"}
    for key in shares.keys() & set(frame):
        frame[key] *= 100
    if maps.inputs.positives > 1:
        frame["apart"] = frame["positives_apart"] / frame["texts_apart"]
    apart = {"positives_apart": "positives apart", "texts_apart": "texts apart", "apart": "share"}
    heads = {**shares, **apart, "dimension": "dimensions", "adjusted_mutual_information": "label information"}
    k = next(iter(maps.maps.values())).neighbours.shape[1]
    clusters = max(len(map_.clusters) for map_ in maps.maps.values())
    notes = [
        f"Map purity: of the {k} nearest points on the map, those in the same cluster of the vectors. Neighbours kept: "
        f"of the {k} nearest texts by cosine, those among the {k} nearest on the map. What is not kept, the map cannot "
        "show.",
        f"Silhouette: of the {clusters} clusters by cosine distance; near 0 where clusters run into each other.",
    ]
    if maps.inputs.labels is not None:
        notes.append(
            "Label purity: texts with the most frequent label of their cluster. Label information: adjusted mutual "
            "information of clusters and labels, 0 by chance, 1 if they are the same."
        )
    if maps.inputs.positives > 1:
        notes.append(
            "Apart: mean squared distance of unit vectors, of two positives of one text and of two different texts; "
            "share: the first by the second."
        )
    formats = dict.fromkeys(shares.values(), ".1f")
    formats |= dict.fromkeys([*apart.values(), "silhouette", "label information"], ".3f")
    return Table.of_frame("Maps and clusters", frame.rename(columns=heads), formats=formats, notes=notes)


def _shared(maps: Maps) -> Table:
    names = list(maps.maps)
    rows = []
    for name in names:
        percent: dict[str, float | None] = dict.fromkeys(names)
        for other, share in maps.shared_with(name).items():
            percent[other] = 100 * share
        rows.append([name, *percent.values()])
    n, k = maps.maps[names[0]].neighbours.shape
    note = (
        f"Mean share of a text's {k} nearest texts by cosine that are the same in both, in %. "
        f"Neighbours drawn at random: {100 * k / (n - 1):.1f}."
    )
    formats = dict.fromkeys(names, ".1f")
    return Table("Neighbours that models share", ["model", *names], rows, formats=formats, notes=(note,))
