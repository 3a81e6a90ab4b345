"""``analyze compare``: its options, and the sections of its page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from sentcli import console
from sentcli.analysis.folder import analysis_record, check_folder, write_folder
from sentcli.analysis.models import check_distinct, named_models, stored_vectors, vectors_of
from sentcli.analysis.options import INPUT, Limit, Load, Output, Rerun, Seed, TextField
from sentcli.analysis.texts import read_rows, short_text
from sentcli.bounds import Holds
from sentcli.command.declaration import Flag, verb
from sentcli.command.result import Clock, Result
from sentcli.errors import InputError
from sentcli.io.options import Overwrite
from sentcli.io.sources import title_of
from sentcli.model.options import LoadOptions
from sentcli.pages import style
from sentcli.pages.names import short_names
from sentcli.pages.page import Figure, Section
from sentcli.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sentcli.analysis.compare.neighbourhoods import NeighbourComparison


@verb("compare")
def compare(
    texts: Annotated[str, Holds.TEXT_FILE, Flag(metavar="FILE", panel=INPUT)],
    output: Output,
    sides: Annotated[list[str] | None, Flag(metavar="[A] [B]", positional=True)] = None,
    model: Annotated[list[str] | None, Holds.MODEL, Flag("-m")] = None,
    text_field: TextField = "text",
    limit: Limit = 50_000,
    seed: Seed = 0,
    neighbours: Annotated[int, Ge(1)] = 10,
    top: Annotated[int, Ge(1)] = 10,
    load: Load = LoadOptions(),
    rerun: Rerun = False,
    overwrite: Overwrite = False,
) -> Result:
    """Texts whose nearest neighbours differ most between two models.

    Finds the nearest texts of every text by cosine in both models, counts those
    that are the same, and lists the texts that changed most with the neighbours
    of both models side by side, and those that changed least. Neighbours are
    compared, not vectors: the models may differ in their dimensions.

    Args:
        texts: Texts, one a line or a row of a table; of vectors, those that they were made of.
        sides: Two models; or vectors of the texts: a .npy file, a directory of encode.
        model: The same as A and B: a model or vectors.
        neighbours: Nearest texts of each text that are compared.
        top: Texts to list, of the most and of the least changed.

    \b
    Examples:
      sentcli analyze compare minilm runs/simcse --texts sentences.txt -o compare
      sentcli analyze compare old.npy new.npy --texts sentences.txt --neighbours 5 -o versions
      sentcli analyze compare minilm encoded/ --texts docs.parquet --text-field body -o compare
    """  # noqa: D301
    from sentcli.analysis.compare.neighbourhoods import compare as compare_vectors
    from sentcli.search.vector_file import holds_vectors

    check_folder(output, overwrite=overwrite)
    names = [*(sides or []), *(model or [])]
    if len(names) != 2:
        raise InputError(f"compare needs two models or vectors, and {len(names)} were given: A B, or -m A -m B")
    check_distinct(names)
    on_disk = [name for name in names if (Path(name) / "manifest.json").is_file() or holds_vectors(name)]
    model_names = [name for name in names if name not in on_disk]
    models = {evaluated.name: evaluated for evaluated in named_models(model_names, load, rerun=rerun, kept=[texts])}
    stored = {name: stored_vectors(Path(name)) for name in on_disk}
    rows = read_rows(texts, text_field, limit, seed=seed)
    for name, vectors in stored.items():
        if len(vectors) != rows.total:
            counts = f"{len(vectors):,} vectors, {title_of(texts)} has {rows.total:,} texts"
            raise InputError(f"{name} has {counts}: not the same texts")
    lines, positions = rows.texts, [row.position for row in rows.first.values()]
    clock = Clock()
    first, second = (
        stored[name][positions] if name in stored else vectors_of(models[name], lines).of(lines) for name in names
    )
    with console.working(f"neighbours of {len(lines):,} texts"):
        compared = compare_vectors(first, second, neighbours)
    short = short_names(names).shown
    comparison = ComparedNeighbours(compared, (short[names[0]], short[names[1]]), lines, top)
    records = []
    for side, name in enumerate(names):
        protocol = {
            "kind": "compare",
            "compared_with": names[1 - side],
            "similarity": "cosine",
            "neighbours": compared.k,
            **asdict(rows.sample),
        }
        records.append(analysis_record(name, protocol, comparison.results(side), clock, models.get(name)))
    note = f"{rows.sample.words} of {title_of(texts)}; their {compared.k} nearest others by cosine."
    return write_folder("compare", output, comparison.sections(note), records)


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
        compared, texts = self.compared, self.texts
        neighbours, cosines = compared.neighbours[side].tolist(), compared.cosines[side].tolist()

        def listed(rows: list[int]) -> list[dict[str, Any]]:
            near = {row: zip(neighbours[row], cosines[row], strict=True) for row in rows}
            return [
                {
                    "text": texts[row],
                    "shared": int(compared.shared[row]),
                    "neighbours": [{"text": texts[other], "cosine": cosine} for other, cosine in near[row]],
                }
                for row in rows
            ]

        return {
            "texts": len(texts),
            "overlap_by_chance": compared.by_chance,
            **{key: getattr(compared, key) for key in ("overlap", "jaccard", "same_nearest")},
            "histogram": compared.histogram.tolist(),
            "mean_neighbour_cosine": float(compared.cosines[side].mean()),
            "most_changed": listed(compared.most_changed(self.top)),
            "least_changed": listed(compared.least_changed(self.top)),
        }

    def sections(self, note: str) -> list[Section]:
        """Return figure and tables under a note on the texts."""
        most, least = self.compared.most_changed(self.top), self.compared.least_changed(self.top)
        return [
            Section("Shared neighbours", (note,), self._numbers(), file="overlap"),
            Section("How many neighbours texts share", figure=self._figure()),
            Section("Most changed", table=self._listed("Most changed", most), file="most-changed"),
            *map(self._neighbours, most),
            Section("Least changed", table=self._listed("Least changed", least), file="least-changed"),
        ]

    def _numbers(self) -> Table:
        compared, n = self.compared, len(self.texts)
        note = (
            f"Overlap: mean share of a text's {compared.k} nearest texts by cosine that are the same in both models; "
            f"{100 * compared.by_chance:.1f} % if they were drawn at random. Jaccard: the same, of all that it has in "
            "either."
        )
        row = {
            "models": " and ".join(self.names),
            "texts": n,
            "neighbours": compared.k,
            "overlap %": 100 * compared.overlap,
            "Jaccard %": 100 * compared.jaccard,
            "same nearest %": 100 * compared.same_nearest,
            "none shared %": 100 * (float(compared.histogram[0]) / n),
            "all shared %": 100 * (float(compared.histogram[-1]) / n),
        }
        return Table.of_rows("Neighbours that both models find", [row], number=".1f", notes=(note,))

    def _figure(self) -> Figure:
        import pandas as pd

        compared, k, n = self.compared, self.compared.k, len(self.texts)
        shares = 100 * compared.histogram / n
        first, second = (cosines.mean(axis=1) for cosines in compared.cosines)
        titles = ("Texts by shared neighbours", "Mean cosine of the neighbours")
        line = pd.DataFrame({"panel": titles[0], "series": "texts", "x": range(k + 1), "y": shares})
        place = {"x": first, "y": second, "value": compared.shared, "label": self.texts}
        groups = [f"{count} of {k} shared" for count in compared.shared]
        dots = pd.DataFrame({"panel": titles[1], "series": "texts", **place, "group": groups})

        def histogram(axes: Axes) -> None:
            axes.plot(line["x"], line["y"], **style.line(0))
            label = f"of {k} neighbours, those that both models find"
            axes.set(title=titles[0], xlabel=label, ylabel="texts (%)", ylim=(0, 1.08 * float(shares.max())))
            style.whole_numbers(axes)

        def where(axes: Axes) -> None:
            look: Any = {"s": 14 if n <= 500 else 7, "linewidths": 0}
            points = axes.scatter(dots["x"], dots["y"], c=dots["value"], vmin=0, vmax=k, **look)
            x, y = (f"cosine in {short_text(name, 36)}" for name in self.names)
            axes.set(title=titles[1], xlabel=x, ylabel=y)
            style.colour_bar(axes, points, "shared neighbours")

        about = (
            f"{self.names[0]} and {self.names[1]} share {compared.overlap * k:.1f} of {k} neighbours on average; "
            f"{shares[0]:.1f} % of the texts share none, {shares[-1]:.1f} % all"
        )
        few = compared.shared <= k // 3
        if few.any() and not few.all():
            near = ", ".join(
                f"{mean[few].mean():.2f} against {mean[~few].mean():.2f} in {name}"
                for mean, name in zip((first, second), self.names, strict=True)
            )
            about += f". Mean cosine of the neighbours where at most {k // 3} are shared, and elsewhere: {near}"
        panels = dict(zip(titles, (histogram, where), strict=True))
        return Figure("compare", "Neighbours shared by two models", panels, pd.concat([line, dots]), about)

    def _listed(self, title: str, rows: Sequence[int]) -> Table:
        compared = self.compared
        lines = [
            [
                *(short_text(self.texts[i]) for i in (row, *(each[row, 0] for each in compared.neighbours))),
                int(compared.shared[row]),
                *(float(cosines[row, 0]) for cosines in compared.cosines),
            ]
            for row in rows
        ]
        wide = ["text", *(f"nearest in {name}" for name in self.names)]
        columns = [*wide, "shared", *(f"cosine in {name}" for name in self.names)]
        note = (
            f"Shared: of {compared.k} neighbours. Of texts that share as many, those come first whose neighbours are "
            "nearest in both models: mean cosine, where each rank weighs 0.8 of the one before, in standard deviations "
            "over texts."
        )
        return Table(title, columns, lines, notes=(note,), wide=wide)

    def _neighbours(self, row: int) -> Section:
        """Return both lists of neighbours of one text, side by side; those in both are marked."""
        near = [numbers[row].tolist() for numbers in self.compared.neighbours]
        cosines = [numbers[row].tolist() for numbers in self.compared.cosines]
        mark = dict.fromkeys(set(near[0]) & set(near[1]), " (in both)")
        marked = [[short_text(self.texts[i]) + mark.get(i, "") for i in numbers] for numbers in near]
        lines = list(zip(range(1, self.compared.k + 1), marked[0], cosines[0], marked[1], cosines[1], strict=True))
        columns = ["rank", *(column for name in self.names for column in (name, f"cosine in {name}"))]
        title = f"Neighbours of: {short_text(self.texts[row], 90)}"
        return Section(title, table=Table(title, columns, lines, wide=self.names), level=3, folded=True)
