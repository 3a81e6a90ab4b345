"""The targets of a batch: what the teachers say of the texts of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sentcli.arrays import Float32Array, Int64Array
from sentcli.errors import InputError, SentcliError
from sentcli.training.teachers import KeptVectors

if TYPE_CHECKING:
    from sentcli.methods import Method
    from sentcli.training.data import TrainingSentences
    from sentcli.training.teachers import Teacher

TEACHER = "teacher_"
"""The beginning of the names of targets among the tensors of a batch: teachers are numbered from 0."""
TEACHER_SCORES = "teacher_scores"
_FIRST_ROWS = 4
"""The rows that teachers are asked about before a run begins."""


@dataclass(frozen=True)
class Targets:
    """What the teachers say of the rows of the training data."""

    vectors: tuple[Float32Array, ...] = ()
    """The vectors of distinct texts by each teacher ``[texts, d_t]``."""
    places: Int64Array | None = None
    """The row of `vectors` of each text of the data ``[columns, rows]``, -1 for rows that are not trained on."""
    scores: Float32Array | None = None
    """The score of each anchor with each other column ``[rows, columns - 1]``."""

    @classmethod
    def of(
        cls, teachers: Sequence[Teacher], method: Method, corpus: TrainingSentences, rows: Sequence[int]
    ) -> Targets | None:
        """Ask the teachers about the rows that are trained on; None if no objective wants to know.

        Raises:
            InputError: if a teacher cannot answer, or the views are not the texts of the data.
        """
        wanted = {term.teacher for term in method.objectives.values()} - {""}
        if not wanted:
            return None
        is_whole = method.views.one_sentence or len(corpus.texts) == method.views.count
        if not is_whole:
            raise InputError("a teacher knows whole texts, and these views are parts of them: leave out --set views")
        columns = corpus.texts
        if method.views.one_sentence:
            columns = columns[:1]
        roles = method.views.roles[: len(columns)]
        vectors: tuple[Float32Array, ...] = ()
        places = scores = None
        if "vectors" in wanted:
            vectors, places = _vectors_of_rows(teachers, columns, roles, rows)
        if "scores" in wanted:
            scores = _scores_of_rows(teachers[0], columns, rows)
        return cls(vectors, places, scores)

    def of_rows(self, rows: Sequence[int]) -> dict[str, Float32Array]:
        """Return the targets of some rows, by their names in a batch."""
        targets: dict[str, Float32Array] = {}
        if self.places is not None:
            places = self.places[:, rows]
            for number, vectors in enumerate(self.vectors):
                targets[f"{TEACHER}{number}"] = vectors[places]
        if self.scores is not None:
            targets[TEACHER_SCORES] = self.scores[rows]
        return targets


def check_answers(teachers: Sequence[Teacher], method: Method, corpus: TrainingSentences) -> None:
    """Ask the teachers about the first rows, and vectors that are kept about all, before anything is written.

    Raises:
        InputError: if a teacher cannot answer, or not with numbers.
    """
    for teacher in teachers:
        if isinstance(teacher, KeptVectors):
            for column in corpus.texts:
                teacher.require(column)
    try:
        Targets.of(teachers, method, corpus, range(min(_FIRST_ROWS, len(corpus.sentences))))
    except InputError:
        raise
    except SentcliError as error:
        raise InputError(f"--teacher cannot be asked: {error}") from None


def _vectors_of_rows(
    teachers: Sequence[Teacher], columns: Sequence[Sequence[str]], roles: Sequence[str], rows: Sequence[int]
) -> tuple[tuple[Float32Array, ...], Int64Array]:
    """Return the vectors of the distinct texts of some rows, and where those of each column and row stand."""
    places = np.full((len(columns), len(columns[0])), -1, np.int64)
    parts: list[list[Float32Array]] = [[] for _ in teachers]
    count = 0
    for number, (column, role) in enumerate(zip(columns, roles, strict=True)):
        place_of_text: dict[str, int] = {}
        for row in rows:
            place = place_of_text.setdefault(column[row], count + len(place_of_text))
            places[number, row] = place
        texts = list(place_of_text)
        for part, teacher in zip(parts, teachers, strict=True):
            part.append(teacher.vectors(texts, role))
        count += len(texts)
    return tuple(map(np.concatenate, parts)), places


def _scores_of_rows(teacher: Teacher, columns: Sequence[Sequence[str]], rows: Sequence[int]) -> Float32Array:
    """Return the score of each anchor with each other text of its row ``[rows, columns - 1]``, NaN for other rows."""
    anchors, *others = columns
    scores = np.full((len(anchors), len(others)), np.nan, np.float32)
    for number, column in enumerate(others):
        first = list(map(anchors.__getitem__, rows))
        second = list(map(column.__getitem__, rows))
        scores[rows, number] = teacher.scores(first, second)
    return scores
