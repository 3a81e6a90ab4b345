"""An encoder with a memory: the vectors of texts that a file or the cache has are not made again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Self

from sentcli import console
from sentcli.encoder import load_encoder
from sentcli.encoder.loading import read_model
from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.io.digests import json_digest
from sentcli.io.served import Served
from sentcli.model.encoding import Encoded, EncodeStats, Progress
from sentcli.model.identity import ModelSource, cache_key, library_key
from sentcli.model.options import LoadOptions
from sentcli.model.probe_vectors import ProbeVectors
from sentcli.model.spec import EncoderSpec, ModelSpec
from sentcli.stores.reused_vectors import ReusedVectors
from sentcli.stores.text_vectors import TextVectors
from sentcli.stores.vector_cache import VectorCache


class CachedEncoder:
    """A model whose vectors are cached from run to run, and which is loaded only to encode texts that are not there.

    Args:
        name: of the model.
        options: for loading it.
        rerun: encode again instead of reading the cache.
        encoder: the model, if it is loaded; see `of`.
        reused: files and directories of texts, whose own vectors are taken where the model has made them.
        pairs: take a cross-encoder, too, which is scored on similarity tasks alone.
        spares_export: let ``auto`` export the model only if that pays for the texts that are encoded, by `export_pays`,
            and not for whatever a later command may encode.
    """

    def __init__(
        self,
        name: str,
        options: LoadOptions | None = None,
        *,
        rerun: bool = False,
        encoder: SentenceEncoder | None = None,
        reused: Iterable[str] = (),
        pairs: bool = False,
        spares_export: bool = False,
    ) -> None:
        self.name = name
        self.options = options or LoadOptions()
        self.rerun = rerun
        self.pairs = pairs
        self.spares_export = spares_export
        self.reused = [] if rerun else [ReusedVectors(file) for file in reused]
        self.was_loaded = False
        """Whether the model has been loaded since this object was made."""
        if encoder is None and Served.parse(name) is not None:
            options = self.options
            encoder = load_encoder(name, options)  # its dimension is a part of its key
        self.spec: ModelSpec
        self.key: str | None = None
        """A hash of what decides vectors and scores; without one they are not kept."""
        self.description: dict[str, Any] = {}
        """The result of `SentenceEncoder.describe` and the device, now or when the cached scores were measured."""
        if encoder is not None and encoder.sent is not None and options is not None:  # it is served
            self.key = json_digest([encoder.fingerprint(), library_key()])
        elif encoder is None or options is not None:
            self.spec = read_model(name, self.options, pairs=pairs)
            self.key = cache_key(self.spec, self.options)
        if encoder is not None:
            self.spec = encoder.spec
            self.description = _description(encoder)
        self._encoder = encoder

    @classmethod
    def of(cls, encoder: SentenceEncoder, options: LoadOptions | None = None) -> Self:
        """Return a loaded encoder as a model.

        Args:
            encoder: loaded.
            options: with which it was loaded by its name. Without them its vectors and scores are measured each time
                and never kept: its weights may change between two calls of `measure`, as they do while it is trained.
        """
        return cls(encoder.model, options, encoder=encoder)

    @property
    def provenance(self) -> dict[str, Any]:
        """The commit and the digest of the weights, as `SentenceEncoder.provenance`; of live weights nothing."""
        if self.key is None or not isinstance(self.spec, EncoderSpec):
            return {}
        return ModelSource.of(self.spec).provenance

    @property
    def is_served(self) -> bool:
        """Whether the model is behind an address."""
        return not isinstance(self.spec, EncoderSpec)

    def load(self, texts: int = 0) -> SentenceEncoder:
        """Return the model, which is loaded unless it is already, to encode so many texts."""
        if self._encoder is None:
            to_encode = texts if self.spares_export else None
            self._encoder = load_encoder(self.name, self.options, pairs=self.pairs, texts=to_encode)
            self.description = _description(self._encoder)
            self.was_loaded = True
        return self._encoder

    def canaries(self) -> ProbeVectors:
        """Return the vectors of a few fixed texts, with the model's usual prompt, and the prompts of its roles."""
        canaries = ProbeVectors.of(self.load().loaded, self.spec.usual_prompt)
        return replace(canaries, choices={**canaries.choices, **self.spec.role_prompts})

    def release(self) -> None:
        """Free the memory of the loaded model; one that is served takes none, and goes on counting what it is sent."""
        if not self.is_served:
            self._encoder = None

    def encode(
        self,
        texts: Iterable[str],
        progress: Progress | None = None,
        *,
        prompt: str | None = None,
        length: int | None = None,
    ) -> TextVectors:
        """Encode every distinct text once, or read its vector from the cache.

        Args:
            texts: may repeat.
            progress: as in `SentenceEncoder.encode`.
            prompt: text in front of each text; None is the model's default prompt, if it has one.
            length: maximum length in tokens; None is the model's.
        """
        missing = list(dict.fromkeys(texts))
        encoder = self.load(len(missing))
        if length is not None:
            encoder = encoder.with_max_length(length)
        prompt = encoder.prompt_text(prompt=prompt)
        parts: list[tuple[Sequence[str], Encoded]] = []
        for reused in self.reused:
            if reused.are_of(encoder, prompt):
                texts_there, encoded = reused.encoded(encoder, missing, prompt)
                parts.append((texts_there, encoded))
                if progress is not None and texts_there:
                    progress(EncodeStats(texts=len(texts_there)))
                there = set(texts_there)
                missing = [text for text in missing if text not in there]
        if missing or not parts:
            encoded = self.encode_distinct(missing, prompt, keep=True, encoder=encoder, progress=progress)
            parts.append((missing, encoded))
        return TextVectors.joined(parts)

    def has_made(self, file: str) -> bool:
        """Tell whether the model has made the vectors of a file of `reused`."""
        usual = self.spec.usual_prompt
        return any(reused.name == file and reused.are_of(self.load(), usual) for reused in self.reused)

    def encode_distinct(
        self,
        texts: Sequence[str],
        prompt: str = "",
        *,
        keep: bool = False,
        encoder: SentenceEncoder | None = None,
        **options: Any,
    ) -> Encoded:
        """Encode as `SentenceEncoder.encode_distinct` but for texts in the cache.

        Args:
            texts: distinct ones.
            prompt: text in front of each.
            keep: add what is encoded to the cache. The answers of a model that is served are always added: an error
                later on does not lose them.
            encoder: the model with another maximum length.
            options: other arguments of `SentenceEncoder.encode_distinct`.
        """
        if encoder is None:
            encoder = self.load(len(texts))
        if self.key is None:
            return encoder.encode_distinct(texts, prompt, **options)
        if self.is_served:  # its vectors do not depend on this machine, and may have cost money
            key = encoder.fingerprint()
        else:
            key = json_digest([self.key, {**self.description, **encoder.describe()}])
        cache = VectorCache(key, fresh=self.rerun)
        return cache.encode(encoder, texts, prompt=prompt, keep=keep or self.is_served, **options)

    def encode_shown(self, label: str, texts: Sequence[str], *, prompt: str | None = None) -> TextVectors:
        """Encode as `encode` does, behind a progress bar with a label; the model is loaded before there is a bar."""
        count = len(set(texts))
        self.load(count)
        with console.encoding(label, count) as progress:
            return self.encode(texts, progress, prompt=prompt)


def _description(encoder: SentenceEncoder) -> dict[str, Any]:
    return {**encoder.describe(), "device": encoder.backend.device}
