"""``doctor``: what this machine has."""

from __future__ import annotations

from sentcli.table import Table
from sentcli.verbs.declaration import verb
from sentcli.verbs.result import Result


@verb("doctor")
def doctor() -> Result:
    """Show versions and their ranges, devices, threads, extras, which models are at hand, and what would run where.

    \b
    Examples:
      sentcli doctor
      sentcli doctor --json doctor.json
    """  # noqa: D301
    from sentcli import diagnosis

    result = Result("doctor")
    facts = diagnosis.examine()
    result.ran_on(facts["device"], "fp32")
    models = [[value or "no" for value in model.values()] for model in facts["models"]]
    of_hub = [[value or "unknown" for value in model.values()] for model in facts["hub"]]
    tables = [
        Table("Versions", ["library", "version"], list(facts["versions"].items())),
        Table("Devices", ["device", "what"], list(facts["devices"].items())),
        Table("Extras", ["extra", "state"], list(facts["extras"].items())),
        Table("Models by short name", ["name", "hub id", "pooling", "licence", "at hand"], models),
        Table("Models in the hub's cache", ["model", "commit", "SHA-256 of the weights"], of_hub),
        Table("What runs where", ["work", "runs on"], list(facts["plan"].items())),
    ]
    if outside := facts["out_of_range"]:
        columns = ["library", "installed", "range", "moved by"]
        rows = [[line["library"], line["installed"], line["range"], ", ".join(line["moved_by"])] for line in outside]
        tables.insert(1, Table("Outside of the ranges that sentcli works with", columns, rows))
    return result.finish(facts, tables)
