"""Passages instead of documents: what cuts the documents of an input for a model, made from the options."""

from __future__ import annotations

from collections.abc import Callable

from sentcli.bulk.files import manifest_of
from sentcli.bulk.options import PassageOptions
from sentcli.encoder.loading import read_model, read_text_tokenizer
from sentcli.encoder.vector_facts import Passages, VectorFacts
from sentcli.errors import InputError
from sentcli.model.cutting import Cutter
from sentcli.model.options import LoadOptions
from sentcli.model.passages import PassageRows
from sentcli.model.spec import EncoderSpec
from sentcli.model.tokenizing import TextTokenizer

MOST_TOKENS = 512
"""The tokens of a passage unless the user says otherwise, for models that read more."""


def passage_rows(
    model: str | None,
    options: LoadOptions,
    passages: PassageOptions,
    prompt_of: Callable[[EncoderSpec], str],
    there: Passages | None = None,
) -> PassageRows | None:
    """Return what cuts documents into passages for a model, or None if each row is a document.

    Args:
        model: its name; its weights are not loaded. None if none is given.
        options: how it will be loaded.
        passages: how documents are cut.
        prompt_of: returns the prompt that will be put in front of each passage, whose tokens count.
        there: how those of the directory were cut that is continued or updated: new ones are not longer, unless the
            user says so.

    Raises:
        InputError: if the model does not read so many tokens, is served, or is not given.
    """
    if not passages.passages:
        return None
    if model is None:
        raise InputError("--passages cuts documents by a model's tokenizer: give the model with -m")
    tokenizer = read_text_tokenizer(model, options)
    spec = read_model(model, options)
    room = room_of(tokenizer, prompt_of(spec))
    most = MOST_TOKENS if there is None else there.tokens
    tokens = passages.passage_tokens or min(room, most)
    if tokens > room or room < 1:
        raise InputError(
            f"--passage-tokens {tokens}: {model} reads {room} tokens of a text (--max-length, its special tokens and "
            "its prompt leave no more)"
        )
    return PassageRows(Cutter(tokenizer, tokens, passages.overlap), passages.context)


def room_of(tokenizer: TextTokenizer, prompt: str) -> int:
    """Return the tokens of a text that a model reads behind a prompt, special ones not counted."""
    return tokenizer.max_length - tokenizer.special_tokens - Cutter(tokenizer, tokenizer.max_length).length(prompt)


def rows_into(
    output: str,
    model: str | None,
    options: LoadOptions,
    passages: PassageOptions,
    prompt_of: Callable[[EncoderSpec], str],
    *,
    update: bool = False,
    overwrite: bool = False,
) -> tuple[PassageRows | None, Passages | None]:
    """Return what cuts documents into passages for a directory, and how those that it has were cut.

    Args:
        output: the directory, which need not be there.
        model: as for `passage_rows`.
        options: as for `passage_rows`.
        passages: as for `passage_rows`.
        prompt_of: as for `passage_rows`.
        update: whether the directory is updated.
        overwrite: whether it is made anew, whatever it has.

    Raises:
        InputError: if passages would be updated with whole documents, or `passage_rows` refuses them.
    """
    if not (passages.passages or update):
        return None, None
    manifest = None if overwrite else manifest_of(output)
    there = None
    if manifest is not None:
        there = VectorFacts.read(output, manifest.settings).passages
    if there is not None and not passages.passages:
        raise InputError(f"{output} holds passages, and the rows here are whole documents: give {there} as well")
    return passage_rows(model, options, passages, prompt_of, there), there


def facts_of(rows: PassageRows | None, among: Passages | None = None) -> Passages | None:
    """Return what manifests say of the passages, also with those of a directory that they are appended to."""
    if rows is None:
        return None
    facts = Passages(rows.cutter.tokens, rows.cutter.overlap, rows.context)
    if among is not None and among.takes(facts):
        return among
    return facts


def rows_of_facts(tokenizer: TextTokenizer, facts: Passages) -> PassageRows:
    """Return what cuts documents as those of a manifest were cut, given the tokenizer of their model."""
    return PassageRows(Cutter(tokenizer, facts.tokens, facts.overlap), facts.context)
