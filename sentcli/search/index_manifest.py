"""What an index on disk is: ``index.json``, which names its files and says which vectors they are of."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sentcli.errors import InputError
from sentcli.io.json_files import write_json
from sentcli.search.ann import FaissRecipe
from sentcli.search.neighbours import Similarity

FORMAT = 1
MANIFEST = "index.json"
TRAINED = "trained.faiss"
"""The file without rows, from which further files begin."""


@dataclass(frozen=True)
class IndexFile:
    """One file of faiss."""

    name: str
    first: int
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class IndexManifest:
    """What ``index.json`` says."""

    kind: str
    factory: str
    rescore: int
    similarity: Similarity
    dimension: int
    encoder: dict[str, Any]
    """Which vectors these are."""
    query_prompt: str | None
    """Of the queries; None is the model's own."""
    shards: list[str]
    """SHA-256 of the vectors that it was built from."""
    settings: dict[str, int] = field(default_factory=dict)
    """Parameters of faiss that the user set for building."""
    files: list[IndexFile] = field(default_factory=list)
    trained: str = ""
    """SHA-256 of the file without rows, from which further files begin."""
    built_for: int = 0
    """Rows when it was trained."""
    efforts: dict[str, int] = field(default_factory=dict)
    """Search parameters."""
    recall: dict[str, Any] | None = None
    """`recall.Curve`, of so many rows: ``measured_rows``."""
    faiss: str = ""
    """Version that wrote the files."""
    format: int = FORMAT

    @property
    def rows(self) -> int:
        """That are in the files."""
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        """Of the files."""
        return sum(file.bytes for file in self.files)

    @property
    def recipe(self) -> FaissRecipe:
        """How it was built."""
        return FaissRecipe(self.kind, self.factory, self.rescore)

    @classmethod
    def read(cls, place: Path) -> IndexManifest:
        """Read it.

        Raises:
            InputError: if there is none, or it is torn or of another format.
        """
        path = place / MANIFEST
        try:
            found = json.loads(path.read_text("utf-8"))
            if found["format"] != FORMAT:
                raise ValueError(f"format {found['format']}, this version reads {FORMAT}")
            return cls(**{**found, "files": [IndexFile(**file) for file in found["files"]]})
        except FileNotFoundError as error:
            raise InputError(f"{place} is no index: it has no {MANIFEST}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path} is damaged ({error}); build the index again with --overwrite") from error

    def write(self, place: Path) -> None:
        """Write it, whole or not at all."""
        write_json(place / MANIFEST, asdict(self))
