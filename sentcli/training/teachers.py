"""Teachers: frozen models, or kept vectors of one, that give the targets of a batch.

A teacher is an encoder, which may be served or an export; a file or directory of vectors that ``encode`` wrote with
their texts; or a cross-encoder. Its vectors are looked up by text, and those of an encoder are kept in the cache of
vectors, so that a second run does not encode them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from sentcli import console
from sentcli.arrays import AnyArray, Float32Array
from sentcli.encoder.reranker import Reranker
from sentcli.errors import InputError, SentcliError
from sentcli.evaluation.evaluated import EvaluatedModel
from sentcli.io.readers import ReadOptions
from sentcli.io.served import Served
from sentcli.model.options import BackendName, LoadOptions
from sentcli.model.spec import Similarity
from sentcli.search.exact import prepared
from sentcli.search.stored_vectors import StoredVectors
from sentcli.search.vector_file import open_stored

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.methods import Method
    from sentcli.objectives import Objective


class Teacher(Protocol):
    """A frozen model that says where texts lie, or how well two go together."""

    name: str
    width: int
    """The dimension of its vectors; 0 for a cross-encoder, which makes none."""

    @property
    def identity(self) -> str:
        """A digest of what decides its targets."""

    def vectors(self, texts: Sequence[str], role: str) -> Float32Array:
        """Return the vectors of distinct texts ``[n, width]``; `role` is as for `SentenceEncoder.role_prompt`."""

    def scores(self, first: Sequence[str], second: Sequence[str]) -> Float32Array:
        """Return how well each text goes with the one beside it ``[n]``: the similarity of anchor and document."""


class EncoderTeacher:
    """An encoder as a teacher."""

    def __init__(self, model: EvaluatedModel) -> None:
        self.model = model
        self.name = model.name
        self.width = self.encoder.dimension

    @property
    def encoder(self) -> SentenceEncoder:
        """The loaded encoder."""
        return self.model.load()

    @property
    def identity(self) -> str:
        """The fingerprint of the encoder."""
        return self.encoder.fingerprint()

    @property
    def weights(self) -> str | None:
        """The digest of the weights; None for a model that is served."""
        return self.encoder.provenance().get("weights")

    def vectors(self, texts: Sequence[str], role: str) -> Float32Array:
        """Encode texts behind the prompt of a role, or read their vectors from the cache."""
        spec = self.encoder.spec
        prompt = spec.role_prompt(role) if role else spec.usual_prompt
        return _finite(self, self.model.encode_shown("teacher", texts, prompt=prompt).vectors_of(texts))

    def scores(self, first: Sequence[str], second: Sequence[str]) -> Float32Array:
        """Return the similarity that the model's folder names."""
        return _pair_similarities(self, first, second, self.encoder.spec.similarity)


class KeptVectors:
    """The vectors of a file or directory as a teacher, by their texts."""

    def __init__(self, name: str, stored: StoredVectors) -> None:
        self.name = name
        self.stored = stored
        self.row_of_text: dict[str, int] = {}
        for row, text in enumerate(stored.rows.texts()):
            self.row_of_text.setdefault(text, row)
        self.width = stored.blocks.dimension

    @property
    def identity(self) -> str:
        """The fingerprint of the model that made the vectors, or the name of the file if it does not say."""
        return self.stored.origin.model_fingerprint or self.name

    def require(self, texts: Sequence[str]) -> None:
        """Refuse texts of which one has no vector."""
        missing = [text for text in texts if text not in self.row_of_text]
        if missing:
            raise InputError(
                f"--teacher {self.name} has no vector for {len(missing):,} of {len(texts):,} texts of the training, "
                f"such as {missing[0][:60]!r}: encode these texts, or give the model itself"
            )

    def vectors(self, texts: Sequence[str], role: str) -> Float32Array:
        """Look up texts, all of which are there."""
        rows = np.array(list(map(self.row_of_text.__getitem__, texts)), np.int64)
        return _finite(self, np.asarray(self.stored.blocks.take(rows), np.float32))

    def scores(self, first: Sequence[str], second: Sequence[str]) -> Float32Array:
        """Return the cosine of the two vectors."""
        return _pair_similarities(self, first, second, "cosine")


class CrossEncoderTeacher:
    """A cross-encoder as a teacher, which scores pairs and makes no vectors."""

    width = 0

    def __init__(self, name: str, reranker: Reranker) -> None:
        self.name = name
        self.reranker = reranker

    @property
    def identity(self) -> str:
        """The fingerprint of the cross-encoder."""
        return self.reranker.encoder.fingerprint()

    def vectors(self, texts: Sequence[str], role: str) -> Float32Array:
        """Refuse, which is said before training by `check_teachers`."""
        raise InputError(f"--teacher {self.name} is a cross-encoder, which makes no vectors of texts")

    def scores(self, first: Sequence[str], second: Sequence[str]) -> Float32Array:
        """Return the scores of pairs, after the model's activation."""
        pairs = list(zip(first, second, strict=True))
        with console.encoding("teacher", len(pairs)) as progress:
            scores = self.reranker.scores(pairs, progress=progress)
        return _finite(self, scores)


def _finite(teacher: Teacher, values: AnyArray) -> Float32Array:
    """Return the targets of a teacher.

    Raises:
        SentcliError: if one of them is NaN or infinite.
    """
    if not np.isfinite(values).all():
        raise SentcliError(f"--teacher {teacher.name} gives numbers that are not finite, from which nothing is learnt")
    return np.asarray(values, np.float32)


def _pair_similarities(
    teacher: Teacher, first: Sequence[str], second: Sequence[str], similarity: Similarity
) -> Float32Array:
    """Return the cosine or the inner product of each query with the document beside it ``[n]``."""
    sides = []
    for texts, role in ((first, "query"), (second, "document")):
        distinct = list(dict.fromkeys(texts))
        row_of_text = {text: row for row, text in enumerate(distinct)}
        vectors = prepared(teacher.vectors(distinct, role), similarity)
        rows = list(map(row_of_text.__getitem__, texts))
        sides.append(vectors[rows])
    return np.asarray(np.einsum("nd,nd->n", *sides), np.float32)


def open_teacher(name: str, device: str = "auto", backend: BackendName = "auto") -> Teacher:
    """Open a teacher by the name of a model, of a file or of a directory of vectors.

    Args:
        name: of an encoder, which may be served, of a cross-encoder, or of what ``encode`` wrote.
        device: as ``--device``.
        backend: of an encoder that is here.

    Raises:
        InputError: if there is no such model, or the file holds no texts beside its vectors.
    """
    if Served.parse(name) is not None:  # it has no device here
        return EncoderTeacher(EvaluatedModel(name))
    stored = _stored_vectors(name)
    if stored is not None:
        return KeptVectors(name, stored)
    model = EvaluatedModel(name, LoadOptions(backend=backend, device=device), pairs=True)
    if model.spec.scores_pairs:
        return CrossEncoderTeacher(name, Reranker.load(name, device=device, notice=console.note))
    return EncoderTeacher(model)


def open_teachers(names: Sequence[str], device: str, backend: BackendName) -> tuple[Teacher, ...]:
    """Open several teachers; see `open_teacher`."""
    teachers = []
    for name in names:
        teachers.append(open_teacher(name, device, backend))
    return tuple(teachers)


def identity_of(teacher: Teacher) -> str:
    """Return a teacher's identity."""
    return teacher.identity


def width_of(teacher: Teacher) -> int:
    """Return the dimension of a teacher's vectors."""
    return teacher.width


def _stored_vectors(name: str) -> StoredVectors | None:
    """Return the vectors of a file or directory; None for the name of a model."""
    from pathlib import Path

    path = Path(name)
    is_output = path.is_file() or (path.is_dir() and (path / "manifest.json").is_file())
    if not is_output:
        return None
    stored = open_stored(name, None, ReadOptions(), to_search=False)
    if stored is None:
        raise InputError(f"--teacher {name} holds texts and no vectors: sentcli encode makes them")
    return stored


def check_teachers(method: Method, teachers: Sequence[Teacher]) -> None:
    """Refuse teachers that the method's objectives cannot learn from, and objectives without one.

    Raises:
        InputError: if there are too few or too many, or the wrong kind.
    """
    learning = {name: term for name, term in method.objectives.items() if term.teacher}
    if not learning and not teachers:
        return
    if not learning:
        if method.start is None:
            raise InputError(
                f"--teacher: no term of {method.name} learns from one; distill does, or objectives+=ranking"
            )
        return
    if not teachers:
        raise InputError(f"{method.name} learns from a teacher: name a model with --teacher")
    for name, term in learning.items():
        _check_kind(name, term, teachers)


def _check_kind(name: str, term: Objective, teachers: Sequence[Teacher]) -> None:
    """Refuse a number or a kind of teachers that one objective does not take."""
    if len(teachers) > term.most_teachers:
        raise InputError(f"--teacher: {name} learns from no more than {term.most_teachers}, not {len(teachers)}")
    for teacher in teachers:
        if term.teacher == "vectors" and not teacher.width:
            raise InputError(
                f"--teacher {teacher.name} is a cross-encoder, which makes no vectors, and {name} learns from vectors; "
                "margin-mse learns from its scores"
            )
