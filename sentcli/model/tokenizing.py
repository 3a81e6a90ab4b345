"""Turn text into token ids with the tokenizers library alone, without transformers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli.errors import InputError, one_line
from sentcli.io.atomic import regular
from sentcli.model.options import MIN_LENGTH
from sentcli.model.spec import UNKNOWN_LEFT_OUT

if TYPE_CHECKING:
    from sentcli.arrays import Int64Array
    from sentcli.model.spec import EncoderSpec

POSITIONS_AFTER_PADDING = ("roberta", "xlm-roberta", "camembert", "mpnet", "longformer", "xlm-roberta-xl")
"""Architectures that count positions from the padding id on, so that two of their 514 positions are never used."""
RELATIVE_POSITIONS = ("t5", "mt5", "umt5", "longt5", "switch_transformers", "t5gemma")
"""Architectures that know only distances between tokens, whatever number of positions their config.json names."""
NO_LIMIT = 2**20
"""The maximum length in tokens where nothing states one."""

BETWEEN_TEXTS = "\0"
"""Stands between the two texts of a pair, which a cross-encoder takes as one text."""


def pair_text(first: str, second: str) -> str:
    """Return a pair as the one text that a cross-encoder takes; NUL is dropped, as most tokenizers do."""
    return first.replace(BETWEEN_TEXTS, "") + BETWEEN_TEXTS + second.replace(BETWEEN_TEXTS, "")


@dataclass(frozen=True)
class Tokens:
    """Token ids of some texts, special tokens included, cut to the maximum length."""

    ids: list[list[int]]
    """The ids of each text, or of each piece where texts were cut into pieces."""
    type_ids: list[list[int]] | None
    excess_tokens: Int64Array
    """The number of tokens of each text beyond the maximum length, cut off or in further pieces ``[texts]``.

    It is estimated for a text that was cut before it was tokenised, and for a pair.
    """
    owners: Int64Array | None = None
    """The number of the text that each piece belongs to ``[pieces]``; None if every text is one piece."""

    @cached_property
    def lengths(self) -> Int64Array:
        """The number of tokens of each text or piece ``[n]``, counted once."""
        return np.fromiter((len(ids) for ids in self.ids), np.int64, len(self.ids))

    @property
    def truncated(self) -> int:
        """The number of texts that are longer than the maximum length."""
        return int(np.count_nonzero(self.excess_tokens))


@contextmanager
def _refusals(name: str) -> Iterator[None]:
    """Turn errors of the tokenizers library, bare exceptions or panics of Rust, into one that names the model."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise InputError(f"{name}: its tokenizer cannot be used: {one_line(error)}") from error


class TextTokenizer:
    """A `tokenizers.Tokenizer` with a fixed maximum length that counts what it cuts.

    With `pairs` each text is one of `pair_text`, whose longer part is cut first, as transformers' ``longest_first``.

    Args:
        backend: a `tokenizers.Tokenizer`; its truncation is changed.
        max_length: the maximum length in tokens, special ones included.
        pad_id: the id of the padding token.
        side: the end of a long text that is cut, ``left`` or ``right``.
        pairs: whether each text is a pair.
        dropped: the id of a token that is left out of texts, after they were cut.
        most_characters: a text with more characters is cut before it is tokenised; None for a generous number.
        vocabulary: the number of tokens that the model has vectors of, where the tokenizer knows more; else None.
        name: of the model, for messages.
    """

    def __init__(
        self,
        backend: Any,
        max_length: int,
        pad_id: int,
        *,
        side: str = "right",
        pairs: bool = False,
        dropped: int | None = None,
        most_characters: int | None = None,
        vocabulary: int | None = None,
        name: str = "the model",
    ) -> None:
        self.backend = backend
        self.name = name
        self.max_length = max_length
        self.pad_id = pad_id
        self.side = side
        self.pairs = pairs
        self.dropped = dropped
        self.vocabulary = vocabulary
        # the tokenizer would take minutes for a line of many megabytes, and cannot be interrupted
        self.most_characters = most_characters or max_length * 1000
        backend.no_padding()
        with _refusals(self.name):
            backend.enable_truncation(max_length, direction=side)
            sample = backend.encode("a", "a" if pairs else None)
        self.special_tokens = sum(sample.special_tokens_mask)
        # without type ids, models assume type 0 throughout, as single sentences have in BERT
        self.has_type_ids = any(sample.type_ids)

    def __call__(self, texts: Sequence[str], prompt: str = "", *, pieces: bool = False) -> Tokens:
        """Tokenise texts.

        Args:
            texts: the texts.
            prompt: is put in front of every text.
            pieces: keep the tokens beyond the maximum length, as further pieces of the text.
        """
        if prompt:
            texts = [prompt + text for text in texts]
        cut: dict[int, int] = {}
        if not pieces:
            most = self.most_characters
            cut = {number: len(text) - most for number, text in enumerate(texts) if len(text) > most}
        if cut:
            texts = [self._shortened(text) for text in texts]
        with _refusals(self.name):
            try:
                encodings = self.backend.encode_batch_fast(self._inputs(texts))
            except TypeError:  # lone surrogates are the only reason for which a str fails
                texts = [without_surrogates(text) for text in texts]
                encodings = self.backend.encode_batch_fast(self._inputs(texts))
        excess_tokens, pieces_of = self._overflows(encodings, cut)
        owners = None
        if pieces and pieces_of:
            with_pieces = [[encoding, *pieces_of.get(number, ())] for number, encoding in enumerate(encodings)]
            owners = np.repeat(np.arange(len(encodings)), list(map(len, with_pieces)))
            encodings = list(chain.from_iterable(with_pieces))
        ids = [encoding.ids for encoding in encodings]
        if self.vocabulary is not None or self.dropped is not None:
            ids = [self._kept(row) for row in ids]
        type_ids = [encoding.type_ids for encoding in encodings] if self.has_type_ids else None
        return Tokens(ids, type_ids, excess_tokens, owners)

    def _overflows(self, encodings: Sequence[Any], cut: dict[int, int]) -> tuple[Int64Array, dict[int, list[Any]]]:
        """Return the number of tokens of each text beyond the maximum length ``[texts]``, and their pieces.

        Args:
            encodings: the texts, cut to the maximum length.
            cut: how many characters were cut off before, by the number of the text.
        """
        excess_tokens = np.zeros(len(encodings), np.int64)
        pieces_of: dict[int, list[Any]] = {}
        least = self.max_length - self.special_tokens  # a text with fewer tokens has lost none
        long = [number for number, encoding in enumerate(encodings) if len(encoding) >= least]
        for number in long:
            overflow = encodings[number].overflowing
            if not overflow:
                continue
            pieces_of[number] = overflow
            if self.pairs:
                lost = _parts(overflow) - _parts([encodings[number]])
                excess_tokens[number] = sum(len(ids) for _, ids in lost)
            else:
                excess_tokens[number] = sum(len(piece) - self.special_tokens for piece in overflow)
        for number, characters in cut.items():
            tokens = len(encodings[number]) + excess_tokens[number]
            excess_tokens[number] += max(characters * tokens // self.most_characters, 1)
        return excess_tokens, pieces_of

    def _kept(self, ids: list[int]) -> list[int]:
        """Return the ids that the model gets of a text.

        Raises:
            InputError: for a token of which the model has no vector.
        """
        if self.vocabulary is not None and max(ids, default=0) >= self.vocabulary:
            token = self.backend.id_to_token(max(ids))
            raise InputError(f"a text holds {token!r}, a token that the tokenizer knows and the model has no vector of")
        if self.dropped is None:
            return ids
        return [number for number in ids if number != self.dropped]

    def _inputs(self, texts: Sequence[str]) -> Sequence[Any]:
        """Return texts as the tokenizers library takes them."""
        if not self.pairs:
            return texts
        return [tuple(text.split(BETWEEN_TEXTS)) for text in texts]

    def _shortened(self, text: str) -> str:
        """Return a text, or each text of a pair, cut to the characters that are tokenised at most."""
        most = self.most_characters
        part_kept = slice(-most, None) if self.side == "left" else slice(most)
        parts = text.split(BETWEEN_TEXTS) if self.pairs else [text]
        return BETWEEN_TEXTS.join(part[part_kept] for part in parts)

    @property
    def around(self) -> tuple[int, int]:
        """The numbers of special tokens in front of a text and behind it, with those of a template."""
        mask = self.backend.encode("a").special_tokens_mask
        before = mask.index(0)
        return before, sum(mask) - before

    def prompt_length(self, prompt: str) -> int:
        """Return how many tokens `prompt` takes at the front, with leading special tokens but without a closing one."""
        encoding = self.backend.encode(prompt)
        return len(encoding.ids) - sum(encoding.special_tokens_mask[-1:])


def _parts(pieces: Sequence[Any]) -> set[tuple[int, tuple[int, ...]]]:
    """Return the ids that pieces of a pair have of each text; a part of one text stands beside each of the other."""
    parts = set()
    for piece in pieces:
        for text in (0, 1):
            ids = [token for token, of in zip(piece.ids, piece.sequence_ids, strict=True) if of == text]
            parts.add((text, tuple(ids)))
    return parts


def fit(
    backend: Any, spec: EncoderSpec, pad_id: int | None, max_length: int | None, *, stated: int | None = None
) -> TextTokenizer:
    """Wrap a fast tokenizer with the maximum length, the side and the lower-casing that apply.

    Args:
        backend: a `tokenizers.Tokenizer`; its truncation is changed, and its normaliser for a model that lower-cases.
        spec: the description of the encoder.
        pad_id: the id of the padding token.
        max_length: the maximum length that the user chose.
        stated: the maximum length that an export states, where its folder says nothing.

    Raises:
        InputError: if the vocabulary does not fit the model, or the length does not fit its positions.
    """
    if spec.lowercase:
        _lower_case(backend)
    limit = _limit(backend, spec, pad_id, max_length, stated)
    side = spec.truncation_side or (backend.truncation or {}).get("direction", "right").lower()
    dropped = characters = None
    if spec.config.get(UNKNOWN_LEFT_OUT):
        from sentcli.model import static

        dropped = static.unknown_token(backend)
        characters = static.most_characters(backend, limit)
    return TextTokenizer(
        backend,
        limit,
        pad_id if pad_id is not None else 0,
        side=side,
        pairs=spec.scores_pairs,
        dropped=dropped,
        most_characters=characters,
        vocabulary=_vocabulary(backend, spec),
        name=str(spec.folder),
    )


def _lower_case(backend: Any) -> None:
    """Make a tokenizer lower-case a text first, in the way of sentence-transformers, unless it does so already."""
    from tokenizers import normalizers

    normalizer: Any = backend.normalizer
    is_chain = isinstance(normalizer, normalizers.Sequence)
    steps: list[Any] = []
    if is_chain:
        steps = list(normalizer)
    elif normalizer is not None:
        steps = [normalizer]
    if any(isinstance(step, normalizers.Lowercase) for step in steps):
        return
    backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *steps])


def _vocabulary(backend: Any, spec: EncoderSpec) -> int | None:
    """Return the number of tokens that the model has vectors of, if a token was added that it has none of.

    Raises:
        InputError: if it lacks others, too, so that tokenizer and weights do not belong together.
    """
    words = spec.config.get("vocab_size")
    largest = max(backend.get_vocab().values(), default=0)
    weighted = min((module.vocabulary for module in spec.modules if module.vocabulary is not None), default=None)
    if weighted is not None and largest >= weighted:
        raise InputError(f"{spec.folder}: its WordWeights name {weighted} tokens, fewer than its tokenizer has")
    if not isinstance(words, int) or largest < words:
        return None
    if max(backend.get_vocab(with_added_tokens=False).values(), default=0) >= words:
        raise InputError(
            f"{spec.folder}: tokenizer and weights do not belong together: the tokenizer knows "
            f"{backend.get_vocab_size()} words, the model has embeddings for {words}"
        )
    return words


def _limit(backend: Any, spec: EncoderSpec, pad_id: int | None, max_length: int | None, stated: int | None) -> int:
    """Return the maximum length that applies; the arguments are those of `fit`."""
    positions = position_limit(spec, pad_id)
    if max_length is None:
        limit = spec.max_length or spec.tokenizer_length or stated
        limit = limit or positions or NO_LIMIT
        if positions is not None and (has_stored_positions(spec) or not spec.max_length):
            limit = min(limit, positions)
    else:
        limit = max_length
        if positions is not None and limit > positions and has_stored_positions(spec):
            raise InputError(f"--max-length {max_length} is more than the {positions} positions of this model")
    # a pair has two texts; the tokens of a template count as special
    least = max(MIN_LENGTH, backend.num_special_tokens_to_add(spec.scores_pairs) + 1 + spec.scores_pairs)
    if limit < least:
        name = f"{spec.folder}: its maximum length" if max_length is None else "--max-length"
        raise InputError(f"{name} {limit} leaves no room between the special tokens; at least {least}")
    return limit


def position_limit(spec: EncoderSpec, pad_id: int | None) -> int | None:
    """Return how many tokens the model counts positions for, or None if config.json names no number."""
    if spec.config.get("model_type") in RELATIVE_POSITIONS:
        return None
    positions = spec.config.get("max_position_embeddings") or spec.config.get("n_positions")
    if not isinstance(positions, int) or positions <= 0:
        return None
    if spec.config.get("model_type") not in POSITIONS_AFTER_PADDING:
        return positions
    if pad_id is None or spec.config["model_type"] == "mpnet":  # which takes 1 for it, whatever its tokenizer says
        pad_id = 1
    return positions - (pad_id + 1)


def has_stored_positions(spec: EncoderSpec) -> bool:
    """Tell whether each position has a vector in the weights, so that a longer text cannot be encoded.

    Rotary positions are computed, and DeBERTa's are distances.
    """
    rotary = any(key.startswith(("rope", "rotary", "global_rope", "local_rope")) for key in spec.config)
    return not rotary and spec.config.get("position_biased_input") is not False


SLOT, MASK = "[X]", "[MASK]"
"""The marks in a template that stand for the text and for the model's mask token."""


def check_template(template: str) -> None:
    """Refuse a template without a place for the text and a mask token.

    Raises:
        InputError: which shows one.
    """
    if template.count(SLOT) != 1 or MASK not in template:
        raise InputError(f"template {template!r}: expected {SLOT} once and {MASK}, as in 'This \"[X]\" means [MASK].'")


def put_into_template(backend: Any, before: Sequence[int], after: Sequence[int]) -> None:
    """Make a tokenizer put tokens around each text, in place of its special tokens; they are never cut.

    Args:
        backend: a `tokenizers.Tokenizer`; its post-processor is replaced.
        before: the ids in front of the text.
        after: the ids behind it.
    """
    from tokenizers.processors import TemplateProcessing

    def special(name: str, ids: Sequence[int]) -> Any:
        return {"id": name, "ids": list(ids), "tokens": [backend.id_to_token(token) for token in ids]}

    special_tokens = [special("BEFORE", before), special("AFTER", after)]
    backend.post_processor = TemplateProcessing(single="BEFORE $A AFTER", special_tokens=special_tokens)


def read_tokenizer(folder: Path) -> Any:
    """Read the ``tokenizer.json`` of a folder."""
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    if not path.exists():
        raise InputError(f"{path} is missing")
    try:
        regular(path)
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the tokenizers library raises bare Exception for a damaged file
        raise InputError(f"{path} cannot be loaded: {' '.join(str(error).split())[:200]}") from error


def plain_tokenizer(folder: Path) -> Any:
    """Read the tokenizer of a table of token vectors, which adds no special tokens."""
    from tokenizers import Tokenizer
    from tokenizers.processors import TemplateProcessing

    facts = json.loads(read_tokenizer(folder).to_str())
    plain: Any = Tokenizer.from_str(json.dumps({**facts, "post_processor": None}))
    # as transformers puts it in the place of none, and fingerprints know it
    plain.post_processor = TemplateProcessing(single="$A:0", pair="$A:0 $B:1", special_tokens=[])
    return plain


def without_surrogates(text: str) -> str:
    """Replace lone surrogates, which JSON can hold but UTF-8 cannot, by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def pad(tokens: Tokens, rows: Sequence[int] | Int64Array, pad_id: int) -> dict[str, Int64Array]:
    """Stack some rows into ``input_ids`` and ``attention_mask`` ``[len(rows), longest]``, padded on the right."""
    ids = [tokens.ids[row] for row in rows]
    lengths = np.fromiter(map(len, ids), np.int64, len(ids))
    longest = max(int(lengths.max()), 1)
    is_token = np.arange(longest) < lengths[:, None]
    total = int(lengths.sum())

    def padded(values: Iterable[list[int]], padding: int) -> Int64Array:
        array = np.full(is_token.shape, padding, np.int64)
        array[is_token] = np.fromiter(chain.from_iterable(values), np.int64, total)
        return array

    batch = {"input_ids": padded(ids, pad_id), "attention_mask": is_token.astype(np.int64)}
    if tokens.type_ids is not None:
        type_ids = tokens.type_ids
        batch["token_type_ids"] = padded((type_ids[row] for row in rows), 0)
    return batch
