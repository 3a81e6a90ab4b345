"""The candidates of an adaptation: few trainings that differ in what they learn from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sentcli.evaluation.evaluated import EvaluatedModel

BATCH_SIZE = 32
"""The rows of a step."""
CANDIDATE_SETTINGS: list[tuple[str, Any]] = [
    ("settings.batch_size", BATCH_SIZE),
    ("settings.learning_rate", 2e-5),
    ("settings.warmup_share", 0.1),
    ("settings.max_length", 256),
    ("settings.dropout", 0.0),
    ("settings.share_every", 0),
]
"""The settings of all candidates: those of GPL's and sentence-transformers' trainings of finished encoders.

There is no dropout: the texts of a row differ by themselves, and margins of the start are its own without noise.
"""
MLM_SETTINGS: list[tuple[str, Any]] = [
    ("settings.batch_size", BATCH_SIZE),
    ("settings.learning_rate", 2e-5),
    ("settings.max_length", 128),
    ("settings.share_every", 0),
]


@dataclass(frozen=True)
class Candidate:
    """One way of training."""

    name: str
    method: str
    """The method that learns from queries, documents and hard negatives."""
    assignments: tuple[tuple[str, Any], ...] = ()
    """Its settings besides `CANDIDATE_SETTINGS`, as `configure` takes them."""
    taught: bool = False
    """Whether a teacher gives its targets: the one that was named, else the start itself."""
    reads_first: bool = False
    """Whether masked language modelling on the documents comes before it."""


CONTRAST = Candidate("contrast", "simcse")
MARGINS = (("objectives+", "margin-mse"),)
HELD = Candidate("contrast and margins", "simcse", MARGINS, taught=True)
READ = Candidate("language modelling, contrast and margins", "simcse", MARGINS, taught=True, reads_first=True)
TAUGHT = Candidate("margins", "margin-mse", taught=True)


def candidates_for(start: EvaluatedModel, *, has_teacher: bool) -> list[Candidate]:
    """Return the candidates that a start can be trained by, the one that changes the least first.

    Args:
        start: the start model.
        has_teacher: whether another model is its teacher: its margins alone teach, which the start's own do not.
    """
    chosen = [HELD, CONTRAST]
    if has_teacher:
        chosen.insert(0, TAUGHT)
    tokenizer = start.load().on_torch().hf_tokenizer
    is_language_model = tokenizer.mask_token_id is not None and not start.load().local.spec.is_static
    if is_language_model:
        chosen.append(READ)
    return chosen
