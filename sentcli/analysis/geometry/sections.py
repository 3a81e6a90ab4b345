"""The tables and figures of ``analyze geometry``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sentcli.analysis.curves import ALIGNMENT, UNIFORMITY
from sentcli.pages import style
from sentcli.pages.page import Figure, Section
from sentcli.table import Table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


LABEL_WIDTH, LABEL_HEIGHT = 0.4, 0.07
"""Width and height of a name beside a point, as shares of the axes."""


def sections(rows: dict[str, dict[str, Any]], description: str) -> list[Section]:
    """Return tables and figures.

    Args:
        rows: the results of each model by its short name.
        description: of the pairs and texts of the measurements.
    """
    import pandas as pd

    if not rows:
        return []
    frame = pd.DataFrame([{"model": name, "alignment": None, **results} for name, results in rows.items()])
    page_sections = [Section("Geometry of the vectors", (description,), _table(frame), file="geometry")]
    aligned = frame[frame["alignment"].notna()]
    if len(aligned):
        page_sections.append(Section("Alignment against uniformity", figure=_scatter(aligned)))
    page_sections.append(Section("Spectrum", figure=_spectrum(frame)))
    hubs = {name: results["hubness"] for name, results in rows.items()}
    counts = [[name, hub["skewness"], 100 * hub["antihubs"], hub["largest"]] for name, hub in hubs.items()]
    note = (
        f"Of how many others a text is one of the {next(iter(hubs.values()))['k']} nearest: skewness of the counts, "
        "share of texts that are no neighbour of any other, and the largest count."
    )
    table = Table("Hubs", ["model", "skewness", "antihubs %", "greatest hub"], counts, notes=(note,))
    return [*page_sections, Section("Hubs", table=table, file="hubs")]


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
    absent = [heads[name] for name in ("sts_average", "alignment") if frame[name].isna().all()]
    columns = frame.assign(first_direction=100 * frame["first_direction"])[list(heads)].rename(columns=heads)
    dimensions = ", ".join(dict.fromkeys(map(str, frame["dimension"])))
    note = (
        "Mean cosine: of all pairs (anisotropy). Isotropy: 1 if no direction is preferred (Mu and Viswanath). "
        f"Effective rank: of {dimensions} dimensions (Roy and Vetterli). First direction: its share of the variance."
    )
    formats = {"STS average": ".2f", "effective rank": ".1f", "first direction %": ".1f"}
    title = "Geometry of the vectors"
    return Table.of_frame(title, columns.drop(columns=absent), formats=formats, number=".4f", notes=(note,))


def _scatter(frame: pd.DataFrame) -> Figure:
    data, title = frame[["model", "uniformity", "alignment", "sts_average"]], "Alignment against uniformity"
    place = {"panel": title, "series": data["model"], "x": data["uniformity"], "y": data["alignment"]}
    data = data.assign(**place, value=data["sts_average"])
    scored = data["sts_average"].notna()
    about = "; ".join(
        f"{row.model}: alignment {row.alignment:.3f}, uniformity {row.uniformity:.3f}"
        + (f", STS {row.sts_average:.2f}" if has_score else "")
        for row, has_score in zip(data.itertuples(), scored, strict=True)
    )

    def draw(axes: Axes) -> None:
        look: dict[str, Any] = {"s": 60, "edgecolors": style.INK, "linewidths": 0.6}
        look |= {"c": data["sts_average"].astype(float)} if scored.all() else {"color": style.colour(0)}
        dots = axes.scatter(data["uniformity"], data["alignment"], **look)
        if scored.all():
            style.colour_bar(axes, dots, "STS average (Spearman × 100)")
        _names(axes, list(data["uniformity"]), list(data["alignment"]), list(data["model"]))
        axes.set(title="Lower left is better", xlabel=UNIFORMITY, ylabel=ALIGNMENT)

    return Figure("alignment-uniformity", title, {title: draw}, data, about)


def _names(axes: Axes, x: list[float], y: list[float], names: list[str]) -> None:
    """Write a name beside each point, on the side with more room, and raised above names that it would overlap."""
    import numpy as np

    def shares(values: list[float]) -> Any:
        spread = float(np.ptp(values))
        return (np.array(values) - min(values)) / spread if spread else np.full(len(values), 0.5)

    across, up = shares(x), shares(y)
    placed: list[tuple[float, float]] = []
    for i in np.argsort(up, kind="stable"):
        height = up[i]
        for other_x, other_height in sorted(placed, key=lambda place: place[1]):
            if abs(other_x - across[i]) < LABEL_WIDTH and height - other_height < LABEL_HEIGHT:
                height = other_height + LABEL_HEIGHT
        placed.append((across[i], height))
        side = -1 if across[i] > 0.5 else 1
        raised = 4 + (height - up[i]) * 3.5 * 72 * 0.6  # in points; the axes take about 0.6 of a panel of 3.5 inches
        offset: Any = {"xytext": (7 * side, raised), "textcoords": "offset points"}
        offset["ha"] = "right" if side < 0 else "left"
        axes.annotate(style.short(names[i], 32), (x[i], y[i]), fontsize=8, **offset).set_in_layout(False)
    axes.margins(x=0.15, y=0.12)


def _spectrum(frame: pd.DataFrame) -> Figure:
    import pandas as pd

    parts, words = [], []
    for row in frame.itertuples():
        values = pd.Series(row.singular_values)
        shares = values / values[0] if values[0] > 0 else values
        parts.append(pd.DataFrame({"series": row.model, "x": shares.index + 1, "y": shares})[shares > 1e-4])
        words.append(f"{row.model} has an effective rank of {row.effective_rank:.0f} of {len(values)}")
    title = "Singular values of the centred vectors"
    data = pd.concat(parts).assign(panel=title)
    axes = {"xlabel": "direction, largest first", "ylabel": "singular value / largest", "yscale": "log"}
    panels = style.line_panels(data, {title: axes}, list(frame["model"]))
    return Figure("spectrum", title, panels, data, "; ".join(words))
