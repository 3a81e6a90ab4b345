"""The user's own data for ``evaluate`` and ``train --dev``: tables of labelled text and retrieval sets as tasks.

Everything is read and checked here, before a text is encoded.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from sentcli import console
from sentcli.data import dataset_path
from sentcli.errors import DataError, InputError
from sentcli.evaluation import significance, sts, sts_pairs
from sentcli.evaluation.beir_files import is_beir, splits_of
from sentcli.evaluation.evaluated import EvaluatedModel, OwnTask, for_model
from sentcli.evaluation.files import is_stsb, read_stsb_layout
from sentcli.evaluation.known_sets import canonical
from sentcli.evaluation.labelled_tasks import TRAINER, BinaryTask, LabelsTask, TripletsTask
from sentcli.evaluation.positives import PairsTask
from sentcli.evaluation.retrieval import RetrievalSet, load_set
from sentcli.evaluation.retrieval_tasks import RetrievalTask
from sentcli.evaluation.scores import AVERAGE
from sentcli.io.labelled import NAMED_ROWS, LabelledTable, OnEmpty, range_of, read_table
from sentcli.io.labelled_kinds import Kind
from sentcli.io.labelled_records import pair_files
from sentcli.io.places import is_remote
from sentcli.io.sources import Source, input_files, is_in_memory, open_source
from sentcli.printable import as_text

_LEAST_ROWS = 10
"""Fewer rows, anchors or queries tell nothing of a model."""
LEAST_TEXTS_OF_A_CLASS = TRAINER.folds + 2
"""The texts that a class needs, so that nine tenths of them can be split into ten folds again."""


def labelled_choices(tasks: Sequence[OwnTask], model: EvaluatedModel, pair_fields: str | None) -> dict[str, Any]:
    """Return every choice that moves a score of a model on tasks, except how it is loaded.

    Args:
        tasks: on the user's own data.
        model: that is scored.
        pair_fields: the columns of the tables, if they were given.
    """
    by_kind: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for task in tasks:
        adapted: Any = for_model(task, model.spec)
        by_kind[str(task.kind.table)] |= adapted.protocol
    protocol = {"kinds": by_kind, **model.spec.role_prompts, "interval_draws": significance.RESAMPLES}
    if pair_fields:
        protocol["pair_fields"] = pair_fields
    return protocol


def load_tasks(
    files: Sequence[str],
    *,
    kind: Kind | None = None,
    fields: str | None = None,
    resamples: int = significance.RESAMPLES,
    skip_empty: bool = False,
    group_by: str | None = None,
    split: str = "dev",
) -> list[OwnTask]:
    """Read and check tables of labelled text and retrieval sets.

    Args:
        files: tables, folders of tables, folders in BEIR layout, or names of sets that ``sentcli data get`` fetched.
        kind: of the tables; None tells it from the columns.
        fields: the columns of the tables, as for `labelled.read_table`.
        resamples: samples of the items, for intervals and comparisons; 0 leaves them out.
        skip_empty: leave out rows with an empty cell, which are an error otherwise.
        group_by: a column of texts with a class: rows with one value are in one fold.
        split: of a retrieval set that has several.

    Returns:
        A task for each table and set, whose names are unique.

    Raises:
        InputError: if a file is missing or named twice, or is of no kind.
        DataError: for data that cannot be scored; it names the file and, where there is one, the line.
    """
    paths: list[str] = []
    for file in files:
        paths += _expanded(file, kind)
    sets = [path for path in paths if Path(path).is_dir()]
    table_options = []
    if fields is not None:
        table_options.append(f"--pair-fields {fields}")
    if kind not in (None, "retrieval"):
        table_options.append(f"--kind {kind}")
    if table_options and len(sets) == len(paths):
        raise InputError(f"{table_options[0]} is of tables, and {', '.join(sets)} is in BEIR layout")
    tasks: list[OwnTask] = []
    for path, name in zip(paths, _names(paths), strict=True):
        if name == AVERAGE:
            raise InputError(f"{path}: a data set cannot be called {AVERAGE}; rename it")
        if path in sets:
            tasks.append(RetrievalTask.of_own(name, _checked_set(Path(path), split), resamples))
        else:
            table, caveats = _read(path, kind, fields, group_by, skip_empty=skip_empty)
            tasks.append(_task(table, name, resamples, caveats))
    return tasks


def _expanded(file: str, kind: Kind | None) -> list[str]:
    """Return the tables in a folder, or the file or the folder in BEIR layout itself."""
    files = input_files([file])
    if is_remote(file) or files != [file]:
        return files
    path = Path(file)
    if not path.exists():
        path = dataset_path(Path(canonical(file)))
    if not path.is_dir() or is_beir(path) or kind == "retrieval":
        return [str(path)]
    if (path / "STS").is_dir() or (path / "MR").is_dir():
        raise InputError(
            f"{path} is a SentEval folder: sts-eval --data and senteval --data score it; name single files of it here"
        )
    return pair_files(str(path))


def _names(paths: Sequence[str]) -> list[str]:
    """Return the last parts of paths, as many as tell them apart."""
    resolved: list[Path] = []
    all_parts = []
    for path in paths:
        place = Path(path).resolve()
        if place in resolved:
            raise InputError(f"{path} is named twice")
        resolved.append(place)
        # a link has its own name here, since that of its target may be a checksum
        whole = Path(os.path.normpath(Path(path).absolute()))
        named = whole.with_suffix("") if is_in_memory(whole) else whole
        all_parts.append(tuple(map(as_text, named.parts)))
    names = []
    for parts in all_parts:
        others = [other for other in all_parts if other != parts]
        depth = 1
        while any(other[-depth:] == parts[-depth:] for other in others):
            depth += 1
        names.append("/".join(parts[-depth:]))
    return names


def own_table(
    file: str | Source,
    kind: Kind | None,
    fields: str | None,
    on_empty: OnEmpty,
    group_by: str | None = None,
    problems: list[InputError] | None = None,
) -> LabelledTable:
    """Read a table of the user, which may have STS-B's layout; the arguments are those of `read_table`."""
    source = file if isinstance(file, Source) else open_source(file)
    if fields is None and kind in (None, "scored") and is_stsb(source):
        return read_stsb_layout(source)
    return read_table(source, kind=kind, fields=fields, on_empty=on_empty, group_by=group_by, problems=problems)


def _read(
    path: str, kind: Kind | None, fields: str | None, group_by: str | None, *, skip_empty: bool
) -> tuple[LabelledTable, Mapping[str, Any]]:
    """Read a table that has enough rows and no empty cell, say what it was taken for, and count what is wrong in it."""
    on_empty: OnEmpty = "skip" if skip_empty else "error"
    table = own_table(path, kind, fields, on_empty, group_by)
    name = table.name
    if group_by is not None and table.kind != "labels":
        raise InputError(f"--group-by {group_by} is of texts with a class (--kind labels), and {name} has {table.kind}")
    if table.kind == "classed-pairs":
        distinct = dict.fromkeys(table.values or [])
        classes = ", ".join(repr(value)[:40] for value in islice(distinct, 5))
        raise DataError(
            name,
            f"{table.columns[-1]} has classes ({classes}), and nothing here scores pairs with a class: train --method "
            "sbert-nli learns from them; if they mean yes and no, write 1 and 0; if they are scores, numbers",
        )
    console.note(f"{name}: {table.reading}")
    if table.skipped:
        console.warn(f"{name}: {table.skipped:,} rows with an empty cell are left out")
    contradictions = table.contradictions()
    if contradictions:
        count = f"{len(contradictions):,} texts"
        first_rows = contradictions[0][:NAMED_ROWS]
        lines = " and ".join(str(table.lines[row]) for row in first_rows)
        console.warn(f"{name}: {count} have different labels in several rows, first {table.unit}s {lines}")
    _require_enough(name, len(table), "rows")
    return table, {"skipped_empty": table.skipped, "contradictions": len(contradictions)}


def _require_enough(file: str, count: int, items: str) -> None:
    """Raise a DataError for fewer than `_LEAST_ROWS` items."""
    if count < _LEAST_ROWS:
        raise DataError(file, f"{count} {items}; at least {_LEAST_ROWS} are needed to tell models apart")


def _task(table: LabelledTable, name: str, resamples: int, caveats: Mapping[str, Any]) -> OwnTask:
    """Return the task of a table, after checking that its labels tell something of a model."""
    if table.kind == "scored":
        pairs = sts_pairs.scored_table(table, name)
        ends = range_of(pairs.gold.tolist())
        return sts.SimilarityTask(name, [pairs], resamples, ends=ends, caveats=caveats)
    if table.kind in ("binary", "labels"):
        _check_labels(table)
        if table.kind == "binary":
            return BinaryTask(name, table, resamples, caveats)
        return _with_copies(LabelsTask(name, table, resamples, caveats))
    if table.kind == "pairs":
        anchors, positives, *_ = table.texts
        _require_enough(table.name, len(set(anchors)), "different anchors")
        if len(set(positives)) == 1:
            raise DataError(table.name, "all positives are equal: there are no others to search")
        return PairsTask(name, table, resamples, caveats)
    for column, texts in zip(table.columns[2:], table.texts[2:], strict=True):
        for row, (positive, negative) in enumerate(zip(table.texts[1], texts, strict=True)):
            if negative == positive:
                raise table.error(row, f"{column} equals {table.columns[1]}: {negative[:60]!r}")
    return TripletsTask(name, table, resamples, caveats)


def not_numbers(labels: Mapping[str, int]) -> list[str]:
    """Return the labels that are no numbers, where most rows have a number; they may stand for a missing rating.

    Args:
        labels: how many rows have each.
    """
    others = []
    rows = 0
    for label, count in labels.items():
        if not re.fullmatch(r"[-+]?\d+([.,]\d+)?", label.strip()):
            others.append(label)
            rows += count
    if 2 * rows >= sum(labels.values()):
        return []
    return others


def _with_copies(task: LabelsTask) -> LabelsTask:
    """Say how many texts stand in another fold as well, and return the task with their number among its caveats."""
    table = task.table
    odd = not_numbers(Counter(map(str, table.values or [])))
    if odd:
        names = ", ".join(map(repr, odd[:NAMED_ROWS]))
        console.warn(f"{table.name}: most labels are numbers, and {names} are classes of their own; were they missing?")
    copies = task.copies_across_folds()
    count = sum(copies.values())
    if count:
        both = f"{copies['equal']:,} equal and {copies['nearly_equal']:,} equal but for case, digits and signs"
        share = 100 * count / len(table)
        advice = "" if table.groups else "; --group-by COLUMN keeps in one fold what belongs together"
        console.warn(
            f"{table.name}: {count:,} of {len(table):,} texts stand in another fold as well ({both}): "
            f"where the label is the same, too, these {share:.1f} % are right without being understood{advice}; "
            "analyze duplicates --write leaves copies out"
        )
    return replace(task, caveats={**task.caveats, "copies_across_folds": copies})


def _check_labels(table: LabelledTable) -> None:
    """Raise a DataError unless there are several labels, and enough texts of each class for folds within folds."""
    labels = list(map(str, table.values or []))
    counts = Counter(labels)
    rarest = min(counts, key=counts.__getitem__)
    fewest = counts[rarest]
    if len(counts) == 1:
        label = f"{float(rarest):.0f}" if table.kind == "binary" else repr(rarest)
        raise DataError(table.name, f"all {len(table):,} labels are {label}: there is nothing to tell apart")
    if table.kind == "labels" and fewest < LEAST_TEXTS_OF_A_CLASS:
        problem = f"the class {rarest!r}, which begins here, has only {fewest} of the texts"
        needed = f"ten folds within ten folds need {LEAST_TEXTS_OF_A_CLASS} of each class: join or remove rare classes"
        line = table.lines[labels.index(rarest)]
        raise DataError(table.name, f"{problem}; {needed}", line=line, unit=table.unit)


def _checked_set(folder: Path, split: str) -> RetrievalSet:
    """Read a set in BEIR layout: that split, or the only one it has."""
    splits = splits_of(folder)
    if split not in splits and len(splits) > 1:
        raise InputError(
            f"{folder} has the splits {', '.join(splits)} and no {split}; leave one file in its qrels/, or score a "
            f"split with: retrieve --beir {folder} --split {splits[0]}"
        )
    if splits and split not in splits:
        (split,) = splits
    data = load_set(folder, split)
    qrels = f"{folder}/qrels/{split}.tsv"
    if not data.findable:
        raise DataError(qrels, "no query has a relevant document in corpus.jsonl: there is nothing to find")
    for query, text in data.queries.items():
        if not text.strip():
            raise DataError(f"{folder}/queries.jsonl", f"the query {query!r} is empty")
    _require_enough(qrels, len(data.queries), "judged queries")
    for problem in data.problems:
        console.warn(f"{data.name}: {problem}")
    return data
