"""What manifests and files keep of how their vectors were made, so that nobody continues them with others."""

from __future__ import annotations

from typing import Any

from sentcli.bulk.engine import EncodeSettings
from sentcli.bulk.files import Inputs
from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.encoder.vector_facts import VectorFacts
from sentcli.errors import InputError
from sentcli.io.writers import DIRECTORY, OutputFormat


def check_same_model(output: str, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse to continue a directory with a model that has changed under the same name and files.

    Raises:
        InputError: if it makes other vectors of the fixed texts than when the directory was begun.
    """
    kept = VectorFacts.read(output, before).canaries
    made = VectorFacts.read(output, now).canaries
    if kept is not None and made is not None:
        kinship, sentence = kept.compare(made)
        if kinship not in ("equal", "rounding", "another precision"):
            raise InputError(f"{output} was begun with a model that made other vectors: {sentence}")


def settings_of(
    encoder: SentenceEncoder, inputs: Inputs, settings: EncodeSettings, block_rows: int, form: OutputFormat
) -> dict[str, Any]:
    """Return everything that decides the vectors of a row and their order."""
    facts = {
        **VectorFacts.of(encoder, settings.prompt, settings.compression, settings.passages).recorded(),
        **encoder.describe(),
        "on_long": settings.on_long,
        "batch_tokens": settings.batch_tokens or encoder.backend.default_batch_tokens,
        "block_rows": block_rows,
        "text_field": inputs.options.text_field,
        "id_field": inputs.options.id_field,
        "on_null": inputs.options.on_null,
    }
    if inputs.options.nulls:
        facts["null"] = list(inputs.options.nulls)
    if form is not DIRECTORY:
        facts["inputs"] = inputs.identity()
    return facts
