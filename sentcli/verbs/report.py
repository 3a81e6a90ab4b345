"""``report``: a page of results, training runs and what is inside models."""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from sentcli import console
from sentcli.errors import InputError
from sentcli.model.options import LoadOptions
from sentcli.pages.page import Section
from sentcli.table import Table
from sentcli.verbs.declaration import Flag, Group, verb
from sentcli.verbs.kinds import shared
from sentcli.verbs.kinds.geometry import training_curves
from sentcli.verbs.kinds.objectives import term_sections
from sentcli.verbs.outcome import Outcome
from sentcli.verbs.scoring import Evaluation, ScoringOptions

if TYPE_CHECKING:
    import pandas as pd

    from sentcli.analysis.runs import RunMetrics
    from sentcli.evaluation.evaluated import EvaluatedModel
    from sentcli.evaluation.scores import ModelScores
    from sentcli.pages.systems import Pattern

MAPPED, LISTED = 2000, 5
"""Texts on a map, and pairs of a list."""
RESULTS = {
    "start_dev_spearman": "dev at the start",
    "best_dev_spearman": "best dev",
    "best_step": "at step",
    "final_dev_spearman": "last dev",
    "sts_average": "STS average",
    "held_out_perplexity": "perplexity",
    "steps": "steps",
    "sentences_per_second": "sentences/s",
}
WHOLE = ("best_step", "steps", "sentences_per_second")
"""Results that are shown as whole numbers."""


@dataclass(frozen=True)
class PageOptions:
    """How the page looks and what it calls models.

    Attributes:
        title: Of the page.
        group: Models that are seeds of one system, shown as mean and standard deviation: NAME is of models or files and
            may have *.
        name: What to call a model or file.
        bold: Mark the best of each column.
        intervals: 95 % intervals; default: in HTML only, where there is room.
    """

    title: str | None = None
    group: Annotated[list[str] | None, Flag(metavar="LABEL=NAME")] = None
    name: Annotated[list[str] | None, Flag(metavar="LABEL=NAME")] = None
    bold: bool = True
    intervals: bool | None = None


@dataclass
class Reported(Outcome):
    """A page that was written, with its tables, and the scores on it."""

    scores: list[ModelScores] = field(default_factory=list, repr=False)

    def to_frame(self) -> pd.DataFrame:
        """Return the long table of all scores: a row for each model, task and metric."""
        return Evaluation(self.scores).to_frame()

    def show(self) -> None:
        """Print nothing: the page is what there is to see."""


@verb("report")
def report(
    names: Annotated[list[str], Flag(metavar="FILE|RUN|MODEL...", positional=True)],
    output: Annotated[list[Path], Flag("-o", metavar="FILE")],
    choices: Annotated[PageOptions, Group("Page")] = PageOptions(),
    data: shared.Data = None,
    texts: shared.TextsFile = None,
    options: Annotated[LoadOptions, Group("Model", without=shared.NOT_LOADED_SO)] = LoadOptions(),
    scoring: Annotated[ScoringOptions, Group("Output")] = ScoringOptions(),
    overwrite: shared.Overwrite = False,
) -> Reported:
    """Write results, training runs and what is inside models as a page: HTML, Markdown or LaTeX.

    Of files that sts-eval, senteval and retrieve wrote with --json: rows are
    models, columns tasks. Numbers of different protocols stand in different
    tables, and each table says its protocol. Of training runs: curves, results,
    configuration and environment. Of models and finished runs: with --data the
    seven STS tasks, geometry and similarity, with --texts a map.

    Args:
        names: JSON of sts-eval, senteval or retrieve; folders of training runs; models.
        output: A .html, .md or .tex file; several are written.

    \b
    Examples:
      sentcli report sts.json senteval.json -o report.html
      sentcli report runs/simcse runs/micse minilm --data downstream --texts sentences.txt -o report.html
      sentcli report a.json b.json -o table.tex -o table.md --name "ours=runs/my-model"
      sentcli report seed-*.json minilm.json -o report.html --group "SimCSE=seed-*.json"
    """  # noqa: D301
    from sentcli.evaluation.score_files import read_scores
    from sentcli.io.atomic import check_output
    from sentcli.pages.page import Style
    from sentcli.pages.score_page import Choices, score_page, write_score_page
    from sentcli.pages.systems import Pattern
    from sentcli.pages.write import check_suffix

    reported = Reported("report")
    files, runs, named = _sort(names)
    for target in output:
        check_suffix(target)
        if target.resolve() in {file.resolve() for file in files}:
            raise InputError(f"-o {target} would replace an input; choose another file")
        check_output(target, overwrite=overwrite)
    groups = [Pattern.parse("--group", value) for value in choices.group or []]
    labels = [Pattern.parse("--name", value) for value in choices.name or []]
    scores = read_scores(files)
    measured = data is not None or texts is not None
    if named and not (measured or runs):
        raise InputError("give --data, a SentEval downstream folder, or --texts: what the models are measured on")
    models = shared.models(named, options, rerun=scoring.rerun) if measured else []
    if data is not None:
        scores += _sts_scores(models, data, scoring)
    inside = [*_of_models(models, data, texts), *(_of_runs(runs) if runs else [])]
    labels += _short_names(named, scores, [*groups, *labels])
    chosen = Choices(choices.title, tuple(groups), tuple(labels), Style(choices.bold, choices.intervals))
    write_score_page(scores, output, chosen, inside)
    console.note(f"wrote {', '.join(map(str, output))}")
    reported.scores = scores
    tables = [s.table for s in score_page(scores, chosen, inside).sections if s.table is not None and not s.folded]
    reported.finish({"files": list(map(str, output)), "scores": [each.to_dict() for each in scores]}, tables)
    return reported


def _sort(names: Sequence[str]) -> tuple[list[Path], list[Path], list[str]]:
    """Tell files of results, folders of training runs, and models apart; finished runs are models, too."""
    from sentcli.analysis.runs import is_run

    if twice := next((name for name in names if list(names).count(name) > 1), None):
        raise InputError(f"{twice} is named twice")
    files, runs, models = [], [], []
    for name in names:
        path = Path(name)
        if path.is_file() or path.suffix == ".json":
            files.append(path)
        elif path.is_dir() and is_run(path):
            runs.append(path)
            models += [name] if (path / "config.json").exists() else []
        else:
            models.append(name)
    return files, runs, models


def _short_names(models: Sequence[str], scores: Sequence[ModelScores], given: Sequence[Pattern]) -> list[Pattern]:
    """Return labels for models that are paths, unless the user calls them otherwise."""
    from sentcli.pages.systems import Pattern

    short = shared.short_names(models)
    paths = {each.model for each in scores if short.get(each.model, each.model) != each.model}
    labelled = {each.model for each in scores if any(pattern.matches(each) for pattern in given)}
    return [Pattern("--name", short[model], glob.escape(model)) for model in sorted(paths - labelled)]


def _sts_scores(models: Sequence[EvaluatedModel], data: Path, scoring: ScoringOptions) -> list[ModelScores]:
    """Score models on the seven STS tasks, as `sts_eval` does."""
    from sentcli.evaluation.scores import SIMILARITY
    from sentcli.verbs.sts_eval import score_similarity

    if not models:
        return []
    tasks = shared.sts_tasks(data)
    published = scoring.published(SIMILARITY, tasks)
    return Evaluation([score_similarity(model, tasks) for model in models]).compared(published, SIMILARITY).models


def _of_models(models: Sequence[EvaluatedModel], data: Path | None, texts: str | None) -> list[Section]:
    """Return what is inside models: their geometry, with data cosines against gold scores, with texts a map."""
    from sentcli.analysis.maps import MapSettings
    from sentcli.verbs.kinds import geometry, similarity
    from sentcli.verbs.kinds import map as mapping

    if not models:
        return []
    names = shared.short_names([model.name for model in models])
    pairs = shared.read_stsb(data, None, "dev") if data is not None else {}
    own = shared.read_texts(texts) if texts is not None else []
    inputs = geometry.GeometryInputs(pairs, own, sts=shared.sts_tasks(data) if data is not None else {})
    made = geometry.sections({names[model.name]: inputs.of_model(model).results for model in models}, inputs)
    if data is not None:
        ((name, subsets),) = shared.read_stsb(data, None, "test").items()
        scored = similarity.GoldPairs(f"{name} test", subsets, str(data), LISTED)
        for model in models:
            scored.measure(model, names[model.name])
        made += scored.sections()
    if texts is not None:
        maps = mapping.Maps(own[:MAPPED], None, MapSettings())
        for model in models:
            maps.add(model, names[model.name])
        words = f"The first {len(maps.texts):,} distinct texts of {texts}, by t-SNE; {maps.settings.clusters} clusters"
        made += maps.sections(f"{words} of k-means.")
    return made


def _of_runs(folders: Sequence[Path]) -> list[Section]:
    """Return results, curves, terms of the loss, configuration and environment of training runs."""
    from sentcli.analysis.runs import read_config, read_metrics, read_terms
    from sentcli.pages.score_page import settings_table

    short = shared.short_names([str(folder) for folder in folders])
    named = {short[str(folder)]: folder for folder in folders}
    metrics = {name: read_metrics(folder) for name, folder in named.items()}
    configs = {name: read_config(folder) for name, folder in named.items()}
    made = [Section("Training", table=_results(metrics, configs), file="training")]
    if any(run.evaluations for run in metrics.values()):
        made.append(Section("While training", figure=training_curves(metrics), level=3))
    made += term_sections({name: read_terms(folder) for name, folder in named.items() if metrics[name].steps})
    finished = {name: dict(config) for name, config in configs.items() if config}
    environments = [(name, _flat(config.pop("environment", {}))) for name, config in finished.items()]
    configured = [(name, _flat(config)) for name, config in finished.items()]
    for title, settings in (("Configuration", configured), ("Training environment", environments)):
        if settings:
            made.append(Section(title, table=settings_table(title, settings), level=3, folded=True))
    return made


def _results(metrics: Mapping[str, RunMetrics], configs: Mapping[str, Mapping[str, Any]]) -> Table:
    results = {name: {**_so_far(run), **(configs[name].get("results") or {})} for name, run in metrics.items()}
    known = [key for key in RESULTS if key != "held_out_perplexity" or any(each.get(key) for each in results.values())]
    rows = [
        {
            "run": name,
            "method": (configs[name].get("method") or {}).get("name", ""),
            **{RESULTS[key]: each[key] if isinstance(each.get(key), int | float) else None for key in known},
        }
        for name, each in results.items()
    ]
    unfinished = [name for name, config in configs.items() if not config]
    notes = (f"Not finished: {', '.join(unfinished)}.",) if unfinished else ()
    formats = {RESULTS[key]: ",.0f" for key in WHOLE}
    return Table.of_rows("What training came to (Spearman × 100)", rows, formats=formats, notes=notes)


def _so_far(metrics: RunMetrics) -> dict[str, Any]:
    """Return what can be said of a run that has not finished."""
    steps, scores = metrics.column("dev_spearman")
    results: dict[str, Any] = {"steps": metrics.steps[-1]["step"] if metrics.steps else 0}
    if scores:
        best = max(range(len(scores)), key=scores.__getitem__)
        results |= {"start_dev_spearman": scores[0], "best_dev_spearman": scores[best], "best_step": steps[best]}
    return results


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by dotted name, without the results."""
    flat: dict[str, Any] = {}
    for key, item in value.items():
        if key == "results" and not prefix:
            continue
        flat |= _flat(item, f"{prefix}{key}.") if isinstance(item, Mapping) else {f"{prefix}{key}": item}
    return flat
