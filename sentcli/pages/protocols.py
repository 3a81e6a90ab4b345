"""What protocols have in common and in which choices they differ, and how that is said in words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from sentcli.evaluation.score_kinds import IN_DOMAIN, RETRIEVAL, TRAINED_HEAD, TRANSFER
from sentcli.evaluation.scores import ModelScores
from sentcli.hub import short_digits

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
_COUNT_KEYS = ("interval_draws", "truncated_texts", "zero_vectors")
"""Keys of a protocol that do not change the scores."""


def measure_name(scores: ModelScores) -> str:
    """Return the name of the numbers in a table."""
    kind = scores.kinds[0]
    if kind is RETRIEVAL:
        return scores.tasks[0].main_metric.replace("ndcg", "nDCG")
    if "@" in kind.metric:
        return kind.metric
    return kind.metric.lower()


def axis(scores: ModelScores) -> str:
    """Return the name of the numbers with their unit, on the scale of the command's JSON."""
    kind = scores.kinds[0]
    if kind is TRANSFER:
        return "accuracy in %"
    name = measure_name(scores)
    if name == "spearman":
        name = "Spearman correlation"
    if kind.scale == 1:
        name += " \N{MULTIPLICATION SIGN} 100"
    return name


def common_protocol(scores: ModelScores) -> dict[str, Any]:
    """Return the part of the protocol that rows of one table must share."""
    own: tuple[str, ...] = MODEL_CHOICES
    if scores.command == "retrieve":
        own = (*SEARCH_CHOICES, *SET_CHOICES, "sets")
    return without(scores.protocol, (*own, *_COUNT_KEYS))


def model_choices(scores: ModelScores) -> dict[str, Any]:
    """Return the part of the protocol that belongs to the model."""
    own = SEARCH_CHOICES if scores.command == "retrieve" else MODEL_CHOICES
    choices = _stated(of_keys(scores.protocol, own))
    for key in (*REVISIONS, *DIGESTS):
        if key in choices:
            choices[key] = short_digits(str(choices[key]))
    return choices


def _stated(choices: Mapping[str, Any]) -> dict[str, Any]:
    """Return the choices that have a value."""
    return {key: value for key, value in choices.items() if value not in (None, "")}


def as_phrase(values: Mapping[str, Any], colon: str = " ", comma: str = ", ") -> str:
    """Return choices as one phrase."""
    parts = []
    for key, value in values.items():
        parts.append(f"{key.replace('_', ' ')}{colon}{value_words(value)}")
    return comma.join(parts)


def value_words(value: Any) -> str:
    """Return a value of a protocol as people write it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return as_phrase(value)
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(value_words, value))}]"
    if value is None:
        return "none"
    return str(value) or "''"


def protocol_note(scores: ModelScores) -> str:
    """Return the protocol of a table as a sentence."""
    choices = common_protocol(scores)
    kind = scores.kinds[0]
    if scores.command == "sts-eval":
        choices.pop("correlation", None)
        similarity = choices.pop("similarity", "cosine")
        aggregation = choices.pop("aggregation", "all")
        split = choices.pop("split", None)
        lead = f"Spearman correlation of similarity ({similarity}) and gold score, times 100; subsets: {aggregation}"
        if split:
            lead += f"; {split} split"
    elif kind is TRAINED_HEAD:
        lead = "Spearman correlation of predicted and gold score, times 100"
    elif kind is TRANSFER:
        lead = f"Accuracy in % of a classifier on frozen vectors; protocol {choices.get('name', 'not stated')}"
        choices = of_keys(choices, ("features", "classifier", "folds", "optimizer"))
        choices["further settings"] = "below"
    else:
        lead = axis(scores)
        if kind is IN_DOMAIN:
            lead = "Recall in %"
        choices = of_keys(scores.protocol, (*SET_CHOICES, "sets")) | choices
    stated = _stated(choices)
    if stated:
        lead += f"; {as_phrase(stated, ': ', '; ')}"
    return f"{lead}."


def of_keys(choices: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """Return those of some choices that there are."""
    return {key: choices[key] for key in keys if key in choices}


def different_keys(groups: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys of the choices in which some groups of choices differ."""
    different = []
    for key in dict.fromkeys(chain.from_iterable(groups)):
        if any(group.get(key) != groups[0].get(key) for group in groups):
            different.append(key)
    return different


def distinct_choices(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the choices that tell models apart, as few as are enough.

    The choices of a fusion follow from the way of searching, backends give the same vectors, and a commit or a digest
    tells no more than names do, so these are only named if the others are the same.
    """
    different = different_keys(groups)

    def choices_but(left_out: Sequence[str]) -> list[dict[str, Any]]:
        keys = [key for key in different if key not in left_out]
        return [of_keys(group, keys) for group in groups]

    rarely = ("backend", *DIGESTS)
    for left_out in ((*rarely, *REVISIONS, *FUSION_CHOICES), (*rarely, *REVISIONS), rarely):
        few = choices_but(left_out)
        texts = {json.dumps(choices, default=str) for choices in few}
        if len(texts) == len(few):
            return few
    but_backend = choices_but(("backend",))
    if any(but_backend):
        return but_backend
    return choices_but(())


def without(choices: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """Return choices but some."""
    return {key: value for key, value in choices.items() if key not in keys}


def without_names(choices: Mapping[str, Any]) -> dict[str, Any]:
    """Return choices without the commits and digests that name a model's files."""
    return without(choices, (*REVISIONS, *DIGESTS))
