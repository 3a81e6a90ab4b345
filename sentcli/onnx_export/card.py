"""The model card of a folder with exports, ``README.md``, whose part about them each new export replaces."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sentcli.hub import CARD
from sentcli.io.atomic import replacing
from sentcli.io.weights import has_weights
from sentcli.model.cards import SHOWN, TAGS, StartFacts, card_head, printed_similarities, public_name, start_facts
from sentcli.model.encoding import LoadedModel
from sentcli.model.exported import Export, exports_in
from sentcli.onnx_export import alone

if TYPE_CHECKING:
    from jinja2 import Template

BEGIN = "<!-- exports -->"
END = "<!-- end of exports -->"
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
    weights = has_weights(folder)
    first = exports[0]
    source = start_facts(model.name, model.spec.folder)
    library = first.runtime
    if weights and model.spec.is_sentence_transformers:
        library = "sentence-transformers"
    text = _template().render(
        exports=exports,
        head=_head(source, library, [export.runtime for export in exports]),
        name=source.base_model or public_name(model.name),
        prompts=model.spec.prompts,
        token_types=model.tokenizer.has_type_ids,
        tokens=tokens,
        weights=weights,
        hub=bool(first.file),
        sentences=", ".join(f'"{sentence}"' for sentence in SHOWN),
        shown=_shown(folder, model, first),
        citation=source.citation,
    )
    path = folder / CARD
    if path.exists():
        before, _, after = path.read_text("utf-8").partition(BEGIN)
        part = text.partition(BEGIN)[2].partition(END)[0]
        behind = after.partition(END)[2]
        text = f"{before.rstrip()}\n\n{BEGIN}{part}{END}{behind}"
    with replacing(path) as temporary:
        temporary.write_text(text.rstrip() + "\n", "utf-8")


def _head(source: StartFacts, library: str, runtimes: list[str]) -> str:
    """Return what the hub reads of the card."""
    own_tags = TAGS if library == "sentence-transformers" else TAGS[1:]
    tags = [*runtimes, *own_tags]
    return card_head(
        source, library=library, tags=tags, title=source.title, data_sets=source.data_sets, scores=source.scores
    )


def _shown(folder: Path, model: LoadedModel, export: Export) -> str:
    """Return what the program in the card prints, as comments; nothing for a cross-encoder, which takes pairs."""
    from tokenizers import Tokenizer

    if model.spec.scores_pairs:
        return ""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    vectors = alone.encode_alone(folder, export, tokenizer, SHOWN, pairs=False)
    return printed_similarities(vectors, "dot")
