"""Rows on their way into a file or a directory: read and checked, compared with what is there, and written.

`encode` and `index -o` fill an output in the same way; a table that holds vectors brings its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.errors import InputError
from sentcli.io.writers import DIRECTORY, output_format
from sentcli.stores.inputs import Inputs, read_rows
from sentcli.stores.options import FieldOptions, WriteOptions, WriteSettings
from sentcli.stores.passages import Cutting, facts_of
from sentcli.stores.target import check_target, manifest_of

if TYPE_CHECKING:
    from sentcli.cluster import ClusterOptions
    from sentcli.cluster.pool import Pool
    from sentcli.encoder.sentence_encoder import SentenceEncoder
    from sentcli.encoder.vector_facts import Passages
    from sentcli.model.options import LoadOptions
    from sentcli.search.vector_file import VectorFile
    from sentcli.stores.directory.texts import StoredTexts
    from sentcli.stores.row_vectors import EncodedVectors, GivenVectors, RowVectors
    from sentcli.stores.writing import EncodeSummary


@dataclass(frozen=True)
class Filling:
    """Rows that go into an output."""

    output: str
    """A path, or ``-`` for standard output."""
    inputs: Inputs
    writing: WriteSettings
    passages: Passages | None
    """How documents were cut into the rows; None if each row is one."""
    given: VectorFile | None
    """The vectors that the rows bring; None if their texts are encoded."""
    update: bool
    """Whether texts that the directory has keep their vectors."""

    @classmethod
    def read(
        cls,
        names: Sequence[str],
        output: str,
        reading: FieldOptions,
        writing: WriteOptions,
        cutting: Cutting,
        *,
        update: bool = False,
        input_format: str | None = None,
        stays_beside: bool = False,
        given: VectorFile | None = None,
    ) -> Filling:
        """Read and check files, after checking that the output may be written.

        Args:
            names: of the files.
            output: a path, or ``-`` for standard output.
            reading: which columns are read, and how.
            writing: how the output is written.
            cutting: how documents are cut into passages.
            update: keep the vectors of the directory, which is replaced as with ``overwrite``.
            input_format: as for `open_source`.
            stays_beside: see `WriteSettings`.
            given: the vectors that the rows bring.

        Raises:
            InputError: for a broken row, an output that cannot be written, or an update of vectors that are given.
        """
        settings = writing.settings(update=update, stays_beside=stays_beside)
        check_target(output, settings)
        if update and output_format(output) is not DIRECTORY:
            raise InputError("--update brings a directory up to date (-o without a suffix); a single file is made anew")
        if update and given is not None:
            raise InputError(
                f"{names[0]} holds vectors, which are taken as they are: --overwrite takes all of them anew"
            )
        cut, there = cutting.into(output, update=update, overwrite=writing.overwrite)
        manifest = None
        if update or ((settings.resume or settings.append) and not writing.overwrite):
            manifest = manifest_of(output)
        shard_rows = writing.shard_rows
        if shard_rows is None:
            shard_rows = WriteSettings.shard_rows if manifest is None else manifest.shard_rows
        files: Sequence[str] = names
        without: tuple[str, ...] = ()
        if given is not None:
            files, without = given.text_files(), given.vector_columns
        inputs = read_rows(
            files,
            reading,
            output=output,
            input_format=input_format,
            cut=cut,
            continued=None if update else manifest,
            appended=settings.append,
            without=without,
        )
        if given is not None:
            inputs = replace(inputs, vectors=given.identity)
        passages = facts_of(cut, there if settings.append else None)
        return cls(output, inputs, replace(settings, shard_rows=shard_rows), passages, given, update)

    @property
    def is_directory(self) -> bool:
        """Whether the output is a directory of shards, which can be resumed."""
        return output_format(self.output) is DIRECTORY

    @contextmanager
    def opened(
        self, model: str, load: LoadOptions, cluster: ClusterOptions
    ) -> Iterator[tuple[SentenceEncoder, Pool | None]]:
        """Load a model that encodes the rows, in this process or in workers on Ray.

        Args:
            model: its name.
            load: how it is loaded.
            cluster: whether there is a cluster, and what its workers reserve.

        Yields:
            The encoder, and the workers that make shards with it if that is not this process.
        """
        from sentcli.encoder import announce, load_encoder

        if cluster.ray is None:
            yield load_encoder(model, load), None
            return
        from sentcli.cluster.pool import open_cluster
        from sentcli.stores.on_ray import encoder_of, encoder_pool

        shards = -(-self.inputs.survey.rows // self.writing.shard_rows)
        with open_cluster(cluster, most=shards, on_cpu=load.device == "cpu") as (nodes, workers):
            if not workers.gpus and any(node.gpus for node in nodes):
                load = replace(load, device="cpu")  # a GPU that is not reserved belongs to others
            with encoder_pool(nodes, workers, model, load) as pool:
                encoder = encoder_of(pool)
                announce(encoder)
                yield encoder, pool

    def _is_whole(self) -> bool:
        """Whether the directory has all of its rows; asked only after an interruption."""
        from sentcli.io.folder import is_whole

        return is_whole(self.output)

    def so_far(self) -> dict[str, int]:
        """Return how many rows an unfinished directory holds and is to hold; nothing if it was not begun."""
        if not self.is_directory:
            return {}
        from sentcli.io.folder import rows_so_far

        return rows_so_far(self.output, overwrite=self.writing.overwrite)

    def given_vectors(self, encoder: SentenceEncoder | None, doc_prompt: str | None) -> GivenVectors:
        """Return the vectors that the rows bring, with the model that made them if it is known.

        Args:
            encoder: the model that the user names, which has to make the same vectors.
            doc_prompt: text in front of each document; None is the model's own.

        Raises:
            InputError: if the model makes other vectors.
        """
        from sentcli.stores.row_vectors import GivenVectors

        given = self.given
        assert given is not None
        name, blocks = given.origin.name, given.blocks
        facts = given.facts(encoder, doc_prompt)
        if not facts.known:
            console.note(f"{name} does not say which model made its vectors: -m at each search has to be it")
        if len(blocks) != self.inputs.survey.rows:
            raise InputError(f"{name} has {len(blocks):,} vectors, {self.inputs.survey.rows:,} texts")
        recorded = facts.recorded() if facts.known else {}
        return GivenVectors(blocks.take, blocks.dimension, recorded, name)

    def write(self, vectors: RowVectors) -> EncodeSummary:
        """Write the rows with their vectors, behind a progress bar, and say what was written.

        Args:
            vectors: what gives the rows their vectors.
        """
        from sentcli.stores.writing import write_rows

        stored = None
        if self.update:
            stored = self._stored(vectors)
        how = "with --resume continues it"
        if self.writing.resume or self.writing.append:
            how = "goes on after the shards that are whole"
        resumable = console.resumable(
            self.output,
            can=self.is_directory,
            how=how,
            is_whole=self._is_whole,
        )
        with resumable, console.encoding("encoding", self.inputs.survey.rows) as bar:
            summary = write_rows(self.inputs, vectors, self.output, self.writing, stored, bar)
        summary.say(vectors)
        return summary

    def compare(self, vectors: EncodedVectors) -> dict[str, Any]:
        """Say what an update would change and how long it would take, and return it as JSON; nothing is written.

        Raises:
            InputError: if there is no directory, it was made otherwise, or the rows cannot be compared.
        """
        from sentcli.stores.directory.changes import comparison

        stored = self._stored(vectors)
        if stored is None:
            rows = self.inputs.survey.rows
            raise InputError(f"{self.output} is not there yet: --update would encode all {rows:,} rows")
        changes = comparison(self.output, self.inputs, vectors, stored).total_of(self.inputs)
        return changes.announced(self.output, vectors)

    def _stored(self, vectors: RowVectors) -> StoredTexts | None:
        """Return the texts of the directory as it is; None where there is none yet."""
        from sentcli.stores.directory.texts import open_stored_texts
        from sentcli.stores.row_vectors import EncodedVectors

        assert isinstance(vectors, EncodedVectors)  # others are refused when the rows are read
        settings = vectors.settings
        return open_stored_texts(self.output, vectors.encoder, settings.prompt, settings.on_long)


def open_given(names: Sequence[str], reading: FieldOptions, vector_field: str | None) -> VectorFile | None:
    """Return the vectors that an input holds already, or None if it is text.

    Args:
        names: of the inputs.
        reading: which columns are read, and how.
        vector_field: the column of the vectors that the user names.

    Raises:
        InputError: if it names one of several inputs, or there is no such column.
    """
    from sentcli.io.folder import local_place
    from sentcli.search.vector_file import VectorFile, vectors_in

    if len(names) != 1 or names[0] == "-":
        if vector_field is not None:
            raise InputError("--vector-field goes with a single table")
        with_vectors = [name for name in names if name != "-" and vectors_in(local_place(name)) is not None]
        if with_vectors:
            console.note(f"vectors are taken of a single table alone: the texts of {with_vectors[0]} are encoded again")
        return None
    place = local_place(names[0])
    found = vectors_in(place, vector_field)
    if found is None:
        return None
    return VectorFile.open(place, options=reading.reading(), column=found.column)
