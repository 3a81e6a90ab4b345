"""Vectors that a file of texts holds already, for the model that made them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from sentcli import console
from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.encoder.vector_facts import VectorFacts
from sentcli.errors import InputError
from sentcli.io.readers import ReadOptions
from sentcli.model.encoding import CHUNK, Encoded
from sentcli.search.provenance import Provenance
from sentcli.search.stored_vectors import StoredVectors
from sentcli.search.vector_file import open_stored

SAME = ("equal", "rounding")
"""The results of `ProbeVectors.compare` for two models that make the same vectors."""


@dataclass
class ReusedVectors:
    """The vectors of a directory or file that `encode` wrote, which is opened when they are asked for."""

    name: str
    """The name of the directory or file, which may hold texts alone."""
    is_made_by: dict[tuple[str, int | None], bool] = field(default_factory=dict)
    """Whether the model made the vectors, by the prompt that it puts in front of texts and its maximum length."""

    @cached_property
    def stored(self) -> StoredVectors | None:
        """The vectors; None if there are texts alone, or no vectors to compute with."""
        try:
            return open_stored(self.name, None, ReadOptions(), to_search=False)
        except InputError as error:
            console.detail(f"{self.name}: its vectors are not taken: {error}")
            return None

    def are_of(self, encoder: SentenceEncoder, prompt: str) -> bool:
        """Tell whether an encoder makes these vectors of the same texts: all facts are equal.

        Args:
            encoder: the same model at each call, perhaps with another maximum length.
            prompt: the text in front of each.
        """
        if self.stored is None:
            return False
        use = (prompt, encoder.spec.max_length)
        if use not in self.is_made_by:
            difference = _difference(self.stored.origin, encoder, prompt)
            self.is_made_by[use] = difference is None
            if difference is None:
                console.note(f"{self.name}: {encoder.model} has made its vectors, which are taken as they are")
            else:
                console.detail(f"{self.name}: its vectors are not those of {encoder.model}: {difference}")
        return self.is_made_by[use]

    def encoded(self, encoder: SentenceEncoder, texts: Sequence[str], prompt: str) -> tuple[list[str], Encoded]:
        """Return those of some texts that are there, and what the encoder would make of them."""
        assert self.stored is not None
        sought = set(texts)
        row_of_text: dict[str, int] = {}
        for row, text in enumerate(self.stored.rows.texts()):
            if text in sought:
                row_of_text.setdefault(text, row)
        texts_there = list(row_of_text)
        rows = np.fromiter(row_of_text.values(), np.int64, len(row_of_text))
        vectors = np.asarray(self.stored.blocks.take(rows), np.float32)
        excess_tokens = np.zeros(len(rows), np.int64)
        if encoder.sent is None:  # a model that is served has no tokenizer here
            for start in range(0, len(rows), CHUNK):
                chunk = slice(start, start + CHUNK)
                tokens = encoder.tokenizer(texts_there[chunk], prompt)
                excess_tokens[chunk] = tokens.excess_tokens
        return texts_there, Encoded(vectors, excess_tokens, 0)


def _difference(origin: Provenance, encoder: SentenceEncoder, prompt: str) -> str | None:
    """Return in what stored vectors differ from those that an encoder makes of the same texts; None if in nothing."""
    if not origin.known or origin.canaries is None:
        return "it does not say how they were made"
    if origin.output_dtype != "float32" or origin.pca_sha256 is not None:
        return "they were made smaller"
    if origin.on_long == "chunk-mean":
        return "long texts are the mean of their pieces there"
    facts = VectorFacts.of(encoder, prompt)
    stored = replace(origin, model_fingerprint=facts.model_fingerprint, prompt=origin.prompt or "")
    differences = stored.differences(facts)
    if differences:
        return ", ".join(differences)
    if not encoder.identity.is_named(origin.model_fingerprint):
        return f"{origin.model} was another model when it made them"
    assert facts.canaries is not None
    kinship, sentence = origin.canaries.compare(facts.canaries)
    return None if kinship in SAME else sentence
