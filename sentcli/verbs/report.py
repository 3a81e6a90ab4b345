"""``report``: a page of results, training runs and what is inside models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from sentcli import console
from sentcli.bounds import Holds
from sentcli.command.declaration import Flag, Group, verb
from sentcli.command.result import Clock, Record, Result
from sentcli.command.scoring import with_comparisons
from sentcli.errors import InputError
from sentcli.evaluation.options import ScoringOptions
from sentcli.io.options import Overwrite
from sentcli.model.options import LoadOptions
from sentcli.pages.page import Section
from sentcli.table import Table, flat
from sentcli.verbs.kinds import shared
from sentcli.verbs.kinds.geometry import training_curves
from sentcli.verbs.kinds.objectives import term_sections

if TYPE_CHECKING:
    from sentcli.analysis.runs import RunMetrics
    from sentcli.evaluation.evaluated import EvaluatedModel
    from sentcli.evaluation.scores import ModelScores
    from sentcli.training.records import Summary

RESULTS = {
    "start": "dev at the start",
    "best": "best dev",
    "best_step": "at step",
    "final": "last dev",
    "sts_average": "STS average",
    "senteval_average": "transfer average",
    "held_out_perplexity": "perplexity",
    "steps": "steps",
    "sentences_per_second": "sentences/s",
}
AT_THE_END = ("senteval_average", "held_out_perplexity")
"""Results that only some runs have, whose columns are left out where none has them."""
WHOLE_NUMBERS = ("best_step", "steps", "sentences_per_second")
"""Results that are shown without decimals."""


@dataclass(frozen=True)
class PageOptions:
    """The look of the page and the labels of models.

    Attributes:
        title: Title of the page.
        group: Models or files that are seeds of one system, shown as mean and deviation; NAME may have *.
        name: Label of a model or file.
        bold: Mark the best of each column.
        intervals: 95 % intervals; default: in HTML only.
        only: Tables of scores alone, for another document.
    """

    title: Annotated[str | None, Holds.WORDS] = None
    group: Annotated[list[str] | None, Holds.WORDS, Flag(metavar="LABEL=NAME")] = None
    name: Annotated[list[str] | None, Holds.WORDS, Flag(metavar="LABEL=NAME")] = None
    bold: bool = True
    intervals: bool | None = None
    only: Literal["scores"] | None = None


@verb("report")
def report(
    names: Annotated[list[str] | None, Flag(metavar="FILE|RUN|MODEL...", positional=True)] = None,
    output: Annotated[list[Path] | None, Flag("-o", metavar="FILE")] = None,
    paper: Annotated[
        str | None, Holds.PAPER, Flag(metavar="NAME", excludes="names data texts group name title")
    ] = None,
    choices: Annotated[PageOptions, Group("Page")] = PageOptions(),
    data: shared.Data = None,
    texts: shared.TextsFile = None,
    text_field: shared.TextField = "text",
    options: Annotated[LoadOptions, Group("Model", without=shared.NOT_LOADED_SO)] = LoadOptions(),
    scoring: Annotated[ScoringOptions, Group("Output")] = ScoringOptions(),
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
    from sentcli.analysis.sweeps import read_runs
    from sentcli.evaluation.published import with_titles
    from sentcli.evaluation.score_files import model_json, read_scores
    from sentcli.evaluation.scores import long_rows
    from sentcli.pages.page import Style
    from sentcli.pages.score_page import Choices, score_page, shown_names, write_score_page
    from sentcli.pages.systems import Pattern
    from sentcli.pages.write import check_pages
    from sentcli.training.records import summarize

    targets = output or []
    check_pages(targets, overwrite=overwrite)
    if paper is not None:
        return _paper(paper, targets)
    if not names or not targets:
        raise InputError("give results, runs or models and -o FILE, or --paper NAME")
    clock = Clock()
    files, runs, sweeps, model_names = _sort(names)
    for target in targets:
        if target.resolve() in {file.resolve() for file in files}:
            raise InputError(f"-o {target} would replace an input; choose another file")
    groups = [Pattern.parse("--group", value) for value in choices.group or []]
    labels = [Pattern.parse("--name", value) for value in choices.name or []]
    scores = with_titles(read_scores(files))
    has_inputs = data is not None or texts is not None
    if model_names and not (has_inputs or runs):
        raise InputError("give --data, a SentEval downstream folder, or --texts: what the models are measured on")
    rows = shared.read_rows(texts, text_field) if texts is not None else None
    models = shared.models(model_names, options, rerun=scoring.rerun, kept=[texts]) if has_inputs else []
    if data is not None and models:
        scores += _sts_scores(models, data, scoring)
    summaries = {_sweep_name(path): summarize(run.record for run in read_runs([path])) for path in sweeps}
    of_sweeps = [_sweep_section(name, points) for name, points in summaries.items()]
    bare = choices.only is not None
    if bare and not (scores or of_sweeps):
        raise InputError(f"--only scores: there are none in {', '.join(names)}")
    more_names = () if bare else tuple(dict.fromkeys([*model_names, *map(str, runs)]))
    style = Style(choices.bold, choices.intervals)
    page_choices = Choices(choices.title, tuple(groups), tuple(labels), style, bare=bare, more_names=more_names)
    shown = shown_names(scores, page_choices).shown
    of_runs, summary = _run_sections(runs, shown) if runs and not bare else ([], ())
    page_choices = replace(page_choices, summary=summary)
    of_models = [] if bare else _model_sections(models, shown, data, texts, rows)
    more_sections = [*of_sweeps, *of_models, *of_runs]
    write_score_page(scores, targets, page_choices, more_sections)
    console.note(f"wrote {', '.join(map(str, targets))}")
    results: dict[str, Any] = {"files": list(map(str, targets)), "scores": [model_json(score) for score in scores]}
    if summaries:
        results["sweeps"] = {name: [point.to_dict() for point in points] for name, points in summaries.items()}
    write = partial(write_score_page, scores, choices=page_choices, more=more_sections)
    return Result.of(
        Record("report", results=results, seconds=clock.seconds),
        sections=score_page(scores, page_choices, more_sections).sections,
        rows=long_rows(scores),
        write_page=write if scores else None,
        on_console=False,
    )


def _sts_scores(models: Sequence[EvaluatedModel], data: Path, scoring: ScoringOptions) -> list[ModelScores]:
    """Return the scores of models on the seven STS tasks of a SentEval folder, compared."""
    from sentcli.evaluation.score_kinds import SIMILARITY
    from sentcli.verbs.sts_eval import score_similarity

    tasks = shared.sts_tasks(data)
    published = scoring.published(SIMILARITY, tasks)
    measured = [score_similarity(model, tasks) for model in models]
    return with_comparisons(measured, published, SIMILARITY)


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


def _sort(names: Sequence[str]) -> tuple[list[Path], list[Path], list[Path], list[str]]:
    """Return files of results, folders of training runs, sweeps, and models; a finished run is a model, too."""
    from sentcli.analysis.runs import is_run
    from sentcli.evaluation.mteb_results import holds_mteb
    from sentcli.model.spec_files import is_model_folder
    from sentcli.training.records import RESULTS_FILE

    if twice := next((name for name in names if list(names).count(name) > 1), None):
        raise InputError(f"{twice} is named twice")
    files, runs, sweeps, models = [], [], [], []
    for name in names:
        path = Path(name)
        if (path.is_file() and path.suffix == ".jsonl") or (path / RESULTS_FILE).is_file():
            sweeps.append(path)
        elif path.is_file() or path.suffix == ".json" or (path.is_dir() and holds_mteb(path)):
            files.append(path)
        elif path.is_dir() and is_run(path):
            runs.append(path)
            models += [name] if is_model_folder(path) else []
        else:
            models.append(name)
    return files, runs, sweeps, models


def _sweep_name(path: Path) -> str:
    """Return the name of a sweep's folder, of which a path may name the file of results."""
    return (path.parent if path.is_file() else path).resolve().name


def _sweep_section(name: str, points: Sequence[Summary]) -> Section:
    """Return the table of a sweep, which `train` prints at its end: mean and standard deviation of each point."""
    from sentcli.training.view import sweep_table

    runs = sum(len(point.runs) for point in points)
    return Section(f"Sweep {name}", table=sweep_table(f"Sweep {name}: {runs:,} runs", points))


def _model_sections(
    models: Sequence[EvaluatedModel],
    names: Mapping[str, str],
    data: Path | None,
    texts: str | None,
    rows: shared.TextRows | None,
) -> list[Section]:
    """Return the geometry of models; with data also cosines against gold scores, and with texts maps of them.

    Args:
        models: to measure.
        names: what is shown of their names.
        data: SentEval's folder.
        texts: the file of texts.
        rows: its distinct texts; None without the file.
    """
    from sentcli.analysis.maps import MapSettings
    from sentcli.verbs.kinds import geometry, similarity
    from sentcli.verbs.kinds import map as mapping
    from sentcli.verbs.kinds.map_texts import MapTexts

    if not models:
        return []
    pairs = shared.read_stsb(data, None, "dev") if data is not None else {}
    inputs = geometry.GeometryInputs(pairs, rows, sts=shared.sts_tasks(data) if data is not None else {})
    sections = geometry.sections({names[model.name]: inputs.of_model(model).results for model in models}, inputs)
    if data is not None:
        ((name, subsets),) = shared.read_stsb(data, None, "test").items()
        # pairs in each list of the section on similarity
        gold_pairs = similarity.GoldPairs(f"{name} test", subsets, str(data), 5)
        for model in models:
            gold_pairs.measure(model, names[model.name])
        sections += gold_pairs.sections()
    if rows is not None:
        settings = MapSettings()
        mapped = rows.drawn(2000, settings.seed)
        maps = mapping.Maps(MapTexts([row.id for row in mapped.first.values()], mapped.texts, mapped.sample), settings)
        for model in models:
            maps.add(names[model.name], model)
        note = f"{mapped.sample.words} of {texts}, by t-SNE; {settings.clusters} clusters of k-means."
        sections += maps.sections(note)
    return sections


def _run_sections(folders: Sequence[Path], names: Mapping[str, str]) -> tuple[list[Section], tuple[str, ...]]:
    """Return results, curves, terms of the loss, configuration and environment of training runs, and a summary.

    Args:
        folders: the runs.
        names: what is shown of their names.
    """
    from sentcli.analysis.runs import read_config, read_metrics, read_terms
    from sentcli.pages.score_page import choices_table

    runs = {names[str(folder)]: folder for folder in folders}
    metrics = {name: read_metrics(folder) for name, folder in runs.items()}
    configs = {name: read_config(folder) for name, folder in runs.items()}
    table, summary = _results(metrics, configs)
    sections = [Section("Training", table=table, file="training")]
    if any(run.evaluations for run in metrics.values()):
        sections.append(Section("While training", figure=training_curves(metrics), level=3))
    sections += term_sections({name: read_terms(folder) for name, folder in runs.items() if metrics[name].steps})
    finished = {name: dict(config) for name, config in configs.items() if config}
    environments = [(name, flat(config.pop("environment", {}))) for name, config in finished.items()]
    configurations = [(name, flat(config | {"results": {}})) for name, config in finished.items()]
    for title, of_runs in (("Configuration", configurations), ("Training environment", environments)):
        if of_runs:
            sections.append(Section(title, table=choices_table(title, of_runs), level=3, folded=True))
    return sections, (summary,)


def _results(metrics: Mapping[str, RunMetrics], configs: Mapping[str, Mapping[str, Any]]) -> tuple[Table, str]:
    """Return the table of results, and a sentence that names the best run."""
    from sentcli.training.observer import STSB_DEV, shown

    results = {name: _results_of(run, configs[name].get("results") or {}) for name, run in metrics.items()}
    measures = {name: values.get("metric", STSB_DEV[1]) for name, values in results.items()}
    known = {key for values in results.values() for key, value in values.items() if value is not None}
    keys = [key for key in RESULTS if key in known or key not in AT_THE_END]
    rows = [
        {
            "run": name,
            "method": (configs[name].get("method") or {}).get("name", ""),
            "dev metric": None if values.get("best") is None else measures[name].replace("_", " "),
            **{RESULTS[key]: values[key] if isinstance(values.get(key), int | float) else None for key in keys},
        }
        for name, values in results.items()
    ]
    unfinished = [name for name, config in configs.items() if not config]
    notes = ["Spearman correlations are times 100."]
    notes += [f"Not finished: {', '.join(unfinished)}."] if unfinished else []
    places = ".2f" if set(measures.values()) == {STSB_DEV[1]} else ".4f"
    formats = {RESULTS[key]: places for key in ("start", "best", "final")}
    formats |= {RESULTS[key]: ",.0f" for key in WHOLE_NUMBERS}
    scored = {name: values["best"] for name, values in results.items() if values.get("best") is not None}
    summary = f"{len(rows)} training run{'s' if len(rows) > 1 else ''}"
    if scored and len({(results[name].get("name"), measures[name]) for name in scored}) == 1:
        best = max(scored.values())
        of = ", ".join(name for name, score in scored.items() if score == best)
        metric = next(measures[name] for name in scored)
        summary += f": the best score on the dev set is {shown(metric, best)} ({metric.replace('_', ' ')}), of {of}"
    return Table.of_rows("What training came to", rows, formats=formats, notes=notes), f"{summary}."


def _results_of(metrics: RunMetrics, results: Mapping[str, Any]) -> dict[str, Any]:
    """Return the results of a run with the scores on the dev set that decides, before its end those of its metrics."""
    from sentcli.training.observer import with_dev_scores

    if results:
        return with_dev_scores(results)
    so_far: dict[str, Any] = {"steps": metrics.steps[-1]["step"] if metrics.steps else 0}
    key = next((key for line in metrics.evaluations for key in line if key.startswith("dev_")), None)
    steps, scores = metrics.column(key) if key else ([], [])
    if scores:
        best = max(range(len(scores)), key=scores.__getitem__)
        so_far |= {"start": scores[0], "best": scores[best], "best_step": steps[best]}
        so_far["metric"] = str(key).removeprefix("dev_")
    return so_far
