"""``analyze attention``: the attention of two dropout views of a text, after miCSE (Klein and Nabi, ACL 2023)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge, Le

from sentcli import console
from sentcli.bounds import Holds, whole_number
from sentcli.command.declaration import Flag, Group, verb
from sentcli.command.result import Clock, Record, Result
from sentcli.errors import InputError
from sentcli.io.options import Overwrite
from sentcli.model.options import LoadOptions
from sentcli.pages import style
from sentcli.pages.names import short_names
from sentcli.pages.page import Figure, Section
from sentcli.table import MINUS, Table
from sentcli.verbs.kinds import attention_heads, shared

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from sentcli.analysis.attention_views import AttentionPairs, DropoutViews, Slice
    from sentcli.evaluation.evaluated import EvaluatedModel
    from sentcli.io.sampling import Sample

CENTROIDS = "Large marks are centroids"


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
    output: shared.Output,
    texts: Annotated[str | None, Holds.TEXT_FILE, Flag(metavar="[TEXTS]", positional=True)] = None,
    model: shared.Models = None,
    text_field: shared.TextField = "text",
    limit: shared.Limit = 200,
    trees: Annotated[str | None, Flag(metavar="FILE|spacy[:MODEL]", panel=shared.INPUT)] = None,
    options: Annotated[ViewOptions, Group("What is compared")] = ViewOptions(),
    load: Annotated[LoadOptions, Group(without=("backend", "precision", *shared.NOT_LOADED_SO))] = LoadOptions(
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
    shared.check(output, overwrite=overwrite)
    if not model:
        raise InputError("give models: -m")
    inputs = AttentionInputs(*_texts_and_trees(texts, trees, text_field, limit, options.seed), trees, options)
    short = short_names(model).shown
    pairs, figures, reports = {}, [], []
    for evaluated in shared.models(model, load):
        name = short[evaluated.name]
        pairs[name], slices, report = inputs.measure(evaluated)
        reports.append(report)
        file = "attention-views" if len(model) == 1 else f"attention-views-{len(reports)}"
        title = "One sentence" if len(model) == 1 else f"One sentence: {name}"
        sentence = report.results["sentence"]
        figures.append(Section(title, figure=attention_heads.histograms(name, slices, file, sentence)))
    sections = [*_pair_sections(pairs, inputs), *attention_heads.sections(pairs), *figures]
    return shared.write("attention", output, sections, reports)


def _texts_and_trees(
    texts: str | None, trees: str | None, text_field: str, limit: int, seed: int
) -> tuple[list[str], list[str] | None, Sample]:
    """Return the texts, the tree of each if ``--trees`` is given, and how many texts there were.

    Raises:
        InputError: if texts or trees are missing, or the trees are all different or all the same.
    """
    from sentcli.analysis.trees import is_spacy, parse_with_spacy, read_conllu

    if trees is None or is_spacy(trees):
        if texts is None:
            raise InputError("give a file of texts, or --trees FILE.conllu, whose texts are taken")
        rows = shared.read_rows(texts, text_field, limit, seed=seed)
        lines, sample = rows.texts, rows.sample
        if trees is None:
            return lines, None, sample
        with console.working(f"parsing {len(lines):,} texts"):
            parsed = parse_with_spacy(trees, lines)
    else:
        if texts is not None:
            raise InputError(f"--trees {trees} brings its own texts: leave {texts} out")
        found = read_conllu(Path(trees), limit, seed)
        lines, parsed, sample = list(found.kept), list(found.kept.values()), found.sample
        shared.check_sample(sample, trees, sample.of)
    if len(set(parsed)) == len(parsed):
        raise InputError(f"no two of the {len(lines):,} texts share a tree: take more (--limit), or shorter ones")
    if len(set(parsed)) == 1:
        raise InputError(f"all {len(lines):,} texts have the same tree: there are no others to compare with")
    return lines, parsed, sample


@dataclass
class AttentionInputs:
    """Texts, trees and options, the same for all models."""

    texts: list[str]
    trees: list[str] | None
    sample: Sample
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
        dropout = self.options.dropout
        rate = "the models' own dropout" if dropout is None else f"dropout {dropout:g}"
        layers = "the layers before the last" if self.options.layers == "auto" else f"layers {self.options.layers}"
        return (
            f"{self.sample.words}, two views each with {rate}, seed {self.options.seed}. Mutual information of a "
            f"pair: {layers}, slices of {slices[self.options.slicing]}, all positions, the mean "
            "over slices. Cosine: of the vectors that the model gives, with dropout."
        )

    def measure(self, model: EvaluatedModel) -> tuple[AttentionPairs, list[Slice], Record]:
        """Return the pairs of a model, the slices of the sentence that is shown, and the report."""
        from sentcli.analysis.attention_views import DropoutViews, attention_pairs, slices_of, tree_pairs
        from sentcli.io.weights import has_weights

        clock, options, count = Clock(), self.options, len(self.texts)
        encoder = model.load()
        if encoder.backend.name != "torch" and not has_weights(encoder.local.spec.folder):
            raise InputError(f"{model.name} is an export, which gives no attention weights: name its source")
        typed = [options.sentence] if options.sentence is not None and whole_number(options.sentence) is None else []
        texts = [*self.texts, *typed]
        views = DropoutViews(encoder, texts, options.seed, options.dropout)
        layers = self._layers(views)
        number = texts.index(self.shown) if self.shown else self._sentence_number(texts, views.lengths)
        self.shown = texts[number]
        weights = views.of(number).weights
        # three adjacent heads in four adjacent layers, as in miCSE's fig. 8
        heads = range(options.first_head - 1, min(options.first_head + 2, weights.shape[2]))
        slices = slices_of(weights, layers[:4], heads)
        total = count + (tree_pairs(self.trees, views.lengths[:count]) if self.trees else 0)
        with console.counting(f"comparing with {model.name}", total) as tick:
            pairs = attention_pairs(views, count, layers, options.slicing, options.seed, self.trees, tick)
        views.close()
        model.release()
        sentence = {"text": self.shown, "tokens": weights.shape[-1], "slices": [part.to_dict() for part in slices]}
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
        results = {"texts": count, **pairs.to_dict(), "sentence": sentence}
        return pairs, slices, shared.record(model.name, protocol, results, clock, model, options.seed)

    def _layers(self, views: DropoutViews) -> tuple[int, ...]:
        """Return the layers of ``--layers``.

        Raises:
            InputError: if the model does not have them, or their number or that of the heads does not suit the slices.
        """
        from sentcli.objectives.mutual_information import chosen_layers

        layers_option, slicing = self.options.layers, self.options.slicing
        try:
            layers = chosen_layers(layers_option, views.depth)
        except InputError as error:
            raise InputError(f"{views.name}: --layers: {error}") from error
        heads = views.check()
        if slicing == "layer-pairs" and len(layers) % 2:
            raise InputError(f"--layers {layers_option} are {len(layers)}; layer-pairs needs an even number of them")
        if slicing == "head-pairs" and heads % 2:
            raise InputError(f"{views.name} has {heads} heads; head-pairs needs an even number of them")
        if self.options.first_head > heads:
            raise InputError(f"--first-head {self.options.first_head}: {views.name} has {heads} heads")
        return layers

    def _sentence_number(self, texts: list[str], lengths: list[int]) -> int:
        """Return the number of the sentence of the histograms, from 0."""
        sentence = self.options.sentence
        if sentence is None:
            # the first with so many tokens, special ones included
            return next((i for i, length in enumerate(lengths) if length >= 8), lengths.index(max(lengths)))
        number = whole_number(sentence)
        if number is None:
            return texts.index(sentence)
        if not 1 <= number <= len(self.texts):
            raise InputError(f"--sentence {sentence}: there are {len(self.texts):,} texts, numbered from 1")
        return number - 1


def _pair_sections(pairs: dict[str, AttentionPairs], inputs: AttentionInputs) -> list[Section]:
    about = "; ".join(
        "{}: positive pairs lie around cosine {:.2f} and {:.2f} nats, negative pairs around {:.2f} and {:.2f}; cosine "
        "tells them apart with AUC {:.3f}, mutual information with {:.3f}".format(
            name,
            *model_pairs.centroid("positives"),
            *model_pairs.centroid("negatives"),
            model_pairs.auc("cosine"),
            model_pairs.auc("information"),
        )
        for name, model_pairs in pairs.items()
    )
    note = ": their distance stands in the titles, in a plane where a unit is 1 of the cosine or 1 nat"
    labels = ("cosine of the sentence vectors", "attention mutual information (nats)")
    data, panels = _clouds(pairs, {"positives": "positives", "negatives": "negatives"}, 0, labels)
    title = "Cosine against attention mutual information"
    figure = Figure("cosine-mi", title, panels, data, about, CENTROIDS + note)
    sections = [
        Section("Positives and negatives", (inputs.description,), _pairs_table(pairs), file="pairs"),
        Section("Cosine against mutual information", figure=figure),
    ]
    if inputs.trees is None:
        return sections
    differences = []
    for name, model_pairs in pairs.items():
        x, y = model_pairs.centroid("equal") - model_pairs.centroid("unequal")
        differences.append(
            f"{name}: pairs with equal trees have {'more' if y > 0 else 'less'} mutual information than others by "
            f"{abs(y):.2f} nats, and a cosine that is {'greater' if x > 0 else 'smaller'} by {abs(x):.2f}"
        )
    labels = (f"cosine {MINUS} the other group's mean", f"MI (nats) {MINUS} the other group's mean")
    note = ". Each group is drawn relative to the centroid of the other, so that they mirror each other"
    data, panels = _clouds(pairs, {"equal": "equal trees", "unequal": "unequal trees"}, 2, labels, mirrored=True)
    title = "Pairs of different texts, by whether their dependency trees are equal"
    figure = Figure("trees", title, panels, data, "; ".join(differences), CENTROIDS + note)
    return [
        *sections,
        Section("Trees", table=_trees_table(pairs), file="trees-table"),
        Section("Negatives by their dependency trees", figure=figure),
    ]


def _pairs_table(pairs: dict[str, AttentionPairs]) -> Table:
    rows = [
        {
            "model": name,
            "cosine +": float(model_pairs.centroid("positives")[0]),
            f"cosine {MINUS}": float(model_pairs.centroid("negatives")[0]),
            "MI +": float(model_pairs.centroid("positives")[1]),
            f"MI {MINUS}": float(model_pairs.centroid("negatives")[1]),
            "centroids apart": model_pairs.distance("positives", "negatives"),
            "AUC cosine": model_pairs.auc("cosine"),
            "AUC MI": model_pairs.auc("information"),
        }
        for name, model_pairs in pairs.items()
    ]
    notes = (
        f"Means of {len(next(iter(pairs.values())).of('positives')):,} positive pairs (+, two dropout views of a "
        f"text) and as many negative ones ({MINUS}, views of two texts). MI: attention mutual information in nats.",
        "Centroids apart: distance of the two means in the plane of cosine and nats. AUC: how often a positive pair "
        "has the greater value than a negative one; 0.5 is chance.",
    )
    return Table.of_rows("Positives and negatives", rows, number=".4f", notes=notes)


def _trees_table(pairs: dict[str, AttentionPairs]) -> Table:
    others = {"equal": "unequal", "unequal": "equal", "unequal_as_long": "equal"}
    rows = []
    for name, model_pairs in pairs.items():
        for kind, other in others.items():
            if count := len(model_pairs.of(kind)):
                centroid = model_pairs.centroid(kind)
                values = (*centroid, *(centroid - model_pairs.centroid(other)))
                rows.append([name, kind.replace("_", ", ", 1).replace("_", " "), count, *map(float, values)])
    last = list(pairs.values())[-1]
    notes = (
        f"{last.sharing:,} texts share their tree with another one, in {last.equal_trees:,} pairs. Trees are equal if "
        "part of speech, head and relation of every word are.",
        "Normalised: minus the centroid of the other group. As long: pairs of texts with as many tokens, since those "
        "with equal trees have that, too, and it raises the mutual information.",
    )
    columns = ("model", "trees", "pairs", "cosine", "MI", "cosine, normalised", "MI, normalised")
    return Table("Negatives by their dependency trees", columns, rows, number=".4f", notes=notes)


def _clouds(
    pairs: dict[str, AttentionPairs],
    kinds: dict[str, str],
    first: int,
    labels: tuple[str, str],
    *,
    mirrored: bool = False,
) -> tuple[pd.DataFrame, dict[str, Callable[[Axes], None]]]:
    """Return the points of two kinds of pairs with their centroids, and for each model a panel with both clouds.

    Args:
        pairs: of each model.
        kinds: the names of the two kinds by their keys in `AttentionPairs`.
        first: number of the colour of the first kind.
        labels: of the two axes.
        mirrored: draw each kind relative to the centroid of the other.
    """
    import pandas as pd

    parts = []
    for name, model_pairs in pairs.items():
        panel = f"{name}: {model_pairs.distance(*kinds):.2f} apart"
        for kind, other in zip(kinds, reversed(kinds), strict=True):
            origin = model_pairs.centroid(other) if mirrored else 0.0
            points = (model_pairs.of(kind)[["cosine", "information"]] - origin).set_axis(["x", "y"], axis=1)
            centre = points.mean().to_frame().T
            parts.append(points.assign(panel=panel, series=kinds[kind]))
            parts.append(centre.assign(panel=panel, series=f"centroid, {kinds[kind]}"))
    data = pd.concat(parts)[["panel", "series", "x", "y"]]
    ends = {"xlim": style.limits(data["x"]), "ylim": style.limits(data["y"])}

    def draw(panel: str, axes: Axes) -> None:
        for number, (series, cloud) in enumerate(data[data["panel"] == panel].groupby("series", sort=False)):
            i = first + number // 2  # the series are a kind, its centroid, the other kind and its centroid
            centroid: Any = style.CENTRE | {"color": style.colour(i), "marker": style.marker(i)}
            look = centroid if number % 2 else style.dots(i, len(cloud))
            axes.scatter(cloud["x"], cloud["y"], label=series, **look)
        axes.set(title=panel, xlabel=labels[0], ylabel=labels[1], **ends)

    return data, {panel: partial(draw, panel) for panel in data["panel"].unique()}
