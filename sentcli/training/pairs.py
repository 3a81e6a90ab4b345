"""Training data of several texts a row: scored pairs, anchors with positives and negatives, adjacent sentences."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sentcli.errors import DataError, InputError, nearest
from sentcli.evaluation import sts
from sentcli.evaluation.pair_tables import is_stsb
from sentcli.io.labelled import STSB_RANGE, range_of, read_table
from sentcli.io.labelled_kinds import IN_WORDS, Kind, Layout, columns_of, layouts, tell
from sentcli.io.readers import ReadOptions, pair_files, rows, task_name
from sentcli.io.sources import open_source
from sentcli.training.data import Subset, TrainingSentences, file_facts

FOLD_SEED = 42
"""The seed that shuffles pairs before they are split into folds, as in IS-BERT's code for AFS."""
TOPICS = "topics"
"""The value of ``--hold-out`` that holds out each file in turn."""


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
    limit = subset.read_limit if hold_out is None else None
    scored: list[tuple[str, str, float]] = []
    row_counts, paths, taken, names = [], [], [], [table for name in files for table in _tables(name)]
    for name in names:
        path, pairs, words = _pairs(name, fields, kind)
        taken += [words] if words else []
        before = len(scored)
        for number, (first, second, score) in enumerate(pairs, 1):
            if len(scored) == limit:
                break
            if score_range is not None and not score_range[0] <= score <= score_range[1]:
                message = f"score {score:g} is not between {score_range[0]:g} and {score_range[1]:g}"
                raise DataError(name, message, line=number, unit="pair")
            scored.append((first, second, score))
        row_counts.append(len(scored) - before)
        paths.append(path)
    if not scored:
        raise InputError(f"no pair to train on in {', '.join(files)}")
    of_stsb = all(Path(name).name == sts.STSB_TRAIN.name for name in names)
    low, high = score_range or (STSB_RANGE if of_stsb else range_of([score for _, _, score in scored]))
    scored = [(first, second, (score - low) / (high - low)) for first, second, score in scored]
    held_out = _held_out(hold_out, [task_name(name) for name in names], row_counts)
    rest = np.setdiff1d(np.arange(len(scored)), held_out)
    if not len(rest):
        raise InputError(f"--hold-out {hold_out} leaves no pair to train on")
    chosen = rest[subset.rows(len(rest))]
    sentences, partners, scores = (list(column) for column in zip(*(scored[i] for i in chosen), strict=True))
    facts = file_facts([(path.name, path) for path in paths], row_counts, chosen)
    corpus = TrainingSentences(sentences, facts, 0, (partners,), scores, (low, high), tuple(taken))
    return corpus, None if hold_out is None else sts.scored(hold_out, [scored[i] for i in held_out])


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
        return tell(source, fields=fields)
    except InputError:
        if kind is None:
            raise
        return tell(source, kind=kind, fields=fields)


def read_classes(files: Sequence[str], *, fields: str | None = None, subset: Subset | None = None) -> TrainingSentences:
    """Read texts with their classes, whose numbers become the scores; empty texts are left out and counted.

    Args:
        files: tables with the columns ``text`` and ``label``.
        fields: other names of the columns, as ``TEXT,LABEL``.
        subset: which of the rows are trained on.

    Raises:
        InputError: if there are fewer than two classes.
    """
    tables = [read_table(name, kind="labels", fields=fields) for name in files]
    pairs = [[*zip(table.texts[0], map(str, table.values or []), strict=True)] for table in tables]
    kept = [[pair for pair in of_file if pair[0].strip()] for of_file in pairs]
    paths = [(Path(name).name, open_source(name).path) for name in files]
    blank = sum(map(len, pairs)) - sum(map(len, kept))
    corpus = _as_columns(kept, files, paths, blank, subset)
    (classes,) = corpus.partners
    numbers = {label: float(number) for number, label in enumerate(sorted(set(classes)))}
    if len(numbers) < 2:
        raise InputError(f"{', '.join(files)}: all classes are {classes[0]!r}: there is nothing to tell apart")
    scores = [numbers[label] for label in classes]
    return replace(corpus, partners=(), scores=scores, taken=tuple(table.taken for table in tables))


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
    kept: list[list[tuple[str, ...]]] = []
    paths, taken, blank, width = [], [], 0, 0
    for name in files:
        layout = layout_of([name], fields, kind)
        if layout is not None and layout.kind not in ("pairs", "triplets"):
            raise DataError(
                name, f"{IN_WORDS[layout.kind]} ({', '.join(layout.columns)}), while {files[0]} holds anchors"
            )
        table = read_table(name, kind="pairs" if layout is None else layout.kind, fields=fields)
        taken.append(table.taken)
        width = width or len(table.texts)
        if len(table.texts) != width:
            message = f"{len(table.texts) - 2} columns of negatives, but {width - 2} in {files[0]}"
            raise DataError(name, f"{message}; the tables of one training need the same columns")
        kept.append([])
        for number, texts in enumerate(zip(*table.texts, strict=True)):
            if not all(text.strip() for text in texts):
                blank += 1
            elif texts[1] in texts[2:]:
                raise table.error(number, f"{table.columns[texts.index(texts[1], 2)]} is equal to {table.columns[1]}")
            else:
                kept[-1].append(texts)
        paths.append((Path(name).name, open_source(name).path))
    return replace(_as_columns(kept, files, paths, blank, subset), taken=tuple(taken))


def read_adjacent(files: Sequence[str], *, text_field: str = "text", subset: Subset | None = None) -> TrainingSentences:
    """Read every text with the one after it; an empty line or row ends a document.

    Args:
        files: as for `read_corpus`, in the order of the documents.
        text_field: the column of a table that holds the texts.
        subset: which of the pairs are trained on.
    """
    pairs: list[list[tuple[str, ...]]] = []
    paths = []
    for name in files:
        source, last = open_source(name), ""
        pairs.append([])
        for row in rows(source, ReadOptions(text_field=text_field, on_null="empty")):
            text = row.text.strip() if row is not None else ""
            if last and text:
                pairs[-1].append((last, text))
            last = text
        paths.append((Path(name).name, source.path))
    return _as_columns(pairs, files, paths, 0, subset)


def _as_columns(
    by_file: Sequence[Sequence[tuple[str, ...]]],
    files: Sequence[str],
    paths: list[tuple[str, Path]],
    blank: int,
    subset: Subset | None,
) -> TrainingSentences:
    """Return the chosen ones of the rows of each file as columns, with the facts of the files."""
    rows = [row for of_file in by_file for row in of_file]
    if not rows:
        raise InputError(f"no pair to train on in {', '.join(files)}")
    chosen = (subset or Subset()).rows(len(rows))
    anchors, *partners = (list(column) for column in zip(*(rows[i] for i in chosen), strict=True))
    return TrainingSentences(anchors, file_facts(paths, [*map(len, by_file)], chosen), blank, tuple(partners))


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


def _pairs(name: str, fields: str | None, kind: Kind | None) -> tuple[Path, list[tuple[str, str, float]], str]:
    """Return the path of a table, its pairs with their scores, and what it was taken for."""
    path = Path(name)
    if path.name == sts.STSB_TRAIN.name:
        stsb = sts.read_stsb(path)
        return path, list(zip(stsb.first, stsb.second, stsb.gold.tolist(), strict=True)), ""
    layout = layout_of([name], fields, kind)
    binary = layout is not None and layout.kind == "binary"
    table = read_table(name, kind="binary" if binary else "scored", fields=fields)
    assert table.values is not None
    pairs = zip(*table.texts[:2], map(float, table.values), strict=True)
    return open_source(name).path, list(pairs), table.taken
