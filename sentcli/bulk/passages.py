"""Passages instead of documents: what cuts the documents of an input for a model, made from the options."""

from __future__ import annotations

from collections.abc import Callable

from sentcli.bulk.options import PassageOptions
from sentcli.encoder.loading import read_model, read_text_tokenizer
from sentcli.encoder.vector_facts import Passages
from sentcli.errors import InputError
from sentcli.model.cutting import Cutter
from sentcli.model.options import LoadOptions
from sentcli.model.passages import PassageRows
from sentcli.model.spec import EncoderSpec
from sentcli.model.tokenizing import TextTokenizer

MOST_TOKENS = 512
"""The tokens of a passage unless the user says otherwise, for models that read more."""


def passage_rows(
    model: str | None, options: LoadOptions, passages: PassageOptions, prompt_of: Callable[[EncoderSpec], str]
) -> PassageRows | None:
    """Return what cuts documents into passages for a model, or None if each row is a document.

    Args:
        model: its name; its weights are not loaded. None if none is given.
        options: how it will be loaded.
        passages: how documents are cut.
        prompt_of: returns the prompt that will be put in front of each passage, whose tokens count.

    Raises:
        InputError: if the model does not read so many tokens, is served, or is not given.
    """
    if not passages.passages:
        return None
    if model is None:
        raise InputError("--passages cuts documents by a model's tokenizer: give the model with -m")
    tokenizer = read_text_tokenizer(model, options)
    spec = read_model(model, options)
    cutter = Cutter(tokenizer, tokenizer.max_length)
    prompt = prompt_of(spec)
    room = tokenizer.max_length - tokenizer.special_tokens - cutter.length(prompt)
    tokens = passages.passage_tokens or min(room, MOST_TOKENS)
    if tokens > room or room < 1:
        raise InputError(
            f"--passage-tokens {tokens}: {model} reads {room} tokens of a text (--max-length, its special tokens and "
            "its prompt leave no more)"
        )
    return PassageRows(Cutter(tokenizer, tokens, passages.overlap), passages.context)


def facts_of(rows: PassageRows | None) -> Passages | None:
    """Return what manifests say of the passages."""
    if rows is None:
        return None
    return Passages(rows.cutter.tokens, rows.cutter.overlap, rows.context)


def rows_of_facts(tokenizer: TextTokenizer, facts: Passages) -> PassageRows:
    """Return what cuts documents as those of a manifest were cut, given the tokenizer of their model."""
    return PassageRows(Cutter(tokenizer, facts.tokens, facts.overlap), facts.context)
