"""The protocol of scores: which part a table has in common, which belongs to a model, and both in words."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sentcli.evaluation.score_kinds import IN_DOMAIN, RETRIEVAL, TRAINED_HEAD, TRANSFER
from sentcli.evaluation.scores import ModelScores, TaskScore

MODEL_SETTINGS = ("pooling", "normalize", "max_length", "precision", "backend", "query_prompt", "document_prompt")
"""Keys of a protocol that are settings of the model: rows of one table may differ in them."""
FUSION_SETTINGS = ("bm25", "rank_constant", "dense_weight", "fused", "depth")
"""Keys of a protocol that only some ways of searching have."""
SEARCH_SETTINGS = ("search", "similarity", "index", "query_length", *FUSION_SETTINGS, *MODEL_SETTINGS)
SET_FACTS = ("split", "own_document", "forums")
"""Keys of retrieve's protocol that are facts of the sets; they stand under ``sets`` if the sets differ in them."""
COUNTS = ("interval_draws", "truncated_texts", "zero_vectors")
"""Keys of a protocol that do not change the scores."""
SIZES = ("pairs", "test", "queries", "documents", "items")
"""Facts of a task that are its size: rows with different sizes were measured on different data."""


def single_kinds(scores: ModelScores) -> list[ModelScores]:
    """Split the scores of a model by kind, since accuracies and correlations need different tables."""
    if len(scores.kinds) < 2 and scores.command != "evaluate":
        return [scores]
    parts = []
    for kind in scores.kinds:
        own = {key: value for key, value in scores.protocol.items() if key in (*MODEL_SETTINGS, "regression")}
        protocol = own if kind is TRAINED_HEAD else scores.protocol
        if scores.command == "evaluate":  # each kind has the part of the protocol that is its own
            table_kind = scores.of_kind(kind)[0].facts.get("kind", "")
            protocol = {**scores.protocol, **scores.protocol.get("kinds", {}).get(table_kind, {})}
            protocol.pop("kinds", None)
        parts.append(replace(scores, tasks=scores.of_kind(kind), protocol=protocol))
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


def evaluation(scores: ModelScores) -> dict[str, Any]:
    """Return the part of the protocol that rows of one table must share."""
    own = (*SEARCH_SETTINGS, *SET_FACTS, "sets") if scores.command == "retrieve" else MODEL_SETTINGS
    return {key: value for key, value in scores.protocol.items() if key not in (*own, *COUNTS)}


def settings(scores: ModelScores) -> dict[str, Any]:
    """Return the part of the protocol that belongs to the model."""
    own = SEARCH_SETTINGS if scores.command == "retrieve" else MODEL_SETTINGS
    return {key: scores.protocol[key] for key in own if scores.protocol.get(key) not in (None, "")}


def tables(runs: Iterable[ModelScores]) -> list[list[ModelScores]]:
    """Group scores that may share a table: those of the same kind, measure and protocol, on tasks of the same size."""
    groups: list[tuple[str, dict[str, tuple[Any, ...]], list[ModelScores]]] = []
    for scores in (part for run in runs for part in single_kinds(run)):
        key = json.dumps([scores.kinds[0].name, measure(scores), evaluation(scores)], sort_keys=True, default=str)
        sizes = {task.task: _size(task, scores) for task in scores.tasks}
        for group_key, group_sizes, members in groups:
            if group_key == key and all(group_sizes.get(task, size) == size for task, size in sizes.items()):
                group_sizes.update(sizes)
                members.append(scores)
                break
        else:
            groups.append((key, sizes, [scores]))
    order = {members[0].command: i for i, (_, _, members) in reversed(list(enumerate(groups)))}
    return [members for _, _, members in sorted(groups, key=lambda group: order[group[2][0].command])]


def _size(task: TaskScore, scores: ModelScores) -> tuple[Any, ...]:
    """Return what two scores of a task must have in common to be on the same data: its size and facts of the set."""
    sizes = tuple(task.facts.get(key) for key in SIZES)
    if scores.command != "retrieve":
        return sizes
    sets = scores.protocol.get("sets")
    facts = {**scores.protocol, **((sets.get(task.task) or {}) if isinstance(sets, dict) else {})}
    return (*sizes, *(facts.get(key) for key in SET_FACTS))


def words(values: Mapping[str, Any], colon: str = " ", comma: str = ", ") -> str:
    """Return settings as one phrase."""
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
    rest, kind = evaluation(scores), scores.kinds[0]
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
        rest = {**{key: scores.protocol[key] for key in (*SET_FACTS, "sets") if key in scores.protocol}, **rest}
    more = words({key: value for key, value in rest.items() if value not in (None, "")}, ": ", "; ")
    return f"{lead}; {more}." if more else f"{lead}."


def differing(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return of each of some settings those in which they differ, all in the same order."""
    keys = list(dict.fromkeys(key for group in groups for key in group))
    common = {key for key in keys if all(group.get(key) == groups[0].get(key) for group in groups)}
    return [{key: group[key] for key in keys if key in group and key not in common} for group in groups]


def telling(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the settings that tell models apart, as few as are enough.

    The settings of a fusion follow from the way of searching, and backends give the same vectors, so these are only
    named if the others are the same.
    """
    least = _differing_without(groups, ("backend", *FUSION_SETTINGS))
    if len({json.dumps(each, default=str) for each in least}) == len(least):
        return least
    least = _differing_without(groups, ("backend",))
    return least if any(least) else differing(groups)


def _differing_without(groups: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> list[dict[str, Any]]:
    return differing([{key: value for key, value in group.items() if key not in keys} for group in groups])


def shared(groups: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the settings that all of some models have in common."""
    return {key: value for key, value in groups[0].items() if all(key in g and g[key] == value for g in groups)}
