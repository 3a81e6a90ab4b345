"""``analyze objectives``: loss terms of training runs, their shares of the gradient, and the groups of whitening."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from sentcli import console
from sentcli.bounds import Holds
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
    import numpy as np
    import numpy.typing as npt
    import pandas as pd

    from sentcli.analysis.runs import LossTerms
    from sentcli.analysis.spectrum import GroupSpectra

STEP = "optimiser step"
PERCENTILES = {"y": 50, "low": 5, "high": 95}


@verb("objectives")
def objectives(
    runs: Annotated[list[Path], Flag(metavar="RUN...", positional=True)],
    output: shared.Output,
    model: Annotated[shared.Models, Holds.MODEL, Flag("-m", needs="texts")] = None,
    texts: shared.TextsFile = None,
    text_field: shared.TextField = "text",
    limit: shared.Limit = 10_000,
    groups: Annotated[int, Ge(0)] = 0,
    seed: Annotated[int, Ge(0)] = 0,
    load: shared.Load = LoadOptions(normalize=False),
    rerun: shared.Rerun = False,
    overwrite: Overwrite = False,
) -> Result:
    """Loss terms of training runs, their shares of the gradient, and the groups that whitening works on.

    Training measures every 50 steps which part each term has in the gradient at
    the encoder (--set share_every). With --texts, the vectors of the finished
    runs and of the models (-m, such as the model that a run started from) are
    cut into shuffled groups of columns as WhitenedCSE does, and the eigenvalues
    and condition numbers of each group's covariance are shown.

    Args:
        runs: Folders of training runs, finished or not.
        groups: Groups that the columns are cut into; 0: as the run whitens them, else two columns a group.
        seed: Seed of the texts that are drawn and of the order of the columns.

    \b
    Examples:
      sentcli analyze objectives runs/micse runs/informin-cl -o shares
      sentcli analyze objectives runs/whitenedcse -m minilm --pooling cls --texts sentences.txt -o groups
      sentcli analyze objectives runs/whitenedcse --texts sentences.txt --groups 32 -o thirty-two
    """  # noqa: D301
    from sentcli.analysis.runs import read_terms
    from sentcli.analysis.spectrum import group_spectra

    shared.check(output, overwrite=overwrite)
    shared.check_distinct(list(map(str, runs)))
    terms = {str(path): read_terms(path) for path in runs}
    for name, run in terms.items():
        if not run.finished:
            console.warn(f"{name} is not finished: its last step is {run.steps:,}")
        if len(run.terms) == 1:
            console.note(f"{name}: its loss is {run.terms[0].name} alone, whose share of the gradient is 100 %")
        elif not run.measured:
            console.warn(f"{name} logged no shares of the gradient: train with --set share_every=50")
    names = [*(model or []), *(name for name, run in terms.items() if run.finished)] if texts else []
    if texts and not names:
        raise InputError("--texts: none of the runs is finished, so there is no model: name one with -m")
    rows = shared.read_rows(texts, text_field, limit, seed=seed) if texts else None
    short = short_names(list(dict.fromkeys([*(model or []), *terms]))).shown
    kind = {"kind": "objectives"}
    records = {name: Record("analyze", name, kind, run.to_dict()) for name, run in terms.items()}
    groups = groups or next((run.groups for run in terms.values() if run.groups), 0)
    spectra = {}
    for evaluated in shared.models(names, load, rerun=rerun, kept=[texts]):
        assert rows is not None
        clock = Clock()
        of_run = records[evaluated.name].results if evaluated.name in records else {}
        vectors = shared.vectors_of(evaluated, rows.texts).of(rows.texts)
        measured = group_spectra(vectors, groups or max(1, vectors.shape[1] // 2), seed)
        choices = {**kind, **asdict(rows.sample), "groups": len(measured.eigenvalues)}
        results = {**of_run, "whitening": measured.to_dict()}
        records[evaluated.name] = shared.record(evaluated.name, choices, results, clock, evaluated, seed)
        spectra[short[evaluated.name]] = measured
    poolings = dict.fromkeys(r.protocol["pooling"] for r in records.values() if "pooling" in r.protocol)
    if len(poolings) > 1:
        console.warn(f"the models pool differently ({', '.join(poolings)}), which moves the groups: --pooling sets one")
    sections = term_sections({short[name]: run for name, run in terms.items()})
    if rows and spectra:
        note = f"Vectors of {rows.sample.words} before normalisation, columns shuffled with seed {seed}."
        of_groups = [
            [name, i, float(values[0]), float(values[-1]), float(condition)]
            for name, spectrum in spectra.items()
            for i, (values, condition) in enumerate(zip(spectrum.eigenvalues, spectrum.conditions, strict=True), 1)
        ]
        title, columns = "Every group", ("model", "group", "largest eigenvalue", "smallest", "condition")
        sections += [
            Section("Whitening groups", (note,), table=_groups_table(spectra), file="groups"),
            Section("Eigenvalues of the whitening groups", figure=_groups_figure(spectra)),
            Section(title, table=Table(title, columns, of_groups, number=".3g"), file="every-group", folded=True),
        ]
    return shared.write("objectives", output, sections, list(records.values()))


def term_sections(runs: dict[str, LossTerms]) -> list[Section]:
    """Return tables and figures of the loss terms of runs by their short names."""
    if not runs:
        return []
    sections = [Section("Terms of the loss", table=_terms_table(runs), file="terms")]
    if any(run.measured for run in runs.values()):
        sections.append(Section("Shares of the gradient", figure=_shares_figure(runs)))
    return [*sections, Section("Terms over the steps", figure=_terms_figure(runs))]


def _terms_table(runs: dict[str, LossTerms]) -> Table:
    import pandas as pd

    rows = []
    for name, run in runs.items():
        for term in run.terms:
            tenth = max(1, len(term.values) // 10)
            shares, values = 100 * pd.Series(term.shares, dtype=float), pd.Series(term.values, dtype=float)
            rows.append(
                {
                    "run": name,
                    "term": term.name,
                    "weight": term.weight,
                    "share %": shares.mean(),
                    "least %": shares.min(),
                    "greatest %": shares.max(),
                    "measured": len(shares),
                    "term, first steps": values[:tenth].mean(),
                    "term, last steps": values[-tenth:].mean(),
                }
            )
    formats = {"weight": "g", "term, first steps": ".4g", "term, last steps": ".4g"}
    note = (
        "Share: norm of the weighted term's gradient at the encoder over the sum of these norms, the mean of the steps "
        "where training measured it (--set share_every). Terms are unweighted: means of the first and the last tenth."
    )
    return Table.of_frame("Terms of the loss", pd.DataFrame(rows), formats=formats, number=".3g", notes=(note,))


def _shares_figure(runs: dict[str, LossTerms]) -> Figure:
    import pandas as pd

    measured = {name: run for name, run in runs.items() if run.measured}
    parts, about = [], []
    for name, run in measured.items():
        for term in run.terms:
            shares = pd.Series(term.shares, dtype=float)
            part = pd.DataFrame({"panel": name, "series": term.name, "x": list(term.share_steps), "y": 100 * shares})
            parts.append(part[shares > 0])
        means = ", ".join(f"{term.name} {100 * (term.mean_share or 0):.3g} %" for term in run.terms)
        about.append(f"{name}, mean shares: {means}")
    axes = {"xlabel": STEP, "ylabel": "share of the gradient (%)", "yscale": "log"}
    data = pd.concat(parts)
    panels = style.line_panels(data, dict.fromkeys(measured, axes), whole=True)
    return Figure("gradient-shares", "Share of each term in the gradient", panels, data, "; ".join(about))


def _terms_figure(runs: dict[str, LossTerms]) -> Figure:
    import pandas as pd

    from sentcli.analysis.runs import thinned

    parts, about = [], []
    for name in dict.fromkeys(term.name for run in runs.values() for term in run.terms):
        for label, run in runs.items():
            for term in run.terms:
                if term.name == name and term.steps:
                    steps, values = thinned(term.steps, term.values)
                    parts.append(pd.DataFrame({"panel": name, "series": label, "x": steps, "y": values}))
                    about.append(f"{name} of {label} goes from {values[0]:.3g} to {values[-1]:.3g}")
    data = pd.concat(parts) if parts else pd.DataFrame(columns=["panel", "series", "x", "y"])
    panels = {}
    for name, own in data.groupby("panel", sort=False):
        labels = list(own["series"].unique())
        panels[str(name)] = {
            "title": name if len(labels) > 1 else f"{name} ({labels[0]})",
            "xlabel": STEP,
            "ylabel": f"{name} (unweighted)",
            "yscale": "log" if (own["y"] > 0).all() else "linear",
        }
    drawn = style.line_panels(data, panels, list(runs), whole=True)
    return Figure("loss-terms", "Terms of the loss over the steps", drawn, data, "; ".join(about))


def _groups_table(spectra: dict[str, GroupSpectra]) -> Table:
    import numpy as np

    rows = [
        {
            "model": name,
            "groups": len(spectrum.eigenvalues),
            "columns": spectrum.eigenvalues.shape[1],
            "largest eigenvalue": float(spectrum.eigenvalues.max()),
            "smallest": float(spectrum.eigenvalues.min()),
            "condition, median": float(np.median(spectrum.conditions)),
            "condition, largest": float(spectrum.conditions.max()),
            "condition of all columns": float(spectrum.by_count[1][0]) if 1 in spectrum.by_count else None,
        }
        for name, spectrum in spectra.items()
    ]
    note = (
        "Condition number: largest over smallest eigenvalue of a group's covariance; 1 is white. Of all columns: as if "
        "they were one group, where there are more texts than columns."
    )
    return Table.of_rows("Covariance of the whitening groups", rows, number=".3g", notes=(note,))


def _groups_figure(spectra: dict[str, GroupSpectra]) -> Figure:
    import numpy as np
    import pandas as pd

    titles = ("Eigenvalues", "Condition numbers", "Other numbers of groups")
    parts, about = [], []
    for name, each in spectra.items():
        conditions = np.sort(each.conditions[np.isfinite(each.conditions)])[::-1]
        ranked = pd.DataFrame({"x": np.arange(1, len(conditions) + 1), "y": conditions})
        values = _banded(range(1, each.eigenvalues.shape[1] + 1), list(each.eigenvalues.T))
        sizes = _banded(list(each.by_count), list(each.by_count.values()))
        by_panel = zip(titles, (values, ranked, sizes), strict=True)
        parts += [frame.assign(panel=title, series=name) for title, frame in by_panel]
        about.append(
            f"{name}: the median condition number of {len(each.eigenvalues)} groups is "
            f"{np.median(each.conditions):.3g}, the largest {each.conditions.max():.3g}"
        )
    data = pd.concat(parts)[["panel", "series", "x", "y", "low", "high"]]

    log = {"yscale": "log"}
    axes = (
        {"xlabel": "eigenvalue of a group, largest first", "ylabel": "eigenvalue", **log},
        {"xlabel": "group, largest first", "ylabel": "condition number", **log},
        {"xlabel": "groups", "ylabel": "condition number", **log, "xscale": "log"},
    )
    panels = style.line_panels(data, dict(zip(titles, axes, strict=True)), list(spectra), whole=True)
    note = (
        "Lines are medians over the groups, bands reach from the 5th to the 95th percentile; what is singular, or not "
        "positive, is left out"
    )
    title = "Covariance of the whitening groups"
    return Figure("whitening-groups", title, panels, data, "; ".join(about), note, columns=3)


def _banded(x: Sequence[int], groups: Sequence[npt.NDArray[np.floating[Any]]]) -> pd.DataFrame:
    """Return the median and the band of each group of values, without those that a logarithmic axis cannot show.

    Args:
        x: of each group.
        groups: the values of each.
    """
    import numpy as np
    import pandas as pd

    rows = [np.percentile(values, list(PERCENTILES.values()), method="nearest") for values in groups]
    frame = pd.DataFrame(rows, columns=list(PERCENTILES))
    frame = frame.where(np.isfinite(frame) & (frame > 0))
    return frame.assign(x=list(x))[frame["y"].notna()]
