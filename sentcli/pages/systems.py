"""Which scores share a table, and its rows: protocols, models with all their tasks, and groups of seeds as one system.

Rows of one table share the protocol of the evaluation, and may differ in what belongs to the model.
"""

from __future__ import annotations

import fnmatch
import json
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from sentcli.errors import InputError
from sentcli.evaluation.score_kinds import IN_DOMAIN, RETRIEVAL, TRAINED_HEAD, TRANSFER
from sentcli.evaluation.scores import AVERAGE, ModelScores, TaskScore
from sentcli.evaluation.significance import Floats
from sentcli.hub import short

RERANK_CHOICES = ("rerank", "rerank_depth", "rerank_revision", "rerank_weights")
REVISIONS = ("revision", "rerank_revision")
"""Keys of a protocol with a commit of the hub."""
DIGESTS = ("weights", "rerank_weights")
"""Keys of a protocol with the digest of a model's weights."""
MODEL_CHOICES = (
    *("pooling", "normalize", "max_length", "precision", "backend", "query_prompt", "document_prompt"),
    *("revision", "weights", *RERANK_CHOICES),
)
"""Keys of a protocol that are choices of the model: rows of one table may differ in them."""
FUSION_CHOICES = ("bm25", "rank_constant", "dense_weight", "fused", "depth")
"""Keys of a protocol that only some ways of searching have."""
SEARCH_CHOICES = ("search", "similarity", "index", "query_length", *FUSION_CHOICES, *MODEL_CHOICES)
SET_CHOICES = ("split", "own_document", "forums")
"""Keys of retrieve's protocol that are choices of the sets; they stand under ``sets`` if the sets differ in them."""
COUNTS = ("interval_draws", "truncated_texts", "zero_vectors")
"""Keys of a protocol that do not change the scores."""
SIZES = ("pairs", "test", "queries", "documents", "items")
"""Details of a task that are its size: rows with different sizes were measured on different data."""


@dataclass(frozen=True)
class Pattern:
    """``LABEL=GLOB``: a label for the runs whose model or file matches."""

    option: str
    label: str
    glob: str

    @classmethod
    def parse(cls, option: str, value: str) -> Pattern:
        """Parse the value ``LABEL=GLOB`` of an option.

        Raises:
            InputError: if label or pattern are missing.
        """
        label, equals, glob = value.partition("=")
        if not (label.strip() and equals and glob):
            raise InputError(
                f"{option} {value!r}: expected LABEL=NAME, where NAME is of a model or file and may have *"
            )
        return cls(option, label.strip(), glob)

    def matches(self, scores: ModelScores) -> bool:
        """Tell whether the model's name, the file's, or the last part of either matches."""
        names = {scores.model, Path(scores.model).name, scores.source, Path(scores.source).name} - {""}
        return any(fnmatch.fnmatchcase(name, self.glob) for name in names)

    def __str__(self) -> str:
        return f"{self.option} {self.label}={self.glob}"


def check_patterns(patterns: Sequence[Pattern], runs: Sequence[ModelScores]) -> None:
    """Check that every pattern matches a run, and that no run is matched by two patterns.

    Raises:
        InputError: otherwise.
    """
    for pattern in patterns:
        if not any(map(pattern.matches, runs)):
            models = ", ".join(dict.fromkeys(run.model for run in runs))
            raise InputError(f"{pattern} matches no model and no file; there are: {models}")
    for run in runs:
        matching = [str(pattern) for pattern in patterns if pattern.matches(run)]
        if len(matching) > 1:
            raise InputError(f"{run.model} is matched by {' and by '.join(matching)}")


@dataclass(frozen=True)
class System:
    """A row: one model, or several that are seeds of one."""

    label: str
    seeds: tuple[ModelScores, ...]
    """Their labels are unique in the table."""
    grouped: bool = False

    @property
    def fixed(self) -> bool:
        """Whether it is a single model that is no run of ``train``, and so has no spread over seeds."""
        return not self.grouped and self.seeds[0].fixed

    @property
    def alone(self) -> str:
        """Why a single run does not stand for its training, in words; empty for seeds and for a fixed model."""
        if len(self.seeds) > 1 or self.fixed:
            return ""
        unknown = "may be one trained run (its file does not say; score again)"
        return "is one trained run" if self.grouped or "trained_run" in self.seeds[0].environment else unknown

    def values(self, column: str, columns: Sequence[str]) -> list[float]:
        """Return the score of each seed.

        Args:
            column: a task, or ``average``.
            columns: all columns of the table; an average needs all of its tasks.

        Returns:
            One score for each seed; an empty list if one of the seeds does not have it.
        """
        scores_of_seeds = [_values(scores, columns).get(column) for scores in self.seeds]
        values = [value for value in scores_of_seeds if value is not None]
        return values if len(values) == len(scores_of_seeds) else []

    def spread(self, column: str, columns: Sequence[str]) -> tuple[float | None, float | None]:
        """Return mean and sample standard deviation over the seeds; None if there are too few values."""
        values = self.values(column, columns)
        return (statistics.fmean(values) if values else None, statistics.stdev(values) if len(values) > 1 else None)

    def samples(self, column: str, columns: Sequence[str]) -> Floats | None:
        """Return the score of each seed on samples of the items ``[seeds, draws]``; None if a seed has no samples.

        Args:
            column: a task, or ``average``.
            columns: all columns of the table.
        """
        if not self.values(column, columns):
            return None
        samples = [scores.samples(scores.kinds[0]).get(column) for scores in self.seeds]
        present = [draws for draws in samples if draws is not None]
        comparable = len(present) == len(samples) and len({len(draws) for draws in present}) == 1
        return np.stack(present) if comparable else None

    def interval(self, column: str, columns: Sequence[str]) -> tuple[float, float] | None:
        """Return the 95 % interval of the score; None for a group of seeds, or if it was not measured."""
        scores = self.seeds[0]
        if self.grouped or column not in _values(scores, columns):
            return None
        return scores.intervals(scores.kinds[0]).get(column)

    def whiskers(self, column: str, columns: Sequence[str]) -> tuple[float, float] | None:
        """Return the mean less and plus the standard deviation over the seeds, or the interval of a single model."""
        mean, deviation = self.spread(column, columns)
        if mean is None or deviation is None:
            return self.interval(column, columns)
        return mean - deviation, mean + deviation


def _values(scores: ModelScores, columns: Sequence[str]) -> dict[str, float]:
    values = scores.values(scores.kinds[0])
    whole = values.keys() >= set(columns) - {AVERAGE}
    return {title: value for title, value in values.items() if title != AVERAGE or whole}


def systems_of(
    runs: Sequence[ModelScores],
    groups: Sequence[Pattern],
    names: Sequence[Pattern],
    shown: Mapping[str, str] = MappingProxyType({}),
) -> list[System]:
    """Return the rows of a table.

    Args:
        runs: that share a protocol.
        groups: whose runs are seeds of one system.
        names: labels of models.
        shown: labels of models for which `names` has none; by default their names.

    Raises:
        InputError: if the seeds of a system differ in a setting that moves their numbers.
    """
    rows: dict[str, System] = {}
    for number, scores in enumerate(_labelled(_merged(runs, names, shown))):
        pattern = next((pattern for pattern in groups if pattern.matches(scores)), None)
        if pattern is None:
            rows[f"model {number}"] = System(scores.label, (scores,))
        else:
            before = rows.get(f"group {pattern.label}", System(pattern.label, (), grouped=True))
            rows[f"group {pattern.label}"] = replace(before, seeds=(*before.seeds, scores))
    for system in rows.values():
        _refuse_commits(system)
        different = different_choices(
            [{**without_names(model_choices(seed)), "backend": None} for seed in system.seeds]
        )
        if any(different):
            keys = ", ".join(dict.fromkeys(key for choices in different for key in choices))
            raise InputError(f"--group {system.label}: its runs are no seeds of one system, they differ in {keys}")
    return list(rows.values())


def _refuse_commits(system: System) -> None:
    """Refuse the same model at several commits as seeds of one system.

    Raises:
        InputError: with the model.
    """
    commits: dict[str, set[str]] = {}
    for seed in system.seeds:
        commits.setdefault(seed.model, set()).add(str(seed.protocol.get("revision")))
    for model, found in commits.items():
        if len(found - {"None"}) > 1:
            shown = " and ".join(sorted(short(commit) for commit in found))
            raise InputError(f"--group {system.label}: {model} stands at the commits {shown}, which are two models")


def _merged(runs: Sequence[ModelScores], names: Sequence[Pattern], shown: Mapping[str, str]) -> list[ModelScores]:
    """Join scores of the same model and choices that are of different tasks."""
    merged: list[ModelScores] = []
    for run in runs:
        name, choices = shown.get(run.model, run.model), model_choices(run)
        label = next((pattern.label for pattern in names if pattern.matches(run)), name)
        for i, scores in enumerate(merged):
            same = (scores.model, scores.label) == (run.model, label) and _same(model_choices(scores), choices)
            if same and not {task.task for task in scores.tasks} & {task.task for task in run.tasks}:
                merged[i] = scores.joined(run)
                break
        else:
            merged.append(replace(run, label=label))
    return merged


def _same(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Tell whether two choices are those of one model; files of earlier versions do not say which weights it had."""
    if without_names(first) != without_names(second):
        return False
    return all(first[key] == second[key] for key in (*REVISIONS, *DIGESTS) if key in first and key in second)


def _labelled(models: list[ModelScores]) -> list[ModelScores]:
    """Make labels unique: by the choices of the models, then by their files, then by numbers."""
    together = {label: [m for m in models if m.label == label] for label in {m.label for m in models}}
    labelled = []
    for scores in models:
        twins = together[scores.label]
        distinct = distinct_choices([model_choices(twin) for twin in twins])
        own = next(choices for twin, choices in zip(twins, distinct, strict=True) if twin is scores)
        labelled.append(replace(scores, label=f"{scores.label} ({words(own)})" if own else scores.label))
    labelled = _apart(labelled, [Path(scores.source).name for scores in labelled])
    return _apart(labelled, [str(i) for i, _ in enumerate(labelled, 1)])


def _apart(models: list[ModelScores], marks: list[str]) -> list[ModelScores]:
    """Add a mark to the labels that several models have."""
    counts = Counter(scores.label for scores in models)
    return [
        replace(scores, label=f"{scores.label} [{mark}]") if counts[scores.label] > 1 and mark else scores
        for scores, mark in zip(models, marks, strict=True)
    ]


def single_kinds(scores: ModelScores) -> list[ModelScores]:
    """Split the scores of a model by kind, since accuracies and correlations need different tables."""
    if len(scores.kinds) < 2 and scores.command != "evaluate":
        return [scores]
    parts = []
    for kind in scores.kinds:
        own = {key: value for key, value in scores.protocol.items() if key in (*MODEL_CHOICES, "regression")}
        protocol = own if kind is TRAINED_HEAD else scores.protocol
        if scores.command == "evaluate":  # each kind has the part of the protocol that is its own
            table_kind = scores.of_kind(kind)[0].details.get("kind", "")
            protocol = {**scores.protocol, **scores.protocol.get("kinds", {}).get(table_kind, {})}
            protocol.pop("kinds", None)
        parts.append(replace(scores, tasks=tuple(scores.of_kind(kind)), protocol=protocol))
    return parts


def measure(scores: ModelScores) -> str:
    """Return the name of the numbers in a table."""
    kind = scores.kinds[0]
    if kind is RETRIEVAL:
        return scores.tasks[0].headline[0].replace("ndcg", "nDCG")
    return kind.metric if "@" in kind.metric else kind.metric.lower()


def axis(scores: ModelScores) -> str:
    """Return the name of the numbers with their unit, on the scale of the command's JSON."""
    if scores.kinds[0] is TRANSFER:
        return "accuracy in %"
    name = measure(scores)
    unit = " \N{MULTIPLICATION SIGN} 100" if scores.kinds[0].scale == 1 else ""
    return f"{'Spearman correlation' if name == 'spearman' else name}{unit}"


def common_protocol(scores: ModelScores) -> dict[str, Any]:
    """Return the part of the protocol that rows of one table must share."""
    own = (*SEARCH_CHOICES, *SET_CHOICES, "sets") if scores.command == "retrieve" else MODEL_CHOICES
    return {key: value for key, value in scores.protocol.items() if key not in (*own, *COUNTS)}


def model_choices(scores: ModelScores) -> dict[str, Any]:
    """Return the part of the protocol that belongs to the model."""
    own = SEARCH_CHOICES if scores.command == "retrieve" else MODEL_CHOICES
    choices = {key: scores.protocol[key] for key in own if scores.protocol.get(key) not in (None, "")}
    names = {key: short(str(value)) for key, value in choices.items() if key in (*REVISIONS, *DIGESTS)}
    return choices | names


def tables(runs: Iterable[ModelScores]) -> list[list[ModelScores]]:
    """Group scores that may share a table: those of the same kind, measure and protocol, on tasks of the same size."""
    groups: list[tuple[str, dict[str, tuple[Any, ...]], list[ModelScores]]] = []
    for scores in (part for run in runs for part in single_kinds(run)):
        key = json.dumps([scores.kinds[0].name, measure(scores), common_protocol(scores)], sort_keys=True, default=str)
        sizes = {task.task: _size(task, scores) for task in scores.tasks}
        for group_key, group_sizes, members in groups:
            if group_key == key and all(_alike(group_sizes.get(task, size), size) for task, size in sizes.items()):
                group_sizes.update(sizes)
                members.append(scores)
                break
        else:
            groups.append((key, sizes, [scores]))
    order = {members[0].command: i for i, (_, _, members) in reversed(list(enumerate(groups)))}
    return [members for _, _, members in sorted(groups, key=lambda group: order[group[2][0].command])]


def _size(task: TaskScore, scores: ModelScores) -> tuple[Any, ...]:
    """Return what two scores of a task must have in common to be on the same data: its size and choices of the set."""
    sizes = tuple(task.details.get(key) for key in SIZES)
    if scores.command != "retrieve":
        return sizes
    sets = scores.protocol.get("sets")
    choices = {**scores.protocol, **((sets.get(task.task) or {}) if isinstance(sets, dict) else {})}
    return (*sizes, *(choices.get(key) for key in SET_CHOICES))


def _alike(first: tuple[Any, ...], second: tuple[Any, ...]) -> bool:
    """Tell whether two results of `_size` may be of the same data; results of mteb do not say all of it."""
    return all(one == other or None in (one, other) for one, other in zip(first, second, strict=True))


def words(values: Mapping[str, Any], colon: str = " ", comma: str = ", ") -> str:
    """Return choices as one phrase."""
    return comma.join(f"{key.replace('_', ' ')}{colon}{value_words(value)}" for key, value in values.items())


def value_words(value: Any) -> str:
    """Return a value of a protocol as people write it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return words(value)
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(value_words, value)) + "]"
    if value is None:
        return "none"
    return repr(value) if value == "" else str(value)


def protocol_note(scores: ModelScores) -> str:
    """Return the protocol of a table as a sentence."""
    rest, kind = common_protocol(scores), scores.kinds[0]
    if scores.command == "sts-eval":
        rest.pop("correlation", None)
        similarity, aggregation = rest.pop("similarity", "cosine"), rest.pop("aggregation", "all")
        split = rest.pop("split", None)
        lead = f"Spearman correlation of similarity ({similarity}) and gold score, times 100; subsets: {aggregation}"
        lead += f"; {split} split" if split else ""
    elif kind is TRAINED_HEAD:
        lead = "Spearman correlation of predicted and gold score, times 100"
    elif kind is TRANSFER:
        lead = f"Accuracy in % of a classifier on frozen vectors; protocol {rest.pop('name', 'not stated')}"
        rest = {key: rest[key] for key in ("features", "classifier", "folds", "optimizer") if key in rest}
        rest["further settings"] = "below"
    else:
        lead = "Recall in %" if kind is IN_DOMAIN else axis(scores)
        rest = {**{key: scores.protocol[key] for key in (*SET_CHOICES, "sets") if key in scores.protocol}, **rest}
    more = words({key: value for key, value in rest.items() if value not in (None, "")}, ": ", "; ")
    return f"{lead}; {more}." if more else f"{lead}."


def different_choices(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return of each of some choices those in which they differ, all in the same order."""
    keys = list(dict.fromkeys(key for group in groups for key in group))
    common = {key for key in keys if all(group.get(key) == groups[0].get(key) for group in groups)}
    return [{key: group[key] for key in keys if key in group and key not in common} for group in groups]


def distinct_choices(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the choices that tell models apart, as few as are enough.

    The choices of a fusion follow from the way of searching, backends give the same vectors, and a commit or a digest
    tells no more than names do, so these are only named if the others are the same.
    """
    rarely = ("backend", *DIGESTS)
    for keys in ((*rarely, *REVISIONS, *FUSION_CHOICES), (*rarely, *REVISIONS), rarely, ("backend",)):
        few = different_choices([{key: value for key, value in group.items() if key not in keys} for group in groups])
        distinct = len({json.dumps(each, default=str) for each in few}) == len(few)
        if distinct or (len(keys) == 1 and any(few)):
            return few
    return different_choices(groups)


def without_names(choices: Mapping[str, Any]) -> dict[str, Any]:
    """Return choices without the commits and digests that name a model's files."""
    return {key: value for key, value in choices.items() if key not in (*REVISIONS, *DIGESTS)}


def common_choices(groups: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the choices that all of some models have in common."""
    return {key: value for key, value in groups[0].items() if all(key in g and g[key] == value for g in groups)}
