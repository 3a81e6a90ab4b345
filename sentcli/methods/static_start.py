"""A static model made of a teacher: a vector for each token, from which training goes on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli.arrays import Float32Array
from sentcli.bounds import Bounded, NotNegative, WholeNumber
from sentcli.errors import InputError
from sentcli.io.word_vectors import write_static

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder

TOKENS_AT_A_TIME = 8192
"""Texts that are tokenised, and tokens that are encoded, at a time."""


@dataclass(frozen=True, kw_only=True)
class StaticStart(Bounded):
    """A table of the teacher's vectors of single tokens, each weighted by how rare it is in the text.

    The weight is ``a / (a + p)`` for a token whose share of the text is p (Arora et al., ICLR 2017, eq. 3). The
    vocabulary is the teacher's; with `words`, frequent words that it cuts into pieces become tokens of their own.
    """

    dimensions: WholeNumber = 0
    """The dimension of the table, by the principal axes of its vectors; 0 keeps the teacher's."""
    rarity: NotNegative = 1e-3
    """The constant a of the weights; 0 weights all tokens alike."""
    words: WholeNumber = 20_000
    """How many words of the text become tokens of their own, the most frequent first, if the vocabulary is one of word
    pieces."""
    least_count: WholeNumber = 3
    """How often a word has to be in the text."""

    def write(self, teacher: SentenceEncoder, texts: Sequence[str], folder: Path) -> None:
        """Write the model into an empty folder, in sentence-transformers' layout.

        Args:
            teacher: an encoder whose weights are here.
            texts: of the training.
            folder: an empty folder.

        Raises:
            InputError: if the teacher has no tokenizer of its own here, or fewer dimensions than are asked for.
        """
        from tokenizers import Tokenizer

        tokenizer = _bare(teacher.hf_tokenizer.backend_tokenizer)
        if teacher.local.spec.lowercase:
            raise InputError("static: a teacher that lower-cases texts before its tokenizer is not supported")
        names = _pieces(tokenizer)
        words = self._new_words(tokenizer, texts)
        if words:
            content = json.loads(tokenizer.to_str())
            vocabulary = content["model"]["vocab"]
            for word in words:
                vocabulary[word] = len(names)
                names.append(word)
            tokenizer = Tokenizer.from_str(json.dumps(content))
        table = _token_vectors(teacher, names)
        if self.dimensions > table.shape[1]:
            raise InputError(f"dimensions={self.dimensions} is more than the {table.shape[1]} of the teacher")
        if self.dimensions:
            table = _principal(table, self.dimensions)
        if self.rarity:
            table *= self._weights(tokenizer, texts, len(names))[:, None]
        special = set(teacher.hf_tokenizer.all_special_tokens)
        for row, name in enumerate(names):
            if name in special:
                table[row] = 0
        write_static(folder, tokenizer, table, unit_length=bool(teacher.spec.normalizes))

    def _new_words(self, tokenizer: Any, texts: Sequence[str]) -> list[str]:
        """Return the frequent words of the texts that the tokenizer cuts into pieces."""
        is_word_pieces = type(tokenizer.model).__name__ == "WordPiece"
        if not self.words or not is_word_pieces or tokenizer.pre_tokenizer is None:
            return []
        counts: Counter[str] = Counter()
        for text in texts:
            if tokenizer.normalizer is not None:
                text = tokenizer.normalizer.normalize_str(text)
            counts.update(word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text))
        known = tokenizer.get_vocab()
        new = []
        for word, count in sorted(counts.items(), key=_most_frequent_first):
            if count >= self.least_count and word not in known and any(map(str.isalnum, word)):
                new.append(word)
        return new[: self.words]

    def _weights(self, tokenizer: Any, texts: Sequence[str], tokens: int) -> Float32Array:
        """Return the weight of each token ``[tokens]``."""
        counts = np.zeros(tokens)
        for start in range(0, len(texts), TOKENS_AT_A_TIME):
            part = list(texts[start : start + TOKENS_AT_A_TIME])
            for encoding in tokenizer.encode_batch_fast(part, add_special_tokens=False):
                np.add.at(counts, encoding.ids, 1)
        shares = counts / max(1.0, counts.sum())
        return (self.rarity / (self.rarity + shares)).astype(np.float32)


def _most_frequent_first(entry: tuple[str, int]) -> tuple[int, str]:
    """Return by what words with their counts are ordered."""
    word, count = entry
    return -count, word


def _bare(tokenizer: Any) -> Any:
    """Return a copy of a tokenizer that adds no special tokens, pads nothing and cuts nothing."""
    from tokenizers import Tokenizer

    content = json.loads(tokenizer.to_str())
    content |= {"post_processor": None, "truncation": None, "padding": None}
    return Tokenizer.from_str(json.dumps(content))


def _pieces(tokenizer: Any) -> list[str]:
    """Return the tokens of a vocabulary in the order of their ids.

    Raises:
        InputError: if the ids have gaps.
    """
    by_id = {number: token for token, number in tokenizer.get_vocab(with_added_tokens=True).items()}
    if sorted(by_id) != list(range(len(by_id))):
        raise InputError("static: the vocabulary of the teacher has gaps, so that its tokens are no rows of a table")
    return list(map(by_id.__getitem__, range(len(by_id))))


def _token_vectors(teacher: SentenceEncoder, names: Sequence[str]) -> Float32Array:
    """Return the teacher's vector of each token as a text ``[tokens, d]``."""
    return np.array(teacher.encode(list(map(_as_text, names))), np.float32)


def _as_text(token: str) -> str:
    """Return what a token stands for: without the marks of word pieces, SentencePiece and byte pairs."""
    return token.removeprefix("##").replace("\u2581", " ").replace("\u0120", " ").strip() or token


def _principal(table: Float32Array, dimensions: int) -> Float32Array:
    """Return the vectors on their first principal axes ``[tokens, dimensions]``."""
    centred = table - table.mean(axis=0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    first = axes[:, ::-1][:, :dimensions]
    return np.ascontiguousarray(centred @ first, np.float32)
