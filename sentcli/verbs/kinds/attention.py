"""The attention of two dropout views of a text: of one sentence, of every head, and to tell texts apart (miCSE)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_doc import Doc
from annotated_types import Ge, Le

from sentcli import console
from sentcli.errors import InputError
from sentcli.model.options import LoadOptions
from sentcli.pages import style
from sentcli.pages.page import Figure, Section
from sentcli.table import Table
from sentcli.verbs.declaration import Flag, Group, verb
from sentcli.verbs.kinds import attention_heads, shared
from sentcli.verbs.kinds.shared import Analysis

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from sentcli.analysis.attention_pairs import AttentionPairs
    from sentcli.analysis.attention_views import DropoutViews, Slice
    from sentcli.evaluation.evaluated import EvaluatedModel
    from sentcli.verbs.outcome import Outcome

HEADS, LAYERS = 3, 4
"""The histograms are those of three adjacent heads in four adjacent layers (miCSE, fig. 8)."""
ENOUGH = 8
"""If no sentence is chosen, the histograms are of the first with so many tokens, special ones included."""
SHOWN = "What is compared"
CENTROIDS = "Large marks are centroids"
COSINE, NATS = "cosine of the sentence vectors", "attention mutual information (nats)"
MINUS = "\N{MINUS SIGN}"


@verb("attention")
def attention(
    output: shared.Output,
    texts: Annotated[
        str | None,
        Doc("Texts, one a line or a row of a table."),
        Flag(metavar="[TEXTS]", show_default=False, positional=True),
    ] = None,
    model: shared.Models = None,
    text_field: shared.TextField = "text",
    limit: shared.Limit = 200,
    trees: Annotated[
        str | None,
        Doc("Split pairs of texts by their dependency trees: a CoNLL-U file, whose texts are taken, or spaCy."),
        Flag(metavar="FILE|spacy[:MODEL]", show_default=False, panel=shared.INPUT),
    ] = None,
    sentence: Annotated[
        str | None,
        Doc("Whose histograms are drawn: a text's number from 1, or a text; default: the first of 8 tokens."),
        Flag(metavar="N|TEXT", show_default=False, panel=SHOWN),
    ] = None,
    layers: Annotated[
        str,
        Doc("Whose attention makes the MI of a pair, as ami.layers of training: from 0, from the end, or shares."),
        Flag(metavar="FIRST:END", panel=SHOWN),
    ] = "-5:-1",
    slicing: Annotated[
        Literal["layer-pairs", "head-pairs"],
        Doc("A slice is one head in layers l and l + 2 (miCSE's code), or two heads of a layer (the paper)."),
        Flag(panel=SHOWN),
    ] = "layer-pairs",
    first_head: Annotated[int, Ge(1), Doc("Of the three heads of the histograms, from 1."), Flag(panel=SHOWN)] = 1,
    seed: Annotated[int, Ge(0), Doc("Of dropout and of the negatives."), Flag(panel=SHOWN)] = 0,
    dropout: Annotated[
        float | None,
        Ge(0),
        Le(0.99),
        Doc("Of the views, everywhere, instead of the model's own."),
        Flag(panel=SHOWN),
    ] = None,
    load: Annotated[
        LoadOptions,
        Group(
            without=("backend", "precision", *shared.NOT_LOADED_SO),
            help={"max_length": "Tokens a text; miCSE trains on 32."},
        ),
    ] = LoadOptions(max_length=32, backend="torch", precision="fp32"),
    overwrite: shared.Overwrite = False,
) -> Analysis:
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
    shared.check(output, overwrite=overwrite)
    if not model:
        raise InputError("give models: -m")
    lines, parsed = _texts_and_trees(texts, trees, text_field, limit)
    short = shared.short_names(model)
    measured = AttentionInputs(lines, parsed, trees, sentence, layers, slicing, first_head, seed, dropout)
    pairs, slices, reports = {}, {}, []
    for each in shared.models(model, load):
        name = short[each.name]
        pairs[name], slices[name], report = measured.of(each)
        reports.append(report)
    made = _pair_sections(pairs, measured.words)
    made += [
        Section("Layers and heads", table=attention_heads.heads_table(pairs), file="heads-table"),
        Section("Two views, head by head", figure=attention_heads.heads_figure(pairs)),
    ]
    if changes := attention_heads.changes_figure(pairs):
        made.append(Section("Heads that differ from the first model's", figure=changes))
    for i, (name, report) in enumerate(zip(slices, reports, strict=True), 1):
        file = "attention-views" if len(slices) == 1 else f"attention-views-{i}"
        title = "One sentence" if len(slices) == 1 else f"One sentence: {name}"
        figure = attention_heads.histograms(
            name, slices[name], file, measured.shown, report.results["sentence"]["tokens"]
        )
        made.append(Section(title, figure=figure))
    return shared.write("attention", output, made, [report.to_dict() for report in reports])


def _texts_and_trees(
    texts: str | None, trees: str | None, text_field: str, limit: int
) -> tuple[list[str], list[str] | None]:
    """Return the texts, and their trees if they are asked for.

    Raises:
        InputError: also if no two texts share a tree.
    """
    from sentcli.analysis.trees import is_spacy, parse_with_spacy, read_conllu

    if trees is None or is_spacy(trees):
        if texts is None:
            raise InputError("give a file of texts, or --trees FILE.conllu, whose texts are taken")
        lines = shared.read_texts(texts, text_field, limit)
        if trees is None:
            return lines, None
        with console.working(f"parsing {len(lines):,} texts"):
            parsed = parse_with_spacy(trees, lines)
    else:
        if texts is not None:
            raise InputError(f"--trees {trees} brings its own texts: leave {texts} out")
        read = read_conllu(Path(trees), limit)
        lines, parsed = shared.enough(list(read), trees, len(read)), list(read.values())
    if len(set(parsed)) == len(parsed):
        raise InputError(f"no two of the {len(lines):,} texts share a tree: take more (--limit), or shorter ones")
    if len(set(parsed)) == 1:
        raise InputError(f"all {len(lines):,} texts have the same tree: there are no others to compare with")
    return lines, parsed


@dataclass
class AttentionInputs:
    """What the models are measured on, the same for all."""

    texts: list[str]
    trees: list[str] | None
    parser: str | None
    """Where the trees come from."""
    sentence: str | None
    """The number or the text of the sentence of the histograms, if one is chosen."""
    layers: str
    slicing: str
    first_head: int
    seed: int
    dropout: float | None
    shown: str = ""
    """The sentence of the histograms: the first model chooses it where the user does not."""

    @property
    def words(self) -> str:
        """The choices in words."""
        slices = {"layer-pairs": "one head in every second layer", "head-pairs": "two adjacent heads of a layer"}
        rate = "the models' own dropout" if self.dropout is None else f"dropout {self.dropout:g}"
        return (
            f"{len(self.texts):,} texts, two views each with {rate}, seed {self.seed}. Mutual information of a pair: "
            f"layers {self.layers}, slices of {slices[self.slicing]}, all positions, the mean over slices. Cosine: of "
            "the vectors that the model gives, with dropout."
        )

    @property
    def all_texts(self) -> list[str]:
        """The texts, and the sentence of the histograms where it is given as a text."""
        own = [self.sentence] if self.sentence is not None and not self.sentence.isdecimal() else []
        return [*self.texts, *own]

    def of(self, model: EvaluatedModel) -> tuple[AttentionPairs, list[Slice], Outcome]:
        """Measure a model: its pairs, and the slices of the sentence that is shown."""
        from sentcli.analysis.attention_pairs import attention_pairs, tree_pairs
        from sentcli.analysis.attention_views import DropoutViews
        from sentcli.verbs.outcome import Outcome

        report = Outcome("analyze", model.name)
        _refuse_export(model)
        views = DropoutViews(model.encoder, self.all_texts, self.seed, self.dropout)
        layers = self._layers(views)
        slices, tokens = self._slices(views, layers)
        count = len(self.texts)
        total = count + (tree_pairs(self.trees, views.lengths[:count]) if self.trees else 0)
        with console.counting(f"comparing with {model.name}", total) as tick:
            pairs = attention_pairs(views, count, layers, self.slicing, self.seed, self.trees, tick)
        views.close()
        shown = {"text": self.shown, "tokens": tokens, "slices": [part.to_dict() for part in slices]}
        report.results = {"texts": count, **pairs.to_dict(), "sentence": shown}
        model.release()
        protocol = {
            "kind": "attention",
            "texts": count,
            "layers": [layer + 1 for layer in layers],
            "slicing": self.slicing,
            "samples": "all positions",
            "scale_by_share": False,
            "negatives": "view 2 of one other text, drawn at random",
            "dropout": "the model's own" if self.dropout is None else self.dropout,
            "trees": self.parser,
            "seed": self.seed,
        }
        return pairs, slices, shared.describe(report, model.described, protocol, self.seed)

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
        self.shown = self.all_texts[number]
        weights = views.of(number).weights
        heads = range(self.first_head - 1, min(self.first_head - 1 + HEADS, weights.shape[2]))
        return slices_of(weights, layers[:LAYERS], heads), weights.shape[-1]

    def _number(self, lengths: list[int]) -> int:
        if self.shown:
            return self.all_texts.index(self.shown)
        if self.sentence is None:
            return next((i for i, length in enumerate(lengths) if length >= ENOUGH), lengths.index(max(lengths)))
        if not self.sentence.isdecimal():
            return self.all_texts.index(self.sentence)
        if not 1 <= int(self.sentence) <= len(self.texts):
            raise InputError(f"--sentence {self.sentence}: there are {len(self.texts):,} texts, numbered from 1")
        return int(self.sentence) - 1


def _refuse_export(model: EvaluatedModel) -> None:
    """Refuse an exported folder, which gives no attention weights.

    Raises:
        InputError: if it is one.
    """
    from sentcli.io.weights import has_weights
    from sentcli.model.exported import read_export

    if read_export(model.spec.folder) is not None and not has_weights(model.spec.folder):
        raise InputError(f"{model.name} is an export, which gives no attention weights: name what it was made of")


def _pair_sections(pairs: dict[str, AttentionPairs], words: str) -> list[Section]:
    clouds = {
        f"{name}: {each.distance('positives', 'negatives'):.2f} apart": [
            _cloud(each, "positives", "positives"),
            _cloud(each, "negatives", "negatives"),
        ]
        for name, each in pairs.items()
    }
    title = "Cosine against attention mutual information"
    note = f"{CENTROIDS}: their distance stands in the titles, in a plane where a unit is 1 of the cosine or 1 nat"
    about = "; ".join(
        "{}: positive pairs lie around cosine {:.2f} and {:.2f} nats, negative pairs around {:.2f} and {:.2f}; cosine "
        "tells them apart with AUC {:.3f}, mutual information with {:.3f}".format(
            name, *each.centroid("positives"), *each.centroid("negatives"), each.auc("cosine"), each.auc("information")
        )
        for name, each in pairs.items()
    )
    figure = _clouds_figure("cosine-mi", title, clouds, 0, (COSINE, NATS), about, note)
    made = [
        Section("Positives and negatives", (words,), table=_pairs_table(pairs), file="pairs"),
        Section("Cosine against mutual information", figure=figure),
    ]
    return made if next(iter(pairs.values())).sharing is None else made + _tree_sections(pairs)


def _tree_sections(pairs: dict[str, AttentionPairs]) -> list[Section]:
    clouds, about = {}, []
    for name, each in pairs.items():
        clouds[f"{name}: {each.distance('equal', 'unequal'):.2f} apart"] = [
            _cloud(each, "equal", "equal trees", each.centroid("unequal")),
            _cloud(each, "unequal", "unequal trees", each.centroid("equal")),
        ]
        x, y = each.centroid("equal") - each.centroid("unequal")
        about.append(
            f"{name}: pairs with equal trees have {'more' if y > 0 else 'less'} mutual information than others by "
            f"{abs(y):.2f} nats, and a cosine that is {'greater' if x > 0 else 'smaller'} by {abs(x):.2f}"
        )
    labels = (f"cosine {MINUS} the other group's mean", f"MI (nats) {MINUS} the other group's mean")
    note = f"{CENTROIDS}. Each group is drawn relative to the centroid of the other, so that they mirror each other"
    title = "Pairs of different texts, by whether their dependency trees are equal"
    figure = _clouds_figure("trees", title, clouds, 2, labels, "; ".join(about), note)
    return [
        Section("Trees", table=_trees_table(pairs), file="trees-table"),
        Section("Negatives by their dependency trees", figure=figure),
    ]


def _pairs_table(pairs: dict[str, AttentionPairs]) -> Table:
    rows = []
    for name, each in pairs.items():
        (x, y), (u, v) = each.centroid("positives"), each.centroid("negatives")
        apart = each.distance("positives", "negatives")
        rows.append([name, *map(float, (x, u, y, v, apart, each.auc("cosine"), each.auc("information")))])
    columns = ("model", "cosine +", f"cosine {MINUS}", "MI +", f"MI {MINUS}", "centroids apart", "AUC cosine", "AUC MI")
    notes = (
        f"Means of {len(next(iter(pairs.values())).of('positives')):,} positive pairs (+, two dropout views of a "
        f"text) and as many negative ones ({MINUS}, views of two texts). MI: attention mutual information in nats.",
        "Centroids apart: distance of the two means in the plane of cosine and nats. AUC: how often a positive pair "
        "has the greater value than a negative one; 0.5 is chance.",
    )
    return Table("Positives and negatives", columns, rows, formats=dict.fromkeys(columns[1:], ".4f"), notes=notes)


def _trees_table(pairs: dict[str, AttentionPairs]) -> Table:
    groups = {"equal": "unequal", "unequal": "equal", "unequal_as_long": "equal"}
    rows = []
    for name, each in pairs.items():
        for kind, other in groups.items():
            if count := len(each.of(kind)):
                centroid = each.centroid(kind)
                values = (*centroid, *(centroid - each.centroid(other)))
                rows.append([name, kind.replace("_", ", ", 1).replace("_", " "), count, *map(float, values)])
    last = list(pairs.values())[-1]
    notes = (
        f"{last.sharing:,} texts share their tree with another one, in {last.equal_trees:,} pairs. Trees are equal if "
        "part of speech, head and relation of every word are.",
        "Normalised: minus the centroid of the other group. As long: pairs of texts with as many tokens, since those "
        "with equal trees have that, too, and it raises the mutual information.",
    )
    numbers = ("cosine", "MI", "cosine, normalised", "MI, normalised")
    columns, formats = ("model", "trees", "pairs", *numbers), dict.fromkeys(numbers, ".4f")
    return Table("Negatives by their dependency trees", columns, rows, formats=formats, notes=notes)


def _cloud(pairs: AttentionPairs, kind: str, name: str, origin: Any = (0.0, 0.0)) -> pd.DataFrame:
    """Return the pairs of a kind and, last, their centroid, relative to an origin."""
    import pandas as pd

    group = pairs.of(kind)
    cloud = pd.DataFrame(
        {"series": name, "x": group["cosine"] - origin[0], "y": group["information"] - origin[1]},
    )
    centre = {"series": [f"centroid, {name}"], "x": [cloud["x"].mean()], "y": [cloud["y"].mean()]}
    return pd.concat([cloud, pd.DataFrame(centre)])


def _clouds_figure(
    name: str,
    title: str,
    clouds: dict[str, list[pd.DataFrame]],
    first: int,
    labels: tuple[str, str],
    about: str,
    note: str,
) -> Figure:
    """Return a panel with two clouds of pairs for each title; `first` is the number of the first one's colour."""
    import pandas as pd

    data = pd.concat([cloud.assign(panel=panel) for panel, groups in clouds.items() for cloud in groups])
    ends = {"xlim": style.limits(data["x"]), "ylim": style.limits(data["y"])}

    def draw(panel: str, axes: Axes) -> None:
        for i, cloud in enumerate(clouds[panel], first):
            group, centre = cloud.iloc[:-1], cloud.iloc[-1]
            axes.scatter(group["x"], group["y"], label=group["series"].iloc[0], **style.dots(i, len(group)))
            look: Any = style.CENTRE | {"color": style.colour(i), "marker": style.marker(i)}
            axes.scatter([centre["x"]], [centre["y"]], label=centre["series"], **look)
        axes.set(title=panel, xlabel=labels[0], ylabel=labels[1], **ends)

    panels = [partial(draw, panel) for panel in clouds]
    return Figure(name, title, panels, data[["panel", "series", "x", "y"]], about, note)
