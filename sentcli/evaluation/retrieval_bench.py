"""Searching and scoring sets: what was measured before is taken, the rest is searched once for all ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sentcli.evaluation.cache import ScoreStore, library_key
from sentcli.evaluation.candidate import Candidate, Encoding, Task
from sentcli.evaluation.retrieval import Collection, RetrievalSet
from sentcli.evaluation.retrieval_scores import RetrievalResult, SetScores, joined, score_run
from sentcli.evaluation.retrieval_ways import Dense, Plan, SetSearch
from sentcli.search.trec import Run
from sentcli.search.ways import Way

OnRun = Callable[[str, str, Run], None]
"""Takes a set's name (a forum as ``cqadupstack/android``), the way, and the hits."""


@dataclass(frozen=True)
class SetTask:
    """One way of searching one set."""

    set: str
    """A forum as ``cqadupstack/android``."""
    way: Way
    data: RetrievalSet
    facts: list[Any]
    restore: Callable[[dict[str, Any]], SetScores] = SetScores.from_record

    @property
    def name(self) -> str:
        """No other task of a model has it."""
        return f"{self.set} {self.way}"


class WithoutModel:
    """Scores that need no model, with what is kept of them; the counterpart of `Candidate`."""

    def __init__(self, *, rerun: bool = False) -> None:
        self.rerun = rerun
        self.remembered: list[str] = []
        self._scores = ScoreStore(library_key())

    def keep(self, task: Task[SetScores], score: SetScores) -> None:
        """Keep a score for `recall`."""
        self._scores.write({"encoder": {}, "score": score.to_record()}, *task.facts)

    def recall(self, tasks: Sequence[Task[SetScores]]) -> dict[str, SetScores]:
        """Return the scores that are kept; `remembered` then holds their names."""
        found = {} if self.rerun else {task.name: self._scores.read(*task.facts) for task in tasks}
        kept = {task.name: task.restore(one["score"]) for task in tasks if (one := found.get(task.name)) is not None}
        self.remembered += kept
        return kept


class Bench:
    """Sets on which models are scored.

    Args:
        collections: what is scored.
        plan: how it is searched.
    """

    def __init__(self, collections: Sequence[Collection], plan: Plan) -> None:
        self.collections, self.plan = collections, plan
        self._searchers = {name: SetSearch(data, plan) for name, data in self.sets()}

    def sets(self) -> list[tuple[str, RetrievalSet]]:
        """Return the sets whose queries are searched; a forum as ``cqadupstack/android``."""
        return [
            (f"{one.name}/{name}" if one.facts.forums and len(one.members) > 1 else one.name, data)
            for one in self.collections
            for name, data in one.members.items()
        ]

    def searches(self) -> list[tuple[str, SetSearch]]:
        """Return what searches each of `sets`."""
        return list(self._searchers.items())

    def measure(
        self, owner: Candidate | WithoutModel, ways: Sequence[Way], encoding: Encoding, on_run: OnRun | None = None
    ) -> dict[str, RetrievalResult]:
        """Score a model, or what needs none, on all sets; one result for each way.

        Args:
            owner: the model.
            ways: some of the plan's: ``bm25`` needs no model, and the others need one.
            encoding: shows progress.
            on_run: takes the hits; nothing is then taken from earlier runs but vectors.
        """
        tasks = [SetTask(name, way, data, self._facts(owner, way, data)) for name, data in self.sets() for way in ways]
        kept = owner.recall(tasks) if on_run is None else {}
        missing = [task for task in tasks if task.name not in kept]
        named = dict.fromkeys(task.set for task in missing)
        if isinstance(owner, Candidate) and missing:
            owner.encoder  # noqa: B018 - loads the model before there is a bar
            data = dict(self.sets())
            with encoding(sum(len(data[name].ids) + len(data[name].queries) for name in named)) as bar:
                for name in named:
                    dense = partial(self._searchers[name].by_vectors, owner, bar)
                    kept |= self._score(owner, [task for task in missing if task.set == name], dense, on_run)
        else:
            for name in named:
                kept |= self._score(owner, [task for task in missing if task.set == name], None, on_run)
        return {way: self._result(kept, way) for way in ways}

    def _score(
        self,
        owner: Candidate | WithoutModel,
        tasks: Sequence[SetTask],
        search: Callable[[], Dense] | None,
        on_run: OnRun | None,
    ) -> dict[str, SetScores]:
        """Search one set once, and score the ways of it that are missing."""
        searcher = self._searchers[tasks[0].set]
        dense = search() if search is not None else None
        found = {}
        for task in tasks:
            if dense is None:
                hits = searcher.by_words
            else:
                hits = dense.hits if task.way == "dense" else searcher.fused(task.way, dense.hits)
            run = searcher.run(hits)
            if on_run is not None:
                on_run(task.set, task.way, run)
            scores = score_run(task.data, run, self.plan.top_k)
            if dense is not None:
                by_index = replace(scores, index_recall=dense.index_recall, index=dense.index)
                scores = replace(by_index, truncated=dense.truncated)
            owner.keep(task, scores)
            found[task.name] = scores
        return found

    def _result(self, kept: dict[str, SetScores], way: str) -> RetrievalResult:
        names = [(name, data) for name, data in self.sets()]
        found = []
        for one in self.collections:
            mine = [replace(kept[f"{name} {way}"], name=data.name) for name, data in names[: len(one.members)]]
            names = names[len(one.members) :]
            found.append(joined(one.name, mine, mean=len(mine) > 1))
        return RetrievalResult(tuple(found))

    def _facts(self, owner: Candidate | WithoutModel, way: Way, data: RetrievalSet) -> list[Any]:
        """Return what decides a score beside the model."""
        candidate = owner if isinstance(owner, Candidate) else None
        facts = data.facts
        of_set = [data.digest, data.split, facts.self_hits, facts.join_title]
        lengths = [facts.query_length, facts.document_length]
        return ["retrieve", of_set, lengths, self.plan.protocol(way, candidate)]
