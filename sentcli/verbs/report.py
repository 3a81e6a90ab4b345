"""``report``: a page of results, training runs and what is inside models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from sentcli import console
from sentcli.analysis.models import named_models, sts_tasks
from sentcli.analysis.options import NOT_LOADED_SO, AnalysedTextField, Data, TextsFile
from sentcli.analysis.texts import read_distinct_texts
from sentcli.bounds import Holds, Overwrite
from sentcli.command.declaration import Flag, Group, verb
from sentcli.command.result import Clock, Record, Result
from sentcli.command.scoring import with_published
from sentcli.errors import InputError
from sentcli.evaluation.options import ScoringOptions
from sentcli.model.options import LoadOptions
from sentcli.pages.options import PageOptions
from sentcli.pages.page import Section

if TYPE_CHECKING:
    from sentcli.analysis.runs import TrainingRun
    from sentcli.evaluation.evaluated import EvaluatedModel
    from sentcli.evaluation.scores import ModelScores
    from sentcli.pages.score_page import Choices
    from sentcli.training.records import Summary


@verb("report")
def report(
    names: Annotated[list[str] | None, Flag(metavar="FILE|RUN|MODEL...", positional=True)] = None,
    output: Annotated[list[Path] | None, Flag("-o", metavar="FILE")] = None,
    paper: Annotated[
        str | None, Holds.PAPER, Flag(metavar="NAME", excludes="names data texts group name title")
    ] = None,
    choices: Annotated[PageOptions, Group("Page")] = PageOptions(),
    data: Data = None,
    texts: TextsFile = None,
    text_field: AnalysedTextField = "text",
    options: Annotated[LoadOptions, Group("Model", without=NOT_LOADED_SO)] = LoadOptions(),
    scoring: Annotated[ScoringOptions, Group("Output", without=["group"])] = ScoringOptions(),
    overwrite: Overwrite = False,
) -> Result:
    """Write results, training runs and what is inside models as a page: HTML, Markdown or LaTeX.

    Of files that sts-eval, senteval, retrieve and evaluate wrote with --json:
    rows are models, columns tasks. Numbers of different protocols stand in
    different tables, and each table says its protocol. Of training runs:
    curves, results, configuration and environment; of a sweep (its folder or
    results.jsonl) its table. Of models and finished runs: with --data the seven
    STS tasks, geometry and similarity, with --texts a map.
    --paper shows a paper's tables, figures and settings with their commands.

    Args:
        names: JSON of sts-eval, senteval, retrieve, evaluate; results of mteb; training runs; sweeps; models.
        output: A .html, .md or .tex file; several are written.
        paper: informin-cl, micse, infocse, is-bert or whitenedcse: what of it can be repeated, and what cannot.

    \b
    Examples:
      sentcli report sts.json senteval.json -o report.html
      sentcli report runs/simcse runs/micse minilm --data downstream --texts sentences.txt -o report.html
      sentcli report a.json b.json -o table.tex --only scores --name "ours=runs/my-model"
      sentcli report seed-*.json minilm.json -o report.html --group "SimCSE=seed-*.json"
      sentcli report --paper micse
    """  # noqa: D301
    from sentcli.analysis.model_sections import model_sections
    from sentcli.analysis.run_sections import run_sections, study_points, study_sections
    from sentcli.analysis.runs import model_folders, read_runs, renamed
    from sentcli.evaluation.published import with_titles
    from sentcli.evaluation.score_files import read_scores
    from sentcli.pages.score_page import shown_names
    from sentcli.pages.thresholds import threshold_sections
    from sentcli.pages.write import check_pages

    targets = output or []
    check_pages(targets, overwrite=overwrite)
    if paper is not None:
        return _paper(paper, targets)
    if not names or not targets:
        raise InputError("give results, runs or models and -o FILE, or --paper NAME")
    clock = Clock()
    inputs = ReportInputs.of(names)
    inputs.check_kept(targets)
    scores = with_titles(read_scores(inputs.files))
    runs = read_runs(inputs.runs)
    has_data = data is not None or texts is not None
    if inputs.models and not (has_data or runs):
        raise InputError("give --data, a SentEval downstream folder, or --texts: what the models are measured on")
    rows = None
    if texts is not None:
        rows = read_distinct_texts(texts, text_field)
    models = []
    if has_data:
        models = named_models([*inputs.models, *model_folders(runs)], options, rerun=scoring.rerun, reused=[texts])
    if data is not None and models:
        scores += _sts_scores(models, data, scoring)
    runs, page = _grouped(runs, scores, choices.of_page())
    points = study_points(runs)
    if page.tables_only and not (scores or points):
        raise InputError(f"--only scores: there are none in {', '.join(names)}")
    more_sections = study_sections(points)
    if not page.tables_only:
        own_names = [run.label for run in runs if not run.study]
        page = replace(page, more_names=tuple(dict.fromkeys([*(model.name for model in models), *own_names])))
        shown = shown_names(scores, page).shown
        runs = renamed(runs, shown)
        of_runs: list[Section] = []
        if runs:
            of_runs, summary = run_sections(runs)
            page = replace(page, summary=(summary,))
        more_sections += threshold_sections(scores, shown)
        more_sections += model_sections({shown[model.name]: model for model in models}, data, texts, rows)
        more_sections += of_runs
    return _result(scores, points, targets, page, more_sections, clock)


def _grouped(
    runs: Sequence[TrainingRun], scores: Sequence[ModelScores], page: Choices
) -> tuple[list[TrainingRun], Choices]:
    """Return the runs with the labels of ``--group``, and the page with the systems of the studies as groups of scores.

    Raises:
        InputError: if a group matches no model, no file and no run.
    """
    from sentcli.command.scoring import choices_of
    from sentcli.evaluation.studies import Study
    from sentcli.evaluation.systems import check_patterns

    names: list[Sequence[str]] = [of_model.names for of_model in scores]
    folders = [str(run.folder) for run in runs if run.folder]
    check_patterns(page.groups, [*names, *([folder] for folder in folders)])
    labelled = []
    labels = {}
    for run in runs:
        name = str(run.folder)
        groups = [group for group in page.groups if run.folder and group.matches([name])]
        if groups:
            run = replace(run, label=groups[0].label)
        elif run.study:
            labels[name] = run.label
        labelled.append(run)
    return labelled, replace(page, groups=choices_of(Study([], labels, page.groups), scores).groups)


def _result(
    scores: Sequence[ModelScores],
    studies: Mapping[str, Sequence[Summary]],
    targets: Sequence[Path],
    page: Choices,
    more_sections: Sequence[Section],
    clock: Clock,
) -> Result:
    """Write the page of scores and of more sections, and return it with the scores and the points of studies."""
    from sentcli.evaluation.score_json import model_json
    from sentcli.evaluation.scores import long_rows
    from sentcli.pages.score_page import score_page, write_score_page

    write_score_page(scores, targets, page, more_sections)
    files = list(map(str, targets))
    console.note(f"wrote {', '.join(files)}")
    results = {"files": files, "scores": [model_json(of_model) for of_model in scores]}
    points_by_sweep = {}
    for name, points in studies.items():
        points_by_sweep[name] = [point.to_dict() for point in points]
    if points_by_sweep:
        results["sweeps"] = points_by_sweep

    def write(_: Sequence[ModelScores], files: Sequence[Path]) -> None:
        write_score_page(scores, files, page, more_sections)

    return Result.of(
        Record("report", results=results, seconds=clock.seconds),
        sections=score_page(scores, page, more_sections).sections,
        rows=long_rows(scores),
        write_page=write if scores else None,
        on_console=False,
    )


@dataclass(frozen=True)
class ReportInputs:
    """What a report is made of.

    Attributes:
        files: Files and folders of results.
        runs: Training runs, and what holds several: sweeps, their files of results, folders of runs, patterns of such.
        models: Models that are no runs.
    """

    files: list[Path]
    runs: list[str]
    models: list[str]

    @classmethod
    def of(cls, names: Sequence[str]) -> ReportInputs:
        """Sort the names.

        Raises:
            InputError: if one is named twice.
        """
        from sentcli.analysis.runs import is_run, is_study
        from sentcli.evaluation.mteb_results import holds_mteb

        repeated = next((name for name in names if list(names).count(name) > 1), None)
        if repeated is not None:
            raise InputError(f"{repeated} is named twice")
        inputs = cls([], [], [])
        for name in names:
            path = Path(name)
            if is_study(name) or (path.is_dir() and is_run(path)):
                inputs.runs.append(name)
            elif path.is_file() or path.suffix == ".json" or (path.is_dir() and holds_mteb(path)):
                inputs.files.append(path)
            else:
                inputs.models.append(name)
        return inputs

    def check_kept(self, targets: Sequence[Path]) -> None:
        """Refuse to replace a file of results by a page.

        Raises:
            InputError: if one of the pages is such a file.
        """
        files = {file.resolve() for file in self.files}
        for target in targets:
            if target.resolve() in files:
                raise InputError(f"-o {target} would replace an input; choose another file")


def _sts_scores(models: Sequence[EvaluatedModel], data: Path, scoring: ScoringOptions) -> list[ModelScores]:
    """Return the scores of models on the seven STS tasks of a SentEval folder, compared."""
    from sentcli.evaluation import sts
    from sentcli.evaluation.measuring import score_model
    from sentcli.evaluation.score_kinds import SIMILARITY
    from sentcli.evaluation.significance import RESAMPLES
    from sentcli.pages.score_report import ScoreReport

    tasks = sts_tasks(data)
    published = scoring.published(SIMILARITY, [task.name for task in tasks])
    protocol = sts.similarity_protocol("all", "test", RESAMPLES)
    measured = [score_model(model, tasks, "sts-eval", protocol) for model in models]
    scores = with_published(measured, published, SIMILARITY)
    return ScoreReport.of(scores).with_differences(scores)


def _paper(name: str, targets: Sequence[Path]) -> Result:
    """Return the items of a paper, and write them as pages."""
    from sentcli.evaluation.papers import load_paper
    from sentcli.pages.paper_page import paper_page, script
    from sentcli.pages.write import write_page

    clock = Clock()
    paper = load_paper(name)
    page = paper_page([paper], f"{paper.title}: the paper's tables")
    for target in targets:
        write_page(page, target)
    if targets:
        console.note(f"wrote {', '.join(map(str, targets))}")
    items = [item.model_dump() for item in paper.item]
    about = {"paper": paper.name, "title": paper.title, "reference": paper.reference}
    results = {"files": list(map(str, targets)), **about, "counts": paper.counts(), "items": items}
    return Result.of(
        Record("report", results=results, seconds=clock.seconds),
        sections=page.sections,
        rows=items,
        verdict="\n".join(script(paper)),
        on_console=not targets,
    )
