"""One training run from a `Prepared` to a finished model folder with its README, and the training that comes before."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from torch import nn

from sentcli import console
from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.errors import InputError
from sentcli.evaluation import sts
from sentcli.evaluation.evaluated import EvaluatedModel, for_model
from sentcli.evaluation.score_kinds import SIMILARITY, TRANSFER
from sentcli.evaluation.scores import average
from sentcli.io.atomic import room_explained
from sentcli.io.weights import has_weights
from sentcli.machine import bytes_depend_on, environment
from sentcli.model.cards import public_name, without_folders
from sentcli.model.options import LoadOptions
from sentcli.processes import agree, everywhere, is_first, process_count
from sentcli.training import loop
from sentcli.training.card import model_card
from sentcli.training.departures import departures
from sentcli.training.dev import StartScores, dev_values
from sentcli.training.inputs import TEXT_OF_PAIRS, read_inputs
from sentcli.training.observer import DevScores, OtherStart, TrainResult
from sentcli.training.prepare import prepare
from sentcli.training.records import CONFIG_FILE
from sentcli.training.request import AUTO, OWN
from sentcli.training.run_folder import WEIGHTS_FILE, RunFolder
from sentcli.training.teachers import EncoderTeacher

if TYPE_CHECKING:
    from collections.abc import Callable

    from sentcli.model.torch_model import TorchEncoder
    from sentcli.training.observer import Observer
    from sentcli.training.prepare import Prepared
    from sentcli.training.request import TrainRequest
    from sentcli.training.training_model import TrainingModel

T = TypeVar("T")


def run(prepared: Prepared, observer: Observer | None = None) -> TrainResult:
    """Train or fit a model and write its folder; if the run had finished before, only return its results."""
    with room_explained(prepared.request.output, "make room and go on with --resume"):
        if prepared.model is None:
            return _fit(prepared, observer)
        folder = _folder(prepared)
        try:
            if folder.results is not None:
                return _finished(prepared, folder, folder.results)
            return _train(prepared, prepared.model, folder, observer)
        finally:
            folder.close()


def _folder(prepared: Prepared) -> RunFolder:
    request = prepared.request
    return RunFolder(
        request.output,
        prepared.identity(),
        bytes_depend_on(prepared.encoder.backend.device),
        overwrite=request.log.overwrite,
        resume=request.log.resume,
    )


def _finished(prepared: Prepared, folder: RunFolder, results: dict[str, Any]) -> TrainResult:
    """Return the results of a finished run, with the scores that are asked for now and were not then."""
    result = TrainResult.from_dict(results, folder.path / CONFIG_FILE)
    if not prepared.inputs.lacks_scores(result.to_dict()):
        return result
    encoder = SentenceEncoder.load(str(folder.path), backend="torch", device=prepared.request.device, pairs=True)
    result = _with_test_scores(prepared, encoder, result)
    folder.keep_results(result.to_dict())
    return result


def _with_test_scores(prepared: Prepared, encoder: SentenceEncoder, result: TrainResult) -> TrainResult:
    """Return the results with the scores of held-out pairs and of STS and transfer tasks, if the run asks for them."""
    held_out = prepared.inputs.held_out
    test = prepared.inputs.test
    transfer = prepared.inputs.transfer
    if held_out is not None:
        metrics = _of_first_process(lambda: sts.evaluate(encoder, {"held out": [held_out]})["held out"].metrics)
        result = replace(result, held_out_spearman=metrics["spearman"], held_out_pearson=metrics["pearson"])
    if test is not None:
        scores = _of_first_process(lambda: list(sts.evaluate(encoder, test).values()))
        values = {score.task: score.value for score in scores}
        result = replace(result, sts=values, sts_average=average(scores, SIMILARITY, least=1))
    if transfer:
        features = EvaluatedModel.of(encoder.with_normalize(False))
        scores = _of_first_process(lambda: features.measure(transfer))
        accuracies = {score.task: dict(score.metrics) for score in scores}
        result = replace(
            result,
            senteval=accuracies,
            senteval_average=average(scores, TRANSFER, least=1),
            senteval_protocol=transfer[0].protocol,
        )
    return result


def _of_first_process(measure: Callable[[], T]) -> T:
    """Return what the first process measures; the others wait for it."""
    value = agree(measure() if is_first() else None)
    assert value is not None
    return value


def _train(prepared: Prepared, model: TrainingModel, folder: RunFolder, observer: Observer | None) -> TrainResult:
    encoder = prepared.encoder
    dev = prepared.inputs.dev
    text = prepared.held_out_text
    other = _other_start(prepared, observer)
    teacher_dev = _teacher_dev(prepared)
    result = loop.train(
        model,
        prepared.tokenizer,
        prepared.method,
        prepared.corpus,
        folder,
        score=partial(score, prepared) if dev or text is not None else None,
        observer=observer,
        save_every=prepared.request.log.save_every,
        prompts=prepared.prompts,
        second_tokenizer=prepared.second_tokenizer,
        dev=dev[0] if dev else None,
        teachers=prepared.teachers,
    )
    result = replace(result, other_start=other, teacher_dev=teacher_dev)
    if text is not None:
        values = _of_first_process(lambda: text.values(encoder.torch_module))
        result = replace(result, held_out_perplexity=values["held_out_perplexity"])
    result = _with_test_scores(prepared, encoder, result)
    config = configuration(prepared, result, encoder)
    card = model_card(config, encoder, prepared.request)
    everywhere(lambda: folder.finish(encoder, model.head, config, card, model.trained_parts()))
    return result


def score(prepared: Prepared, module: TorchEncoder, is_start: bool) -> dict[str, float | None]:
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
            values |= _dev_values(prepared, prepared.encoder, is_start)
        finally:
            backend.module = first_module
    if prepared.held_out_text is not None:
        values |= prepared.held_out_text.values(module)
    return values


def _dev_values(prepared: Prepared, encoder: SentenceEncoder, is_start: bool) -> dict[str, float | None]:
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
    pooling = None if other == OWN else other
    options = LoadOptions(pooling=pooling, backend="torch", precision="fp32", device=request.device)
    return EvaluatedModel(request.model, options)


def _other_start(prepared: Prepared, observer: Observer | None) -> OtherStart | None:
    """Score the start model with the pooling that was not taken, on the dev set that decides, and tell the observer."""
    model = other_start_model(prepared)
    if model is None:
        return None
    task = prepared.inputs.dev[0].task
    score = _of_first_process(lambda: model.measure([task])[0])
    if score.reason:
        return None
    start = OtherStart(str(prepared.pooling.other), score.value)
    if observer is not None:
        observer.other_start(start)
    return start


def _teacher_dev(prepared: Prepared) -> float | None:
    """Score the first teacher on the dev set that decides, if it encodes texts, and say it."""
    if not prepared.inputs.dev or not prepared.teachers:
        return None
    dev = prepared.inputs.dev[0]
    teacher = prepared.teachers[0]
    if not isinstance(teacher, EncoderTeacher):
        return None
    task = for_model(dev.task, teacher.encoder.spec)
    value = _of_first_process(lambda: teacher.model.measure([task])[0].value)
    if is_first():
        console.note(f"the teacher {public_name(teacher.name)} has {dev.score_text(value)}")
    return value


def _fit(prepared: Prepared, observer: Observer | None) -> TrainResult:
    """Fit the transformation of a method that does not train; the result is kept whatever its score on the dev set."""
    assert prepared.method.fit is not None
    request = prepared.request
    if process_count() > 1:
        raise InputError(f"{prepared.method.name} is computed by one process: start it without a launcher")
    if request.log.resume and not request.log.overwrite and (request.output / WEIGHTS_FILE).exists():
        finished = _folder(prepared)  # it refuses another run's
        assert finished.results is not None
        return _finished(prepared, finished, finished.results)
    other = _other_start(prepared, observer)
    before = _observed_dev_values(prepared, prepared.encoder, observer, is_start=True)
    began = time.perf_counter()
    sentences = list(prepared.corpus.sentences)
    encoder = prepared.method.fit.fit(prepared.encoder, sentences)
    speed = len(sentences) / (time.perf_counter() - began)
    after = _observed_dev_values(prepared, encoder, observer, is_start=False)
    scores = None
    if prepared.inputs.dev:
        dev = prepared.inputs.dev[0]
        scores = DevScores(
            name=dev.name,
            metric=dev.metric,
            start=before[dev.key],
            best=after[dev.key],
            best_step=0,
            final=after[dev.key],
        )
    result = _with_test_scores(prepared, encoder, TrainResult(scores, 0, 0, speed, 0, other_start=other))
    folder = _folder(prepared)  # this may replace an older folder: everything that can fail comes before
    if prepared.inputs.dev:
        folder.log({"step": 0, **before, "fitted": False})
        folder.log({"step": 0, **after, "fitted": True})
    config = configuration(prepared, result, encoder)
    card = model_card(config, encoder, prepared.request)
    folder.finish(encoder, nn.Identity(), config, card)
    return result


def _observed_dev_values(
    prepared: Prepared, encoder: SentenceEncoder, observer: Observer | None, *, is_start: bool
) -> dict[str, float | None]:
    """Return the scores of an encoder on the dev sets, and tell the observer; empty without dev sets."""
    if not prepared.inputs.dev:
        return {}
    values = _dev_values(prepared, encoder, is_start)
    if observer is not None:
        observer.scored(0, values, False)
    return values


def configuration(prepared: Prepared, result: TrainResult, encoder: SentenceEncoder) -> dict[str, Any]:
    """Return everything that decided the weights and the results, for ``sentcli.json``.

    The file may be published, so that paths on this machine are left out of it but for their last part.
    """
    request = prepared.request
    method = prepared.method
    settings = method.settings
    facts: dict[str, Any] = {
        "method": {
            **method.describe(),
            "title": method.title,
            "stage": request.stage,
            "recipe": request.recipe.name if request.recipe else None,
        },
        "start_model": {
            "name": public_name(request.model),
            "fingerprint": prepared.start_fingerprint,
            **prepared.encoder.provenance(),
        },
    }
    if request.first_stage is not None:
        facts["first_stage"] = request.first_stage
    if prepared.teachers:
        facts["teachers"] = []
        for teacher in prepared.teachers:
            facts["teachers"].append({"name": public_name(teacher.name), "identity": teacher.identity})
    facts |= {
        "encoder": encoder.describe(),
        "settings": asdict(settings) if method.fit is None else {},
        "departures": departures(request),
        "data": list(prepared.corpus.files),
        "blank_rows": prepared.corpus.blank,
        "results": result.to_dict(),
        "environment": environment(encoder.backend.device, settings.precision, settings.seed, prepared.revision),
    }
    return dict(without_folders(facts))


def first_stage(request: TrainRequest) -> Prepared | None:
    """Prepare the training of the method of ``--after``; None if there is none.

    IS-BERT's paper trains on the sentences of STS-B without their scores before it learns the scores ("ssl + ft").
    The method is trained on the sentences of the pairs with the same seed, in a folder beside the output. An unfinished
    folder of the same run is resumed, a finished one is used.
    """
    if request.after is None:
        return None
    method = request.configured()
    subset = read_inputs(request, method).subset  # errors of the second stage are raised before the first is trained
    output = request.output.resolve()
    rows: dict[str, Any] = {"limit": subset.limit, "fraction": subset.fraction, "subset_seed": subset.seed}
    resume = request.log.resume or not request.log.overwrite
    first = replace(
        request,
        method=request.after,
        after=None,
        output=output.with_name(f"{output.name}-{request.after}"),
        stage=None,
        recipe=None,
        teachers=(),
        pooling=AUTO,
        data=replace(request.data, text_of=TEXT_OF_PAIRS, **rows),
        evaluation=replace(request.evaluation, eval_data=None, sts=False, senteval=None),
        log=replace(request.log, log_geometry=False, resume=resume),
        assignments=[("settings.seed", method.settings.seed), *request.first_assignments],
    )
    return everywhere(lambda: prepare(first))


def after_first_stage(request: TrainRequest, first: Prepared) -> TrainRequest:
    """Return the request of the second training, which starts from the weights of the first one."""
    return replace(
        request,
        model=str(first.request.output),
        after=None,
        assignments=request.own_assignments,
        first_stage={
            "method": request.after,
            "model": request.model,
            "settings": dict(first.request.assignments),
        },
    )
