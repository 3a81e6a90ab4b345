"""Shared by the kinds of analysis: options, models, texts and pairs, and writing the folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_doc import Doc
from annotated_types import Ge

from sentcli import console
from sentcli.bounds import Flag, Holds
from sentcli.command.declaration import Group
from sentcli.command.result import Clock, Record, Result
from sentcli.errors import InputError
from sentcli.io.sources import title_of
from sentcli.machine import environment
from sentcli.model.options import MODEL_HELP, LoadOptions
from sentcli.pages.names import short_names
from sentcli.pages.page import Page, Section

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

    from sentcli.evaluation.evaluated import EvaluatedModel, TextVectors
    from sentcli.evaluation.sts import Pairs
    from sentcli.io.row_batch import Row
    from sentcli.io.sampling import Sample

INPUT = "Input"
LEAST_ITEMS = 10
"""The least number of distinct texts, vectors or pairs of an analysis."""
RESULT, PAGE = "analysis.json", "index.html"

Models = Annotated[list[str] | None, Holds.MODEL, Doc(f"{MODEL_HELP}; several are compared."), Flag("-m")]
Output = Annotated[Path, Doc("A folder for page, figures and tables."), Flag("-o", metavar="DIR")]
Data = Annotated[
    Path | None,
    Doc("A SentEval data/downstream folder, or sts once it is fetched: its STS-B pairs."),
    Flag(panel=INPUT),
]
PairsFile = Annotated[
    str | None,
    Holds.TEXT_FILE,
    Doc("A table of your own with the columns sentence1, sentence2 and score, instead of --data."),
    Flag(metavar="FILE", panel=INPUT, excludes="data"),
]
Split = Annotated[Literal["dev", "test", "train"], Doc("Split of STS-B."), Flag(panel=INPUT)]
TextsFile = Annotated[
    str | None, Holds.TEXT_FILE, Doc("Texts, one a line or a row of a table."), Flag(metavar="FILE", panel=INPUT)
]
TextField = Annotated[str, Holds.WORDS, Doc("Column of a table that holds the text."), Flag(panel=INPUT)]
Limit = Annotated[int, Ge(LEAST_ITEMS), Doc("Draw so many distinct texts at most."), Flag(panel=INPUT)]
Seed = Annotated[int, Ge(0), Doc("Seed of the texts that are drawn where there are more than the limit.")]
Rerun = Annotated[bool, Doc("Encode and score anew, also what was measured before and is kept."), Flag(panel="Output")]


NOT_LOADED_SO = ("normalize",)
"""Fields of `LoadOptions` that no kind of analysis has."""
Load = Annotated[LoadOptions, Group(without=NOT_LOADED_SO)]


def models(
    names: Sequence[str], load: LoadOptions, *, rerun: bool = False, kept: Iterable[str | None] = ()
) -> list[EvaluatedModel]:
    """Return models, each of which is loaded when something has to be encoded with it.

    Args:
        names: of the models.
        load: how they are loaded.
        rerun: encode again what was encoded before and is kept.
        kept: the files of texts, whose own vectors are taken where a model has made them.

    Raises:
        InputError: if a model does not exist or is named twice.
    """
    from sentcli.evaluation.evaluated import EvaluatedModel

    check_distinct(names)
    files = [file for file in kept if file is not None]
    return [EvaluatedModel(name, load, rerun=rerun, kept=files) for name in names]


def check_distinct(names: Sequence[str]) -> None:
    """Raise an InputError if a model, run or file of vectors is named more than once."""
    if repeated := next((name for name in names if list(names).count(name) > 1), None):
        raise InputError(f"{repeated} is given twice")


def short_text(text: str, longest: int = 120) -> str:  # characters of a text in a table
    """Return the beginning of a text, cut at a word where there is one."""
    text = " ".join(text.split())
    if len(text) <= longest:
        return text
    head = text[: longest - 1]
    return f"{head.rsplit(' ', 1)[0] if ' ' in head else head}\N{HORIZONTAL ELLIPSIS}"


def vectors_of(model: EvaluatedModel, texts: Iterable[str]) -> TextVectors:
    """Return the vectors of texts, from the cache or encoded now, and release the model."""
    texts = list(texts)
    with console.encoding(f"encoding with {model.name}", len(set(texts))) as progress:
        vectors = model.encode(texts, progress)
    model.release()
    return vectors


def sts_tasks(data: Path) -> dict[str, list[Pairs]]:
    """Return the seven STS tasks of a SentEval folder."""
    from sentcli.data import located
    from sentcli.evaluation import sts

    return sts.load_tasks(located(data), None, "test")


def sts_average(model: EvaluatedModel, tasks: dict[str, list[Pairs]]) -> float | None:
    """Return the mean of Spearman's correlations, times 100, over STS tasks; None if there are no tasks."""
    from sentcli.evaluation import significance, sts
    from sentcli.evaluation.score_kinds import SIMILARITY
    from sentcli.evaluation.scores import average

    scored_tasks = [sts.SimilarityTask(name, subsets, significance.DRAWS) for name, subsets in tasks.items()]
    return average(model.measure(scored_tasks), SIMILARITY, least=1)


def stored_vectors(path: Path) -> npt.NDArray[Any]:
    """Return the vectors of a directory or file of ``encode``, or of a ``.npy`` file ``[n, d]``.

    Raises:
        InputError: if there are no vectors or too few; DataError for a damaged file.
    """
    import numpy as np

    from sentcli.io.places import Place
    from sentcli.search.vector_directory import VectorDirectory
    from sentcli.search.vector_file import VectorFile, vectors_in

    if not path.exists():
        raise InputError(f"there is no {path}")
    if path.is_dir():
        if not (path / "manifest.json").exists():
            raise InputError(
                f"{path} is neither a training run (metrics.jsonl) nor a directory of encode (manifest.json)"
            )
        blocks = VectorDirectory.open(path, to_search=False).blocks
    elif (found := vectors_in(Place.of(path))) is not None:
        stored = VectorFile.open(Place.of(path), column=found.column)
        stored.origin.check_numbers(to_search=False)
        blocks = stored.blocks
    else:
        raise InputError(
            f"{path} holds no vectors: give what encode wrote (a directory, .npy, .parquet or .safetensors), or a "
            "training run"
        )
    vectors: npt.NDArray[Any] = blocks.take(np.arange(len(blocks))) if len(blocks.arrays) > 1 else blocks.arrays[0]
    if len(vectors) < LEAST_ITEMS:
        raise InputError(f"{path}: {len(vectors)} vectors; an analysis needs at least {LEAST_ITEMS}")
    return vectors


def record(
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
    described: dict[str, Any] = {}
    if model is not None:
        described = {**model.description, **model.provenance}
    device = described.pop("device", None)
    facts = environment(device, described.get("precision"), seed, described.get("revision"))
    return Record("analyze", name, {**protocol, **described}, results, facts, clock.seconds)


@dataclass(frozen=True)
class FirstRow:
    """The first row of a file that has a certain text."""

    line: int
    """Number of the row, from 1."""
    position: int
    """Number of the row among those that have a text, from 0: its row in the vectors of ``encode --on-null skip``."""
    columns: dict[str, Any]
    """Values of the columns other than the text."""
    id: str
    """The value of the column of ids, else the number of the row from 0, as `encode` writes it."""


@dataclass(frozen=True)
class TextRows:
    """The distinct texts of a file that are not blank, or a sample of them."""

    first: dict[str, FirstRow]
    """The first row of each text, in the order of the file."""
    total: int
    """The number of rows with a text."""
    sample: Sample

    @property
    def texts(self) -> list[str]:
        """``[n]``."""
        return list(self.first)

    def drawn(self, limit: int, seed: int) -> TextRows:
        """Return the rows of a sample of the texts."""
        from sentcli.io.sampling import DistinctTexts

        distinct = DistinctTexts[FirstRow](limit, seed)
        for text, row in self.first.items():
            distinct.add(text, row)
        return TextRows(distinct.kept, self.total, distinct.sample)


def every_row(file: str, text_field: str, id_field: str | None) -> Iterator[tuple[str, Row | None]]:
    """Yield the id of every row of a file of texts, by default its number, and the row, or None if it has no text."""
    from sentcli.io.readers import ReadOptions, rows
    from sentcli.io.text_inputs import text_sources

    options = ReadOptions(text_field=text_field, id_field=id_field, on_null="skip", with_null=True)
    found = chain.from_iterable(rows(source, options) for source in text_sources([file]))
    for number, row in enumerate(found):
        assert row is not None
        yield str(number) if row.id is None else row.id, None if row.is_null else row


def read_rows(
    file: str, text_field: str = "text", limit: int | None = None, *, seed: int = 0, id_field: str | None = None
) -> TextRows:
    """Read the distinct texts of a file that are not blank, in the order of the file.

    Args:
        file: texts, one a line or a row of a table.
        text_field: the column of a table.
        limit: the greatest number of distinct texts; of more a sample is drawn, which is said.
        seed: of the sample.
        id_field: the column of the ids; None takes ``id``, else ``_id``, else the number of the row.

    Raises:
        DataError: for a file that cannot be read.
        InputError: if there are fewer texts than `LEAST_ITEMS`.
    """
    from sentcli.io.sampling import DistinctTexts

    distinct, total = DistinctTexts[FirstRow](limit, seed), 0
    for line, (row_id, row) in enumerate(every_row(file, text_field, id_field), 1):
        if row is None:  # a null, of which encode --on-null skip makes no vector
            continue
        if row.text.strip():
            distinct.add(row.text, FirstRow(line, total, row.extras, row_id))
        total += 1
    check_sample(distinct.sample, file, total)
    return TextRows(distinct.kept, total, distinct.sample)


def check_sample(sample: Sample, source: str, total: int) -> None:
    """Check that there are enough distinct texts, and say if not all of them are taken.

    Args:
        sample: how many distinct texts there are.
        source: the file, for the message.
        total: the number of texts in it, with repetitions.

    Raises:
        InputError: if there are fewer than `LEAST_ITEMS`.
    """
    source = title_of(source)
    if sample.of == 1 and total > 1:
        raise InputError(f"{source}: all {total} texts are the same; an analysis compares different ones")
    if sample.of < LEAST_ITEMS:
        raise InputError(f"{source}: {sample.of} distinct texts; an analysis needs at least {LEAST_ITEMS}")
    if sample.texts < sample.of:
        console.note(f"{source}: {sample.words} are taken (--limit)")


def read_stsb(data: Path | None, pairs: str | None, split: str) -> dict[str, list[Pairs]]:
    """Read STS-B of a SentEval folder, or a table of pairs, as a dict with one task.

    Raises:
        InputError: unless exactly one of `data` and `pairs` is given; DataError for a file that cannot be read.
    """
    from sentcli.data import located
    from sentcli.evaluation import sts

    if (data is None) == (pairs is None):
        raise InputError("give --data, a SentEval data/downstream folder, or --pairs, a table of your own")
    if pairs is not None:
        return {Path(pairs).stem: [subset for subsets in sts.read_pairs(pairs).values() for subset in subsets]}
    assert data is not None
    return sts.load_tasks(located(data), ["STSBenchmark"], split)


def check(output: Path, *, overwrite: bool) -> None:
    """Check before the work that the output folder can be written.

    Raises:
        InputError: if it cannot, or the folder that ``--overwrite`` would replace was not written by an analysis.
    """
    from sentcli.io.atomic import check_output

    empty = output.is_dir() and not any(output.iterdir())
    if output.is_dir() and overwrite and not (empty or (output / RESULT).exists()):
        raise InputError(f"{output} holds no {RESULT}, so it is not an analysis that --overwrite may replace")
    check_output(output, overwrite=overwrite or empty, folder=True)


def write(
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
    from sentcli.io.forms import finite
    from sentcli.pages.figures import save_figure, save_frame
    from sentcli.pages.write import write_page

    objects = [of_model.to_dict() for of_model in records]
    analysis = Result(objects, sections, folder=output, make_frame=make_frame)
    made = f"Made by sentcli {__version__}: analyze {kind}."
    names = short_names(of_model.model for of_model in records)
    text = [*(_summary(sections) if summary is None else summary), *names.notes]
    page = Page(f"Analysis: {kind}", sections, text, made)
    with replacing(output) as folder, console.working("drawing"):
        folder.mkdir()
        write_page(page, folder / PAGE)
        for section in sections:
            if section.figure is not None:
                save_figure(section.figure, folder)
            if section.table is not None and section.file:
                frame = section.table.to_frame() if section.rows is None else section.rows
                save_frame(frame, folder / f"{section.file}.csv")
        numbers = json.dumps(finite(analysis.to_dict()), indent=2, ensure_ascii=False, allow_nan=False)
        (folder / RESULT).write_text(f"{numbers}\n", "utf-8")
    console.note(f"wrote {output / PAGE}, figures and tables beside it")
    return analysis


def _summary(sections: Sequence[Section]) -> list[str]:
    """Return the description of the first figure, cut after the last part that fits into `SUMMARY_LENGTH`."""
    first = next((section.figure for section in sections if section.figure is not None), None)
    if first is None or not first.alt:
        return []
    parts = first.alt.split("; ")
    # the greatest length in characters of a summary that is made from the description of a figure
    kept = [part for i, part in enumerate(parts) if i == 0 or len("; ".join(parts[: i + 1])) <= 400]
    return [f"{first.title}: {'; '.join(kept)}{'.' if len(kept) == len(parts) else '; ...'}"]
