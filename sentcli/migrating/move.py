"""Moving a corpus to another model: what directories and collections have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, cast

from sentcli.compression import Compression
from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.errors import InputError
from sentcli.evaluation.estimate import Estimates, estimate_encoding
from sentcli.io.served import Served
from sentcli.migrating.gate import Serving
from sentcli.model.options import LoadOptions, Precision
from sentcli.model.passages import PassageRows
from sentcli.model.spec import Similarity
from sentcli.search.corpus_documents import CorpusDocuments
from sentcli.search.provenance import Provenance
from sentcli.stores.directory.settings import vector_differences
from sentcli.stores.inputs import Inputs
from sentcli.stores.opening import load_stored_model
from sentcli.stores.options import WriteSettings
from sentcli.stores.passages import room_of, rows_of_facts
from sentcli.stores.row_vectors import EncodedVectors, EncodeSettings


@dataclass(frozen=True)
class MoveTarget:
    """The model that a corpus moves to, and how it will be served with it."""

    model: str
    load: LoadOptions
    doc_prompt: str | None = None
    """The text in front of each document; None is the model's own."""
    query_prompt: str | None = None


@dataclass(frozen=True)
class Searched:
    """How the vectors of a corpus are searched."""

    similarity: Similarity | None = None
    """None is what the model's folder says."""
    query_prompt: str | None = None
    """None is the model's own."""


@dataclass(frozen=True)
class Move(ABC):
    """A corpus, and the model that it is to move to."""

    origin: Provenance
    """How its vectors were made."""
    dimension: int
    documents: CorpusDocuments
    target: MoveTarget

    def __post_init__(self) -> None:
        """Refuse vectors of which it is not known which model made them, and to move to a model that is served."""
        if not self.origin.known:
            raise InputError(
                f"{self.title} does not say which model made its vectors: encode its texts with -m instead"
            )
        if Served.parse(self.target.model) is not None:
            raise InputError(
                f"{self.target.model} is served, and a corpus moves to a model that this machine runs: encode its "
                "texts with it into another directory instead"
            )

    @property
    def title(self) -> str:
        """The name of the corpus."""
        return self.origin.name

    @property
    def row_count(self) -> int:
        """The number of rows."""
        return len(self.documents.rows)

    @property
    @abstractmethod
    def before(self) -> str:
        """Where the corpus is kept as it was."""

    @abstractmethod
    def has_before(self) -> bool:
        """Whether it is kept as it was before an earlier move."""

    @property
    @abstractmethod
    def inputs(self) -> Inputs:
        """The rows, to be encoded."""

    @property
    @abstractmethod
    def made_with(self) -> dict[str, Any]:
        """The settings with which the vectors were made."""

    @property
    @abstractmethod
    def searched(self) -> Searched:
        """How the vectors are searched now."""

    @abstractmethod
    def held(self) -> AbstractContextManager[None]:
        """Hold the corpus for a move, as far as its place can.

        Raises:
            InputError: if another process moves it.
        """

    @abstractmethod
    def run(self) -> dict[str, Any]:
        """Encode the rows and exchange the vectors, while the old ones answer.

        Returns:
            What was done, for the JSON.

        Raises:
            InputError: if another process has changed the corpus meanwhile.
        """

    @cached_property
    def encoder(self) -> SentenceEncoder:
        """The model that it moves to."""
        from sentcli.encoder import load_encoder

        return load_encoder(self.target.model, self.target.load)

    @cached_property
    def settings(self) -> EncodeSettings:
        """How the rows are encoded: as they were, but for the model and its prompt."""
        facts = self.origin
        compression = Compression(
            facts.output_dtype, facts.truncate_dim, renormalize=bool(self.encoder.spec.normalizes)
        )
        try:
            compression.dimension(self.encoder.dimension)
        except InputError as error:
            raise InputError(f"{self.title} and {self.target.model}: {error}") from error
        return EncodeSettings(
            prompt=self.encoder.spec.prompt_of_documents(self.target.doc_prompt),
            on_long=facts.on_long,
            compression=compression,
            passages=facts.passages,
            load=self.encoder.same_choices(self.target.load),
        )

    @cached_property
    def vectors(self) -> EncodedVectors:
        """The vectors that will be made."""
        return EncodedVectors(self.encoder, self.settings)

    @property
    def shard_rows(self) -> int:
        """The rows of a shard, within which a text that repeats is encoded once."""
        return WriteSettings.shard_rows

    @property
    def is_done(self) -> bool:
        """Whether the vectors of the corpus are those that the model would make."""
        made = {**self.vectors.facts.recorded(), **self.encoder.describe(), "on_long": self.settings.on_long}
        before = self.made_with
        now = {key: value for key, value in made.items() if key in before}
        return not vector_differences(self.title, before, now, self.encoder.identity)

    def estimate(self) -> Estimates:
        """Measure how long encoding the rows will take."""
        load = self.target.load
        if load.precision == "auto":  # the one that is taken, not a comparison of several
            load = replace(load, precision=cast(Precision, self.encoder.backend.precision))
        settings = self.settings
        prompt = (None, settings.prompt)
        return estimate_encoding([self.target.model], load, self.inputs, self.shard_rows, settings.compression, prompt)

    def serving(self) -> tuple[Serving, Serving]:
        """Return how the corpus is served now, and how it will be.

        Raises:
            InputError: if the model that made it is not on this machine, or is another one now.
        """
        origin, searched = self.origin, self.searched
        lack = origin.lack_of_model()
        if lack is not None:
            raise InputError(f"{lack}, so it cannot be compared: --anyway moves the corpus without that")
        load = replace(self.target.load, pooling=None, normalize=None, max_length=None, precision="auto")
        old, load = load_stored_model(origin, load)
        prompt = origin.prompt or ""
        origin.check_encoder(old, prompt, self.dimension)
        of_old = replace(self.settings, prompt=prompt, load=load)
        served = Serving(old, of_old, searched.query_prompt, searched.similarity, load)
        new = Serving(self.encoder, self.settings, self.target.query_prompt, self.new_similarity, self.target.load)
        return served, new

    @property
    def new_similarity(self) -> Similarity:
        """How the new vectors are compared: another similarity than that of the old model was chosen, and stays."""
        now = self.searched.similarity
        if now is None or now == self.origin.similarity:
            return self.encoder.spec.similarity
        return now

    def cut(self, serving: Serving) -> PassageRows | None:
        """Return what cuts documents as those of the corpus were cut, by the tokenizer of its model."""
        passages = self.origin.passages
        if passages is None:
            return None
        return rows_of_facts(serving.encoder.local.tokenizer, passages)

    @property
    def fate_of_passages(self) -> str:
        """A sentence about the passages, which stay as they were cut; empty if there are none."""
        passages = self.origin.passages
        if passages is None:
            return ""
        kept = f"the passages of {self.title} stay as they were cut, at {passages.tokens} tokens"
        room = room_of(self.encoder.local.tokenizer, self.settings.prompt)
        if room >= passages.tokens:
            return kept
        return f"{kept}, of which {self.target.model} reads {room}: an update with --passages cuts them anew"

    def check(self) -> None:
        """Refuse a move that cannot be made, before anything is compared or encoded.

        Raises:
            InputError: if what it was before an earlier move is still there, or an index does not fit.
            NoRoomError: if the disk is too small.
        """
        if self.has_before():
            raise InputError(
                f"{self.before} is {self.title} as it was before it moved last: sentcli migrate with --back returns to "
                "it, with --drop lets it go"
            )


class Moved(Protocol):
    """A corpus that has moved, and what it was before."""

    @property
    def title(self) -> str:
        """Its name."""

    @property
    def before(self) -> str:
        """Where it is kept as it was."""

    @property
    def models(self) -> tuple[str, str]:
        """The model that made its vectors, and the one that had made them before."""

    def exchange(self) -> dict[str, Any]:
        """Exchange it with what it was before, in one step, and return more for the JSON.

        Raises:
            InputError: if it cannot be.
        """

    def let_go(self) -> dict[str, Any]:
        """Let go of what it was before, and return more for the JSON.

        Raises:
            InputError: if it cannot be.
        """
