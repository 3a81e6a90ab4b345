"""The results of a task that mteb wrote, which are shown beside our scores, without intervals."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from sentcli.errors import DataError
from sentcli.evaluation.retrieval import canonical
from sentcli.evaluation.score_kinds import AGGREGATIONS, RETRIEVAL, SIMILARITY
from sentcli.evaluation.scores import ModelScores, TaskScore
from sentcli.io.forms import LARGEST_NUMBER, Number, checked, read_json

STS_NAMES = {"SICK-R": "SICKRelatedness"}
"""Our names of mteb's tasks of similarity, where they differ."""


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


def is_mteb(value: Any) -> bool:
    """Tell whether the object of a JSON file is a result of mteb."""
    return isinstance(value, dict) and {"task_name", "scores", "mteb_version"} <= value.keys()


def read_mteb(value: Any, file: Path) -> ModelScores:
    """Read the result of a retrieval or similarity task with one subset: of its split test, or of its only one.

    Raises:
        DataError: if it is damaged, or another task.
    """
    result = checked(MtebResult, value, file)
    split = "test" if "test" in result.scores or not result.scores else next(iter(result.scores))
    subsets = result.scores.get(split, [])
    if len(subsets) != 1 or (split != "test" and len(result.scores) > 1):
        raise DataError(file, f"a result of mteb with {len(subsets)} subsets of the split {split}; it takes one")
    fields = (subsets[0].model_extra or {}).items()
    found = {key: float(n) for key, n in fields if isinstance(n, int | float) and abs(n) <= LARGEST_NUMBER}
    cutoffs = [int(match[1]) for key in found if (match := re.fullmatch(r"ndcg_at_(\d{1,6})", key))]
    if "ndcg_at_10" in found:
        kind, name = RETRIEVAL, canonical(result.task_name)
        metrics = {key: found[mine] for key in kind.columns if (mine := key.replace("@", "_at_")) in found}
        protocol: dict[str, Any] = {"search": "dense", "top_k": max(cutoffs), "split": split}
    elif "cosine_spearman" in found:
        kind, name = SIMILARITY, STS_NAMES.get(result.task_name, result.task_name)
        metrics = {key: 100 * found[f"cosine_{key}"] for key in ("spearman", "pearson") if f"cosine_{key}" in found}
        protocol = {"correlation": "spearman", "aggregation": AGGREGATIONS["all"].title, "similarity": "cosine"}
        protocol |= {"split": split}
    else:
        raise DataError(file, f"{result.task_name} of mteb; its tasks of retrieval and similarity are shown")
    beside = file.with_name("model_meta.json")
    model = checked(MtebModel, read_json(beside, default={}), beside).name or file.stem
    task = TaskScore(task=name, kind=kind.name, metrics=metrics, headline=(kind.main,))
    return ModelScores(kind.command, model, protocol, [task], {"mteb": result.mteb_version}, source=str(file))
