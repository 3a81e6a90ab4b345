"""Alignment, uniformity, spectrum and hubs of several models; curves of training runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sentcli.figures.figure import Axis, Dots, Figure, Line, Panel
from sentcli.reports.page import Column, Row, Section, Table, number, word

if TYPE_CHECKING:
    from sentcli.analysis.pair_geometry import PairGeometry
    from sentcli.analysis.run_metrics import RunMetrics
    from sentcli.analysis.summary import Geometry

ALIGNMENT, UNIFORMITY = "alignment (lower: positives closer)", "uniformity (lower: more spread out)"
LOGGED = {
    "dev_spearman": "STS-B dev (Spearman × 100)",
    "alignment": ALIGNMENT,
    "uniformity": UNIFORMITY,
    "held_out_perplexity": "perplexity of held-out text",
}


@dataclass(frozen=True)
class Measured:
    """What was measured of one model, or of vectors that have no model here."""

    name: str
    geometry: Geometry
    pairs: PairGeometry | None = None
    sts: float | None = None
    """STS average, times 100."""


def sections(found: Sequence[Measured], runs: Sequence[RunMetrics], chosen: str) -> list[Section]:
    """Return the table and the figures.

    Args:
        found: of each model.
        runs: whose evaluations make curves.
        chosen: in words, which texts and pairs were measured.
    """
    made = [Section("Geometry of the vectors", text=(chosen,), table=_table(found), file="geometry")] if found else []
    if found:
        made.append(Section("Hubs", table=_hubs(found), file="hubs"))
    if any(one.pairs is not None for one in found):
        made.append(Section("Alignment against uniformity", figure=_scatter(found)))
    if found:
        made.append(Section("Spectrum", figure=_spectrum(found)))
    if runs:
        made.append(Section("While training", figure=training_curves(runs)))
    return made


def _table(found: Sequence[Measured]) -> Table:
    paired, scored = (any(getattr(one, key) is not None for one in found) for key in ("pairs", "sts"))
    columns = [Column("model", "word"), *([Column("STS average")] if scored else [])]
    columns += [Column("alignment")] if paired else []
    titles = ("uniformity", "mean cosine", "isotropy", "isotropy whitened", "effective rank", "first direction %")
    columns += [Column(title) for title in titles]
    rows = []
    for one in found:
        g = one.geometry
        cells = [word(one.name), *([number(one.sts)] if scored else [])]
        cells += [number(None if one.pairs is None else one.pairs.alignment, "{:.4f}")] if paired else []
        uniform = g.uniformity if one.pairs is None else one.pairs.uniformity
        cells += [number(value, "{:.4f}") for value in (uniform, g.anisotropy, g.isotropy, g.isotropy_whitened)]
        cells += [number(g.effective_rank, "{:.1f}"), number(100 * g.first_direction, "{:.1f}")]
        rows.append(Row(tuple(cells)))
    dimensions = ", ".join(dict.fromkeys(str(one.geometry.dimension) for one in found))
    note = (
        "Mean cosine: of all pairs (anisotropy). Isotropy: 1 if no direction is preferred (Mu and Viswanath). "
        f"Effective rank: of {dimensions} dimensions (Roy and Vetterli). First direction: its share of the variance."
    )
    return Table("Geometry of the vectors", tuple(columns), tuple(rows), (note,))


def _hubs(found: Sequence[Measured]) -> Table:
    rows = []
    for one in found:
        hubs = one.geometry.hubness
        cells = number(hubs.skewness), number(100 * hubs.antihubs), number(hubs.largest, "{:.0f}")
        rows.append(Row((word(one.name), *cells)))
    note = (
        f"Of how many others a text is one of the {found[0].geometry.hubness.k} nearest: skewness of the counts, share "
        "of texts that are no neighbour of any other, and the largest count."
    )
    columns = Column("model", "word"), Column("skewness"), Column("antihubs %"), Column("greatest hub")
    return Table("Hubs", columns, tuple(rows), (note,))


def _scatter(found: Sequence[Measured]) -> Figure:
    placed = [(one, one.pairs) for one in found if one.pairs is not None]
    names = [one.name for one, _ in placed]
    scores = [one.sts for one, _ in placed if one.sts is not None]
    coloured = len(scores) == len(placed)
    dots = Dots(
        "models",
        [pairs.uniformity for _, pairs in placed],
        [pairs.alignment for _, pairs in placed],
        values=scores if coloured else (),
        labels=names,
        shown=True,
        large=True,
    )
    about = "; ".join(
        f"{one.name}: alignment {pairs.alignment:.3f}, uniformity {pairs.uniformity:.3f}"
        + (f", STS {one.sts:.2f}" if one.sts is not None else "")
        for one, pairs in placed
    )
    scale = "STS average (Spearman × 100)" if coloured else ""
    panel = Panel("Lower left is better", Axis(UNIFORMITY), Axis(ALIGNMENT), (dots,), scale, legend=False)
    return Figure("alignment-uniformity", "Alignment against uniformity", about, (panel,))


def _spectrum(found: Sequence[Measured]) -> Figure:
    lines, words = [], []
    for i, one in enumerate(found):
        values = np.array(one.geometry.singular_values)
        shares = values / values[0] if values[0] > 0 else values
        kept = shares > 1e-4
        lines.append(Line(one.name, np.arange(1, len(values) + 1)[kept], shares[kept], series=i, markers=False))
        words.append(f"{one.name} has an effective rank of {one.geometry.effective_rank:.0f} of {len(values)}")
    axes = Axis("direction, largest first"), Axis("singular value / largest", log=True)
    title = "Singular values of the centred vectors"
    return Figure("spectrum", title, "; ".join(words), (Panel(title, *axes, tuple(lines)),))


def training_curves(runs: Sequence[RunMetrics]) -> Figure:
    """Return how what was logged at evaluations changes over the steps of some runs (WhitenedCSE, fig. 3)."""
    panels, words = [], []
    for key, label in LOGGED.items():
        lines = []
        for i, run in enumerate(runs):
            steps, values = run.column(key)
            if steps:
                lines.append(Line(run.name, steps, values, series=i))
                words.append(f"{run.name}: {key.replace('_', ' ')} from {values[0]:.3f} to {values[-1]:.3f}")
        if lines:
            scaled = Axis(label, log=key == "held_out_perplexity")
            panels.append(Panel(label.split(" (")[0], Axis("optimiser step"), scaled, tuple(lines)))
    return Figure("training-curves", "Evaluations of the training runs", "; ".join(words), tuple(panels), columns=3)
