"""What is asked of `sentcli retrieve`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sentcli.cli import options
from sentcli.errors import InputError

if TYPE_CHECKING:
    from sentcli.evaluation.candidate import Candidate
    from sentcli.search.neighbours import Similarity


@dataclass(frozen=True)
class Encoding:
    """How texts become vectors, and what is similar."""

    models: list[str]
    query_prompt: str | None
    """None is the model's own."""
    doc_prompt: str | None
    query_length: int | None
    max_length: int | None
    pooling: str | None
    similarity: Similarity
    backend: str
    precision: str
    device: str
    rerun: bool

    def candidate(self, model: str) -> Candidate:
        """Return a model that is loaded when it is needed."""
        return options.candidate(
            model, self.backend, self.precision, self.device, self.pooling, None, self.max_length, rerun=self.rerun
        )

    @property
    def model(self) -> str:
        """The only model.

        Raises:
            InputError: if there are none or several.
        """
        if len(self.models) != 1:
            raise InputError(f"{len(self.models) or 'no'} models (-m); searching takes one")
        return self.models[0]


@dataclass(frozen=True)
class Output:
    """Where results go."""

    json: str | None
    pages: list[Path]
    against: str | None
    overwrite: bool


@dataclass(frozen=True)
class Sets:
    """Sets that are to be scored."""

    names: list[Path]
    split: str | None
    ways: str
    """Comma-separated: dense, bm25, rrf, weighted."""
    dense_weight: float
    language: str
    index: str | None
    top_k: int
    run: Path | None
    from_run: list[Path]
    per_query: Path | None


@dataclass(frozen=True)
class Pairs:
    """Pairs whose second sentence is to be found by the first."""

    file: str
    exclude: str
    fields: str | None
    top_k: int | None


@dataclass(frozen=True)
class Search:
    """A corpus that is to be searched."""

    corpus: str
    queries: list[str]
    query_file: str | None
    query_format: str | None
    text_field: str
    id_field: str | None
    way: str
    dense_weight: float
    language: str | None
    """None is that of the index, or English."""
    index: str | None
    similarity: Similarity | None
    """None is that of the index, or cosine."""
    top_k: int
    hits: str | None
