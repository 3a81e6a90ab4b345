"""The vectors of a directory, a file or a collection: how they were made, and what can be compared with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import numpy as np

from sentcli import console
from sentcli.arrays import AnyArray, Int64Array, Vectors
from sentcli.compression import Compression
from sentcli.encoder.loading import read_model
from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.encoder.vector_facts import VectorFacts
from sentcli.errors import InputError
from sentcli.io.places import is_remote
from sentcli.io.readers import OnNull
from sentcli.io.served import Served
from sentcli.io.typed import ValueCheck
from sentcli.io.weights import has_weights
from sentcli.model.options import LoadOptions
from sentcli.model.probe_vectors import ProbeVectors
from sentcli.model.spec import Similarity
from sentcli.zoo import hub_model, local_path, on_this_machine

COMPARED_ROWS = 16
LEAST_COSINE = 0.99
"""The rows on which a model is compared with vectors that do not say which one made them, and how near it has to be."""


def rows_to_compare(rows: int) -> Int64Array:
    """Return the rows, of so many, whose vectors are compared with those of a model: spread over all, rising."""
    spread = np.linspace(0, max(rows - 1, 0), min(COMPARED_ROWS, rows))
    return np.unique(spread.astype(np.int64))


def _in_no_folder(name: str) -> str:
    """Refuse what is more than the name of a file, by the rules of the system: a backslash may be a sign of a name."""
    if not name or Path(name).name != name:
        raise ValueError(f"{name!r:.60} is no name of a file")
    return name


@dataclass(frozen=True)
class EncodedInput:
    """A file of texts that was encoded, as the settings of `encode` name it."""

    name: Annotated[str, ValueCheck(_in_no_folder)]
    sha256: str


@dataclass(frozen=True)
class Provenance(VectorFacts):
    """How stored vectors were made: a part of the settings that `encode` keeps with them.

    These are facts to compare with, and names. A model is only ever loaded by its name as ``-m`` loads it, and refused
    if its fingerprint is another one.
    """

    name: str = ""
    """The directory or file of the vectors."""
    pca_sha256: str | None = None
    text_field: str = "text"
    id_field: str | None = None
    on_null: OnNull = "error"
    inputs: list[EncodedInput] = field(default_factory=list)
    """The files of the texts; of a directory, its manifest names them."""

    @classmethod
    def named(cls, name: str, settings: Mapping[str, Any]) -> Provenance:
        """Read the settings of the directory or file with this name, which may be empty; see `VectorFacts.read`."""
        return replace(cls.read(name, settings), name=name)

    def lack_of_model(self) -> str | None:
        """Return why the model that made the vectors is not loaded by its name; None if it is."""
        model = self.model
        encoded = f"{self.name} was encoded with {model}"
        if Served.parse(model) is not None:
            return f"{encoded}, which is served"
        if not (is_remote(model) or on_this_machine(model)):
            return f"{encoded}, which is not on this machine"
        return None

    def named_model(self) -> str:
        """Return the name of the model that made the vectors.

        Raises:
            InputError: if it is unknown, or that model is neither on this machine nor in a store. One that is served is
                asked only where its address is given, and never because a directory names it.
        """
        if not self.known:
            raise InputError(f"{self.name} does not say which model made its vectors: give that model with -m")
        model = self.model
        lack = self.lack_of_model()
        if lack is not None:
            advice = "give the model with -m"
            if Served.parse(model) is not None:
                advice = f"-m {quote(model)} sends it the queries"
            raise InputError(f"{lack}: {advice}")
        name = self._at_its_commit()
        if name != model:
            console.note(f"{self.name} was encoded with {model} at the commit {self.revision}, which is taken")
        return name

    def _at_its_commit(self) -> str:
        """Return the name of the model, at the commit that made the vectors where the name means another one now."""
        model = self.model
        revision = self.revision
        if revision is None or local_path(model) is not None:
            return model
        on_hub = hub_model(model)
        if on_hub is None:
            return model
        folder = on_hub.cached()
        if folder is None or folder.name == revision:
            return model
        pinned = f"{on_hub.repository}@{revision}"
        if not on_this_machine(pinned):
            return model
        return pinned

    def document_prompt(self, encoder: SentenceEncoder) -> str:
        """Return the text in front of each document: that of the vectors, or the model's own if it is not known."""
        if self.known:
            return self.prompt or ""
        return encoder.role_prompt("document")

    def load_options(self, options: LoadOptions) -> LoadOptions:
        """Return options with which `named_model` is loaded as it was for these vectors, unless they say otherwise."""
        model = self._at_its_commit()
        spec = read_model(model, options)
        current = {"pooling": spec.pooling, "normalize": spec.normalizes, "max_length": spec.max_length}
        changed = {}
        for name, now in current.items():
            then = getattr(self, name)
            if then not in (None, now) and getattr(options, name) is None:
                changed[name] = then
        return replace(options, **changed)

    def in_their_precision(self, model: str, options: LoadOptions) -> LoadOptions:
        """Return options that load a model in the precision of these vectors, unless they say another one.

        A query in fp32 does not meet its own text among int8 vectors. The half precisions differ from fp32 by rounding
        alone, and not every machine computes in them: queries of such vectors are encoded in fp32.
        """
        is_free_to_choose = options.precision == "auto" and options.backend != "torch"
        if not self.in_int8 or not is_free_to_choose or Served.parse(model) is not None:
            return options
        if not has_weights(read_model(model, options).folder):  # an export has a precision of its own
            return options
        return replace(options, precision="int8")

    @property
    def bits(self) -> bool:
        """Whether a byte holds eight signs."""
        return self.output_dtype == "binary"

    def signs(self, width: int) -> int | None:
        """Return the dimension of rows of so many bytes of signs, filled up to whole bytes; None for numbers.

        Only a dimension that ``--truncate-dim`` chose is known.
        """
        if not self.bits:
            return None
        return self.truncate_dim or 8 * width

    def check_numbers(self, *, to_search: bool = True) -> None:
        """Refuse vectors that are no numbers, or with `to_search` those that queries do not compare with.

        Raises:
            InputError: if the vectors are bits, or with `to_search` if they are principal components.
        """
        if self.bits and not to_search:
            raise InputError(f"{self.name} holds bits, not numbers: encode without --output-dtype binary")
        if self.pca_sha256 and to_search:
            raise InputError(
                f"{self.name} holds principal components, as earlier versions could write, which are not searched: "
                "encode again; --truncate-dim and --output-dtype are searched"
            )

    def compress(self, queries: Vectors, *, normalized: bool) -> Vectors:
        """Return vectors of queries with the dimensions of these vectors, float32 ``[n, dim]``.

        They keep their numbers where the documents are bits, which orders rows better than bits against bits (Yamada,
        Asai and Hajishirzi, "Efficient Passage Retrieval with Hashing", ACL 2021, sec. 3, reranking).

        Args:
            queries: as the encoder makes them ``[n, dim]``.
            normalized: whether the encoder makes vectors of length 1.
        """
        compressed = Compression(truncate_dim=self.truncate_dim, renormalize=normalized).apply(queries)
        if self.bits and self.truncate_dim is None:
            missing = -compressed.shape[1] % 8  # rows of bits are filled up to whole bytes
            return np.pad(compressed, ((0, 0), (0, missing)))
        return compressed

    def check_encoder(self, encoder: SentenceEncoder, document_prompt: str, dimension: int) -> None:
        """Refuse an encoder whose vectors cannot be compared with these.

        Args:
            encoder: of the queries.
            document_prompt: the text that it would put in front of each document.
            dimension: of the vectors.

        Raises:
            InputError: if they were made with another model, pooling, normalisation, length or document prompt.
        """
        width = encoder.dimension
        if self.bits:
            width += -width % 8  # filled up to whole bytes
        if not self.known and dimension != width:
            raise InputError(
                f"{self.name} has vectors of {dimension} dimensions, {encoder.model} makes {encoder.dimension}: give "
                "the model that made them with -m"
            )
        if self.known and not encoder.identity.is_named(self.model_fingerprint):
            then = f"pooling {self.pooling}, maximum length {self.max_length}"
            if dimension != width:
                then = f"{dimension} dimensions, now {encoder.dimension}"
            at_commit = f" at the commit {self.revision}" if self.revision is not None else ""
            raise InputError(
                f"{self.name} was encoded with {self.model}{at_commit} ({then}), which is not this {encoder.model}: "
                "the vectors do not compare"
            )
        if self.known and (self.prompt or "") != document_prompt:
            raise InputError(
                f"{self.name} was encoded with the prompt {self.prompt!r}, documents of this model have "
                f"{document_prompt!r}: encode again with --prompt, or say --doc-prompt {self.prompt!r} to search it "
                "as it is"
            )
        self._check_canaries(encoder, document_prompt)

    def check_texts(self, texts: Sequence[str], vectors: AnyArray, encoder: SentenceEncoder, prompt: str) -> None:
        """Refuse an encoder that makes other vectors of some texts than those that are stored.

        Args:
            texts: what was encoded of some rows.
            vectors: theirs ``[texts, dim]``.
            encoder: the model that has to have made them.
            prompt: the text in front of each text.

        Raises:
            InputError: if it makes others.
        """
        stored = vectors.astype(np.float64)
        made = encoder.encode(texts, prompt=prompt)
        lengths = np.linalg.norm(stored, axis=1) * np.linalg.norm(made, axis=1)
        cosines = (stored * made).sum(axis=1) / np.maximum(lengths, 1e-12)
        least = cosines.min(initial=1.0)
        unlike = len(cosines) - np.count_nonzero(cosines >= LEAST_COSINE)
        if unlike:
            raise InputError(
                f"{self.name}: {unlike} of {len(texts)} vectors that were compared are not {encoder.model}'s (least "
                f"cosine {least:.3f}): another model, pooling or prompt made them (--doc-prompt)"
            )

    def _check_canaries(self, encoder: SentenceEncoder, document_prompt: str) -> None:
        """Refuse an encoder that makes other vectors of the probe sentences than those that were kept, if any were."""
        canaries = self.canaries
        if canaries is None:
            return
        now = ProbeVectors.of(encoder.loaded, document_prompt)
        kinship, sentence = canaries.compare(now)
        if kinship in ("another model", "another pooling or prompt"):
            raise InputError(f"{self.name}: {encoder.model} makes other vectors now: {sentence}")
        if kinship == "another precision":
            in_int8 = canaries.in_int8 or encoder.backend.precision == "int8"
            say = console.note if in_int8 else console.detail
            say(f"{self.name}: {sentence}")

    def check_same_rows(self, full: Provenance) -> None:
        """Refuse full vectors that are not those of the same rows, as far as both say what was encoded.

        Raises:
            InputError: if they were made smaller themselves, or of other files or columns.
        """
        if full.made_smaller() not in ({}, {"output_dtype": "float16", "truncate_dim": None}):
            raise InputError(f"--rescore {full.name}: its vectors were made smaller, too; it takes full ones")
        differs = False
        for fact in ("inputs", "text_field", "id_field", "on_null"):
            differs |= getattr(self, fact) != getattr(full, fact)
        if differs and self.inputs and full.inputs:
            raise InputError(f"--rescore {full.name} was encoded from other files or columns than {self.name}")

    def check_similarity(self, similarity: Similarity) -> None:
        """Refuse inner products of int8 vectors and bits, whose lengths are lost.

        Raises:
            InputError: for ``dot`` and such vectors.
        """
        dtype = self.output_dtype
        if similarity == "dot" and dtype in ("int8", "binary"):
            kind = "each scaled by itself" if dtype == "int8" else "without their lengths"
            raise InputError(f"{self.name} holds vectors in {dtype}, {kind}: only their cosine is known")
