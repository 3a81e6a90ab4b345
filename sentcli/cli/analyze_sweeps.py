"""``sentcli analyze low-shot`` and ``sentcli analyze sweep``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sentcli.cli import analyzing, options
from sentcli.cli.base import command
from sentcli.errors import InputError, nearest

if TYPE_CHECKING:
    from sentcli.analysis.sweeps import Curve, SweepRun

Sweeps = Annotated[
    list[Path],
    typer.Argument(
        metavar="PATH...", help="Folders of train --sweep or --seeds, or their results.jsonl.", show_default=False
    ),
]


@command("low-shot", analyzing.group)
def low_shot(
    paths: Sweeps,
    output: analyzing.Output,
    baseline: Annotated[
        str | None,
        typer.Option(metavar="SYSTEM", help="Also show the distance from this one; default: simcse, if it is there."),
    ] = None,
    published: Annotated[
        bool, typer.Option("--published", help="Draw what miCSE prints (tables 2 to 4) beside it.")
    ] = False,
    overwrite: options.Overwrite = False,
    json: options.Json = None,
) -> None:
    """Scores over the size of the training set, from a sweep of --fraction or --limit.

    Means over the seeds with a band of one standard deviation (miCSE, figs. 3,
    4 and 9, tables 2 to 4). What else the sweep varies makes a system of its
    own, such as positives_only or objectives+=ami.

    \b
    Examples:
      sentcli train --sweep low-shot.toml -m bert-base --data wiki.txt --max-steps 8000 --eval-data downstream \\
        --sts -o sweep
      sentcli analyze low-shot sweep -o low-shot --published
      sentcli analyze low-shot a/results.jsonl b/results.jsonl --baseline simcse -o low-shot
    """  # noqa: D301
    from sentcli.analysis import sweeps
    from sentcli.reports.analyses.sweeps import low_shot_sections

    analyzing.check(output, overwrite=overwrite)
    runs = sweeps.read_runs(paths)
    curves = sweeps.low_shot(runs)
    systems = [curve.system for curve in curves]
    if baseline is not None and baseline not in systems:
        hint = nearest(baseline, systems)
        raise InputError(f"--baseline {baseline}: no such system{hint}; there are: {'; '.join(systems)}")
    if baseline is None and "simcse" in systems and len(systems) > 1:
        baseline = "simcse"
    printed = sweeps.published_low_shot() if published else []
    objects = [_object("low-shot", runs, curves, {"baseline": baseline})]
    analyzing.finish("low-shot", output, low_shot_sections(curves, baseline, printed), objects, json)


@command("sweep", analyzing.group)
def sweep(
    paths: Sweeps,
    output: analyzing.Output,
    x: Annotated[
        list[str] | None,
        typer.Option(
            "--x",
            metavar="KEY",
            help="A setting as for train --set, such as learning_rate or ami.weight; default: all that is varied.",
            show_default=False,
        ),
    ] = None,
    overwrite: options.Overwrite = False,
    json: options.Json = None,
) -> None:
    """Dev and test scores over any hyper-parameter, from sweeps.

    The ablations of the papers (InforMin-CL, tables 5 to 7; InfoCSE, tables 4
    to 9; WhitenedCSE, tables 3 to 6) are sweeps of weights, rates, groups and
    the like. Several sweeps are read as one: the runs at the defaults give the
    point of the default value.

    \b
    Examples:
      sentcli analyze sweep sweep/ -o sweep-figures
      sentcli analyze sweep defaults/results.jsonl rates/results.jsonl --x learning_rate -o rates
      sentcli analyze sweep groups/ --x whitening.num_groups --json -  -o groups-figures
    """  # noqa: D301
    from sentcli.analysis import sweeps
    from sentcli.reports.analyses.sweeps import sweep_sections

    analyzing.check(output, overwrite=overwrite)
    runs = sweeps.read_runs(paths)
    found = {key: sweeps.over(runs, key) for key in dict.fromkeys(x or sweeps.varied(runs))}
    if alone := next((key for key in x or [] if not found[key]), None):
        raise InputError(f"--x {alone}: it has one value in all runs that are otherwise alike: nothing to draw")
    found = {key: curves for key, curves in found.items() if curves}
    if not found:
        raise InputError(f"no setting has several values in the {len(runs)} runs that are otherwise alike")
    sections = [section for key, curves in found.items() for section in sweep_sections(key, curves)]
    objects = [_object("sweep", runs, curves, {"x": key}) for key, curves in found.items()]
    analyzing.finish("sweep", output, sections, objects, json)


def _object(kind: str, runs: Sequence[SweepRun], curves: Sequence[Curve], choices: dict[str, Any]) -> dict[str, Any]:
    from sentcli.cli.json_report import Report
    from sentcli.machine import environment

    models = ", ".join(dict.fromkeys(str(run.record.get("model")) for run in runs))
    protocol = {"kind": kind, **choices, "runs": len(runs)}
    results = {"curves": [curve.to_dict() for curve in curves]}
    return Report("analyze", models, protocol, results, environment(None, None)).to_dict()
