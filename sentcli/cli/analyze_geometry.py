"""``sentcli analyze geometry``."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sentcli import console
from sentcli.cli import analyzing, options
from sentcli.cli.base import command
from sentcli.errors import InputError

if TYPE_CHECKING:
    from sentcli.analysis.run_metrics import RunMetrics
    from sentcli.cli.json_report import Report
    from sentcli.evaluation.candidate import Candidate
    from sentcli.evaluation.sts import Pairs
    from sentcli.reports.analyses.geometry import Measured


@command("geometry", analyzing.group)
def geometry(
    output: analyzing.Output,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATH]...",
            help="Folders of training runs, whose curves are drawn too; or vectors: .npy files, directories of encode.",
            show_default=False,
        ),
    ] = None,
    model: analyzing.Models = None,
    data: analyzing.Data = None,
    pairs: analyzing.PairsFile = None,
    split: Annotated[
        Literal["dev", "test", "train"], typer.Option(help="Of STS-B.", rich_help_panel=analyzing.INPUT)
    ] = "dev",
    texts: analyzing.TextsFile = None,
    text_field: analyzing.TextField = "text",
    limit: analyzing.Limit = 50_000,
    positives_above: Annotated[
        str,
        typer.Option(
            metavar="SCORE|all",
            help="Pairs with a higher gold score are the positives of alignment; all takes every pair.",
        ),
    ] = "4",
    neighbours: Annotated[int, typer.Option(min=1, help="Nearest ones that hubness counts.")] = 10,
    sts: Annotated[
        bool, typer.Option("--sts/--no-sts", help="Score the seven STS tasks of --data, for the colours.")
    ] = True,
    pooling: options.Pooling = None,
    max_length: options.MaxLength = None,
    backend: options.Backend = "auto",
    precision: options.Precision = "auto",
    device: options.Device = "auto",
    rerun: options.Rerun = False,
    overwrite: options.Overwrite = False,
    json: options.Json = None,
) -> None:
    """Alignment, uniformity, anisotropy, spectrum and hubs of models, runs or vectors.

    Alignment and uniformity (Wang and Isola) are SimCSE's: positives are the
    pairs of STS-B with a gold score above 4, uniformity is over all its distinct
    sentences. --texts measures everything but alignment on texts of yours. Models
    are drawn by both, with the STS average as colour (InforMin-CL, fig. 3). Runs
    of train --log-geometry show both over the steps (WhitenedCSE, fig. 3).

    \b
    Examples:
      sentcli analyze geometry -m minilm -m runs/simcse --data downstream -o geometry
      sentcli analyze geometry runs/simcse runs/whitenedcse --data downstream -o curves
      sentcli analyze geometry vectors.npy encoded/ -o spectrum
      sentcli analyze geometry -m minilm --texts sentences.txt --pairs pairs.tsv --positives-above 0.8 -o own
    """  # noqa: D301
    from sentcli.analysis.run_metrics import is_run, read_metrics
    from sentcli.reports.analyses.geometry import sections

    analyzing.check(output, overwrite=overwrite)
    above = _above(positives_above)
    runs = {str(path): read_metrics(path) for path in paths or [] if is_run(path)}
    stored = {str(path): _stored(path) for path in paths or [] if not is_run(path)}
    trained = [run for run in runs if (Path(run) / "config.json").exists()]
    models = [*(model or []), *(trained if data or pairs or texts else [])]
    tasks = analyzing.read_stsb(data, pairs, split) if data or pairs else {}
    own = analyzing.read_texts(texts, text_field, limit) if texts else []
    if model and not (tasks or own):
        raise InputError("give --data or --pairs for alignment and uniformity, or --texts to measure texts of yours")
    if not (models or runs or stored):
        raise InputError("give models (-m), folders of training runs, or vectors")
    loading = analyzing.Loading(pooling, max_length, backend, precision, device, rerun)
    called = analyzing.labels([*models, *stored])
    measure = GeometryMeasure(tasks, own, above, neighbours, data if sts else None, called)
    found: list[Measured] = []
    reports: list[Report] = []
    for candidate in loading.candidates(models):
        one, report = measure.model(candidate)
        found.append(one)
        reports.append(report)
    for name, vectors in stored.items():
        one, report = measure.vectors(name, vectors)
        found.append(one)
        reports.append(report)
    reports += [_curves(name, run) for name, run in runs.items() if name not in models]
    _say_unlogged(list(runs.values()))
    made = sections(found, list(runs.values()), measure.chosen)
    analyzing.finish("geometry", output, made, [report.to_dict() for report in reports], json)


def _above(text: str) -> float | None:
    if text == "all":
        return None
    try:
        return float(text)
    except ValueError as error:
        raise InputError(f"--positives-above {text}: expected a gold score such as 4, or all") from error


def _stored(path: Path) -> Any:
    """Return vectors on disk.

    Raises:
        InputError: if there are none.
    """
    from sentcli.analysis.stored_vectors import read_vectors

    return read_vectors(path, analyzing.LEAST)


def _say_unlogged(runs: list[RunMetrics]) -> None:
    for run in runs:
        if not run.evaluations:
            console.warn(f"{run.name} has no evaluation: train with --eval-data for curves")
        elif not run.column("uniformity")[0]:
            console.warn(f"{run.name} logged no alignment and uniformity: train with --log-geometry for those curves")


def _curves(name: str, run: RunMetrics) -> Report:
    """Return the report of a run that is not measured as a model."""
    from sentcli.cli.json_report import Report
    from sentcli.machine import environment

    return Report(
        "analyze", name, {"kind": "geometry"}, {"evaluations": list(run.evaluations)}, environment(None, None)
    )


class GeometryMeasure:
    """What is measured, the same for all models; `report` does so too."""

    def __init__(
        self,
        tasks: dict[str, list[Pairs]],
        texts: list[str],
        above: float | None,
        neighbours: int,
        sts_data: Path | None,
        labels: dict[str, str],
    ) -> None:
        self.tasks, self.texts, self.above, self.neighbours = tasks, texts, above, neighbours
        self.sts_data, self.labels = sts_data, labels

    @property
    def chosen(self) -> str:
        """The choices in words."""
        parts = []
        for name, subsets in self.tasks.items():
            which = "every pair" if self.above is None else f"the pairs with a gold score above {self.above:g}"
            parts.append(
                f"Alignment: {which} of {name} ({sum(map(len, subsets)):,} pairs). Uniformity: its distinct sentences."
            )
        rest = "Everything else" if self.tasks else "Everything"
        whose = f"{len(self.texts):,} distinct texts" if self.texts else "the same sentences" if self.tasks else ""
        parts.append(f"{rest}: {whose}." if whose else "")
        return " ".join(part for part in parts if part)

    def model(self, candidate: Candidate) -> tuple[Measured, Report]:
        """Measure a model."""
        from sentcli.analysis.pair_geometry import pair_geometry
        from sentcli.cli.json_report import Report
        from sentcli.evaluation import sts

        report = Report("analyze", candidate.name)
        sentences = sts.sentences(self.tasks)
        with console.encoding_texts(len({*sentences, *self.texts})) as progress:
            found = candidate.encode([*sentences, *self.texts], progress)
        score = self._sts(candidate)
        measured = [pair_geometry(found, subsets, self.above) for subsets in self.tasks.values()]
        one = self._of(candidate.name, found.of(self.texts or sentences), measured[0] if measured else None, score)
        return one, self._report(report, one, candidate)

    def vectors(self, name: str, vectors: Any) -> tuple[Measured, Report]:
        """Measure vectors that have no model here."""
        from sentcli.cli.json_report import Report

        report = Report("analyze", name)
        one = self._of(name, vectors, None, None)
        return one, self._report(report, one, None)

    def _of(self, name: str, vectors: Any, pairs: Any, score: float | None) -> Measured:
        from sentcli.analysis.summary import geometry
        from sentcli.reports.analyses.geometry import Measured

        with console.working(f"{name}: geometry of {len(vectors):,} vectors"):
            return Measured(self.labels[name], geometry(vectors, self.neighbours), pairs, score)

    @cached_property
    def _sts_tasks(self) -> dict[str, list[Pairs]]:
        """The seven tasks, read once for all models; none if they are not asked for."""
        from sentcli.data import located
        from sentcli.evaluation import sts

        return {} if self.sts_data is None else sts.load_tasks(located(self.sts_data), None, "test")

    def _sts(self, candidate: Candidate) -> float | None:
        from sentcli.evaluation import significance, sts

        if not self._sts_tasks:
            return None
        wanted = [
            sts.measurement(name, subsets, significance.DRAWS, "all") for name, subsets in self._sts_tasks.items()
        ]
        return sts.STSResult("test", tuple(candidate.measure(wanted, console.encoding_texts))).average

    def _report(self, report: Report, one: Measured, candidate: Candidate | None) -> Report:
        from sentcli.machine import environment

        described = candidate.described if candidate is not None else {}
        report.protocol = {
            "kind": "geometry",
            "pairs": list(self.tasks),
            "positives_above": self.above,
            "texts": len(self.texts) or None,
            **{key: value for key, value in described.items() if key != "device"},
        }
        report.environment = environment(described.get("device"), described.get("precision"))
        report.results = {
            **one.geometry.to_dict(),
            **(one.pairs.to_dict() if one.pairs is not None else {}),
            "sts_average": one.sts,
        }
        if candidate is not None:
            candidate.release()
        report.finish()
        return report
