"""Open the model that a run has written, and compare it with the one in memory, before it counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.errors import InputError, SentcliError
from sentcli.model.probe_vectors import PROBE_TEXTS, SUM_ORDER
from sentcli.model.tokenizing import pair_text

if TYPE_CHECKING:
    from pathlib import Path

    from sentcli.arrays import Vectors
    from sentcli.model.encoding import LoadedModel


def check_written_model(encoder: SentenceEncoder, folder: Path) -> None:
    """Refuse a folder that does not open, or whose model is not the one in memory.

    Args:
        encoder: the trained one, whose files were written.
        folder: that holds them.

    Raises:
        SentcliError: which names what differs: a setting, weights, or the text whose vectors are farthest apart.
    """
    trained = encoder.on_torch().local
    try:
        written = SentenceEncoder.load(
            folder, backend="torch", precision="fp32", device=encoder.backend.device, pairs=True
        ).local
    except InputError as error:
        raise SentcliError(f"the model that was trained cannot be opened again: {error}") from error
    problem = _difference(trained, written)
    if problem:
        raise SentcliError(f"what was written is not the model that was trained: {problem}")


def _difference(trained: LoadedModel, written: LoadedModel) -> str:
    """Return what differs between a model and the one that its folder holds; empty if nothing does."""
    found = _settings(written)
    for name, value in _settings(trained).items():
        if found[name] != value:
            return f"its {name} is {found[name]!r}, and {value!r} in training"
    texts = list(PROBE_TEXTS)
    if trained.spec.scores_pairs:
        texts = [pair_text(text, partner) for text, partner in zip(PROBE_TEXTS, reversed(PROBE_TEXTS), strict=True)]
    number, distance = _farthest(_vectors(trained, texts), _vectors(written, texts))
    if distance <= SUM_ORDER:
        return ""
    problem = f"the vectors of {texts[number]!r} are {distance:.1e} of their length apart"
    weights = written.torch_module.state_dict()
    other = []
    for name, tensor in trained.torch_module.state_dict().items():
        if name not in weights or not tensor.equal(weights[name].to(tensor.device)):
            other.append(name)
    if other:
        problem += f", and of its weights these differ: {', '.join(other[:3])}"
    return problem


def _settings(model: LoadedModel) -> dict[str, Any]:
    """Return how a model makes a vector of a text, in the words of its user."""
    spec = model.spec
    return {
        "pooling": spec.pooling,
        "normalisation": spec.normalizes,
        "prompt": spec.usual_prompt,
        "maximum length": model.tokenizer.max_length,
        "side at which texts are cut": model.tokenizer.side,
    }


def _vectors(model: LoadedModel, texts: list[str]) -> Vectors:
    """Return the vectors ``[n, dim]`` of texts with the model's usual prompt; the scores ``[n, 1]`` of pairs."""
    return model.encode(texts, model.spec.usual_prompt).vectors


def _farthest(first: Vectors, second: Vectors) -> tuple[int, float]:
    """Return which row differs most, and by how much of the longest one; infinite for vectors of other dimensions."""
    if first.shape != second.shape:
        return 0, float("inf")
    distances = np.linalg.norm(first - second, axis=1)
    longest = max(float(np.linalg.norm(first, axis=1).max()), 1e-30)
    number = int(distances.argmax())
    return number, float(distances[number]) / longest
