"""``sentcli analyze attention``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sentcli.cli import analyzing, console, options
from sentcli.cli.base import command
from sentcli.errors import InputError

if TYPE_CHECKING:
    from sentcli.analysis.attention_views import DropoutViews, Slice
    from sentcli.evaluation.candidate import Candidate
    from sentcli.report import Report
    from sentcli.reports.analyses.attention import Attended

COMPARED = "What is compared"
HEADS, LAYERS = 3, 4
"""Of the histograms: three adjacent heads in four adjacent layers (miCSE, fig. 8)."""
ENOUGH = 8
"""Tokens, special ones included, that the sentence of the histograms has if none is chosen."""


@command("attention", analyzing.group)
def attention(
    output: analyzing.Output,
    texts: Annotated[
        str | None,
        typer.Argument(metavar="[TEXTS]", help="Texts, one a line or a row of a table.", show_default=False),
    ] = None,
    model: analyzing.Models = None,
    text_field: analyzing.TextField = "text",
    limit: analyzing.Limit = 200,
    trees: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|spacy[:MODEL]",
            help="Split pairs of texts by their dependency trees: a CoNLL-U file, whose texts are taken, or spaCy.",
            show_default=False,
            rich_help_panel=analyzing.INPUT,
        ),
    ] = None,
    sentence: Annotated[
        str | None,
        typer.Option(
            metavar="N|TEXT",
            help="Whose histograms are drawn: a text's number from 1, or a text; default: the first of 8 tokens.",
            show_default=False,
            rich_help_panel=COMPARED,
        ),
    ] = None,
    layers: Annotated[
        str,
        typer.Option(
            metavar="FIRST:END",
            help="Whose attention makes the MI of a pair, as ami.layers of training: from 0, from the end, or shares.",
            rich_help_panel=COMPARED,
        ),
    ] = "-5:-1",
    slicing: Annotated[
        Literal["layer-pairs", "head-pairs"],
        typer.Option(
            help="A slice is one head in layers l and l + 2 (miCSE's code), or two heads of a layer (the paper).",
            rich_help_panel=COMPARED,
        ),
    ] = "layer-pairs",
    first_head: Annotated[
        int, typer.Option(min=1, help="Of the three heads of the histograms, from 1.", rich_help_panel=COMPARED)
    ] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Of dropout and of the negatives.", rich_help_panel=COMPARED)] = 0,
    dropout: Annotated[
        float | None,
        typer.Option(
            min=0, max=0.99, help="Of the views, everywhere, instead of the model's own.", rich_help_panel=COMPARED
        ),
    ] = None,
    pooling: options.Pooling = None,
    max_length: Annotated[
        int, typer.Option(min=3, help="Tokens a text; miCSE trains on 32.", rich_help_panel=options.MODEL)
    ] = 32,
    device: options.Device = "auto",
    overwrite: options.Overwrite = False,
    json: options.Json = None,
) -> None:
    """Attention of two dropout views of a text, and the mutual information that miCSE trains with.

    Each text is encoded twice with dropout. Shown are the joint histograms of
    the log attention of one sentence (miCSE, fig. 8), rho and mutual information
    of every layer and head, and for two views of a text against views of two
    texts the cosine and the mutual information (fig. 5). --trees splits the
    latter by equal and unequal dependency trees (fig. 6). Models run on torch.

    \b
    Examples:
      sentcli analyze attention sentences.txt -m minilm -m runs/micse -o attention
      sentcli analyze attention sentences.txt -m minilm --sentence "A man plays a flute." -o flute
      sentcli analyze attention sentences.txt -m model --layers 8:12 --slicing head-pairs -o paper
      sentcli analyze attention -m minilm --trees treebank.conllu --limit 2000 -o trees
    """  # noqa: D301
    from sentcli.reports.analyses.attention import sections

    analyzing.check(output, overwrite=overwrite)
    if not model:
        raise InputError("give models: -m")
    lines, parsed = _texts_and_trees(texts, trees, text_field, limit)
    called = analyzing.labels(model)
    look = _Look(lines, parsed, sentence, layers, slicing, first_head, seed, dropout, trees)
    found, reports = [], []
    for candidate in analyzing.Loading(pooling, max_length, "torch", "fp32", device).candidates(model):
        one, report = look.at(candidate, called[candidate.name])
        found.append(one)
        reports.append(report)
    tokens = [report.results["sentence"]["tokens"] for report in reports]
    made = sections(found, look.shown, tokens, look.chosen)
    analyzing.finish("attention", output, made, [report.to_dict() for report in reports], json)


def _texts_and_trees(
    texts: str | None, trees: str | None, text_field: str, limit: int
) -> tuple[list[str], list[str] | None]:
    """Return the texts, and their trees if they are wanted.

    Raises:
        InputError: also if no two texts share a tree.
    """
    from sentcli.analysis.trees import is_spacy, parse_with_spacy, read_conllu

    if trees is None or is_spacy(trees):
        if texts is None:
            raise InputError("give a file of texts, or --trees FILE.conllu, whose texts are taken")
        lines = analyzing.read_texts(texts, text_field, limit)
        if trees is None:
            return lines, None
        with console.working(f"parsing {len(lines):,} texts"):
            parsed = parse_with_spacy(trees, lines)
    else:
        if texts is not None:
            raise InputError(f"--trees {trees} brings its own texts: leave {texts} out")
        read = read_conllu(Path(trees), limit)
        lines, parsed = analyzing.enough(list(read), trees, len(read)), list(read.values())
    if len(set(parsed)) == len(parsed):
        raise InputError(f"no two of the {len(lines):,} texts share a tree: take more (--limit), or shorter ones")
    if len(set(parsed)) == 1:
        raise InputError(f"all {len(lines):,} texts have the same tree: there are no others to compare with")
    return lines, parsed


@dataclass
class _Look:
    """What is measured, the same for all models."""

    texts: list[str]
    trees: list[str] | None
    sentence: str | None
    layers: str
    slicing: str
    first_head: int
    seed: int
    dropout: float | None
    parser: str | None
    shown: str = ""
    """The sentence of the histograms: the same for all models."""

    @property
    def chosen(self) -> str:
        """The choices in words."""
        slices = {"layer-pairs": "one head in every second layer", "head-pairs": "two adjacent heads of a layer"}
        rate = "the models' own dropout" if self.dropout is None else f"dropout {self.dropout:g}"
        return (
            f"{len(self.texts):,} texts, two views each with {rate}, seed {self.seed}. Mutual information of a pair: "
            f"layers {self.layers}, slices of {slices[self.slicing]}, all positions, the mean over slices. Cosine: of "
            "the vectors that the model gives, with dropout."
        )

    def at(self, candidate: Candidate, label: str) -> tuple[Attended, Report]:
        """Measure a model."""
        from sentcli.analysis.attention_pairs import attention_pairs, tree_pairs
        from sentcli.analysis.attention_views import DropoutViews
        from sentcli.report import Report, environment
        from sentcli.reports.analyses.attention import Attended

        report = Report("analyze", candidate.name)
        _refuse_export(candidate)
        views = DropoutViews(candidate.encoder, [*self.texts, *self._own()], self.seed, self.dropout)
        layers = self._layers(views)
        slices, tokens = self._slices(views, layers)
        total = len(self.texts) + (tree_pairs(self.trees, views.lengths[: len(self.texts)]) if self.trees else 0)
        with console.counting(f"comparing with {candidate.name}", total) as tick:
            pairs = attention_pairs(views, len(self.texts), layers, self.slicing, self.seed, self.trees, tick)
        views.close()
        described = candidate.described
        report.protocol = self._protocol(described, layers)
        report.environment = environment(described.get("device"), described.get("precision"), self.seed)
        shown = {"text": self.shown, "tokens": tokens, "slices": [part.to_dict() for part in slices]}
        report.results = {"texts": len(self.texts), **pairs.to_dict(), "sentence": shown}
        candidate.release()
        report.finish()
        return Attended(label, pairs, tuple(slices)), report

    def _own(self) -> list[str]:
        return [self.sentence] if self.sentence is not None and not self.sentence.isdecimal() else []

    def _layers(self, views: DropoutViews) -> tuple[int, ...]:
        """Return the chosen layers.

        Raises:
            InputError: if they are not inside the model, or the slices cannot be cut.
        """
        from sentcli.objectives.attention_mi import chosen_layers

        try:
            layers = chosen_layers(self.layers, views.depth)
        except InputError as error:
            raise InputError(f"{views.name}: --layers: {error}") from error
        heads = views.check()
        if self.slicing == "layer-pairs" and len(layers) % 2:
            raise InputError(f"--layers {self.layers} are {len(layers)}; layer-pairs needs an even number of them")
        if self.slicing == "head-pairs" and heads % 2:
            raise InputError(f"{views.name} has {heads} heads; head-pairs needs an even number of them")
        if self.first_head > heads:
            raise InputError(f"--first-head {self.first_head}: {views.name} has {heads} heads")
        return layers

    def _slices(self, views: DropoutViews, layers: tuple[int, ...]) -> tuple[list[Slice], int]:
        """Return the slices of the sentence that is shown, and its tokens in this model."""
        from sentcli.analysis.attention_views import slices_of

        number = self._number(views.lengths)
        self.shown = [*self.texts, *self._own()][number]
        weights = views.of(number).weights
        heads = range(self.first_head - 1, min(self.first_head - 1 + HEADS, weights.shape[2]))
        return slices_of(weights, layers[:LAYERS], heads), weights.shape[-1]

    def _number(self, lengths: list[int]) -> int:
        if self.shown:
            return [*self.texts, *self._own()].index(self.shown)
        if self.sentence is None:
            return next((i for i, length in enumerate(lengths) if length >= ENOUGH), lengths.index(max(lengths)))
        if not self.sentence.isdecimal():
            return len(self.texts)
        if not 1 <= int(self.sentence) <= len(self.texts):
            raise InputError(f"--sentence {self.sentence}: there are {len(self.texts):,} texts, numbered from 1")
        return int(self.sentence) - 1

    def _protocol(self, described: dict[str, Any], layers: tuple[int, ...]) -> dict[str, Any]:
        return {
            "kind": "attention",
            "texts": len(self.texts),
            "layers": [layer + 1 for layer in layers],
            "slicing": self.slicing,
            "samples": "all positions",
            "scale_by_share": False,
            "negatives": "view 2 of one other text, drawn at random",
            "dropout": "the model's own" if self.dropout is None else self.dropout,
            "trees": self.parser,
            "seed": self.seed,
            **{key: value for key, value in described.items() if key != "device"},
        }


def _refuse_export(candidate: Candidate) -> None:
    """Refuse what has no attention to look at.

    Raises:
        InputError: for an exported folder.
    """
    from sentcli.encoder.checkpoint import has_weights
    from sentcli.encoder.exported import read_export

    if read_export(candidate.spec.folder) is not None and not has_weights(candidate.spec.folder):
        raise InputError(f"{candidate.name} is an export, which gives no attention weights: name what it was made of")
