"""``analyze similarity``: its options, and the pairs with their gold scores and cosines."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from sentcli.analysis.folder import analysis_record, check_folder, write_folder
from sentcli.analysis.models import named_models, read_stsb, vectors_of
from sentcli.analysis.options import Data, Load, Models, Output, PairsFile, Rerun, Split
from sentcli.analysis.texts import LEAST_ITEMS
from sentcli.command.declaration import verb
from sentcli.command.result import Clock, Record, Result
from sentcli.errors import InputError
from sentcli.io.options import Overwrite
from sentcli.model.options import LoadOptions
from sentcli.pages import style
from sentcli.pages.names import short_names
from sentcli.pages.page import Figure, Section
from sentcli.table import Table

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd
    from matplotlib.axes import Axes

    from sentcli.evaluation.evaluated import EvaluatedModel
    from sentcli.evaluation.sts import Pairs

    Values = npt.NDArray[np.float64]

GOLD, COSINE, MEAN = "gold score", "cosine", "mean and standard deviation of a bin"
FEATURES = {
    "gold": "gold score",
    "length": "same length",
    "first_word": "same first word",
    "function_words": "function words in common",
    "other_words": "other words in common",
}


@verb("similarity")
def similarity(
    output: Output,
    model: Models = None,
    data: Data = None,
    pairs: PairsFile = None,
    split: Split = "test",
    top: Annotated[int, Ge(1)] = 10,
    load: Load = LoadOptions(),
    rerun: Rerun = False,
    overwrite: Overwrite = False,
) -> Result:
    """Cosine against gold score of sentence pairs, and the pairs that a model sees otherwise.

    Draws every pair of STS-B's test split, or of a table of yours, by gold score
    and cosine (miCSE, fig. 7), and the density of the cosines in each fifth of
    the gold scores. Lists the pairs whose ranks by cosine and by gold score
    differ most, and least. Says how far the cosines follow length, the first
    word, function words and other words.

    Args:
        top: Pairs to list, of those with the greatest and with the smallest disagreement.

    \b
    Examples:
      sentcli analyze similarity -m minilm -m runs/simcse --data downstream -o similarity
      sentcli analyze similarity -m runs/simcse --pairs pairs.tsv --top 30 -o own
    """  # noqa: D301
    check_folder(output, overwrite=overwrite)
    if not model:
        raise InputError("give models (-m) whose cosines are to be compared with gold scores")
    models = named_models(model, load, rerun=rerun)
    ((name, subsets),) = read_stsb(data, pairs, split).items()
    gold_pairs = GoldPairs(f"{name} {split}" if data else name, subsets, str(pairs or data), top)
    names = short_names(model).shown
    reports = [gold_pairs.measure(evaluated, names[evaluated.name]) for evaluated in models]
    return write_folder("similarity", output, gold_pairs.sections(), reports)


class GoldPairs:
    """Sentence pairs with gold scores, and the cosines that models give them.

    Args:
        name: of the pairs.
        subsets: the pairs.
        source: the file, for an error.
        top: pairs to list, of those least and of those most agreed with.

    Raises:
        InputError: if there are too few pairs.
    """

    def __init__(self, name: str, subsets: list[Pairs], source: str, top: int) -> None:
        import numpy as np

        from sentcli.analysis.similarity import gold
        from sentcli.evaluation.pair_surface import surface

        self.name, self.subsets, self.top = name, subsets, top
        self.gold = np.concatenate([subset.gold for subset in subsets])
        if len(self.gold) < LEAST_ITEMS:
            raise InputError(f"{source}: {len(self.gold)} pairs; an analysis needs at least {LEAST_ITEMS}")
        self.first = [text for subset in subsets for text in subset.first]
        self.second = [text for subset in subsets for text in subset.second]
        self.features = {"gold": self.gold, **surface(self.first, self.second)}
        self.edges = gold.edges(self.gold)
        self.bin_names = [f"{low:.3g} to {high:.3g}" for low, high in pairwise(self.edges)]
        self.cosines: dict[str, Values] = {}
        """The cosines of each model ``[n]``, by its short name."""
        self.results: dict[str, dict[str, Any]] = {}
        """The JSON of each model, by its short name."""

    def measure(self, model: EvaluatedModel, name: str) -> Record:
        """Measure a model under its short name; the correlations are those of ``sts-eval``."""
        import numpy as np

        from sentcli.analysis.similarity import gold
        from sentcli.evaluation import sts
        from sentcli.evaluation.pair_surface import followed
        from sentcli.evaluation.score_kinds import AGGREGATIONS

        clock = Clock()
        vectors = vectors_of(model, [*self.first, *self.second])
        first, second = vectors.of(self.first), vectors.of(self.second)
        mean = np.concatenate([first, second]).mean(axis=0, dtype=np.float64)
        cosines, centred = sts.cosine(first, second), sts.cosine(first - mean, second - mean)
        score = sts.SimilarityTask(self.name, self.subsets).score(None, vectors)
        bins = gold.bins(cosines, self.gold, self.edges)
        differences = gold.rank_difference(cosines, self.gold)
        columns = ("sentence1", "sentence2", "gold", "cosine", "rank_difference")
        numbers = [values.tolist() for values in (self.gold, cosines, differences)]
        pairs = list(zip(self.first, self.second, *numbers, strict=True))
        least, most = (
            [dict(zip(columns, pairs[i], strict=True)) for i in rows]
            for rows in gold.disagreements(differences, self.top)
        )
        self.cosines[name] = cosines
        self.results[name] = {
            "pairs": len(cosines),
            "spearman": score.metrics["spearman"],
            "pearson": score.metrics["pearson"],
            "bins": bins.astype(object).where(bins.notna(), None).to_dict("records"),
            "follows": {"raw": followed(cosines, self.features), "centred": followed(centred, self.features)},
            "least_agreed": least,
            "most_agreed": most,
        }
        protocol = {
            "kind": "similarity",
            "pairs": self.name,
            "similarity": "cosine",
            "aggregation": AGGREGATIONS["all"].title,
            "bins": self.edges.tolist(),
        }
        return analysis_record(model.name, protocol, self.results[name], clock, model)

    def sections(self) -> list[Section]:
        """Return figures and tables of all measured models."""
        import pandas as pd

        measured = [pd.DataFrame(results["bins"]).assign(model=name) for name, results in self.results.items()]
        bins = pd.concat(measured).assign(bin=self.bin_names * len(measured))
        bins = bins.astype({"mean": float, "deviation": float})
        frame = bins[["model", "bin", "pairs", "mean", "deviation"]].rename(columns={"bin": GOLD, "deviation": "sd"})
        note = "A bin holds the scores from its lower end on, below its upper end; the last one also that."
        binned = Table.of_frame("Cosine by gold score", frame, formats={"mean": ".3f", "sd": ".3f"}, notes=(note,))
        note = f"{len(self.gold):,} pairs of {self.name}, gold scores {self.gold.min():g} to {self.gold.max():g}."
        sections = [
            Section("Correlation with gold scores", (note,), self._correlations(), file="correlations"),
            Section("What the cosine follows", table=self._follows(), file="follows"),
            Section("Cosine against gold score", figure=self._scatter(bins)),
            Section("Densities by gold score", figure=self._ridge(bins)),
            Section("Cosine by gold score", table=binned, file="bins"),
        ]
        columns = ("first sentence", "second sentence", "gold", "cosine", "rank difference")
        formats = {"cosine": ".3f", "rank difference": "+.3f"}
        notes = (
            "Rank difference: rank of the cosine less rank of the gold score, from 0 to 1; above 0 the model holds the "
            "sentences for more alike than people do.",
        )
        for i, (name, results) in enumerate(self.results.items(), 1):
            for kind in ("least", "most"):
                title = f"{kind.capitalize()} agreed with by {name}"
                rows = [list(row.values()) for row in results[f"{kind}_agreed"]]
                table = Table(title, columns, rows, formats=formats, notes=notes, wide=columns[:2])
                sections.append(Section(title, table=table, file=f"{kind}-agreed-{i}", folded=True))
        return sections

    def _correlations(self) -> Table:
        rows = [
            {
                "model": name,
                "pairs": results["pairs"],
                "Spearman": results["spearman"],
                "Pearson": results["pearson"],
                "mean cosine": float(self.cosines[name].mean()),
                "sd of cosine": float(self.cosines[name].std(ddof=1)),
            }
            for name, results in self.results.items()
        ]
        formats = {"mean cosine": ".3f", "sd of cosine": ".3f"}
        title = f"Cosine and gold score of {self.name}"
        return Table.of_rows(title, rows, formats=formats, notes=("Correlations times 100.",))

    def _follows(self) -> Table:
        from sentcli.evaluation.pair_surface import followed

        rows = {
            f"{name}{end}": results["follows"][key]
            for name, results in self.results.items()
            for key, end in (("raw", ""), ("centred", ", centred"))
        }
        rows[GOLD] = followed(self.gold, self.features) | {"gold": None}
        notes = (
            "Spearman, times 100, with features of the pairs: difference in words, the same first word, Jaccard "
            "similarity of the English stop words (scikit-learn's) and of the other words.",
            "Centred: the mean of all the sentences' vectors is taken off first, which contrastive training does, too.",
        )
        lines = [[name, *map(values.get, FEATURES)] for name, values in rows.items()]
        return Table(f"What the cosine follows on {self.name}", ("values", *FEATURES.values()), lines, notes=notes)

    def _scatter(self, bins: pd.DataFrame) -> Figure:
        import pandas as pd

        texts = [f"{first} | {second}" for first, second in zip(self.first, self.second, strict=True)]
        groups = [f"gold {score:g}" for score in self.gold]
        dots, lines, about = [], {}, []
        for name, cosines in self.cosines.items():
            pairs = {"x": self.gold, "y": cosines, "label": texts, "group": groups}
            dots.append(pd.DataFrame({"panel": name, "series": "pairs", **pairs}))
            own = bins[(bins["model"] == name) & (bins["pairs"] > 0)]
            mean, spread = own["mean"], own["deviation"].fillna(0.0)
            line = {"x": (own["low"] + own["high"]) / 2, "y": mean, "low": mean - spread, "high": mean + spread}
            lines[name] = pd.DataFrame({"panel": name, "series": MEAN, **line})
            about.append(
                f"{name}: Spearman {self.results[name]['spearman']:.2f}, mean cosine rises from {mean.iloc[0]:.2f} at "
                f"gold {own['bin'].iloc[0]} to {mean.iloc[-1]:.2f} at {own['bin'].iloc[-1]}"
            )
        ends = style.limits(*self.cosines.values())

        def draw(name: str, axes: Axes) -> None:
            axes.scatter(self.gold, self.cosines[name], **style.dots(0, len(self.gold)))
            style.lines(axes, lines[name], ["pairs", MEAN])
            title = f"{name} (Spearman {self.results[name]['spearman']:.1f})"
            axes.set(title=title, xlabel=GOLD, ylabel=COSINE, ylim=ends)

        data = pd.concat([part for pair in zip(dots, lines.values(), strict=True) for part in pair])
        note = "A dot is a pair; the line is the mean of each bin of gold, the band one standard deviation"
        panels = {name: partial(draw, name) for name in self.cosines}
        title = "Cosine against gold score"
        return Figure("similarity-scatter", title, panels, data, "; ".join(about), note)

    def _ridge(self, bins: pd.DataFrame) -> Figure:
        import numpy as np
        import pandas as pd

        from sentcli.analysis.similarity.gold import DENSITY_POINTS, bin_numbers, density

        ends = style.limits(*self.cosines.values())
        at, numbers = np.linspace(max(ends[0], -1), min(ends[1], 1), DENSITY_POINTS), bin_numbers(self.gold, self.edges)
        parts, about = [], []
        for model, cosines in self.cosines.items():
            heights = [density(cosines[numbers == i], at) for i in range(len(self.bin_names))]
            # height of the highest density; the baselines of two densities are 1 apart
            scale = 0.9 / max(float(np.max(heights)), 1e-12)
            for i, (name, height) in enumerate(zip(self.bin_names, heights, strict=True)):
                area = {"x": at, "height": scale * height, "low": float(i)}
                parts.append(pd.DataFrame({"panel": model, "series": f"gold {name}", **area}))
            spread = ", ".join(
                f"gold {row.bin}: {row.mean:.2f}" + (f" ± {row.deviation:.2f}" if pd.notna(row.deviation) else "")
                for row in bins[(bins["model"] == model) & (bins["pairs"] > 0)].itertuples()
            )
            about.append(f"{model}: {spread}")
        data = pd.concat(parts)

        def draw(model: str, axes: Axes) -> None:
            for i, (_, area) in enumerate(data[data["panel"] == model].groupby("series", sort=False)):
                top = area["low"] + area["height"]
                axes.fill_between(area["x"], area["low"], top, color=style.colour(i), alpha=0.3, linewidth=0)
                axes.plot(area["x"], top, **style.line(i, markers=False))
            axes.set_yticks(range(len(self.bin_names)), self.bin_names)
            axes.yaxis.grid(visible=False)
            axes.set(title=model, xlabel=COSINE, ylabel=GOLD, xlim=ends, ylim=(-0.15, len(self.bin_names) - 0.02))

        note = "Kernel densities of the cosines (Gaussian, Scott's bandwidth), each of the same area"
        panels = {model: partial(draw, model) for model in self.cosines}
        title = "Densities of cosine by gold score"
        return Figure("similarity-density", title, panels, data, "; ".join(about), note)
