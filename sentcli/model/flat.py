"""Flat batches: the tokens of several texts one after the other, without padding."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sentcli.arrays import Int64Array

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sentcli.model.tokenizing import Tokens


@dataclass(frozen=True)
class Flat:
    """The tokens of `texts` texts in one row, each text behind the one before it.

    It is the batch of text-embeddings-inference and of variable-length attention: ids, positions, where each text
    begins, and the length of the longest one.
    """

    ids: Int64Array
    """The token ids ``[tokens]``."""
    positions: Int64Array
    """The place of each token in its text, from 0 ``[tokens]``."""
    offsets: npt.NDArray[np.int32]
    """Where each text begins, and at the end the number of tokens ``[texts + 1]``."""
    type_ids: Int64Array | None = None
    """The type of each token ``[tokens]``; None stands for 0 throughout."""

    @property
    def texts(self) -> int:
        """The number of texts."""
        return len(self.offsets) - 1

    @property
    def lengths(self) -> npt.NDArray[np.int32]:
        """The number of tokens of each text ``[texts]``."""
        return np.diff(self.offsets)

    @property
    def longest(self) -> int:
        """The number of tokens of the longest text."""
        return int(self.lengths.max(initial=0))


def flat_of(ids: Sequence[Sequence[int]], type_ids: Sequence[Sequence[int]] | None = None) -> Flat:
    """Lay texts out one after the other.

    Args:
        ids: the token ids of each text; none may be empty.
        type_ids: the types of its tokens.
    """
    lengths = np.fromiter(map(len, ids), np.int64, len(ids))
    offsets = np.zeros(len(ids) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    begins = np.repeat(offsets[:-1], lengths)
    total = len(begins)
    types = None
    if type_ids is not None:
        types = _in_a_row(type_ids, total)
    return Flat(
        ids=_in_a_row(ids, total),
        positions=np.arange(total) - begins,
        offsets=offsets.astype(np.int32),
        type_ids=types,
    )


def _in_a_row(values: Sequence[Sequence[int]], total: int) -> Int64Array:
    """Return the values of all texts one after the other ``[total]``."""
    return np.fromiter(chain.from_iterable(values), np.int64, total)


def flatten(tokens: Tokens, rows: Sequence[int] | Int64Array) -> Flat:
    """Lay some texts of `tokens` out one after the other."""
    types = tokens.type_ids
    chosen_types = None if types is None else [types[row] for row in rows]
    return flat_of([tokens.ids[row] for row in rows], chosen_types)


def padded_alone(text: Flat) -> dict[str, Int64Array]:
    """Return a flat batch of one text as a batch ``[1, tokens]`` of the other kind."""
    batch = {"input_ids": text.ids[None], "attention_mask": np.ones_like(text.ids)[None]}
    if text.type_ids is not None:
        batch["token_type_ids"] = text.type_ids[None]
    return batch
