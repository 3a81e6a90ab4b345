"""Whether a method gains from a start model in a few steps, before hours are spent: ``train --check-start``."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sentcli.errors import DegenerateVectorsError, InputError
from sentcli.evaluation import sts
from sentcli.evaluation.evaluated import EvaluatedModel
from sentcli.evaluation.pair_surface import surface
from sentcli.machine import environment
from sentcli.model.options import LoadOptions
from sentcli.table import Table
from sentcli.training import view
from sentcli.training.observer import STSB_DEV
from sentcli.training.prepare import prepare
from sentcli.training.request import TrainRequest
from sentcli.training.run import run

STEPS = 30
RAW_POOLINGS = ("cls", "mean", "first-last-avg")
_SHARED_WORDS = "shared content words, no model"


@dataclass(frozen=True)
class StartCheck:
    """Scores on STS-B dev, Spearman times 100: of a start model, and of a few steps of training."""

    method: str
    of_start: dict[str, float]
    """The start's vectors by each pooling, as they are."""
    words: float
    """A count of shared words, without any model."""
    before: float
    after: float
    """After `STEPS` steps, as `before` with the pooling of the training."""
    environment: dict[str, Any]
    """The facts of `machine.environment`."""

    @property
    def gains(self) -> bool:
        """Whether the steps raise the score."""
        return self.after > self.before

    def to_dict(self) -> dict[str, Any]:
        """Return the results as JSON."""
        return {"scores": self._scores(), "steps": STEPS, "gains": self.gains}

    def _scores(self) -> dict[str, float]:
        scores = {f"start, {pooling}": score for pooling, score in self.of_start.items()}
        scores[_SHARED_WORDS] = self.words
        scores[f"{self.method}, before"] = self.before
        scores[f"{self.method}, after {STEPS} steps"] = self.after
        return scores

    def table(self) -> Table:
        """Return a row for each score."""
        rows = [{"vectors": label, "STS-B dev": score} for label, score in self._scores().items()]
        return Table.of_rows("The start on STS-B dev: Spearman times 100", rows)

    def sentence(self) -> str:
        """Say whether the steps gain, and else what to do."""
        change = f"{STEPS} steps of {self.method} change {self.before:.2f} to {self.after:.2f}"
        if self.gains:
            return f"{change}: the score rises, which is a hint of one run and no result."
        loses = f"{change}: it loses from this start at this rate."
        best = max(self.of_start.values(), default=self.before)
        if best >= self.words:
            return f"{loses} Try a lower --learning-rate, or another pooling."
        return (
            f"{loses} The start's vectors ({best:.2f}) are below a count of shared words ({self.words:.2f}), as where "
            "training has lost before (docs/studies/results.md): train it further with --method mlm, or take another."
        )


def check_start(request: TrainRequest) -> StartCheck:
    """Compare the start model with a count of shared words on STS-B dev, and train a few steps in a temporary folder.

    Raises:
        InputError: for a method that trains nothing.
    """
    assert request.evaluation.eval_data is not None  # the flag needs it
    name = STSB_DEV[0]
    (task,) = sts.load_similarity_tasks(request.evaluation.eval_data, [name], "dev")
    (pairs,) = task.subsets
    with tempfile.TemporaryDirectory(prefix="sentcli-check-") as folder:
        prepared = prepare(_few_steps(request, Path(folder) / "run"))
        method = prepared.method.name
        settings = prepared.method.settings
        if prepared.model is None:
            raise InputError(f"--check-start trains a few steps, and {method} trains nothing")
        backend = prepared.encoder.backend
        facts = environment(backend.device, settings.precision, settings.seed, prepared.revision)
        of_start = {}
        poolings = () if prepared.encoder.local.spec.is_static else RAW_POOLINGS
        for pooling in poolings:
            options = LoadOptions(pooling=pooling, device=request.device)
            model = EvaluatedModel(request.model, options, spares_export=True)
            of_start[pooling] = model.measure([task])[0].value
        shared = surface(pairs.first, pairs.second)["other_words"]
        words = sts.correlations(name, [(pairs.name, shared, pairs.gold)]).value
        with view.training(prepared) as shown:
            shown.marks_best = False  # the start does not count, which is what the steps are compared with
            dev = run(prepared, shown).dev
    assert dev is not None
    if dev.start is None or dev.final is None:
        raise DegenerateVectorsError(
            f"{name} has no score at the start, or none after {STEPS} steps: the vectors are all equal, or not finite; "
            "try a lower --learning-rate or another start"
        )
    return StartCheck(method, of_start, words, dev.start, dev.final, facts)


def _few_steps(request: TrainRequest, output: Path) -> TrainRequest:
    """Return the request for a few steps, evaluated before and after them on STS-B dev alone."""
    return replace(
        request,
        output=output,
        assignments=[
            *request.assignments,
            ("settings.max_steps", STEPS),
            ("settings.eval_every", STEPS),
            ("settings.warmup_steps", 0),
            ("settings.warmup_share", 0.0),
            ("settings.keep_start", False),
        ],
        evaluation=replace(request.evaluation, dev=None, dev_limit=None, sts=False, senteval=None),
        log=replace(request.log, save_every=0, resume=False, log_to=None),
    )
