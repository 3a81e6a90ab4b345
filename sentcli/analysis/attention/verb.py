"""``analyze attention``: its options, and what it measures of a model."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from annotated_types import Ge, Le

from sentcli import console
from sentcli.analysis.folder import analysis_record, check_folder, write_folder
from sentcli.analysis.models import named_models
from sentcli.analysis.options import INPUT, NOT_LOADED_SO, AnalysedModels, AnalysedTextField, Limit, Output
from sentcli.analysis.texts import check_sample, read_distinct_texts
from sentcli.bounds import Holds, Overwrite, whole_number
from sentcli.command.declaration import Flag, Group, verb
from sentcli.command.result import Clock, Record, Result
from sentcli.errors import InputError
from sentcli.model.options import LoadOptions
from sentcli.pages.names import short_names
from sentcli.pages.page import Section

if TYPE_CHECKING:
    from sentcli.analysis.attention.pairs import AttentionPairs
    from sentcli.analysis.attention.views import DropoutViews, Slice
    from sentcli.evaluation.evaluated import EvaluatedModel
    from sentcli.io.sampling import TextSample


@dataclass(frozen=True)
class ViewOptions:
    """Which views, layers and heads are compared.

    Attributes:
        sentence: The text of the histograms, by its number among those taken, from 1, or as a text; default: the
            first of 8 tokens.
        layers: Layers of the MI of a pair, as ami.layers of training: auto, from 0, from the end, or shares.
        slicing: A slice is one head in layers l and l + 2 (miCSE's code), or two heads of a layer (the paper).
        first_head: First of the three heads of the histograms, from 1.
        seed: Seed of the texts that are drawn, of dropout and of the negatives.
        dropout: Dropout rate of the views, instead of the model's own.
    """

    sentence: Annotated[str | None, Holds.WORDS, Flag(metavar="N|TEXT")] = None
    layers: Annotated[str, Flag(metavar="auto|FIRST:END")] = "auto"
    slicing: Literal["layer-pairs", "head-pairs"] = "layer-pairs"
    first_head: Annotated[int, Ge(1)] = 1
    seed: Annotated[int, Ge(0)] = 0
    dropout: Annotated[float | None, Ge(0), Le(0.99)] = None


@verb("attention")
def attention(
    output: Output,
    texts: Annotated[str | None, Holds.TEXT_FILE, Flag(metavar="[TEXTS]", positional=True)] = None,
    model: AnalysedModels = None,
    text_field: AnalysedTextField = "text",
    limit: Limit = 200,
    trees: Annotated[str | None, Flag(metavar="FILE|spacy[:MODEL]", panel=INPUT)] = None,
    options: Annotated[ViewOptions, Group("What is compared")] = ViewOptions(),
    load: Annotated[LoadOptions, Group(without=("backend", "precision", *NOT_LOADED_SO))] = LoadOptions(
        max_length=32, backend="torch", precision="fp32"
    ),
    overwrite: Overwrite = False,
) -> Result:
    """Attention of two dropout views of a text, and the mutual information that miCSE trains with.

    Each text is encoded twice with dropout. Shown are the joint histograms of
    the log attention of one sentence (miCSE, fig. 8), rho and mutual information
    of every layer and head, and for two views of a text against views of two
    texts the cosine and the mutual information (fig. 5). --trees splits the
    latter by equal and unequal dependency trees (fig. 6). Models run on torch.

    Args:
        texts: Texts, one a line or a row of a table.
        trees: Split pairs of texts by their dependency trees: a CoNLL-U file, whose texts are taken, or spaCy.
        max_length: Maximum length of a text in tokens; miCSE trains on 32.

    \b
    Examples:
      sentcli analyze attention sentences.txt -m minilm -m runs/micse -o attention
      sentcli analyze attention sentences.txt -m minilm --sentence "A man plays a flute." -o flute
      sentcli analyze attention sentences.txt -m model --layers 8:12 --slicing head-pairs -o paper
      sentcli analyze attention -m minilm --trees treebank.conllu --limit 2000 -o trees
    """  # noqa: D301
    from sentcli.analysis.attention.sections import histograms, sections

    check_folder(output, overwrite=overwrite)
    models = named_models(model or [], load)
    if not models:
        raise InputError("give models: -m")
    inputs = AttentionInputs(*_texts_and_trees(texts, trees, text_field, limit, options.seed), trees, options)
    short = short_names(evaluated.name for evaluated in models).shown
    pairs = {}
    figures = []
    reports = []
    for number, evaluated in enumerate(models, 1):
        name = short[evaluated.name]
        pairs[name], slices, report = inputs.measure(evaluated)
        reports.append(report)
        title = "One sentence"
        file = "attention-views"
        if len(models) > 1:
            title += f": {name}"
            file += f"-{number}"
        figure = histograms(name, slices, file, report.results["sentence"])
        figures.append(Section(title, figure=figure))
    page_sections = sections(pairs, inputs.description, trees=trees is not None)
    return write_folder("attention", output, [*page_sections, *figures], reports)


def _texts_and_trees(
    texts: str | None, trees: str | None, text_field: str, limit: int, seed: int
) -> tuple[list[str], list[str] | None, TextSample]:
    """Return the texts, the tree of each if ``--trees`` is given, and how many texts there were.

    Raises:
        InputError: if texts or trees are missing, or the trees are all different or all the same.
    """
    from sentcli.analysis.attention.trees import is_spacy, parse_with_spacy, read_conllu

    if trees is None or is_spacy(trees):
        if texts is None:
            raise InputError("give a file of texts, or --trees FILE.conllu, whose texts are taken")
        rows = read_distinct_texts(texts, text_field, limit, seed=seed)
        lines = rows.texts
        sample = rows.sample
        if trees is None:
            return lines, None, sample
        with console.working(f"parsing {len(lines):,} texts"):
            parsed = parse_with_spacy(trees, lines)
    else:
        if texts is not None:
            raise InputError(f"--trees {trees} brings its own texts: leave {texts} out")
        distinct = read_conllu(Path(trees), limit, seed)
        lines = list(distinct.texts)
        parsed = list(distinct.texts.values())
        sample = distinct.sample
        check_sample(sample, trees, sample.of)
    different = len(set(parsed))
    if different == len(parsed):
        raise InputError(f"no two of the {len(lines):,} texts share a tree: take more (--limit), or shorter ones")
    if different == 1:
        raise InputError(f"all {len(lines):,} texts have the same tree: there are no others to compare with")
    return lines, parsed, sample


@dataclass
class AttentionInputs:
    """Texts, trees and options, the same for all models."""

    texts: list[str]
    trees: list[str] | None
    sample: TextSample
    """How many texts there were to take them from."""
    parser: str | None
    """The CoNLL-U file, or the model of spaCy, that the trees come from."""
    options: ViewOptions
    shown: str = ""
    """The sentence of the histograms; unless the user chooses it, its length in tokens of the first model does."""

    @property
    def description(self) -> str:
        """The choices in words."""
        slices = {"layer-pairs": "one head in every second layer", "head-pairs": "two adjacent heads of a layer"}
        rate = "the models' own dropout"
        if self.options.dropout is not None:
            rate = f"dropout {self.options.dropout:g}"
        layers = "the layers before the last"
        if self.options.layers != "auto":
            layers = f"layers {self.options.layers}"
        return (
            f"{self.sample.words}, two views each with {rate}, seed {self.options.seed}. Mutual information of a "
            f"pair: {layers}, slices of {slices[self.options.slicing]}, all positions, the mean "
            "over slices. Cosine: of the vectors that the model gives, with dropout."
        )

    def measure(self, model: EvaluatedModel) -> tuple[AttentionPairs, list[Slice], Record]:
        """Return the pairs of a model, the slices of the sentence that is shown, and the report."""
        from sentcli.analysis.attention.pairs import attention_pairs, tree_pairs
        from sentcli.analysis.attention.views import DropoutViews, attention_slices
        from sentcli.io.weights import has_weights

        clock = Clock()
        options = self.options
        count = len(self.texts)
        encoder = model.load()
        if encoder.backend.name != "torch" and not has_weights(encoder.local.spec.folder):
            raise InputError(f"{model.name} is an export, which gives no attention weights: name its source")
        texts = list(self.texts)
        if options.sentence is not None and whole_number(options.sentence) is None:
            texts.append(options.sentence)
        views = DropoutViews(encoder, texts, options.seed, options.dropout)
        layers = self._layers(views)
        if not self.shown:
            self.shown = texts[self._sentence_number(texts, views.lengths)]
        weights = views.of_view(texts.index(self.shown)).weights
        # three adjacent heads in four adjacent layers, as in miCSE's fig. 8
        heads = range(options.first_head - 1, min(options.first_head + 2, weights.shape[2]))
        slices = attention_slices(weights, layers[:4], heads)
        total = count
        if self.trees:
            total += tree_pairs(self.trees, views.lengths[:count])
        with console.counting(f"comparing with {model.name}", total) as tick:
            pairs = attention_pairs(views, count, layers, options.slicing, options.seed, self.trees, tick)
        views.close()
        model.release()
        results = {
            "texts": count,
            **pairs.to_dict(),
            "sentence": {
                "text": self.shown,
                "tokens": weights.shape[-1],
                "slices": [part.to_dict() for part in slices],
            },
        }
        protocol = {
            "kind": "attention",
            **asdict(self.sample),
            "layers": [layer + 1 for layer in layers],
            "slicing": options.slicing,
            "samples": "all positions",
            "scale_by_share": False,
            "negatives": "view 2 of one other text, drawn at random",
            "dropout": "the model's own" if options.dropout is None else options.dropout,
            "trees": self.parser,
        }
        return pairs, slices, analysis_record(model.name, protocol, results, clock, model, options.seed)

    def _layers(self, views: DropoutViews) -> tuple[int, ...]:
        """Return the layers of ``--layers``.

        Raises:
            InputError: if the model does not have them, or their number or that of the heads does not suit the slices.
        """
        from sentcli.objectives.mutual_information import chosen_layers

        options = self.options
        try:
            layers = chosen_layers(options.layers, views.depth)
        except InputError as error:
            raise InputError(f"{views.name}: --layers: {error}") from error
        heads = views.check()
        if options.slicing == "layer-pairs" and len(layers) % 2:
            raise InputError(f"--layers {options.layers} are {len(layers)}; layer-pairs needs an even number of them")
        if options.slicing == "head-pairs" and heads % 2:
            raise InputError(f"{views.name} has {heads} heads; head-pairs needs an even number of them")
        if options.first_head > heads:
            raise InputError(f"--first-head {options.first_head}: {views.name} has {heads} heads")
        return layers

    def _sentence_number(self, texts: list[str], lengths: list[int]) -> int:
        """Return the number of the sentence of the histograms, from 0."""
        sentence = self.options.sentence
        if sentence is None:
            for i, length in enumerate(lengths):
                if length >= 8:  # special tokens included
                    return i
            return lengths.index(max(lengths))
        number = whole_number(sentence)
        if number is None:
            return texts.index(sentence)
        if not 1 <= number <= len(self.texts):
            raise InputError(f"--sentence {sentence}: there are {len(self.texts):,} texts, numbered from 1")
        return number - 1
