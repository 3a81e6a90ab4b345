"""How many steps each candidate may have, so that all of an adaptation stays within its budget."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
    from sentcli.model.options import Precision

PLAN_FILE = "plan.json"
MARGIN = 0.9
"""The share of the time that is left which is planned: saving and loading models is not measured."""
LEAST_STEPS = 8
"""Steps of a stage, below which nothing is learnt."""
MOST_EPOCHS = 2
"""Passes over the rows that a stage makes at most."""
SAMPLE_DOCUMENTS = 64
"""Documents that are encoded to measure how long an evaluation takes."""
_REMEDY = "start anew with --overwrite"


@dataclass(frozen=True)
class Plan:
    """What is trained, and how long."""

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
        return read_json_form(cls, path, missing=f"no such file: {path}", remedy=_REMEDY)


@dataclass(frozen=True)
class Costs:
    """What the parts of an adaptation take, in seconds."""

    document: float
    """The encoding of one document where it is mined or chosen by."""
    judged: float
    """The encoding of one document where the verdict is made, which is in fp32."""
    step: float = 0.0
    """An optimiser step."""

    @classmethod
    def of_encoding(cls, work: Work) -> Costs:
        """Measure the encoding of documents with the start."""
        document = _seconds_of_a_document(work, work.start, work.precision)
        judged = document
        if work.precision != VERDICT_PRECISION:
            judged = _seconds_of_a_document(work, work.start, VERDICT_PRECISION)
        return cls(document, judged)

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


@dataclass(frozen=True)
class TimeBudget:
    """The time that an adaptation has."""

    ends: float
    """When the budget is used up, by `time.monotonic`."""

    @classmethod
    def of(cls, budget: float) -> TimeBudget:
        """Return a clock that begins now, with a budget in seconds."""
        return cls(time.monotonic() + budget)

    @property
    def left(self) -> float:
        """The seconds that are left."""
        return self.ends - time.monotonic()


def require_verdict(costs: Costs, material: Material, clock: TimeBudget) -> None:
    """Refuse a budget that is too small to judge anything, before anything is made.

    Raises:
        InputError: which says how much it takes.
    """
    needed = costs.of([], 0, material, 0)
    if needed > clock.left:
        raise InputError(
            f"--budget: {duration(max(clock.left, 0))} are left, and encoding the {len(material.test.ids):,} documents "
            f"that judge takes about {duration(needed)} here: give more time, or a smaller set with --test"
        )


def make_plan(
    work: Work,
    base: str,
    candidates: Sequence[Candidate],
    choosing: int,
    costs: Costs,
    clock: TimeBudget,
    *,
    has_untrained: bool,
) -> Plan:
    """Mine, measure a few steps, and distribute what is left of the budget.

    Where no training fits into it, and something competes that needs none, the plan is empty.

    Args:
        work: trains and scores.
        base: the model from which training goes on.
        candidates: in the order in which they are left out if there is too little time, the last one first.
        choosing: the documents of the set that chooses.
        costs: of encoding.
        clock: what is left of the budget.
        has_untrained: whether something competes that needs no training.

    Raises:
        InputError: if the budget is too small for one candidate, and nothing else competes.
    """
    material = work.material
    mining = costs.document * len(material.documents)
    least = costs.of(candidates[:1], LEAST_STEPS, material, choosing)
    needed = mining + least
    if needed <= clock.left:
        data, count_of_rows = work.triplets(base)
        request = work.request(candidates[0], base, base, data, "measured", LEAST_STEPS)
        costs = replace(costs, step=estimate_training(request).kinds[0].step_seconds)
        most = max(LEAST_STEPS, MOST_EPOCHS * count_of_rows // BATCH_SIZE)
        for count in range(len(candidates), 0, -1):
            tried = candidates[:count]
            without_steps = costs.of(tried, 0, material, choosing)
            a_step = costs.of(tried, 1, material, choosing) - without_steps
            steps = min(most, int((MARGIN * clock.left - without_steps) / a_step))
            if steps >= LEAST_STEPS:
                names = [candidate.name for candidate in tried]
                return Plan(names, steps, costs.of(tried, steps, material, choosing))
        needed = costs.of(candidates[:1], LEAST_STEPS, material, choosing) / MARGIN
    reason = (
        f"--budget: {duration(max(clock.left, 0))} are left, and one training of {LEAST_STEPS} steps with its "
        f"evaluations takes about {duration(needed)} here"
    )
    if not has_untrained:
        raise InputError(
            f"{reason}: give more time, or smaller sets with --dev and --test; what was made is in {work.folder}, and "
            "--resume goes on with it"
        )
    console.warn(f"{reason}: weights of tokens compete alone; more time lets it train")
    return Plan([], 0, costs.of([], 0, material, choosing))


def _seconds_of_a_document(work: Work, base: str, precision: Precision) -> float:
    """Measure the encoding of some documents, and return the time of one."""
    encoder = work.model(base, precision).load().on_torch()
    sample = spread_documents(work.material.documents)
    encoder.encode(sample[:8])  # the first batch takes longer
    began = time.monotonic()
    encoder.encode(sample)
    return (time.monotonic() - began) / len(sample)


def spread_documents(documents: Sequence[str]) -> list[str]:
    """Return some documents from all over a corpus, whose first ones may be shorter than most."""
    places = np.linspace(0, len(documents) - 1, min(SAMPLE_DOCUMENTS, len(documents)))
    return [documents[int(place)] for place in places]
