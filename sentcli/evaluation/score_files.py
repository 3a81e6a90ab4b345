"""Reading and checking the JSON that `sts-eval`, `senteval`, `retrieve` and `evaluate` write."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict

from sentcli.errors import DataError, InputError, one_line
from sentcli.evaluation.retrieval_metrics import MAIN_CUTOFF
from sentcli.evaluation.score_kinds import IN_DOMAIN, OWN_KINDS, RETRIEVAL, SIMILARITY, TRAINED_HEAD, TRANSFER
from sentcli.evaluation.scores import ModelScores, TaskScore
from sentcli.evaluation.significance import unpacked
from sentcli.evaluation.sts import AGGREGATIONS
from sentcli.io.forms import checked, contents, decode

SCORING = ("sts-eval", "senteval", "retrieve", "evaluate")
"""The commands whose JSON has scores."""
FACTS = ("value", "majority")
"""Numbers of a task that are no metrics of their own."""
Number = float | None
Ends = tuple[Number, Number] | None
Samples = Annotated[Any, BeforeValidator(lambda text: unpacked(str(text)))]


class TaskDifference(BaseModel):
    """The difference of a model's score from that of the first model, on one task."""

    model_config = ConfigDict(extra="allow")
    difference: float
    p: Number


class Comparison(BaseModel):
    """The comparison of a model with the first one of its run."""

    model_config = ConfigDict(populate_by_name=True, extra="allow")
    tasks: dict[str, TaskDifference]


class PublishedLine(BaseModel):
    """A measured score beside a published one."""

    model_config = ConfigDict(extra="allow")
    measured: float
    published: float
    difference: float
    range: Ends = None
    within: bool | None = None
    runs: int = 1


class Against(BaseModel):
    """A comparison with a published system."""

    model_config = ConfigDict(extra="allow")
    name: str = ""
    tasks: dict[str, PublishedLine]

    def titled(self) -> dict[str, Any]:
        """Return the comparison with title and source, from the list of published systems if the file has none."""
        from sentcli.evaluation.published import published

        system = published().get(self.name)
        titles = {"title": system.title, "source": system.source} if system else {"title": self.name, "source": ""}
        return titles | self.model_dump()


class TaskResult(BaseModel):
    """The results of one task; all other fields are metrics, counts and further facts."""

    model_config = ConfigDict(extra="allow")
    interval: Ends = None
    intervals: dict[str, Ends] = {}
    forums: dict[str, TaskResult] = {}
    subsets: dict[str, Number] = {}
    """The scores of the years or domains of a task."""
    draws: dict[str, Samples] = {}
    """Samples of metrics; files of earlier versions have none."""

    def score(self, task: str, kind: str, headline: tuple[str, ...]) -> TaskScore:
        """Return the score of the task."""
        fields = self.model_extra or {}
        own = {key for key in fields if isinstance(fields[key], float) and key not in FACTS}
        numbers = {key: _number(fields[key]) for key in fields if key in own or key in headline}
        metrics = {key: value for key, value in numbers.items() if value is not None}
        intervals = {**({headline[0]: self.interval} if self.interval else {}), **self.intervals}
        return TaskScore(
            task=task,
            kind=kind,
            metrics=metrics,
            headline=headline,
            facts={
                **({"subsets": self.subsets} if self.subsets else {}),
                **{key: value for key, value in fields.items() if key not in numbers},
            },
            intervals={
                key: (ends[0], ends[1])
                for key, ends in intervals.items()
                if ends and ends[0] is not None and ends[1] is not None
            },
            draws=self.draws,
            parts=tuple(part.score(name, kind, headline) for name, part in self.forums.items()),
        )


class Protocol(BaseModel):
    """The parts of a protocol that hold the choices of single kinds and sets."""

    kinds: dict[str, dict[str, Any]] = {}
    sets: dict[str, dict[str, Any] | None] = {}


class ScoreFile(BaseModel):
    """The JSON object of one model that a command wrote with ``--json``."""

    model_config = ConfigDict(extra="ignore")
    command: Literal["sts-eval", "senteval", "retrieve", "evaluate"]
    model: str
    results: dict[str, TaskResult]
    protocol: dict[str, Any] = {}
    environment: dict[str, Any] = {}
    average_interval: Ends = None
    compared: Comparison | None = None
    against: Against | None = None
    cached: list[str] = []
    cost: dict[str, int | float | None] = {}
    draws: str = ""
    elapsed_seconds: Number = None

    def scores(self, source: str) -> ModelScores:
        """Return the scores of the model, with the name of the file as their source."""
        low, high = self.average_interval or (None, None)
        tasks = []
        for name, task in self.results.items():
            kind, headline = self._headline(name, task)
            if not headline:
                continue
            for key in headline:
                value = (task.model_extra or {}).get(key)
                if isinstance(value, bool) or not isinstance(value, int | float | None):
                    raise DataError(source, f"{name} {key}: expected a number, found {json.dumps(value)[:40]}")
            tasks.append(task.score(name, kind, headline))
        return ModelScores(
            command=self.command,
            model=self.model,
            protocol=self.protocol,
            tasks=tasks,
            environment=self.environment,
            cached=self.cached,
            compared=self.compared.model_dump() if self.compared else {},
            against=self.against.titled() if self.against else {},
            source=source,
            average_interval=None if low is None or high is None else (low, high),
            seconds=self.elapsed_seconds,
            cost=self.cost,
            draws_file=self.draws,
        )

    def _headline(self, name: str, task: TaskResult) -> tuple[str, tuple[str, ...]]:
        """Return the kind of a task and the metrics that tables show."""
        keys = list(task.model_extra or {})
        if self.command == "evaluate":
            fields = task.model_extra or {}
            kind = OWN_KINDS.get(str(fields.get("kind")))
            return ("", ()) if kind is None else (kind.name, (str(fields.get("metric")),))
        if self.command == "senteval":
            return (TRANSFER.name, ("accuracy",)) if "accuracy" in keys else (TRAINED_HEAD.name, ("spearman",))
        if self.command == "sts-eval":
            metrics = {each.title: each.metric for each in AGGREGATIONS.values()}
            return SIMILARITY.name, (metrics.get(str(self.protocol.get("aggregation")), "spearman"),)
        if name == "in-domain":
            return IN_DOMAIN.name, tuple(key for key in keys if key.startswith("recall@"))
        cutoffs = [int(key[5:]) for key in keys if key.startswith("ndcg@") and key[5:].isdigit()]
        cutoff = max((k for k in cutoffs if k <= MAIN_CUTOFF), default=MAIN_CUTOFF)
        return RETRIEVAL.name, (f"ndcg@{cutoff}",)


def read_scores(files: Iterable[Path]) -> list[ModelScores]:
    """Read files that commands wrote with ``--json``; each holds an object or a list of objects."""
    scores = []
    for file in files:
        value = _parse(file)
        objects = value if isinstance(value, list) else [value]
        if not objects:
            raise DataError(file, "an empty list; there is nothing to show")
        scores += [read_object(item, str(file)) for item in objects]
    return scores


def _parse(file: Path) -> Any:
    if file.is_dir():
        raise InputError(f"{file} is a folder; name JSON files")
    try:
        return decode(contents(file).removeprefix("\ufeff"))
    except FileNotFoundError as error:
        raise InputError(f"no such file: {file}") from error
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise DataError(file, f"not JSON ({error.msg}); is the file torn?", line=error.lineno) from error
    except ValueError as error:
        raise DataError(file, f"not JSON ({one_line(error)})") from error


def read_object(value: Any, file: str = "") -> ModelScores:
    """Read one object that a command wrote with ``--json``; `file` is named in messages and tells models apart."""
    if not isinstance(value, dict) or not {"command", "model", "results"} <= value.keys():
        raise DataError(file, "not a report of sentcli: no object with command, model and results")
    if value["command"] not in SCORING:
        raise DataError(file, f"a report of {value['command']}; only {' and '.join(SCORING)} have scores to show")
    if isinstance(value["results"], list):
        raise DataError(file, "hits of retrieve --query, not scores of a set")
    form = checked(ScoreFile, value, file)
    checked(Protocol, form.protocol, f"{file}: protocol")
    scores = form.scores(file)
    if not scores.tasks:
        raise DataError(file, f"the results of {scores.model} are not scores by task")
    return scores


def _number(value: Any) -> float | None:
    """Return a number as float; None for null and for numbers that are not finite."""
    try:
        return float(value) if value is not None and math.isfinite(value) else None
    except OverflowError:
        return None
