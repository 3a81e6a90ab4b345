"""``analyze objectives``: its options, and the sections of its page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge

from sentcli import console
from sentcli.analysis.folder import analysis_record, check_folder, write_folder
from sentcli.analysis.models import check_distinct, named_models, vectors_of
from sentcli.analysis.options import Limit, Load, Models, Output, Rerun, TextField, TextsFile
from sentcli.analysis.texts import read_rows
from sentcli.bounds import Holds, Overwrite
from sentcli.command.declaration import Flag, verb
from sentcli.command.result import Clock, Record, Result
from sentcli.errors import InputError
from sentcli.model.options import LoadOptions
from sentcli.pages.names import short_names
from sentcli.pages.page import Section

if TYPE_CHECKING:
    from sentcli.analysis.objectives.terms import LossTerms


@verb("objectives")
def objectives(
    runs: Annotated[list[Path], Flag(metavar="RUN...", positional=True)],
    output: Output,
    model: Annotated[Models, Holds.MODEL, Flag("-m", needs="texts")] = None,
    texts: TextsFile = None,
    text_field: TextField = "text",
    limit: Limit = 10_000,
    groups: Annotated[int, Ge(0)] = 0,
    seed: Annotated[int, Ge(0)] = 0,
    load: Load = LoadOptions(normalize=False),
    rerun: Rerun = False,
    overwrite: Overwrite = False,
) -> Result:
    """Loss terms of training runs, their shares of the gradient, and the groups that whitening works on.

    Training measures every 50 steps which part each term has in the gradient at
    the encoder (--set share_every). With --texts, the vectors of the finished
    runs and of the models (-m, such as the model that a run started from) are
    cut into shuffled groups of columns as WhitenedCSE does, and the eigenvalues
    and condition numbers of each group's covariance are shown.

    Args:
        runs: Folders of training runs, finished or not, of sweeps, or of runs side by side, whose seeds are one system.
        groups: Groups that the columns are cut into; 0: as the run whitens them, else two columns a group.
        seed: Seed of the texts that are drawn and of the order of the columns.

    \b
    Examples:
      sentcli analyze objectives runs/micse runs/informin-cl -o shares
      sentcli analyze objectives runs/whitenedcse -m minilm --pooling cls --texts sentences.txt -o groups
      sentcli analyze objectives runs/whitenedcse --texts sentences.txt --groups 32 -o thirty-two
    """  # noqa: D301
    from sentcli.analysis.objectives.groups import every_group_table, group_spectra, groups_figure, groups_table
    from sentcli.analysis.objectives.terms import term_sections, terms_of
    from sentcli.analysis.runs import read_runs, renamed
    from sentcli.evaluation.studies import study_of

    check_folder(output, overwrite=overwrite)
    check_distinct(list(map(str, runs)))
    trainings = read_runs(runs)
    terms = {str(run.folder): terms_of(run) for run in trainings}
    for name, run in terms.items():
        _say_what_lacks(name, run)
    models = study_of(model or []).models
    names = list(models)
    if texts:
        names += [name for name, run in terms.items() if run.finished]
        if not names:
            raise InputError("--texts: none of the runs is finished, so there is no model: name one with -m")
    rows = None
    if texts:
        rows = read_rows(texts, text_field, limit, seed=seed)
    all_names = dict.fromkeys([*models, *terms, *(run.label for run in trainings)])
    short = short_names(list(all_names)).shown
    kind = {"kind": "objectives"}
    records = {}
    for name, run in terms.items():
        records[name] = Record("analyze", name, kind, run.to_dict())
        groups = groups or run.groups or 0
    spectra = {}
    for evaluated in named_models(names if texts else [], load, rerun=rerun, reused=[texts]):
        assert rows is not None
        clock = Clock()
        vectors = vectors_of(evaluated, rows.texts).vectors_of(rows.texts)
        default_groups = max(1, vectors.shape[1] // 2)
        spectrum = group_spectra(vectors, groups or default_groups, seed)
        choices = {**kind, **asdict(rows.sample), "groups": len(spectrum.eigenvalues)}
        results = {"whitening": spectrum.to_dict()}
        if evaluated.name in records:
            results = records[evaluated.name].results | results
        records[evaluated.name] = analysis_record(evaluated.name, choices, results, clock, evaluated, seed)
        spectra[short[evaluated.name]] = spectrum
    _warn_of_poolings(list(records.values()))
    sections = term_sections(renamed(trainings, short))
    if rows and spectra:
        note = f"Vectors of {rows.sample.words} before normalisation, columns shuffled with seed {seed}."
        sections += [
            Section("Whitening groups", (note,), table=groups_table(spectra), file="groups"),
            Section("Eigenvalues of the whitening groups", figure=groups_figure(spectra)),
            Section.of(every_group_table("Every group", spectra), file="every-group", folded=True),
        ]
    return write_folder("objectives", output, sections, list(records.values()))


def _say_what_lacks(name: str, run: LossTerms) -> None:
    """Say if a run is not finished, or has no shares of several terms."""
    if not run.finished:
        console.warn(f"{name} is not finished: its last step is {run.steps:,}")
    if len(run.weights) == 1:
        console.note(f"{name}: its loss is {next(iter(run.weights))} alone, whose share of the gradient is 100 %")
    elif not run.measured:
        console.warn(f"{name} logged no shares of the gradient: train with --set share_every=50")


def _warn_of_poolings(records: Sequence[Record]) -> None:
    """Warn if models pool differently."""
    poolings = dict.fromkeys(record.protocol["pooling"] for record in records if "pooling" in record.protocol)
    if len(poolings) > 1:
        console.warn(f"the models pool differently ({', '.join(poolings)}), which moves the groups: --pooling sets one")
