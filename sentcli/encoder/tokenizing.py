"""Text to token ids, with the Rust tokenizers library alone (no transformers here)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Tokens:
    """Token ids of some texts, special tokens included, cut to the maximum length."""

    ids: list[list[int]]
    type_ids: list[list[int]] | None
    truncated: int
    """Texts that were cut."""
    lost: int
    """Tokens that were cut off, over all texts."""

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Tokens of each text ``[n]``."""
        return np.fromiter((len(ids) for ids in self.ids), np.int64, len(self.ids))


class TextTokenizer:
    """A `tokenizers.Tokenizer` with a fixed maximum length that counts what it cuts."""

    def __init__(self, backend: Any, max_length: int, pad_id: int, *, lowercase: bool = False) -> None:
        self.backend, self.max_length, self.pad_id, self.lowercase = backend, max_length, pad_id, lowercase
        backend.no_padding()
        backend.enable_truncation(max_length)
        sample = backend.encode("a")
        self.special_tokens = sum(sample.special_tokens_mask)
        # BERT's single sentences have type 0 throughout, which is what models assume when none are given.
        self.has_type_ids = any(sample.type_ids)

    def __call__(self, texts: Sequence[str], prompt: str = "") -> Tokens:
        """Tokenise; `prompt` is put in front of every text."""
        if prompt:
            texts = [prompt + text for text in texts]
        if self.lowercase:
            texts = [text.lower() for text in texts]
        try:
            encodings = self.backend.encode_batch_fast(texts)
        except TypeError:  # the only way for a str to fail
            encodings = self.backend.encode_batch_fast([without_surrogates(text) for text in texts])
        truncated = lost = 0
        for encoding in encodings:
            overflow = encoding.overflowing
            if overflow:
                truncated += 1
                lost += sum(len(part) - self.special_tokens for part in overflow)
        type_ids = [encoding.type_ids for encoding in encodings] if self.has_type_ids else None
        return Tokens([encoding.ids for encoding in encodings], type_ids, truncated, lost)

    def prompt_length(self, prompt: str) -> int:
        """Tokens that `prompt` takes at the front, leading special tokens included, the closing one not."""
        encoding = self.backend.encode(prompt)
        return len(encoding.ids) - (1 if encoding.special_tokens_mask[-1] else 0)


def without_surrogates(text: str) -> str:
    """Replace lone surrogates, which JSON can hold and UTF-8 cannot, by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def pad(tokens: Tokens, rows: Sequence[int] | npt.NDArray[np.intp], pad_id: int) -> dict[str, npt.NDArray[np.int64]]:
    """Stack some rows into ``input_ids`` and ``attention_mask`` ``[len(rows), longest]``, padded on the right."""
    width = max(max(len(tokens.ids[row]) for row in rows), 1)
    batch = {
        "input_ids": np.full((len(rows), width), pad_id, np.int64),
        "attention_mask": np.zeros((len(rows), width), np.int64),
    }
    if tokens.type_ids is not None:
        batch["token_type_ids"] = np.zeros((len(rows), width), np.int64)
    for i, row in enumerate(rows):
        ids = tokens.ids[row]
        batch["input_ids"][i, : len(ids)] = ids
        batch["attention_mask"][i, : len(ids)] = 1
        if tokens.type_ids is not None:
            batch["token_type_ids"][i, : len(ids)] = tokens.type_ids[row]
    return batch
