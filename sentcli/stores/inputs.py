"""The rows that are written: of input files, which are read once and checked before any work starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.errors import InputError, nearest
from sentcli.io.blocks import Block, Survey, blocks, survey
from sentcli.io.readers import ReadOptions, rows
from sentcli.io.sources import Source, say_once
from sentcli.io.text_inputs import text_sources
from sentcli.io.writers import STDOUT, output_format

if TYPE_CHECKING:
    from sentcli.io.dataset import Manifest
    from sentcli.model.passages import PassageRows
    from sentcli.stores.options import FieldOptions


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

    def ids(self) -> Iterator[Sequence[str]]:
        """Yield the ids of the rows in order, some at a time."""
        for block in self.blocks(columns=[]):
            yield block.ids

    def columns(self, chosen: Sequence[str] | None) -> list[str]:
        """Return the chosen columns besides id and text; all if None are."""
        if chosen is None:
            return list(self.survey.column_types)
        return list(chosen)


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


def read_rows(
    names: Sequence[str],
    reading: FieldOptions,
    *,
    output: str = "vectors",
    input_format: str | None = None,
    cut: PassageRows | None = None,
    continued: Manifest | None = None,
    appended: bool = False,
    without: tuple[str, ...] = (),
) -> Inputs:
    """Open and survey input files as the options say, and say which types their columns have.

    Args:
        names: of the files.
        reading: how they are read.
        output: as for `read_inputs`.
        input_format: as for `read_inputs`.
        cut: cuts documents into passages, which are the rows then.
        continued: the manifest of a directory that goes on, whose columns keep their types.
        appended: whether the rows are appended to it.
        without: as for `read_inputs`.

    Raises:
        InputError: for a row that is refused, or if ``--types`` names a column that the output does not have.
    """
    known_types: Mapping[str, str] = {}
    first_number = 0
    if continued is not None:
        known_types = continued.types
        first_number = continued.records if appended else 0
    inputs = read_inputs(
        names,
        reading.reading(known_types, cut),
        input_format,
        output=output,
        without=without,
        first_number=first_number,
        delimiter=reading.delimiter,
    )
    console.detail(f"{inputs.survey.rows} rows in {len(inputs.sources)} inputs")
    say_types(inputs.survey, reading.column_types)
    return inputs


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
