"""Results that mteb wrote, in files of tasks or models and in folders, which are shown without intervals."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from sentcli import console
from sentcli.errors import DataError, InputError
from sentcli.evaluation.known_sets import canonical
from sentcli.evaluation.score_kinds import AGGREGATIONS, FULL_NAMES, RETRIEVAL, SIMILARITY
from sentcli.evaluation.scores import ModelScores, TaskScore
from sentcli.io.forms import LARGEST_NUMBER, Number, checked, read_json

META = "model_meta.json"
"""The name of the file with the facts of a model, in its folder of results."""


class SubsetScores(BaseModel):
    """The scores of one subset of a split; all other fields are metrics."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Any]
    hf_subset: str
    main_score: Number


class MtebResult(BaseModel):
    """The file of a task."""

    task_name: str
    mteb_version: str | None
    scores: dict[str, list[SubsetScores]]


class MtebModel(BaseModel):
    """The file ``model_meta.json``, which mteb writes beside those of the tasks."""

    name: str | None = None
    revision: str | None = None


class MtebModelResult(BaseModel):
    """The file of all tasks of a model, which ``ModelResult.to_disk`` writes; the tasks are read one by one."""

    model_name: str
    model_revision: str | None = None
    task_results: list[Any]


class MtebBenchmark(BaseModel):
    """The file of several models, which ``BenchmarkResults.to_disk`` writes."""

    model_results: list[MtebModelResult]


class NotShownError(DataError):
    """A result of mteb that is whole, and that no table of ours has a place for."""


NO_REVISION = ("", "no_revision_available", "no_revision", "external")
"""The texts that mteb writes where it does not know the commit of a model."""


def is_mteb(value: Any) -> bool:
    """Tell whether the object of a JSON file is a result of mteb: of a task, of a model or of several models."""
    if not isinstance(value, dict):
        return False
    forms = ({"task_name", "scores", "mteb_version"}, {"model_name", "task_results"}, {"model_results"})
    return any(form <= value.keys() for form in forms)


def holds_mteb(folder: Path) -> bool:
    """Tell whether a folder is one of mteb's results: of a model, or of several models in folders of their own."""
    if any((folder / name).exists() for name in ("config.json", "modules.json", "export.json")):
        return False
    return folder.is_dir() and any(folder.rglob(META))


def read_mteb(value: Any, file: Path) -> list[ModelScores]:
    """Read an object of a file of mteb: the scores of each model on each task.

    Of the result of a model, tasks that no table has a place for are left out and named.

    Raises:
        DataError: if it is damaged, or none of its tasks can be shown.
    """
    if "task_name" in value:
        meta_file = file.with_name(META)
        model = checked(MtebModel, read_json(meta_file, default={}), meta_file)
        return [_task_scores(value, file, model)]
    if "model_results" in value:
        models = checked(MtebBenchmark, value, file).model_results
    else:
        models = [checked(MtebModelResult, value, file)]
    tasks = []
    for of_model in models:
        model = MtebModel(name=of_model.model_name, revision=of_model.model_revision)
        for task in of_model.task_results:
            tasks.append((task, file, model))
    return _shown(tasks)


def read_mteb_folder(folder: Path) -> list[ModelScores]:
    """Read all results below a folder of mteb, as ``ResultCache`` lays it out: ``results/MODEL/REVISION/TASK.json``.

    Tasks that no table has a place for are left out and named.

    Raises:
        InputError: if there are none, or one is damaged.
    """
    tasks = []
    for meta_file in sorted(folder.rglob(META)):
        model = checked(MtebModel, read_json(meta_file), meta_file)
        for file in sorted(set(meta_file.parent.glob("*.json")) - {meta_file}):
            value = read_json(file)
            if is_mteb(value):
                tasks.append((value, file, model))
    if not tasks:
        raise InputError(f"{folder} holds no results of mteb (results/MODEL/REVISION/TASK.json)")
    return _shown(tasks)


def _shown(tasks: Iterable[tuple[Any, Path, MtebModel]]) -> list[ModelScores]:
    """Return the scores of tasks, and name those that are left out.

    Raises:
        DataError: if all are.
    """
    scores: list[ModelScores] = []
    problem: NotShownError | None = None
    left_out: list[str] = []
    for value, file, model in tasks:
        try:
            scores.append(_task_scores(value, file, model))
        except NotShownError as error:
            problem = error
            left_out.append(str(value["task_name"]))
    if problem is not None and not scores:
        raise problem
    if left_out:
        names = ", ".join(dict.fromkeys(left_out))
        console.note(f"{len(left_out)} results of mteb are left out, whose tasks no table has a place for: {names}")
    return scores


def _task_scores(value: Any, file: Path, model: MtebModel) -> ModelScores:
    """Read the result of a retrieval or similarity task with one subset: of its split test, or of its only one.

    Raises:
        DataError: if it is damaged, or another task.
    """
    result = checked(MtebResult, value, file)
    split, subset = _only_subset(result, file)
    numbers = _numbers(subset)
    protocol: dict[str, Any]
    if "ndcg_at_10" in numbers:
        kind = RETRIEVAL
        name = canonical(result.task_name)
        their_names = {metric: metric.replace("@", "_at_") for metric in kind.columns}
        scale = 1
        depths = re.findall(r"^ndcg_at_(\d{1,6})$", "\n".join(numbers), re.MULTILINE)
        protocol = {"search": "dense", "top_k": max(map(int, depths))}
    elif "cosine_spearman" in numbers:
        kind = SIMILARITY
        name = FULL_NAMES.get(result.task_name, result.task_name)
        their_names = {"spearman": "cosine_spearman", "pearson": "cosine_pearson"}
        scale = 100
        protocol = {"correlation": "spearman", "aggregation": AGGREGATIONS["all"].title, "similarity": "cosine"}
    else:
        raise NotShownError(file, f"{result.task_name} of mteb; its tasks of retrieval and similarity are shown")
    metrics = {}
    for metric, their_name in their_names.items():
        if their_name in numbers:
            metrics[metric] = scale * numbers[their_name]
    protocol["split"] = split
    revision = None if model.revision in NO_REVISION else model.revision
    if revision is not None:
        protocol["revision"] = revision
    return ModelScores(
        command=kind.command,
        model=model.name or file.stem,
        protocol=protocol,
        tasks=(TaskScore(task=name, kind=kind.name, metrics=metrics, shown_metrics=(kind.main,)),),
        environment={"mteb": result.mteb_version, "revision": revision},
        source=str(file),
    )


def _only_subset(result: MtebResult, file: Path) -> tuple[str, SubsetScores]:
    """Return the split test of a task, or its only one, and the one subset that it has.

    Raises:
        NotShownError: if there are several.
    """
    splits = result.scores
    split = "test"
    if splits and "test" not in splits:
        split = next(iter(splits))
    subsets = splits.get(split, [])
    is_one_of_several = split != "test" and len(splits) > 1
    if len(subsets) != 1 or is_one_of_several:
        number = f"{len(subsets)} subsets of the split {split}"
        raise NotShownError(file, f"{result.task_name}: a result of mteb with {number}; it takes one")
    return split, subsets[0]


def _numbers(subset: SubsetScores) -> dict[str, float]:
    """Return the metrics of a subset, without texts, lists and numbers that no table can show."""
    numbers = {}
    for key, value in (subset.model_extra or {}).items():
        if isinstance(value, int | float) and abs(value) <= LARGEST_NUMBER:
            numbers[key] = float(value)
    return numbers
