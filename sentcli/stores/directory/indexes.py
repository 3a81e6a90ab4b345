"""Bringing a directory and its indexes up to date with a corpus that has changed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from sentcli import console
from sentcli.io.blocks import MANIFEST
from sentcli.search.ann import FLAT
from sentcli.search.index import IndexRequest
from sentcli.search.vector_directory import WORDS_INDEX, VectorDirectory


@dataclass(frozen=True)
class IndexesToBuild:
    """The indexes that a directory will have."""

    of_vectors: tuple[IndexRequest, ...]
    language: str | None = None
    """The language of an index of words; None if there is none."""

    def measured_with(self, request: IndexRequest) -> IndexesToBuild:
        """Return the indexes, of which that of a request's kind is measured with its queries."""
        of_vectors = []
        for index in self.of_vectors:
            if index.kind == request.kind:
                index = replace(index, queries=request.queries)
            of_vectors.append(index)
        return replace(self, of_vectors=tuple(of_vectors))


def indexes_to_build(folder: Path | None, request: IndexRequest | None, language: str) -> IndexesToBuild:
    """Return the indexes that a directory will have: the one that is asked for, and those that it has if it is updated.

    An index that is there keeps what it has learned, its similarity and its prompt.

    Args:
        folder: of the directory that is updated, which need not be there yet; None if none is.
        request: the index that is asked for; None for one of words.
        language: of an index of words that is asked for.

    Raises:
        InputError: if an index of the directory is damaged, or of the vectors of another model.
    """
    there = IndexesToBuild(())
    if folder is not None and (folder / MANIFEST).exists():
        there = existing_indexes(folder, learned=True)
    earlier = {index.kind: index for index in there.of_vectors}
    if request is None:
        return replace(there, language=language)
    if request.kind in earlier:
        same_kind = earlier.pop(request.kind)
        similarity = request.similarity or same_kind.similarity
        request = replace(request, similarity=similarity, earlier=same_kind.earlier)
    elif request.kind == FLAT and earlier:  # which is no index, and what is taken if none is named
        return there
    return replace(there, of_vectors=(*earlier.values(), request))


def existing_indexes(folder: Path, *, learned: bool = False) -> IndexesToBuild:
    """Return the indexes of a directory, to be built again.

    Args:
        folder: the directory.
        learned: whether they keep what they have learned of the vectors.

    Raises:
        InputError: if an index is damaged, or of the vectors of another model.
    """
    requests = []
    store = VectorDirectory.open(folder)
    for name in store.indexes:
        if name == WORDS_INDEX:
            continue
        manifest = store.read_index(name, earlier=True)
        request = IndexRequest(manifest.kind, manifest.similarity, manifest.query_prompt, dict(manifest.settings))
        if learned and manifest.trained:
            damaged = store.damaged_files(name)
            if damaged:
                console.warn(f"{damaged[0]}: the index is built anew")
            else:
                request = replace(request, earlier=store.place(name))
        requests.append(request)
    words = store.words(earlier=True)
    language = None
    if words is not None:
        language = words.language
    return IndexesToBuild(tuple(requests), language)
