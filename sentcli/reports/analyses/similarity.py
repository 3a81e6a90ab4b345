"""Cosine against gold score for several models: scatter, densities by bins of gold, pairs that are seen otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from sentcli.analysis.gold import GRID, Bin, bin_numbers, bins, density, disagreements, rank_difference
from sentcli.analysis.surface import followed
from sentcli.figures.figure import Area, Axis, Dots, Figure, Line, Panel
from sentcli.reports.page import Column, Row, Section, Table, number, word

if TYPE_CHECKING:
    import numpy.typing as npt

    from sentcli.evaluation.sts import TaskScore

    Values = npt.NDArray[np.float64]

GOLD, COSINE = "gold score", "cosine"
RIDGE = 0.9
"""Height of the highest density, where 1 is the distance between two."""
FEATURES = {
    "gold": "gold score",
    "length": "same length",
    "first_word": "same first word",
    "function_words": "function words in common",
    "other_words": "other words in common",
}


@dataclass(frozen=True)
class ScoredPairs:
    """Sentence pairs and their gold scores."""

    name: str
    first: tuple[str, ...]
    second: tuple[str, ...]
    gold: npt.NDArray[np.float64]
    """``[n]``."""
    edges: npt.NDArray[np.float64]
    """Of the bins of gold ``[bins + 1]``."""
    features: dict[str, npt.NDArray[np.float64]]
    """The keys of `FEATURES`, each ``[n]``."""

    @property
    def bin_names(self) -> list[str]:
        """Bins in words."""
        return [f"{low:.3g} to {high:.3g}" for low, high in pairwise(self.edges)]


@dataclass(frozen=True)
class Similar:
    """What a model says about the pairs."""

    name: str
    cosines: npt.NDArray[np.float64]
    """``[n]``."""
    score: TaskScore
    follows: dict[str, dict[str, float | None]]
    """Spearman, times 100, of the cosines and of those of centred vectors with each feature."""

    def bins(self, pairs: ScoredPairs) -> list[Bin]:
        """Return its cosines by bins of gold."""
        return bins(self.cosines, pairs.gold, pairs.edges)


def sections(found: Sequence[Similar], pairs: ScoredPairs, top: int, chosen: str) -> list[Section]:
    """Return figures and tables.

    Args:
        found: the models, at least one.
        pairs: that all of them were given.
        top: pairs to list, of those least and of those most agreed with.
        chosen: in words, which pairs.
    """
    made = [
        Section("Correlation with gold scores", text=(chosen,), table=_scores(found, pairs), file="correlations"),
        Section("What the cosine follows", table=_follows(found, pairs), file="follows"),
        Section("Cosine against gold score", figure=_scatter(found, pairs)),
        Section("Densities by gold score", figure=_ridge(found, pairs)),
        Section("Cosine by gold score", table=_binned(found, pairs), file="bins"),
    ]
    for i, one in enumerate(found, 1):
        differences = rank_difference(one.cosines, pairs.gold)
        for title, rows in zip(("Least", "Most"), disagreements(differences, top), strict=True):
            table = _listed(f"{title} agreed with by {one.name}", one, pairs, rows, differences)
            made.append(Section(table.caption, table=table, file=f"{title.lower()}-agreed-{i}", folded=True))
    return made


def _scores(found: Sequence[Similar], pairs: ScoredPairs) -> Table:
    columns = (Column("model", "word"), *map(Column, ("pairs", "Spearman", "Pearson", "mean cosine", "sd of cosine")))
    rows = tuple(
        Row(
            (
                word(one.name),
                number(one.score.pairs, "{:,.0f}"),
                number(one.score.spearman),
                number(one.score.pearson),
                number(float(one.cosines.mean()), "{:.3f}"),
                number(float(one.cosines.std(ddof=1)), "{:.3f}"),
            )
        )
        for one in found
    )
    return Table(f"Cosine and gold score of {pairs.name}", columns, rows, ("Correlations times 100.",))


def _follows(found: Sequence[Similar], pairs: ScoredPairs) -> Table:
    rows = [
        (f"{one.name}{end}", one.follows[key]) for one in found for key, end in (("raw", ""), ("centred", ", centred"))
    ]
    rows.append((GOLD, {**followed(pairs.gold, pairs.features), "gold": None}))
    return Table(
        f"What the cosine follows on {pairs.name}",
        (Column("values", "word"), *map(Column, FEATURES.values())),
        tuple(Row((word(name), *(number(values[key]) for key in FEATURES))) for name, values in rows),
        (
            "Spearman, times 100, with features of the pairs: difference in words, the same first word, Jaccard "
            "similarity of the English stop words (scikit-learn's) and of the other words.",
            "Centred: the mean of all the sentences' vectors is taken off first, which contrastive training does, too.",
        ),
    )


def _scatter(found: Sequence[Similar], pairs: ScoredPairs) -> Figure:
    names = [f"{one} | {two}" for one, two in zip(pairs.first, pairs.second, strict=True)]
    limits = _limits(found)
    panels = []
    for one in found:
        held = [(part, (part.low + part.high) / 2) for part in one.bins(pairs) if part.mean is not None]
        mean, spread = (np.array([getattr(part, key) or 0.0 for part, _ in held]) for key in ("mean", "deviation"))
        middle = [place for _, place in held]
        line = Line("mean and standard deviation of a bin", middle, mean, mean - spread, mean + spread, series=1)
        dots = Dots("pairs", pairs.gold, one.cosines, labels=names)
        title = f"{one.name} (Spearman {one.score.spearman:.1f})"
        panels.append(Panel(title, Axis(GOLD), Axis(COSINE, limits=limits), (dots, line), legend=False))
    words = "; ".join(
        f"{one.name}: Spearman {one.score.spearman:.2f}, mean cosine rises from {_ends(one, pairs)}" for one in found
    )
    note = "A dot is a pair; the line is the mean of each bin of gold, the band one standard deviation"
    return Figure("similarity-scatter", "Cosine against gold score", words, tuple(panels), note)


def _ends(one: Similar, pairs: ScoredPairs) -> str:
    held = [(name, part.mean) for name, part in zip(pairs.bin_names, one.bins(pairs), strict=True) if part.pairs]
    (first, low), (last, high) = held[0], held[-1]
    return f"{low:.2f} at gold {first} to {high:.2f} at {last}"


def _limits(found: Sequence[Similar]) -> tuple[float, float]:
    """Return one scale for all models, so that they can be compared."""
    low, high = min(one.cosines.min() for one in found), max(one.cosines.max() for one in found)
    room = 0.04 * (high - low)
    return float(low - room), float(high + room)


def _ridge(found: Sequence[Similar], pairs: ScoredPairs) -> Figure:
    limits = _limits(found)
    at, numbers = np.linspace(max(limits[0], -1), min(limits[1], 1), GRID), bin_numbers(pairs.gold, pairs.edges)
    names, panels = pairs.bin_names, []
    for one in found:
        heights = [density(one.cosines[numbers == part], at) for part in range(len(names))]
        scale = RIDGE / max(max(float(height.max()) for height in heights), 1e-12)
        areas = tuple(
            Area(f"gold {name}", at, scale * height, base=float(part))
            for part, (name, height) in enumerate(zip(names, heights, strict=True))
        )
        y = Axis(GOLD, names=tuple(names), limits=(-0.15, len(names) - 0.02))
        panels.append(Panel(one.name, Axis(COSINE, limits=limits), y, areas, legend=False))
    words = "; ".join(f"{one.name}: {_overlapping(one, pairs)}" for one in found)
    note = "Kernel densities of the cosines (Gaussian, Scott's bandwidth), each of the same area"
    return Figure("similarity-density", "Densities of cosine by gold score", words, tuple(panels), note)


def _overlapping(one: Similar, pairs: ScoredPairs) -> str:
    parts = [
        f"gold {name}: {part.mean:.2f}" + (f" ± {part.deviation:.2f}" if part.deviation is not None else "")
        for name, part in zip(pairs.bin_names, one.bins(pairs), strict=True)
        if part.mean is not None
    ]
    return ", ".join(parts)


def _binned(found: Sequence[Similar], pairs: ScoredPairs) -> Table:
    columns = (Column("model", "word"), Column("gold score", "word"), *map(Column, ("pairs", "mean", "sd")))
    rows = [
        (
            word(one.name),
            word(name),
            number(part.pairs, "{:,.0f}"),
            number(part.mean, "{:.3f}"),
            number(part.deviation, "{:.3f}"),
        )
        for one in found
        for name, part in zip(pairs.bin_names, one.bins(pairs), strict=True)
    ]
    note = "A bin holds the scores from its lower end on, below its upper end; the last one also that."
    return Table("Cosine by gold score", columns, tuple(map(Row, rows)), (note,))


def _listed(title: str, one: Similar, pairs: ScoredPairs, rows: Sequence[int], differences: Values) -> Table:
    columns = (
        Column("first sentence", "text"),
        Column("second sentence", "text"),
        *map(Column, ("gold", "cosine", "rank difference")),
    )
    made = tuple(
        Row(
            (
                word(pairs.first[i]),
                word(pairs.second[i]),
                number(float(pairs.gold[i])),
                number(float(one.cosines[i]), "{:.3f}"),
                number(float(differences[i]), "{:+.3f}"),
            )
        )
        for i in rows
    )
    note = "Rank difference: rank of the cosine less rank of the gold score, from 0 to 1; above 0 the model holds the "
    return Table(title, columns, made, (f"{note}sentences for more alike than people do.",))
