"""A directory that `encode` wrote, as something to search: which encoder made it, its rows, vectors and indexes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.errors import InputError
from sentcli.io.dataset import read_manifest
from sentcli.search.blocks import Blocks
from sentcli.search.rows import RowsOnDisk

INDEXES = "indexes"


@dataclass(frozen=True)
class Stored:
    """A finished directory of shards."""

    folder: Path
    manifest: dict[str, Any]

    @classmethod
    def open(cls, folder: Path, *, to_search: bool = True) -> Stored:
        """Read the manifest.

        Args:
            folder: a directory of encode.
            to_search: whether vectors of queries have to compare with its own.

        Raises:
            InputError: if there is none, the directory is unfinished, or its vectors are bits; to search also if they
                have fewer dimensions than the encoder.
        """
        manifest = read_manifest(folder)
        if manifest["rows_done"] != manifest["rows_total"]:
            done, total = manifest["rows_done"], manifest["rows_total"]
            raise InputError(f"{folder} is unfinished ({done} of {total} rows): run the same encode with --resume")
        settings = manifest["settings"]
        bits = settings.get("output_dtype") == "binary"
        if bits and not to_search:
            raise InputError(f"{folder} holds bits, not numbers: encode without --output-dtype binary")
        if to_search and (bits or settings.get("pca_sha256") or settings.get("truncate_dim")):
            raise InputError(
                f"{folder} holds vectors of {manifest['dimension']} dimensions in {settings.get('output_dtype')}, made "
                "smaller by --truncate-dim, --pca or binary; those of a query do not compare with them: encode "
                "without these to search"
            )
        return cls(folder, manifest)

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that decides the vectors."""
        found: dict[str, Any] = self.manifest["settings"]
        return found

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return int(self.manifest["dimension"])

    @property
    def prompt(self) -> str:
        """What was put in front of each document."""
        return self.settings.get("prompt") or ""

    @property
    def digests(self) -> list[str]:
        """SHA-256 of each shard's vectors, in order."""
        return [shard["sha256"][shard["vectors"]] for shard in self.manifest["shards"]]

    @cached_property
    def blocks(self) -> Blocks:
        """The vectors, mapped; `Blocks.mapped` says what can be wrong with them."""
        return Blocks.mapped(self.folder, self.manifest["shards"], self.dimension)

    @cached_property
    def rows(self) -> RowsOnDisk:
        """The documents; `RowsOnDisk` says what can be wrong with them."""
        return RowsOnDisk(self.folder, self.manifest["shards"])

    @property
    def indexes(self) -> list[str]:
        """Names of the indexes that were built."""
        place = self.folder / INDEXES
        return (
            sorted(path.name for path in place.iterdir() if path.name[0] != "." and path.is_dir())
            if place.is_dir()
            else []
        )

    def check_encoder(self, encoder: SentenceEncoder, document_prompt: str) -> None:
        """Refuse queries whose vectors would not compare with those that are there.

        Raises:
            InputError: if another model, pooling, normalisation, length or document prompt made them.
        """
        there = self.settings
        if there.get("model_fingerprint") != encoder.fingerprint():
            raise InputError(
                f"{self.folder} was encoded with {there.get('model')} (pooling {there.get('pooling')}, maximum length "
                f"{there.get('max_length')}), which is not this {encoder.model}: the vectors do not compare"
            )
        if self.prompt != document_prompt:
            raise InputError(
                f"{self.folder} was encoded with the prompt {self.prompt!r}, documents of this model have "
                f"{document_prompt!r}: encode again with --prompt, or say --doc-prompt {self.prompt!r} to search it "
                "as it is"
            )
