"""The sections of a report on what is inside models: geometry, similarity and maps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sentcli.analysis.models import read_stsb, sts_tasks
from sentcli.analysis.texts import TextRows
from sentcli.pages.page import Section

if TYPE_CHECKING:
    from sentcli.evaluation.evaluated import EvaluatedModel

LISTED_PAIRS = 5
"""Pairs in each list of the section on similarity."""
MAPPED_TEXTS = 2000
"""The greatest number of texts on a map."""


def model_sections(
    models: Mapping[str, EvaluatedModel], data: Path | None, texts: str | None, rows: TextRows | None
) -> list[Section]:
    """Return the geometry of models; with data also cosines against gold scores, and with texts maps of them.

    Args:
        models: to measure, by the names that are shown.
        data: SentEval's folder.
        texts: the file of texts.
        rows: its distinct texts; None without the file.
    """
    if not models:
        return []
    from sentcli.analysis.geometry.sections import sections as geometry_sections
    from sentcli.analysis.geometry.verb import GeometryInputs
    from sentcli.analysis.map.layout import MapSettings
    from sentcli.analysis.map.maps import Maps
    from sentcli.analysis.map.sections import sections as map_sections
    from sentcli.analysis.map.texts import MapTexts
    from sentcli.analysis.similarity.pairs import GoldPairs
    from sentcli.analysis.similarity.sections import sections as similarity_sections

    inputs = GeometryInputs(None, rows)
    if data is not None:
        inputs = GeometryInputs(read_stsb(data, None, "dev"), rows, sts=sts_tasks(data))
    results = {name: inputs.of_model(model).results for name, model in models.items()}
    sections = geometry_sections(results, inputs.description)
    if data is not None:
        pairs = GoldPairs(read_stsb(data, None, "test"), "test", str(data), LISTED_PAIRS)
        for name, model in models.items():
            pairs.measure(model, name)
        sections += similarity_sections(pairs)
    if rows is not None:
        settings = MapSettings()
        drawn = rows.drawn(MAPPED_TEXTS, settings.seed)
        ids = [row.id for row in drawn.first.values()]
        maps = Maps(MapTexts(ids, drawn.texts, drawn.sample), settings)
        for name, model in models.items():
            maps.add(name, model)
        note = f"{drawn.sample.words} of {texts}, by t-SNE; {settings.clusters} clusters of k-means."
        sections += map_sections(maps, note)
    return sections
