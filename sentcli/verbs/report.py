"""``report``: a page of results, training runs and what is inside models."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from sentcli import console
from sentcli.errors import InputError
from sentcli.model.options import LoadOptions
from sentcli.verbs.declaration import Flag, Group, verb
from sentcli.verbs.kinds import shared
from sentcli.verbs.scoring import ScoringOptions

if TYPE_CHECKING:
    import pandas as pd

    from sentcli.evaluation.evaluated import EvaluatedModel
    from sentcli.evaluation.scores import ModelScores
    from sentcli.pages.page import Page, Section
    from sentcli.pages.systems import Pattern

MAPPED, LISTED = 2000, 5
"""Texts on a map, and pairs of a list."""


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


@dataclass(frozen=True)
class Reported:
    """A page that was written, and the scores on it."""

    page: Page
    files: Sequence[Path]
    scores: Sequence[ModelScores]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON: the files, and every score as its command writes it."""
        return {
            "command": "report",
            "model": "",
            "protocol": {},
            "results": {"files": [str(file) for file in self.files], "scores": [s.to_dict() for s in self.scores]},
            "environment": {},
        }

    def to_frame(self) -> pd.DataFrame:
        """Return the long table of all scores: a row for each model, task and metric."""
        import pandas as pd

        return pd.DataFrame([row for scores in self.scores for row in scores.rows()])

    def show(self) -> None:
        """Print nothing: the page is what there is to see."""

    def _repr_html_(self) -> str:
        """Show the tables of the page in a notebook."""
        return "".join(s.table._repr_html_() for s in self.page.sections if s.table is not None and not s.folded)


@dataclass(frozen=True)
class Named:
    """What the arguments of ``report`` name."""

    files: list[Path]
    """JSON of evaluations."""
    runs: list[Path]
    """Folders of training runs."""
    models: list[str]
    """Models, finished runs among them."""


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

    named = _sort(names)
    for target in output:
        check_suffix(target)
        if target.resolve() in {file.resolve() for file in named.files}:
            raise InputError(f"-o {target} would replace an input; choose another file")
        check_output(target, overwrite=overwrite)
    groups = [Pattern.parse("--group", value) for value in choices.group or []]
    labels = [Pattern.parse("--name", value) for value in choices.name or []]
    scores = read_scores(named.files)
    if named.models and data is None and texts is None and not named.runs:
        raise InputError("give --data, a SentEval downstream folder, or --texts: what the models are measured on")
    models = shared.models(named.models, options, rerun=scoring.rerun) if data is not None or texts is not None else []
    if data is not None:
        scores += _sts_scores(models, data, scoring)
    inside = _inside(models, named.runs, data, texts)
    labels += _short_names(named.models, scores, [*groups, *labels])
    chosen = Choices(choices.title, tuple(groups), tuple(labels), Style(choices.bold, choices.intervals))
    write_score_page(scores, output, chosen, inside)
    console.note(f"wrote {', '.join(map(str, output))}")
    return Reported(score_page(scores, chosen, inside), output, scores)


def _sort(names: Sequence[str]) -> Named:
    """Tell files of results, training runs and models apart."""
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
    return Named(files, runs, models)


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
    from sentcli.verbs.scoring import Evaluation
    from sentcli.verbs.sts_eval import score_similarity

    if not models:
        return []
    tasks = shared.sts_tasks(data)
    published = scoring.published(SIMILARITY, tasks)
    return Evaluation([score_similarity(model, tasks) for model in models]).compared(published, SIMILARITY).models


def _inside(
    models: Sequence[EvaluatedModel], runs: Sequence[Path], data: Path | None, texts: str | None
) -> list[Section]:
    """Return what is inside models and runs: geometry, similarity, a map; results and curves of trainings."""
    from sentcli.verbs.training_runs import run_sections

    names = shared.short_names([model.name for model in models])
    sections: list[Section] = []
    if models:
        sections += _geometry(models, data, texts, names)
        sections += _similarity(models, data, names) if data is not None else []
        sections += _map(models, texts, names) if texts is not None else []
    return [*sections, *(run_sections(runs) if runs else [])]


def _geometry(
    models: Sequence[EvaluatedModel], data: Path | None, texts: str | None, names: dict[str, str]
) -> list[Section]:
    from sentcli.verbs.kinds import geometry

    pairs = shared.read_stsb(data, None, "dev") if data is not None else {}
    own = shared.read_texts(texts) if texts is not None else []
    inputs = geometry.GeometryInputs(pairs, own, sts=shared.sts_tasks(data) if data is not None else {})
    return geometry.sections({names[model.name]: inputs.of_model(model).results for model in models}, inputs)


def _similarity(models: Sequence[EvaluatedModel], data: Path, names: dict[str, str]) -> list[Section]:
    from sentcli.verbs.kinds import similarity

    ((name, subsets),) = shared.read_stsb(data, None, "test").items()
    pairs = similarity.GoldPairs(f"{name} test", subsets, str(data), LISTED)
    for model in models:
        pairs.measure(model, names[model.name])
    return pairs.sections()


def _map(models: Sequence[EvaluatedModel], texts: str, names: dict[str, str]) -> list[Section]:
    from sentcli.analysis.maps import MapSettings
    from sentcli.verbs.kinds import map as mapping

    maps = mapping.Maps(shared.read_texts(texts, limit=MAPPED), None, MapSettings())
    for model in models:
        maps.add(model, names[model.name])
    words = f"The first {len(maps.texts):,} distinct texts of {texts}, by t-SNE; {maps.settings.clusters} clusters of "
    return maps.sections(f"{words}k-means.")
