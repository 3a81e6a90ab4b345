"""The table of what models cost: their speed and their size on the machine that scored them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
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


def cost_table(models: Sequence[ModelScores]) -> Table | None:
    """Return what each model costs, or None if that was not measured."""
    costs: dict[str, Mapping[str, Any]] = {}
    measured: set[str] = set()
    texts = set()
    for scores in models:
        if scores.cost:
            costs[scores.label] = scores.cost
    if not costs:
        return None
    for cost in costs.values():
        measured.update(cost)
        texts.add(cost.get("texts"))
    columns = [key for key in COSTS if key in measured]
    heads = ["model", *[COSTS[key] for key in columns]]
    note = (
        f"Texts a second: {' or '.join(map(str, texts))} texts of the data, without the cache; the first vector: from "
        "the loading of the model, with the libraries loaded before."
    )
    rows: list[list[Any]] = []
    megabytes = {}
    sent = []
    for label, cost in costs.items():
        size = cost.get("weight_bytes")
        if size is not None:
            place = 1 + columns.index("weight_bytes")
            megabytes[len(rows), place] = f"{size / 1e6:,.1f} MB"
        rows.append([label, *map(cost.get, columns)])
        sent.append(_sent_requests(cost))
    if any(sent):
        heads.append("sent to its host")
        rows = [[*row, requests] for row, requests in zip(rows, sent, strict=True)]
        note += " Those of a model that is served are with its host and the network; what the cache had was not sent."
    title = "What each model costs on this machine"
    device = models[0].environment.get("device")
    if device:
        title += f" ({device})"
    formats = {"texts a second": ",.0f", "ms a query to rerank": ",.1f"}
    return Table(title, heads, rows, formats=formats, texts=megabytes, notes=[note])


def _sent_requests(cost: Mapping[str, Any]) -> str | None:
    """Return what was sent to the host of a model, in words; None if nothing was."""
    counts = [cost.get(f"sent_{count.name}") or 0 for count in fields(RequestCounts)]
    sent = RequestCounts(*counts)
    return str(sent) if sent.requests else None
