"""The tables, the figure and the JSON of ``analyze compare``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from sentcli.analysis.compare.neighbourhoods import NeighbourComparison
from sentcli.analysis.texts import short_text
from sentcli.pages import style
from sentcli.pages.page import Figure, Section
from sentcli.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class ComparedNeighbours:
    """The sections and results of a comparison of neighbours in two models."""

    compared: NeighbourComparison
    names: tuple[str, str]
    texts: Sequence[str]
    """``[n]``."""
    top: int
    """Texts to list, of the most and of the least changed."""

    def results(self, side: int) -> dict[str, Any]:
        """Return the JSON of model 0 or 1: the numbers that both share, and the neighbours in this one."""
        compared = self.compared
        return {
            "texts": len(self.texts),
            "overlap_by_chance": compared.by_chance,
            "overlap": compared.overlap,
            "jaccard": compared.jaccard,
            "same_nearest": compared.same_nearest,
            "histogram": compared.histogram.tolist(),
            "mean_neighbour_cosine": float(compared.cosines[side].mean()),
            "most_changed": [self._entry(row, side) for row in compared.most_changed(self.top)],
            "least_changed": [self._entry(row, side) for row in compared.least_changed(self.top)],
        }

    def _entry(self, row: int, side: int) -> dict[str, Any]:
        """Return the JSON of a text with its neighbours in model 0 or 1."""
        neighbours = []
        for other, cosine in self._near(row, side):
            neighbours.append({"text": self.texts[other], "cosine": cosine})
        return {"text": self.texts[row], "shared": int(self.compared.shared[row]), "neighbours": neighbours}

    def _near(self, row: int, side: int) -> list[tuple[int, float]]:
        """Return the numbers and cosines of the neighbours of a text in model 0 or 1."""
        neighbours = self.compared.neighbours[side][row].tolist()
        cosines = self.compared.cosines[side][row].tolist()
        return list(zip(neighbours, cosines, strict=True))

    def sections(self, note: str) -> list[Section]:
        """Return figure and tables under a note on the texts."""
        most = self.compared.most_changed(self.top)
        least = self.compared.least_changed(self.top)
        return [
            Section("Shared neighbours", (note,), self._numbers(), file="overlap"),
            Section("How many neighbours texts share", figure=self._figure()),
            Section("Most changed", table=self._listed("Most changed", most), file="most-changed"),
            *map(self._neighbours, most),
            Section("Least changed", table=self._listed("Least changed", least), file="least-changed"),
        ]

    def _numbers(self) -> Table:
        compared = self.compared
        note = (
            f"Overlap: mean share of a text's {compared.k} nearest texts by cosine that are the same in both models; "
            f"{100 * compared.by_chance:.1f} % if they were drawn at random. Jaccard: the same, of all that it has in "
            "either."
        )
        shares = compared.histogram / len(self.texts)
        row = {
            "models": " and ".join(self.names),
            "texts": len(self.texts),
            "neighbours": compared.k,
            "overlap %": 100 * compared.overlap,
            "Jaccard %": 100 * compared.jaccard,
            "same nearest %": 100 * compared.same_nearest,
            "none shared %": 100 * float(shares[0]),
            "all shared %": 100 * float(shares[-1]),
        }
        return Table.of_rows("Neighbours that both models find", [row], number=".1f", notes=(note,))

    def _figure(self) -> Figure:
        compared = self.compared
        k = compared.k
        counts = "Texts by shared neighbours"
        cosines = "Mean cosine of the neighbours"
        shares = 100 * compared.histogram / len(self.texts)
        line = pd.DataFrame({"panel": counts, "series": "texts", "x": range(k + 1), "y": shares})
        first, second = [of_model.mean(axis=1) for of_model in compared.cosines]
        dots = pd.DataFrame(
            {
                "panel": cosines,
                "series": "texts",
                "x": first,
                "y": second,
                "value": compared.shared,
                "label": self.texts,
                "group": [f"{count} of {k} shared" for count in compared.shared],
            }
        )

        def draw_counts(axes: Axes) -> None:
            axes.plot(line["x"], line["y"], **style.line(0))
            label = f"of {k} neighbours, those that both models find"
            axes.set(title=counts, xlabel=label, ylabel="texts (%)", ylim=(0, 1.08 * float(shares.max())))
            style.whole_numbers(axes)

        def draw_cosines(axes: Axes) -> None:
            size = 14 if len(dots) <= 500 else 7
            points = axes.scatter(dots["x"], dots["y"], c=dots["value"], vmin=0, vmax=k, s=size, linewidths=0)
            xlabel, ylabel = [f"cosine in {short_text(name, 36)}" for name in self.names]
            axes.set(title=cosines, xlabel=xlabel, ylabel=ylabel)
            style.colour_bar(axes, points, "shared neighbours")

        on_average = (
            f"{self.names[0]} and {self.names[1]} share {compared.overlap * k:.1f} of {k} neighbours on average"
        )
        extremes = f"{shares[0]:.1f} % of the texts share none, {shares[-1]:.1f} % all"
        few = compared.shared <= k // 3
        if few.any() and not few.all():
            means = []
            for mean, name in zip((first, second), self.names, strict=True):
                of_few = mean[few].mean()
                of_others = mean[~few].mean()
                means.append(f"{of_few:.2f} against {of_others:.2f} in {name}")
            extremes += (
                f". Mean cosine of the neighbours where at most {k // 3} are shared, and elsewhere: {', '.join(means)}"
            )
        return Figure(
            name="compare",
            title="Neighbours shared by two models",
            panels={counts: draw_counts, cosines: draw_cosines},
            data=pd.concat([line, dots]),
            about=[on_average, extremes],
        )

    def _listed(self, title: str, rows: Sequence[int]) -> Table:
        """Return some texts with their nearest neighbours in both models."""
        lines = []
        for row in rows:
            nearest, cosine = self._near(row, 0)[0]
            other_nearest, other_cosine = self._near(row, 1)[0]
            texts = [short_text(self.texts[number]) for number in (row, nearest, other_nearest)]
            shared = int(self.compared.shared[row])
            lines.append([*texts, shared, cosine, other_cosine])
        first, second = self.names
        wide = ["text", f"nearest in {first}", f"nearest in {second}"]
        columns = [*wide, "shared", f"cosine in {first}", f"cosine in {second}"]
        note = (
            f"Shared: of {self.compared.k} neighbours. Of texts that share as many, those come first whose neighbours "
            "are nearest in both models: mean cosine, where each rank weighs 0.8 of the one before, in standard "
            "deviations over texts."
        )
        return Table(title, columns, lines, notes=(note,), wide=wide)

    def _neighbours(self, row: int) -> Section:
        """Return both lists of neighbours of one text, side by side; those in both are marked."""
        neighbours = dict(self._near(row, 0))
        other_neighbours = dict(self._near(row, 1))
        lines = []
        for rank, pair in enumerate(zip(neighbours.items(), other_neighbours.items(), strict=True), 1):
            line: list[Any] = [rank]
            for number, cosine in pair:
                text = short_text(self.texts[number])
                if number in neighbours and number in other_neighbours:
                    text += " (in both)"
                line += [text, cosine]
            lines.append(line)
        first, second = self.names
        columns = ["rank", first, f"cosine in {first}", second, f"cosine in {second}"]
        title = f"Neighbours of: {short_text(self.texts[row], 90)}"
        return Section(title, table=Table(title, columns, lines, wide=self.names), level=3, folded=True)
