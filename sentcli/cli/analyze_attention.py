"""``sentcli analyze attention``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from sentcli import console
from sentcli.cli import analyzing, options
from sentcli.cli.base import command
from sentcli.errors import InputError

COMPARED = "What is compared"


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
    from sentcli.cli.attention_look import Look
    from sentcli.reports.analyses.attention import sections

    analyzing.check(output, overwrite=overwrite)
    if not model:
        raise InputError("give models: -m")
    lines, parsed = _texts_and_trees(texts, trees, text_field, limit)
    called = analyzing.labels(model)
    look = Look(lines, parsed, sentence, layers, slicing, first_head, seed, dropout, trees)
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
