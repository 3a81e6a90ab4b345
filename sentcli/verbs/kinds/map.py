"""Maps of the same texts by several models: positions, clusters, shared neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from sentcli import console
from sentcli.errors import DataError, InputError
from sentcli.model.options import LoadOptions
from sentcli.pages import style
from sentcli.pages.page import Figure, Section
from sentcli.table import Table
from sentcli.verbs.declaration import Flag, verb
from sentcli.verbs.kinds import shared
from sentcli.verbs.outcome import Outcome

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from sentcli.analysis.maps import Map, MapSettings, Whitening
    from sentcli.evaluation.evaluated import EvaluatedModel

LABELS_SHOWN = 12
"""Labels at most that have colours; where there are more, clusters have them."""
AROUND = 0.08
"""Radius around a point, of the width of a map, in which the most texts of a cluster make the place of its number."""


@verb("map")
def map_(
    texts: Annotated[str, Flag(metavar="TEXTS", positional=True)],
    output: shared.Output,
    model: shared.Models = None,
    text_field: shared.TextField = "text",
    label_field: Annotated[str | None, Flag(metavar="COLUMN", panel=shared.INPUT)] = None,
    limit: shared.Limit = 2000,
    clusters: Annotated[int, Ge(2)] = 10,
    perplexity: Annotated[float, Ge(1)] = 30,
    neighbours: Annotated[int, Ge(1)] = 10,
    whiten: Annotated[str | None, Flag(metavar="zca|groups:N")] = None,
    seed: int = 42,
    load: shared.Load = LoadOptions(),
    rerun: shared.Rerun = False,
    overwrite: shared.Overwrite = False,
) -> shared.Analysis:
    """Texts on a plane, with their clusters: one map for each model.

    Places texts by t-SNE and colours them by their cluster (k-means of the
    vectors), as InforMin-CL's fig. 2 has it; clusters are matched between models
    and described by the words that set them apart. Measures how much of the
    neighbourhoods the map keeps, and how many neighbours models share. --whiten
    sets whitened vectors beside them (WhitenedCSE, fig. 1).

    Args:
        texts: Texts, one a line or a row of a table.
        label_field: Column of a table with labels: clusters are compared with them, and up to 12 of them are colours.
        clusters: k of k-means.
        perplexity: Neighbours that t-SNE attends to.
        neighbours: Nearest texts and points that are compared.
        whiten: A second map of each model: all columns whitened together, or in N shuffled groups (WhitenedCSE).
        seed: Of clusters, map and groups of columns.

    \b
    Examples:
      sentcli analyze map sentences.txt -m minilm -m runs/simcse -o map
      sentcli analyze map news.csv --text-field title --label-field topic -m minilm -o news
      sentcli analyze map sentences.txt -m runs/simcse --whiten groups:128 -o whitened
    """  # noqa: D301
    from sentcli.analysis.maps import MapSettings, Whitening, require

    shared.check(output, overwrite=overwrite)
    if not model:
        raise InputError("give models (-m) to map the texts with")
    settings = MapSettings(clusters, perplexity, seed, neighbours)
    whitening = Whitening.parse(whiten) if whiten is not None else None
    models = shared.models(model, load, rerun=rerun)
    maps = Maps(*_read(texts, text_field, label_field, limit), settings, whitening)
    if len(maps.texts) < clusters:
        raise InputError(f"--clusters {clusters}: {texts} has only {len(maps.texts)} distinct texts")
    require(len(maps.texts))
    names = shared.short_names(model)
    reports = [maps.add(each, names[each.name]) for each in models]
    whitened = f" Whitened: {whitening.title}, with the statistics of these texts." if whitening else ""
    words = (
        f"{len(maps.texts):,} distinct texts of {texts}. t-SNE of unit vectors, perplexity {maps.perplexity:g}; "
        f"k-means with {clusters} clusters; seed {seed}.{whitened}"
    )
    for report in reports:
        report.results["shared_neighbours"] = maps.shared_with(names[report.model])
    return shared.write("map", output, maps.sections(words), reports)


def _read(file: str, text_field: str, label_field: str | None, limit: int) -> tuple[list[str], pd.Series | None]:
    """Return distinct texts and their labels.

    Raises:
        DataError: for a text without a label, and for a file that cannot be read.
    """
    import pandas as pd

    rows, _ = shared.read_rows(file, text_field, limit)
    texts, labels = list(rows), []
    if label_field is None:
        return texts, None
    for row in rows.values():
        if label_field not in row.columns:
            has = ", ".join([text_field, *row.columns])
            raise DataError(file, f"no column {label_field!r} for labels; it has: {has}", line=row.line, unit="row")
        labels.append("" if row.columns[label_field] is None else str(row.columns[label_field]))
    if len(set(labels)) == 1:
        console.warn(f"all texts have the same label {labels[0]!r} in {label_field}")
    frequent = pd.Series(sorted(labels)).value_counts(sort=False).sort_values(ascending=False, kind="stable")
    return texts, pd.Series(pd.Categorical(labels, frequent.index), name=label_field)


class Maps:
    """The maps of the same texts by several models, with clusters that are matched with those of the first.

    Args:
        texts: ``[n]``.
        labels: what is known about the texts; the categories are ordered, the most frequent first.
        settings: the choices.
        whitening: makes a second map of each model.
    """

    def __init__(
        self, texts: list[str], labels: pd.Series | None, settings: MapSettings, whitening: Whitening | None = None
    ) -> None:
        self.texts, self.labels, self.settings, self.whitening = texts, labels, settings, whitening
        self.maps: dict[str, Map] = {}

    @property
    def perplexity(self) -> float:
        """The perplexity that so many texts allowed."""
        return next(iter(self.maps.values())).layout.perplexity

    def add(self, model: EvaluatedModel, name: str) -> Outcome:
        """Map the texts with a model, and with its whitened vectors."""
        report = Outcome("analyze", model.name)
        vectors = shared.vectors_of(model, self.texts).of(self.texts)
        if self.whitening is not None:
            self.whitening.check(*vectors.shape)
        results = {"texts": len(self.texts), **self._map(name, vectors).to_dict()}
        if self.whitening is not None:
            whitened = self.whitening.apply(vectors, self.settings.seed)
            results["whitened"] = self._map(f"{name}, whitened", whitened).to_dict()
        protocol = {
            "kind": "map",
            **asdict(self.settings),
            "perplexity": self.perplexity,
            "tsne": self.maps[name].layout.library,
            "label_field": self.labels.name if self.labels is not None else None,
            "whitening": str(self.whitening) if self.whitening else None,
        }
        return shared.finish(report, protocol, results, model, self.settings.seed)

    def _map(self, name: str, vectors: Any) -> Map:
        from sentcli.analysis.maps import mapped

        groups = [each.groups for each in self.maps.values()]
        free = 1 + max((int(each.max()) for each in groups), default=-1)
        numbers = self.labels.cat.codes.to_numpy() if self.labels is not None else None
        with console.working(f"{name}: clusters and map of {len(vectors):,} vectors"):
            try:
                made = mapped(vectors, self.texts, self.settings, numbers, groups[0] if groups else None, free)
            except InputError as error:
                raise InputError(f"{name}: {error}") from error
        self.maps[name] = made
        console.detail(f"{name}: t-SNE took {made.layout.seconds:.1f} s")
        return made

    def shared_with(self, name: str) -> dict[str, float]:
        """Return the mean share of neighbours that a map has in common with every other, 0 to 1."""
        from sentcli.analysis.neighbourhoods import overlap

        own = self.maps[name].neighbours
        return {other: overlap(own, each.neighbours) for other, each in self.maps.items() if other != name}

    def sections(self, words: str) -> list[Section]:
        """Return figure and tables of at least one map; `words` say which texts were taken, and how."""
        made = [Section("Maps", (words,), figure=_figure(self)), Section("Numbers", table=_numbers(self), file="maps")]
        if len(self.maps) > 1:
            made.append(Section("Shared neighbours", table=_shared(self), file="shared-neighbours"))
        for i, (name, each) in enumerate(self.maps.items(), 1):
            title = f"Clusters of {name}"
            made.append(Section(title, table=_clusters(title, each), file=f"clusters-{i}", folded=True))
        return made


def _figure(maps: Maps) -> Figure:
    import pandas as pd

    labels = maps.labels if maps.labels is not None and len(maps.labels.cat.categories) <= LABELS_SHOWN else None
    dots = {name: _dots(each, maps.texts, labels) for name, each in maps.maps.items()}
    places = {} if labels is not None else {name: _places(each) for name, each in dots.items()}
    about = "; ".join(
        f"{name}: of 10 nearest points, {10 * each.measures['map_purity']:.1f} are in the same cluster, and of 10 "
        f"nearest texts by cosine {10 * each.measures['neighbour_overlap']:.1f} are among the nearest points"
        for name, each in maps.maps.items()
    )
    note = f"Colour and marker: {'cluster of the vectors (k-means)' if labels is None else labels.name}"
    if labels is None:
        note += ", the same in all panels where they share texts enough; words: what sets a cluster apart"
    panels = [partial(_draw, name, each, places.get(name)) for name, each in dots.items()]
    shown = [each.assign(panel=name) for drawn in (dots, places) for name, each in drawn.items()]
    told = [each.assign(panel=number) for number, each in enumerate(dots.values())]
    points = pd.concat(told).rename(columns={"series": "group", "group": "number", "label": "text"})
    data, points = (
        pd.concat(shown)[["panel", "series", "x", "y", "label"]],
        points[["panel", "x", "y", "group", "text"]],
    )
    return Figure("map", "Maps of the texts (t-SNE)", panels, data, about, note, points, size=(4.6, 4.375))


def _dots(each: Map, texts: Sequence[str], labels: pd.Series | None) -> pd.DataFrame:
    """Return the place, the text and the cluster or label of each point of a map."""
    import pandas as pd

    if labels is None:
        groups = each.groups
        titles = {row.number - 1: f"{row.number} {', '.join(row.words)}".strip() for row in each.clusters.itertuples()}
    else:
        groups = labels.cat.codes.to_numpy()
        titles = {i: name or "(none)" for i, name in enumerate(labels.cat.categories)}
    x, y = each.layout.positions.T
    frame = pd.DataFrame({"group": groups, "x": x, "y": y, "label": texts})
    return frame.assign(series=frame["group"].map(titles)).sort_values("group", kind="stable")


def _places(dots: pd.DataFrame) -> pd.DataFrame:
    """Return where the number of each cluster stands: amid most of its points."""
    import pandas as pd
    from scipy.spatial import KDTree

    near = AROUND * max(dots["x"].max() - dots["x"].min(), dots["y"].max() - dots["y"].min())
    rows = []
    for group, part in dots.groupby("group"):
        points = part[["x", "y"]].to_numpy()
        x, y = points[KDTree(points).query_ball_point(points, near, return_length=True).argmax()]
        rows.append({"series": "clusters", "x": x, "y": y, "label": str(group + 1)})
    return pd.DataFrame(rows)


def _draw(name: str, dots: pd.DataFrame, places: pd.DataFrame | None, axes: Axes) -> None:
    from matplotlib.patheffects import withStroke

    for group, part in dots.groupby("group"):
        look = style.dots(group, len(part))
        axes.scatter(part["x"], part["y"], label=style.short(part["series"].iloc[0]), **look)
    halo: Any = [withStroke(linewidth=2.5, foreground=style.PAPER)]
    for place in [] if places is None else places.itertuples():
        text = axes.text(place.x, place.y, place.label, ha="center", va="center", weight="bold", zorder=4)
        text.set_path_effects(halo)
    axes.set(title=name, xlabel="t-SNE 1 (no unit)", ylabel="t-SNE 2 (no unit)", xticks=[], yticks=[])


def _numbers(maps: Maps) -> Table:
    import pandas as pd

    first = next(iter(maps.maps.values()))
    frame = pd.DataFrame([{"model": name, **each.measures} for name, each in maps.maps.items()])
    shares = {"map_purity": "map purity %", "neighbour_overlap": "neighbours kept %", "label_purity": "label purity %"}
    for key in shares.keys() & set(frame):
        frame[key] *= 100
    heads = {**shares, "dimension": "dimensions", "adjusted_mutual_information": "label information"}
    k, clusters = first.neighbours.shape[1], max(len(each.clusters) for each in maps.maps.values())
    notes = [
        f"Map purity: of the {k} nearest points on the map, those in the same cluster of the vectors. Neighbours kept: "
        f"of the {k} nearest texts by cosine, those among the {k} nearest on the map. What is not kept, the map cannot "
        "show.",
        f"Silhouette: of the {clusters} clusters by cosine distance; near 0 where clusters run into each other.",
    ]
    if maps.labels is not None:
        notes.append(
            "Label purity: texts with the most frequent label of their cluster. Label information: adjusted mutual "
            "information of clusters and labels, 0 by chance, 1 if they are the same."
        )
    formats = dict.fromkeys(shares.values(), ".1f") | {"silhouette": ".3f", "label information": ".3f"}
    return Table.of_frame("Maps and clusters", frame.rename(columns=heads), formats=formats, notes=notes)


def _shared(maps: Maps) -> Table:
    names = list(maps.maps)
    rows = []
    for name in names:
        shares = maps.shared_with(name)
        rows.append([name, *(100 * shares[other] if other in shares else None for other in names)])
    n, k = maps.maps[names[0]].neighbours.shape
    note = (
        f"Mean share of a text's {k} nearest texts by cosine that are the same in both, in %. "
        f"Neighbours drawn at random: {100 * k / (n - 1):.1f}."
    )
    formats = dict.fromkeys(names, ".1f")
    return Table("Neighbours that models share", ["model", *names], rows, formats=formats, notes=(note,))


def _clusters(title: str, each: Map) -> Table:
    heads = {"number": "cluster", "size": "texts", "example": "nearest to its centre"}
    frame = each.clusters.assign(words=each.clusters["words"].str.join(", ")).rename(columns=heads)
    note = (
        "Words: the highest mean tf-idf in the cluster, less that of all other texts; English function words left out."
    )
    return Table.of_frame(title, frame, notes=(note,), wide=("words", "nearest to its centre"))
