"""The model under evaluation, whose scores are cached as its vectors are.

A `Task` is what every evaluation scores it on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol

from sentcli.errors import DegenerateVectorsError, InputError
from sentcli.evaluation.cache import ScoreCache
from sentcli.evaluation.score_kinds import ScoreKind
from sentcli.evaluation.scores import TaskScore
from sentcli.evaluation.studies import run_facts
from sentcli.model.spec import EncoderSpec, ModelSpec
from sentcli.stores.cached_encoder import CachedEncoder
from sentcli.stores.text_vectors import NO_VECTORS, TextVectors


class Task(Protocol):
    """A data set with a metric, on which models are scored."""

    @property
    def name(self) -> str:
        """The name, which is unique in a command."""

    @property
    def kind(self) -> ScoreKind:
        """The kind of its scores."""

    @property
    def texts(self) -> Sequence[str]:
        """Texts to encode before `score` is called, with repetitions; empty for a task that encodes by itself."""

    @property
    def identity(self) -> list[Any]:
        """Everything besides the model that decides the score."""

    def score(self, model: EvaluatedModel | None, vectors: TextVectors) -> TaskScore:
        """Score a model, given the vectors of `texts`, which are enough for a task that does not encode by itself."""


class OwnTask(Task, Protocol):
    """A task on the user's own data, which ``evaluate`` describes beside its scores."""

    @property
    def all_texts(self) -> Sequence[str]:
        """Texts that the model has to encode, with repetitions; of a retrieval set its first documents."""

    @property
    def description(self) -> str:
        """The content of the data in words."""

    @property
    def protocol(self) -> dict[str, Any]:
        """Every choice that moves the score besides data and model."""

    @property
    def caveats(self) -> Mapping[str, Any]:
        """Counts of what is wrong with the data, and how far to trust a set that was made, as the JSON has them."""


def for_model(task: Task, spec: ModelSpec) -> Task:
    """Return a task as a model takes it: a cross-encoder, or one whose vectors are compared by inner products.

    Raises:
        InputError: if it needs vectors and the model is a cross-encoder, or compares them in a way that the model's
            folder names and is not supported.
    """
    if spec.scores_pairs and not getattr(task, "takes_pairs", False):
        raise InputError(
            f"{task.name} needs vectors, and a cross-encoder scores pairs: tables of scored pairs and of pairs with "
            "the labels 0 and 1 are scored (--kind scored, --kind binary); --rerank and sts-eval take a cross-encoder"
        )
    adapted: Task = task.for_model(spec) if hasattr(task, "for_model") else task
    return adapted


class EvaluatedModel(CachedEncoder):
    """A model whose vectors and scores are cached from run to run; with `rerun` it is scored again, too."""

    @cached_property
    def cached(self) -> list[str]:
        """The tasks whose scores were read from the cache."""
        return []

    @property
    def run_facts(self) -> dict[str, Any]:
        """What is known of the training that the model is the run of; see `studies.run_facts`."""
        if isinstance(self.spec, EncoderSpec):
            return run_facts(self.spec.folder)
        return {"trained_run": False}

    def measure(self, tasks: Sequence[Task]) -> list[TaskScore]:
        """Score the model on tasks, as `measured` does."""
        return list(self.measured(tasks))

    def measured(self, tasks: Sequence[Task], *, read_cache: bool = True) -> Iterator[TaskScore]:
        """Yield the scores of tasks, or read them from the cache and add the names of those tasks to `cached`.

        Where a task has no score, because vectors are all equal or not finite, its `TaskScore.reason` says so.

        Args:
            tasks: every distinct text of the tasks without cached scores is encoded once, before the first one.
            read_cache: take scores from the cache.
        """
        tasks = [for_model(task, self.spec) for task in tasks]
        cache = None if self.key is None else ScoreCache(self.key)
        scores: dict[str, TaskScore] = {}
        if cache is not None and read_cache and not self.rerun:
            scores = self._cached_scores(cache, tasks)
        texts: list[str] = []
        for task in tasks:
            if task.name not in scores:
                texts += task.texts
        vectors: TextVectors | None = NO_VECTORS
        if texts:
            try:
                vectors = self.encode_shown("encoding", texts)
            except DegenerateVectorsError:
                vectors = None  # some tasks may do without the texts that have no vector
        for task in tasks:
            if task.name not in scores:
                score = self._scored(task, vectors)
                scores[task.name] = score
                if cache is not None:
                    cache.keep(task.identity, score, self.description)
            yield scores[task.name]

    def has_kept(self, task: Task) -> bool:
        """Tell whether the score of a task is in the cache."""
        if self.key is None:
            return False
        return ScoreCache(self.key).read(*for_model(task, self.spec).identity) is not None

    def _scored(self, task: Task, vectors: TextVectors | None) -> TaskScore:
        """Score a task, whose texts are encoded here without `vectors`; the score says why if there is none."""
        try:
            if vectors is None:
                vectors = self.encode_shown(f"{task.name}: encoding", task.texts)
            return task.score(self, vectors)
        except DegenerateVectorsError as error:
            metric = getattr(task, "main_metric", task.kind.main)
            reason = str(error).removeprefix(f"{task.name}: ")
            score = TaskScore.undefined(task.name, task.kind.name, metric, reason)
            shown = getattr(task, "shown_metrics", score.shown_metrics)
            score = replace(score, shown_metrics=shown, details={**dict.fromkeys(shown), **score.details})
            if hasattr(task, "caveats") and getattr(task, "ends", True) is not None:  # it is on the user's own data
                score = score.of_own_data(None)
            return score

    def _cached_scores(self, cache: ScoreCache, tasks: Sequence[Task]) -> dict[str, TaskScore]:
        """Return the cached scores of one and the same backend, which is the loaded one if some scores are missing."""
        all_kept = {}
        usual = self.description
        of_usual = 0
        for task in tasks:
            kept = cache.kept(task.identity)
            if kept is not None:
                all_kept[task.name] = kept
                usual = usual or kept[1]
                of_usual += kept[1] == usual
        if not all_kept:
            return {}
        if of_usual == len(tasks):
            self.description = usual
        else:
            texts: set[str] = set()
            in_sets = 0
            for task in tasks:
                if task.name not in all_kept:
                    texts.update(task.texts)
                    in_sets += getattr(task, "text_count", 0)  # of a set, which encodes by itself
            self.load(len(texts) + in_sets)
        scores = {}
        for name, (score, encoder) in all_kept.items():
            if encoder == self.description:
                scores[name] = score
        self.cached += scores
        return scores
