"""What a collection of a database says about itself, and which rows have changed, whatever the database is."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le
from pydantic import AfterValidator

from sentcli.encoder.vector_facts import VectorFacts
from sentcli.errors import DataError, InputError
from sentcli.io.column_types import TEXT, types
from sentcli.io.forms import adapter_of, decode
from sentcli.model.spec import Similarity
from sentcli.search.bm25 import LANGUAGE

ID = "id"
TEXTS = "text"
VECTORS = "embedding"
WORDS = "sentcli_words"
HASH = "sentcli_hash"
ORDER = "sentcli_order"
"""The fields that collections have besides those of columns; `WORDS` is Milvus's and `ORDER` LanceDB's."""


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
    """The kind of the index, by the names of ``--type``."""
    efforts: dict[str, int] = field(default_factory=dict)
    """The search parameter that was chosen by the recall."""
    recall: dict[str, Any] | None = None
    """The result of `recall.tune`: recall and speed against exact search."""
    rows: int | None = None
    """The number of rows of Milvus after all were written; None before that, and where every version is whole."""
    format: Literal[1] = 1

    @classmethod
    def read(cls, text: str, collection: str) -> Record:
        """Read the JSON of a record.

        Raises:
            DataError: if it is damaged.
        """
        try:
            decode(text)
            form: Any = cls
            record: Record = adapter_of(form).validate_json(text, strict=True)
            return record
        except ValueError as error:  # of pydantic, too
            raise DataError(collection, "its record is damaged; --overwrite makes the collection anew") from error

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

    def check_takes(self, other: Record, title: str) -> None:
        """Refuse rows of another record.

        Raises:
            InputError: which names the differences between the collection `title`, which has this record, and the rows.
        """
        changed = self.differences(other)
        if not changed:
            return
        types = []
        for name, (_, kind) in self.columns.items():
            if name in other.columns and other.columns[name][1] != kind:
                types.append(f"{name}={kind}")
        advice = "--overwrite makes it anew"
        if types:
            advice = f"--types {','.join(types)} reads these columns as they are there, and {advice}"
        raise InputError(f"{title} holds other rows: {'; '.join(changed)}. {advice}")

    @staticmethod
    def measured(recall: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a record that the result of `recall.tune` decides."""
        return {"recall": dict(recall), "efforts": {recall["parameter"]: recall["chosen"]["effort"]}}

    def _facts(self) -> dict[str, Any]:
        """Return what rows of a collection have in common, in the words of an error."""
        facts = {key: getattr(self, key) for key in ("dimension", "similarity", "language", "kind")}
        for name, (_, kind) in self.columns.items():
            facts[f"column {name}"] = kind
        return facts


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


def content_hash(text: str, columns: Sequence[Any]) -> str:
    """Return a digest of a row's text and columns, which is another one when the row has changed."""
    content = json.dumps([text, *columns], ensure_ascii=False, default=str)
    return hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
