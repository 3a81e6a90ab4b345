"""The tables and figures of ``analyze geometry``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sentcli.analysis.curves import ALIGNMENT, UNIFORMITY
from sentcli.pages import style
from sentcli.pages.page import Figure, Section
from sentcli.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes


LABEL_WIDTH = 0.4
LABEL_HEIGHT = 0.07
"""Width and height of a name beside a point, as shares of the axes."""
POINTS_OF_AXES = 3.5 * 72 * 0.6
"""The height of the axes in points; they take about 0.6 of a panel of 3.5 inches."""


def sections(rows: dict[str, dict[str, Any]], description: str) -> list[Section]:
    """Return tables and figures.

    Args:
        rows: the results of each model by its short name.
        description: of the pairs and texts of the measurements.
    """
    if not rows:
        return []
    frame = pd.DataFrame([{"model": name, "alignment": None, **results} for name, results in rows.items()])
    page_sections = [Section("Geometry of the vectors", (description,), _table(frame), file="geometry")]
    aligned = frame[frame["alignment"].notna()]
    if len(aligned):
        page_sections.append(Section("Alignment against uniformity", figure=_scatter(aligned)))
    page_sections.append(Section("Spectrum", figure=_spectrum(frame)))
    page_sections.append(Section("Hubs", table=_hubs(rows), file="hubs"))
    return page_sections


def _hubs(results: dict[str, dict[str, Any]]) -> Table:
    """Return the table of hubs, given the results of each model."""
    rows = []
    for name, of_model in results.items():
        hubs = of_model["hubness"]
        rows.append([name, hubs["skewness"], 100 * hubs["antihubs"], hubs["largest"]])
    k = next(iter(results.values()))["hubness"]["k"]
    note = (
        f"Of how many others a text is one of the {k} nearest: skewness of the counts, "
        "share of texts that are no neighbour of any other, and the largest count."
    )
    return Table("Hubs", ["model", "skewness", "antihubs %", "greatest hub"], rows, notes=(note,))


def _table(frame: pd.DataFrame) -> Table:
    heads = {
        "model": "model",
        "sts_average": "STS average",
        "alignment": "alignment",
        "uniformity": "uniformity",
        "anisotropy": "mean cosine",
        "isotropy": "isotropy",
        "isotropy_whitened": "isotropy whitened",
        "effective_rank": "effective rank",
        "first_direction": "first direction %",
    }
    for name in ("sts_average", "alignment"):
        if frame[name].isna().all():
            del heads[name]
    columns = frame.assign(first_direction=100 * frame["first_direction"])
    columns = columns[list(heads)].rename(columns=heads)
    dimensions = ", ".join(dict.fromkeys(map(str, frame["dimension"])))
    note = (
        "Mean cosine: of all pairs (anisotropy). Isotropy: 1 if no direction is preferred (Mu and Viswanath). "
        f"Effective rank: of {dimensions} dimensions (Roy and Vetterli). First direction: its share of the variance."
    )
    formats = {"STS average": ".2f", "effective rank": ".1f", "first direction %": ".1f"}
    return Table.of_frame("Geometry of the vectors", columns, formats=formats, number=".4f", notes=(note,))


def _scatter(frame: pd.DataFrame) -> Figure:
    title = "Alignment against uniformity"
    data = frame[["model", "uniformity", "alignment", "sts_average"]]
    data = data.assign(
        panel=title,
        series=data["model"],
        x=data["uniformity"],
        y=data["alignment"],
        value=data["sts_average"],
    )
    about = []
    for row in data.itertuples():
        words = f"{row.model}: alignment {row.alignment:.3f}, uniformity {row.uniformity:.3f}"
        if pd.notna(row.sts_average):
            words += f", STS {row.sts_average:.2f}"
        about.append(words)

    def draw(axes: Axes) -> None:
        look: dict[str, Any] = {"s": 60, "edgecolors": style.INK, "linewidths": 0.6}
        if data["sts_average"].notna().all():
            dots = axes.scatter(data["x"], data["y"], c=data["sts_average"].astype(float), **look)
            style.colour_bar(axes, dots, "STS average (Spearman × 100)")
        else:
            axes.scatter(data["x"], data["y"], color=style.colour(0), **look)
        _names(axes, list(data["x"]), list(data["y"]), list(data["model"]))
        axes.set(title="Lower left is better", xlabel=UNIFORMITY, ylabel=ALIGNMENT)

    return Figure("alignment-uniformity", title, {title: draw}, data, about)


def _names(axes: Axes, x: list[float], y: list[float], names: list[str]) -> None:
    """Write a name beside each point, on the side with more room, and raised above names that it would overlap."""
    across = _shares(x)
    up = _shares(y)
    placed: list[tuple[float, float]] = []
    for i in np.argsort(up, kind="stable"):
        height = up[i]
        for other_height, other_x in sorted(placed):
            is_close = abs(other_x - across[i]) < LABEL_WIDTH
            if is_close and height - other_height < LABEL_HEIGHT:
                height = other_height + LABEL_HEIGHT
        placed.append((height, across[i]))
        raised = 4 + (height - up[i]) * POINTS_OF_AXES
        is_left = across[i] <= 0.5
        name = axes.annotate(
            style.short_label(names[i], 32),
            (x[i], y[i]),
            xytext=(7.0 if is_left else -7.0, raised),
            textcoords="offset points",
            ha="left" if is_left else "right",
            fontsize=8,
        )
        name.set_in_layout(False)
    axes.margins(x=0.15, y=0.12)


def _shares(values: list[float]) -> Any:
    """Return values as shares of the way from the least to the greatest; one half each if they are all the same."""
    spread = float(np.ptp(values))
    if not spread:
        return np.full(len(values), 0.5)
    return (np.array(values) - min(values)) / spread


def _spectrum(frame: pd.DataFrame) -> Figure:
    parts = []
    about = []
    for row in frame.itertuples():
        shares = pd.Series(row.singular_values)
        if shares[0] > 0:
            shares = shares / shares[0]
        part = pd.DataFrame({"series": row.model, "x": shares.index + 1, "y": shares})
        parts.append(part[shares > 1e-4])
        about.append(f"{row.model} has an effective rank of {row.effective_rank:.0f} of {len(shares)}")
    title = "Singular values of the centred vectors"
    data = pd.concat(parts).assign(panel=title)
    axes = {"xlabel": "direction, largest first", "ylabel": "singular value / largest", "yscale": "log"}
    panels = style.line_panels(data, {title: axes}, list(frame["model"]))
    return Figure("spectrum", title, panels, data, about)
