"""The tables and figures of ``analyze similarity``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sentcli.analysis.similarity.gold import DENSITY_POINTS, bin_numbers, density
from sentcli.analysis.similarity.pairs import COSINE, FEATURES, GOLD, GoldPairs
from sentcli.pages import style
from sentcli.pages.page import Figure, Section
from sentcli.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MEAN = "mean and standard deviation of a bin"


def sections(pairs: GoldPairs) -> list[Section]:
    """Return figures and tables of all measured models."""
    parts = []
    for name, results in pairs.results.items():
        parts.append(pd.DataFrame(results["bins"]).assign(model=name, bin=pairs.bin_names))
    bins = pd.concat(parts).astype({"mean": float, "deviation": float})
    lowest = pairs.gold.min()
    highest = pairs.gold.max()
    note = f"{len(pairs.gold):,} pairs of {pairs.name}, gold scores {lowest:g} to {highest:g}."
    frame = bins[["model", "bin", "pairs", "mean", "deviation"]].rename(columns={"bin": GOLD, "deviation": "sd"})
    of_bins = "A bin holds the scores from its lower end on, below its upper end; the last one also that."
    binned = Table.of_frame("Cosine by gold score", frame, formats={"mean": ".3f", "sd": ".3f"}, notes=(of_bins,))
    page_sections = [
        Section("Correlation with gold scores", (note,), _correlations(pairs), file="correlations"),
        Section("What the cosine follows", table=_follows(pairs), file="follows"),
        Section("Cosine against gold score", figure=_scatter(pairs, bins)),
        Section("Densities by gold score", figure=_ridge(pairs, bins)),
        Section.of(binned, file="bins"),
    ]
    for number, (name, results) in enumerate(pairs.results.items(), 1):
        for kind in ("least", "most"):
            title = f"{kind.capitalize()} agreed with by {name}"
            table = _listed(title, results[f"{kind}_agreed"])
            page_sections.append(Section(title, table=table, file=f"{kind}-agreed-{number}", folded=True))
    return page_sections


def _correlations(pairs: GoldPairs) -> Table:
    rows = []
    for name, results in pairs.results.items():
        cosines = pairs.cosines[name]
        rows.append(
            {
                "model": name,
                "pairs": results["pairs"],
                "Spearman": results["spearman"],
                "Pearson": results["pearson"],
                "mean cosine": float(cosines.mean()),
                "sd of cosine": float(cosines.std(ddof=1)),
            }
        )
    formats = {"mean cosine": ".3f", "sd of cosine": ".3f"}
    title = f"Cosine and gold score of {pairs.name}"
    return Table.of_rows(title, rows, formats=formats, notes=("Correlations times 100.",))


def _follows(pairs: GoldPairs) -> Table:
    from sentcli.evaluation.pair_surface import followed

    correlations = {}
    for name, results in pairs.results.items():
        correlations[name] = results["follows"]["raw"]
        correlations[f"{name}, centred"] = results["follows"]["centred"]
    correlations[GOLD] = {**followed(pairs.gold, pairs.features), "gold": None}
    notes = (
        "Spearman, times 100, with features of the pairs: difference in words, the same first word, Jaccard "
        "similarity of the English stop words (scikit-learn's) and of the other words.",
        "Centred: the mean of all the sentences' vectors is taken off first, which contrastive training does, too.",
    )
    rows = []
    for name, of_values in correlations.items():
        rows.append([name, *map(of_values.get, FEATURES)])
    return Table(f"What the cosine follows on {pairs.name}", ("values", *FEATURES.values()), rows, notes=notes)


def _scatter(pairs: GoldPairs, bins: pd.DataFrame) -> Figure:
    """Return a panel for each model with every pair, and the mean of each bin of gold scores.

    Args:
        pairs: the measured pairs.
        bins: a row for each model and bin, as `bins` of `gold` has them.
    """
    dots = pd.DataFrame(
        {
            "series": "pairs",
            "x": pairs.gold,
            "label": [f"{first} | {second}" for first, second in zip(pairs.first, pairs.second, strict=True)],
            "group": [f"gold {score:g}" for score in pairs.gold],
        }
    )
    parts = []
    lines = {}
    about = []
    for name, cosines in pairs.cosines.items():
        own = _filled(name, bins)
        mean = own["mean"]
        deviation = own["deviation"].fillna(0.0)
        lines[name] = pd.DataFrame(
            {
                "panel": name,
                "series": MEAN,
                "x": (own["low"] + own["high"]) / 2,
                "y": mean,
                "low": mean - deviation,
                "high": mean + deviation,
            }
        )
        parts.append(dots.assign(panel=name, y=cosines)[["panel", "series", "x", "y", "label", "group"]])
        parts.append(lines[name])
        first = own.iloc[0]
        last = own.iloc[-1]
        about.append(
            f"{name}: Spearman {pairs.results[name]['spearman']:.2f}, mean cosine rises from {first['mean']:.2f} at "
            f"gold {first['bin']} to {last['mean']:.2f} at {last['bin']}"
        )
    ends = style.limits(*pairs.cosines.values())

    def draw(name: str, axes: Axes) -> None:
        axes.scatter(pairs.gold, pairs.cosines[name], **style.dots(0, len(pairs.gold)))
        style.lines(axes, lines[name], ["pairs", MEAN])
        title = f"{name} (Spearman {pairs.results[name]['spearman']:.1f})"
        axes.set(title=title, xlabel=GOLD, ylabel=COSINE, ylim=ends)

    return Figure(
        name="similarity-scatter",
        title="Cosine against gold score",
        panels={name: partial(draw, name) for name in pairs.cosines},
        data=pd.concat(parts),
        about=about,
        note="A dot is a pair; the line is the mean of each bin of gold, the band one standard deviation",
    )


def _filled(model: str, bins: pd.DataFrame) -> pd.DataFrame:
    """Return the bins of a model that have pairs."""
    return bins[(bins["model"] == model) & (bins["pairs"] > 0)]


def _ridge(pairs: GoldPairs, bins: pd.DataFrame) -> Figure:
    """Return a panel for each model with the density of the cosines in each bin of gold scores.

    Args:
        pairs: the measured pairs.
        bins: a row for each model and bin, as `bins` of `gold` has them.
    """
    ends = style.limits(*pairs.cosines.values())
    at = np.linspace(max(ends[0], -1), min(ends[1], 1), DENSITY_POINTS)
    numbers = bin_numbers(pairs.gold, pairs.edges)
    parts = []
    about = []
    for model, cosines in pairs.cosines.items():
        heights = np.stack([density(cosines[numbers == i], at) for i in range(len(pairs.bin_names))])
        # height of the highest density; the baselines of two densities are 1 apart
        scale = 0.9 / max(float(heights.max()), 1e-12)
        for i, name in enumerate(pairs.bin_names):
            area = {
                "panel": model,
                "series": f"gold {name}",
                "x": at,
                "height": scale * heights[i],
                "low": float(i),
            }
            parts.append(pd.DataFrame(area))
        spreads = []
        for row in _filled(model, bins).itertuples():
            words = f"gold {row.bin}: {row.mean:.2f}"
            if pd.notna(row.deviation):
                words += f" ± {row.deviation:.2f}"
            spreads.append(words)
        about.append(f"{model}: {', '.join(spreads)}")
    data = pd.concat(parts)

    def draw(model: str, axes: Axes) -> None:
        areas = data[data["panel"] == model].groupby("series", sort=False)
        for i, (_, area) in enumerate(areas):
            top = area["low"] + area["height"]
            axes.fill_between(area["x"], area["low"], top, color=style.colour(i), alpha=0.3, linewidth=0)
            axes.plot(area["x"], top, **style.line(i, markers=False))
        highest = len(pairs.bin_names) - 0.02
        axes.set_yticks(range(len(pairs.bin_names)), pairs.bin_names)
        axes.yaxis.grid(visible=False)
        axes.set(title=model, xlabel=COSINE, ylabel=GOLD, xlim=ends, ylim=(-0.15, highest))

    return Figure(
        name="similarity-density",
        title="Densities of cosine by gold score",
        panels={model: partial(draw, model) for model in pairs.cosines},
        data=data,
        about=about,
        note="Kernel densities of the cosines (Gaussian, Scott's bandwidth), each of the same area",
    )


def _listed(title: str, pairs: Sequence[dict[str, Any]]) -> Table:
    """Return pairs as a table, given as in the JSON."""
    columns = ("first sentence", "second sentence", "gold", "cosine", "rank difference")
    note = (
        "Rank difference: rank of the cosine less rank of the gold score, from 0 to 1; above 0 the model holds the "
        "sentences for more alike than people do."
    )
    return Table(
        title,
        columns,
        rows=[list(pair.values()) for pair in pairs],
        formats={"cosine": ".3f", "rank difference": "+.3f"},
        notes=(note,),
        wide=columns[:2],
    )
