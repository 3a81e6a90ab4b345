"""A folder of training runs as a group of models: those of a sweep, of several seeds, or runs side by side.

Runs that differ in the seed alone are seeds of one system, whose label says in what the systems differ.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sentcli import console
from sentcli.errors import InputError
from sentcli.evaluation.systems import Pattern, check_patterns
from sentcli.io.digests import json_digest
from sentcli.io.forms import read_json
from sentcli.seeds import by_training, told_apart, training_facts

IDENTITY = "run.json"
"""What decided a training, in the folder of each run."""
_WEIGHTS = "model.safetensors"
"""What a finished run has."""
_MODEL_FILES = ("config.json", "modules.json", "sentcli.json", IDENTITY, _WEIGHTS)
"""What the folder of a model has, one of them at least."""


@dataclass(frozen=True)
class Study:
    """The models that the names of a command stand for."""

    models: list[str]
    """All models, with the runs of a folder in its place."""
    labels: dict[str, str] = field(default_factory=dict)
    """The label of the system of each run, by its name, unless it is in a group of the user's."""
    groups: tuple[Pattern, ...] = ()
    """Patterns of models that are seeds of one system, as the user gave them."""


def study_of(names: Sequence[str], *, once: bool = False, groups: Sequence[str] | None = None) -> Study:
    """Return the models that some names stand for.

    A folder of runs stands for those that have finished, and a pattern with ``*`` for the folders that match.

    Args:
        names: of models, of folders of runs, or patterns.
        once: refuse any model that is given twice, and not only a run of a folder.
        groups: the values of ``--group``.

    Raises:
        InputError: if a folder holds runs of which none has finished, a run of one is given twice, or a group cannot be
            read or matches none of the models.
    """
    models: list[str] = []
    labels: dict[str, str] = {}
    for name in names:
        runs = runs_in(name)
        if not runs:
            models.append(name)
            continue
        members = list(map(str, runs))
        models += members
        of_runs = labels_of(name, list(map(training_of, runs)), labels.values())
        labels |= dict(zip(members, of_runs, strict=True))
    places = list(map(_place, models))
    for name, place in zip(models, places, strict=True):
        if places.count(place) > 1 and (once or name in labels):
            raise InputError(f"-m {name} is given twice")
    patterns = tuple(Pattern.parse("--group", group) for group in groups or ())
    check_patterns(patterns, [[model] for model in models])
    for pattern in patterns:
        labels = {run: label for run, label in labels.items() if not pattern.matches([run])}
    return Study(models, labels, patterns)


def _place(name: str) -> str:
    """Return what a model is known by: its name, or the whole path of a folder, which can be written in many ways."""
    folder = Path(name)
    if folder.is_dir():
        return str(folder.resolve())
    return name


def training_of(run: Path) -> dict[str, Any]:
    """Return what decided the training of a run besides its seed, by dotted names; empty if it is not known.

    A training that began with the weights of another one, of the same seed, is decided by that one's settings.
    """
    try:
        facts = training_facts(read_json(run / IDENTITY, default={}))
        before = read_json(run / "sentcli.json", default={}).get("first_stage")
        if before:
            first = {"method": before["method"], "model": before["model"], **before["settings"]}
            facts["start_model"] = training_facts(first)
    except (InputError, AttributeError, KeyError, TypeError):  # other programs' files of these names say nothing
        return {}
    return facts


def run_facts(folder: Path) -> dict[str, Any]:
    """Return what is known of a run of ``train`` by the folder of its model, as the JSON of scores has it.

    Returns:
        ``trained_run``, whether it is one, known by its log; ``training``, what decided the training besides its seed,
        as a hash that its seeds share, where that is known; ``kept_start``, where its best weights were those that it
        began with.
    """
    if not (folder / "metrics.jsonl").is_file():
        return {"trained_run": False}
    facts: dict[str, Any] = {"trained_run": True}
    training = training_of(folder)
    if training:
        facts["training"] = json_digest(training)
    try:
        results = read_json(folder / "sentcli.json", default={}).get("results", {})
        if results.get("best_step") == 0 < results.get("steps", 0):
            facts["kept_start"] = True
    except (InputError, AttributeError, TypeError):  # another program's file of that name says nothing
        pass
    return facts


def run_folders(name: str) -> list[Path]:
    """Return the runs of a folder, or those that match a pattern, finished or not; none if it is no folder of runs."""
    folder = Path(name)
    if not folder.is_dir():
        pattern = folder.relative_to(folder.anchor) / IDENTITY
        return sorted(path.parent for path in Path(folder.anchor).glob(str(pattern)))
    if any((folder / file).exists() for file in _MODEL_FILES):
        return []
    return sorted(path.parent for path in folder.glob(f"*/{IDENTITY}"))


def runs_in(name: str) -> list[Path]:
    """Return the finished ones of the runs of `run_folders`.

    Raises:
        InputError: if there are runs of which none has finished.
    """
    runs = run_folders(name)
    finished = [run for run in runs if (run / _WEIGHTS).exists()]
    if runs and not finished:
        raise InputError(f"{name}: none of its {len(runs)} runs has finished; sentcli train ... --resume goes on")
    if len(finished) < len(runs):
        console.warn(f"{name}: {len(runs) - len(finished)} of {len(runs)} runs have not finished, and are left out")
    return finished


def labels_of(name: str, trainings: Sequence[Mapping[str, Any]], taken: Collection[str] = ()) -> list[str]:
    """Return the label of each of some runs: in what its training differs from the others, or what they are together.

    Args:
        name: of the folder or the file with the runs.
        trainings: what decided each, besides its seed.
        taken: labels of other systems, which none of these gets.
    """
    labels = [name] * len(trainings)
    settings = told_apart(trainings)
    used = set(taken)
    for number, group in enumerate(by_training(trainings), 1):
        words = []
        for key, value in settings[group[0]].items():
            if value is not None:
                words.append(str(value) if key == "method" else f"{key} {value}")
        label = ", ".join(words) or name
        if label in taken:
            label = f"{name}: {label}"
        if label in used:
            label = f"{label} ({number})"
        used.add(label)
        for position in group:
            labels[position] = label
    return labels
