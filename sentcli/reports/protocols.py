"""What moves a number, in words: the evaluation's protocol, which a table shares, and the model's settings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sentcli.reports.runs import SEARCH_SETTINGS, SET_FACTS, SETTINGS, Run

COUNTS = ("interval_draws", "truncated_texts", "zero_vectors")
"""These move no number of a table."""
WITH_SEARCH = ("bm25", "rank_constant", "dense_weight", "fused", "depth")
"""Settings that only some ways of searching have."""
TITLES = {
    ("sts-eval", "spearman"): "Semantic textual similarity",
    ("senteval", "accuracy"): "Transfer tasks",
    ("senteval", "spearman"): "Similarity with a trained head",
    ("retrieve", "recall"): "In-domain retrieval",
}
AXES = {"spearman": "Spearman correlation \N{MULTIPLICATION SIGN} 100", "accuracy": "accuracy in %"}


def title(run: Run) -> str:
    """Return what a table of such runs is called."""
    return TITLES.get((run.command, run.measure), "Retrieval")


def axis(run: Run) -> str:
    """Return what the numbers are, with their unit."""
    return AXES.get(run.measure, f"{run.measure} \N{MULTIPLICATION SIGN} 100")


def evaluation(run: Run) -> dict[str, Any]:
    """Return the part of the protocol that rows of one table must share."""
    own = (*SEARCH_SETTINGS, *SET_FACTS, "sets") if run.command == "retrieve" else SETTINGS
    return {key: value for key, value in run.protocol.items() if key not in (*own, *COUNTS)}


def settings(run: Run) -> dict[str, Any]:
    """Return the part of the protocol that belongs to the model."""
    own = SEARCH_SETTINGS if run.command == "retrieve" else SETTINGS
    return {key: run.protocol[key] for key in own if run.protocol.get(key) not in (None, "")}


def tables(runs: Iterable[Run]) -> list[list[Run]]:
    """Part runs into those that may share a table: same command, measure and protocol, tasks of the same size."""
    found: list[tuple[str, dict[str, tuple[Any, ...]], list[Run]]] = []
    for run in runs:
        key = json.dumps([run.command, run.measure, evaluation(run)], sort_keys=True, default=str)
        for other, sizes, members in found:
            if other == key and all(sizes.get(task, size) == size for task, size in run.sizes.items()):
                sizes.update(run.sizes)
                members.append(run)
                break
        else:
            found.append((key, dict(run.sizes), [run]))
    order = {run[2][0].command: i for i, run in reversed(list(enumerate(found)))}
    return [members for _, _, members in sorted(found, key=lambda one: order[one[2][0].command])]


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


def protocol_note(run: Run) -> str:
    """Return the protocol of a table as a sentence."""
    rest = evaluation(run)
    if run.command == "sts-eval":
        rest.pop("correlation", None)
        similarity, aggregation = rest.pop("similarity", "cosine"), rest.pop("aggregation", "all")
        split = rest.pop("split", None)
        lead = f"Spearman correlation of similarity ({similarity}) and gold score, times 100; subsets: {aggregation}"
        lead += f"; {split} split" if split else ""
    elif run.measure == "spearman":
        lead = "Spearman correlation of predicted and gold score, times 100"
    elif run.command == "senteval":
        lead = f"Accuracy in % of a classifier on frozen vectors; protocol {rest.pop('name', 'not stated')}"
        rest = {key: rest[key] for key in ("features", "classifier", "folds", "optimizer") if key in rest}
        rest["further settings"] = "below"
    else:
        lead = f"{run.measure}, times 100" if run.averaged else "Recall in %"
        rest = {**{key: run.protocol[key] for key in (*SET_FACTS, "sets") if key in run.protocol}, **rest}
    more = words({key: value for key, value in rest.items() if value not in (None, "")}, ": ", "; ")
    return f"{lead}; {more}." if more else f"{lead}."


def differing(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return of each mapping what is not the same in all of them."""
    keys = list(dict.fromkeys(key for group in groups for key in group))
    same = {key for key in keys if all(group.get(key) == groups[0].get(key) for group in groups)}
    return [{key: group[key] for key in keys if key in group and key not in same} for group in groups]


def telling(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what tells some settings apart, with as little as does it.

    How a search fuses follows from the way of searching; backends give the same vectors, so they are a last resort.
    """
    found = _differing_without(groups, ("backend", *WITH_SEARCH))
    if len({json.dumps(one, default=str) for one in found}) == len(found):
        return found
    found = _differing_without(groups, ("backend",))
    return found if any(found) else differing(groups)


def _differing_without(groups: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> list[dict[str, Any]]:
    return differing([{key: value for key, value in group.items() if key not in keys} for group in groups])


def shared(groups: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what is the same in all of some mappings."""
    first = groups[0]
    return {key: value for key, value in first.items() if all(key in g and g[key] == value for g in groups)}
