"""What is found beside the scores of models: parts of a result, each with its JSON, its sections and its sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sentcli.evaluation.scores import ModelScores
from sentcli.pages.page import Section


class Part:
    """Something beside the scores; what a part does not say is left out."""

    @property
    def exit_code(self) -> int:
        """The exit code of the command on account of this part."""
        return 0

    def json(self, scores: ModelScores, task: str) -> Mapping[str, Any]:
        """Return entries of the JSON of a task of a model, of whose scores the part was made."""
        return {}

    def model_json(self, scores: ModelScores) -> Mapping[str, Any]:
        """Return entries of the JSON object of a model, of whose scores the part was made."""
        return {}

    def sections(self) -> Sequence[Section]:
        """Return tables, figures and commands, which the console and pages show behind the scores."""
        return ()

    @property
    def sentence(self) -> str:
        """The sentence that stands below the tables; empty if the part has none."""
        return ""


def with_parts(scores: ModelScores, parts: Sequence[Part]) -> ModelScores:
    """Return the scores of a model with what its parts say of it and of its tasks."""
    tasks = []
    for score in scores.tasks:
        for part in parts:
            score = score.with_details(part.json(scores, score.task))
        tasks.append(score)
    entries = dict(scores.entries)
    for part in parts:
        entries |= part.model_json(scores)
    return replace(scores, tasks=tuple(tasks), entries=entries)


@dataclass(frozen=True)
class Caveats(Part):
    """What to know of the data beside its scores: rows that were left out, trust in a set that was made."""

    of_tasks: Mapping[str, Mapping[str, Any]]
    """Entries of the JSON, by task."""

    def json(self, scores: ModelScores, task: str) -> Mapping[str, Any]:
        """Return the caveats of a task."""
        return self.of_tasks[task]

    @property
    def sentence(self) -> str:
        """Which made sets are to be trusted how far."""
        trusted = [f"{task}: {caveats['trust']}" for task, caveats in self.of_tasks.items() if "trust" in caveats]
        return "\n".join(trusted)
