"""What ``report`` shows of models and training runs: it measures them as the other commands do."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli.cli import analyzing, scores
from sentcli.errors import InputError
from sentcli.reports.page import Section
from sentcli.verbs.kinds import shared

if TYPE_CHECKING:
    from sentcli.evaluation.candidate import Candidate
    from sentcli.pages import page as pages
    from sentcli.reports.runs import Run
    from sentcli.reports.systems import Pattern

MAPPED, LISTED = 2000, 5
"""Texts on a map, and pairs of a list."""


@dataclass(frozen=True)
class Asked:
    """What the arguments of ``report`` name."""

    files: list[Path]
    """JSON of evaluations."""
    runs: list[Path]
    """Folders of training runs."""
    models: list[str]
    """Finished runs among them."""


def asked(names: Sequence[str]) -> Asked:
    """Sort the arguments into files of results, training runs and models.

    Raises:
        InputError: if a file of results is missing, or a name is given twice.
    """
    from sentcli.analysis.run_metrics import is_run

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
    return Asked(files, runs, models)


def short_names(models: Sequence[str], runs: Sequence[Run], given: Sequence[Pattern]) -> list[Pattern]:
    """Return labels for models that are paths, unless they are among those that the user calls otherwise."""
    from sentcli.reports.systems import Pattern

    called = shared.short_names(models)
    paths = {run.model for run in runs if called.get(run.model, run.model) != run.model}
    named = {run.model for run in runs if any(pattern.matches(run) for pattern in given)}
    return [Pattern("--name", called[model], glob.escape(model)) for model in sorted(paths - named)]


def measured(
    wanted: Asked, loading: analyzing.Loading, data: Path | None, texts: str | None, against: str | None
) -> tuple[list[dict[str, Any]], list[Section]]:
    """Measure models and read runs; return the JSON of their scores and the sections of what is inside.

    Args:
        wanted: models and runs.
        loading: how models are loaded.
        data: a SentEval folder, for scores, geometry and similarity; None leaves them out.
        texts: for geometry and the map.
        against: a published system.

    Raises:
        InputError: if models are named, and nothing to measure them on.
    """
    from sentcli.verbs.training_runs import run_sections

    if not wanted.models and not wanted.runs:
        return [], []
    if wanted.models and data is None and texts is None and not wanted.runs:
        raise InputError("give --data, a SentEval downstream folder, or --texts: what the models are measured on")
    trained = run_sections(wanted.runs) if wanted.runs else []
    candidates = loading.candidates(wanted.models) if data is not None or texts is not None else []
    objects = _scores(candidates, data, against) if data is not None else []
    return objects, [Section(**vars(section)) for section in [*_inside(candidates, data, texts), *trained]]


def _scores(candidates: Sequence[Candidate], data: Path, against: str | None) -> list[dict[str, Any]]:
    from sentcli.cli.sts_eval import measure
    from sentcli.data import located
    from sentcli.evaluation import significance, sts

    if not candidates:
        return []
    tasks = sts.load_tasks(located(data), None, "test")
    found = scores.system(against, "sts-eval", tasks)
    reports, results = measure(candidates, tasks, "test", significance.DRAWS)
    return scores.compared(reports, [scores.correlations(results)], found)


def _inside(candidates: Sequence[Candidate], data: Path | None, texts: str | None) -> list[pages.Section]:
    """Return geometry, similarity and map of the models."""
    if not candidates:
        return []
    names = shared.short_names([candidate.name for candidate in candidates])
    made = _geometry(candidates, data, texts, names)
    made += _similarity(candidates, data, names) if data is not None else []
    return [*made, *(_map(candidates, texts, names) if texts is not None else [])]


def _geometry(
    candidates: Sequence[Candidate], data: Path | None, texts: str | None, names: dict[str, str]
) -> list[pages.Section]:
    from sentcli.verbs.kinds import geometry

    pairs = shared.read_stsb(data, None, "dev") if data is not None else {}
    own = shared.read_texts(texts) if texts is not None else []
    measured = geometry.Measured(pairs, own, sts=shared.sts_tasks(data) if data is not None else {})
    rows = {names[each.name]: geometry.of_model(each, measured).results for each in candidates}
    return geometry.sections(rows, measured)


def _similarity(candidates: Sequence[Candidate], data: Path, names: dict[str, str]) -> list[pages.Section]:
    from sentcli.verbs.kinds import similarity

    ((name, subsets),) = shared.read_stsb(data, None, "test").items()
    pairs = similarity.ScoredPairs.of(f"{name} test", subsets, str(data), LISTED)
    rows, cosines = {}, {}
    for each in candidates:
        label = names[each.name]
        cosines[label], report = similarity.measure(each, pairs)
        rows[label] = report.results
    return similarity.sections(rows, cosines, pairs, f"{len(pairs.gold):,} pairs of {pairs.name}.")


def _map(candidates: Sequence[Candidate], texts: str, names: dict[str, str]) -> list[pages.Section]:
    from sentcli.analysis.mapping import MapSettings
    from sentcli.verbs.kinds import map as mapping

    maps = mapping.Maps(shared.read_texts(texts, limit=MAPPED), MapSettings())
    for each in candidates:
        maps.add(each, names[each.name])
    words = f"The first {len(maps.texts):,} distinct texts of {texts}, by t-SNE; {maps.settings.clusters} clusters of "
    return mapping.sections(maps, f"{words}k-means.")
