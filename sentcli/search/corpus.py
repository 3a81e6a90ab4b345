"""A corpus to search: a file that is encoded now, or a directory that `sentcli encode` wrote."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sentcli.encoder.encoding import EncodeStats, Progress
from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.errors import DataError, InputError
from sentcli.io.dataset import read_manifest
from sentcli.io.readers import ReadOptions, blocks
from sentcli.io.sources import open_source
from sentcli.search.exact import ExactIndex, Vectors


@dataclass(frozen=True)
class Hit:
    """One document found for a query."""

    rank: int
    id: str
    score: float
    """Cosine similarity."""
    text: str

    def to_dict(self) -> dict[str, object]:
        """Return the JSON form."""
        return dict(vars(self))


@dataclass(frozen=True)
class Corpus:
    """Documents with an index over them."""

    ids: list[str]
    texts: list[str]
    index: ExactIndex
    stats: EncodeStats | None
    """None if the vectors were on disk."""
    prompt: str = ""
    """What was put in front of each document."""

    def search(self, queries: Vectors, k: int) -> list[list[Hit]]:
        """Return the `k` best hits of each query vector ``[queries, dim]``."""
        found = self.index.search(queries, k)
        return [
            [
                Hit(rank, self.ids[position], float(score), self.texts[position])
                for rank, (position, score) in enumerate(zip(positions, scores, strict=True), 1)
            ]
            for positions, scores in zip(found.positions, found.scores, strict=True)
        ]


@dataclass(frozen=True)
class Documents:
    """Texts with their ids."""

    ids: list[str]
    texts: list[str]


def read_documents(name: str, options: ReadOptions) -> Documents:
    """Read a file of documents.

    Raises:
        DataError: as the readers; also an empty file.
    """
    documents = Documents([], [])
    for block in blocks([open_source(name)], options):
        documents.ids.extend(block.ids)
        documents.texts.extend(block.texts)
    if not documents.ids:
        raise DataError(name, "the file is empty: there is nothing to search")
    return documents


def encode_documents(
    documents: Documents,
    encoder: SentenceEncoder,
    *,
    prompt: str | None = None,
    progress: Progress | None = None,
) -> Corpus:
    """Encode documents and index them."""
    vectors, stats = encoder.encode_counted(documents.texts, prompt=prompt, progress=progress)
    index = ExactIndex(encoder.dimension)
    index.add([vectors])
    return Corpus(documents.ids, documents.texts, index, stats, prompt or "")


def open_corpus(folder: Path, encoder: SentenceEncoder) -> Corpus:
    """Open a directory written by `encode`; its vectors are mapped, not read into memory twice.

    Raises:
        InputError: if it is unfinished, damaged, or was encoded by another model or with other settings.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    manifest = read_manifest(folder)
    if manifest["rows_done"] != manifest["rows_total"]:
        done, total = manifest["rows_done"], manifest["rows_total"]
        raise InputError(f"{folder} is unfinished ({done} of {total} rows): run the same encode with --resume")
    there = manifest["settings"]
    if there.get("model_fingerprint") != encoder.fingerprint():
        raise InputError(
            f"{folder} was encoded with {there.get('model')} (pooling {there.get('pooling')}, maximum length "
            f"{there.get('max_length')}), which is not this {encoder.model}: the vectors do not compare"
        )
    shape = manifest["dimension"], there.get("output_dtype")
    if manifest["dimension"] != encoder.dimension or there.get("output_dtype") == "binary" or there.get("pca_sha256"):
        raise InputError(
            f"{folder} holds vectors of {shape[0]} dimensions in {shape[1]}, made smaller by --truncate-dim, --pca or "
            f"binary; the {encoder.dimension} of a query do not compare with them: encode without these to search"
        )
    ids: list[str] = []
    texts: list[str] = []
    for shard in manifest["shards"]:
        try:
            table = pq.read_table(folder / shard["rows"], columns=["id", "text"])
        except (pa.ArrowException, OSError) as error:
            raise DataError(folder / shard["rows"], f"damaged ({error}); encode again with --overwrite") from error
        ids += table["id"].to_pylist()
        texts += table["text"].to_pylist()
    index = ExactIndex(encoder.dimension)
    index.add(_mapped(folder, [shard["vectors"] for shard in manifest["shards"]]))
    if len(index) != len(ids):
        raise DataError(folder, f"{len(index)} vectors, but {len(ids)} rows; encode again with --overwrite")
    return Corpus(ids, texts, index, None, there.get("prompt") or "")


def _mapped(folder: Path, names: list[str]) -> Iterator[Vectors]:
    for name in names:
        try:
            yield np.load(folder / name, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise DataError(folder / name, f"damaged ({error}); encode again with --overwrite") from error
