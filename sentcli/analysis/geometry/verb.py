"""``analyze geometry``: its options, and what it measures of models, runs and vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from sentcli import console
from sentcli.analysis.curves import training_curves
from sentcli.analysis.folder import analysis_record, check_folder, write_folder
from sentcli.analysis.models import named_models, read_stsb, stored_vectors, sts_tasks
from sentcli.analysis.options import (
    AnalysedModels,
    AnalysedTextField,
    Data,
    Limit,
    Load,
    Output,
    PairsFile,
    Rerun,
    Seed,
    Split,
    TextsFile,
)
from sentcli.analysis.texts import TextRows, read_distinct_texts
from sentcli.bounds import Overwrite
from sentcli.command.declaration import Flag, verb
from sentcli.command.result import Clock, Record, Result
from sentcli.errors import InputError
from sentcli.model.options import LoadOptions
from sentcli.pages.names import short_names
from sentcli.pages.page import Section

if TYPE_CHECKING:
    from sentcli.analysis.runs import TrainingRun
    from sentcli.evaluation.evaluated import EvaluatedModel
    from sentcli.evaluation.sts import SimilarityTask


@verb("geometry", common="paths output model positives_above sts pooling data pairs split texts limit overwrite json")
def geometry(
    output: Output,
    paths: Annotated[list[Path] | None, Flag(metavar="[PATH]...", positional=True)] = None,
    model: AnalysedModels = None,
    data: Data = None,
    pairs: PairsFile = None,
    split: Split = "dev",
    texts: TextsFile = None,
    text_field: AnalysedTextField = "text",
    limit: Limit = 50_000,
    seed: Seed = 0,
    positives_above: Annotated[str, Flag(metavar="SCORE|all")] = "4",
    neighbours: Annotated[int, Ge(1)] = 10,
    sts: bool = True,
    load: Load = LoadOptions(),
    rerun: Rerun = False,
    overwrite: Overwrite = False,
) -> Result:
    """Alignment, uniformity, anisotropy, spectrum and hubs of models, runs or vectors.

    Alignment and uniformity (Wang and Isola) are SimCSE's: positives are the
    pairs of STS-B with a gold score above 4, uniformity is over all its distinct
    sentences. --texts measures everything but alignment on texts of yours. Models
    are drawn by both, with the STS average as colour (InforMin-CL, fig. 3). Runs
    of train --log-geometry show both over the steps (WhitenedCSE, fig. 3).

    Args:
        paths: Training runs, sweeps or folders of runs, whose curves are drawn too; or vectors: .npy, encode's folder.
        positives_above: Pairs with a higher gold score are the positives of alignment; all takes every pair.
        neighbours: Nearest neighbours that hubness counts.
        sts: Score the seven STS tasks of --data, for the colours.

    \b
    Examples:
      sentcli analyze geometry -m minilm -m runs/simcse --data downstream -o geometry
      sentcli analyze geometry runs/simcse runs/whitenedcse --data downstream -o curves
      sentcli analyze geometry vectors.npy encoded/ -o spectrum
      sentcli analyze geometry -m minilm --texts sentences.txt --pairs pairs.tsv --positives-above 0.8 -o own
    """  # noqa: D301
    from sentcli.analysis.geometry.sections import sections
    from sentcli.analysis.runs import is_run, is_study, model_folders, read_runs, renamed
    from sentcli.evaluation.studies import study_of

    check_folder(output, overwrite=overwrite)
    above = _least_gold(positives_above)
    of_runs = [path for path in paths or [] if is_run(path) or is_study(path)]
    runs = read_runs(of_runs)
    stored = {str(path): stored_vectors(path) for path in paths or [] if path not in of_runs}
    names = study_of(model or []).models
    if data or pairs or texts:
        names += model_folders(runs)
    task = read_stsb(data, pairs, split) if data or pairs else None
    rows = read_distinct_texts(texts, text_field, limit, seed=seed) if texts else None
    if model and not (task or rows):
        raise InputError("give --data or --pairs for alignment and uniformity, or --texts to measure texts of yours")
    if not (names or runs or stored):
        raise InputError("give models (-m), folders of training runs, or vectors")
    models = named_models(names, load, rerun=rerun, reused=[texts])
    of_average = sts_tasks(data) if data and sts and names else []
    inputs = GeometryInputs(task, rows, above, neighbours, of_average)
    records = [inputs.of_model(evaluated) for evaluated in models]
    for name, vectors in stored.items():
        records.append(inputs.of_vectors(name, Clock(), vectors))
    all_names = dict.fromkeys([*names, *stored, *(run.label for run in runs)])
    labels = short_names(list(all_names)).shown
    measured = {labels[record.model]: record.results for record in records}
    page_sections = sections(measured, inputs.description)
    for run in runs:
        _warn_of_missing_curves(run)
        if run.metrics and str(run.folder) not in names:
            evaluations = {"evaluations": list(run.metrics.evaluations)}
            records.append(analysis_record(str(run.folder), {"kind": "geometry"}, evaluations, Clock()))
    curves = training_curves(renamed(runs, labels))
    if curves is not None:
        page_sections.append(Section("While training", figure=curves))
    return write_folder("geometry", output, page_sections, records)


def _warn_of_missing_curves(run: TrainingRun) -> None:
    """Warn if a run logged no evaluations, or no alignment and uniformity."""
    metrics = run.metrics
    if metrics is None or not metrics.evaluations:
        console.warn(f"{run.record['run']} has no evaluation: train with --eval-data for curves")
    elif not metrics.column("uniformity")[0]:
        console.warn(f"{metrics.name} logged no alignment and uniformity: train with --log-geometry for those curves")


def _least_gold(positives_above: str) -> float | None:
    """Return the gold score of ``--positives-above``; None takes all pairs.

    Raises:
        InputError: if it is neither a number nor ``all``.
    """
    if positives_above == "all":
        return None
    try:
        return float(positives_above)
    except ValueError as error:
        raise InputError(f"--positives-above {positives_above}: expected a gold score such as 4, or all") from error


@dataclass(frozen=True)
class GeometryInputs:
    """Pairs, texts and options, the same for all models."""

    task: SimilarityTask | None
    """STS-B or a table of pairs, for alignment and uniformity."""
    rows: TextRows | None = None
    """Texts for all other measures, and for uniformity without pairs; if None, the sentences of the pairs."""
    above: float | None = 4.0
    """Pairs with a higher gold score are positives; None takes all."""
    neighbours: int = 10
    sts: Sequence[SimilarityTask] = ()
    """STS tasks, whose average colours the models."""

    @property
    def texts(self) -> list[str]:
        """The texts of `rows`."""
        return [] if self.rows is None else self.rows.texts

    @property
    def description(self) -> str:
        """The choices in words."""
        positives = "every pair"
        if self.above is not None:
            positives = f"the pairs with a gold score above {self.above:g}"
        parts = []
        measured = "Everything"
        if self.task is not None:
            of_task = f"{self.task.name} ({len(self.task):,} pairs)"
            parts.append(f"Alignment: {positives} of {of_task}. Uniformity: its distinct sentences.")
            measured = "Everything else"
        if self.rows is not None:
            parts.append(f"{measured}: {self.rows.sample.words}.")
        elif self.task is not None:
            parts.append(f"{measured}: the same sentences.")
        return " ".join(parts)

    def of_model(self, model: EvaluatedModel) -> Record:
        """Measure a model."""
        from sentcli.evaluation.pair_geometry import pair_geometry
        from sentcli.evaluation.score_kinds import SIMILARITY
        from sentcli.evaluation.scores import average

        clock = Clock()
        sentences = [] if self.task is None else self.task.texts
        texts = [*sentences, *self.texts]
        with console.encoding("encoding", len(set(texts))) as progress:
            vectors = model.encode(texts, progress)
        of_tasks = average(model.measure(self.sts), SIMILARITY, least=1)
        model.release()
        more: dict[str, Any] = {}
        if self.task is not None:
            more = asdict(pair_geometry(vectors, self.task.subsets, self.above))
        more["sts_average"] = of_tasks
        return self.of_vectors(model.name, clock, vectors.vectors_of(self.texts or sentences), model, **more)

    def of_vectors(
        self, name: str, clock: Clock, vectors: Any, model: EvaluatedModel | None = None, **more: Any
    ) -> Record:
        """Measure vectors.

        Args:
            name: of the model or the file.
            clock: from when the vectors were begun.
            vectors: ``[n, d]``.
            model: that made the vectors; None for vectors from a file.
            more: alignment and uniformity of the pairs, and the average of the STS tasks.
        """
        from sentcli.analysis.geometry.measures import measure_geometry

        with console.working(f"{name}: geometry of {len(vectors):,} vectors"):
            results = {**measure_geometry(vectors, self.neighbours), "sts_average": None, **more}
        pairs = [] if self.task is None else [self.task.name]
        protocol = {"kind": "geometry", "pairs": pairs, "positives_above": self.above, "texts": None}
        if self.rows is not None:
            protocol |= asdict(self.rows.sample)
        return analysis_record(name, protocol, results, clock, model)
