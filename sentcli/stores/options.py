"""The options of files in and vectors out, declared once for flags, keywords and the functions that encode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge

from sentcli.bounds import Delimiter, Flag, Format, IdField, Nulls, Overwrite, TextField, Types
from sentcli.io.blocks import ShardShare
from sentcli.io.readers import CutBatch, ReadOptions

if TYPE_CHECKING:
    from sentcli.encoder.vector_facts import Passages


@dataclass(frozen=True)
class FieldOptions:
    """Which columns of files are read, and how."""

    text_field: TextField = "text"
    id_field: IdField = None
    types: Annotated[Types, Flag(metavar="COLUMN=TYPE,...")] = None
    null: Annotated[Nulls, Flag(metavar="TEXT")] = None
    delimiter: Annotated[Delimiter, Flag(metavar="SIGN")] = None

    @property
    def column_types(self) -> dict[str, str]:
        """The types of columns that are given.

        Raises:
            InputError: for other words.
        """
        if not self.types:
            return {}
        from sentcli.io.column_types import parse_types

        return parse_types(self.types)

    def reading(
        self, known_types: Mapping[str, str] = MappingProxyType({}), cut: CutBatch | None = None
    ) -> ReadOptions:
        """Return how the files are read.

        Args:
            known_types: the types of columns that the output has.
            cut: cuts documents into passages, which are the rows then.
        """
        return ReadOptions(
            self.text_field,
            self.id_field,
            nulls=tuple(self.null or []),
            types={**known_types, **self.column_types},
            cut=cut,
        )


@dataclass(frozen=True)
class InputOptions(FieldOptions):
    """How input files are read.

    Attributes:
        input_format: Read every input as this, whatever its suffix.
        on_null: What to do with a row that has no text.
        on_long: A text longer than the model reads: cut it, stop, or encode it in pieces and take their mean.
    """

    input_format: Format | None = None
    on_null: Literal["error", "empty", "skip"] = "error"
    on_long: Literal["truncate", "error", "chunk-mean"] = "truncate"

    def reading(
        self, known_types: Mapping[str, str] = MappingProxyType({}), cut: CutBatch | None = None
    ) -> ReadOptions:
        """Return how the files are read; see `FieldOptions.reading`."""
        reading = super().reading(known_types, cut)
        return replace(reading, on_null=self.on_null, null_hint="; --on-null empty or skip accepts such rows")


@dataclass(frozen=True)
class PassageOptions:
    """How documents are cut into passages that the model reads whole.

    Attributes:
        passages: Cut each document at headings, and longer parts at paragraphs, else sentences; a folder's Markdown and
            text files are one document each. Every passage is a row.
        passage_tokens: Tokens of a passage at most, special ones not counted; default: as many as the model reads.
        overlap: Tokens at the end of a passage that the next one under its heading begins with.
        context: What is encoded in front of each passage: the title of its document, that with the headings above the
            passage, or nothing.
    """

    passages: bool = False
    passage_tokens: Annotated[int | None, Ge(8), Flag(needs="passages")] = None
    overlap: Annotated[int, Ge(0), Flag(needs="passages")] = 0
    context: Annotated[Literal["title", "headings", "none"], Flag(needs="passages")] = "none"

    def protocol(self, facts: Passages | None) -> dict[str, Any]:
        """Return what a protocol says of the passages, given what is known of them; nothing if there are none."""
        if facts is None:
            return {}
        return {"passages": asdict(facts)}


@dataclass(frozen=True)
class VectorOptions:
    """How vectors are made smaller before they are written.

    Attributes:
        output_dtype: Elements of the vectors; binary packs eight signs into a byte.
        truncate_dim: Keep the first dimensions only.
    """

    output_dtype: Literal["float32", "float16", "int8", "binary"] = "float32"
    truncate_dim: Annotated[int | None, Ge(1)] = None


@dataclass(frozen=True)
class WriteSettings:
    """How an output is written, after the options and what is there were looked at."""

    shard_rows: int = 100_000
    overwrite: bool = False
    """Whether a directory that is there is replaced, once the new one is complete."""
    stays_beside: bool = False
    """Whether the new directory is left in `Folder.staging` with `overwrite`, for an index to be built in it."""
    resume: bool = False
    append: bool = False
    part: ShardShare = field(default_factory=ShardShare)


@dataclass(frozen=True)
class WriteOptions:
    """How vectors are written.

    Attributes:
        shard_rows: Rows in a shard of a directory output: 100,000, or as many as the directory that is continued has.
        shard: Make only this share of the shards; N machines make one directory.
        resume: Continue a directory output where it stopped.
        append: Add the rows of INPUT to a finished directory.
    """

    shard_rows: Annotated[int | None, Ge(1)] = None
    shard: Annotated[str | None, Flag(metavar="I/N")] = None
    resume: bool = False
    append: bool = False
    overwrite: Overwrite = False

    def settings(self, *, update: bool, stays_beside: bool) -> WriteSettings:
        """Return how an output is written, whose shards have not been looked at yet.

        Args:
            update: whether the output is brought up to date, and replaced for that.
            stays_beside: see `WriteSettings`.

        Raises:
            InputError: for a share of the machines that is none.
        """
        return WriteSettings(
            overwrite=self.overwrite or update,
            stays_beside=stays_beside,
            resume=self.resume,
            append=self.append,
            part=ShardShare() if self.shard is None else ShardShare.parse(self.shard),
        )


@dataclass(frozen=True)
class UpdateOptions:
    """How a directory is brought up to date.

    Attributes:
        update: Make a directory what encoding INPUT anew would make of it; texts that it has keep their vectors.
        dry_run: With --update: say what has changed and how long it takes, and write nothing.
    """

    update: Annotated[bool, Flag(excludes="overwrite append shard")] = False
    dry_run: Annotated[bool, Flag(needs="update")] = False


@dataclass(frozen=True)
class TextOptions(FieldOptions):
    """How files of text are read, which are encoded before they are indexed.

    Attributes:
        vector_field: Column of a table INPUT that holds vectors, which are taken as they are; default: embedding, else
            the first of a fixed size.
        append: Add the rows of INPUT to the directory and its index.
    """

    text_field: Annotated[TextField, Flag(needs="output to check")] = "text"
    id_field: Annotated[IdField, Flag(needs="output to check")] = None
    types: Annotated[Types, Flag(metavar="COLUMN=TYPE,...", needs="output to")] = None
    null: Annotated[Nulls, Flag(metavar="TEXT", needs="output to")] = None
    delimiter: Annotated[Delimiter, Flag(metavar="SIGN", needs="output to")] = None
    vector_field: Annotated[str | None, Flag(metavar="NAME", needs="output to check")] = None
    append: Annotated[bool, Flag(needs="output")] = False
