"""The maps of the same texts by several models, matched with each other, and their page."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from sentcli import console
from sentcli.analysis.folder import analysis_record
from sentcli.analysis.map.layout import Map, MapSettings, mapped
from sentcli.analysis.map.texts import MapTexts
from sentcli.analysis.map.whitening import Whitening, dropout_positives, spread_of_positives
from sentcli.analysis.models import vectors_of
from sentcli.analysis.neighbours import overlap
from sentcli.arrays import AnyArray
from sentcli.command.result import Clock, Record
from sentcli.errors import InputError
from sentcli.evaluation.evaluated import EvaluatedModel


class Maps:
    """The maps of the same texts by several models, whose clusters are matched with those of the first model.

    Args:
        inputs: the texts, with their ids, labels and stored vectors.
        settings: of clusters and maps.
        whitening: how vectors are whitened for a second map of each model.
    """

    def __init__(self, inputs: MapTexts, settings: MapSettings, whitening: Whitening | None = None) -> None:
        self.inputs = inputs
        self.settings = settings
        self.whitening = whitening
        self.maps: dict[str, Map] = {}

    @property
    def perplexity(self) -> float:
        """The perplexity of the maps, which is lower than that of the settings for few texts."""
        return next(iter(self.maps.values())).layout.perplexity

    def add(self, name: str, model: EvaluatedModel | None = None) -> Record:
        """Map the texts by the vectors of a model, or by their stored ones, and by these whitened."""
        clock = Clock()
        inputs = self.inputs
        settings = self.settings
        made_by = name
        if model is not None:
            made_by = model.name
            vectors = self._encoded(model)
        else:
            assert inputs.vectors is not None
            vectors = inputs.vectors
            if inputs.origin is not None and inputs.origin.model:
                made_by = inputs.origin.model
        if self.whitening is not None:
            self.whitening.check(inputs.count, vectors.shape[1])
        results = {"texts": inputs.count, **self._map(name, vectors).to_dict()}
        if self.whitening is not None:
            of_texts = self._by_text(vectors)
            # each positive by itself, in shuffled groups with another order of the columns, as WhitenedCSE trains
            views = []
            for i in range(inputs.positives):
                views.append(self.whitening.apply(of_texts[:, i], settings.seed + i))
            whitened_map = self._map(f"{name}, whitened", np.stack(views, axis=1).reshape(vectors.shape))
            results["whitened"] = whitened_map.to_dict()
        protocol = {
            "kind": "map",
            **asdict(inputs.sample),
            **asdict(settings),
            "perplexity": self.perplexity,
            "tsne": "scikit-learn",
            "label_field": None if inputs.labels is None else inputs.labels.name,
            "whitening": None if self.whitening is None else str(self.whitening),
        }
        if inputs.positives > 1:
            protocol["positives"] = inputs.positives
        return analysis_record(made_by, protocol, results, clock, model, settings.seed)

    def _encoded(self, model: EvaluatedModel) -> AnyArray:
        """Return the vectors of the texts ``[n, d]``, or of the positives of each, one text after the other."""
        texts = self.inputs.texts
        positives = self.inputs.positives
        if positives == 1:
            return vectors_of(model, texts).vectors_of(texts)
        distinct = texts[::positives]
        with console.working(f"{model.name}: {positives} positives of {len(distinct):,} texts"):
            vectors = dropout_positives(model.load(), distinct, positives, self.settings.seed)
        model.release()
        return vectors.reshape(len(texts), -1)

    def _by_text(self, vectors: Any) -> Any:
        """Return the vectors of all points as ``[texts, positives, d]``."""
        return vectors.reshape(self.inputs.count, self.inputs.positives, -1)

    def _map(self, name: str, vectors: Any) -> Map:
        """Map vectors ``[n, d]`` under a name, and keep the map."""
        reference = None  # the clusters of the first map, whose numbers similar clusters take
        free = 0
        for earlier in self.maps.values():
            if reference is None:
                reference = earlier.groups
            free = max(free, 1 + int(earlier.groups.max()))
        labels = None
        if self.inputs.labels is not None:
            labels = self.inputs.labels.cat.codes.to_numpy()
        with console.working(f"{name}: clusters and map of {len(vectors):,} vectors"):
            try:
                new = mapped(vectors, self.inputs.texts, self.settings, labels, reference, free)
            except InputError as error:
                raise InputError(f"{name}: {error}") from error
        if self.inputs.positives > 1:
            new.measures.update(spread_of_positives(self._by_text(vectors)))
        console.detail(f"{name}: t-SNE took {new.layout.seconds:.1f} s")
        self.maps[name] = new
        return new

    def shared_with(self, name: str) -> dict[str, float]:
        """Return the mean share of neighbours by cosine that a model has in common with each other one, 0 to 1."""
        own = self.maps[name].neighbours
        shares = {}
        for other, map_ in self.maps.items():
            if other != name:
                shares[other] = overlap(own, map_.neighbours)
        return shares

    def placed(self, rows: pd.DataFrame, index: pd.Index | None = None) -> pd.DataFrame:
        """Return rows with their place and cluster on the map of each model, which they have by their text.

        Args:
            rows: columns id and text; a text that is not on the maps has no place.
            index: of the frame that they come from, which the result has for each model; None counts all rows.
        """
        columns = ["text", "x", "y", "cluster", "cluster_name"]
        frames = []
        for name, map_ in self.maps.items():
            points = points_of(map_, self.inputs, None)[columns].astype({"cluster": "Int64"})
            frame = rows.assign(model=name).merge(points, on="text", how="left")
            if index is not None:
                frame = frame.set_axis(index)
            frames.append(frame)
        return pd.concat(frames, ignore_index=index is None)[["model", "id", *columns]]


def points_of(map_: Map, inputs: MapTexts, labels: pd.Series | None) -> pd.DataFrame:
    """Return place, id, text, cluster and, as the series, cluster or label of each point of a map."""
    names = dict(zip(map_.clusters["number"] - 1, map_.clusters["name"], strict=True))
    if labels is None:
        groups = map_.groups
        titles = {group: f"{group + 1} {name}".strip() for group, name in names.items()}
    else:
        groups = labels.cat.codes.to_numpy()
        titles = {code: label or "(none)" for code, label in enumerate(labels.cat.categories)}
    clusters = pd.Series(map_.groups)
    frame = pd.DataFrame(
        {
            "group": groups,
            "x": map_.layout.positions[:, 0],
            "y": map_.layout.positions[:, 1],
            "label": inputs.texts,
            "id": inputs.ids,
            "text": inputs.texts,
            "cluster": clusters + 1,
            "cluster_name": clusters.map(names),
            "series": pd.Series(groups).map(titles),
        }
    )
    return frame.sort_values("group", kind="stable")
