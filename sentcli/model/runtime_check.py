"""A runtime is checked before it is believed: the first time that a version of it runs an export.

An export was verified where it was made. Another version of onnxruntime or OpenVINO may compute otherwise: onnxruntime
1.20 gives wrong vectors for the shorter texts of a padded batch that pools [CLS]. So an export holds the token ids of a
few texts of different lengths with the model's own vectors, and whoever opens it compares them once.
"""

from __future__ import annotations

import base64
import binascii
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Le, MaxLen, MinLen

from sentcli.errors import SentcliError
from sentcli.io.atomic import replacing
from sentcli.io.digests import cache_folder, json_digest
from sentcli.machine import processor
from sentcli.model.tokenizing import Tokens, pad, pair_text

if TYPE_CHECKING:
    from sentcli.model.encoding import Backend, LoadedModel, Vectors

LENGTHS = (3, 8, 24, 96)
"""The lengths of the texts in tokens, at most those of the model."""
WORDS = (
    "The committee that was asked to look into the matter met again in March , and found that most of what had been "
    "said about the old bridge was true : it had been closed for repairs since the winter before last , when water "
    "froze in its joints , and nobody could say what it would cost to open it to heavy traffic again , because the "
    "drawings of 1931 were lost and the stones at the foot of the second pillar had never been measured by anybody "
    "who was still alive , so that the only thing to do was to send divers down and wait for their report ."
)
"""The text whose beginnings are run."""
TOLERANCES = {"fp32": 1e-3, "fp16": 0.02, "bf16": 0.1, "int8": 0.45}
"""How far a vector may be from the model's own, relative to the longest of these, by the precision that computes it.
In int8 it is what the verification of an export lets pass."""
GPU_TOLERANCE = 0.02
"""The least tolerance on a GPU, which may round the factors of fp32 to ten bits."""
MODULE_OF_BACKEND = {"onnx": "onnxruntime", "openvino": "openvino"}
"""The module that each backend runs."""
Ids = Annotated[tuple[Annotated[int, Ge(0), Le(2**31)], ...], MinLen(1), MaxLen(1024)]


class WrongRuntimeError(SentcliError):
    """An installed runtime does not give the vectors of a model; torch does."""


@dataclass(frozen=True)
class Probes:
    """Texts as token ids, and the vectors that their model gives each of them alone."""

    ids: Annotated[tuple[Ids, ...], MinLen(1), MaxLen(16)]
    vectors: str
    """float32, little endian, ``[texts, dim]`` in base64."""

    def __post_init__(self) -> None:
        """Refuse vectors that are none, or not those of the texts."""
        try:
            size = len(base64.b64decode(self.vectors, validate=True))
        except binascii.Error as error:
            raise ValueError("vectors are no base64") from error
        if not size or size % (4 * len(self.ids)) or not np.isfinite(self.expected).all():
            raise ValueError("vectors are not those of the texts")

    @classmethod
    def of(cls, model: LoadedModel) -> Probes:
        """Run the texts, each alone, through the model that an export is made of."""
        text = pair_text(WORDS, WORDS) if model.spec.scores_pairs else WORDS
        (ids,) = model.tokenizer([text]).ids
        rows = list(dict.fromkeys(tuple(ids[:length]) for length in LENGTHS))
        tokens = _tokens(rows, has_type_ids=model.tokenizer.has_type_ids)
        vectors = _run(model.backend, tokens, model.tokenizer.pad_id, each_alone=True)
        encoded = base64.b64encode(vectors.astype("<f4").tobytes())
        return cls(tuple(rows), encoded.decode())

    @property
    def expected(self) -> npt.NDArray[np.float32]:
        """The model's vectors ``[texts, dim]``."""
        return np.frombuffer(base64.b64decode(self.vectors), "<f4").reshape(len(self.ids), -1)

    def distance(self, backend: Backend, pad_id: int) -> float:
        """Return how far a backend's vectors are from the model's, relative to the longest of these.

        The texts are one padded batch, unless the backend runs each text alone.
        """
        tokens = _tokens(self.ids, has_type_ids=True)
        vectors = _run(backend, tokens, pad_id, each_alone=backend.batches != "padded")
        expected = self.expected
        if vectors.shape != expected.shape or not np.isfinite(vectors).all():
            return float("inf")
        greatest_distance = np.linalg.norm(vectors - expected, axis=1).max()
        longest = np.linalg.norm(expected, axis=1).max()
        return float(greatest_distance / max(longest, 1e-12))


def _tokens(rows: Sequence[Ids], *, has_type_ids: bool) -> Tokens:
    """Return texts as the tokenizer would, each of the one type 0."""
    ids = [list(row) for row in rows]
    type_ids = [[0] * len(row) for row in rows] if has_type_ids else None
    return Tokens(ids, type_ids, excess_tokens=np.zeros(len(rows), np.int64))


def _run(backend: Backend, tokens: Tokens, pad_id: int, *, each_alone: bool) -> Vectors:
    """Return the vectors of texts, which are one padded batch unless each is run alone."""
    numbers = list(range(len(tokens.ids)))
    if not each_alone:
        return backend.run(pad(tokens, numbers, pad_id), 0)
    return np.concatenate([backend.run(pad(tokens, [number], pad_id), 0) for number in numbers])


def check(folder: Path, files: dict[str, str], probes: Probes | None, pad_id: int, backend: Backend) -> None:
    """Compare a runtime with the model, unless this version of it has been compared on this export before.

    The cache keeps what was found. An export of an earlier version, which holds no probes, passes.

    Args:
        folder: of the export.
        files: the SHA-256 of its files by name.
        probes: what it holds.
        pad_id: the token that its batches are padded with.
        backend: has opened it.

    Raises:
        WrongRuntimeError: if the vectors are others than the model's.
    """
    if probes is None:
        return
    name = MODULE_OF_BACKEND[backend.name]
    version = sys.modules[name].__version__
    facts = [files, probes.ids, probes.vectors, name, version, backend.device, backend.precision, processor()]
    key = json_digest(facts)[:32]
    cached = cache_folder("runtimes") / key
    apart = _read(cached)
    if apart is None:
        apart = probes.distance(backend, pad_id)
        _keep(cached, apart)
    tolerance = TOLERANCES[backend.precision]
    if backend.device != "cpu":
        tolerance = max(tolerance, GPU_TOLERANCE)
    if not apart <= tolerance:
        raise WrongRuntimeError(
            f"{name} {version} gives other vectors for {folder} than its model ({apart:.2g} of their length apart; "
            f"{tolerance:g} is rounding): install another version, in the range of 'sentcli doctor', or run the model "
            "with --backend torch"
        )


def _read(path: Path) -> float | None:
    with suppress(OSError, ValueError):
        return float(path.read_text("ascii"))
    return None


def _keep(path: Path, apart: float) -> None:
    with suppress(OSError):  # without a cache it is compared each time
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_text(repr(apart), "ascii")
