"""`Reranker`, a cross-encoder, which reads two texts together and scores how well they go together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sentcli import zoo
from sentcli.arrays import Float32Array
from sentcli.encoder import loading
from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.model.cross_encoder_files import read_cross_encoder
from sentcli.model.encoding import Progress
from sentcli.model.options import LoadOptions
from sentcli.model.spec import EncoderSpec
from sentcli.model.tokenizing import pair_text


class Reranker:
    """A cross-encoder. It orders the first hits of a search anew, since it is slower than vectors, and often better."""

    def __init__(self, encoder: SentenceEncoder) -> None:
        self.encoder = encoder
        """Runs the model; its texts are pairs as `pair_text` makes them, its vectors their scores ``[n, 1]``."""

    @classmethod
    def load(
        cls,
        model: str | Path,
        *,
        backend: str = "auto",
        precision: str = "auto",
        device: str = "auto",
        max_length: int | None = None,
        allow_cpu_fallback: bool = False,
        notice: Callable[[str], None] | None = None,
    ) -> Reranker:
        """Load a classifier of transformers with one label, such as sentence-transformers' ``CrossEncoder`` writes.

        Args:
            model: its folder or hub id.
            backend: as for `SentenceEncoder.load`, like the arguments below.
            precision: ``int8`` has to order pairs as fp32 does, at a rank correlation of 0.99 at least.
            device: ``cpu``, ``cuda``, ``cuda:1``, ``mps`` or ``auto``.
            max_length: the maximum length of a pair in tokens, special ones included; the longer text is cut first.
            allow_cpu_fallback: take the CPU if the device is not there, instead of raising an error.
            notice: called with notes for the user, for example when an export is made.

        Raises:
            InputError: if there is no such model, or it is no cross-encoder with one score.
            SentcliError: if the hub cannot be reached, or an export differs from its model.
        """
        chosen: Any = {"backend": backend, "precision": precision, "device": device}  # LoadOptions checks them
        options = LoadOptions(max_length=max_length, **chosen, allow_cpu_fallback=allow_cpu_fallback)
        spec = read_reranker(str(model))
        return cls(SentenceEncoder(loading.load_model(str(model), spec, options, notice or (lambda message: None))))

    def scores(
        self, pairs: Sequence[tuple[str, str]], *, batch_tokens: int | None = None, progress: Progress | None = None
    ) -> Float32Array:
        """Return the score of each pair of query and document, float32 ``[n]``, in the given order.

        They are what ``CrossEncoder.predict`` returns: after the model's activation, which is sigmoid for most.

        Args:
            pairs: query and document; each distinct pair is scored once.
            batch_tokens: the token budget of one forward pass.
            progress: called after every batch.
        """
        texts = [pair_text(*pair) for pair in pairs]
        return self.encoder.encode(texts, batch_tokens=batch_tokens, progress=progress)[:, 0]


def read_reranker(model: str) -> EncoderSpec:
    """Find the folder of a cross-encoder, and return its description.

    Raises:
        InputError: if there is no such model, or it is no cross-encoder with one score.
    """
    return read_cross_encoder(zoo.resolve(model)[0])
