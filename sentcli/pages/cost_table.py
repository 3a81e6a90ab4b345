"""The table of what models cost: their speed and their size on the machine that scored them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from operator import itemgetter
from typing import Any

from sentcli.evaluation.scores import ModelScores
from sentcli.model.served import RequestCounts
from sentcli.table import Table

COSTS = {
    "texts_per_second": "texts a second",
    "dimensions": "dimensions",
    "bytes_per_vector": "bytes a vector",
    "weight_bytes": "weights",
    "first_vector_seconds": "seconds to the first vector",
    "rerank_milliseconds": "ms a query to rerank",
}
"""The columns of costs, with their titles; one that no model has is left out."""
SENT = "sent to its host"


def cost_table(models: Sequence[ModelScores]) -> Table | None:
    """Return what each model costs, or None if that was not measured."""
    rows: dict[str, dict[str, Any]] = {}  # by the label of the model
    megabytes = {}
    texts: dict[str, None] = {}
    for scores in models:
        cost = scores.cost
        if not cost or scores.label in rows:
            continue
        texts[str(cost.get("texts"))] = None
        size = cost.get("weight_bytes")
        if size is not None:
            megabytes[len(rows), COSTS["weight_bytes"]] = f"{size / 1e6:,.1f} MB"
        row: dict[str, Any] = {"model": scores.label}
        for key, head in COSTS.items():
            row[head] = cost.get(key)
        counts = [cost.get(f"sent_{count.name}") or 0 for count in fields(RequestCounts)]
        sent = RequestCounts(*counts)
        row[SENT] = str(sent) if sent.requests else None
        rows[scores.label] = row
    if not rows:
        return None
    note = (
        f"Texts a second: {' or '.join(texts)} texts of the data, without the cache; the first vector: from "
        "the loading of the model, with the libraries loaded before."
    )
    if any(map(itemgetter(SENT), rows.values())):
        note += " Those of a model that is served are with its host and the network; what the cache had was not sent."
    title = "What each model costs on this machine"
    device = models[0].environment.get("device")
    if device:
        title += f" ({device})"
    formats = {"texts a second": ",.0f", "ms a query to rerank": ",.1f"}
    optional = (*COSTS.values(), SENT)
    return Table.of_rows(title, list(rows.values()), optional=optional, texts=megabytes, formats=formats, notes=[note])
