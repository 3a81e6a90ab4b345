"""Maps of the same texts by several models: figure, numbers, shared neighbours, clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sentcli.analysis.neighbourhoods import overlap
from sentcli.figures.figure import Axis, Dots, Figure, Mark, Names, Panel
from sentcli.reports.page import Cell, Column, Row, Section, Table, number, word

if TYPE_CHECKING:
    import numpy.typing as npt

    from sentcli.analysis.mapping import Cluster, Mapped

LABELS_SHOWN = 12
"""Labels at most that have colours; where there are more, clusters have them."""

AROUND = 0.08
"""Radius around a point, of the width of a map, in which the most texts of a cluster make the place of its number."""


@dataclass(frozen=True)
class Labelled:
    """What is known about the texts."""

    name: str
    """Of the column."""
    names: tuple[str, ...]
    """The labels, the most frequent first."""
    numbers: npt.NDArray[np.int64]
    """The label of each text ``[n]``."""


@dataclass(frozen=True)
class Named:
    """The map of a model, or of its whitened vectors."""

    name: str
    map: Mapped


def sections(found: Sequence[Named], texts: Sequence[str], labelled: Labelled | None, chosen: str) -> list[Section]:
    """Return figure and tables.

    Args:
        found: the maps, at least one; of the same texts.
        texts: ``[n]``.
        labelled: their labels, if there are any.
        chosen: in words, which texts were taken and how.
    """
    made = [
        Section("Maps", text=(chosen,), figure=_figure(found, texts, labelled)),
        Section("Numbers", table=_numbers(found), file="maps"),
    ]
    if len(found) > 1:
        made.append(Section("Shared neighbours", table=_shared(found), file="shared-neighbours"))
    for i, one in enumerate(found, 1):
        table = _clusters(one)
        made.append(Section(f"Clusters of {one.name}", table=table, file=f"clusters-{i}", folded=True))
    return made


def _figure(found: Sequence[Named], texts: Sequence[str], labelled: Labelled | None) -> Figure:
    shown = labelled if labelled is not None and len(labelled.names) <= LABELS_SHOWN else None
    panels = tuple(
        Panel(one.name, Axis("t-SNE 1 (no unit)"), Axis("t-SNE 2 (no unit)"), _marks(one, texts, shown), bare=True)
        for one in found
    )
    coloured = f"{labelled.name}" if shown is not None and labelled is not None else "cluster of the vectors (k-means)"
    words = "; ".join(
        f"{one.name}: of 10 nearest points, {10 * one.map.map_purity:.1f} are in the same cluster, and of 10 nearest "
        f"texts by cosine {10 * one.map.neighbour_overlap:.1f} are among the nearest points"
        for one in found
    )
    note = "Colour and marker: " + coloured
    if shown is None:
        note += ", the same in all panels where they share texts enough; words: what sets a cluster apart"
    return Figure("map", "Maps of the texts (t-SNE)", words, panels, note, height=1.25)


def _marks(one: Named, texts: Sequence[str], labelled: Labelled | None) -> tuple[Mark, ...]:
    groups = one.map.groups if labelled is None else labelled.numbers
    if labelled is None:
        names = {cluster.number: _title(cluster) for cluster in one.map.clusters}
    else:
        names = dict(enumerate(labelled.names))
    marks: list[Mark] = []
    for group, name in names.items():
        inside = np.flatnonzero(groups == group)
        x, y = one.map.layout.positions[inside].T
        marks.append(Dots(name, x, y, series=group, labels=[texts[int(i)] for i in inside]))
    if labelled is None:
        positions = one.map.layout.positions
        near = AROUND * float(np.ptp(positions, axis=0).max())
        places = np.array([_amid(positions[groups == group], near) for group in names])
        marks.append(Names("clusters", places[:, 0], places[:, 1], [str(group + 1) for group in names]))
    return tuple(marks)


def _title(cluster: Cluster) -> str:
    return " ".join([f"{cluster.number + 1}", ", ".join(cluster.words)]).strip()


def _amid(points: npt.NDArray[np.float64], near: float) -> npt.NDArray[np.float64]:
    """Return the point that has most others around it."""
    from scipy.spatial import KDTree

    chosen = KDTree(points).query_ball_point(points, near, return_length=True).argmax()
    found: npt.NDArray[np.float64] = points[chosen]
    return found


def _numbers(found: Sequence[Named]) -> Table:
    labelled = any(one.map.label_purity is not None for one in found)
    titles = ["dimensions", "map purity %", "neighbours kept %", "silhouette"]
    titles += ["label purity %", "label information"] if labelled else []
    rows = []
    for one in found:
        m = one.map
        cells = [word(one.name), number(m.dimension, "{:.0f}"), number(100 * m.map_purity, "{:.1f}")]
        cells += [number(100 * m.neighbour_overlap, "{:.1f}"), number(m.silhouette, "{:.3f}")]
        if labelled:
            purity = None if m.label_purity is None else 100 * m.label_purity
            cells += [number(purity, "{:.1f}"), number(m.label_information, "{:.3f}")]
        rows.append(Row(tuple(cells)))
    k, clusters = found[0].map.neighbours.shape[1], max(len(one.map.clusters) for one in found)
    notes = [
        f"Map purity: of the {k} nearest points on the map, those in the same cluster of the vectors. Neighbours kept: "
        f"of the {k} nearest texts by cosine, those among the {k} nearest on the map. What is not kept, the map cannot "
        "show.",
        f"Silhouette: of the {clusters} clusters by cosine distance; near 0 where clusters run into each other.",
    ]
    if labelled:
        notes.append(
            "Label purity: texts with the most frequent label of their cluster. Label information: adjusted mutual "
            "information of clusters and labels, 0 by chance, 1 if they are the same."
        )
    return Table(
        "Maps and clusters",
        tuple(Column(t, "number" if i else "word") for i, t in enumerate(["model", *titles])),
        tuple(rows),
        tuple(notes),
    )


def _shared(found: Sequence[Named]) -> Table:
    rows = []
    for one in found:
        cells = [
            Cell("") if other is one else number(100 * overlap(one.map.neighbours, other.map.neighbours), "{:.1f}")
            for other in found
        ]
        rows.append(Row((word(one.name), *cells)))
    n, k = found[0].map.neighbours.shape
    note = (
        f"Mean share of a text's {k} nearest texts by cosine that are the same in both, in %. "
        f"Neighbours drawn at random: {100 * k / (n - 1):.1f}."
    )
    columns = (Column("model", "word"), *(Column(one.name) for one in found))
    return Table("Neighbours that models share", columns, tuple(rows), (note,))


def _clusters(one: Named) -> Table:
    columns = (Column("cluster"), Column("texts"), Column("words", "text"), Column("nearest to its centre", "text"))
    rows = [
        Row((number(c.number + 1, "{:.0f}"), number(c.size, "{:.0f}"), word(", ".join(c.words)), word(c.example)))
        for c in one.map.clusters
    ]
    note = (
        "Words: the highest mean tf-idf in the cluster, less that of all other texts; English function words left out."
    )
    return Table(f"Clusters of {one.name}", columns, tuple(rows), (note,))
