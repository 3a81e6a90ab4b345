"""``analyze map``: maps of the same texts by several models, with clusters and shared neighbours."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from sentcli import console
from sentcli.bounds import Holds
from sentcli.command.declaration import Flag, verb
from sentcli.command.result import Clock, Record, Result
from sentcli.errors import InputError
from sentcli.io.in_memory import index_of
from sentcli.io.options import Overwrite
from sentcli.io.sources import title_of
from sentcli.model.options import LoadOptions
from sentcli.pages import style
from sentcli.pages.figures import MANY
from sentcli.pages.names import short_names
from sentcli.pages.page import Figure, Section
from sentcli.table import Table
from sentcli.verbs.kinds import shared
from sentcli.verbs.kinds.map_texts import MOST_COLOURS, MapTexts, read_map_texts

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd
    from matplotlib.axes import Axes

    from sentcli.analysis.maps import Map, MapSettings, Whitening
    from sentcli.evaluation.evaluated import EvaluatedModel

LARGE = (5.8, 4.9)
"""Width and height in inches of the only map of many texts."""


@verb("map", common="texts output model clusters perplexity whiten pooling text_field label_field limit overwrite json")
def map_(
    texts: Annotated[str, Holds.TEXT_FILE, Flag(metavar="TEXTS", positional=True)],
    output: shared.Output,
    model: shared.Models = None,
    text_field: shared.TextField = "text",
    id_field: Annotated[str | None, Holds.WORDS, Flag(metavar="COLUMN", panel=shared.INPUT)] = None,
    label_field: Annotated[str | None, Holds.WORDS, Flag(metavar="COLUMN", panel=shared.INPUT)] = None,
    limit: shared.Limit = 2000,
    clusters: Annotated[int, Ge(2)] = 10,
    perplexity: Annotated[float, Ge(1)] = 30,
    neighbours: Annotated[int, Ge(1)] = 10,
    whiten: Annotated[str | None, Flag(metavar="zca|groups:N")] = None,
    positives: Annotated[int | None, Ge(2)] = None,
    seed: int = 42,
    load: shared.Load = LoadOptions(),
    rerun: shared.Rerun = False,
    overwrite: Overwrite = False,
) -> Result:
    """Texts on a plane, with their clusters: one map for each model.

    Places texts by t-SNE and colours them by their cluster (k-means of the
    vectors), as InforMin-CL's fig. 2 has it; clusters are matched between models
    and named by the words that set them apart. Measures how much of the
    neighbourhoods the map keeps, and how many neighbours models share. --whiten
    sets whitened vectors beside them (WhitenedCSE, fig. 1).

    Args:
        texts: Texts, one a line or a row of a table; or vectors that encode wrote (a directory or file), without -m.
        id_field: Column of a table that holds the id: id, else _id, else the row number.
        label_field: Column of a table with labels: clusters are compared with them, and up to 12 of them are colours.
        clusters: k of k-means.
        perplexity: Neighbours that t-SNE attends to.
        neighbours: Nearest texts and points that are compared.
        positives: Points of each text: vectors in training mode, which dropout makes differ, whitened each by itself.
        whiten: A second map of each model: all columns whitened together, or in N shuffled groups (WhitenedCSE).
        seed: Seed of the texts that are drawn, of clusters, map and groups of columns.

    \b
    Examples:
      sentcli analyze map sentences.txt -m minilm -m runs/simcse -o map
      sentcli analyze map news.csv --text-field title --label-field topic -m minilm -o news
      sentcli analyze map sentences.txt -m runs/simcse --whiten groups:128 -o whitened
      sentcli analyze map batch.txt -m runs/simcse --positives 3 --whiten groups:128 -o spread
      sentcli analyze map documents.parquet -o map
    """  # noqa: D301
    from sentcli.analysis.maps import MapSettings, Whitening

    shared.check(output, overwrite=overwrite)
    settings = MapSettings(clusters, perplexity, seed, neighbours)
    whitening = Whitening.parse(whiten) if whiten is not None else None
    models = shared.models(model or [], load, rerun=rerun, kept=[texts])
    inputs = read_map_texts(texts, text_field, id_field, label_field, limit, seed)
    if not models and inputs.vectors is None:
        raise InputError("give models (-m) to map the texts with, or vectors that encode wrote instead of texts")
    if positives is not None:
        if inputs.vectors is not None:
            raise InputError("--positives encodes texts several times: give a file of texts")
        inputs = inputs.with_positives(positives)
    title = title_of(texts)
    if len(inputs.texts) < clusters:
        raise InputError(f"--clusters {clusters}: {title} has only {len(inputs.texts)} distinct texts")
    maps, names = Maps(inputs, settings, whitening), short_names(model or []).shown
    of_file = inputs.vectors is not None and not any(evaluated.made(texts) for evaluated in models)
    records_by_name = {}
    if of_file:
        records_by_name[Path(title).name] = maps.add(Path(title).name)
    for evaluated in models:
        records_by_name[names[evaluated.name]] = maps.add(names[evaluated.name], evaluated)
    whitened = f" Whitened: {whitening.title}, with the statistics of these texts." if whitening else ""
    note = (
        f"{inputs.sample.words} of {title}.{inputs.repeated} t-SNE of unit vectors, perplexity "
        f"{maps.perplexity:g}; k-means with {clusters} clusters; seed {seed}.{whitened}"
    )
    records = []
    for name, record in records_by_name.items():
        shared_neighbours = {"shared_neighbours": maps.shared_with(name)}
        records.append(replace(record, results={**record.results, **shared_neighbours}))
    index = index_of(texts)

    def frame() -> pd.DataFrame:
        return maps.placed(inputs.every_row(), index)

    return shared.write("map", output, maps.sections(note), records, make_frame=frame)


class Maps:
    """The maps of the same texts by several models, whose clusters are matched with those of the first model.

    Args:
        inputs: the texts, with their ids, labels and stored vectors.
        settings: of clusters and maps.
        whitening: how vectors are whitened for a second map of each model.
    """

    def __init__(self, inputs: MapTexts, settings: MapSettings, whitening: Whitening | None = None) -> None:
        self.inputs, self.settings, self.whitening = inputs, settings, whitening
        self.maps: dict[str, Map] = {}

    @property
    def perplexity(self) -> float:
        """The perplexity of the maps, which is lower than that of the settings for few texts."""
        return next(iter(self.maps.values())).layout.perplexity

    def add(self, name: str, model: EvaluatedModel | None = None) -> Record:
        """Map the texts by the vectors of a model, or by their stored ones, and by these whitened."""
        clock = Clock()
        if model is not None:
            made_by, vectors = model.name, self._encoded(model)
        else:
            assert self.inputs.vectors is not None
            made_by, vectors = name, self.inputs.vectors
            if self.inputs.origin is not None and self.inputs.origin.model:
                made_by = self.inputs.origin.model
        if self.whitening is not None:
            self.whitening.check(self.inputs.count, vectors.shape[1])
        results = {"texts": self.inputs.count, **self._map(name, vectors).to_dict()}
        if self.whitening is not None:
            whitened = self.whitening.apply_to_positives(self._by_text(vectors), self.settings.seed)
            results["whitened"] = self._map(f"{name}, whitened", whitened.reshape(vectors.shape)).to_dict()
        protocol = {
            "kind": "map",
            **asdict(self.inputs.sample),
            **asdict(self.settings),
            "perplexity": self.perplexity,
            "tsne": "scikit-learn",
            "label_field": None if self.inputs.labels is None else self.inputs.labels.name,
            "whitening": str(self.whitening) if self.whitening else None,
            **({} if self.inputs.positives == 1 else {"positives": self.inputs.positives}),
        }
        return shared.record(made_by, protocol, results, clock, model, self.settings.seed)

    def _encoded(self, model: EvaluatedModel) -> npt.NDArray[Any]:
        """Return the vectors of the texts ``[n, d]``, or of the positives of each, one text after the other."""
        from sentcli.analysis.maps import dropout_positives

        if self.inputs.positives == 1:
            return shared.vectors_of(model, self.inputs.texts).of(self.inputs.texts)
        texts = self.inputs.texts[:: self.inputs.positives]
        with console.working(f"{model.name}: {self.inputs.positives} positives of {len(texts):,} texts"):
            vectors = dropout_positives(model.load(), texts, self.inputs.positives, self.settings.seed)
        model.release()
        return vectors.reshape(len(self.inputs.texts), -1)

    def _by_text(self, vectors: Any) -> Any:
        """Return the vectors of all points as ``[texts, positives, d]``."""
        return vectors.reshape(self.inputs.count, self.inputs.positives, -1)

    def _map(self, name: str, vectors: Any) -> Map:
        from sentcli.analysis.maps import Spread, mapped

        earlier_groups = [map_.groups for map_ in self.maps.values()]
        reference = earlier_groups[0] if earlier_groups else None
        free = 1 + max((int(groups.max()) for groups in earlier_groups), default=-1)
        labels = None if self.inputs.labels is None else self.inputs.labels.cat.codes.to_numpy()
        with console.working(f"{name}: clusters and map of {len(vectors):,} vectors"):
            try:
                self.maps[name] = mapped(vectors, self.inputs.texts, self.settings, labels, reference, free)
            except InputError as error:
                raise InputError(f"{name}: {error}") from error
        if self.inputs.positives > 1:
            spread = Spread.of(self._by_text(vectors))
            self.maps[name].measures.update(positives_apart=spread.positives, texts_apart=spread.texts)
        console.detail(f"{name}: t-SNE took {self.maps[name].layout.seconds:.1f} s")
        return self.maps[name]

    def shared_with(self, name: str) -> dict[str, float]:
        """Return the mean share of neighbours by cosine that a model has in common with each other one, 0 to 1."""
        from sentcli.analysis.neighbourhoods import overlap

        own = self.maps[name].neighbours
        return {other: overlap(own, map_.neighbours) for other, map_ in self.maps.items() if other != name}

    def placed(self, rows: pd.DataFrame, index: pd.Index | None = None) -> pd.DataFrame:
        """Return rows with their place and cluster on the map of each model, which they have by their text.

        Args:
            rows: columns id and text; a text that is not on the maps has no place.
            index: of the frame that they come from, which the result has for each model; None counts all rows.
        """
        import pandas as pd

        columns, frames = ["text", "x", "y", "cluster", "cluster_name"], []
        for name, map_ in self.maps.items():
            points = _dots(map_, self.inputs, None)[columns].astype({"cluster": "Int64"})
            of_model = rows.assign(model=name).merge(points, on="text", how="left")
            frames.append(of_model if index is None else of_model.set_axis(index))
        return pd.concat(frames, ignore_index=index is None)[["model", "id", *columns]]

    def sections(self, note: str) -> list[Section]:
        """Return figure and tables of at least one map, under a note on texts and settings."""
        numbers = Section("Numbers", table=_numbers(self), file="maps")
        sections = [Section("Maps", (note,), figure=_figure(self)), numbers]
        if len(self.maps) > 1:
            sections.append(Section("Shared neighbours", table=_shared(self), file="shared-neighbours"))
        heads = {"number": "cluster", "name": "name", "example": "nearest to its centre", "size": "texts"}
        words = (
            "Name: the words that set the cluster apart, by class-based tf-idf (Grootendorst, 2022); English function "
            "words are left out."
        )
        for i, (name, map_) in enumerate(self.maps.items(), 1):
            frame, title = map_.clusters[[*heads]].rename(columns=heads), f"Clusters of {name}"
            table = Table.of_frame(title, frame, notes=(words,), wide=("name", "nearest to its centre"))
            sections.append(Section(title, table=table, file=f"clusters-{i}", folded=True))
        return sections


def _figure(maps: Maps) -> Figure:
    import pandas as pd

    labels = maps.inputs.labels
    if labels is not None and len(labels.cat.categories) > MOST_COLOURS:
        labels = None
    dots = {name: _dots(map_, maps.inputs, labels) for name, map_ in maps.maps.items()}
    places = {} if labels is not None else {name: _places(frame) for name, frame in dots.items()}
    about = "; ".join(
        f"{name}: of 10 nearest points, {10 * map_.measures['map_purity']:.1f} are in the same cluster, and of 10 "
        f"nearest texts by cosine {10 * map_.measures['neighbour_overlap']:.1f} are among the nearest points"
        for name, map_ in maps.maps.items()
    )
    note = f"Colour and marker: {'cluster of the vectors (k-means)' if labels is None else labels.name}"
    if labels is None:
        note += ", the same in all panels where they share texts enough; words: what sets a cluster apart"
    panels = {name: partial(_draw, name, frame, places.get(name)) for name, frame in dots.items()}
    by_panel = [frame.assign(panel=name) for frames in (dots, places) for name, frame in frames.items()]
    columns = ["panel", "series", "x", "y", "label", "id", "text", "cluster", "cluster_name"]
    data = pd.concat(by_panel).reindex(columns=columns).astype({"cluster": "Int64"})
    size = LARGE if len(dots) == 1 and maps.inputs.count > MANY else (4.6, 4.375)
    return Figure("map", "Maps of the texts (t-SNE)", panels, data, about, note, size=size)


def _dots(map_: Map, inputs: MapTexts, labels: pd.Series | None) -> pd.DataFrame:
    """Return place, id, text, cluster and, as the series, cluster or label of each point of a map."""
    import pandas as pd

    names = dict(zip(map_.clusters["number"] - 1, map_.clusters["name"], strict=True))
    if labels is None:
        groups = map_.groups
        titles = {group: f"{group + 1} {name}".strip() for group, name in names.items()}
    else:
        groups = labels.cat.codes.to_numpy()
        titles = {i: name or "(none)" for i, name in enumerate(labels.cat.categories)}
    x, y = map_.layout.positions.T
    frame = pd.DataFrame(
        {"group": groups, "x": x, "y": y, "label": inputs.texts, "id": inputs.ids, "text": inputs.texts}
    )
    clusters = pd.Series(map_.groups)
    frame = frame.assign(cluster=clusters + 1, cluster_name=clusters.map(names), series=frame["group"].map(titles))
    return frame.sort_values("group", kind="stable")


def _places(dots: pd.DataFrame) -> pd.DataFrame:
    """Return the place of the number of each cluster: its point with the most others of the cluster around it."""
    import pandas as pd
    from scipy.spatial import KDTree

    # the number of a cluster stands at the point with most others of the cluster in this radius, of the map's width
    radius = 0.08 * max(dots["x"].max() - dots["x"].min(), dots["y"].max() - dots["y"].min())
    rows = []
    for group, part in dots.groupby("group"):
        points = part[["x", "y"]].to_numpy()
        x, y = points[KDTree(points).query_ball_point(points, radius, return_length=True).argmax()]
        rows.append({"series": "clusters", "x": x, "y": y, "label": str(group + 1)})
    return pd.DataFrame(rows)


def _draw(name: str, dots: pd.DataFrame, places: pd.DataFrame | None, axes: Axes) -> None:
    from matplotlib.patheffects import withStroke

    for group, part in dots.groupby("group"):
        axes.scatter(part["x"], part["y"], label=style.short(part["series"].iloc[0]), **style.dots(group, len(part)))
    halo: Any = [withStroke(linewidth=2.5, foreground=style.PAPER)]
    for place in [] if places is None else places.itertuples():
        text = axes.text(place.x, place.y, place.label, ha="center", va="center", weight="bold", zorder=4)
        text.set_path_effects(halo)
    axes.set(title=name, xlabel="t-SNE 1 (no unit)", ylabel="t-SNE 2 (no unit)", xticks=[], yticks=[])


def _numbers(maps: Maps) -> Table:
    import pandas as pd

    first = next(iter(maps.maps.values()))
    frame = pd.DataFrame([{"model": name, **map_.measures} for name, map_ in maps.maps.items()])
    shares = {"map_purity": "map purity %", "neighbour_overlap": "neighbours kept %", "label_purity": "label purity %"}
    for key in shares.keys() & set(frame):
        frame[key] *= 100
    if maps.inputs.positives > 1:
        frame["apart"] = frame["positives_apart"] / frame["texts_apart"]
    apart = {"positives_apart": "positives apart", "texts_apart": "texts apart", "apart": "share"}
    heads = {**shares, **apart, "dimension": "dimensions", "adjusted_mutual_information": "label information"}
    k, clusters = first.neighbours.shape[1], max(len(map_.clusters) for map_ in maps.maps.values())
    notes = [
        f"Map purity: of the {k} nearest points on the map, those in the same cluster of the vectors. Neighbours kept: "
        f"of the {k} nearest texts by cosine, those among the {k} nearest on the map. What is not kept, the map cannot "
        "show.",
        f"Silhouette: of the {clusters} clusters by cosine distance; near 0 where clusters run into each other.",
    ]
    if maps.inputs.labels is not None:
        notes.append(
            "Label purity: texts with the most frequent label of their cluster. Label information: adjusted mutual "
            "information of clusters and labels, 0 by chance, 1 if they are the same."
        )
    if maps.inputs.positives > 1:
        notes.append(
            "Apart: mean squared distance of unit vectors, of two positives of one text and of two different texts; "
            "share: the first by the second."
        )
    formats = (
        dict.fromkeys(shares.values(), ".1f")
        | dict.fromkeys(apart.values(), ".3f")
        | {"silhouette": ".3f", "label information": ".3f"}
    )
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
