"""What a directory or a file of vectors says about how they were made, and what can be compared with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from sentcli.encoder.loading import read_model
from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.errors import DataError, InputError
from sentcli.io.readers import OnNull
from sentcli.model.options import LoadOptions
from sentcli.search.exact import Similarity
from sentcli.smaller import OutputType
from sentcli.zoo import on_this_machine


@dataclass(frozen=True)
class EncodedInput:
    """A file of texts that was encoded, as the settings of `encode` name it."""

    name: Annotated[str, Field(pattern=r"^[^/\\]+$")]
    sha256: str


@dataclass(frozen=True)
class Origin:
    """How vectors were made: a part of the settings that `encode` keeps with them.

    These are facts to compare with, and names. A model is only ever loaded by its name as ``-m`` loads it, and refused
    if its fingerprint is another one.
    """

    name: str = ""
    """The directory or file of the vectors."""
    model: str = ""
    model_fingerprint: str = ""
    """See `SentenceEncoder.fingerprint`; empty where nothing is known, as of a ``.npy`` file."""
    pooling: str | None = None
    normalize: bool | None = None
    max_length: int | None = None
    prompt: str | None = None
    """The text in front of each document."""
    output_dtype: OutputType = "float32"
    truncate_dim: Annotated[int, Field(ge=1)] | None = None
    pca_sha256: str | None = None
    text_field: str = "text"
    id_field: str | None = None
    on_null: OnNull = "error"
    inputs: list[EncodedInput] = field(default_factory=list)
    """The files of the texts; of a directory, its manifest names them."""

    @classmethod
    def of(cls, name: str, settings: Mapping[str, Any]) -> Origin:
        """Read the settings of a directory or file, which may be empty.

        Raises:
            DataError: if they are of another form than those that `encode` writes.
        """
        try:
            return replace(TypeAdapter(cls).validate_python(dict(settings)), name=name)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise DataError(
                name, f"damaged settings ({place}: {first['msg']}); encode again with --overwrite"
            ) from error

    @property
    def known(self) -> bool:
        """Whether it is known which model made the vectors."""
        return bool(self.model_fingerprint)

    def named_model(self) -> str:
        """Return the name of the model that made the vectors.

        Raises:
            InputError: if it is unknown, or that model is not on this machine.
        """
        if not self.known:
            raise InputError(f"{self.name} does not say which model made its vectors: give that model with -m")
        if not on_this_machine(self.model):
            raise InputError(
                f"{self.name} was encoded with {self.model}, which is not on this machine: give the model with -m"
            )
        return self.model

    def load_options(self, options: LoadOptions) -> LoadOptions:
        """Return options with which `named_model` is loaded as it was for these vectors, unless they say otherwise."""
        spec = read_model(self.model, options)
        recorded: dict[str, tuple[Any, Any]] = {
            "pooling": (self.pooling, spec.pooling),
            "normalize": (self.normalize, spec.normalizes),
            "max_length": (self.max_length, spec.max_length),
        }
        changed: dict[str, Any] = {
            name: then
            for name, (then, now) in recorded.items()
            if then is not None and then != now and getattr(options, name) is None
        }
        return replace(options, **changed)

    def check_numbers(self, *, to_search: bool = True) -> None:
        """Refuse vectors that are no numbers, or with `to_search` those that queries do not compare with.

        Raises:
            InputError: if the vectors are bits, or have fewer dimensions than the encoder.
        """
        bits = self.output_dtype == "binary"
        if bits and not to_search:
            raise InputError(f"{self.name} holds bits, not numbers: encode without --output-dtype binary")
        if to_search and (bits or self.pca_sha256 or self.truncate_dim):
            raise InputError(
                f"{self.name} holds vectors in {self.output_dtype} that --truncate-dim, --pca or binary made smaller; "
                "those of a query do not compare with them: encode without these to search"
            )

    def check_encoder(self, encoder: SentenceEncoder, document_prompt: str, dimension: int) -> None:
        """Refuse an encoder whose vectors cannot be compared with these.

        Args:
            encoder: of the queries.
            document_prompt: the text that it would put in front of each document.
            dimension: of the vectors.

        Raises:
            InputError: if they were made with another model, pooling, normalisation, length or document prompt.
        """
        if not self.known and dimension != encoder.dimension:
            raise InputError(
                f"{self.name} has vectors of {dimension} dimensions, {encoder.model} makes {encoder.dimension}: give "
                "the model that made them with -m"
            )
        if self.known and self.model_fingerprint != encoder.fingerprint():
            raise InputError(
                f"{self.name} was encoded with {self.model} (pooling {self.pooling}, maximum length "
                f"{self.max_length}), which is not this {encoder.model}: the vectors do not compare"
            )
        if self.known and (self.prompt or "") != document_prompt:
            raise InputError(
                f"{self.name} was encoded with the prompt {self.prompt!r}, documents of this model have "
                f"{document_prompt!r}: encode again with --prompt, or say --doc-prompt {self.prompt!r} to search it "
                "as it is"
            )

    def check_similarity(self, similarity: Similarity) -> None:
        """Refuse inner products of int8 vectors, whose lengths are lost.

        Raises:
            InputError: for ``dot`` and vectors in int8.
        """
        if similarity == "dot" and self.output_dtype == "int8":
            raise InputError(f"{self.name} holds vectors in int8, each scaled by itself: only their cosine is known")
