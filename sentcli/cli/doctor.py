"""``sentcli doctor``."""

from __future__ import annotations

from sentcli import console
from sentcli.cli import options
from sentcli.cli.base import command


@command("doctor")
def doctor(json: options.Json = None) -> None:
    """Show versions, devices, threads, extras, which models are at hand, and what would run where.

    \b
    Examples:
      sentcli doctor
      sentcli doctor --json doctor.json
    """  # noqa: D301
    from sentcli import diagnosis
    from sentcli.cli.json_report import Report
    from sentcli.io.json_files import finite, write_json
    from sentcli.machine import environment

    report = Report("doctor", "")
    found = diagnosis.examine()
    report.results, report.environment = found.to_dict(), environment(found.device, "fp32")
    console.table("Versions", ["library", "version"], [list(item) for item in found.versions.items()], left=2)
    console.table("Devices", ["device", "what"], [list(item) for item in found.devices.items()], left=2)
    console.table("Extras", ["extra", "state"], [list(item) for item in found.extras.items()], left=2)
    console.table(
        "Models by short name",
        ["name", "hub id", "pooling", "licence", "at hand"],
        [[m.name, m.source, m.pooling, m.licence, m.where or "no"] for m in found.models],
        left=5,
    )
    console.table("What runs where", ["work", "runs on"], [list(item) for item in found.plan.items()], left=2)
    if json is not None:
        write_json(json, finite(report.to_dict()))
