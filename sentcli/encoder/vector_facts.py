"""How vectors were made: what two sets of vectors have to share so that they compare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, ValidationError

from sentcli.compression import Compression, OutputType
from sentcli.errors import DataError
from sentcli.io.forms import adapter_of
from sentcli.model.encoding import OnLong
from sentcli.model.passages import Context
from sentcli.model.probe_vectors import ProbeVectors
from sentcli.model.spec import Similarity, supported_similarity

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder


PROVENANCE = ("revision", "weights")
"""The facts that name the files of a model; whether its vectors are others is told by the fingerprint."""
NOT_COMPARED = ("model", "output_dtype", "canaries", "similarity", *PROVENANCE)
"""The facts in which vectors may differ that are put beside each other."""
_WHOLE = "no --passages"


@dataclass(frozen=True)
class Passages:
    """How documents were cut into passages; see `sentcli.model.passages`."""

    tokens: Annotated[int, Field(ge=1)]
    """The most tokens of a passage, with its context and without special tokens."""
    overlap: Annotated[int, Field(ge=0)] = 0
    context: Context = "none"

    def __str__(self) -> str:
        """Return the options that cut so."""
        options = f"--passages --passage-tokens {self.tokens}"
        if self.overlap:
            options += f" --overlap {self.overlap}"
        if self.context != "none":
            options += f" --context {self.context}"
        return options

    def takes(self, other: Passages | None) -> bool:
        """Whether passages of other facts may stand among these; shorter ones may: a model may read less."""
        if other is None:
            return False
        return replace(other, tokens=self.tokens) == self and other.tokens <= self.tokens


@dataclass(frozen=True)
class VectorFacts:
    """How vectors were made, as directories, files, indexes and collections keep it beside them."""

    model: str = ""
    """The name that the user gave."""
    model_fingerprint: str = ""
    """See `SentenceEncoder.fingerprint`; empty where nothing is known, as of a ``.npy`` file."""
    pooling: str | None = None
    normalize: bool | None = None
    max_length: int | None = None
    prompt: str | None = None
    """The text in front of each text."""
    output_dtype: OutputType = "float32"
    truncate_dim: Annotated[int, Field(ge=1)] | None = None
    canaries: ProbeVectors | None = None
    """The vectors of a few fixed texts, by which it is told later whether a model is still the same."""
    similarity: str = "cosine"
    """How the model's folder says that its vectors are compared."""
    revision: str | None = None
    """The commit of a model of the hub."""
    weights: str | None = None
    """The digest of the model's weights."""
    passages: Passages | None = None
    """How the documents were cut whose passages the texts are; None if the texts are whole."""
    on_long: OnLong = "truncate"
    """How texts longer than the model reads were treated; directories and collections compare it themselves."""

    @classmethod
    def of(
        cls,
        encoder: SentenceEncoder,
        prompt: str,
        compression: Compression | None = None,
        passages: Passages | None = None,
        on_long: OnLong = "truncate",
    ) -> VectorFacts:
        """Return the facts of vectors that an encoder makes of texts, or of passages, with a prompt before each."""
        compression = compression or Compression()
        spec, identity = encoder.spec, encoder.identity
        facts = cls(
            model=encoder.model,
            model_fingerprint=identity.fingerprint,
            pooling=spec.pooling,
            normalize=spec.normalizes,
            max_length=spec.max_length,
            prompt=prompt,
            output_dtype=compression.output_type,
            truncate_dim=compression.truncate_dim,
            canaries=ProbeVectors.of(encoder.loaded, prompt),
            similarity=spec.stated_similarity,
            passages=passages,
            on_long=on_long,
        )
        return replace(facts, **identity.provenance)

    @classmethod
    def read(cls, title: str, settings: Mapping[str, Any]) -> Self:
        """Read what stands beside vectors, which may be nothing; other keys are left out.

        Raises:
            DataError: if they are of another form than those that `encode` writes.
        """
        try:
            form: Any = cls
            facts: Self = adapter_of(form).validate_python(dict(settings))
            return facts
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            problem = f"damaged settings ({place}: {first['msg']}); encode again with --overwrite"
            raise DataError(title, problem) from error

    @property
    def compared_by(self) -> Similarity:
        """How the vectors are compared unless the user says otherwise.

        Raises:
            InputError: if the model's folder names what is not supported.
        """
        return supported_similarity(self.similarity)

    @property
    def context(self) -> Context:
        """What stands in front of each text when it is encoded."""
        if self.passages is None:
            return "none"
        return self.passages.context

    @property
    def known(self) -> bool:
        """Whether it is known which model made the vectors."""
        return bool(self.model_fingerprint)

    def of_encoder(self) -> dict[str, Any]:
        """Return the facts that identify the encoder, by which an index knows the vectors that it was built for."""
        # how vectors were made smaller after they had been encoded, and what indexes have never named
        left_out = (*NOT_COMPARED, "truncate_dim", "on_long")
        return {name: value for name, value in self.recorded().items() if name not in left_out}

    @property
    def in_int8(self) -> bool | None:
        """Whether a model in int8 made them; None if it is not known."""
        return None if self.canaries is None else self.canaries.in_int8

    def recorded(self) -> dict[str, Any]:
        """Return all facts for JSON."""
        facts = {fact.name: getattr(self, fact.name) for fact in fields(VectorFacts)}
        if self.canaries is not None:
            facts["canaries"] = asdict(self.canaries)
        if self.passages is None:
            del facts["passages"]  # as earlier versions wrote it
        else:
            facts["passages"] = asdict(self.passages)
        if not self.by_pieces:
            del facts["on_long"]  # which no vector tells: no text was cut, or all are those of their beginnings
        return facts

    @property
    def by_pieces(self) -> bool:
        """Whether the vector of a text that is too long is the mean of those of its pieces."""
        return self.on_long == "chunk-mean"

    def made_smaller(self) -> dict[str, Any]:
        """Return how the vectors were made smaller, for protocols; nothing if they were not."""
        compression = Compression(self.output_dtype, self.truncate_dim)
        if compression == Compression():
            return {}
        return compression.protocol()

    def differences(self, other: VectorFacts) -> list[str]:
        """Return what keeps vectors of other facts from being put beside these; the name of a model may differ."""
        others = other.recorded()
        differences = []
        for name, value in self.recorded().items():
            if name not in (*NOT_COMPARED, "passages", "on_long") and value != others.get(name):
                differences.append(f"{name} {value!r} there, {others.get(name)!r} here")
        may_stand_here = self.passages == other.passages
        if self.passages is not None:
            may_stand_here = self.passages.takes(other.passages)
        if not may_stand_here:
            there, here = self.passages or _WHOLE, other.passages or _WHOLE
            differences.append(f"{there} there, {here} here")
        return differences
