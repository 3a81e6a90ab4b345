"""What ``analyze attention`` measures of each model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.errors import InputError

if TYPE_CHECKING:
    from sentcli.analysis.attention_views import DropoutViews, Slice
    from sentcli.cli.json_report import Report
    from sentcli.evaluation.candidate import Candidate
    from sentcli.reports.analyses.attention import Attended

HEADS, LAYERS = 3, 4
"""Of the histograms: three adjacent heads in four adjacent layers (miCSE, fig. 8)."""
ENOUGH = 8
"""Tokens, special ones included, that the sentence of the histograms has if none is chosen."""


@dataclass
class Look:
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
        from sentcli.cli.json_report import Report
        from sentcli.machine import environment
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
            return [*self.texts, self.sentence].index(self.sentence)
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
    from sentcli.io.weights import has_weights
    from sentcli.model.exported import read_export

    if read_export(candidate.spec.folder) is not None and not has_weights(candidate.spec.folder):
        raise InputError(f"{candidate.name} is an export, which gives no attention weights: name what it was made of")
