"""What ``index -o`` writes a directory from: files of text, which are encoded, or a file that holds vectors already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sentcli import console
from sentcli.bulk.options import TextOptions
from sentcli.errors import InputError
from sentcli.model.options import LoadOptions

if TYPE_CHECKING:
    from sentcli.bulk.engine import EncodeSettings
    from sentcli.bulk.files import Inputs
    from sentcli.cluster.pool import Pool
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.encoder.vector_facts import Passages
    from sentcli.model.passages import PassageRows
    from sentcli.search.index import IndexRequest
    from sentcli.search.vector_file import VectorFile


class TextInput(NamedTuple):
    """Files of text that go into a directory before it is indexed."""

    folder: Path
    inputs: Inputs
    settings: EncodeSettings
    given_vectors: VectorFile | None = None
    """The vectors that are there already; None if the texts are encoded."""
    update: bool = False
    """Whether texts that the directory has keep their vectors."""

    def check_model(self, model: str | None) -> None:
        """Refuse texts without the model that encodes them.

        Raises:
            InputError: which asks for it.
        """
        if self.given_vectors is None and model is None:
            raise InputError("--output encodes files of text: give the model with -m")


GOES_ON = "goes on after the shards that are whole, if any is"
"""What the command does when it is given again after an interruption."""


def fill(
    texts: TextInput,
    encoder: SentenceEncoder | None,
    pool: Pool | None,
    options: LoadOptions,
    doc_prompt: str | None,
    request: IndexRequest | None,
) -> dict[str, int]:
    """Write the directory: of the vectors that are given, or of the texts, which are encoded.

    Args:
        texts: what `read_texts` returned.
        encoder: the model; None if it is unknown, as it may be for given vectors.
        pool: workers on a cluster that make the shards, if not this process.
        options: how the model was loaded.
        doc_prompt: text in front of each document; None is the model's own.
        request: the index, which is refused before anything is encoded if it cannot be built over the vectors.

    Returns:
        What has changed, of a directory that is updated, by the names of the JSON; else nothing.
    """
    if texts.given_vectors is not None:
        _store_given(texts, texts.given_vectors, encoder, doc_prompt)
    elif encoder is not None:
        return _encode_texts(texts, encoder, pool, options, doc_prompt, request)
    return {}


def _open_given(files: Sequence[str], text: TextOptions) -> VectorFile | None:
    """Return the vectors that the input holds already, or None if it is text."""
    from sentcli.io.folder import local_place
    from sentcli.search.vector_file import VectorFile, vectors_in

    if len(files) != 1 or files[0] == "-":
        if text.vector_field is not None:
            raise InputError("--vector-field goes with a single table")
        with_vectors = [name for name in files if name != "-" and vectors_in(local_place(name)) is not None]
        if with_vectors:
            console.note(f"vectors are taken of a single table alone: the texts of {with_vectors[0]} are encoded again")
        return None
    place = local_place(files[0])
    found = vectors_in(place, text.vector_field)
    if found is None:
        return None
    return VectorFile.open(place, options=text.reading(), column=found.column)


def _store_given(texts: TextInput, given: VectorFile, encoder: SentenceEncoder | None, doc_prompt: str | None) -> None:
    """Write vectors that the input holds into a directory, with the model that made them if it is known.

    Args:
        texts: what `read_texts` returned.
        given: the vectors.
        encoder: the model that the user names, which has to make the same vectors.
        doc_prompt: text in front of each document; None is the model's own.

    Raises:
        InputError: if the model makes other vectors.
    """
    import numpy as np

    from sentcli import bulk
    from sentcli.encoder.vector_facts import VectorFacts
    from sentcli.io.folder import is_whole

    facts = given.origin.recorded() if given.origin.known else {}
    if encoder is not None:
        prompt = given.document_prompt(encoder, doc_prompt)
        given.check_made_by(encoder, prompt)
        facts = facts or VectorFacts.of(encoder, prompt).recorded()
    if not facts:
        console.note(f"{given.origin.name} does not say which model made its vectors: -m at each search has to be it")
    if len(given.rows) != texts.inputs.survey.rows:
        raise InputError(f"{given.origin.name} has {len(given.rows):,} vectors, {texts.inputs.survey.rows:,} texts")
    blocks = given.blocks
    target = str(texts.folder)
    with console.resumable(target, how=GOES_ON, is_whole=partial(is_whole, target)):
        summary = bulk.store_files(
            lambda first, end: blocks.take(np.arange(first, end)),
            blocks.dimension,
            texts.inputs,
            target,
            texts.settings,
            facts,
        )
    console.note(f"{summary.counts.rows} vectors of {given.origin.name} -> {texts.folder}, which has {summary.rows}")


def read_texts(
    files: Sequence[str],
    folder: Path,
    text: TextOptions,
    cut: PassageRows | None = None,
    there: Passages | None = None,
    *,
    overwrite: bool,
    update: bool = False,
) -> TextInput:
    """Read and check files of text as `encode` does; an interrupted directory is resumed.

    Args:
        files: of text.
        folder: the directory of vectors that is written.
        text: how the files are read.
        cut: cuts documents into passages, which are the rows then.
        there: how those of the directory were cut.
        overwrite: make the vectors in the directory's staging folder, if it exists.
        update: keep the vectors of the directory, which is replaced as with `overwrite`.

    Raises:
        InputError: for a broken row, an output that cannot be written, or an update of vectors that are given.
    """
    from sentcli import bulk
    from sentcli.io.digests import file_digest
    from sentcli.io.vector_columns import EMBEDDING

    given = None
    if cut is None:
        given = _open_given(files, text)
    if update and given is not None:
        raise InputError(f"{files[0]} holds vectors, which are taken as they are: --overwrite takes all of them anew")
    overwrite = overwrite or update
    output, resume = str(folder), not text.append
    bulk.check_target(output, overwrite=overwrite, resume=resume, append=text.append)
    manifest = None if overwrite else bulk.manifest_of(output)
    shard_rows = bulk.EncodeSettings.shard_rows
    if update or manifest:
        shard_rows = bulk.shard_rows_of(output)
    types = manifest.types if manifest else {}
    names = files if given is None else given.text_files()
    left_out = () if given is None or given.column is None else (given.column, EMBEDDING)
    options = text.reading(types, cut)
    first_number = 0
    if manifest and text.append:
        first_number = manifest.records
    inputs = bulk.read_inputs(
        names, options, output=output, without=left_out, first_number=first_number, delimiter=text.delimiter
    )
    bulk.say_types(inputs.survey, text.column_types)
    if given is not None:
        inputs = replace(inputs, vectors=given.column or file_digest(given.place.path))
    settings = bulk.EncodeSettings(
        shard_rows=shard_rows,
        overwrite=overwrite,
        stays_beside=True,
        resume=resume,
        append=text.append,
        passages=bulk.facts_of(cut, there if text.append else None),
    )
    return TextInput(folder, inputs, settings, given, update)


def _encode_texts(
    texts: TextInput,
    encoder: SentenceEncoder,
    pool: Pool | None,
    options: LoadOptions,
    doc_prompt: str | None,
    request: IndexRequest | None,
) -> dict[str, int]:
    """Encode texts into a directory, except those whose vectors are in the cache, as after ``retrieve`` on the file.

    Args:
        texts: what `read_texts` returned.
        encoder: the model.
        pool: workers on a cluster that make the shards, if not this process.
        options: how the model was loaded.
        doc_prompt: text in front of each document; None is the model's own.
        request: the index, which is refused before anything is encoded if it cannot be built over the vectors.
    """
    from sentcli import bulk
    from sentcli.encoder import warn_truncated
    from sentcli.io.folder import is_whole
    from sentcli.search import ann
    from sentcli.search.index import check_recipe
    from sentcli.stores.cached_encoder import CachedEncoder

    folder, inputs, settings, *_ = texts
    rows, dimension = inputs.survey.rows, encoder.dimension
    if request is not None:
        indexed = rows
        if settings.append:  # the directory has rows already
            indexed = max(rows, ann.LEAST_ROWS_PER_CLUSTER * 256)
        recipe = ann.recipe(request.kind, indexed, dimension)
        check_recipe(recipe, dimension, request.similarity or encoder.spec.similarity, request.settings)
    prompt = encoder.spec.prompt_of_documents(doc_prompt)
    stored = None
    if texts.update:
        stored = bulk.open_stored_texts(str(folder), encoder, prompt, settings.on_long)
    settings = replace(
        settings,
        prompt=prompt,
        pool=pool,
        stored=stored,
        encode=CachedEncoder.of(encoder, options).encode_distinct if pool is None else None,
    )
    target = str(folder)
    resumable = console.resumable(target, how=GOES_ON, is_whole=partial(is_whole, target))
    with resumable, console.encoding("encoding", rows) as bar:
        summary = bulk.encode_files(encoder, inputs, target, settings, progress=bar)
    warn_truncated(encoder.spec.max_length, summary.counts.truncated, summary.counts.tokens_lost, what="rows")
    if summary.changes is None:
        console.note(f"{summary.counts.rows} rows encoded -> {folder}, which has {summary.rows}")
        return {}
    console.note(f"{folder}: {summary.changes}")
    return summary.changes.to_dict()
