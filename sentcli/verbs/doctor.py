"""``doctor``: what this machine has."""

from __future__ import annotations

from sentcli.table import Table
from sentcli.verbs.declaration import verb
from sentcli.verbs.outcome import Outcome


@verb("doctor")
def doctor() -> Outcome:
    """Show versions, devices, threads, extras, which models are at hand, and what would run where.

    \b
    Examples:
      sentcli doctor
      sentcli doctor --json doctor.json
    """  # noqa: D301
    from sentcli import diagnosis

    outcome = Outcome("doctor")
    state = diagnosis.examine()
    outcome.ran_on(state.device, "fp32")
    models = [[m.name, m.source, m.pooling, m.licence, m.where or "no"] for m in state.models]
    tables = [
        Table("Versions", ["library", "version"], list(state.versions.items())),
        Table("Devices", ["device", "what"], list(state.devices.items())),
        Table("Extras", ["extra", "state"], list(state.extras.items())),
        Table("Models by short name", ["name", "hub id", "pooling", "licence", "at hand"], models),
        Table("What runs where", ["work", "runs on"], list(state.plan.items())),
    ]
    return outcome.finish(state.to_dict(), tables)
