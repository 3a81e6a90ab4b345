"""The input files and the output of `encode`, checked before any work starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.bulk.engine import EncodeSettings
from sentcli.bulk.options import InputOptions, WriteOptions
from sentcli.errors import InputError, nearest
from sentcli.io.atomic import check_output
from sentcli.io.blocks import MANIFEST, Block, ShardShare, Survey, blocks, survey
from sentcli.io.places import is_remote
from sentcli.io.readers import ReadOptions, rows
from sentcli.io.sources import Source, say_once
from sentcli.io.text_inputs import text_sources
from sentcli.io.writers import DIRECTORY, STDOUT, output_format

if TYPE_CHECKING:
    from sentcli.io.dataset import Manifest
    from sentcli.model.passages import PassageRows


@dataclass(frozen=True)
class Inputs:
    """Input files that have been read once and checked."""

    sources: list[Source]
    options: ReadOptions
    survey: Survey
    vectors: str | None = None
    """What identifies the vectors that are stored with the rows, instead of being made: a column, or the digest of a
    file."""

    def identity(self) -> list[dict[str, Any]]:
        """Return the facts that identify each file, and how it was cut where earlier versions cut it otherwise."""
        files = []
        for source in self.sources:
            facts = source.identity()
            if self.vectors is not None:
                facts["vectors"] = self.vectors
            cut_at = self._cut_at(source)
            if cut_at:
                facts["cut"] = f"at {cut_at}"
            files.append(facts)
        return files

    def _cut_at(self, source: Source) -> str:
        """Return at what a page is cut where earlier versions did not cut it; empty if it is cut as by them."""
        if self.options.cut is None or not source.is_markdown_page:
            return ""
        from sentcli.io.pages import page_layout

        for row in rows(source, self.options):
            if row is not None:
                return page_layout(row.text).cut_at()
        return ""

    def blocks(self, *, columns: Sequence[str] | None = None, **reading: Any) -> Iterator[Block]:
        """Yield the rows in blocks.

        Args:
            columns: the other columns; None takes all.
            reading: further arguments of `sentcli.io.blocks.blocks`.
        """
        names = self.columns(columns)
        return blocks(self.sources, self.options, columns=names, casts=self.survey.casts, **reading)

    def columns(self, chosen: Sequence[str] | None) -> list[str]:
        """Return the chosen columns besides id and text; all if None are."""
        if chosen is None:
            return list(self.survey.column_types)
        return list(chosen)


def single_model(models: list[str]) -> str:
    """Return the one model that makes vectors.

    Raises:
        InputError: if there are several.
    """
    if len(models) > 1:
        raise InputError(f"-m {' -m '.join(models)}: one model makes the vectors; --estimate takes several")
    return models[0]


def read_inputs(
    names: Sequence[str],
    options: ReadOptions,
    input_format: str | None = None,
    *,
    output: str = "vectors",
    without: tuple[str, ...] = (),
    first_number: int = 0,
    delimiter: str | None = None,
) -> Inputs:
    """Open and survey the input files.

    Args:
        names: paths, or ``-`` for standard input.
        options: fields and null handling.
        input_format: as for `open_source`.
        output: the output for the vectors; if it keeps the other columns, none may be named like one of its own.
        without: columns that are not read, such as those of vectors.
        first_number: the number of the first row, for the ids of documents that are numbers.
        delimiter: as for `text_sources`.

    Raises:
        InputError: for a broken row, a column whose name is taken, or an output that would replace an input.
    """
    found = text_sources(names, input_format, pages=options.cut is not None, delimiter=delimiter)
    sources = [_without_vectors(source, without) for source in found]
    form, target = output_format(output), Path(output).resolve()
    for source in sources:
        if target in (source.path.resolve(), source.path.resolve().parent) and form is not STDOUT:
            raise InputError(f"-o {output} would replace {source.name}, which is read; choose another -o")
    surveyed = survey(sources, options, first_number)
    if surveyed.repeated_ids:
        console.warn(f"{surveyed.repeated_ids:,} rows have the id of an earlier row: {surveyed.repeated}")
    if not form.keeps_rows:
        surveyed.column_types = {}
    if reserved := [name for name in surveyed.column_types if name in ("id", "text", "embedding")]:
        fields = f"--text-field {options.text_field}, --id-field {options.id_field or 'id'}"
        problem = f"column {reserved[0]!r} would stand twice in the output, where it is what encode writes ({fields})"
        advice = "rename it in the input or leave it out; an output .npy or .safetensors has no other columns"
        raise InputError(f"{_holding(reserved[0], sources, options)}: {problem}: {advice}")
    return Inputs(sources, options, surveyed)


def read_checked(
    names: Sequence[str],
    output: str,
    reading: InputOptions,
    writing: WriteOptions,
    cut: PassageRows | None = None,
    *,
    update: bool = False,
) -> tuple[Inputs, int]:
    """Read and check input files as the options say, and return them with the rows of a shard.

    What the columns of a directory are that is continued, the others have to be, too.

    Args:
        names: of the files.
        output: the output for the vectors.
        reading: how they are read.
        writing: how the output is written.
        cut: cuts documents into passages, which are the rows then.
        update: whether the output is brought up to date, so that its shards keep their number of rows.

    Raises:
        InputError: for a row that is refused, or if ``--types`` names a column that the output does not have.
    """
    manifest = None
    if (writing.resume or writing.append) and not writing.overwrite:
        manifest = manifest_of(output)
    types: dict[str, str] = {}
    if reading.types:
        from sentcli.io.column_types import parse_types

        types = parse_types(reading.types)
    options = ReadOptions(
        reading.text_field,
        reading.id_field,
        reading.on_null,
        "; --on-null empty or skip accepts such rows",
        nulls=tuple(reading.null or []),
        types=types if manifest is None else {**manifest.types, **types},
        cut=cut,
    )
    first_number = 0
    if manifest is not None and writing.append:
        first_number = manifest.records
    inputs = read_inputs(
        names,
        options,
        reading.input_format,
        output=output,
        first_number=first_number,
        delimiter=reading.delimiter,
    )
    console.detail(f"{inputs.survey.rows} rows in {len(inputs.sources)} inputs")
    say_types(inputs.survey, types)
    default = EncodeSettings.shard_rows
    if update or manifest is not None:
        default = shard_rows_of(output)
    return inputs, writing.shard_rows or default


def shard_rows_of(output: str) -> int:
    """Return the rows of a shard of a directory, or as many as a new one has."""
    manifest = manifest_of(output)
    return EncodeSettings.shard_rows if manifest is None else manifest.shard_rows


def say_types(survey: Survey, given: Mapping[str, str]) -> None:
    """Say which types the columns have, and which stay text although many of their values are something else.

    Raises:
        InputError: if types were given for columns that are not there.
    """
    columns = survey.column_types
    for name in given:
        if name not in columns:
            has = ", ".join(columns) or "none besides id and text"
            hint = nearest(name, list(columns))
            raise InputError(f"--types {name}: there is no such column{hint}; there is {has}")
    types = [f"{name} {kind}" for name, kind in survey.column_type_names.items() if name in survey.column_types]
    if types:
        console.note(f"types of the columns: {', '.join(types)} (--types chooses others)")
    for name, odd in survey.mixed.items():
        if name in survey.column_types:
            problem = f"half of its values or more are of another type, but not {odd}"
            console.warn(f"column {name!r} stays text: {problem} (--null TEXT names missing values)")


def _without_vectors(source: Source, without: tuple[str, ...]) -> Source:
    """Return a source without columns that are not read, among them the vectors of a table that `encode` wrote."""
    if source.format != "parquet" or source.packed:
        return replace(source, without=without)
    from sentcli.io.vector_columns import EMBEDDING, RECORD, metadata_of, schema_of

    if RECORD in metadata_of(source) and EMBEDDING in dict(schema_of(source)):
        without = (*without, EMBEDDING)
        say_once(f"{source.name} was written by encode: its texts are taken, and its vectors are left out")
    return replace(source, without=without)


def _holding(column: str, sources: Sequence[Source], options: ReadOptions) -> str:
    """Return the name of the first input with a column besides those of id and text."""
    for source in sources:
        for row in rows(source, options):
            if row and column in row.extras:
                return source.name
    return sources[0].name


def check_target(output: str, *, overwrite: bool, resume: bool, append: bool, part: ShardShare | None = None) -> None:
    """Refuse an output that must not be written, before anything is read.

    Raises:
        InputError: if the output exists and no flag allows that, it cannot be created, or the flags do not fit it.
    """
    form = output_format(output)
    part = part or ShardShare()
    if form is not DIRECTORY and (append or part.of > 1):
        flag = "--append" if append else "--shard"
        raise InputError(f"{flag} makes shards, so it needs a directory output (-o without a suffix)")
    if append and part.of > 1:
        raise InputError("--append and --shard do not go together: append on one machine")
    if overwrite and append:
        raise InputError("--overwrite starts again, --append goes on: give one of them")
    if form is STDOUT:
        return
    if form is DIRECTORY:
        _check_directory(output, part, overwrite=overwrite, resume=resume, append=append)
        return
    if is_remote(output):
        raise InputError(f"{output}: a store takes a directory of shards (-o without a suffix), not a single file")
    path = Path(output)
    if resume and path.exists() and not overwrite:
        raise InputError(f"{path} exists and is complete; only a directory output (-o without a suffix) is resumed")
    else:
        check_output(path, overwrite=overwrite)


def _check_directory(path: str, part: ShardShare, *, overwrite: bool, resume: bool, append: bool) -> None:
    from sentcli.io.dataset import PART, PARTIAL, holds_manifest
    from sentcli.io.folder import open_folder

    place = open_folder(path)
    names = [name for name in place.names() if not name.endswith(".lock")]
    if part.of > 1 and MANIFEST in names:
        raise InputError(f"{path} holds a dataset that one machine made; choose another -o for --shard")
    parts = [PART.fullmatch(name) for name in names]
    others = {int(match[2]) for match in parts if match is not None} - {part.of}
    if others and not append and not (overwrite and part.of == 1):
        count = others.pop()
        raise InputError(f"{path} holds parts of {count} machines: go on with --shard I/{count}, or choose another -o")
    begun = part.manifest in names if part.of > 1 else bool(names)  # other machines' parts may be there
    if place.exists and (begun or not place.path.is_dir()) and not (overwrite or resume or append):
        raise InputError(f"{path} exists; --resume continues it, --overwrite replaces it")
    place.check_writable(overwrite=overwrite)
    is_dataset = holds_manifest(names) or any(map(PARTIAL.fullmatch, names))
    if names and not is_dataset:
        raise InputError(f"{path} holds files, but no {MANIFEST} of sentcli encode; choose another -o")


def manifest_of(output: str) -> Manifest | None:
    """Return the manifest of a directory that is continued, or of one of its parts; None if there is none."""
    if output_format(output) is not DIRECTORY:
        return None
    from sentcli.io.dataset import is_manifest, load_manifest
    from sentcli.io.folder import open_folder

    folder = open_folder(output)
    manifests = [name for name in sorted(folder.names()) if is_manifest(name)]
    return load_manifest(folder, manifests[0]) if manifests else None
