"""How many steps each candidate may have, so that all of an adaptation stays within its budget."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sentcli import console
from sentcli.adapting.candidates import BATCH_SIZE
from sentcli.adapting.mixing import SHARES
from sentcli.adapting.work import VERDICT_PRECISION
from sentcli.errors import InputError
from sentcli.io.forms import read_json_form, write_json
from sentcli.remaining import duration
from sentcli.training.dry_run import estimate_training

if TYPE_CHECKING:
    from sentcli.adapting.candidates import Candidate
    from sentcli.adapting.material import Material
    from sentcli.adapting.work import Work
    from sentcli.evaluation.retrieval_tasks import RetrievalTask
    from sentcli.model.options import Precision

PLAN_FILE = "plan.json"
LEAST_STEPS = 8
"""Steps of a stage, below which nothing is learnt."""
MOST_EPOCHS = 2
"""Passes over the rows that a stage makes at most."""
SAMPLE = 64
"""Documents that are encoded to measure how long an evaluation takes."""
REMEDY = "start anew with --overwrite"


@dataclass(frozen=True)
class Plan:
    """What is trained, and how long."""

    identity: str
    """A digest of start, documents, sets and options, which an adaptation that goes on has to equal."""
    candidates: list[str]
    """The names of the candidates that are trained."""
    steps: int
    """The steps of each of the two stages."""
    seconds: float
    """The time that training and scoring will take."""

    def write(self, folder: Path) -> None:
        """Write the plan, so that an adaptation that goes on makes the same steps."""
        write_json(folder / PLAN_FILE, vars(self))

    @classmethod
    def read(cls, folder: Path) -> Plan:
        """Read the plan of an unfinished adaptation."""
        path = folder / PLAN_FILE
        return read_json_form(cls, path, missing=f"no such file: {path}", remedy=REMEDY)


@dataclass(frozen=True)
class Costs:
    """What the parts of an adaptation take, in seconds."""

    step: float
    """An optimiser step."""
    document: float
    """The encoding of one document where it is mined or chosen by."""
    judged: float
    """The encoding of one document where the verdict is made, which is in fp32."""

    def of(self, candidates: Sequence[Candidate], steps: int, material: Material, choosing: int) -> float:
        """Return what is left of an adaptation takes, when the rows of the first stage are mined.

        Args:
            candidates: which begin; half of them, rounded up, go on after the first stage.
            steps: of a stage.
            material: what is trained on, and what judges.
            choosing: the documents of the set that chooses.
        """
        going_on = survivors(len(candidates))
        trainings = len(candidates) + going_on
        if any(candidate.reads_first for candidate in candidates):
            trainings += 1
        training = self.step * steps * trainings
        mining = self.document * len(material.documents) * going_on
        evaluations = len(candidates) + going_on * len(SHARES)
        judging = self.judged * len(material.test.ids) * 2
        return training + mining + self.document * choosing * evaluations + judging


def survivors(candidates: int) -> int:
    """Return how many of the candidates go on after the first stage: the worse half ends."""
    return (candidates + 1) // 2


def make_plan(
    work: Work,
    base: str,
    candidates: Sequence[Candidate],
    dev: RetrievalTask,
    rows: tuple[Path, int],
    budget: float,
    identity: str,
    *,
    has_untrained: bool,
) -> Plan:
    """Measure a few steps and an encoding, and distribute what is left of the budget.

    Where no training fits into it, and something competes that needs none, the plan is empty.

    Args:
        work: trains and scores.
        base: the model from which training goes on.
        candidates: in the order in which they are left out if there is too little time, the last one first.
        dev: the queries that choose.
        rows: the rows of training and their number.
        budget: the seconds that are left.
        identity: see `Plan.identity`.
        has_untrained: whether something competes that needs no training.

    Raises:
        InputError: if the budget is too small for one candidate, or for the verdict.
    """
    began = time.monotonic()
    data, count_of_rows = rows
    choosing = len(dev.data.ids)
    costs = _measured(work, base, candidates[0], data)
    left = budget - (time.monotonic() - began)
    most = max(LEAST_STEPS, MOST_EPOCHS * count_of_rows // BATCH_SIZE)
    for count in range(len(candidates), 0, -1):
        tried = candidates[:count]
        without_steps = costs.of(tried, 0, work.material, choosing)
        a_step = costs.of(tried, 1, work.material, choosing) - without_steps
        steps = min(most, int((left - without_steps) / a_step))
        if steps >= LEAST_STEPS:
            names = [candidate.name for candidate in tried]
            return Plan(identity, names, steps, costs.of(tried, steps, work.material, choosing))
    needed = costs.of(candidates[:1], LEAST_STEPS, work.material, choosing) + budget - left
    reason = (
        f"--budget: {duration(max(budget, 0))} are left, and one training of {LEAST_STEPS} steps with its evaluations "
        f"takes about {duration(needed)} here"
    )
    seconds = costs.of([], 0, work.material, choosing)
    if not has_untrained or seconds > left:
        raise InputError(f"{reason}: give more time, or smaller sets with --dev and --test")
    console.warn(f"{reason}: weights of tokens compete alone; more time lets it train")
    return Plan(identity, [], 0, seconds)


def _measured(work: Work, base: str, candidate: Candidate, data: Path) -> Costs:
    """Measure a step and the encoding of a document."""
    request = work.request(candidate, base, base, data, "measured", LEAST_STEPS)
    kind = estimate_training(request, []).kinds[0]
    document = _seconds_of_a_document(work, base, work.precision)
    judged = document
    if work.precision != VERDICT_PRECISION:
        judged = _seconds_of_a_document(work, base, VERDICT_PRECISION)
    return Costs(kind.seconds / kind.steps, document, judged)


def _seconds_of_a_document(work: Work, base: str, precision: Precision) -> float:
    """Measure the encoding of some documents, and return the time of one."""
    encoder = work.model(base, precision).load().on_torch()
    sample = spread(work.material.documents)
    encoder.encode(sample[:8])  # the first batch takes longer
    began = time.monotonic()
    encoder.encode(sample)
    return (time.monotonic() - began) / len(sample)


def spread(documents: Sequence[str]) -> list[str]:
    """Return some documents from all over a corpus, whose first ones may be shorter than most."""
    places = np.linspace(0, len(documents) - 1, min(SAMPLE, len(documents)))
    return [documents[int(place)] for place in places]
