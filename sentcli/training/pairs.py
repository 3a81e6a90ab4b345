"""Training data of several texts a row: scored pairs, anchors with positives and negatives, adjacent sentences."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sentcli.errors import DataError, InputError, nearest
from sentcli.evaluation import sts
from sentcli.evaluation.files import STSB_RANGE, is_stsb, read_stsb_layout
from sentcli.io.labelled import LabelledTable, range_of, read_table
from sentcli.io.labelled_kinds import Kind, Layout, layouts
from sentcli.io.labelled_records import columns_of
from sentcli.io.readers import ReadOptions, rows
from sentcli.io.sources import open_source, pair_files, task_name
from sentcli.io.table_layout import tell
from sentcli.training.data import Subset, TrainingSentences, file_facts

FOLD_SEED = 42
"""The seed that shuffles pairs before they are split into folds, as in IS-BERT's code for AFS."""
TOPICS = "topics"
"""The value of ``--hold-out`` that holds out each file in turn."""


@dataclass
class _Rows:
    """The rows of one file."""

    name: str
    path: Path
    rows: list[tuple[Any, ...]]
    """The texts of each row, and its score or class if there is one."""
    taken: str = ""
    """What the table was taken for."""
    blank: int = 0
    """The number of rows that were left out for an empty text."""


def _corpus(
    parts: Sequence[_Rows], subset: Subset | None, held_out: npt.ArrayLike = (), *, values: bool = False
) -> TrainingSentences:
    """Return the chosen rows of all files as columns, of which the last holds scores or classes with `values`."""
    rows = [row for part in parts for row in part.rows]
    if not rows:
        raise InputError(f"no pair to train on in {', '.join(part.name for part in parts)}")
    rest = np.setdiff1d(np.arange(len(rows)), np.array(held_out, np.int64))
    chosen = rest[(subset or Subset()).rows(len(rest))]
    columns = tuple(list(column) for column in zip(*(rows[i] for i in chosen), strict=True))
    facts = file_facts([(Path(part.name).name, part.path) for part in parts], [len(p.rows) for p in parts], chosen)
    taken = tuple(part.taken for part in parts if part.taken)
    texts, scores = (columns[:-1], columns[-1]) if values else (columns, None)
    return TrainingSentences(texts, facts, sum(part.blank for part in parts), scores, taken=taken)


def read_pairs(
    files: Sequence[str],
    *,
    fields: str | None = None,
    subset: Subset | None = None,
    hold_out: str | None = None,
    score_range: tuple[float, float] | None = None,
    kind: Kind | None = None,
) -> tuple[TrainingSentences, sts.Pairs | None]:
    """Read scored pairs of sentences, or pairs with the labels 0 and 1.

    Args:
        files: a SentEval ``data/downstream`` folder, whose STS-B training set is read; SentEval's ``sts-train.csv``
            itself; tables with the columns ``sentence1``, ``sentence2`` and ``score`` or ``label``; or a folder of
            tables.
        fields: other names of the columns, as ``A,B,SCORE``.
        subset: which of the pairs are trained on.
        hold_out: which pairs are left out: those of a file, named without its suffix, or a fold such as ``3/10``.
        score_range: the scores that become 0 and 1; None takes the first usual range that holds all scores.
        kind: as for `layout_of`.

    Returns:
        The training pairs, and the pairs that are held out.
    """
    subset = subset or Subset()
    room = subset.read_limit if hold_out is None and subset.read_limit is not None else sys.maxsize
    names = [table for name in files for table in _tables(name)]
    parts: list[_Rows] = []
    for name in names:
        table, path = _scored_table(name, fields, kind)
        scores = [float(value) for value in table.values or []][:room]
        for number, score in enumerate(scores, 1):
            if score_range is not None and not score_range[0] <= score <= score_range[1]:
                message = f"score {score:g} is not between {score_range[0]:g} and {score_range[1]:g}"
                raise DataError(name, message, line=number, unit="pair")
        rows = list(zip(*table.texts, scores, strict=False))
        taken = "" if path.name == sts.STSB_TRAIN.name else table.taken
        parts.append(_Rows(name, path, rows, taken))
        room -= len(rows)
    scored = [row for part in parts for row in part.rows]
    if not scored:
        raise InputError(f"no pair to train on in {', '.join(files)}")
    of_stsb = all(Path(name).name == sts.STSB_TRAIN.name for name in names)
    low, high = score_range or (STSB_RANGE if of_stsb else range_of([score for _, _, score in scored]))
    for part in parts:
        part.rows = [(first, second, (score - low) / (high - low)) for first, second, score in part.rows]
    held_out = _held_out(hold_out, [task_name(name) for name in names], [len(part.rows) for part in parts])
    if len(held_out) == len(scored):
        raise InputError(f"--hold-out {hold_out} leaves no pair to train on")
    corpus = replace(_corpus(parts, subset, held_out, values=True), score_range=(low, high))
    scaled = [row for part in parts for row in part.rows]
    return corpus, None if hold_out is None else sts.scored(hold_out, [scaled[i] for i in held_out])


def layout_of(files: Sequence[str], fields: str | None = None, kind: Kind | None = None) -> Layout | None:
    """Return what the first file of training data holds; None for plain text, folders and tables without known columns.

    Args:
        files: of training data; the first one decides.
        fields: names of the columns, as ``ANCHOR,POSITIVE[,NEGATIVE...]``, ``A,B,SCORE`` or ``A,B,LABEL``.
        kind: of a table that does not tell its kind; others are told.

    Raises:
        InputError: if there is no such file.
        DataError: if the table fits several kinds, or with `fields` none.
    """
    if not files or files[0] == "-" or Path(files[0]).is_dir():
        return None
    source = open_source(files[0])
    if fields is None and (source.format == "txt" or is_stsb(source) or not layouts(columns_of(source))):
        return None
    try:
        told = tell(source, fields=fields)
    except InputError:
        if kind is None:
            raise
        return tell(source, kind=kind, fields=fields)
    # pairs with a class may be meant as pairs
    return told if kind is None or told.kind != "classed-pairs" else tell(source, kind=kind, fields=fields)


def read_classes(
    files: Sequence[str], kind: Kind = "labels", *, fields: str | None = None, subset: Subset | None = None
) -> TrainingSentences:
    """Read texts or pairs with their classes, whose numbers become the scores; rows with an empty text are left out.

    Args:
        files: tables.
        kind: ``labels`` for a text and its class, ``classed-pairs`` for two texts and their class.
        fields: other names of the columns, as ``TEXT,LABEL`` or ``A,B,LABEL``.
        subset: which of the rows are trained on.

    Raises:
        InputError: if there are fewer than two classes.
    """
    parts = []
    for name in files:
        table = read_table(name, kind=kind, fields=fields)
        rows = list(zip(*table.texts, map(str, table.values or []), strict=True))
        kept = [row for row in rows if all(text.strip() for text in row[:-1])]
        parts.append(_Rows(name, open_source(name).path, kept, table.taken, len(rows) - len(kept)))
    return _numbered(_corpus(parts, subset, values=True), files)


def _numbered(corpus: TrainingSentences, files: Sequence[str]) -> TrainingSentences:
    """Return the data with the numbers of its classes, in the order of their names, as scores."""
    classes = sorted(set(corpus.scores or []))
    if len(classes) < 2:
        raise InputError(f"{', '.join(files)}: all classes are {classes[0]!r}: there is nothing to tell apart")
    numbers = {label: float(number) for number, label in enumerate(classes)}
    return replace(corpus, scores=[numbers[label] for label in corpus.scores or []])


def read_anchors(
    files: Sequence[str], *, fields: str | None = None, subset: Subset | None = None, kind: Kind | None = None
) -> TrainingSentences:
    """Read anchors, their positives and their hard negatives; rows with an empty text are left out and counted.

    Args:
        files: tables with the columns ``anchor``, ``positive`` and, if there are any, ``negative`` or ``negative_1``,
            ``negative_2`` and so on.
        fields: other names of the columns, as ``ANCHOR,POSITIVE[,NEGATIVE...]``.
        subset: which of the rows are trained on.
        kind: as for `layout_of`.

    Raises:
        DataError: if a negative equals its positive, or the files have different numbers of negatives.
    """
    parts: list[_Rows] = []
    width = 0
    for name in files:
        layout = layout_of([name], fields, kind)
        if layout is not None and layout.kind not in ("pairs", "triplets"):
            raise DataError(name, f"{layout.holds}, while {files[0]} holds anchors")
        table = read_table(name, kind="pairs" if layout is None else layout.kind, fields=fields)
        width = width or len(table.texts)
        if len(table.texts) != width:
            message = f"{len(table.texts) - 2} columns of negatives, but {width - 2} in {files[0]}"
            raise DataError(name, f"{message}; the tables of one training need the same columns")
        rows = list(zip(*table.texts, strict=True))
        kept = [all(text.strip() for text in texts) for texts in rows]
        for number, texts in enumerate(rows):
            if kept[number] and texts[1] in texts[2:]:
                raise table.error(number, f"{table.columns[texts.index(texts[1], 2)]} is equal to {table.columns[1]}")
        parts.append(_Rows(name, open_source(name).path, [*compress(rows, kept)], table.taken, kept.count(False)))
    return _corpus(parts, subset)


def read_adjacent(files: Sequence[str], *, text_field: str = "text", subset: Subset | None = None) -> TrainingSentences:
    """Read every text with the one after it; an empty line or row ends a document.

    Args:
        files: as for `read_corpus`, in the order of the documents.
        text_field: the column of a table that holds the texts.
        subset: which of the pairs are trained on.
    """
    parts = []
    for name in files:
        source, last = open_source(name), ""
        part = _Rows(name, source.path, [])
        for row in rows(source, ReadOptions(text_field=text_field, on_null="empty")):
            text = row.text.strip() if row is not None else ""
            if last and text:
                part.rows.append((last, text))
            last = text
        parts.append(part)
    return _corpus(parts, subset)


def every_hold_out(kind: str, files: Sequence[str]) -> list[str]:
    """Return the names of all files for ``topics``, all N folds for ``N-fold``, and any other value as it is."""
    if kind == TOPICS:
        names = [task_name(table) for name in files for table in _tables(name)]
        _refuse_twins(names)
        if len(names) < 2:
            raise InputError("--hold-out topics: give a folder of tables, one for each topic, or several tables")
        return names
    if match := re.fullmatch(r"(\d+)-fold", kind):
        count = int(match[1])
        if count < 2:
            raise InputError(f"--hold-out {kind}: at least two folds are needed")
        return [f"{number}/{count}" for number in range(1, count + 1)]
    return [kind]


def _held_out(hold_out: str | None, names: list[str], row_counts: list[int]) -> npt.NDArray[np.int64]:
    """Return the numbers of the pairs that are held out."""
    total = sum(row_counts)
    if hold_out is None:
        return np.arange(0)
    if match := re.fullmatch(r"(\d+)/(\d+)", hold_out):
        from sklearn.model_selection import KFold

        number, count = int(match[1]), int(match[2])
        if not 1 <= number <= count or not 2 <= count <= total:
            raise InputError(f"--hold-out {hold_out}: expected a fold of {total} pairs, such as 1/10")
        folds = KFold(count, shuffle=True, random_state=FOLD_SEED).split(np.arange(total))
        return list(folds)[number - 1][1]
    _refuse_twins(names)
    if hold_out not in names:
        raise InputError(
            f"--hold-out {hold_out}: no such file of pairs{nearest(hold_out, names)}; a fold such as 1/10, or one of: "
            f"{', '.join(names)}"
        )
    starts = np.cumsum([0, *row_counts])
    number = names.index(hold_out)
    return np.arange(starts[number], starts[number + 1])


def _refuse_twins(names: Sequence[str]) -> None:
    if twin := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"two files of pairs are called {twin}: rename one, so that --hold-out can tell them apart")


def _tables(name: str) -> list[str]:
    """Return the tables that a name stands for: a SentEval folder, a folder of tables, or one table."""
    path = Path(name)
    if path.is_dir() and (path / sts.STSB_TRAIN).parent.is_dir():
        return [str(path / sts.STSB_TRAIN)]
    return pair_files(name)


def _scored_table(name: str, fields: str | None, kind: Kind | None) -> tuple[LabelledTable, Path]:
    """Return a table of scored or 0/1 pairs, and the path of its file."""
    source = open_source(name)
    if source.path.name == sts.STSB_TRAIN.name:
        return read_stsb_layout(source), source.path
    layout = layout_of([name], fields, kind)
    binary = layout is not None and layout.kind == "binary"
    return read_table(name, kind="binary" if binary else "scored", fields=fields), source.path
