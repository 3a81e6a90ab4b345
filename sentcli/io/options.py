"""Arguments about files that several verbs have, with their help."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_doc import Doc

from sentcli.bounds import Flag, Holds

TextField = Annotated[str, Holds.WORDS, Doc("Column that holds the text.")]
IdField = Annotated[str | None, Holds.WORDS, Doc("Column that holds the id: id, else _id, else the row number.")]
PairFields = Annotated[
    str | None,
    Holds.WORDS,
    Flag(metavar="A,B[,C]"),
    Doc("Columns of a table: both texts and score or label, or anchor, positive and negatives, or text and label."),
]
Overwrite = Annotated[bool, Flag(panel="Output"), Doc("Replace an output that exists.")]
Format = Literal["txt", "csv", "tsv", "jsonl", "parquet", "arrow"]
