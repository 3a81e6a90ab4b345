"""``analyze geometry``: alignment, uniformity, spectrum and hubs of models, runs or vectors."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from sentcli import console
from sentcli.command.declaration import Flag, verb
from sentcli.command.result import Clock, Record, Result
from sentcli.errors import InputError
from sentcli.io.options import Overwrite
from sentcli.model.options import LoadOptions
from sentcli.pages import style
from sentcli.pages.names import short_names
from sentcli.pages.page import Figure, Section
from sentcli.table import Table
from sentcli.verbs.kinds import shared

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from sentcli.analysis.runs import RunMetrics
    from sentcli.evaluation.evaluated import EvaluatedModel
    from sentcli.evaluation.sts import Pairs

ALIGNMENT, UNIFORMITY = "alignment (lower: positives closer)", "uniformity (lower: more spread out)"
PERPLEXITY = "perplexity of held-out text"
LOGGED = {
    "dev_spearman": "dev (Spearman × 100)",
    "alignment": ALIGNMENT,
    "uniformity": UNIFORMITY,
    "held_out_perplexity": PERPLEXITY,
}
UNDRAWN = ("step", "best", "fitted")
"""What else stands in the lines of evaluations."""
LABEL_WIDTH, LABEL_HEIGHT = 0.4, 0.07
"""Width and height of a name beside a point, as shares of the axes."""


@verb("geometry", common="paths output model positives_above sts pooling data pairs split texts limit overwrite json")
def geometry(
    output: shared.Output,
    paths: Annotated[list[Path] | None, Flag(metavar="[PATH]...", positional=True)] = None,
    model: shared.Models = None,
    data: shared.Data = None,
    pairs: shared.PairsFile = None,
    split: shared.Split = "dev",
    texts: shared.TextsFile = None,
    text_field: shared.TextField = "text",
    limit: shared.Limit = 50_000,
    seed: shared.Seed = 0,
    positives_above: Annotated[str, Flag(metavar="SCORE|all")] = "4",
    neighbours: Annotated[int, Ge(1)] = 10,
    sts: bool = True,
    load: shared.Load = LoadOptions(),
    rerun: shared.Rerun = False,
    overwrite: Overwrite = False,
) -> Result:
    """Alignment, uniformity, anisotropy, spectrum and hubs of models, runs or vectors.

    Alignment and uniformity (Wang and Isola) are SimCSE's: positives are the
    pairs of STS-B with a gold score above 4, uniformity is over all its distinct
    sentences. --texts measures everything but alignment on texts of yours. Models
    are drawn by both, with the STS average as colour (InforMin-CL, fig. 3). Runs
    of train --log-geometry show both over the steps (WhitenedCSE, fig. 3).

    Args:
        paths: Folders of training runs, whose curves are drawn too; or vectors: .npy files, directories of encode.
        positives_above: Pairs with a higher gold score are the positives of alignment; all takes every pair.
        neighbours: Nearest neighbours that hubness counts.
        sts: Score the seven STS tasks of --data, for the colours.

    \b
    Examples:
      sentcli analyze geometry -m minilm -m runs/simcse --data downstream -o geometry
      sentcli analyze geometry runs/simcse runs/whitenedcse --data downstream -o curves
      sentcli analyze geometry vectors.npy encoded/ -o spectrum
      sentcli analyze geometry -m minilm --texts sentences.txt --pairs pairs.tsv --positives-above 0.8 -o own
    """  # noqa: D301
    from sentcli.analysis.runs import is_run, read_metrics
    from sentcli.model.spec_files import is_model_folder

    shared.check(output, overwrite=overwrite)
    try:
        above = None if positives_above == "all" else float(positives_above)
    except ValueError as error:
        raise InputError(f"--positives-above {positives_above}: expected a gold score such as 4, or all") from error
    runs = {str(path): read_metrics(path) for path in paths or [] if is_run(path)}
    stored = {str(path): shared.stored_vectors(path) for path in paths or [] if not is_run(path)}
    trained = [run for run in runs if is_model_folder(Path(run))]
    names = [*(model or []), *(trained if data or pairs or texts else [])]
    tasks = shared.read_stsb(data, pairs, split) if data or pairs else {}
    rows = shared.read_rows(texts, text_field, limit, seed=seed) if texts else None
    if model and not (tasks or rows):
        raise InputError("give --data or --pairs for alignment and uniformity, or --texts to measure texts of yours")
    if not (names or runs or stored):
        raise InputError("give models (-m), folders of training runs, or vectors")
    models = shared.models(names, load, rerun=rerun, kept=[texts])
    inputs = GeometryInputs(tasks, rows, above, neighbours, shared.sts_tasks(data) if data and sts and names else {})
    records = [inputs.of_model(evaluated) for evaluated in models]
    records += [inputs.of_vectors(name, Clock(), vectors) for name, vectors in stored.items()]
    labels = short_names(list(dict.fromkeys([*names, *stored, *runs]))).shown
    page_sections = sections({labels[record.model]: record.results for record in records}, inputs)
    for name, run in runs.items():
        if name not in names:
            evaluations = {"evaluations": list(run.evaluations)}
            records.append(shared.record(name, {"kind": "geometry"}, evaluations, Clock()))
        if not run.evaluations:
            console.warn(f"{run.name} has no evaluation: train with --eval-data for curves")
        elif not run.column("uniformity")[0]:
            console.warn(f"{run.name} logged no alignment and uniformity: train with --log-geometry for those curves")
    evaluated = {labels[name]: run for name, run in runs.items() if run.evaluations}
    if evaluated:
        page_sections.append(Section("While training", figure=training_curves(evaluated)))
    return shared.write("geometry", output, page_sections, records)


@dataclass(frozen=True)
class GeometryInputs:
    """Pairs, texts and options, the same for all models."""

    pairs: dict[str, list[Pairs]]
    """STS-B or a table of pairs, for alignment and uniformity."""
    rows: shared.TextRows | None = None
    """Texts for all other measures, and for uniformity without pairs; if None, the sentences of the pairs."""
    above: float | None = 4.0
    """Pairs with a higher gold score are positives; None takes all."""
    neighbours: int = 10
    sts: dict[str, list[Pairs]] = field(default_factory=dict)
    """STS tasks, whose average colours the models."""

    @property
    def texts(self) -> list[str]:
        """The texts of `rows`."""
        return [] if self.rows is None else self.rows.texts

    @property
    def description(self) -> str:
        """The choices in words."""
        which = "every pair" if self.above is None else f"the pairs with a gold score above {self.above:g}"
        parts = [
            f"Alignment: {which} of {name} ({sum(map(len, subsets)):,} pairs). Uniformity: its distinct sentences."
            for name, subsets in self.pairs.items()
        ]
        if self.rows or self.pairs:
            whose = self.rows.sample.words if self.rows else "the same sentences"
            parts.append(f"{'Everything else' if self.pairs else 'Everything'}: {whose}.")
        return " ".join(parts)

    def of_model(self, model: EvaluatedModel) -> Record:
        """Measure a model."""
        from sentcli.evaluation import sts
        from sentcli.evaluation.pair_geometry import pair_geometry

        clock = Clock()
        subsets = [subset for task in self.pairs.values() for subset in task]
        sentences = sts.sentences(subsets)
        with console.encoding("encoding", len({*sentences, *self.texts})) as progress:
            vectors = model.encode([*sentences, *self.texts], progress)
        average = shared.sts_average(model, self.sts)
        model.release()
        aligned = asdict(pair_geometry(vectors, subsets, self.above)) if subsets else {}
        return self.of_vectors(model.name, clock, vectors.of(self.texts or sentences), model, aligned, average)

    def of_vectors(
        self,
        name: str,
        clock: Clock,
        vectors: Any,
        model: EvaluatedModel | None = None,
        aligned: dict[str, Any] | None = None,
        average: float | None = None,
    ) -> Record:
        """Measure vectors.

        Args:
            name: of the model or the file.
            clock: from when the vectors were begun.
            vectors: ``[n, d]``.
            model: that made the vectors; None for vectors from a file.
            aligned: alignment and uniformity of the pairs.
            average: of the STS tasks.
        """
        from sentcli.analysis.spectrum import geometry

        with console.working(f"{name}: geometry of {len(vectors):,} vectors"):
            results = geometry(vectors, self.neighbours) | (aligned or {}) | {"sts_average": average}
        protocol = {
            "kind": "geometry",
            "pairs": list(self.pairs),
            "positives_above": self.above,
            **(asdict(self.rows.sample) if self.rows else {"texts": None}),
        }
        return shared.record(name, protocol, results, clock, model)


def sections(rows: dict[str, dict[str, Any]], inputs: GeometryInputs) -> list[Section]:
    """Return tables and figures.

    Args:
        rows: the results of each model by its short name.
        inputs: the pairs and texts of the measurements.
    """
    import pandas as pd

    if not rows:
        return []
    frame = pd.DataFrame([{"model": name, "alignment": None, **results} for name, results in rows.items()])
    page_sections = [Section("Geometry of the vectors", (inputs.description,), _table(frame), file="geometry")]
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


def training_curves(runs: dict[str, RunMetrics]) -> Figure:
    """Return the curves of what runs logged at evaluations over their steps (WhitenedCSE, fig. 3)."""
    import pandas as pd

    parts, words, axes = [pd.DataFrame(columns=["panel", "series", "x", "y"])], [], {}
    logged = {key: key.replace("_", " ") for run in runs.values() for line in run.evaluations for key in line}
    logged = {key: label for key, label in {**logged, **LOGGED}.items() if key not in UNDRAWN}
    for key, label in logged.items():
        title = label.split(" (")[0]
        for name, run in runs.items():
            steps, values = run.column(key)
            if steps:
                parts.append(pd.DataFrame({"panel": title, "series": name, "x": steps, "y": values}))
                words.append(f"{name}: {key.replace('_', ' ')} from {values[0]:.3f} to {values[-1]:.3f}")
                axes[title] = {"xlabel": "optimiser step", "ylabel": label}
    if PERPLEXITY in axes:
        axes[PERPLEXITY]["yscale"] = "log"
    data = pd.concat(parts[1:] or parts)
    panels = style.line_panels(data, axes, list(runs), whole=True)
    return Figure("training-curves", "Evaluations of the training runs", panels, data, "; ".join(words), columns=3)
