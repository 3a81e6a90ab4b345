"""The attention of two dropout views: of one sentence, of every head, and as a way to tell texts apart (miCSE)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sentcli.figures.figure import Axis, Dots, Figure, Panel
from sentcli.reports.analyses.attention_heads import changes, heads_figure, heads_table, histograms
from sentcli.reports.page import Column, Row, Section, Table, number, word

if TYPE_CHECKING:
    import numpy.typing as npt

    from sentcli.analysis.attention_pairs import AttentionPairs, PairGroup, Trees
    from sentcli.analysis.attention_views import Slice

    Doubles = npt.NDArray[np.float64]

CENTROIDS = "Large marks are centroids"
COSINE, NATS = "cosine of the sentence vectors", "attention mutual information (nats)"


@dataclass(frozen=True)
class Attended:
    """What was measured of one model."""

    name: str
    pairs: AttentionPairs
    slices: tuple[Slice, ...]
    """Of one sentence, head by head within a layer."""


def sections(found: Sequence[Attended], sentence: str, tokens: Sequence[int], chosen: str) -> list[Section]:
    """Return tables and figures.

    Args:
        found: of each model.
        sentence: whose attention is shown.
        tokens: of the sentence, in each model.
        chosen: in words, what was compared.
    """
    pairs = Section("Positives and negatives", text=(chosen,), table=_pairs_table(found), file="pairs")
    made = [pairs, Section("Cosine against mutual information", figure=_scatter(found))]
    if any(one.pairs.trees is not None for one in found):
        made += [
            Section("Trees", table=_trees_table(found), file="trees"),
            Section("Negatives by their dependency trees", figure=_trees_figure(found)),
        ]
    made += [
        Section("Layers and heads", table=heads_table(found), file="heads"),
        Section("Two views, head by head", figure=heads_figure(found)),
    ]
    if changed := changes(found):
        made.append(Section("Heads that differ from the first model's", figure=changed))
    for i, (one, length) in enumerate(zip(found, tokens, strict=True)):
        name = "attention-views" if len(found) == 1 else f"attention-views-{i + 1}"
        title = "One sentence" if len(found) == 1 else f"One sentence: {one.name}"
        made.append(Section(title, figure=histograms(one, name, sentence, length)))
    return made


def _pairs_table(found: Sequence[Attended]) -> Table:
    titles = ("cosine +", "cosine \N{MINUS SIGN}", "MI +", "MI \N{MINUS SIGN}", "centroids apart")
    columns = [Column("model", "word"), *(Column(title) for title in (*titles, "AUC cosine", "AUC MI"))]
    rows = []
    for one in found:
        positive, negative = one.pairs.positives.centroid, one.pairs.negatives.centroid
        values = [positive[0], negative[0], positive[1], negative[1], one.pairs.distance]
        values += [one.pairs.auc("cosine"), one.pairs.auc("information")]
        rows.append(Row((word(one.name), *(number(float(value), "{:.4f}") for value in values))))
    notes = (
        f"Means of {len(found[0].pairs.positives.cosine):,} positive pairs (+, two dropout views of a text) and as "
        "many negative ones (\N{MINUS SIGN}, views of two texts). MI: attention mutual information in nats.",
        "Centroids apart: distance of the two means in the plane of cosine and nats. AUC: how often a positive pair "
        "has the greater value than a negative one; 0.5 is chance.",
    )
    return Table("Positives and negatives", tuple(columns), tuple(rows), notes)


def _limits(*arrays: Doubles) -> tuple[float, float]:
    values = np.concatenate([np.ravel(array) for array in arrays])
    low, high = float(values.min()), float(values.max())
    margin = 0.04 * (high - low) or 0.04
    return low - margin, high + margin


def _cloud(name: str, group: PairGroup, series: int, origin: Doubles | None = None) -> tuple[Dots, Dots]:
    """Return the pairs and their centroid, relative to an origin."""
    left, low = np.zeros(2) if origin is None else origin
    x, y = group.cosine - left, group.information - low
    return Dots(name, x, y, series=series), Dots(f"centroid, {name}", [x.mean()], [y.mean()], series, large=True)


def _panel(title: str, clouds: Sequence[tuple[Dots, Dots]], axes: tuple[Axis, Axis]) -> Panel:
    marks = (*(cloud for cloud, _ in clouds), *(centre for _, centre in clouds))
    return Panel(title, *axes, marks)


def _scatter(found: Sequence[Attended]) -> Figure:
    groups = [group for one in found for group in (one.pairs.positives, one.pairs.negatives)]
    axes = (
        Axis(COSINE, limits=_limits(*(group.cosine for group in groups))),
        Axis(NATS, limits=_limits(*(group.information for group in groups))),
    )
    panels, about = [], []
    for one in found:
        pairs = one.pairs
        clouds = [_cloud("positives", pairs.positives, 0), _cloud("negatives", pairs.negatives, 1)]
        panels.append(_panel(f"{one.name}: {pairs.distance:.2f} apart", clouds, axes))
        (x, y), (u, v) = pairs.positives.centroid, pairs.negatives.centroid
        about.append(
            f"{one.name}: positive pairs lie around cosine {x:.2f} and {y:.2f} nats, negative pairs around {u:.2f} "
            f"and {v:.2f}; cosine tells them apart with AUC {pairs.auc('cosine'):.3f}, mutual information with "
            f"{pairs.auc('information'):.3f}"
        )
    note = f"{CENTROIDS}: their distance stands in the titles, in a plane where a unit is 1 of the cosine or 1 nat"
    return Figure("cosine-mi", "Cosine against attention mutual information", "; ".join(about), tuple(panels), note)


def _trees_table(found: Sequence[Attended]) -> Table:
    columns = [Column("model", "word"), Column("trees", "word"), Column("pairs"), Column("cosine"), Column("MI")]
    columns += [Column("cosine, normalised"), Column("MI, normalised")]
    rows, notes = [], []
    for one in found:
        trees = one.pairs.trees
        assert trees is not None
        groups = [("equal", trees.equal, trees.unequal), ("unequal", trees.unequal, trees.equal)]
        groups += [("unequal, as long", trees.as_long, trees.equal)] if trees.as_long is not None else []
        for name, group, other in groups:
            values = (*group.centroid, *(group.centroid - other.centroid))
            numbers = [number(float(value), "{:.4f}") for value in values]
            rows.append(Row((word(one.name), word(name), number(len(group.cosine), "{:,.0f}"), *numbers)))
        notes = [
            f"{trees.texts:,} texts share their tree with another one, in {trees.pairs:,} pairs. Trees are equal if "
            "part of speech, head and relation of every word are.",
            "Normalised: minus the centroid of the other group. As long: pairs of texts with as many tokens, since "
            "those with equal trees have that, too, and it raises the mutual information.",
        ]
    return Table("Negatives by their dependency trees", tuple(columns), tuple(rows), tuple(notes))


def _trees_figure(found: Sequence[Attended]) -> Figure:
    split = [(one, one.pairs.trees) for one in found if one.pairs.trees is not None]
    made = [_tree_clouds(trees) for _, trees in split]
    dots = [cloud for clouds in made for cloud, _ in clouds]
    axes = (
        Axis("cosine \N{MINUS SIGN} the other group's mean", limits=_limits(*(np.asarray(one.x) for one in dots))),
        Axis("MI (nats) \N{MINUS SIGN} the other group's mean", limits=_limits(*(np.asarray(one.y) for one in dots))),
    )
    panels, about = [], []
    for (one, trees), clouds in zip(split, made, strict=True):
        x, y = trees.offset
        panels.append(_panel(f"{one.name}: {np.hypot(x, y):.2f} apart", clouds, axes))
        about.append(
            f"{one.name}: pairs with equal trees have {'more' if y > 0 else 'less'} mutual information than others by "
            f"{abs(y):.2f} nats, and a cosine that is {'greater' if x > 0 else 'smaller'} by {abs(x):.2f}"
        )
    note = f"{CENTROIDS}. Each group is drawn relative to the centroid of the other, so that they mirror each other"
    title = "Pairs of different texts, by whether their dependency trees are equal"
    return Figure("trees", title, "; ".join(about), tuple(panels), note)


def _tree_clouds(trees: Trees) -> list[tuple[Dots, Dots]]:
    return [
        _cloud("equal trees", trees.equal, 2, trees.unequal.centroid),
        _cloud("unequal trees", trees.unequal, 3, trees.equal.centroid),
    ]
