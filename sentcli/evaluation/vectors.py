"""The vectors of the texts of an evaluation: each distinct text once, also over several runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.model.encoding import Encoded, Progress

Floats = npt.NDArray[Any]


@dataclass(frozen=True)
class TextVectors:
    """The vectors of some texts."""

    rows: dict[str, int]
    """Text to row of `vectors`."""
    vectors: Floats
    """``[texts, dim]``."""
    beyond: npt.NDArray[np.int64]
    """Tokens of each text beyond the model's maximum length ``[texts]``."""

    def of(self, texts: Sequence[str]) -> Floats:
        """Return the vectors of texts, which may repeat ``[n, dim]``."""
        found: Floats = self.vectors[[self.rows[text] for text in texts]]
        return found

    def truncated(self, texts: Iterable[str]) -> int:
        """Count the distinct texts that are longer than the model's maximum length."""
        return sum(bool(self.beyond[self.rows[text]]) for text in set(texts))


class Store(Protocol):
    """Keeps vectors from run to run."""

    def encode(
        self, encoder: SentenceEncoder, texts: Sequence[str], progress: Progress | None, prompt: str | None = None
    ) -> Encoded:
        """Return the vectors of distinct texts, those that are kept and those that had to be encoded."""


def encode(
    encoder: SentenceEncoder,
    texts: Iterable[str],
    progress: Progress | None = None,
    store: Store | None = None,
    prompt: str | None = None,
) -> TextVectors:
    """Encode every distinct text once.

    Args:
        encoder: the model.
        texts: may repeat.
        progress: as in `SentenceEncoder.encode`.
        store: takes what it has, and keeps the rest.
        prompt: text in front of each; None is the model's default one, if it has one.

    Raises:
        SentcliError: if a vector is not finite.
    """
    distinct = list(dict.fromkeys(texts))
    if store is not None:
        found = store.encode(encoder, distinct, progress, prompt)
    else:
        found = encoder.encode_distinct(distinct, encoder.prompt_text(prompt=prompt), progress=progress)
    return TextVectors({text: row for row, text in enumerate(distinct)}, found.vectors, found.beyond)
