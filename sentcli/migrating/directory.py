"""Moving a directory of vectors to another model.

The directory's own rows are encoded into its staging folder, and its indexes are built there, while the old vectors
answer. Then the old directory gets a second name, ``NAME.before``, and the new one takes its place in one step.
Whatever interrupts that leaves a whole directory under the name, and the same command goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from sentcli import console
from sentcli.encoder.vector_facts import VectorFacts
from sentcli.errors import InputError, SentcliError
from sentcli.io.atomic import require_room, room_explained
from sentcli.io.blocks import MANIFEST
from sentcli.io.dataset import holds_manifest, read_manifest
from sentcli.io.dataset_check import check_dataset, require_whole
from sentcli.io.digests import folder_bytes
from sentcli.io.folder import Folder, open_folder
from sentcli.io.places import is_remote
from sentcli.io.writers import DIRECTORY, output_format
from sentcli.migrating.move import Move, MoveTarget, Searched
from sentcli.model.encoding import EncodeStats, Progress
from sentcli.search import ann
from sentcli.search.corpus_documents import CorpusDocuments
from sentcli.search.index import check_recipe
from sentcli.search.vector_directory import VectorDirectory
from sentcli.stores.directory.indexes import IndexesToBuild, existing_indexes
from sentcli.stores.directory.indexing import build_index
from sentcli.stores.directory.rows import all_rows, stored_rows
from sentcli.stores.directory.texts import StoredTexts, open_stored_texts
from sentcli.stores.inputs import Inputs
from sentcli.stores.options import WriteSettings
from sentcli.stores.row_vectors import EncodedVectors
from sentcli.stores.writing import EncodeSummary, write_rows

_ADVICE = "make room, then the same command goes on"


@dataclass(frozen=True)
class DirectoryMove(Move):
    """A directory that `encode` wrote; see `Move`."""

    place: Folder
    stored: StoredTexts

    @classmethod
    def open(cls, name: str, target: MoveTarget) -> DirectoryMove:
        """Read a directory that is to move.

        Raises:
            InputError: if it is none, is unfinished or damaged, or does not say which model made it.
        """
        place = directory(name)
        stored = open_stored_texts(name)
        assert stored is not None  # it has a manifest
        store = VectorDirectory.open(place.path, name)
        return cls(store.origin, store.dimension, CorpusDocuments(name, store.rows), target, place, stored)

    @property
    def before(self) -> str:
        """The directory as it was."""
        return str(self.place.before)

    def has_before(self) -> bool:
        """Whether there is anything else of that name than the present directory, which an interrupted move leaves."""
        return self.place.before.exists and not self.place.is_before()

    @property
    def inputs(self) -> Inputs:
        """All rows."""
        return all_rows(self.stored)

    @property
    def made_with(self) -> dict[str, Any]:
        """The settings of the manifest."""
        return self.stored.manifest.settings

    @property
    def shard_rows(self) -> int:
        """The rows of a shard, which stay as they are."""
        return self.stored.manifest.shard_rows

    @cached_property
    def _existing(self) -> IndexesToBuild:
        return existing_indexes(self.place.path)

    @property
    def searched(self) -> Searched:
        """How the first index compares vectors; of none nothing was chosen."""
        for request in self._existing.of_vectors:
            return Searched(request.similarity, request.query_prompt)
        return Searched()

    @cached_property
    def indexes(self) -> IndexesToBuild:
        """The indexes that the new directory gets: those of the old one, of the new vectors.

        Raises:
            InputError: if one of them cannot be built of vectors of the new dimension.
        """
        dimension = self.vectors.dimension
        requests = []
        for request in self._existing.of_vectors:
            anew = replace(request, similarity=self.new_similarity, query_prompt=self.target.query_prompt)
            recipe = ann.recipe(anew.kind, self.row_count, dimension)
            check_recipe(recipe, dimension, self.new_similarity, anew.settings, self.row_count)
            requests.append(anew)
        return IndexesToBuild(tuple(requests), self._existing.language)

    def check(self) -> None:
        """Refuse what `Move.check` refuses, indexes that do not fit, and a disk that is too small."""
        before = self.place.before
        if before.exists and not holds_manifest(before.names()):
            raise InputError(f"{before} is where {self.title} is kept, and is something else: give that another name")
        super().check()
        self.place.check_replaceable()
        if output_format(self.place.full_name) is not DIRECTORY:
            raise InputError(f"{self.title} has the name of a file, and encode makes no directory of it: rename it")
        kinds = [request.kind for request in self.indexes.of_vectors]  # which refuses one that does not fit
        console.detail(f"{self.title}: indexes {', '.join(kinds) or 'none'} will be built")
        width = self.vectors.dimension * np.dtype(self.vectors.dtype).itemsize
        parent = self.place.path.resolve().parent
        require_room(parent, self.row_count * width, f"{self.title} with {self.target.model}")

    def run(self) -> dict[str, Any]:
        """Encode and index the rows beside, and exchange the directories; see `Move.run`."""
        indexes = self.indexes
        goes_on = console.resumable(self.title, how="goes on after the shards that are whole", is_whole=lambda: True)
        with room_explained(self.title, _ADVICE), goes_on:
            with console.encoding(f"encoding with {self.target.model}", self.row_count) as bar:
                summary = _write_again(self.stored, self.vectors, bar)
            self.vectors.warn_of_cut(summary.counts)
            new = VectorDirectory.open(self.place.staging().path, self.title)
            for request in indexes.of_vectors:
                build_index(new, request, None)
            if indexes.language is not None:
                new.build_words(indexes.language)
            if self._has_changed():
                raise InputError(f"{self.title} was changed by another process meanwhile: give the command again")
            self.place.keep_before()
            self.place.promote()
        kinds = [request.kind for request in indexes.of_vectors]
        if indexes.language is not None:
            kinds.append("bm25")
        return {"rows_encoded": summary.counts.rows, "indexes": kinds, "before": self.before}

    def _has_changed(self) -> bool:
        """Whether the directory has other rows, or an index that the new one lacks."""
        if read_manifest(self.place) != self.stored.manifest:
            return True
        return existing_indexes(self.place.path) != self._existing

    def held(self) -> AbstractContextManager[None]:
        """Hold the directory; see `Folder.staging_held`."""
        return self.place.staging_held()


def directory(name: str) -> Folder:
    """Return the directory that moves, is dropped or returns.

    Raises:
        InputError: if it is not on a disk, or not there.
    """
    if is_remote(name):
        raise InputError(
            f"{name}: a move exchanges folders in one step, which a store has not: encode its corpus with the other "
            "model into another address, and read that"
        )
    place = open_folder(name)
    if not holds_manifest(place.names()):
        raise InputError(f"{name} was not written by sentcli encode or index: it has no {MANIFEST}")
    return place


@dataclass(frozen=True)
class MovedDirectory:
    """A directory that has moved, see `move.Moved`."""

    title: str
    place: Folder
    present: VectorDirectory
    earlier: VectorDirectory

    @property
    def before(self) -> str:
        """The directory as it was."""
        return str(self.place.before)

    @property
    def models(self) -> tuple[str, str]:
        """The models of both."""
        return self.present.origin.model, self.earlier.origin.model

    def exchange(self) -> dict[str, Any]:
        """Exchange both directories, after looking whether all of the earlier one is there."""
        place = self.place
        place.check_replaceable()
        place.before.check_replaceable()
        _require_whole(place.before, self.earlier)
        if self.present.manifest.groups != self.earlier.manifest.groups:  # the files of rows name the model, too
            console.warn(
                f"the rows of {self.title} have changed since it moved: what changed is in {place.before} now, and "
                f"sentcli encode CORPUS -o {self.title} --update brings {self.title} up to date"
            )
        place.go_back()
        return {"rows": self.earlier.manifest.rows_total}

    def let_go(self) -> dict[str, Any]:
        """Delete the earlier directory, after looking whether all of the present one is there."""
        place = self.place
        path = place.before.path
        if path.is_symlink():
            raise InputError(f"{path} is a link to {path.resolve()}: delete what you do not need of both yourself")
        place.before.check_replaceable()
        _require_whole(place, self.present)
        size = folder_bytes(path)
        place.before.delete()
        return {"bytes": size}


@contextmanager
def moved_directory(name: str) -> Iterator[MovedDirectory]:
    """Hold a directory that has moved inside the block.

    Raises:
        InputError: if it is none, has not moved, or another process holds it.
    """
    place = directory(name)
    with place.staging_held():
        if not holds_manifest(place.before.names()):
            raise InputError(f"{place} has not moved, or it was dropped: there is no {place.before}")
        present = VectorDirectory.open(place.path, str(place))
        earlier = VectorDirectory.open(Path(place.before.path), str(place.before))
        yield MovedDirectory(name, place, present, earlier)


def _require_whole(place: Folder, store: VectorDirectory) -> None:
    """Refuse a directory with a file that is not what its manifest or its indexes say, before others depend on it."""
    with console.working(f"comparing {place} with its checksums"):
        require_whole(check_dataset(place), place)
        problems = []
        for name in store.indexes:
            problems += store.damaged_files(name)
    if problems:
        raise SentcliError(
            f"{'; '.join(problems)}: build the index of {place} again, by sentcli index with --overwrite"
        )


def _write_again(
    stored: StoredTexts, vectors: EncodedVectors, progress: Progress = lambda added: None
) -> EncodeSummary:
    """Write the rows of a directory with the vectors of another model into its staging folder; what is there stays.

    What is written is what `write_rows` would write of the same corpus with the same settings.

    Args:
        stored: the directory, whose borders of shards are kept.
        vectors: gives the rows their vectors.
        progress: called with the rows and tokens that were encoded.

    Returns:
        The summary of all rows, whose counts are those of what this call encoded.
    """
    parts = stored_rows(stored)
    begun = _begun_groups(stored, vectors)
    writing = WriteSettings(stored.manifest.shard_rows, overwrite=True, stays_beside=True, resume=True)
    first = max(begun - 1, 0)
    for part in parts[:first]:
        progress(EncodeStats(texts=part.survey.rows))
    summaries = []
    for number, part in enumerate(parts[first:], first):
        of_part = replace(writing, append=number > 0)
        summaries.append(write_rows(part, vectors, stored.name, of_part, progress=progress))
    whole = summaries[-1]
    for earlier in summaries[:-1]:
        whole = replace(whole, counts=earlier.counts + whole.counts, seconds=earlier.seconds + whole.seconds)
    return replace(whole, rows_before=whole.rows - whole.counts.rows)


def _begun_groups(stored: StoredTexts, vectors: EncodedVectors) -> int:
    """Return how many groups of inputs an interrupted run of the same move has begun in the staging folder."""
    with suppress(InputError, OSError):  # there is none, or it is damaged and is made anew
        begun = read_manifest(open_folder(stored.name).staging())
        is_same_move = not vectors.facts.differences(VectorFacts.read(stored.name, begun.settings))
        if is_same_move and begun.groups == stored.manifest.groups[: len(begun.groups)]:
            return len(begun.groups)
    return 0
