"""Notes for the user about the data and the settings of a run, before its first step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sentcli.errors import InputError
from sentcli.training.data import repetitions
from sentcli.training.loop import run_order
from sentcli.training.request import methods_that_take

if TYPE_CHECKING:
    from sentcli.methods import Method
    from sentcli.training.data import TrainingSentences
    from sentcli.training.inputs import RunInputs
    from sentcli.training.request import TrainRequest
    from sentcli.training.training_model import TrainingModel

WARM_UP = "the warm-up"
"""How the note on a learning rate that is still rising at the end begins."""


def data_notes(request: TrainRequest, method: Method, inputs: RunInputs) -> list[str]:
    """Return notes about rows of the test sets, unused labels, the range of the scores, or repeated sentences."""
    corpus = inputs.corpus
    objectives = method.objectives
    notes = list(corpus.notes)
    if inputs.leaked:
        remedy = " and were left out" if request.data.no_leak else "; --no-leak leaves them out"
        notes.append(f"{inputs.leaked} {corpus.unit} hold a text of the dev or test sets{remedy}")
    if method.views.reads == "scores":
        low, high = corpus.score_range
        for name, numbers in (("regression", "cosines"), ("pair-score", "probabilities")):
            if name in objectives:
                become = f"scores from {low:g} to {high:g} become {numbers} from 0 to 1"
                notes.append(f"{become}; --score-range says another range")
        return notes
    layout = None
    if method.views.reads == "sentences":
        layout = request.layout(method)
    if layout is not None:
        notes.append(f"{method.name} does not use the column {layout.columns[-1]}; {methods_that_take(layout.kind)}")
    else:
        notes += _repetition_notes(method, corpus)
    return notes


def _repetition_notes(method: Method, corpus: TrainingSentences) -> list[str]:
    """Return a note about sentences that repeat, where they are negatives of each other, and what can be done."""
    contrasting = [objective for objective in method.objectives.values() if objective.negatives_in_batch]
    if not contrasting or any(getattr(objective, "mask_duplicates", False) for objective in contrasting):
        return []
    repeated = repetitions(corpus.sentences)
    if not repeated:
        return []
    advice = "sentcli analyze duplicates --write leaves copies out"
    if any(hasattr(objective, "mask_duplicates") for objective in contrasting):
        advice = f"--set mask_duplicates=true does not push them apart, and {advice}"
    return [
        f"{repeated:,} of {len(corpus.sentences):,} sentences repeat an earlier one: in a batch with it they are taken "
        f"for different sentences; {advice}"
    ]


def batch_notes(method: Method, model: TrainingModel, sentences: int) -> list[str]:
    """Check the batch size, and return notes about the last batch, the steps of an epoch and the warm-up."""
    settings = method.settings
    least = model.least_rows
    notes = []
    order = run_order(model, settings, sentences)
    if settings.batch_size < least:
        raise InputError(f"batch_size {settings.batch_size}: {method.name} with these settings needs at least {least}")
    last_batch = sentences % (settings.batch_size * order.processes)
    if 1 < last_batch < least * order.processes:
        notes.append(f"the last {last_batch} sentences of each epoch are left out: a batch needs at least {least}")
    steps = settings.total_steps(order.per_epoch)
    if not settings.max_steps and settings.accumulate > settings.epochs * order.per_epoch:
        notes.append(f"one step takes {settings.accumulate} batches, an epoch has {order.per_epoch}")
    if settings.warmup_steps >= steps:
        notes.append(f"{WARM_UP} of {settings.warmup_steps} steps is not over when the run ends, after {steps}")
    return notes
