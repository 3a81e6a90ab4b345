"""Moving a directory of vectors to another model.

The directory's own rows are encoded into its staging folder, and its indexes are built there, while the old vectors
answer. Then the old directory gets a second name, ``NAME.before``, and the new one takes its place in one step.
Whatever interrupts that leaves a whole directory under the name, and the same command goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np

from sentcli import bulk, console
from sentcli.bulk.engine import EncodeSettings
from sentcli.bulk.passages import rows_of_facts
from sentcli.bulk.stored_rows import all_rows, encode_again
from sentcli.bulk.update import StoredTexts, vector_differences
from sentcli.compression import Compression
from sentcli.corpora.indexing import build_index
from sentcli.corpora.move_gate import Serving
from sentcli.corpora.opening import load_stored_model
from sentcli.corpora.updating import IndexesToBuild, existing_indexes
from sentcli.encoder.announce import warn_truncated
from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.encoder.vector_facts import VectorFacts
from sentcli.errors import InputError
from sentcli.evaluation.estimate import Estimates, estimate_encoding
from sentcli.io.atomic import require_room, room_explained
from sentcli.io.dataset import MANIFEST, read_manifest
from sentcli.io.folder import Folder, open_folder
from sentcli.io.places import is_remote
from sentcli.model.options import LoadOptions, Precision
from sentcli.model.passages import PassageRows
from sentcli.search import ann
from sentcli.search.corpus_documents import CorpusDocuments
from sentcli.search.index import check_recipe
from sentcli.search.vector_directory import VectorDirectory

ADVICE = "make room, then the same command goes on"


@dataclass(frozen=True)
class DirectoryMove:
    """A directory, and the model that it is to move to."""

    place: Folder
    stored: StoredTexts
    store: VectorDirectory
    model: str
    load: LoadOptions
    doc_prompt: str | None = None
    """The text in front of each document; None is the model's own."""
    query_prompt: str | None = None

    @classmethod
    def open(
        cls, name: str, model: str, load: LoadOptions, doc_prompt: str | None, query_prompt: str | None
    ) -> DirectoryMove:
        """Read a directory that is to move.

        Raises:
            InputError: if it is none, is unfinished or damaged, or does not say which model made it.
        """
        place = directory(name)
        stored = bulk.stored_texts(name)
        if stored is None:
            raise InputError(f"{name} was not written by sentcli encode or index: only what they wrote moves")
        store = VectorDirectory.open(place.path, name)
        if not store.origin.known:
            raise InputError(f"{name} does not say which model made its vectors: encode its texts with -m instead")
        return cls(place, stored, store, model, load, doc_prompt, query_prompt)

    @property
    def title(self) -> str:
        """The name of the directory."""
        return self.store.origin.name

    @property
    def before(self) -> str:
        """Where the directory is kept as it was."""
        return str(self.place.before)

    @cached_property
    def encoder(self) -> SentenceEncoder:
        """The model that it moves to."""
        from sentcli.encoder.announce import load_encoder

        return load_encoder(self.model, self.load)

    @cached_property
    def settings(self) -> EncodeSettings:
        """How the rows are encoded: as they were, but for the model and its prompt."""
        facts = self.store.origin
        compression = Compression(
            facts.output_dtype, facts.truncate_dim, renormalize=bool(self.encoder.spec.normalizes)
        )
        compression.dimension(self.encoder.dimension)
        return EncodeSettings(
            prompt=self.encoder.spec.prompt_of_documents(self.doc_prompt),
            on_long=facts.on_long,
            compression=compression,
            passages=facts.passages,
            load=self.encoder.same_choices(self.load),
        )

    @property
    def documents(self) -> CorpusDocuments:
        """The documents of the directory."""
        return CorpusDocuments(self.title, self.store.rows)

    @property
    def is_done(self) -> bool:
        """Whether the vectors of the directory are those that the model would make."""
        facts = VectorFacts.of(self.encoder, self.settings.prompt, self.settings.compression, self.settings.passages)
        now: dict[str, Any] = {**facts.recorded(), **self.encoder.describe(), "on_long": self.settings.on_long}
        return not vector_differences(self.title, self.stored.manifest.settings, now, self.encoder.identity)

    def estimate(self) -> Estimates:
        """Measure how long encoding the rows will take."""
        prompt = (None, self.settings.prompt)
        shard_rows = self.stored.manifest.shard_rows
        load = self.load
        if load.precision == "auto":  # the one that is taken, not a comparison of several
            load = replace(load, precision=cast(Precision, self.encoder.backend.precision))
        rows = all_rows(self.stored)
        return estimate_encoding([self.model], load, rows, shard_rows, self.settings.compression, prompt)

    def serving(self) -> tuple[Serving, Serving]:
        """Return how the directory is served now, and how it will be.

        Raises:
            InputError: if the model that made it is not on this machine, or is another one now.
        """
        origin = self.store.origin
        load = replace(self.load, pooling=None, normalize=None, max_length=None, precision="auto")
        old, load = load_stored_model(origin, load)
        prompt = origin.prompt or ""
        origin.check_encoder(old, prompt, self.store.dimension)
        served = Serving(old, replace(self.settings, prompt=prompt, load=load), load=load)
        for request in self._existing.of_vectors[:1]:
            served = replace(served, query_prompt=request.query_prompt, similarity=request.similarity)
        new = Serving(self.encoder, self.settings, self.query_prompt, load=self.load)
        for request in self.indexes().of_vectors[:1]:
            new = replace(new, similarity=request.similarity)
        return served, new

    def cut(self, serving: Serving) -> PassageRows | None:
        """Return what cuts documents as those of the directory were cut, by the tokenizer of its model."""
        passages = self.store.origin.passages
        if passages is None:
            return None
        return rows_of_facts(serving.encoder.local.tokenizer, passages)

    @cached_property
    def _existing(self) -> IndexesToBuild:
        return existing_indexes(self.place.path)

    def indexes(self) -> IndexesToBuild:
        """Return the indexes that the new directory gets: those of the old one, of the new vectors.

        A similarity other than that of the old model was chosen, and stays; else the new model's own is taken.

        Raises:
            InputError: if one of them cannot be built of vectors of the new dimension.
        """
        own = self.store.origin.similarity
        dimension = self.encoder.dimension
        if self.settings.compression.truncate_dim is not None:
            dimension = self.settings.compression.truncate_dim
        requests = []
        for request in self._existing.of_vectors:
            similarity = request.similarity
            if similarity == own:
                similarity = self.encoder.spec.similarity
            rows = len(self.store.rows)
            anew = replace(request, similarity=similarity, query_prompt=self.query_prompt)
            recipe = ann.recipe(anew.kind, rows, dimension)
            check_recipe(recipe, dimension, similarity or self.encoder.spec.similarity, anew.settings, rows)
            requests.append(anew)
        return IndexesToBuild(tuple(requests), self._existing.language)

    def check(self) -> None:
        """Refuse a move that cannot be made, before anything is compared or encoded.

        Raises:
            InputError: if the directory before an earlier move is still there, or an index does not fit.
            NoRoomError: if the disk is too small.
        """
        if self.place.before.exists and not self._before_is_this():
            raise InputError(
                f"{self.before} holds {self.title} as it was before it moved last: sentcli migrate {self.title} --back "
                "returns to it, --drop deletes it"
            )
        self.indexes()
        rows = len(self.store.rows)
        width = self.settings.compression.dimension(self.encoder.dimension)
        size = rows * width * np.dtype(self.settings.compression.dtype).itemsize
        require_room(self.place.path.resolve().parent, size, f"{self.title} with {self.model}")

    def _before_is_this(self) -> bool:
        """Tell whether the directory before is the present one, as a move that was interrupted leaves it."""
        try:
            return read_manifest(self.place.before) == self.stored.manifest
        except InputError:
            return False

    def run(self) -> dict[str, Any]:
        """Encode, index and exchange; the directory answers with its old vectors until then.

        Returns:
            What was done, for the JSON.

        Raises:
            InputError: if another process has changed the directory meanwhile.
        """
        indexes = self.indexes()
        rows = len(self.store.rows)
        with (
            room_explained(self.title, ADVICE),
            console.resumable(self.title, how="goes on after the shards that are whole"),
        ):
            with console.encoding(f"encoding with {self.model}", rows) as bar:
                summary = encode_again(self.encoder, self.stored, self.settings, bar)
            warn_truncated(
                self.encoder.spec.max_length, summary.counts.truncated, summary.counts.tokens_lost, what="rows"
            )
            new = VectorDirectory.open(self.place.staging().path, self.title)
            for request in indexes.of_vectors:
                build_index(new, request, None)
            if indexes.language is not None:
                new.build_words(indexes.language)
            if read_manifest(self.place) != self.stored.manifest:
                raise InputError(f"{self.title} was changed by another process meanwhile: give the command again")
            self.place.keep_before()
            self.place.promote()
        kinds = [request.kind for request in indexes.of_vectors]
        if indexes.language is not None:
            kinds.append("bm25")
        return {"rows": rows, "rows_encoded": summary.counts.rows, "indexes": kinds, "before": self.before}

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the directory for a move; see `Folder.staging_held`."""
        with self.place.staging_held():
            yield


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
    if not (place.path / MANIFEST).exists():
        raise InputError(f"{name} was not written by sentcli encode or index: it has no {MANIFEST}")
    return place


def go_back(name: str, model: str | None = None) -> dict[str, Any]:
    """Exchange a directory with what it was before it moved, in one step; the same again takes that back.

    Args:
        name: of the directory.
        model: the one that it is to return to, or to leave; None takes what is there.

    Raises:
        InputError: if there is nothing to return to, or neither has vectors of that model.
    """
    place = directory(name)
    with place.staging_held():
        left, returned = _both(place)
        rows = returned.manifest.rows_total
        models = (left.origin.model, returned.origin.model)
        if model is not None and model not in models:
            raise InputError(f"{name} goes back from {models[0]} to {models[1]}, and not to {model}: leave -m out")
        if left.row_digests != returned.row_digests:
            console.warn(
                f"the rows of {name} have changed since it moved: what changed is in {place.before} now, and "
                f"sentcli encode CORPUS -o {name} --update brings {name} up to date"
            )
        place.go_back()
    console.note(f"{name} answers with {returned.origin.model} again; {place.before} has {left.origin.model}")
    return {"output": name, "model": returned.origin.model, "rows": rows, "before": str(place.before)}


def drop_before(name: str, *, held: bool = False) -> dict[str, Any]:
    """Delete what a directory was before it moved.

    Args:
        name: of the directory.
        held: whether the caller holds the directory already.

    Raises:
        InputError: if there is nothing.
    """
    place = directory(name)
    with nullcontext() if held else place.staging_held():
        kept, dropped = _both(place)
        size = sum(file.stat().st_size for file in place.before.path.rglob("*") if file.is_file())
        place.before.delete()
    console.note(f"{place.before} is deleted ({size / 1e6:,.1f} MB, {dropped.origin.model})")
    return {"output": name, "model": kept.origin.model, "dropped": str(place.before), "bytes": size}


def _both(place: Folder) -> tuple[VectorDirectory, VectorDirectory]:
    """Return a directory and what it was before it moved."""
    if not (place.before.path / MANIFEST).exists():
        raise InputError(f"{place} has not moved, or it was dropped: there is no {place.before}")
    present = VectorDirectory.open(place.path, str(place))
    return present, VectorDirectory.open(Path(place.before.path), str(place.before))
