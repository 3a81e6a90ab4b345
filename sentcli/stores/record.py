"""What a collection of a database says about itself, and which rows have changed, whatever the database is."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from operator import add
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le
from pydantic import AfterValidator

from sentcli.arrays import AnyArray
from sentcli.encoder.vector_facts import VectorFacts
from sentcli.errors import DataError, InputError, nearest
from sentcli.io.blocks import Block
from sentcli.io.column_types import TEXT, types
from sentcli.io.forms import adapter_of, decode
from sentcli.io.writers import arrow_column
from sentcli.model.spec import Similarity
from sentcli.search.ann import FLAT
from sentcli.search.bm25 import LANGUAGE

ID = "id"
TEXTS = "text"
VECTORS = "embedding"
WORDS = "sentcli_words"
HASH = "sentcli_hash"
ORDER = "sentcli_order"
"""The fields that collections have besides those of columns; `WORDS` is that of Milvus's own words in `FIRST_FORMAT`,
which has no `ORDER` in Milvus."""
FIRST_FORMAT = 1
"""The format in which a row has one hash of its text and columns, and `WORDS` are Milvus's."""
NULL = "null"
"""The type of a column none of whose rows has a value, which fits every other one."""
TEXT_DIGITS = 32
"""The digits of a row's hash that stand for what was encoded of it."""


def without_place(title: str) -> DataError:
    """Return the error of a row without its place among the others, which another program has written."""
    return DataError(title, f"another program wrote rows without {ORDER}; sentcli index --overwrite makes it anew")


def not_made_here(title: str) -> InputError:
    """Return the error of a collection that another program has made."""
    return InputError(f"{title} was not made by sentcli index; choose another --collection")


def no_collection(address: str, name: str, names: Sequence[str]) -> InputError:
    """Return the error of a collection that is not there, which lists those that are."""
    there = ", ".join(names) or "none"
    return InputError(f"{address} has no collection {name!r}{nearest(name, list(names))}; it has {there}")


def texts_of_rows(title: str, ids: Sequence[Any], texts: Sequence[Any]) -> list[str]:
    """Return the texts of rows of a collection.

    Raises:
        DataError: with the id of a row that has none, since another program has changed it.
    """
    for key, text in zip(ids, texts, strict=True):
        if not isinstance(text, str):
            remedy = "sentcli index --to writes all rows anew with --overwrite"
            raise DataError(title, f"the row {key!r} has no text, which another program has taken away; {remedy}")
    return list(texts)


def _check_type(kind: str) -> str:
    """Refuse an unknown type of a column."""
    if kind not in types():
        raise ValueError(f"unknown type {kind!r:.40}")
    return kind


@dataclass(frozen=True, kw_only=True)
class CollectionRecord:
    """What a collection says about itself."""

    settings: dict[str, Any]
    """How the vectors were made, as `VectorFacts.recorded`."""
    dimension: Annotated[int, Ge(1), Le(32_768)]
    similarity: Similarity
    columns: dict[str, tuple[str, Annotated[str, AfterValidator(_check_type)]]]
    """The field and the type of each column, the type by the names of ``--types``."""
    language: str = LANGUAGE
    kind: str = "flat"
    """The kind of the index, by the names of ``--type``."""
    efforts: dict[str, int] = field(default_factory=dict)
    """The search parameter that was chosen by the recall."""
    recall: dict[str, Any] | None = None
    """The result of `recall.tune`: recall and speed against exact search."""
    rows: int | None = None
    """The number of rows of Milvus after all were written; None before that, and where every version is whole."""
    format: Literal[1, 2] = 2

    @classmethod
    def read(cls, text: str, collection: str) -> CollectionRecord:
        """Read the JSON of a record.

        Raises:
            DataError: if it is damaged.
        """
        try:
            decode(text)
            form: Any = cls
            record: CollectionRecord = adapter_of(form).validate_json(text, strict=True)
            return record
        except ValueError as error:  # of pydantic, too
            raise DataError(collection, "its record is damaged; --overwrite makes the collection anew") from error

    def to_json(self) -> str:
        """Return the JSON that `read` reads."""
        return json.dumps(asdict(self), ensure_ascii=False)

    def field_of(self, column: str) -> tuple[str, str]:
        """Return the field and the type of a column, which may be id or text."""
        return self.columns.get(column, (column, TEXT))

    def schema(self) -> dict[str, Any]:
        """Return the Arrow types of the columns by name."""
        text = types()[TEXT][0]
        schema = {ID: text, TEXTS: text}
        for name, (_, kind) in self.columns.items():
            schema[name] = types()[kind][0]
        return schema

    def differences(self, other: CollectionRecord) -> list[str]:
        """Return what keeps rows of another record out of a collection of this one."""
        there = VectorFacts.read("the record", self.settings)
        here = VectorFacts.read("", other.settings)
        differences = there.differences(here)
        if there.by_pieces != here.by_pieces:
            differences.append(f"on_long {there.on_long!r} there, {here.on_long!r} here")
        in_int8 = there.in_int8
        other_in_int8 = here.in_int8
        if None not in (in_int8, other_in_int8) and in_int8 != other_in_int8:
            differences.append(f"model in int8 {in_int8} there, {other_in_int8} here (--precision)")
        for name in ("dimension", "similarity", "language", "kind"):
            fact = getattr(self, name)
            other_fact = getattr(other, name)
            if fact != other_fact:
                differences.append(f"{name} {fact!r} there, {other_fact!r} here")
        for name, (_, kind) in self.columns.items():
            _, other_kind = other.columns.get(name, ("", NULL))
            if other_kind not in (NULL, kind) and (kind, other_kind) != ("float", "int"):
                differences.append(f"column {name} {kind!r} there, {other_kind!r} here")
        return differences

    def takes(self, other: CollectionRecord, title: str) -> CollectionRecord:
        """Return this record with the columns that rows of another one have besides.

        Rows for exact search, which is no index and what is taken if none is named, come into the index that is there,
        as those of a directory do.

        Raises:
            InputError: which names the differences between the collection `title`, which has this record, and the rows.
        """
        if other.kind == FLAT:
            other = replace(other, kind=self.kind)
        if changed := self.differences(other):
            types = []
            for name, (_, kind) in self.columns.items():
                if name in other.columns and other.columns[name][1] not in (kind, NULL):
                    types.append(f"{name}={kind}")
            advice = "--overwrite makes it anew"
            if types:
                advice = f"--types {','.join(types)} reads these columns as they are there, and {advice}"
            raise InputError(f"{title} holds other rows: {'; '.join(changed)}. {advice}")
        kinds = {name: kind for name, (_, kind) in self.columns.items()}
        for name, (_, kind) in other.columns.items():
            if kind != NULL:
                kinds.setdefault(name, kind)
        return replace(self, columns=fields_of(kinds))

    def is_as(self, other: CollectionRecord) -> bool:
        """Tell whether rows of another record fit as they are, without any other column, form or cut."""
        if self.differences(other) or self.settings.get("passages") != other.settings.get("passages"):
            return False
        return (self.columns, self.format) == (other.columns, other.format)

    def of_collection(self) -> CollectionRecord:
        """Return the record of a new collection, in which a column without any value is one of texts."""
        columns = {}
        for name, (field_name, kind) in self.columns.items():
            columns[name] = (field_name, TEXT if kind == NULL else kind)
        return replace(self, columns=columns)

    @staticmethod
    def measured(recall: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a record that the result of `recall.tune` decides."""
        return {"recall": dict(recall), "efforts": {recall["parameter"]: recall["chosen"]["effort"]}}


def fields_of(columns: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return a field for each column: its name, or where databases have no such names, one like it.

    Args:
        columns: the type of each column, by the names of ``--types``.
    """
    fields: dict[str, tuple[str, str]] = {}
    taken = {ID, TEXTS, VECTORS, WORDS, HASH, ORDER}
    for name, kind in columns.items():
        plain = re.sub(r"\W", "_", name, flags=re.ASCII)
        if not re.match(r"[A-Za-z_]", plain):
            plain = f"column_{plain}"
        while plain.lower() in taken:
            plain += "_"
        lower = plain.lower()
        taken.add(lower)
        fields[name] = (plain, kind)
    return fields


def fitted_rows(block: Block, record: CollectionRecord) -> Block:
    """Return rows with the columns of a collection and values of its types; missing columns have no values."""
    values: dict[str, list[Any]] = {}
    for name, (_, kind) in record.columns.items():
        given = block.columns.get(name, [None] * len(block))
        if record.format != FIRST_FORMAT:  # whose hashes are of values as they were read
            given = arrow_column(given, types()[kind].arrow).to_pylist()
        values[name] = given
    return replace(block, columns=values)


def content_hashes(block: Block, record: CollectionRecord, given: AnyArray | None = None) -> list[str]:
    """Return a digest of each row, which is another one when the row has changed, wherever it and its columns stand.

    Args:
        block: rows that are `fitted_rows`.
        record: of the collection.
        given: their vectors ``[rows, dim]`` where they are a part of the rows, because no text says what they are;
            None where the model of the record makes them.
    """
    if record.format == FIRST_FORMAT:
        contents: list[list[Any]] = list(map(list, zip(block.texts, *block.columns.values(), strict=True)))
    else:
        contents = []
        columns = sorted(block.columns.items())
        for row, text in enumerate(block.texts):
            named = {name: values[row] for name, values in columns if values[row] is not None}
            contents.append([text, named])
    if given is not None:
        for content, vector in zip(contents, given, strict=True):
            content.append(vector.tobytes().hex())
    hashes = list(map(_digest, contents))
    if record.format == FIRST_FORMAT:
        return hashes
    of_texts = map(_digest, block.encoded_texts)
    return list(map(add, of_texts, hashes))


def _digest(content: Any) -> str:
    """Return a digest of `TEXT_DIGITS` digits."""
    as_json = json.dumps(content, ensure_ascii=False, default=str)
    return hashlib.blake2b(as_json.encode("utf-8", "surrogatepass"), digest_size=TEXT_DIGITS // 2).hexdigest()
