"""What the kinds of ``analyze`` share: their group, models, texts and pairs, and the folder that they write."""

from __future__ import annotations

import json as json_format
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sentcli import console
from sentcli.cli import options
from sentcli.cli.base import app
from sentcli.errors import InputError

if TYPE_CHECKING:
    from sentcli.evaluation.candidate import Candidate
    from sentcli.evaluation.sts import Pairs
    from sentcli.reports.page import Section, Table

INPUT = "Input"
LEAST = 10
"""Distinct texts that an analysis needs."""
RESULT, PAGE = "analysis.json", "index.html"

group = typer.Typer(no_args_is_help=True)


@group.callback()
def analyze() -> None:
    """Look inside models: the analyses and figures of the papers, for models of one's own.

    Every kind writes a folder: index.html to read, each figure as PNG and SVG
    with the CSV behind it, each table as CSV, and analysis.json.

    \b
    Examples:
      sentcli analyze geometry -m minilm -m runs/simcse --data downstream -o geometry
      sentcli analyze map sentences.txt -m minilm -m runs/simcse -o map
      sentcli analyze compare minilm runs/simcse --texts sentences.txt -o compare
    """  # noqa: D301


app.add_typer(group, name="analyze")

Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        "-m",
        help="A model folder, a short name (sentcli doctor lists them), or a hub id; several are compared.",
        show_default=False,
    ),
]
Output = Annotated[
    Path,
    typer.Option("--output", "-o", metavar="DIR", help="A folder for page, figures and tables.", show_default=False),
]
Data = Annotated[
    Path | None,
    typer.Option(
        help="A SentEval data/downstream folder, or sts once it is fetched: its STS-B pairs.",
        show_default=False,
        rich_help_panel=INPUT,
    ),
]
PairsFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="A table of your own with the columns sentence1, sentence2 and score, instead of --data.",
        show_default=False,
        rich_help_panel=INPUT,
    ),
]
TextsFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="Texts, one a line or a row of a table.", show_default=False, rich_help_panel=INPUT
    ),
]
TextField = Annotated[str, typer.Option(help="Column of a table that holds the text.", rich_help_panel=INPUT)]
Limit = Annotated[int, typer.Option(min=LEAST, help="Texts at most, the first.", rich_help_panel=INPUT)]


@dataclass(frozen=True)
class Loading:
    """How the models of an analysis are loaded; the options of every kind that takes models."""

    pooling: str | None = None
    max_length: int | None = None
    backend: str = "auto"
    precision: str = "auto"
    device: str = "auto"
    rerun: bool = False
    normalize: bool | None = None
    """Force vectors of length 1 on or off."""

    def candidates(self, models: Sequence[str]) -> list[Candidate]:
        """Return models, which are loaded when their vectors are not known.

        Raises:
            InputError: if one is not there, or named twice.
        """
        if twice := next((name for name in models if list(models).count(name) > 1), None):
            raise InputError(f"-m {twice} is given twice")
        return [
            options.candidate(
                name,
                self.backend,
                self.precision,
                self.device,
                self.pooling,
                self.normalize,
                self.max_length,
                rerun=self.rerun,
            )
            for name in models
        ]


def labels(models: Sequence[str]) -> dict[str, str]:
    """Return what models are called in tables and figures: the last part of a path, if no other has it."""
    last = {model: Path(model).name or model for model in models}
    return {model: name if list(last.values()).count(name) == 1 else model for model, name in last.items()}


def read_texts(file: str, text_field: str = "text", limit: int | None = None) -> list[str]:
    """Read the distinct texts of a file in their order, without blank ones.

    Raises:
        DataError: as the readers.
        InputError: if there are fewer than `LEAST`.
    """
    from sentcli.io.readers import ReadOptions, rows
    from sentcli.io.sources import open_source

    found: dict[str, None] = {}
    total = 0
    for row in rows(open_source(file), ReadOptions(text_field=text_field, on_null="skip")):
        if row is not None and row.text.strip():
            total += 1
            found.setdefault(row.text)
            if len(found) == limit:
                break
    return enough(list(found), file, total)


def enough(texts: list[str], source: str, total: int) -> list[str]:
    """Return distinct texts.

    Raises:
        InputError: if there are fewer than `LEAST`.
    """
    if len(texts) == 1 and total > 1:
        raise InputError(f"{source}: all {total} texts are the same; an analysis compares different ones")
    if len(texts) < LEAST:
        raise InputError(f"{source}: {len(texts)} distinct texts; an analysis needs at least {LEAST}")
    return texts


def read_stsb(data: Path | None, pairs: str | None, split: str) -> dict[str, list[Pairs]]:
    """Read STS-B of a SentEval folder, or a table of pairs, as the one task of an analysis.

    Raises:
        InputError: if neither or both are given; DataError as the readers.
    """
    from sentcli.data import located
    from sentcli.evaluation import sts

    if (data is None) == (pairs is None):
        raise InputError("give --data, a SentEval data/downstream folder, or --pairs, a table of your own")
    if pairs is not None:
        tasks = sts.read_pairs(pairs)
        return {Path(pairs).stem: [subset for subsets in tasks.values() for subset in subsets]}
    assert data is not None
    return sts.load_tasks(located(data), ["STSBenchmark"], split)


def check(output: Path, *, overwrite: bool) -> None:
    """Refuse to start where the folder cannot be written, or matplotlib is missing.

    Raises:
        InputError: also if there is a folder that no analysis wrote; MissingExtraError.
    """
    from sentcli.figures.draw import require
    from sentcli.io.atomic import check_output

    require()
    empty = output.is_dir() and not any(output.iterdir())
    if output.is_dir() and overwrite and not empty and not (output / RESULT).exists():
        raise InputError(f"{output} holds no {RESULT}, so it is not an analysis that --overwrite may replace")
    check_output(output, overwrite=overwrite or empty, folder=True)


def vectors_of(candidate: Candidate, texts: Iterable[str]) -> Any:
    """Return the vectors of some texts `[texts, dim]`, which are kept, and let go of the model."""
    texts = list(texts)
    with console.encoding(f"encoding with {candidate.name}", len(set(texts))) as progress:
        found = candidate.encode(texts, progress)
    candidate.release()
    return found


def finish(
    kind: str,
    output: Path,
    sections: Sequence[Section],
    objects: Sequence[dict[str, Any]],
    json: str | None,
    title: str | None = None,
) -> None:
    """Write the folder of an analysis, print its tables, and write the JSON.

    Args:
        kind: of the analysis.
        output: the folder, which appears whole or not at all.
        sections: of the page.
        objects: the JSON, one object for each model.
        json: where else it goes.
        title: of the page.
    """
    from sentcli import __version__
    from sentcli.figures.figure import Figure
    from sentcli.figures.write import save, save_rows
    from sentcli.io.atomic import replacing
    from sentcli.io.json_files import finite, write_json
    from sentcli.reports.page import Page
    from sentcli.reports.write import write_page

    page = Page(title or f"Analysis: {kind}", tuple(sections), (f"Made by sentcli {__version__}: analyze {kind}.",))
    value = objects[0] if len(objects) == 1 else list(objects)
    with replacing(output) as folder, console.working("drawing"):
        folder.mkdir()
        write_page(page, [folder / PAGE])
        for section in sections:
            if isinstance(section.figure, Figure):
                save(section.figure, folder)
            if section.table is not None and section.file:
                save_rows(folder / f"{section.file}.csv", *_plain(section.table))
        text = json_format.dumps(finite(value), indent=2, ensure_ascii=False, allow_nan=False)
        (folder / RESULT).write_text(f"{text}\n", "utf-8")
    for section in sections:
        if section.table is not None and not section.folded:
            _show(section.table)
    console.note(f"wrote {output / PAGE}, figures and tables beside it")
    if json is not None:
        write_json(json, finite(value))


def _plain(table: Table) -> tuple[list[str], list[list[Any]]]:
    columns = [column.title for column in table.columns]
    return columns, [[cell.text if cell.value is None else cell.value for cell in row.cells] for row in table.rows]


def _show(table: Table) -> None:
    left = next((i for i, column in enumerate(table.columns) if column.kind == "number"), len(table.columns))
    rows: list[list[Any]] = [[cell.text for cell in row.cells] for row in table.rows]
    console.table(table.caption, [column.title for column in table.columns], rows, left=left)
