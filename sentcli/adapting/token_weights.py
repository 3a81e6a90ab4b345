"""Weights of a model's tokens by how rare they are in a corpus: a change of the mean that needs no training.

The mean over token vectors counts each token alike, also those that stand in nearly every document of a corpus and so
tell none from the others. A weight of ``idf ** power`` counts them less: the inverse document frequency of Spärck
Jones, "A statistical interpretation of term specificity and its application in retrieval", Journal of Documentation
1972.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sentcli.arrays import Float64Array
from sentcli.encoder.sentence_encoder import SentenceEncoder

POWERS = (0.25, 0.5, 1.0)
"""The powers of the inverse document frequency that are tried; 0 is the plain mean."""
_TEXTS_AT_A_TIME = 4096


def powers_for(start: SentenceEncoder) -> tuple[float, ...]:
    """Return the powers that are tried with a start: none unless its vectors are plain means of token vectors."""
    return POWERS if start.local.spec.is_plain_mean else ()


def inverse_document_frequencies(encoder: SentenceEncoder, documents: Sequence[str]) -> Float64Array:
    """Return ``log((n + 1) / (f + 1/2))`` of each token, by its id, where f of n documents have it.

    Special tokens and those of the model's prompts, which are in every text, get the median of the tokens that occur.

    Args:
        encoder: whose tokens they are.
        documents: the texts, of which only what the encoder reads is counted.
    """
    counts: Counter[int] = Counter()
    for first in range(0, len(documents), _TEXTS_AT_A_TIME):
        for ids in encoder.tokenizer(documents[first : first + _TEXTS_AT_A_TIME]).ids:
            counts.update(set(ids))
    size = 1 + max(encoder.tokenizer.backend.get_vocab().values())
    frequencies = np.zeros(size)
    for token, count in counts.items():
        frequencies[token] = count
    rarities = np.log((len(documents) + 1) / (frequencies + 0.5))
    everywhere = set(encoder.hf_tokenizer.all_special_ids)
    for prompt in encoder.spec.prompts.values():
        everywhere.update(encoder.tokenizer([prompt]).ids[0])
    typical = frequencies > 0
    typical[list(everywhere)] = False
    if not typical.any():  # the tokenizer knows none of the words, so that none is rarer than another
        return np.ones(size)
    rarities[list(everywhere)] = np.median(rarities[typical])
    return rarities


def write_weighted(start: str, rarities: Float64Array, power: float, folder: Path) -> None:
    """Write the model whose tokens have the weights ``idf ** power``.

    Args:
        start: the name of a model whose vectors are plain means.
        rarities: the idf of each token, by its id.
        power: 0 is the start, and the higher it is, the less count frequent tokens.
        folder: is written.
    """
    encoder = SentenceEncoder.load(start, backend="torch", device="cpu", precision="fp32")
    weights = np.round(rarities**power, 6)
    encoder.with_word_weights(weights.tolist()).save(folder, overwrite=True)
