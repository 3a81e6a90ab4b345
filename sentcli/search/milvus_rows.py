"""What a collection of Milvus says about itself, and how rows and conditions are written for Milvus."""

from __future__ import annotations

import datetime
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le
from pydantic import AfterValidator, TypeAdapter

from sentcli.encoder.vector_facts import VectorFacts
from sentcli.errors import InputError
from sentcli.io.column_types import TEXT, types
from sentcli.io.forms import decode
from sentcli.io.writers import text_cell
from sentcli.model.spec import Similarity
from sentcli.search.bm25 import LANGUAGE
from sentcli.search.conditions import All, Test, Tree

ID = "id"
TEXTS = "text"
VECTORS = "embedding"
WORDS = "sentcli_words"
HASH = "sentcli_hash"
"""The fields that every collection has."""
MOST_TEXT_BYTES = 65_535
"""The most bytes of a text in Milvus."""


def _check_type(kind: str) -> str:
    """Refuse an unknown type of a column."""
    if kind not in types():
        raise ValueError(f"unknown type {kind!r:.40}")
    return kind


@dataclass(frozen=True, kw_only=True)
class Record:
    """What a collection says about itself."""

    settings: dict[str, Any]
    """How the vectors were made, as `VectorFacts.recorded`."""
    dimension: Annotated[int, Ge(1), Le(32_768)]
    similarity: Similarity
    columns: dict[str, tuple[str, Annotated[str, AfterValidator(_check_type)]]]
    """The field and the type of each column, the type by the names of ``--types``."""
    language: str = LANGUAGE
    kind: str = "flat"
    """One of `milvus_schema.INDEX_TYPES`."""
    efforts: dict[str, int] = field(default_factory=dict)
    """The search parameter that was chosen by the recall."""
    recall: dict[str, Any] | None = None
    """The result of `recall.tune`: recall and speed against exact search."""
    rows: int | None = None
    """The number of rows after all were written; None before that."""
    format: Literal[1] = 1

    @classmethod
    def read(cls, text: str, collection: str) -> Record:
        """Read the JSON of a record.

        Raises:
            InputError: if it is damaged.
        """
        try:
            decode(text)
            return TypeAdapter(cls).validate_json(text, strict=True)
        except ValueError as error:  # of pydantic, too
            raise InputError(f"{collection}: its record is damaged; --overwrite makes the collection anew") from error

    def schema(self) -> dict[str, Any]:
        """Return the Arrow types of the columns by name."""
        text = types()[TEXT][0]
        schema = {ID: text, TEXTS: text}
        for name, (_, kind) in self.columns.items():
            schema[name] = types()[kind][0]
        return schema

    def differences(self, other: Record) -> list[str]:
        """Return what keeps rows of another record out of a collection of this one."""
        there = VectorFacts.read("the record", self.settings)
        here = VectorFacts.read("", other.settings)
        differences = there.differences(here)
        in_int8 = there.in_int8
        other_in_int8 = here.in_int8
        if None not in (in_int8, other_in_int8) and in_int8 != other_in_int8:
            differences.append(f"model in int8 {in_int8} there, {other_in_int8} here (--precision)")
        facts = self._facts()
        others = other._facts()
        for name in {**facts, **others}:
            fact = facts.get(name)
            other_fact = others.get(name)
            if fact != other_fact:
                differences.append(f"{name} {fact!r} there, {other_fact!r} here")
        return differences

    def _facts(self) -> dict[str, Any]:
        """Return what rows of a collection have in common, in the words of an error."""
        facts = {key: getattr(self, key) for key in ("dimension", "similarity", "language", "kind")}
        for name, (_, kind) in self.columns.items():
            facts[f"column {name}"] = kind
        return facts


def fields_of(columns: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return a field of Milvus for each column: its name, or where Milvus has no such names, one like it.

    Args:
        columns: the type of each column, by the names of ``--types``.
    """
    fields: dict[str, tuple[str, str]] = {}
    taken = {ID, TEXTS, VECTORS, WORDS, HASH}
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


def content_hash(text: str, columns: Sequence[Any]) -> str:
    """Return a digest of a row's text and columns, which is another one when the row has changed."""
    content = json.dumps([text, *columns], ensure_ascii=False, default=str)
    return hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def shortened(text: str) -> str:
    """Return a text, cut to what Milvus takes."""
    encoded = text.encode()
    if len(encoded) <= MOST_TEXT_BYTES:
        return text
    return encoded[:MOST_TEXT_BYTES].decode(errors="ignore")


def stored_value(value: Any, kind: str) -> Any:
    """Return a value of a column as Milvus keeps it; dates and times are texts that sort as they do."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if kind == "timestamp-utc":
        value = value.astimezone(datetime.UTC)
    if isinstance(value, datetime.datetime):
        return value.isoformat(timespec="microseconds")
    if isinstance(value, datetime.date):
        return value.isoformat()
    if kind == "float":
        return float(value)
    if kind == TEXT:
        return shortened(text_cell(value) or "")
    return value


def value_of(value: Any, kind: str) -> Any:
    """Return a value that `stored_value` made as it was."""
    if value is None or kind not in ("date", "timestamp", "timestamp-utc"):
        return value
    if kind == "date":
        return datetime.date.fromisoformat(value)
    return datetime.datetime.fromisoformat(value)


def filter_of(tree: Tree, columns: Mapping[str, tuple[str, str]]) -> str:
    """Return a condition as a filter of Milvus, which is met by the same rows as in Arrow.

    Args:
        tree: in which only tests are negated.
        columns: the field and the type of each column.
    """
    if isinstance(tree, Test):
        return _filter_of_test(tree, columns)
    word = " and " if isinstance(tree, All) else " or "
    parts = [filter_of(part, columns) for part in tree.parts]
    return f"({word.join(parts)})"


def _filter_of_test(test: Test, columns: Mapping[str, tuple[str, str]]) -> str:
    """Return the filter of one test; see `filter_of`."""
    name = test.column
    if name in columns:
        name = columns[name][0]
    kind = test.kind
    value = test.value
    negated = test.negated
    always = name in (ID, TEXTS)  # Milvus has a value for each row
    within = "not in" if negated else "in"
    match test.operator:
        case "null" if always:
            return f"{ID} {within} []"
        case "null":
            null = "not null" if negated else "null"
            return f"{name} is {null}"
        case "in":
            values = ", ".join(_literal(one, kind) for one in value)
            condition = f"{name} {within} [{values}]"
            if kind == "float" and 0 in value:  # == knows that -0.0 is 0.0
                zero = f"and {name} != 0.0" if negated else f"or {name} == 0.0"
                condition = f"({condition} {zero})"
        case "like":
            condition = f"{name} like {_literal(value, TEXT)}"
            if negated:
                condition = f"not ({condition})"
        case _:
            comparison = "==" if test.operator == "=" else test.operator
            literal = _literal(value, kind)
            condition = f"{name} {comparison} {literal}"
    if always:
        return f"({condition})"
    return f"({name} is not null and {condition})"


def with_ids(ids: Sequence[str]) -> str:
    """Return a filter of Milvus for the rows with these ids; its client would take a quote in an id for code."""
    literals = ", ".join(_literal(key, TEXT) for key in ids)
    return f"{ID} in [{literals}]"


def after_id(key: str) -> str:
    """Return a filter of Milvus for the rows whose ids are behind this one."""
    return f"{ID} > {_literal(key, TEXT)}"


def _literal(value: Any, kind: str) -> str:
    """Return a value as an expression of Milvus, in which control characters stand for themselves."""
    value = stored_value(value, kind)
    if not isinstance(value, str):
        return json.dumps(value)
    return '"' + value.translate(ESCAPES) + '"'


ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r", "\t": r"\t"})
"""The escapes of a text in an expression of Milvus, which knows no ``\\u0001`` as JSON does."""
