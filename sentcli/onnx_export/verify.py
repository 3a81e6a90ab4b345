"""Does an export give the vectors of the model it was made of?

Texts of every length go through both. A precision has a tolerance; an export outside of it is not published.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sentcli.zoo import models_folder

if TYPE_CHECKING:
    from sentcli.encoder.sentence_encoder import SentenceEncoder

Vectors = npt.NDArray[np.float32]
PADDED_TOKENS = 8192
"""Token budget of the batches in which short and long texts are padded to one length."""
SHORTEST = ("", " ", "a", "?", "\U0001f642", "你好", "Straße", "don't stop")


@dataclass(frozen=True)
class Tolerance:
    """How far the vectors of a precision may be from those of torch in fp32."""

    min_cosine: float
    mean_cosine: float
    score_drop: float
    """On STS-B dev, in points of Spearman's correlation times 100."""


TOLERANCES = {
    "fp32": Tolerance(min_cosine=0.99999, mean_cosine=0.999999, score_drop=0.01),
    "fp16": Tolerance(min_cosine=0.999, mean_cosine=0.9999, score_drop=0.1),
    "int8": Tolerance(min_cosine=0.9, mean_cosine=0.99, score_drop=0.3),
}


@dataclass(frozen=True)
class Verification:
    """How an export compares with its model."""

    texts: int
    longest: int
    """Tokens of the longest text, special ones included."""
    max_difference: float
    """Largest difference of a component."""
    min_cosine: float
    mean_cosine: float
    sts_b: dict[str, dict[str, float]] | None
    """By split: Spearman's correlation times 100 of ``torch``, of the ``export``, and the ``change``."""
    passed: bool
    complaint: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)


def texts_of_all_lengths(max_tokens: int) -> list[str]:
    """Return real sentences, and beginnings of a running text from one word to more than `max_tokens` words."""
    lines = (models_folder() / "verification.txt").read_text("utf-8").splitlines()
    words = " ".join(lines).split()
    words *= max_tokens // len(words) + 1
    lengths: list[int] = []
    length = 1.0
    while length < max_tokens:
        lengths.append(int(length))
        length = max(length + 1, length * 1.15)
    starts = [(7 * i) % len(words) for i in range(len(lengths))]
    pieces = [" ".join((words[start:] + words)[:n]) for start, n in zip(starts, lengths, strict=True)]
    return list(dict.fromkeys([*SHORTEST, *lines, *pieces, " ".join(words[: max_tokens + 10])]))


def agreement(wanted: Vectors, found: Vectors) -> tuple[float, float, float]:
    """Return largest difference, least and mean cosine of two arrays ``[n, dim]``."""
    lengths = np.linalg.norm(wanted, axis=1) * np.linalg.norm(found, axis=1)
    cosines = np.einsum("nd,nd->n", wanted.astype(np.float64), found) / np.maximum(lengths, 1e-12)
    return float(np.abs(wanted - found).max()), float(cosines.min()), float(cosines.mean())


def compare(
    model: SentenceEncoder,
    export: SentenceEncoder,
    precision: str,
    *,
    texts: Sequence[str],
    wanted: Vectors,
    data: Path | None = None,
) -> Verification:
    """Run texts through the export, packed as `encode` does it and, if exact, padded to one length as well.

    Args:
        model: on torch.
        export: the exported folder, loaded.
        precision: of the export.
        texts: what to encode.
        wanted: the model's vectors of them.
        data: a SentEval ``downstream`` folder, for the change on STS-B.
    """
    found = [export.encode(texts)]
    if precision != "int8":  # whose activations are quantised by batch: padding moves the vectors a little
        found.append(export.encode(texts, batch_tokens=PADDED_TOKENS))
    measured = [agreement(wanted, vectors) for vectors in found]
    difference = max(each[0] for each in measured)
    lowest, mean = min(each[1] for each in measured), min(each[2] for each in measured)
    scores = None if data is None else sts_b(model, export, data)
    limit = TOLERANCES[precision]
    complaints = []
    if not lowest >= limit.min_cosine:
        complaints.append(f"the least cosine is {lowest:.6f}, wanted {limit.min_cosine}")
    if not mean >= limit.mean_cosine:
        complaints.append(f"the mean cosine is {mean:.6f}, wanted {limit.mean_cosine}")
    if scores is not None and not -scores["dev"]["change"] <= limit.score_drop:
        complaints.append(
            f"STS-B dev changes by {scores['dev']['change']:+.2f}, wanted no less than -{limit.score_drop}"
        )
    longest = int(export.tokenizer(texts).lengths.max())
    return Verification(len(texts), longest, difference, lowest, mean, scores, not complaints, "; ".join(complaints))


def sts_b(model: SentenceEncoder, export: SentenceEncoder, data: Path) -> dict[str, dict[str, float]]:
    """Score model and export on STS-B, dev and test."""
    from sentcli.evaluation import sts

    scores = {}
    for split in ("dev", "test"):
        pairs = sts.load_tasks(data, ["STSBenchmark"], split)
        both = [sts.evaluate(encoder, pairs, split).tasks[0].spearman for encoder in (model, export)]
        scores[split] = {"torch": both[0], "export": both[1], "change": both[1] - both[0]}
    return scores
