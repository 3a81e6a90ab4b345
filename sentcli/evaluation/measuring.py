"""Scoring a model, or a search without one, on tasks: the scores with the protocol and what was noticed on the way."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sentcli import console
from sentcli.encoder import warn_truncated
from sentcli.evaluation.cache import ScoreCache
from sentcli.evaluation.evaluated import EvaluatedModel, Task
from sentcli.evaluation.scores import ModelScores, TaskScore
from sentcli.machine import environment
from sentcli.model.identity import library_key
from sentcli.stores.text_vectors import NO_VECTORS


def score_model(
    model: EvaluatedModel,
    tasks: Sequence[Task],
    command: str,
    protocol: dict[str, Any],
    *,
    seed: int | None = None,
    read_cache: bool = True,
    done: list[ModelScores] | None = None,
) -> ModelScores:
    """Score a model on tasks, print warnings about its texts and vectors, and release it.

    Args:
        model: the model.
        tasks: in the order of the results.
        command: of the JSON of the scores.
        protocol: every choice that moves a score, except those of the model.
        seed: of the classifiers that are trained, if any.
        read_cache: take scores from the cache.
        done: its last entry is always the scores so far, so that what was done is known whatever happens.
    """
    started = time.perf_counter()
    if done is None:
        done = []
    scores = ModelScores(command, model.name, protocol, ())
    done.append(scores)
    cached_before = len(model.cached)
    for score in model.measured(tasks, read_cache=read_cache):
        if score.reason:
            console.warn(f"{model.name} has no score on {score.task}: {score.reason}")
        scores = replace(scores, tasks=(*scores.tasks, score))
        done[-1] = scores
    truncated, zero_vectors = _counts(scores.tasks)
    choices = dict(model.description)
    device = choices.pop("device", "cpu")
    whole_protocol = dict(protocol)
    if model.spec.scores_pairs:
        whole_protocol["similarity"] = "cross-encoder"
    whole_protocol |= choices | model.provenance
    whole_protocol["truncated_texts"] = None if model.is_served else truncated
    if zero_vectors is not None:
        whole_protocol["zero_vectors"] = zero_vectors
    facts = environment(device, choices.get("precision"), seed, model.provenance.get("revision"))
    facts |= model.run_facts
    warn_truncated(choices.get("max_length"), truncated, what="texts (each counted once for each task)")
    if zero_vectors:
        console.warn(f"the vectors of {zero_vectors} sentences are zero; their similarities count as 0")
    model.release()
    cached = tuple(model.cached[cached_before:])
    _say_cached(cached, tasks)
    scores = replace(
        scores,
        protocol=whole_protocol,
        environment=facts,
        cached=cached,
        seconds=round(time.perf_counter() - started, 3),  # as the JSON has them, of which pages are made, too
    )
    done[-1] = scores
    return scores


def score_without_model(
    name: str,
    tasks: Sequence[Task],
    command: str,
    protocol: dict[str, Any],
    *,
    rerun: bool = False,
    read_cache: bool = True,
) -> ModelScores:
    """Score tasks that need no model, such as a search by words, or read their scores from the cache.

    Args:
        name: in the place of the model's.
        tasks: in the order of the results.
        command: of the JSON of the scores.
        protocol: every choice that moves a score.
        rerun: score anew, and keep the new scores.
        read_cache: take scores from the cache.
    """
    started = time.perf_counter()
    cache = ScoreCache(library_key())
    scores: list[TaskScore] = []
    cached: list[str] = []
    for task in tasks:
        kept = None
        if read_cache and not rerun:
            kept = cache.kept(task.identity)
        if kept is not None:
            scores.append(kept[0])
            cached.append(task.name)
            continue
        score = task.score(None, NO_VECTORS)
        cache.keep(task.identity, score, {})
        scores.append(score)
    _say_cached(cached, tasks)
    return ModelScores(
        command=command,
        model=name,
        protocol={**protocol, "truncated_texts": 0},
        tasks=tuple(scores),
        environment=environment("cpu", None) | {"trained_run": False},
        cached=tuple(cached),
        seconds=round(time.perf_counter() - started, 3),  # as the JSON has them, of which pages are made, too
    )


def _counts(scores: Sequence[TaskScore]) -> tuple[int, int | None]:
    """Return how many texts were cut and how many vectors are zero; None where no task counts those."""
    truncated = 0
    zero_vectors = None
    for score in scores:
        truncated += score.details.get("truncated", 0)
        if "zero_vectors" in score.details:
            zero_vectors = (zero_vectors or 0) + score.details["zero_vectors"]
    return truncated, zero_vectors


def _say_cached(cached: Sequence[str], tasks: Sequence[Task]) -> None:
    if cached:
        console.note(f"{len(cached)} of {len(tasks)} tasks were measured before (--rerun measures again)")
