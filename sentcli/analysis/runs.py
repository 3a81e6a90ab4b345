"""Training runs: their folders with the log (``metrics.jsonl``) and the configuration, and the lines of sweeps."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from operator import methodcaller
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from sentcli.errors import DataError, InputError
from sentcli.evaluation.studies import labels_of, run_folders, runs_in
from sentcli.io.atomic import regular
from sentcli.io.forms import Plain, checked, read_json
from sentcli.model.spec_files import is_model_folder
from sentcli.seeds import told_apart
from sentcli.training.records import (
    CONFIG_FILE,
    IDENTITY_FILE,
    METRICS_FILE,
    RESULTS_FILE,
    Identity,
    parsed,
    read_results,
    record_facts,
)

SEEDS = ("seed", "subset_seed")
DEV = "dev_"
"""How the names of scores on dev sets begin in the log of a run."""


@dataclass(frozen=True)
class RunMetrics:
    """The lines of the log of one run, in order."""

    name: str
    steps: tuple[dict[str, Any], ...]
    """Lines of optimiser steps."""
    evaluations: tuple[dict[str, Any], ...]
    """Lines of evaluations on the dev set and on held-out text."""

    def column(self, key: str) -> tuple[list[int], list[float]]:
        """Return the steps and the values of a key, of those lines that have a number for it."""
        steps = []
        values = []
        for line in (*self.steps, *self.evaluations):
            value = line.get(key)
            if isinstance(value, int | float):
                steps.append(line["step"])
                values.append(value)
        return steps, values


def is_run(path: Path) -> bool:
    """Tell whether a folder is that of a training run, finished or not."""
    return (path / METRICS_FILE).is_file() or (path / IDENTITY_FILE).is_file()


def read_metrics(folder: Path) -> RunMetrics:
    """Read the log of a run; an incomplete last line is ignored.

    Raises:
        InputError: if the folder has no log, or it is empty; DataError for a damaged line.
    """
    path = folder / METRICS_FILE
    try:
        regular(path)
        records = parsed(path.read_bytes(), path)
    except OSError as error:
        raise InputError(f"{folder} has no {METRICS_FILE}: it is not the folder of a training run") from error
    if not records:
        raise InputError(f"{path} is empty: the run has not made a step")
    steps = []
    evaluations = []
    for line in records:
        if "loss" in line:
            steps.append(line)
        else:
            evaluations.append(line)
    return RunMetrics(folder.name or str(folder), tuple(steps), tuple(evaluations))


class RunConfig(BaseModel):
    """The parts of the configuration of a run that are read; each is a table of values by name."""

    method: dict[str, Plain] = {}
    settings: dict[str, Plain] = {}
    results: dict[str, Plain] = {}
    start_model: dict[str, Plain] = {}
    encoder: dict[str, Plain] = {}
    environment: dict[str, Plain] = {}
    data: list[dict[str, Plain]] = []


def _read_config(folder: Path) -> dict[str, Any]:
    """Return the configuration of a finished run; empty if the run has not finished.

    Raises:
        InputError: if it is no JSON, or of another form.
    """
    path = folder / CONFIG_FILE
    config = read_json(path, default={})
    checked(RunConfig, config, path)
    return dict(config)


@dataclass(frozen=True)
class TrainingRun:
    """One training run: what decided it and what came of it, and its folder where that is there."""

    record: Mapping[str, Any]
    """The line of the run in ``results.jsonl``, or what would stand there."""
    folder: Path | None = None
    study: str = ""
    """The name of the sweep or the folder of runs that it belongs to; empty for a run by itself."""
    label: str = ""
    """The name of its system, which it shares with the runs of other seeds."""

    @cached_property
    def metrics(self) -> RunMetrics | None:
        """The log; None if it is gone, or the method trains without steps."""
        if self.folder is None or not os.path.lexists(self.folder / METRICS_FILE):
            return None
        return read_metrics(self.folder)

    @cached_property
    def config(self) -> dict[str, Any]:
        """The configuration; empty if the run has not finished, or its folder is gone."""
        if self.folder is None:
            return {}
        return _read_config(self.folder)

    @property
    def facts(self) -> dict[str, Any]:
        """What decides the training besides its seed."""
        return record_facts(self.record)

    @property
    def point(self) -> dict[str, Any]:
        """The method and the settings that its sweep varied, without seeds."""
        varied = {key: value for key, value in self.record["point"].items() if key not in SEEDS}
        return {"method": self.record["method"], **varied}

    @property
    def sentences(self) -> int:
        """The number of sentences that it was trained on."""
        return sum(int(file["sentences"]) for file in self.record["identity"]["data"])

    def score(self, key: str) -> float | None:
        """Return a result times 100, or None."""
        results = self.record["results"]
        dev = results.get("dev")
        value = results.get(key)
        scale = 1
        if key == "best_dev" and dev:
            value = dev.get("best")
            if dev.get("metric") != "spearman":
                scale = 100
        if not isinstance(value, int | float):
            return None
        return scale * float(value)

    def setting(self, key: str) -> Any:
        """Return a setting by name, or ``section.name`` for those of an objective; None if the run has no such setting.

        The settings that the sweep varied come first, then those of training, subset and method.
        """
        identity = self.record["identity"]
        section, _, name = key.partition(".")
        for source in (
            self.record["point"],
            identity.get("settings", {}),
            identity.get("subset", {}),
            identity["method"],
        ):
            value = source.get(key)
            inner = source.get(section)
            if value is None and name and isinstance(inner, Mapping):
                value = inner.get(name)
            if value is not None and not isinstance(value, Mapping):
                return value
        return None


def by_label(runs: Iterable[TrainingRun]) -> dict[str, list[TrainingRun]]:
    """Return the runs of each system, in the order of their first ones."""
    systems: dict[str, list[TrainingRun]] = {}
    for run in runs:
        systems.setdefault(run.label, []).append(run)
    return systems


def renamed(runs: Iterable[TrainingRun], shown: Mapping[str, str]) -> list[TrainingRun]:
    """Return runs whose labels are what is shown of them, where there is something else."""
    return [replace(run, label=shown.get(run.label, run.label)) for run in runs]


def is_study(name: str | Path) -> bool:
    """Tell whether a name stands for several runs: a sweep's folder or file of results, a folder of runs, a pattern."""
    path = Path(name)
    is_file = path.is_file() and path.suffix == ".jsonl"
    return is_file or (path / RESULTS_FILE).is_file() or bool(run_folders(str(name)))


def model_folders(runs: Iterable[TrainingRun]) -> list[str]:
    """Return the folders of those runs that are models."""
    return [str(run.folder) for run in runs if run.folder is not None and is_model_folder(run.folder)]


def read_runs(names: Sequence[str | Path]) -> list[TrainingRun]:
    """Read runs, each once; those of a sweep or a folder of runs get the labels of their systems.

    Args:
        names: files of results, folders of sweeps, folders of runs, patterns of such, or single runs.

    Raises:
        InputError: if a name stands for no run; DataError if a line or a file is not of a run.
    """
    runs = []
    studies: dict[Path, dict[str, TrainingRun]] = {}
    for name in names:
        path = Path(name)
        if is_run(path):
            runs.append(TrainingRun({"point": {}, **_record_of(path)}, path, label=str(name)))
            continue
        members = list(_lines(path))
        if not members:
            members = [TrainingRun(_record_of(folder), folder) for folder in runs_in(str(path))]
        if not members:
            lacking = f"neither a {RESULTS_FILE} of train --sweep or --seeds with a run in it, nor the folders of runs"
            raise InputError(f"{path} is no training run ({METRICS_FILE}) and no study: {lacking}")
        study = path
        if not path.is_dir():  # a file of results, or a pattern
            study = path.parent
        by_key = studies.setdefault(study.resolve(), {})
        for run in members:
            by_key[run.record.get("digest") or str(run.folder)] = run
    for study, by_key in studies.items():
        runs += _named(study.name, list(by_key.values()), [run.label for run in runs])
    return runs


def _named(study: str, runs: Sequence[TrainingRun], taken: Collection[str]) -> Iterator[TrainingRun]:
    """Yield the runs of a study with the labels of their systems.

    The points of those that no sweep has made are the settings in which the study's trainings differ.
    """
    facts = [run.facts for run in runs]
    labels = labels_of(study, facts, taken)
    for run, label, settings in zip(runs, labels, told_apart(facts), strict=True):
        yield replace(run, record={"point": settings, **run.record}, study=study, label=label)


def _lines(path: Path) -> Iterator[TrainingRun]:
    """Yield the runs of a file of results or of the folder of a sweep, with their folders as far as they are there."""
    file = path
    if path.is_dir():
        file = path / RESULTS_FILE
    if not file.exists():
        return
    for record in read_results(file).values():
        for key in ("point", "method", "identity", "results", "identity.data", "identity.method"):
            section, _, name = key.rpartition(".")
            if name not in (record[section] if section else record):
                raise DataError(file, f"not records of runs: {key!r} is missing")
        run = TrainingRun(record)
        folder = file.parent / str(record.get("run") or ".")
        if is_run(folder):
            run = replace(run, folder=folder)
        yield run


def _record_of(folder: Path) -> dict[str, Any]:
    """Return what a line of ``results.jsonl`` would say of the run of a folder, without a point of a sweep."""
    config = _read_config(folder)
    identity = read_json(folder / IDENTITY_FILE, default=config)
    checked(Identity, identity, folder / IDENTITY_FILE)
    method = identity.get("method") or {}
    settings = identity.get("settings") or {}
    model = config.get("start_model") or {}
    results = config.get("results")
    if not results:
        results = _results_so_far(read_metrics(folder))
    record = {
        "run": folder.name,
        "seed": settings.get("seed"),
        "method": method.get("name", ""),
        "model": model.get("name", ""),
        "identity": {"data": [], "method": {}, **identity},
        "results": results,
    }
    before = config.get("first_stage")
    if before:
        record |= {"model": before["model"], "after": before["method"]}
    return record


def _results_so_far(metrics: RunMetrics) -> dict[str, Any]:
    """Return the results of a run before its end, by its log."""
    so_far: dict[str, Any] = {"steps": 0}
    if metrics.steps:
        so_far["steps"] = metrics.steps[-1]["step"]
    logged = filter(methodcaller("startswith", DEV), chain.from_iterable(metrics.evaluations))
    key = next(logged, None)
    if key is None:
        return so_far
    steps, scores = metrics.column(key)
    if scores:
        best = scores.index(max(scores))
        so_far["dev"] = {
            "name": "dev",
            "metric": key.removeprefix(DEV),
            "start": scores[0],
            "best": scores[best],
            "best_step": steps[best],
            "final": None,
        }
    return so_far
