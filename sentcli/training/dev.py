"""The development sets of a run: scored at step 0, every `eval_every` steps and at the end; the first one decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sentcli.evaluation import sts
from sentcli.evaluation.evaluated import EvaluatedModel, Task
from sentcli.evaluation.pair_geometry import pair_geometry
from sentcli.evaluation.stores import digest
from sentcli.training.observer import STSB_DEV, dev_title, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.training.request import TrainRequest


@dataclass(frozen=True)
class DevSet:
    """A set with a metric by which weights are compared."""

    name: str
    metric: str
    key: str
    """The name of the score in ``metrics.jsonl``."""
    task: Task
    texts: Sequence[str] = ()
    """The texts that should not be trained on: those of tables, and the queries of retrieval sets."""

    def shown(self, score: float) -> str:
        """Return a score with its name, for messages."""
        return f"{dev_title(self.name, self.metric)} {shown(self.metric, score)}"


def read_dev(request: TrainRequest) -> tuple[DevSet, ...]:
    """Read the dev sets of a run: its own ones, and then STS-B dev of ``--eval-data``."""
    sets: list[DevSet] = []
    if request.eval_data is not None:
        name, metric = STSB_DEV
        task = sts.SimilarityTask(name, sts.load_task(request.eval_data, name, "dev"))
        sets.append(DevSet(name, metric, f"{name if sets else 'dev'}_{metric}", task, task.texts))
    return tuple(sets)


def identity(sets: Sequence[DevSet]) -> str | None:
    """Return a hash of the dev sets; of STS-B dev alone it is that of its pairs."""
    if not sets:
        return None
    (first, *others), task = sets, sets[0].task
    if not others and (first.name, first.metric) == STSB_DEV and isinstance(task, sts.SimilarityTask):
        return digest(sts.content(task.subsets))
    return digest([dev.task.identity for dev in sets])


def dev_values(encoder: SentenceEncoder, sets: Sequence[DevSet], *, geometry: bool = False) -> dict[str, float]:
    """Return the scores of an encoder by their keys; with `geometry` also alignment and uniformity of STS-B dev."""
    model = EvaluatedModel.of(encoder)
    vectors = model.encode([text for dev in sets for text in dev.task.texts])
    values = {dev.key: dev.task.score(model, vectors).value for dev in sets}
    if geometry:
        stsb = next(dev.task for dev in sets if isinstance(dev.task, sts.SimilarityTask) and dev.name == STSB_DEV[0])
        measured = pair_geometry(vectors, stsb.subsets)
        values |= {"alignment": measured.alignment, "uniformity": measured.uniformity}
    return values
