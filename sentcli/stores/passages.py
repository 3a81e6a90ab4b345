"""Passages instead of documents: what cuts the documents of an input for a model, made from the options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sentcli.encoder.loading import read_model, read_text_tokenizer
from sentcli.errors import InputError
from sentcli.model.options import LoadOptions
from sentcli.model.spec import EncoderSpec
from sentcli.model.tokenizing import TextTokenizer
from sentcli.stores.options import PassageOptions
from sentcli.stores.target import manifest_of

if TYPE_CHECKING:
    from sentcli.encoder.vector_facts import Passages
    from sentcli.model.passages import PassageRows

MOST_TOKENS = 512
"""The tokens of a passage unless the user says otherwise, for models that read more."""


@dataclass(frozen=True)
class Cutting:
    """How documents are cut into passages for a model."""

    options: PassageOptions
    model: str | None
    """Its name; its weights are not loaded. None if none is given."""
    load: LoadOptions
    """How it will be loaded."""
    prompt_of: Callable[[EncoderSpec], str]
    """Returns the prompt that will be put in front of each passage, whose tokens count."""

    def rows(self, there: Passages | None = None) -> PassageRows | None:
        """Return what cuts documents into passages, or None if each row is a document.

        Args:
            there: how those of the directory were cut that is continued or updated: new ones are not longer, unless
                the user says so.

        Raises:
            InputError: if the model does not read so many tokens, is served, or is not given.
        """
        options, model = self.options, self.model
        if not options.passages:
            return None
        from sentcli.model.cutting import Cutter
        from sentcli.model.passages import PassageRows

        if model is None:
            raise InputError("--passages cuts documents by a model's tokenizer: give the model with -m")
        tokenizer = read_text_tokenizer(model, self.load)
        spec = read_model(model, self.load)
        room = room_of(tokenizer, self.prompt_of(spec))
        most = MOST_TOKENS if there is None else there.tokens
        tokens = options.passage_tokens or min(room, most)
        if tokens > room or room < 1:
            raise InputError(
                f"--passage-tokens {tokens}: {model} reads {room} tokens of a text (--max-length, its special tokens "
                "and its prompt leave no more)"
            )
        return PassageRows(Cutter(tokenizer, tokens, options.overlap), options.context)

    def into(self, output: str, *, update: bool, overwrite: bool) -> tuple[PassageRows | None, Passages | None]:
        """Return what cuts documents into passages for a directory, and how those that it has were cut.

        Args:
            output: the directory, which need not be there.
            update: whether the directory is updated.
            overwrite: whether it is made anew, whatever it has.

        Raises:
            InputError: if passages would be updated with whole documents, or `rows` refuses them.
        """
        if not (self.options.passages or update):
            return None, None
        from sentcli.encoder.vector_facts import VectorFacts

        manifest = None if overwrite else manifest_of(output)
        there = None
        if manifest is not None:
            there = VectorFacts.read(output, manifest.settings).passages
        if there is not None and not self.options.passages:
            raise InputError(f"{output} holds passages, and the rows here are whole documents: give {there} as well")
        return self.rows(there), there


def room_of(tokenizer: TextTokenizer, prompt: str) -> int:
    """Return the tokens of a text that a model reads behind a prompt, special ones not counted."""
    from sentcli.model.cutting import Cutter

    return tokenizer.max_length - tokenizer.special_tokens - Cutter(tokenizer, tokenizer.max_length).length(prompt)


def facts_of(rows: PassageRows | None, among: Passages | None = None) -> Passages | None:
    """Return what manifests say of the passages, also with those of a directory that they are appended to."""
    if rows is None:
        return None
    from sentcli.encoder.vector_facts import Passages

    facts = Passages(rows.cutter.tokens, rows.cutter.overlap, rows.context)
    if among is not None and among.takes(facts):
        return among
    return facts


def rows_of_facts(tokenizer: TextTokenizer, facts: Passages) -> PassageRows:
    """Return what cuts documents as those of a manifest were cut, given the tokenizer of their model."""
    from sentcli.model.cutting import Cutter
    from sentcli.model.passages import PassageRows

    return PassageRows(Cutter(tokenizer, facts.tokens, facts.overlap), facts.context)
