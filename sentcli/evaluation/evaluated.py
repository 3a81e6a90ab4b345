"""The model under evaluation, which is loaded only to encode texts whose vectors are not in the cache.

A `Task` is what every evaluation scores it on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from sentcli import console
from sentcli.encoder import load_encoder
from sentcli.encoder.loading import read_model
from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.errors import DegenerateVectorsError, InputError
from sentcli.evaluation.cache import ScoreCache, VectorCache
from sentcli.evaluation.reused_vectors import ReusedVectors
from sentcli.evaluation.score_kinds import ScoreKind
from sentcli.evaluation.scores import TaskScore
from sentcli.evaluation.studies import run_facts
from sentcli.evaluation.text_vectors import NO_VECTORS, TextVectors
from sentcli.io.digests import json_digest
from sentcli.io.served import Served
from sentcli.model.encoding import Encoded, EncodeStats, Progress
from sentcli.model.identity import ModelSource, cache_key, library_key
from sentcli.model.options import LoadOptions
from sentcli.model.probe_vectors import ProbeVectors
from sentcli.model.spec import EncoderSpec, ModelSpec


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


class EvaluatedModel:
    """A model whose vectors and scores are cached from run to run.

    Args:
        name: of the model.
        options: for loading it.
        rerun: encode and score again instead of reading the cache.
        encoder: the model, if it is loaded; see `of`.
        reused: files and directories of texts, whose own vectors are taken where the model has made them.
        pairs: take a cross-encoder, too, which is scored on similarity tasks alone.
        spares_export: let ``auto`` export the model only if that pays for the texts that are encoded, by `export_pays`,
            and not for whatever a later command may encode.
    """

    def __init__(
        self,
        name: str,
        options: LoadOptions | None = None,
        *,
        rerun: bool = False,
        encoder: SentenceEncoder | None = None,
        reused: Iterable[str] = (),
        pairs: bool = False,
        spares_export: bool = False,
    ) -> None:
        self.name = name
        self.options = options or LoadOptions()
        self.rerun = rerun
        self.pairs = pairs
        self.spares_export = spares_export
        self.reused = [] if rerun else [ReusedVectors(file) for file in reused]
        self.cached: list[str] = []
        """Tasks whose scores were read from the cache."""
        self.was_loaded = False
        """Whether the model has been loaded since this object was made."""
        if encoder is None and Served.parse(name) is not None:
            options = self.options
            encoder = load_encoder(name, options)  # its dimension is a part of its key
        self.spec: ModelSpec
        self.key: str | None = None
        """A hash of what decides vectors and scores; without one they are not kept."""
        self.description: dict[str, Any] = {}
        """The result of `SentenceEncoder.describe` and the device, now or when the cached scores were measured."""
        if encoder is not None and encoder.sent is not None and options is not None:  # it is served
            self.key = json_digest([encoder.fingerprint(), library_key()])
        elif encoder is None or options is not None:
            self.spec = read_model(name, self.options, pairs=pairs)
            self.key = cache_key(self.spec, self.options)
        if encoder is not None:
            self.spec = encoder.spec
            self.description = _description(encoder)
        self._encoder = encoder

    @classmethod
    def of(cls, encoder: SentenceEncoder, options: LoadOptions | None = None) -> EvaluatedModel:
        """Return a loaded encoder as a model.

        Args:
            encoder: loaded.
            options: with which it was loaded by its name. Without them its vectors and scores are measured each time
                and never kept: its weights may change between two calls of `measure`, as they do while it is trained.
        """
        return cls(encoder.model, options, encoder=encoder)

    @property
    def run_facts(self) -> dict[str, Any]:
        """What is known of the training that the model is the run of; see `studies.run_facts`."""
        if isinstance(self.spec, EncoderSpec):
            return run_facts(self.spec.folder)
        return {"trained_run": False}

    @property
    def provenance(self) -> dict[str, Any]:
        """The commit and the digest of the weights, as `SentenceEncoder.provenance`; of live weights nothing."""
        if self.key is None or not isinstance(self.spec, EncoderSpec):
            return {}
        return ModelSource.of(self.spec).provenance

    @property
    def is_served(self) -> bool:
        """Whether the model is behind an address."""
        return not isinstance(self.spec, EncoderSpec)

    def load(self, texts: int = 0) -> SentenceEncoder:
        """Return the model, which is loaded unless it is already, to encode so many texts."""
        if self._encoder is None:
            to_encode = texts if self.spares_export else None
            self._encoder = load_encoder(self.name, self.options, pairs=self.pairs, texts=to_encode)
            self.description = _description(self._encoder)
            self.was_loaded = True
        return self._encoder

    def canaries(self) -> ProbeVectors:
        """Return the vectors of a few fixed texts, with the model's usual prompt, and the prompts of its roles."""
        canaries = ProbeVectors.of(self.load().loaded, self.spec.usual_prompt)
        return replace(canaries, choices={**canaries.choices, **self.spec.role_prompts})

    def release(self) -> None:
        """Free the memory of the loaded model; one that is served takes none, and goes on counting what it is sent."""
        if not self.is_served:
            self._encoder = None

    def encode(
        self,
        texts: Iterable[str],
        progress: Progress | None = None,
        *,
        prompt: str | None = None,
        length: int | None = None,
    ) -> TextVectors:
        """Encode every distinct text once, or read its vector from the cache.

        Args:
            texts: may repeat.
            progress: as in `SentenceEncoder.encode`.
            prompt: text in front of each text; None is the model's default prompt, if it has one.
            length: maximum length in tokens; None is the model's.
        """
        missing = list(dict.fromkeys(texts))
        encoder = self.load(len(missing))
        if length is not None:
            encoder = encoder.with_max_length(length)
        prompt = encoder.prompt_text(prompt=prompt)
        parts: list[tuple[Sequence[str], Encoded]] = []
        for reused in self.reused:
            if reused.are_of(encoder, prompt):
                texts_there, encoded = reused.encoded(encoder, missing, prompt)
                parts.append((texts_there, encoded))
                if progress is not None and texts_there:
                    progress(EncodeStats(texts=len(texts_there)))
                there = set(texts_there)
                missing = [text for text in missing if text not in there]
        if missing or not parts:
            encoded = self.encode_distinct(missing, prompt, keep=True, encoder=encoder, progress=progress)
            parts.append((missing, encoded))
        return TextVectors.joined(parts)

    def has_made(self, file: str) -> bool:
        """Tell whether the model has made the vectors of a file of `reused`."""
        usual = self.spec.usual_prompt
        return any(reused.name == file and reused.are_of(self.load(), usual) for reused in self.reused)

    def encode_distinct(
        self,
        texts: Sequence[str],
        prompt: str = "",
        *,
        keep: bool = False,
        encoder: SentenceEncoder | None = None,
        **options: Any,
    ) -> Encoded:
        """Encode as `SentenceEncoder.encode_distinct` but for texts in the cache.

        Args:
            texts: distinct ones.
            prompt: text in front of each.
            keep: add what is encoded to the cache. The answers of a model that is served are always added: an error
                later on does not lose them.
            encoder: the model with another maximum length.
            options: other arguments of `SentenceEncoder.encode_distinct`.
        """
        if encoder is None:
            encoder = self.load(len(texts))
        if self.key is None:
            return encoder.encode_distinct(texts, prompt, **options)
        if self.is_served:  # its vectors do not depend on this machine, and may have cost money
            key = encoder.fingerprint()
        else:
            key = json_digest([self.key, {**self.description, **encoder.describe()}])
        cache = VectorCache(key, fresh=self.rerun)
        return cache.encode(encoder, texts, prompt=prompt, keep=keep or self.is_served, **options)

    def encode_shown(self, label: str, texts: Sequence[str], *, prompt: str | None = None) -> TextVectors:
        """Encode as `encode` does, behind a progress bar with a label; the model is loaded before there is a bar."""
        count = len(set(texts))
        self.load(count)
        with console.encoding(label, count) as progress:
            return self.encode(texts, progress, prompt=prompt)

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
            self.load(_text_count(tasks, all_kept))
        scores = {}
        for name, (score, encoder) in all_kept.items():
            if encoder == self.description:
                scores[name] = score
        self.cached += scores
        return scores


def _text_count(tasks: Sequence[Task], kept: Collection[str]) -> int:
    """Return how many distinct texts tasks need whose names are not kept, with those of retrieval sets."""
    texts: set[str] = set()
    in_sets = 0
    for task in tasks:
        if task.name not in kept:
            texts.update(task.texts)
            in_sets += getattr(task, "text_count", 0)  # of a set, which encodes by itself
    return len(texts) + in_sets


def _description(encoder: SentenceEncoder) -> dict[str, Any]:
    return {**encoder.describe(), "device": encoder.backend.device}
