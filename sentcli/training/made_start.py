"""The start of a run that is made of its teacher, as a model folder in the cache."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from sentcli.errors import InputError
from sentcli.io.digests import cache_folder, json_digest
from sentcli.io.word_vectors import made_once
from sentcli.training.teachers import EncoderTeacher

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sentcli.methods.static_start import StaticStart
    from sentcli.training.data import TrainingSentences
    from sentcli.training.teachers import Teacher

_FORMAT = 1
"""Changes when another model is made of the same teacher and text."""


def made_start(start: StaticStart, teachers: Sequence[Teacher], corpus: TrainingSentences) -> Path:
    """Return the folder of a static model that is made of a teacher; it is made once and kept in the cache.

    Args:
        start: how it is made.
        teachers: of which there has to be one, an encoder whose weights are here.
        corpus: the training text.

    Raises:
        InputError: if the teacher is another one.
    """
    if not teachers or not isinstance(teachers[0], EncoderTeacher):
        raise InputError("static makes a table of the vectors of a teacher: name an encoder with --teacher")
    encoder = teachers[0].encoder
    if encoder.sent is not None:
        raise InputError(f"static: the tokenizer of {teachers[0].name} is not here, since it is served")
    if encoder.local.spec.is_static:
        raise InputError(f"--teacher {teachers[0].name} is static itself: name a model that reads texts as a whole")
    key = json_digest([_FORMAT, teachers[0].identity, asdict(start), list(corpus.files)])
    folder = cache_folder("static-starts") / key[:32]
    return made_once(folder, lambda temporary: start.write(encoder, corpus.sentences, temporary))
