"""The candidates against each other on the queries that choose: weights of tokens, then training in two stages.

The worse half of what is trained ends after the first stage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.adapting.mixing import SHARES
from sentcli.adapting.plan import survivors
from sentcli.adapting.verdict import START
from sentcli.errors import DivergenceError, SentcliError
from sentcli.table import Table

if TYPE_CHECKING:
    from sentcli.adapting.candidates import Candidate
    from sentcli.adapting.plan import Plan
    from sentcli.adapting.work import Work
    from sentcli.evaluation.retrieval_tasks import RetrievalTask

WEIGHTED = "tokens weighted by idf to the power of"
"""The name of an entrant whose tokens have weights, before the power."""


@dataclass(frozen=True)
class Entrant:
    """A model that was scored on the queries that choose."""

    name: str
    """What was done to the start."""
    model: str
    """Its name or folder."""
    value: float
    stage: str
    """After which stage it was scored."""
    share: float = 1.0
    """How much of the way to the trained weights it has gone."""


@dataclass(frozen=True)
class Contest:
    """The result of `choose_candidate`."""

    best: Entrant
    entrants: list[Entrant]
    """All that was scored, in the order of the scores."""

    @property
    def best_change(self) -> Entrant:
        """The best of what is not the start."""
        return best_of(self.entrants[1:])

    def to_list(self) -> list[dict[str, Any]]:
        """Return the JSON form: the score of each on the queries that choose."""
        records = []
        for entrant in self.entrants:
            record = asdict(entrant)
            del record["model"]
            records.append(record)
        return records

    def table(self, metric: str) -> Table:
        """Return all that was scored, the best first."""
        rows = []
        for entrant in sorted(self.entrants, key=lambda entrant: -entrant.value):
            rows.append([entrant.name, entrant.stage, entrant.share, entrant.value])
        return Table(
            "On the queries that choose",
            ["candidate", "scored after", "share of its way", metric],
            rows,
            {metric: ".4f", "share of its way": "g"},
        )


def weight(work: Work, powers: Sequence[float], dev: RetrievalTask, fits: Callable[[], bool]) -> list[Entrant]:
    """Return the start and its weightings, scored on the queries that choose.

    Args:
        work: writes and scores, and does nothing twice.
        powers: of the weights of tokens, as `token_weights` has them.
        dev: the queries that choose.
        fits: tells whether there is time for one more; the others are left out.
    """
    entrants = [Entrant(START, work.start, work.dev_score(work.start, dev), "start", 0.0)]
    for number, power in enumerate(powers):
        if not fits():
            left_out = ", ".join(f"{each:g}" for each in powers[number:])
            console.warn(f"--budget leaves no time for {WEIGHTED} {left_out}: more time lets them compete")
            break
        entrants.append(_scored(work, dev, f"{WEIGHTED} {power:g}", work.weighted(power), "weighting"))
    return entrants


def choose_candidate(
    work: Work, untrained: Sequence[Entrant], candidates: Sequence[Candidate], plan: Plan, dev: RetrievalTask
) -> Contest:
    """Train the candidates from the best of what is untrained, in two stages, and return the best of all.

    Hard negatives are mined with that model for the first stage and with each candidate anew for the second. After
    the second stage, weights between that model and the candidate are scored, too. The start stays the best unless one
    is better.

    Args:
        work: trains and scores, and does nothing twice.
        untrained: what `weight` returns.
        candidates: those that the plan names are trained.
        plan: how long.
        dev: the queries that choose.

    Raises:
        SentcliError: if there is nothing but the start, since the training of every candidate diverged.
    """
    by_name = {candidate.name: candidate for candidate in candidates}
    base = best_of(untrained)
    halfway: dict[str, Entrant] = {}
    if plan.candidates:
        data, _ = work.triplets(base.model)
    for number, name in enumerate(plan.candidates):
        candidate = by_name[name]
        start = base.model
        try:
            if candidate.reads_first:
                start = work.train(work.reading_request(base.model, plan.steps), "language modelling")
            request = work.request(candidate, start, base.model, data, f"first-{number}", plan.steps)
            folder = work.train(request, f"{name}, first stage")
        except DivergenceError as error:
            console.warn(f"{name} is left out: {error}")
            continue
        halfway[name] = _scored(work, dev, _trained_from(base, name), folder, "first stage")
    entrants = [*untrained, *halfway.values()]
    going_on = sorted(halfway, key=lambda name: -halfway[name].value)[: survivors(len(halfway))]
    for name in going_on:
        number = plan.candidates.index(name)
        entrant = halfway[name]
        data, _ = work.triplets(entrant.model)
        request = work.request(by_name[name], entrant.model, base.model, data, f"second-{number}", plan.steps)
        try:
            folder = work.train(request, f"{name}, second stage")
        except DivergenceError as error:
            console.warn(f"{name} ends after its first stage: {error}")
            continue
        for share in SHARES:
            between = work.between(base.model, folder, share, f"between-{number}")
            entrants.append(_scored(work, dev, entrant.name, between, "second stage", share))
    if len(entrants) == 1:
        raise SentcliError("no candidate could be trained: the loss of each is NaN or infinite")
    return Contest(best_of(entrants), entrants)


def best_of(entrants: Sequence[Entrant]) -> Entrant:
    """Return the best of some, of equal ones the first, which has changed least."""
    return max(entrants, key=lambda entrant: entrant.value)


def _trained_from(base: Entrant, name: str) -> str:
    """Return the name of a candidate by all that was done to the start."""
    return name if base.name == START else f"{base.name}, then {name}"


def _scored(work: Work, dev: RetrievalTask, name: str, model: str, stage: str, share: float = 1.0) -> Entrant:
    entrant = Entrant(name, model, work.dev_score(model, dev), stage, share)
    console.note(f"{name}, {stage}, {share:g} of the way: {entrant.value:.4f} on the queries that choose")
    return entrant
