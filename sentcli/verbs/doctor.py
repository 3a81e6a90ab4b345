"""``doctor``: what this machine has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sentcli.command.declaration import verb
from sentcli.command.result import Clock, Record, Result
from sentcli.errors import SentcliError
from sentcli.machine import environment
from sentcli.table import Table


@verb("doctor")
def doctor() -> Result:
    """Show versions and their ranges, devices, threads, extras, which models are at hand, and what would run where.

    \b
    Examples:
      sentcli doctor
      sentcli doctor --json doctor.json
    """  # noqa: D301
    from sentcli import diagnosis

    clock = Clock()
    indexes = _indexes()  # before all extras are imported, faiss among them
    facts = diagnosis.examine()
    facts["plan"]["indexes"] = indexes
    models = _rows(facts["models"], missing="no")
    of_hub = _rows(facts["hub"], missing="unknown")
    tables = [
        Table("Versions", ["library", "version"], list(facts["versions"].items())),
        Table("Devices", ["device", "what"], list(facts["devices"].items())),
        Table("Extras", ["extra", "state"], list(facts["extras"].items())),
        Table("Models by short name", ["name", "hub id", "pooling", "licence", "at hand"], models),
        Table("Models in the hub's cache", ["model", "commit", "SHA-256 of the weights"], of_hub),
        Table("What runs where", ["work", "runs on"], list(facts["plan"].items())),
    ]
    rows = []
    for library in facts["out_of_range"]:
        moved_by = ", ".join(library["moved_by"])
        rows.append([library["library"], library["installed"], library["range"], moved_by])
    if rows:
        columns = ["library", "installed", "range", "moved by"]
        tables.insert(1, Table("Outside of the ranges that sentcli works with", columns, rows))
    ran_on = environment(facts["device"], "fp32")
    return Result.of(Record("doctor", results=facts, environment=ran_on, seconds=clock.seconds), tables)


def _rows(facts: Sequence[Mapping[str, Any]], *, missing: str) -> list[list[Any]]:
    """Return the values of each of several facts, with a word for one that is missing."""
    rows = []
    for fact in facts:
        rows.append([value or missing for value in fact.values()])
    return rows


def _indexes() -> str:
    """Return what builds indexes, and with which kernels its matrix products run, if it says so."""
    from sentcli.search.blas import CORETYPE, OLD, kernels_of
    from sentcli.search.faiss_border import require_faiss

    try:
        version = require_faiss().__version__
    except SentcliError as error:
        return f"not possible: {error}"
    kernels = kernels_of("faiss")
    if kernels is None:
        return f"faiss {version}"
    sentence = f"faiss {version}, its products by OpenBLAS's kernels {kernels}"
    if kernels in OLD:
        sentence += f", which are older than this processor: set {CORETYPE} to newer ones"
    return sentence
