"""The parts that the cards of trained and exported folders share, and what must not go into such folders."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sentcli.arrays import Float32Array
from sentcli.hub import CARD
from sentcli.printable import as_text
from sentcli.zoo import find_entry, hub_model, local_path

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

SHOWN = ("A man plays a guitar.", "Someone is making music.", "The invoice is overdue.")
"""The sentences whose similarities a card shows."""
TAGS = ("sentence-transformers", "feature-extraction", "sentence-similarity", "sentcli")
PAIR_TAGS = ("sentence-transformers", "cross-encoder", "reranker", "sentcli")
"""The tags of a cross-encoder, which makes no vectors; sentence-transformers gives them to its own."""
CITATION = "\n## Citation\n"
"""The heading of the part of a card that says how its paper is cited."""
DATA_SETS = "hf://datasets/"
"""The beginning of the name of a file in a data set of the hub."""


def public_name(name: str) -> str:
    """Return the name of a model for files that are published: of a folder on this machine its own name alone."""
    path = local_path(name)
    return name if path is None else as_text(path.resolve().name)


def without_folders(value: Any) -> Any:
    """Return facts for files that are published, with the last part of each path that leads to a place on this machine.

    Args:
        value: of JSON.
    """
    if isinstance(value, Mapping):
        return {key: without_folders(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_folders(item) for item in value]
    if not isinstance(value, str) or os.sep not in value or "\n" in value:
        return value
    try:
        path = Path(value).expanduser()
        is_here = path.is_absolute() or path.exists()
    except (OSError, RuntimeError):  # no name of a file is so long; nobody has the home that it begins with
        return value
    return path.name if is_here else value


@dataclass(frozen=True)
class StartFacts:
    """What is known of the model that another one was made of."""

    base_model: str | None
    """Its hub id."""
    licence: str | None
    languages: list[str]
    data_sets: list[str]
    """Hub ids of what it was trained on."""
    title: str | None = None
    """The name in the index of scores of a model that `sentcli train` made; None for any other."""
    scores: list[EvalResult] = field(default_factory=list)
    """The scores in the card of a model that `sentcli train` made."""
    citation: str = ""
    """The part of the card of such a model that says how the paper of its method is cited."""


def start_facts(name: str, folder: Path) -> StartFacts:
    """Return what the list of known models and the card in a model's folder say.

    Args:
        name: that the user gave for the model.
        folder: of the model.
    """
    entry = find_entry(name)
    data, text = _card_in(folder)
    licence = data.get("license") if entry is None else entry.licence.lower()
    base = None
    if local_path(name) is None:
        of_hub = hub_model(name)
        base = None if of_hub is None else of_hub.repository
    data_sets = [item for item in _texts(data.get("datasets")) if item.count("/") == 1]
    source = StartFacts(base, _licence(licence), _texts(data.get("language")), data_sets)
    if TAGS[-1] not in _texts(data.get("tags")):  # the scores in cards of others are theirs
        return source
    if not base:
        base = next(iter(_texts(data.get("base_model"))), None)
    _, _, after_heading = text.partition(CITATION)
    citation, _, _ = after_heading.partition("\n## ")
    scores = data.get("eval_results") or []
    return replace(source, base_model=base, title=data.get("model_name"), scores=scores, citation=citation.strip())


def _card_in(folder: Path) -> tuple[dict[str, Any], str]:
    """Return what the head of a folder's card says, and its text; nothing if there is none, or it cannot be read."""
    from huggingface_hub import ModelCard

    try:
        card = ModelCard.load(folder / CARD, ignore_metadata_errors=True)
        return dict(vars(card.data)), str(card.text)
    except (OSError, ValueError, TypeError, AttributeError):
        return {}, ""


def _texts(value: Any) -> list[str]:
    """Return the texts that an entry of a card's head has, which may be one text or a list."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        return []
    return [item for item in value if isinstance(item, str)]


def _licence(value: Any) -> str | None:
    """Return the licence under a name that the hub knows; one in words is "other"."""
    if not isinstance(value, str) or not value:
        return None
    return "other" if " " in value else value


def data_sets_of(files: Iterable[str]) -> list[str]:
    """Return the hub ids of the data sets that some files are of; files of this machine are nobody else's."""
    data_sets: dict[str, None] = {}
    for name in files:
        owner, _, path = name.removeprefix(DATA_SETS).partition("/")
        repository, slash, _ = path.partition("/")
        if name.startswith(DATA_SETS) and slash:
            data_set, _, _ = f"{owner}/{repository}".partition("@")
            data_sets[data_set] = None
    return list(data_sets)


def card_head(
    source: StartFacts,
    *,
    library: str,
    tags: Sequence[str],
    title: str | None = None,
    data_sets: Sequence[str] = (),
    scores: Sequence[EvalResult] = (),
    pairs: bool = False,
) -> str:
    """Return the head of a card in YAML, as the hub reads it.

    Args:
        source: the model that this one was made of.
        library: the name of the library that opens the folder.
        tags: the hub's tags.
        title: the name of the model in the index of its scores.
        data_sets: hub ids of the data that it was trained on.
        scores: what was measured of it.
        pairs: whether it is a cross-encoder.
    """
    from huggingface_hub import ModelCardData

    return str(
        ModelCardData(
            base_model=source.base_model,
            license=source.licence,
            language=source.languages or None,
            datasets=list(data_sets) or None,
            library_name=library,
            pipeline_tag="text-ranking" if pairs else "sentence-similarity",
            tags=list(dict.fromkeys(tags)),
            model_name=title if scores else None,
            eval_results=list(scores) or None,
        ).to_yaml()
    )


def printed_similarities(vectors: Float32Array, similarity: str) -> str:
    """Return what a program prints that compares the vectors of `SHOWN` ``[3, dim]`` with each other, as comments.

    Args:
        vectors: of the three sentences.
        similarity: ``cosine`` or ``dot``.
    """
    compared = vectors.astype(np.float64)
    if similarity == "cosine":
        compared = compared / np.maximum(np.linalg.norm(compared, axis=1, keepdims=True), 1e-12)
    lines = []
    for row in compared @ compared.T:
        numbers = ", ".join(f"{value:.4f}" for value in row)
        lines.append(f"# [{numbers}]")
    return "\n".join(lines)
