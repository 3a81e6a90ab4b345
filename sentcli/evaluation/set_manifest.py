"""``set.json``: how a test set was made, from which bytes, and how far to trust it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from sentcli import __version__
from sentcli.io.digests import file_digest
from sentcli.io.forms import read_json_form, write_json

SET_MANIFEST = "set.json"


@dataclass(frozen=True)
class SetManifest:
    """The content of ``set.json``."""

    trust: str
    """A sentence that ``evaluate`` prints beside its verdict."""
    queries_from: dict[str, int]
    """The number of queries by what they are made of."""
    documents: int
    queries: int
    judgements: int
    left_out: dict[str, int]
    """The number of queries or judgements that were left out, by the reason."""
    near_equal_pairs: int
    """Pairs of documents that are equal or nearly; what is relevant for a query is relevant with all of them."""
    made_from: list[dict[str, Any]]
    """Name, size and SHA-256 of each file."""
    taken: list[str]
    """Sentences that say how columns and files were read."""
    settings: dict[str, Any]
    corpus: list[str] = field(default_factory=list)
    """The files and folders of the corpus, as they were named; texts that became queries are not in the set."""
    text_field: str = "text"
    """The column of the texts of a table, if all tables have them in the same one."""
    files: dict[str, str] = field(default_factory=dict)
    """SHA-256 of the files of the set."""
    sentcli: str = __version__
    format: Literal[1] = 1

    def write(self, folder: Path) -> None:
        """Write the manifest into the folder of a set, with the checksums of its files."""
        checksums = {}
        for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
            if (folder / name).exists():
                checksums[name] = file_digest(folder / name)
        write_json(folder / SET_MANIFEST, asdict(self) | {"files": checksums})

    @classmethod
    def read(cls, folder: Path) -> SetManifest | None:
        """Read the manifest of a set, or return None if it was not made by ``data make-set``.

        Raises:
            InputError: if the manifest is damaged.
        """
        if not (folder / SET_MANIFEST).is_file():
            return None
        remedy = "make the set again, or delete the manifest"
        return read_json_form(cls, folder / SET_MANIFEST, missing="", remedy=remedy)

    def changed(self, folder: Path) -> list[str]:
        """Return the names of files that have changed since the set was made."""
        changed = []
        for name, checksum in self.files.items():
            path = folder / name
            if not path.is_file() or file_digest(path) != checksum:
                changed.append(name)
        return changed


def corpus_arguments(corpus: Path) -> list[str]:
    """Return the arguments of `encode` for the documents of a retrieval set.

    They name the corpus that the set was made of, if it is there: texts that became queries are not in the set.
    """
    manifest = SetManifest.read(corpus.parent)
    if manifest is None or not manifest.corpus or not all(Path(name).exists() for name in manifest.corpus):
        return [str(corpus)]
    arguments = list(manifest.corpus)
    if manifest.text_field != "text":
        arguments += ["--text-field", manifest.text_field]
    return arguments
