"""Training data of several texts a row: scored pairs, anchors with positives and negatives, adjacent sentences."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sentcli.arrays import Float64Array, Int64Array
from sentcli.errors import DataError, InputError, nearest
from sentcli.evaluation import sts_pairs
from sentcli.evaluation.files import STSB_RANGE, is_stsb, read_stsb_layout
from sentcli.io.labelled import NAMED_ROWS, SCORE_RANGES, LabelledTable, range_of, read_table
from sentcli.io.labelled_kinds import Kind, Layout, layouts
from sentcli.io.labelled_records import columns_of, pair_files, task_name
from sentcli.io.readers import ReadOptions, rows
from sentcli.io.sources import open_source
from sentcli.io.table_layout import infer_layout
from sentcli.training.data import Subset, TrainingSentences, file_facts
from sentcli.training.negatives import fill_negatives

_FOLD_SEED = 42
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
    reading: str = ""
    """A sentence on how the table was read, as `LabelledTable.reading` has it."""
    table: LabelledTable | None = None
    """The table that scored pairs come from, whose rows these are."""
    blank: list[str] = field(default_factory=list)
    """The line and the column of each row that was left out for an empty text, ``line 7 (positive)``."""

    def score_error(self, row: int, problem: str) -> DataError:
        """Return the error that names the line of a scored pair, which is given by its position from 0."""
        assert self.table is not None
        return self.table.error(row, problem)

    def leave_out(self, table: LabelledTable, row: int, texts: Sequence[str]) -> bool:
        """Leave a row out if one of the texts that stand first in it holds nothing; return whether it was left out."""
        place = _empty_place(table, row, texts)
        if place:
            self.blank.append(place)
        return bool(place)


def _empty_place(table: LabelledTable, row: int, texts: Sequence[str]) -> str:
    """Return line and column of the first empty text of a row, ``line 7 (positive)``; nothing if there is none."""
    for column, text in zip(table.columns, texts, strict=False):
        if not text.strip():
            return f"{table.unit} {table.lines[row]} ({column.strip()})"
    return ""


def _corpus(
    parts: Sequence[_Rows], subset: Subset | None, held_out: npt.ArrayLike = (), *, values: bool = False
) -> TrainingSentences:
    """Return the chosen rows of all files as columns, of which the last holds scores or classes with `values`."""
    rows: list[tuple[Any, ...]] = []
    files = []
    row_counts = []
    blank: list[str] = []
    readings = []
    for part in parts:
        rows += part.rows
        files.append((Path(part.name).name, part.path))
        row_counts.append(len(part.rows))
        blank += [f"{Path(part.name).name} {place}" for place in part.blank]
        if part.reading:
            readings.append(part.reading)
    if not rows:
        raise InputError(f"no pair to train on in {', '.join(part.name for part in parts)}")
    not_held_out = np.setdiff1d(np.arange(len(rows)), np.array(held_out, np.int64))
    subset = subset or Subset()
    chosen = not_held_out[subset.rows(len(not_held_out))]
    chosen_rows = [rows[number] for number in chosen]
    columns = list(map(list, zip(*chosen_rows, strict=True)))
    scores = columns.pop() if values else None
    return TrainingSentences(
        texts=tuple(columns),
        files=file_facts(files, row_counts, chosen),
        blank=len(blank),
        scores=scores,
        readings=tuple(readings),
        blank_places=tuple(blank[:NAMED_ROWS]),
    )


def _all_rows(parts: Sequence[_Rows]) -> list[tuple[Any, ...]]:
    """Return the rows of all files, one after the other."""
    return list(chain.from_iterable(part.rows for part in parts))


def read_training_pairs(
    files: Sequence[str],
    *,
    fields: str | None = None,
    subset: Subset | None = None,
    hold_out: str | None = None,
    score_range: tuple[float, float] | None = None,
    kind: Kind | None = None,
) -> tuple[TrainingSentences, sts_pairs.Pairs | None]:
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
    room = None
    if subset is not None and hold_out is None:
        room = subset.read_limit
    parts: list[_Rows] = []
    for name in _all_tables(files):
        part = _scored_rows(name, fields, kind, room)
        if score_range is not None:
            _check_scores(part, *score_range)
        if room is not None:
            room -= len(part.rows)
        parts.append(part)
    rows = _all_rows(parts)
    if not rows:
        raise InputError(f"no pair to train on in {', '.join(files)}")
    low, high = score_range or _range_of_scores(parts)
    for part in parts:
        part.rows = [(first, second, (score - low) / (high - low)) for first, second, score in part.rows]
    held_out = _held_out(hold_out, parts)
    if len(held_out) == len(rows):
        raise InputError(f"--hold-out {hold_out} leaves no pair to train on")
    corpus = _corpus(parts, subset, held_out, values=True)
    corpus = replace(corpus, score_range=(low, high), notes=_empty_notes(parts))
    if hold_out is None:
        return corpus, None
    scaled = _all_rows(parts)
    held_out_rows = [scaled[number] for number in held_out]
    return corpus, sts_pairs.pairs_of_rows(hold_out, task_name(hold_out), held_out_rows)


def _empty_notes(parts: Sequence[_Rows]) -> tuple[str, ...]:
    """Return a note that names the scored pairs with an empty text, which are trained on as they are."""
    places = []
    for part in parts:
        assert part.table is not None
        for row, (*texts, _) in enumerate(part.rows):
            place = _empty_place(part.table, row, texts)
            if place:
                places.append(f"{Path(part.name).name} {place}")
    if not places:
        return ()
    more = ", ..." if len(places) > NAMED_ROWS else ""
    return (f"{len(places):,} pairs have an empty text: {', '.join(places[:NAMED_ROWS])}{more}",)


def _range_of_scores(parts: Sequence[_Rows]) -> tuple[float, float]:
    """Return the range of the scores: that of STS-B for its own files, else the first usual one that holds them all."""
    if all(Path(part.name).name == sts_pairs.STSB_TRAIN.name for part in parts):
        return STSB_RANGE
    scores = [row[-1] for row in _all_rows(parts)]
    found = range_of(scores)
    _refuse_far_scores(parts, np.array(scores), found)
    return found


LARGEST_GAP = 0.9
"""The share of the range of all scores that may lie between two neighbours: beyond it, few scores squash the others."""
_FEW_SCORES = 0.1
"""The share of the rows up to which scores are few; in an unusual range fewer than half are."""


def _refuse_far_scores(parts: Sequence[_Rows], scores: Float64Array, found: tuple[float, float]) -> None:
    """Refuse scores that lie so far from most others that these become nearly one, as a 999 for a missing score.

    Args:
        parts: the rows of each file.
        scores: all scores ``[n]``.
        found: the range that is taken for them; the usual ones up to 5 may be filled at both ends alone.

    Raises:
        DataError: which names the first of them with its line.
    """
    ordered = np.sort(scores)
    gaps = np.diff(ordered)
    below = int(gaps.argmax()) + 1
    if gaps[below - 1] <= LARGEST_GAP * (ordered[-1] - ordered[0]):
        return
    few, most = sorted((ordered[:below], ordered[below:]), key=len)
    is_usual = found in SCORE_RANGES
    if most[0] == most[-1] or range_of(most.tolist()) == found:
        return
    if is_usual and (found[1] <= 5 or len(few) > _FEW_SCORES * len(scores)):
        return
    for part in parts:
        for row, (_, _, score) in enumerate(part.rows):
            if few[0] <= score <= few[-1]:
                raise part.score_error(
                    row,
                    f"score {score:g} is far from the others, of which most lie between {most[0]:g} and {most[-1]:g}: "
                    f"correct it or remove the row; --score-range {ordered[0]:g},{ordered[-1]:g} takes it as it is",
                )


def _check_scores(part: _Rows, low: float, high: float) -> None:
    """Refuse scores outside of a range."""
    for row, (_, _, score) in enumerate(part.rows):
        if not low <= score <= high:
            raise part.score_error(row, f"score {score:g} is not between {low:g} and {high:g}")


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
    if kind is None:
        return infer_layout(source, fields=fields)
    try:
        layout = infer_layout(source, fields=fields)
    except InputError:
        return infer_layout(source, kind=kind, fields=fields)
    if layout.kind == "classed-pairs":  # it may be meant as pairs
        return infer_layout(source, kind=kind, fields=fields)
    return layout


def read_classes(
    files: Sequence[str], kind: Kind = "labels", *, fields: str | None = None, subset: Subset | None = None
) -> TrainingSentences:
    """Read texts or pairs with their classes, whose numbers become the scores; rows with an empty text are left out.

    Args:
        files: tables.
        kind: ``labels`` for a text and its class, ``classed-pairs`` for two texts and their class. Classes are numbered
            from 0 in the order of their names.
        fields: other names of the columns, as ``TEXT,LABEL`` or ``A,B,LABEL``.
        subset: which of the rows are trained on.

    Raises:
        InputError: if there are fewer than two classes.
    """
    parts = []
    for name in files:
        table = read_table(name, kind=kind, fields=fields)
        part = _Rows(name, open_source(name).path, [], table.reading)
        for number, (*texts, label) in enumerate(zip(*table.texts, map(str, table.values or []), strict=True)):
            if not part.leave_out(table, number, texts):
                part.rows.append((*texts, label))
        parts.append(part)
    corpus = _corpus(parts, subset, values=True)
    labels = corpus.scores or []
    classes = sorted(set(labels))
    if len(classes) < 2:
        raise InputError(f"{', '.join(files)}: all classes are {classes[0]!r}: there is nothing to tell apart")
    numbers = {label: float(number) for number, label in enumerate(classes)}
    return replace(corpus, scores=[numbers[label] for label in labels])


def negatives_of(files: Sequence[str], fields: str | None = None, kind: Kind | None = None) -> int:
    """Return the number of columns of hard negatives in the table of anchors that has most of them."""
    most = 0
    for name in files:
        layout = layout_of([name], fields, kind)
        if layout is not None and layout.kind == "triplets":
            most = max(most, len(layout.columns) - 2)
    return most


def read_anchors(
    files: Sequence[str],
    *,
    fields: str | None = None,
    subset: Subset | None = None,
    kind: Kind | None = None,
    seed: int = 0,
) -> TrainingSentences:
    """Read anchors, their positives and their hard negatives; rows without an anchor or a positive are left out.

    Rows may have different numbers of negatives: each gets as many as the row that has most, see `fill_negatives`.

    Args:
        files: tables with the columns ``anchor``, ``positive`` and, if there are any, ``negative`` or ``negative_1``,
            ``negative_2`` and so on.
        fields: other names of the columns, as ``ANCHOR,POSITIVE[,NEGATIVE...]``.
        subset: which of the rows are trained on.
        kind: as for `layout_of`.
        seed: draws the negatives of rows that have too few.

    Raises:
        DataError: if a negative equals its positive.
    """
    parts: list[_Rows] = []
    for name in files:
        layout = layout_of([name], fields, kind)
        if layout is not None and layout.kind not in ("pairs", "triplets"):
            raise DataError(name, f"{layout.holds}, while {files[0]} holds anchors")
        table = read_table(name, kind="pairs" if layout is None else layout.kind, fields=fields)
        parts.append(_anchor_rows(name, table))
    rows_of_files = [part.rows for part in parts]
    notes = fill_negatives(rows_of_files, negatives_of(files, fields, kind), seed)
    return replace(_corpus(parts, subset), notes=notes)


def _anchor_rows(name: str, table: LabelledTable) -> _Rows:
    """Return the rows of a table that have an anchor and a positive, with the negatives that they have.

    Raises:
        DataError: if a negative equals its positive.
    """
    part = _Rows(name, open_source(name).path, [], table.reading)
    for number, (anchor, positive, *negatives) in enumerate(zip(*table.texts, strict=True)):
        if part.leave_out(table, number, (anchor, positive)):
            continue
        if positive in negatives:
            column = table.columns[2 + negatives.index(positive)]
            raise table.error(number, f"{column} is equal to {table.columns[1]}")
        part.rows.append((anchor, positive, *filter(str.strip, negatives)))
    return part


def read_adjacent(files: Sequence[str], *, text_field: str = "text", subset: Subset | None = None) -> TrainingSentences:
    """Read every text with the one after it; an empty line or row ends a document.

    Args:
        files: as for `read_corpus`, in the order of the documents.
        text_field: the column of a table that holds the texts.
        subset: which of the pairs are trained on.
    """
    parts = []
    for name in files:
        source = open_source(name)
        part = _Rows(name, source.path, [])
        last = ""
        for row in rows(source, ReadOptions(text_field=text_field, on_null="empty")):
            text = ""
            if row is not None:
                text = row.text.strip()
            if last and text:
                part.rows.append((last, text))
            last = text
        parts.append(part)
    return _corpus(parts, subset)


def every_hold_out(kind: str, files: Sequence[str]) -> list[str]:
    """Return the names of all files for ``topics``, all N folds for ``N-fold``, and any other value as it is."""
    if kind == TOPICS:
        names = list(map(task_name, _all_tables(files)))
        _refuse_equal_names(names)
        if len(names) < 2:
            raise InputError("--hold-out topics: give a folder of tables, one for each topic, or several tables")
        return names
    match = re.fullmatch(r"(\d+)-fold", kind)
    if match:
        count = int(match[1])
        if count < 2:
            raise InputError(f"--hold-out {kind}: at least two folds are needed")
        return [f"{number}/{count}" for number in range(1, count + 1)]
    return [kind]


def _held_out(hold_out: str | None, parts: Sequence[_Rows]) -> Int64Array:
    """Return the numbers of the pairs that are held out, counted over all files."""
    if hold_out is None:
        return np.arange(0)
    rows_of_file = {}
    names = []
    total = 0
    for part in parts:
        name = task_name(part.name)
        names.append(name)
        rows_of_file[name] = np.arange(total, total + len(part.rows))
        total += len(part.rows)
    match = re.fullmatch(r"(\d+)/(\d+)", hold_out)
    if match:
        number, count = int(match[1]), int(match[2])
        if count > total:
            files = ", ".join([part.name for part in parts])
            raise InputError(f"--hold-out {hold_out}: {count} folds need as many pairs, and {files} has {total}")
        return _fold(hold_out, number, count, total)
    _refuse_equal_names(names)
    if hold_out not in rows_of_file:
        raise InputError(
            f"--hold-out {hold_out}: no such file of pairs{nearest(hold_out, names)}; a fold such as 1/10, or one of: "
            f"{', '.join(names)}"
        )
    return rows_of_file[hold_out]


def _fold(hold_out: str, number: int, count: int, total: int) -> Int64Array:
    """Return the pairs of a fold, given its number from 1, the number of folds and that of all pairs."""
    from sklearn.model_selection import KFold

    if not 1 <= number <= count or count < 2:
        raise InputError(f"--hold-out {hold_out}: expected one of at least two folds, such as 1/10")
    splitter = KFold(count, shuffle=True, random_state=_FOLD_SEED)
    folds = list(splitter.split(np.arange(total)))
    _, held_out = folds[number - 1]
    return held_out


def _refuse_equal_names(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"two files of pairs are called {name}: rename one, so that --hold-out can tell them apart"
            )


def _all_tables(files: Sequence[str]) -> list[str]:
    """Return the tables that names stand for: each of a SentEval folder, a folder of tables, or one table."""
    tables: list[str] = []
    for name in files:
        stsb = Path(name) / sts_pairs.STSB_TRAIN
        if stsb.parent.is_dir():
            tables.append(str(stsb))
        else:
            tables += pair_files(name)
    return tables


def _scored_rows(name: str, fields: str | None, kind: Kind | None, limit: int | None) -> _Rows:
    """Return the first pairs of a table with their scores, or with their labels 0 and 1."""
    source = open_source(name)
    reading = ""
    if source.path.name == sts_pairs.STSB_TRAIN.name:
        table = read_stsb_layout(source)
    else:
        layout = layout_of([name], fields, kind)
        is_binary = layout is not None and layout.kind == "binary"
        table = read_table(name, kind="binary" if is_binary else "scored", fields=fields)
        reading = table.reading
    scores = map(float, (table.values or [])[:limit])
    rows = list(zip(*table.texts, scores, strict=False))
    return _Rows(name, source.path, rows, reading, table)
