"""One training run from a `Prepared` to a finished model folder with its README, and the training that comes before."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import nn

from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.errors import InputError
from sentcli.io.atomic import room_explained
from sentcli.machine import bytes_depend_on, environment
from sentcli.model.cards import public_name, without_folders
from sentcli.processes import everywhere, process_count
from sentcli.training import loop
from sentcli.training.card import model_card
from sentcli.training.departures import departures
from sentcli.training.inputs import TEXT_OF_PAIRS, read_run_inputs
from sentcli.training.observer import DevScores, TrainResult
from sentcli.training.prepare import prepare
from sentcli.training.records import CONFIG_FILE
from sentcli.training.request import AUTO
from sentcli.training.run_folder import WEIGHTS_FILE, RunFolder
from sentcli.training.scoring import (
    of_first_process,
    score_encoder,
    score_other_start,
    score_teacher,
    scores_of,
    with_test_scores,
)

if TYPE_CHECKING:
    from sentcli.training.observer import Observer
    from sentcli.training.prepare import Prepared
    from sentcli.training.request import TrainRequest
    from sentcli.training.training_model import TrainingModel


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
    result = with_test_scores(prepared, encoder, result)
    folder.keep_results(result.to_dict())
    return result


def _train(prepared: Prepared, model: TrainingModel, folder: RunFolder, observer: Observer | None) -> TrainResult:
    encoder = prepared.encoder
    dev = prepared.inputs.dev
    text = prepared.held_out_text
    other = score_other_start(prepared, observer)
    teacher_dev = score_teacher(prepared)
    result = loop.train_model(
        model,
        prepared.tokenizer,
        prepared.method,
        prepared.corpus,
        folder,
        score=partial(score_encoder, prepared) if dev or text is not None else None,
        observer=observer,
        save_every=prepared.request.log.save_every,
        prompts=prepared.prompts,
        second_tokenizer=prepared.second_tokenizer,
        dev=dev[0] if dev else None,
        teachers=prepared.teachers,
    )
    result = replace(result, other_start=other, teacher_dev=teacher_dev)
    if text is not None:
        values = of_first_process(lambda: text.values(encoder.torch_module))
        result = replace(result, held_out_perplexity=values["held_out_perplexity"])
    result = with_test_scores(prepared, encoder, result)
    config = configuration(prepared, result, encoder)
    card = model_card(config, encoder, prepared.request)
    everywhere(lambda: folder.finish(encoder, model.head, config, card, model.trained_parts()))
    return result


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
    other = score_other_start(prepared, observer)
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
    result = with_test_scores(prepared, encoder, TrainResult(scores, 0, 0, speed, 0, other_start=other))
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
    values = scores_of(prepared, encoder, is_start)
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
    subset = read_run_inputs(
        request, method
    ).subset  # errors of the second stage are raised before the first is trained
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
