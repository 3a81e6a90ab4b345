"""The scores of a run: of its start, which runs share, of the weights in training, and of those that it keeps."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from sentcli import console
from sentcli.evaluation import sts
from sentcli.evaluation.cache import ScoreCache
from sentcli.evaluation.evaluated import EvaluatedModel, for_model
from sentcli.evaluation.score_kinds import SIMILARITY, TRANSFER
from sentcli.evaluation.scores import average
from sentcli.io.digests import json_digest
from sentcli.io.weights import has_weights
from sentcli.machine import processor
from sentcli.model.cards import public_name
from sentcli.model.identity import library_key
from sentcli.model.options import LoadOptions
from sentcli.processes import agree, is_first
from sentcli.training.dev import dev_values
from sentcli.training.observer import OtherStart
from sentcli.training.request import OWN_POOLING
from sentcli.training.teachers import EncoderTeacher

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.model.torch_model import TorchEncoder
    from sentcli.training.dev import DevSet
    from sentcli.training.observer import Observer, TrainResult
    from sentcli.training.prepare import Prepared

T = TypeVar("T")


@dataclass(frozen=True)
class StartScores:
    """The scores of a start model on the dev sets, which are kept for all runs that begin with the same weights.

    The runs of a sweep share their start, and so does a run that is made anew or resumed before its first checkpoint.
    """

    encoder: SentenceEncoder
    """As the run begins: with its modules, its dropout and its layers."""
    sets: Sequence[DevSet]
    geometry: bool = False
    """Whether alignment and uniformity are among the scores, as for `dev_values`."""

    @cached_property
    def key(self) -> str:
        """A hash of everything that decides the scores besides the dev sets: above all the weights in memory."""
        encoder = self.encoder
        module = encoder.torch_module
        weights = hashlib.sha256()
        for name, tensor in module.state_dict().items():
            weights.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
            weights.update(tensor.cpu().reshape(-1).view(torch.uint8).numpy())
        facts = {
            "weights": weights.hexdigest(),
            "modules": [part.identity for part in encoder.local.spec.modules],
            "encoder": [encoder.fingerprint(), encoder.describe(), encoder.backend.device],
            "roles": [encoder.spec.usual_prompt, *encoder.spec.role_prompts.values()],
            "similarity": encoder.local.spec.stated_similarity,
            "libraries": library_key(),
            "processor": processor(),
        }
        return json_digest(facts)

    @property
    def identity(self) -> list[Any]:
        """What else decides them."""
        return ["start", self.geometry, [[dev.key, dev.task.identity] for dev in self.sets]]

    def kept(self) -> dict[str, float | None] | None:
        """Return the scores by their keys, if they were measured before."""
        record = ScoreCache(self.key).read(*self.identity)
        if record is None:
            return None
        return dict(record["values"])

    def measure(self) -> dict[str, float | None]:
        """Return the scores by their keys, which are measured and kept if they were not before."""
        values = self.kept()
        if values is None:
            values = dev_values(self.encoder, self.sets, geometry=self.geometry)
            if None not in values.values():
                ScoreCache(self.key).write({"values": values}, *self.identity)
        return values


def score_encoder(prepared: Prepared, module: TorchEncoder, is_start: bool) -> dict[str, float | None]:
    """Return the scores of an encoder of a run on the dev sets and on the held-out text, by their names in the log.

    Args:
        prepared: the run.
        module: the encoder, with the weights that it has now.
        is_start: whether these are the weights that the run begins with, whose scores on the dev sets are kept.
    """
    values: dict[str, float | None] = {}
    if prepared.inputs.dev:
        backend: Any = prepared.encoder.local.backend
        first_module = prepared.encoder.torch_module
        backend.module = module
        try:
            values |= scores_of(prepared, prepared.encoder, is_start)
        finally:
            backend.module = first_module
    if prepared.held_out_text is not None:
        values |= prepared.held_out_text.values(module)
    return values


def scores_of(prepared: Prepared, encoder: SentenceEncoder, is_start: bool) -> dict[str, float | None]:
    """Return the scores of an encoder on the dev sets of a run; those of its start are kept."""
    dev = prepared.inputs.dev
    geometry = prepared.request.log.log_geometry
    if is_start:
        return StartScores(encoder, dev, geometry).measure()
    return dev_values(encoder, dev, geometry=geometry)


def other_start_model(prepared: Prepared) -> EvaluatedModel | None:
    """Return the start model with the pooling that was not taken; None if there is none, or nothing to score it on."""
    other = prepared.pooling.other
    request = prepared.request
    if other is None or not prepared.inputs.dev or not has_weights(prepared.encoder.local.spec.folder):
        return None
    pooling = None if other == OWN_POOLING else other
    options = LoadOptions(pooling=pooling, backend="torch", precision="fp32", device=request.device)
    return EvaluatedModel(request.model, options)


def score_other_start(prepared: Prepared, observer: Observer | None) -> OtherStart | None:
    """Score the start model with the pooling that was not taken, on the dev set that decides, and tell the observer."""
    model = other_start_model(prepared)
    if model is None:
        return None
    task = prepared.inputs.dev[0].task
    score = of_first_process(lambda: model.measure([task])[0])
    if score.reason:
        return None
    start = OtherStart(str(prepared.pooling.other), score.value)
    if observer is not None:
        observer.other_start(start)
    return start


def score_teacher(prepared: Prepared) -> float | None:
    """Score the first teacher on the dev set that decides, if it encodes texts, and say it."""
    if not prepared.inputs.dev or not prepared.teachers:
        return None
    dev = prepared.inputs.dev[0]
    teacher = prepared.teachers[0]
    if not isinstance(teacher, EncoderTeacher):
        return None
    task = for_model(dev.task, teacher.encoder.spec)
    value = of_first_process(lambda: teacher.model.measure([task])[0].value)
    if is_first():
        console.note(f"the teacher {public_name(teacher.name)} has {dev.score_text(value)}")
    return value


def with_test_scores(prepared: Prepared, encoder: SentenceEncoder, result: TrainResult) -> TrainResult:
    """Return the results with the scores of held-out pairs and of STS and transfer tasks, if the run asks for them."""
    held_out = prepared.inputs.held_out
    test = prepared.inputs.test
    transfer = prepared.inputs.transfer
    if held_out is not None:
        task = sts.SimilarityTask("held out", [held_out])
        score = of_first_process(lambda: sts.evaluate_similarity(encoder, [task])[task.name])
        result = replace(result, held_out_spearman=score.value, held_out_pearson=score.metrics["pearson"])
    if test:
        scores = of_first_process(lambda: list(sts.evaluate_similarity(encoder, test).values()))
        values = {score.task: score.value for score in scores}
        result = replace(result, sts=values, sts_average=average(scores, SIMILARITY, least=1))
    if transfer:
        features = EvaluatedModel.of(encoder.with_normalize(False))
        scores = of_first_process(lambda: features.measure(transfer))
        accuracies = {score.task: dict(score.metrics) for score in scores}
        result = replace(
            result,
            senteval=accuracies,
            senteval_average=average(scores, TRANSFER, least=1),
            senteval_protocol=transfer[0].protocol,
        )
    return result


def of_first_process(measure: Callable[[], T]) -> T:
    """Return what the first process measures; the others wait for it."""
    value = agree(measure() if is_first() else None)
    assert value is not None
    return value
