"""``train --check-start``: whether a method gains from a start model in a few steps, before hours are spent."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sentcli.command.result import Clock, Record, Result
from sentcli.errors import InputError
from sentcli.table import Table
from sentcli.verbs import training_view

if TYPE_CHECKING:
    from sentcli.training.request import TrainRequest

STEPS = 30
RAW_POOLINGS = ("cls", "mean", "first-last-avg")
WORDS = "shared content words, no model"


def check_start(request: TrainRequest) -> Result:
    """Compare the start model with a count of shared words on STS-B dev, and train a few steps in a temporary folder.

    The exit code of the result is 3 if these steps do not raise the score.
    """
    from sentcli.analysis.gold import surface
    from sentcli.evaluation import sts
    from sentcli.evaluation.evaluated import EvaluatedModel
    from sentcli.machine import environment
    from sentcli.model.options import LoadOptions
    from sentcli.training.observer import STSB_DEV
    from sentcli.training.prepare import prepare
    from sentcli.training.run import run

    assert request.evaluation.eval_data is not None  # the flag needs it
    clock = Clock()
    name = STSB_DEV[0]
    (pairs,) = subsets = sts.load_tasks(request.evaluation.eval_data, [name], "dev")[name]
    with tempfile.TemporaryDirectory(prefix="sentcli-check-") as folder:
        short = {"max_steps": STEPS, "eval_every": STEPS, "warmup_steps": 0, "warmup_share": 0.0, "keep_start": False}
        few_steps = replace(
            request,
            output=Path(folder) / "run",
            assignments=[*request.assignments, *((f"settings.{key}", value) for key, value in short.items())],
            evaluation=replace(request.evaluation, dev=None, dev_limit=None, sts=False, senteval=None),
            log=replace(request.log, save_every=0, resume=False, log_to=None),
        )
        prepared = prepare(few_steps)
        method, settings = prepared.method.name, prepared.method.settings
        if prepared.model is None:
            raise InputError(f"--check-start trains a few steps, and {method} trains nothing")
        backend = prepared.encoder.backend
        facts = environment(backend.device, settings.precision, settings.seed, prepared.revision)
        scores = {}
        poolings = () if prepared.encoder.local.spec.is_static else RAW_POOLINGS
        for pooling in poolings:
            model = EvaluatedModel(request.model, LoadOptions(pooling=pooling, device=request.device))
            scores[f"start, {pooling}"] = model.measure([sts.SimilarityTask(name, subsets)])[0].value
        words = surface(pairs.first, pairs.second)["other_words"]
        scores[WORDS] = sts.correlations(name, [(pairs.name, words, pairs.gold)]).value
        with training_view.training(prepared) as view:
            view.marks_best = False  # the start does not count, which is what the steps are compared with
            dev = run(prepared, view).dev
    assert dev is not None
    assert dev.start is not None
    assert dev.final is not None
    scores |= {f"{method}, before": dev.start, f"{method}, after {STEPS} steps": dev.final}
    rows = [{"vectors": label, "STS-B dev": score} for label, score in scores.items()]
    table = Table.of_rows("The start on STS-B dev: Spearman times 100", rows)
    best = max((score for label, score in scores.items() if label.startswith("start")), default=dev.start)
    change = f"{STEPS} steps of {method} change {dev.start:.2f} to {dev.final:.2f}"
    gains = dev.final > dev.start
    if gains:
        verdict = f"{change}: the score rises, which is a hint of one run and no result."
    else:
        verdict = f"{change}: it loses from this start at this rate. {_advice(best, scores[WORDS])}"
    results = {"scores": scores, "steps": STEPS, "gains": gains}
    record = Record("train", request.model, results=results, environment=facts, seconds=clock.seconds)
    return Result.of(record, [table], verdict=verdict, exit_code=0 if gains else 3)


def _advice(best: float, words: float) -> str:
    """Return what to do where a few steps lose: `best` is the start's score, `words` that of counting shared words."""
    if best >= words:
        return "Try a lower --learning-rate, or another pooling."
    return (
        f"The start's vectors ({best:.2f}) are below a count of shared words ({words:.2f}), as where "
        "training has lost before (docs/studies/results.md): train it further with --method mlm, or take another."
    )
