"""Whether what `encode` or `export` wrote is whole, and whether a model makes its vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sentcli.encoder import load_encoder
from sentcli.errors import InputError, SentcliError
from sentcli.io.dataset import CANARIES, read_manifest
from sentcli.io.dataset_check import check_dataset, require_whole
from sentcli.io.folder import open_folder
from sentcli.io.places import is_remote
from sentcli.io.writers import FILES
from sentcli.model.exported import Export, check_files, exports_in
from sentcli.model.options import LoadOptions
from sentcli.model.probe_vectors import ProbeVectors
from sentcli.search.vector_file import open_vectors

ANOTHER_MODEL = ("another pooling or prompt", "another model")
"""What a model may be to the one that made vectors, if their vectors do not compare."""


@dataclass(frozen=True)
class Verified:
    """What was found of a directory of shards, a file of vectors or an export."""

    model: str
    """The name of the model that made it."""
    results: Mapping[str, Any]
    """The results as JSON."""
    canaries: dict[str, Any] | None
    """The vectors of a few fixed texts, as they are kept; None if there are none."""
    notes: tuple[str, ...] = ()
    """What is whole, in words."""
    problem: SentcliError | None = None
    """What is wrong, if anything is."""


def verify_vectors(name: str) -> Verified:
    """Verify a directory of shards, a file of vectors or an export.

    Raises:
        InputError: if there is none.
        DataError: for a file that is damaged; shards that are damaged or missing are the `problem`.
    """
    place = Path(name)
    remote = is_remote(name)
    if not remote and not place.exists():
        raise InputError(f"--check {name}: there is no such directory or file; it verifies what encode or export wrote")
    if place.is_file() or (remote and place.suffix in FILES):
        return _verified_file(name)
    exports = [] if remote else exports_in(place)
    if exports:
        return _verified_exports(place, name, exports)
    return _verified_directory(name)


def _verified_file(name: str) -> Verified:
    vectors = open_vectors(name)
    rows, dimension = len(vectors.blocks), vectors.blocks.dimension
    results = {"path": name, "rows": rows, "dimension": dimension}
    canaries = vectors.origin.recorded()["canaries"]
    return Verified(vectors.origin.model, results, canaries, (f"{name} is whole: {rows} rows, {dimension} dimensions",))


def _verified_exports(folder: Path, name: str, exports: list[Export]) -> Verified:
    notes = []
    for export in exports:
        check_files(folder, export)
        notes.append(f"{name} is whole: {export.dimension} dimensions, {export.precision}")
    first = exports[0]
    results = {"path": name, "model": first.model, "precision": first.precision}
    return Verified(first.model, results, first.canaries, tuple(notes))


def _verified_directory(name: str) -> Verified:
    dataset = check_dataset(open_folder(name))
    canaries = read_manifest(open_folder(name)).settings.get(CANARIES)
    problem = None
    try:
        require_whole(dataset, name)
    except SentcliError as error:
        problem = error
    note = (
        f"{name} is whole: {dataset.rows} rows in {dataset.shards} shards, {dataset.dimension} dimensions of "
        f"{dataset.dtype}, {dataset.bytes / 1e6:,.1f} MB"
    )
    return Verified(dataset.model, asdict(dataset), canaries, (note,), problem)


def kinship_of(
    name: str, verified: Verified, model: str, options: LoadOptions, prompt: tuple[str | None, str | None]
) -> tuple[str, str]:
    """Return what a model is to the one that made vectors, by those of a few fixed texts: in a word and a sentence.

    Args:
        name: of what was verified, for messages.
        verified: what was found of it.
        model: the name of the model.
        options: how it is loaded.
        prompt: the name of one of its prompts and the text in front of each row; see `SentenceEncoder.prompt_text`.
    """
    before = ProbeVectors.read(name, verified.canaries)
    encoder = load_encoder(model, options)
    return before.compare(ProbeVectors.of(encoder.loaded, encoder.prompt_text(*prompt)))
