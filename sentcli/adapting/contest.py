"""The candidates against each other on the queries that choose: the worse half ends after the first of two stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.adapting.mixing import SHARES
from sentcli.adapting.plan import survivors
from sentcli.adapting.verdict import START
from sentcli.table import Table

if TYPE_CHECKING:
    from sentcli.adapting.candidates import Candidate
    from sentcli.adapting.plan import Plan
    from sentcli.adapting.work import Work
    from sentcli.evaluation.retrieval_tasks import RetrievalTask


@dataclass(frozen=True)
class Entrant:
    """A model that was scored on the queries that choose."""

    name: str
    """The candidate, and how far its weights lie from the start."""
    model: str
    """Its name or folder."""
    value: float
    stage: str
    """After which stage it was scored."""
    share: float = 1.0
    """How much of the way from the start to the trained weights it has gone."""


@dataclass(frozen=True)
class Contest:
    """The result of `choose`."""

    best: Entrant
    entrants: list[Entrant]
    """All that was scored, in the order of the scores."""

    @property
    def best_trained(self) -> Entrant:
        """The best of what was trained."""
        return max(self.entrants[1:], key=lambda entrant: entrant.value)

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


def choose(work: Work, candidates: Sequence[Candidate], plan: Plan, dev: RetrievalTask) -> Contest:
    """Train the candidates in two stages, and return the best on the queries that choose.

    Hard negatives are mined with the start for the first stage and with each candidate anew for the second. After
    the second stage, weights between the start and the candidate are scored, too. The start stays the best unless
    one is better.

    Args:
        work: trains and scores, and does nothing twice.
        candidates: those that the plan names are trained.
        plan: how long.
        dev: the queries that choose.
    """
    by_name = {candidate.name: candidate for candidate in candidates}
    entrants = [Entrant(START, work.start, work.dev_score(work.start, dev), "start", 0.0)]
    halfway = []
    for number, name in enumerate(plan.candidates):
        candidate = by_name[name]
        start = work.start
        if candidate.reads_first:
            start = work.train(work.reading_request(plan.steps), "language modelling")
        data, _ = work.triplets(work.start, "rows")
        request = work.request(candidate, start, data, f"first-{number}", plan.steps)
        folder = work.train(request, f"{name}, first stage")
        halfway.append(_scored(work, dev, name, folder, "first stage"))
    entrants += halfway
    going_on = sorted(halfway, key=lambda entrant: -entrant.value)[: survivors(len(halfway))]
    for entrant in going_on:
        number = plan.candidates.index(entrant.name)
        data, _ = work.triplets(entrant.model, f"rows-{number}")
        request = work.request(by_name[entrant.name], entrant.model, data, f"second-{number}", plan.steps)
        folder = work.train(request, f"{entrant.name}, second stage")
        for share in SHARES:
            between = work.between(folder, share, f"between-{number}")
            entrants.append(_scored(work, dev, entrant.name, between, "second stage", share))
    best = max(entrants, key=lambda entrant: entrant.value)  # the first of equal ones, which is the start
    return Contest(best, entrants)


def _scored(work: Work, dev: RetrievalTask, name: str, model: str, stage: str, share: float = 1.0) -> Entrant:
    entrant = Entrant(name, model, work.dev_score(model, dev), stage, share)
    console.note(f"{name}, {stage}, {share:g} of the way: {entrant.value:.4f} on the queries that choose")
    return entrant
