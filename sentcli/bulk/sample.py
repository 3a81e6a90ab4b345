"""Principal components, learned from a sample of the input."""

from __future__ import annotations

from pathlib import Path

from sentcli.bulk.inputs import Inputs
from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.io.atomic import check_output
from sentcli.io.readers import blocks
from sentcli.smaller import fit_pca

SAMPLE_ROWS = 10_000


def learn_components(encoder: SentenceEncoder, inputs: Inputs, prompt: str, dimension: int, path: Path) -> int:
    """Encode up to 10,000 rows spread over the inputs, write their principal components, and return their number.

    Raises:
        InputError: if there are too few rows or dimensions.
    """
    check_output(path)
    step = max(inputs.survey.rows // SAMPLE_ROWS, 1)
    texts: dict[str, None] = {}
    for block in blocks(inputs.sources, inputs.options):
        start = -block.first_row % step
        texts.update(dict.fromkeys(block.texts[start::step]))
    sample = list(texts)[: 2 * SAMPLE_ROWS]
    fit_pca(encoder.encode(sample, prompt=prompt), dimension).save(path)
    return len(sample)
