"""The options that several kinds of ``analyze`` have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from annotated_doc import Doc
from annotated_types import Ge

from sentcli.analysis.texts import LEAST_ITEMS
from sentcli.bounds import Flag, Holds
from sentcli.command.declaration import Group
from sentcli.model.options import MODEL_HELP, LoadOptions

INPUT = "Input"
AnalysedModels = Annotated[list[str] | None, Holds.MODEL, Doc(f"{MODEL_HELP}; several are compared."), Flag("-m")]
Output = Annotated[Path, Doc("A folder for page, figures and tables."), Flag("-o", metavar="DIR")]
Data = Annotated[
    Path | None,
    Doc("A SentEval data/downstream folder, or sts once it is fetched: its STS-B pairs."),
    Flag(panel=INPUT),
]
PairsFile = Annotated[
    str | None,
    Holds.TEXT_FILE,
    Doc("A table of your own with the columns sentence1, sentence2 and score, instead of --data."),
    Flag(metavar="FILE", panel=INPUT, excludes="data"),
]
Split = Annotated[Literal["dev", "test", "train"], Doc("Split of STS-B."), Flag(panel=INPUT)]
TextsFile = Annotated[
    str | None, Holds.TEXT_FILE, Doc("Texts, one a line or a row of a table."), Flag(metavar="FILE", panel=INPUT)
]
AnalysedTextField = Annotated[str, Holds.WORDS, Doc("Column of a table that holds the text."), Flag(panel=INPUT)]
Limit = Annotated[int, Ge(LEAST_ITEMS), Doc("Draw so many distinct texts at most."), Flag(panel=INPUT)]
Seed = Annotated[int, Ge(0), Doc("Seed of the texts that are drawn where there are more than the limit.")]
Rerun = Annotated[bool, Doc("Encode and score anew, also what was measured before and is kept."), Flag(panel="Output")]
NOT_LOADED_SO = ("normalize",)
"""Fields of `LoadOptions` that no kind of analysis has."""
Load = Annotated[LoadOptions, Group(without=NOT_LOADED_SO)]
