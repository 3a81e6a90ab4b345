"""Texts whose nearest neighbours differ most between two models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_doc import Doc
from annotated_types import Ge

from sentcli import console
from sentcli.errors import InputError
from sentcli.model.options import LoadOptions
from sentcli.pages import style
from sentcli.pages.page import Figure, Section
from sentcli.table import Table
from sentcli.verbs.declaration import Flag, Group, verb
from sentcli.verbs.kinds import shared
from sentcli.verbs.kinds.shared import Analysis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sentcli.analysis.compare import NeighbourComparison
    from sentcli.verbs.outcome import Outcome

LONGEST = 120
"""Characters of a text in a table."""


@verb("compare")
def compare(
    texts: Annotated[
        str,
        Doc("Texts, one a line or a row of a table; of vectors, those that they were made of."),
        Flag(metavar="FILE", show_default=False, panel=shared.INPUT),
    ],
    output: shared.Output,
    sides: Annotated[
        list[str] | None,
        Doc("Two models; or vectors of the texts: a .npy file, a directory of encode."),
        Flag(metavar="[A] [B]", show_default=False, positional=True),
    ] = None,
    model: Annotated[
        list[str] | None, Doc("The same as A and B: a model or vectors."), Flag("-m", show_default=False)
    ] = None,
    text_field: shared.TextField = "text",
    limit: shared.Limit = 50_000,
    neighbours: Annotated[int, Ge(1), Doc("Nearest texts of each text that are compared.")] = 10,
    top: Annotated[int, Ge(1), Doc("Texts to list, of the most and of the least changed.")] = 10,
    load: Annotated[LoadOptions, Group(without=shared.NOT_LOADED_SO)] = LoadOptions(),
    rerun: shared.Rerun = False,
    overwrite: shared.Overwrite = False,
) -> Analysis:
    """Texts whose nearest neighbours differ most between two models.

    Finds the nearest texts of every text by cosine in both models, counts those
    that are the same, and lists the texts that changed most with the neighbours
    of both models side by side, and those that changed least. Neighbours are
    compared, not vectors: the models may differ in their dimensions.

    \b
    Examples:
      sentcli analyze compare minilm runs/simcse --texts sentences.txt -o compare
      sentcli analyze compare old.npy new.npy --texts sentences.txt --neighbours 5 -o versions
      sentcli analyze compare minilm encoded/ --texts docs.parquet --text-field body -o compare
    """  # noqa: D301
    import numpy as np

    from sentcli.analysis.compare import compare as compare_vectors
    from sentcli.verbs.outcome import Outcome

    shared.check(output, overwrite=overwrite)
    given = [*(sides or []), *(model or [])]
    if len(given) != 2:
        raise InputError(f"compare needs two models or vectors, and {len(given)} were given: A B, or -m A -m B")
    if given[0] == given[1]:
        raise InputError(f"{given[0]} is given twice")
    models = {each.name: each for each in shared.models([x for x in given if not _is_vectors(x)], load, rerun=rerun)}
    stored = {name: shared.stored_vectors(name) for name in given if name not in models}
    lines, rows = _read(texts, text_field, limit, stored)
    vectors, reports = [], []
    for name in given:
        report = Outcome("analyze", name)
        if name in models:
            vectors.append(shared.vectors_of(models[name], lines).of(lines))
        else:
            vectors.append(np.asarray(stored[name][rows]))
        reports.append(shared.describe(report, models[name].described if name in models else {}, {}))
    with console.working(f"neighbours of {len(lines):,} texts"):
        compared = compare_vectors(vectors[0], vectors[1], neighbours)
    short = shared.short_names(given)
    words = f"{len(lines):,} distinct texts of {texts}; their {compared.k} nearest others by cosine."
    objects = [
        _object(report, compared, side, reports[1 - side].model, lines, top) for side, report in enumerate(reports)
    ]
    made = sections(compared, (short[given[0]], short[given[1]]), lines, top, words)
    return shared.write("compare", output, made, objects)


def _is_vectors(name: str) -> bool:
    """Say whether a name is that of vectors on disk, not of a model."""
    path = Path(name)
    return path.suffix == ".npy" or (path / "manifest.json").is_file()


def _read(file: str, text_field: str, limit: int, stored: dict[str, Any]) -> tuple[list[str], list[int]]:
    """Return distinct texts, and where each stands in the file, among the rows that have a text.

    Raises:
        InputError: if there are more or fewer rows than vectors, or too few texts.
    """
    from sentcli.io.readers import ReadOptions, rows
    from sentcli.io.sources import open_source

    texts: dict[str, int] = {}
    total = 0
    for row in rows(open_source(file), ReadOptions(text_field=text_field, on_null="skip")):
        if row is None:  # encode --on-null skip makes no vector of it
            continue
        if row.text.strip() and len(texts) < limit:
            texts.setdefault(row.text, total)
        elif not stored and len(texts) == limit:
            break
        total += 1
    for name, vectors in stored.items():
        if len(vectors) != total:
            raise InputError(f"{name} has {len(vectors):,} vectors, {file} has {total:,} texts: not the same texts")
    return shared.enough(list(texts), file, total), list(texts.values())


def _object(
    report: Outcome, compared: NeighbourComparison, side: int, other: str, texts: list[str], top: int
) -> dict[str, Any]:
    """Return the JSON of one of the two models: what they share, and its own neighbours."""
    neighbours, cosines = compared.neighbours[side], compared.cosines[side]

    def listed(rows: list[int]) -> list[dict[str, Any]]:
        return [
            {
                "text": texts[row],
                "shared": int(compared.shared[row]),
                "neighbours": [
                    {"text": texts[near], "cosine": float(cosine)}
                    for near, cosine in zip(neighbours[row], cosines[row], strict=True)
                ],
            }
            for row in rows
        ]

    report.protocol = {
        "kind": "compare",
        "compared_with": other,
        "similarity": "cosine",
        "neighbours": compared.k,
        **report.protocol,
    }
    report.results = {
        "texts": len(texts),
        "overlap": compared.overlap,
        "overlap_by_chance": compared.by_chance,
        "jaccard": compared.jaccard,
        "same_nearest": compared.same_nearest,
        "histogram": compared.histogram.tolist(),
        "mean_neighbour_cosine": float(cosines.mean()),
        "most_changed": listed(compared.most_changed(top)),
        "least_changed": listed(compared.least_changed(top)),
    }
    return report.to_dict()


def sections(
    compared: NeighbourComparison, names: tuple[str, str], texts: Sequence[str], top: int, words: str
) -> list[Section]:
    """Return figure and tables.

    Args:
        compared: the neighbours in both models.
        names: of the two models.
        texts: ``[n]``.
        top: texts to list, of the most and of the least changed.
        words: which texts they are.
    """
    most, least = compared.most_changed(top), compared.least_changed(top)
    changed = _listed("Most changed", compared, names, texts, most)
    return [
        Section("Shared neighbours", (words,), table=_numbers(compared, names), file="overlap"),
        Section("How many neighbours texts share", figure=_figure(compared, names, texts)),
        Section("Most changed", table=changed, file="most-changed"),
        *(_neighbours(compared, names, texts, row) for row in most),
        Section("Least changed", table=_listed("Least changed", compared, names, texts, least), file="least-changed"),
    ]


def _numbers(compared: NeighbourComparison, names: tuple[str, str]) -> Table:
    counts, n = compared.histogram, len(compared.shared)
    shares = {
        "overlap %": compared.overlap,
        "Jaccard %": compared.jaccard,
        "same nearest %": compared.same_nearest,
        "none shared %": float(counts[0]) / n,
        "all shared %": float(counts[-1]) / n,
    }
    note = (
        f"Overlap: mean share of a text's {compared.k} nearest texts by cosine that are the same in both models; "
        f"{100 * compared.by_chance:.1f} % if they were drawn at random. Jaccard: the same, of all that it has in "
        "either."
    )
    row = [" and ".join(names), n, compared.k, *(100 * share for share in shares.values())]
    columns = ["models", "texts", "neighbours", *shares]
    formats = dict.fromkeys(shares, ".1f")
    return Table("Neighbours that both models find", columns, [row], formats=formats, notes=(note,))


def _figure(compared: NeighbourComparison, names: tuple[str, str], texts: Sequence[str]) -> Figure:
    import pandas as pd

    n, k = len(compared.shared), compared.k
    shares = 100 * compared.histogram / n
    first, second = (cosines.mean(axis=1) for cosines in compared.cosines)
    titles = ("Texts by shared neighbours", "Mean cosine of the neighbours")
    line = {"panel": titles[0], "series": "texts", "x": range(k + 1), "y": shares}
    dots = {"panel": titles[1], "series": "texts", "x": first, "y": second, "value": compared.shared, "label": texts}
    data = pd.concat([pd.DataFrame(line), pd.DataFrame(dots)])

    def histogram(axes: Axes) -> None:
        axes.plot(range(k + 1), shares, **style.line(0))
        label = f"of {k} neighbours, those that both models find"
        axes.set(title=titles[0], xlabel=label, ylabel="texts (%)", ylim=(0, 1.08 * float(shares.max())))
        style.whole_numbers(axes)

    def where(axes: Axes) -> None:
        points = axes.scatter(first, second, s=14 if n <= 500 else 7, c=compared.shared, vmin=0, vmax=k, linewidths=0)
        x, y = (f"cosine in {short_text(name, 36)}" for name in names)
        axes.set(title=titles[1], xlabel=x, ylabel=y)
        style.colour_bar(axes, points, "shared neighbours")

    few = compared.shared <= k // 3
    near = ", ".join(
        f"{mean[few].mean():.2f} against {mean[~few].mean():.2f} in {name}"
        for mean, name in zip((first, second), names, strict=True)
        if few.any() and not few.all()
    )
    about = (
        f"{names[0]} and {names[1]} share {compared.overlap * k:.1f} of {k} neighbours on average; "
        f"{shares[0]:.1f} % of the texts share none, {shares[-1]:.1f} % all"
        + (f". Mean cosine of the neighbours where at most {k // 3} are shared, and elsewhere: {near}" if near else "")
    )
    told = {"panel": 1, "x": first, "y": second, "text": texts}
    points = pd.DataFrame(told).assign(group=[f"{count} of {k} shared" for count in compared.shared])
    return Figure("compare", "Neighbours shared by two models", (histogram, where), data, about, points=points)


def _listed(
    title: str, compared: NeighbourComparison, names: tuple[str, str], texts: Sequence[str], rows: Sequence[int]
) -> Table:
    lines = [
        [
            short_text(texts[row]),
            *(short_text(texts[neighbours[row, 0]]) for neighbours in compared.neighbours),
            int(compared.shared[row]),
            *(float(cosines[row, 0]) for cosines in compared.cosines),
        ]
        for row in rows
    ]
    wide = ["text", *(f"nearest in {name}" for name in names)]
    columns = [*wide, "shared", *(f"cosine in {name}" for name in names)]
    note = (
        f"Shared: of {compared.k} neighbours. Of texts that share as many, those come first whose neighbours are "
        "nearest in both models: mean cosine, where each rank weighs 0.8 of the one before, in standard deviations "
        "over texts."
    )
    return Table(title, columns, lines, notes=(note,), wide=wide)


def _neighbours(compared: NeighbourComparison, names: tuple[str, str], texts: Sequence[str], row: int) -> Section:
    """Return both lists of neighbours of one text, side by side; those in both are marked."""
    both = set(compared.neighbours[0][row].tolist()) & set(compared.neighbours[1][row].tolist())
    lines = []
    for rank in range(compared.k):
        line: list[Any] = [rank + 1]
        for neighbours, cosines in zip(compared.neighbours, compared.cosines, strict=True):
            other = int(neighbours[row, rank])
            text = short_text(texts[other]) + (" (in both)" if other in both else "")
            line += [text, float(cosines[row, rank])]
        lines.append(line)
    columns = ["rank", names[0], f"cosine in {names[0]}", names[1], f"cosine in {names[1]}"]
    title = f"Neighbours of: {short_text(texts[row], 90)}"
    return Section(title, table=Table(title, columns, lines, wide=names), level=3, folded=True)


def short_text(text: str, longest: int = LONGEST) -> str:
    """Return the beginning of a text, cut at a word where there is one."""
    text = " ".join(text.split())
    if len(text) <= longest:
        return text
    head = text[: longest - 1]
    return f"{head.rsplit(' ', 1)[0] if ' ' in head else head}\N{HORIZONTAL ELLIPSIS}"
