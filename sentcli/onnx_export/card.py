"""The model card of a folder with exports, ``README.md``, whose part about them each new export replaces."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sentcli import zoo
from sentcli.io.atomic import replacing
from sentcli.io.weights import has_weights
from sentcli.model.encoding import LoadedModel
from sentcli.model.exported import exports_in

if TYPE_CHECKING:
    from jinja2 import Template

BEGIN, END = "<!-- exports -->", "<!-- end of exports -->"
"""Stand around the part of a card that tells of the exports in the folder."""


@cache
def _template() -> Template:
    from jinja2 import Template

    return Template((Path(__file__).parent / "card.md").read_text("utf-8"), keep_trailing_newline=True)


def write_card(folder: Path, model: LoadedModel, *, tokens: bool) -> None:
    """Write the card of an exported folder, or into the card that is there the part about its exports.

    Args:
        folder: with the facts of all its exports.
        model: that they were made of.
        tokens: whether the graphs give token vectors, too.
    """
    exports = exports_in(folder)
    text = _template().render(
        exports=exports,
        entry=zoo.find_entry(model.name),
        folder_name=Path(model.name).name,
        prompts=model.spec.prompts,
        token_types=model.tokenizer.has_type_ids,
        tokens=tokens,
        weights=has_weights(folder),
        hub=bool(exports[0].file),
    )
    path = folder / "README.md"
    if path.exists():
        before, _, after = path.read_text("utf-8").partition(BEGIN)
        part = text.partition(BEGIN)[2].partition(END)[0]
        text = f"{before.rstrip()}\n\n{BEGIN}{part}{END}{after.partition(END)[2]}"
    with replacing(path) as temporary:
        temporary.write_text(text.rstrip() + "\n", "utf-8")
