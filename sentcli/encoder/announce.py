"""Loading a model for a verb: what was loaded, and what was cut, is said."""

from __future__ import annotations

from sentcli import console
from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.model.options import LoadOptions


def load_encoder(model: str, options: LoadOptions) -> SentenceEncoder:
    """Load a model and say what was loaded."""
    encoder = SentenceEncoder.load(model, **vars(options), notice=console.note)
    if encoder.spec.assumed_pooling:
        console.warn(f"{model} does not say how it pools; taking mean (--pooling chooses)")
    facts = ", ".join(f"{key} {value}" for key, value in encoder.describe().items())
    console.detail(f"{model}: {facts}, device {encoder.backend.device}, {encoder.dimension} dimensions")
    return encoder


def warn_truncated(limit: int | None, truncated: int, lost: int | None = None, *, what: str = "distinct texts") -> None:
    """Say how many texts were cut."""
    if truncated:
        tokens = f", {lost} tokens lost" if lost is not None else ""
        console.warn(f"{truncated} {what} are longer than {limit} tokens and were cut{tokens} (--max-length)")
