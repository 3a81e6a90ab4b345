"""Arguments that several verbs have, with their help."""

from __future__ import annotations

from typing import Annotated

from annotated_doc import Doc

from sentcli.verbs.declaration import Flag

MODEL_HELP = "A model folder, a short name (sentcli doctor lists them), or a hub id"
Models = Annotated[list[str], Flag("-m"), Doc(f"{MODEL_HELP}; several are compared.")]
Model = Annotated[str, Flag("-m"), Doc(f"{MODEL_HELP}.")]
OptionalModel = Annotated[str | None, Flag("-m"), Doc(f"{MODEL_HELP}.")]
TextField = Annotated[str, Doc("Column that holds the text.")]
IdField = Annotated[str | None, Doc("Column that holds the id: id, else _id, else the row number.")]
QueryPrompt = Annotated[str | None, Flag(panel="Model"), Doc("Text in front of each query; default: the model's own.")]
DocPrompt = Annotated[str | None, Flag(panel="Model"), Doc("Text in front of each document; default: the model's own.")]
Overwrite = Annotated[bool, Flag(panel="Output"), Doc("Replace an output that exists.")]
