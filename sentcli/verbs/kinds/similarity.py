"""Cosine against gold score of sentence pairs, and the pairs that a model sees otherwise than people do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

from annotated_doc import Doc
from annotated_types import Ge

from sentcli.errors import InputError
from sentcli.model.options import LoadOptions
from sentcli.pages import style
from sentcli.pages.page import Figure, Section
from sentcli.table import Table
from sentcli.verbs.declaration import Group, verb
from sentcli.verbs.kinds import shared
from sentcli.verbs.kinds.shared import Analysis

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd
    from matplotlib.axes import Axes

    from sentcli.evaluation.evaluated import EvaluatedModel
    from sentcli.evaluation.sts import Pairs
    from sentcli.verbs.outcome import Outcome

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


@verb("similarity")
def similarity(
    output: shared.Output,
    model: shared.Models = None,
    data: shared.Data = None,
    pairs: shared.PairsFile = None,
    split: shared.Split = "test",
    top: Annotated[int, Ge(1), Doc("Pairs to list, of those least and of those most agreed with.")] = 10,
    load: Annotated[LoadOptions, Group(without=shared.NOT_LOADED_SO)] = LoadOptions(),
    rerun: shared.Rerun = False,
    overwrite: shared.Overwrite = False,
) -> Analysis:
    """Cosine against gold score of sentence pairs, and the pairs that a model sees otherwise.

    Draws every pair of STS-B's test split, or of a table of yours, by gold score
    and cosine (miCSE, fig. 7), and the density of the cosines in each fifth of
    the gold scores. Lists the pairs whose ranks by cosine and by gold score
    differ most, and least. Says how far the cosines follow length, the first
    word, function words and other words.

    \b
    Examples:
      sentcli analyze similarity -m minilm -m runs/simcse --data downstream -o similarity
      sentcli analyze similarity -m runs/simcse --pairs pairs.tsv --top 30 -o own
    """  # noqa: D301
    shared.check(output, overwrite=overwrite)
    if not model:
        raise InputError("give models (-m) whose cosines are to be compared with gold scores")
    models = shared.models(model, load, rerun=rerun)
    ((name, subsets),) = shared.read_stsb(data, pairs, split).items()
    scored = GoldPairs.of(f"{name} {split}" if data else name, subsets, str(pairs or data), top)
    names = shared.short_names(model)
    cosines, reports = {}, []
    for each in models:
        cosines[names[each.name]], report = measure(each, scored)
        reports.append(report)
    gold = scored.gold
    words = f"{len(gold):,} pairs of {scored.name}, gold scores {gold.min():g} to {gold.max():g}."
    made = sections({names[report.model]: report.results for report in reports}, cosines, scored, words)
    return shared.write("similarity", output, made, [report.to_dict() for report in reports])


@dataclass(frozen=True)
class GoldPairs:
    """Sentence pairs and their gold scores."""

    name: str
    subsets: list[Pairs]
    first: Sequence[str]
    second: Sequence[str]
    gold: Values
    """``[n]``."""
    edges: Values
    """The ends of the bins of gold ``[bins + 1]``."""
    features: dict[str, Values]
    """The keys of `FEATURES`, each ``[n]``."""
    top: int
    """Pairs to list, of those least and of those most agreed with."""

    @classmethod
    def of(cls, name: str, subsets: list[Pairs], source: str, top: int) -> GoldPairs:
        """Return the pairs of all subsets.

        Raises:
            InputError: if there are too few.
        """
        import numpy as np

        from sentcli.analysis.gold import edges
        from sentcli.analysis.surface import surface

        gold = np.concatenate([subset.gold for subset in subsets])
        if len(gold) < shared.LEAST:
            raise InputError(f"{source}: {len(gold)} pairs; an analysis needs at least {shared.LEAST}")
        first, second = ([text for one in subsets for text in getattr(one, side)] for side in ("first", "second"))
        features = {"gold": gold, **surface(first, second)}
        return cls(name, subsets, first, second, gold, edges(gold), features, top)

    @property
    def bin_names(self) -> list[str]:
        """The bins in words."""
        return [f"{low:.3g} to {high:.3g}" for low, high in pairwise(self.edges)]


def measure(model: EvaluatedModel, pairs: GoldPairs) -> tuple[Values, Outcome]:
    """Return the cosines of the pairs ``[n]`` and the report of a model; the correlations are those of ``sts-eval``."""
    import numpy as np

    from sentcli.analysis import gold
    from sentcli.analysis.surface import followed
    from sentcli.evaluation import sts
    from sentcli.verbs.outcome import Outcome

    report = Outcome("analyze", model.name)
    vectors = shared.vectors_of(model, [*pairs.first, *pairs.second])
    first, second = vectors.of(pairs.first), vectors.of(pairs.second)
    mean = np.concatenate([first, second]).mean(axis=0, dtype=np.float64)
    cosines, centred = sts.cosine(first, second), sts.cosine(first - mean, second - mean)
    score = sts.SimilarityTask(pairs.name, pairs.subsets).score(None, vectors)
    differences = gold.rank_difference(cosines, pairs.gold)
    least, most = (
        [
            {
                "sentence1": pairs.first[i],
                "sentence2": pairs.second[i],
                "gold": float(pairs.gold[i]),
                "cosine": float(cosines[i]),
                "rank_difference": float(differences[i]),
            }
            for i in rows
        ]
        for rows in gold.disagreements(differences, pairs.top)
    )
    bins = gold.bins(cosines, pairs.gold, pairs.edges)
    report.results = {
        "pairs": len(cosines),
        "spearman": score.metrics["spearman"],
        "pearson": score.metrics["pearson"],
        "bins": bins.astype(object).where(bins.notna(), None).to_dict("records"),
        "follows": {"raw": followed(cosines, pairs.features), "centred": followed(centred, pairs.features)},
        "least_agreed": least,
        "most_agreed": most,
    }
    protocol = {
        "kind": "similarity",
        "pairs": pairs.name,
        "similarity": "cosine",
        "aggregation": sts.AGGREGATIONS["all"].title,
        "bins": pairs.edges.tolist(),
    }
    return cosines, shared.describe(report, model.described, protocol)


def sections(
    rows: dict[str, dict[str, Any]], cosines: dict[str, Values], pairs: GoldPairs, words: str
) -> list[Section]:
    """Return figures and tables.

    Args:
        rows: the results of each model, by its short name.
        cosines: of the pairs in each model ``[n]``.
        pairs: that all of them were given.
        words: which pairs they are.
    """
    import pandas as pd

    bins = pd.concat([pd.DataFrame(results["bins"]).assign(model=name) for name, results in rows.items()])
    bins["bin"] = pairs.bin_names * len(rows)
    bins = bins.astype({"mean": float, "deviation": float})
    made = [
        Section(
            "Correlation with gold scores", (words,), table=_correlations(rows, cosines, pairs), file="correlations"
        ),
        Section("What the cosine follows", table=_follows(rows, pairs), file="follows"),
        Section("Cosine against gold score", figure=_scatter(rows, cosines, pairs, bins)),
        Section("Densities by gold score", figure=_ridge(cosines, pairs, bins)),
        Section("Cosine by gold score", table=_binned(bins), file="bins"),
    ]
    for i, (name, results) in enumerate(rows.items(), 1):
        for kind in ("least", "most"):
            title = f"{kind.capitalize()} agreed with by {name}"
            table = _listed(title, results[f"{kind}_agreed"])
            made.append(Section(title, table=table, file=f"{kind}-agreed-{i}", folded=True))
    return made


def _correlations(rows: dict[str, dict[str, Any]], cosines: dict[str, Values], pairs: GoldPairs) -> Table:
    lines = [
        [
            name,
            results["pairs"],
            results["spearman"],
            results["pearson"],
            float(cosines[name].mean()),
            float(cosines[name].std(ddof=1)),
        ]
        for name, results in rows.items()
    ]
    columns = ("model", "pairs", "Spearman", "Pearson", "mean cosine", "sd of cosine")
    formats = dict.fromkeys(columns[-2:], ".3f")
    title = f"Cosine and gold score of {pairs.name}"
    return Table(title, columns, lines, formats=formats, notes=("Correlations times 100.",))


def _follows(rows: dict[str, dict[str, Any]], pairs: GoldPairs) -> Table:
    from sentcli.analysis.surface import followed

    lines = [
        [f"{name}{end}", *(results["follows"][key][feature] for feature in FEATURES)]
        for name, results in rows.items()
        for key, end in (("raw", ""), ("centred", ", centred"))
    ]
    own = followed(pairs.gold, pairs.features)
    lines.append([GOLD, None, *(own[feature] for feature in list(FEATURES)[1:])])
    notes = (
        "Spearman, times 100, with features of the pairs: difference in words, the same first word, Jaccard "
        "similarity of the English stop words (scikit-learn's) and of the other words.",
        "Centred: the mean of all the sentences' vectors is taken off first, which contrastive training does, too.",
    )
    return Table(f"What the cosine follows on {pairs.name}", ("values", *FEATURES.values()), lines, notes=notes)


def _scatter(
    rows: dict[str, dict[str, Any]], cosines: dict[str, Values], pairs: GoldPairs, bins: pd.DataFrame
) -> Figure:
    import pandas as pd

    texts = [f"{one} | {two}" for one, two in zip(pairs.first, pairs.second, strict=True)]
    parts = []
    for name, values in cosines.items():
        parts.append(pd.DataFrame({"panel": name, "series": "pairs", "x": pairs.gold, "y": values, "label": texts}))
        own = bins[(bins["model"] == name) & (bins["pairs"] > 0)]
        spread, middle = own["deviation"].fillna(0.0), (own["low"] + own["high"]) / 2
        line = {"x": middle, "y": own["mean"], "low": own["mean"] - spread, "high": own["mean"] + spread}
        parts.append(pd.DataFrame({"panel": name, "series": "mean and standard deviation of a bin", **line}))
    data = pd.concat(parts)
    ends = style.limits(*cosines.values())

    def draw(name: str, axes: Axes) -> None:
        own = data[data["panel"] == name]
        dots, line = own[own["series"] == "pairs"], own[own["series"] != "pairs"]
        axes.scatter(dots["x"], dots["y"], **style.dots(0, len(dots)))
        axes.fill_between(line["x"], line["low"], line["high"], color=style.colour(1), alpha=0.2, linewidth=0)
        axes.plot(line["x"], line["y"], **style.line(1))
        title = f"{name} (Spearman {rows[name]['spearman']:.1f})"
        axes.set(title=title, xlabel=GOLD, ylabel=COSINE, ylim=ends)

    about = []
    for name, results in rows.items():
        own = bins[(bins["model"] == name) & (bins["pairs"] > 0)]
        first, last = own.iloc[0], own.iloc[-1]
        rise = f"{first['mean']:.2f} at gold {first['bin']} to {last['mean']:.2f} at {last['bin']}"
        about.append(f"{name}: Spearman {results['spearman']:.2f}, mean cosine rises from {rise}")
    note = "A dot is a pair; the line is the mean of each bin of gold, the band one standard deviation"
    panels = [partial(draw, name) for name in cosines]
    groups = [f"gold {score:g}" for score in pairs.gold]
    told = [
        pd.DataFrame({"panel": number, "x": pairs.gold, "y": values, "group": groups, "text": texts})
        for number, values in enumerate(cosines.values())
    ]
    title = "Cosine against gold score"
    return Figure("similarity-scatter", title, panels, data, "; ".join(about), note, pd.concat(told))


def _ridge(cosines: dict[str, Values], pairs: GoldPairs, bins: pd.DataFrame) -> Figure:
    import numpy as np
    import pandas as pd

    from sentcli.analysis.gold import GRID, bin_numbers, density

    ends = style.limits(*cosines.values())
    at, numbers = np.linspace(max(ends[0], -1), min(ends[1], 1), GRID), bin_numbers(pairs.gold, pairs.edges)
    names, parts = pairs.bin_names, []
    for model, values in cosines.items():
        heights = [density(values[numbers == part], at) for part in range(len(names))]
        scale = RIDGE / max(max(float(height.max()) for height in heights), 1e-12)
        for part, (name, height) in enumerate(zip(names, heights, strict=True)):
            area = {"x": at, "y": scale * height, "low": float(part)}
            parts.append(pd.DataFrame({"panel": model, "series": f"gold {name}", **area}))
    data = pd.concat(parts)

    def draw(model: str, axes: Axes) -> None:
        for part, (_, area) in enumerate(data[data["panel"] == model].groupby("series", sort=False)):
            top = area["low"] + area["y"]
            axes.fill_between(area["x"], area["low"], top, color=style.colour(part), alpha=0.3, linewidth=0)
            axes.plot(area["x"], top, **style.line(part, markers=False))
        axes.set_yticks(range(len(names)), names)
        axes.yaxis.grid(visible=False)
        axes.set(title=model, xlabel=COSINE, ylabel=GOLD, xlim=ends, ylim=(-0.15, len(names) - 0.02))

    about = "; ".join(f"{model}: {_spread(bins[bins['model'] == model])}" for model in cosines)
    note = "Kernel densities of the cosines (Gaussian, Scott's bandwidth), each of the same area"
    panels = [partial(draw, model) for model in cosines]
    return Figure("similarity-density", "Densities of cosine by gold score", panels, data, about, note)


def _spread(bins: pd.DataFrame) -> str:
    """Return mean and deviation of each bin in words."""
    import pandas as pd

    return ", ".join(
        f"gold {row.bin}: {row.mean:.2f}" + (f" ± {row.deviation:.2f}" if pd.notna(row.deviation) else "")
        for row in bins[bins["pairs"] > 0].itertuples()
    )


def _binned(bins: pd.DataFrame) -> Table:
    shown = bins[["model", "bin", "pairs", "mean", "deviation"]].rename(columns={"bin": GOLD, "deviation": "sd"})
    note = "A bin holds the scores from its lower end on, below its upper end; the last one also that."
    return Table.of_frame("Cosine by gold score", shown, formats={"mean": ".3f", "sd": ".3f"}, notes=(note,))


def _listed(title: str, listed: list[dict[str, Any]]) -> Table:
    columns = ("first sentence", "second sentence", "gold", "cosine", "rank difference")
    note = (
        "Rank difference: rank of the cosine less rank of the gold score, from 0 to 1; above 0 the model holds the "
        "sentences for more alike than people do."
    )
    formats = {"cosine": ".3f", "rank difference": "+.3f"}
    rows = [list(row.values()) for row in listed]
    return Table(title, columns, rows, formats=formats, notes=(note,), wide=columns[:2])
