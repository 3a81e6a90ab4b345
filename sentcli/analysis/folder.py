"""The folder that an analysis writes: a page, figures, tables and the numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.command.result import Clock, Record, Result
from sentcli.machine import environment
from sentcli.pages.names import short_names
from sentcli.pages.page import Page, Section

if TYPE_CHECKING:
    import pandas as pd

    from sentcli.evaluation.evaluated import EvaluatedModel

RESULT = "analysis.json"
PAGE = "index.html"
SUMMARY_LENGTH = 400
"""The greatest length, in characters, of a summary that is made from the description of a figure."""


def analysis_record(
    name: str,
    protocol: Mapping[str, Any],
    results: Mapping[str, Any],
    clock: Clock,
    model: EvaluatedModel | None = None,
    seed: int | None = None,
) -> Record:
    """Return the JSON object of a model, a run or a file of vectors.

    Args:
        name: of the model, run or file.
        protocol: the choices of the analysis.
        results: the numbers.
        clock: from when it was begun.
        model: the one that was measured; how it was loaded becomes a part of the protocol.
        seed: of the random numbers.
    """
    described = {}
    if model is not None:
        described = {**model.description, **model.provenance}
    device = described.pop("device", None)
    facts = environment(device, described.get("precision"), seed, described.get("revision"))
    return Record("analyze", name, {**protocol, **described}, results, facts, clock.seconds)


def check_folder(output: Path, *, overwrite: bool) -> None:
    """Check before the work that the output folder can be written.

    Raises:
        InputError: if it cannot, or the folder that ``--overwrite`` would replace was not written by an analysis.
    """
    from sentcli.io.atomic import OwnFiles, check_output

    empty = output.is_dir() and not any(output.iterdir())
    written = OwnFiles((PAGE, RESULT, "*.png", "*.svg", "*.pdf", "*.csv"), markers=(RESULT,))
    check_output(output, overwrite=overwrite or empty, folder=True, own=written)


def write_folder(
    kind: str,
    output: Path,
    sections: Sequence[Section],
    records: Sequence[Record],
    summary: Sequence[str] | None = None,
    make_frame: Callable[[], pd.DataFrame] | None = None,
) -> Result:
    """Write the folder of an analysis, which appears complete or not at all.

    Args:
        kind: the name of the analysis.
        output: the folder.
        sections: of the page.
        records: the JSON objects, one for each model or run.
        summary: paragraphs at the top of the page; None makes them of the description of the first figure.
        make_frame: makes the data frame of the result, if it is not its first table.
    """
    from sentcli import __version__
    from sentcli.io.atomic import replacing
    from sentcli.io.forms import finite, write_json
    from sentcli.pages.figures import save_figure, save_frame
    from sentcli.pages.write import write_page

    objects = [of_model.to_dict() for of_model in records]
    analysis = Result(objects, sections, folder=output, make_frame=make_frame)
    made = f"Made by sentcli {__version__}: analyze {kind}."
    names = short_names(of_model.model for of_model in records)
    if summary is None:
        summary = _summary(sections)
    page = Page(f"Analysis: {kind}", sections, [*summary, *names.notes], made)
    with replacing(output) as folder, console.working("drawing"):
        folder.mkdir()
        write_page(page, folder / PAGE)
        for section in sections:
            if section.figure is not None:
                save_figure(section.figure, folder)
            if section.table is not None and section.file:
                rows = section.rows
                if rows is None:
                    rows = section.table.to_frame()
                save_frame(rows, folder / f"{section.file}.csv")
        write_json(folder / RESULT, finite(analysis.to_dict()))
    console.note(f"wrote {output / PAGE}, figures and tables beside it")
    return analysis


def _summary(sections: Sequence[Section]) -> list[str]:
    """Return the description of the first figure, cut after the last part that fits into `SUMMARY_LENGTH`."""
    figure = next((section.figure for section in sections if section.figure is not None), None)
    if figure is None or not figure.about:
        return []
    text, *others = figure.about
    for part in others:
        longer = f"{text}; {part}"
        if len(longer) > SUMMARY_LENGTH:
            return [f"{figure.title}: {text}; ..."]
        text = longer
    return [f"{figure.title}: {text}."]
