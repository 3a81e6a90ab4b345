"""What ``report`` shows of models and training runs: it measures them as the other commands do."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli.cli import analyzing, scores
from sentcli.errors import InputError

if TYPE_CHECKING:
    from sentcli.evaluation.candidate import Candidate
    from sentcli.reports.page import Section
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

    called = analyzing.labels(models)
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
    from sentcli.analysis.loss_terms import read_terms
    from sentcli.analysis.run_metrics import read_config, read_metrics
    from sentcli.figures.draw import require
    from sentcli.reports.analyses.runs import TrainedRun, run_sections

    if not wanted.models and not wanted.runs:
        return [], []
    require()
    if wanted.models and data is None and texts is None and not wanted.runs:
        raise InputError("give --data, a SentEval downstream folder, or --texts: what the models are measured on")
    logged = [(path, read_metrics(path)) for path in wanted.runs]
    trained = [TrainedRun(log, read_config(path), read_terms(path) if log.steps else None) for path, log in logged]
    candidates = loading.candidates(wanted.models) if data is not None or texts is not None else []
    objects = _scores(candidates, data, against) if data is not None else []
    sections = _inside(candidates, data, texts)
    return objects, [*sections, *(run_sections(trained) if trained else [])]


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


def _inside(candidates: Sequence[Candidate], data: Path | None, texts: str | None) -> list[Section]:
    """Return geometry, similarity and map of the models."""
    if not candidates:
        return []
    called = analyzing.labels([candidate.name for candidate in candidates])
    found = _geometry(candidates, data, texts, called)
    found += _similarity(candidates, data, called) if data is not None else []
    return [*found, *(_map(candidates, texts, called) if texts is not None else [])]


def _geometry(
    candidates: Sequence[Candidate], data: Path | None, texts: str | None, called: dict[str, str]
) -> list[Section]:
    from sentcli.analysis.pair_geometry import POSITIVE_ABOVE
    from sentcli.cli.analyze_geometry import GeometryMeasure
    from sentcli.reports.analyses.geometry import sections

    tasks = analyzing.read_stsb(data, None, "dev") if data is not None else {}
    own = analyzing.read_texts(texts) if texts is not None else []
    measure = GeometryMeasure(tasks, own, POSITIVE_ABOVE, 10, data, called)
    return sections([measure.model(candidate)[0] for candidate in candidates], [], measure.chosen)


def _similarity(candidates: Sequence[Candidate], data: Path, called: dict[str, str]) -> list[Section]:
    from sentcli.cli.analyze_similarity import joined, measured
    from sentcli.reports.analyses.similarity import sections

    ((name, subsets),) = analyzing.read_stsb(data, None, "test").items()
    pairs = joined(f"{name} test", subsets, str(data))
    found = [measured(candidate, called[candidate.name], pairs, subsets, LISTED)[0] for candidate in candidates]
    return sections(found, pairs, LISTED, f"{len(pairs.gold):,} pairs of {pairs.name}.")


def _map(candidates: Sequence[Candidate], texts: str, called: dict[str, str]) -> list[Section]:
    from sentcli.analysis.mapping import MapSettings
    from sentcli.cli.analyze_map import MapMeasure
    from sentcli.reports.analyses.map import sections

    kept, settings = analyzing.read_texts(texts, limit=MAPPED), MapSettings()
    measure = MapMeasure(kept, None, settings, None, called)
    for candidate in candidates:
        measure.model(candidate)
    chosen = f"The first {len(kept):,} distinct texts of {texts}, by t-SNE; {settings.clusters} clusters of k-means."
    return sections(measure.found, kept, None, chosen)
