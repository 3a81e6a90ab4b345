"""A check of a table of labelled text, before it trains or scores a model: its kind, its labels and its problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from shlex import quote
from statistics import median
from typing import Any

from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.errors import InputError, joined_errors, nearest
from sentcli.evaluation.labelled_data import not_numbers, own_table
from sentcli.io.formats import records, without_broken_lines
from sentcli.io.labelled import NAMED_ROWS, LabelledTable
from sentcli.io.labelled_kinds import Kind
from sentcli.io.labelled_records import columns_of
from sentcli.io.sources import Source, open_source
from sentcli.io.text_checks import TITLES, Occurrences, TextChecks, repeated
from sentcli.table import Table

CHECK_TITLES = {"equal_rows": "equal rows", "repeated_ids": "repeated ids", **TITLES}
_PROPOSED_METHODS = {
    "scored": "cosent",
    "binary": "online-contrastive",
    "labels": "supcon",
    "classed-pairs": "sbert-nli",
}
"""The method of ``train`` that is proposed for a kind of table; for the others it is simcse."""
NOT_SCORED = "classed-pairs"
"""The kind of table that nothing scores."""


@dataclass(frozen=True)
class TableCheck:
    """The facts of a table, and the problems in it."""

    table: LabelledTable
    broken_lines: Sequence[InputError]
    wrong_values: Sequence[InputError]
    id_column: str | None
    checks: Mapping[str, Occurrences]
    """How often each possible problem of rows occurs, and where first: line and column, or two lines."""
    lengths: Mapping[str, Any]
    """Median and greatest length of the texts, with their unit."""
    commands: Sequence[str]
    """Commands that use the table."""

    @property
    def problems(self) -> list[InputError]:
        """The errors for which the other commands would refuse the table."""
        return [*self.broken_lines, *self.wrong_values]

    @property
    def labels(self) -> dict[str, int]:
        """The labels with the number of their rows, the most frequent first."""
        counts: Counter[Any] = Counter()
        for value in self.table.values or []:
            counts[f"{value:g}" if isinstance(value, float) else value] += 1
        return dict(counts.most_common())

    def to_dict(self) -> dict[str, Any]:
        """Return the results as JSON."""
        table = self.table
        groups = table.contradictions()
        results: dict[str, Any] = {
            "kind": table.kind,
            "columns": list(table.columns),
            "rows": len(table) + table.skipped + len(self.wrong_values),
            "broken_lines": len(self.broken_lines),
            "wrong_values": len(self.wrong_values),
            "empty_cells": {"count": len(table.empty), "rows": table.skipped, "first": table.empty[:NAMED_ROWS]},
            "contradictions": {"count": len(groups), "first": self._lines_of(groups[:NAMED_ROWS])},
            "id_column": self.id_column,
        }
        for what, occurrences in self.checks.items():
            results[what] = occurrences.to_dict()
        results["labels"] = self.labels
        results["lengths"] = dict(self.lengths)
        results["commands"] = list(self.commands)
        return results

    def _lines_of(self, groups: Sequence[Sequence[int]]) -> list[list[int]]:
        """Return the line of each row of some groups of rows."""
        lines = []
        for rows in groups:
            lines.append([self.table.lines[row] for row in rows])
        return lines

    def show(self, title: str) -> Table:
        """Return a row for each fact."""
        table = self.table
        rows: list[list[Any]] = [
            ["read as", table.reading],
            ["rows", len(table) + table.skipped + len(self.wrong_values)],
            ["empty cells", self._empty_cells()],
            ["equal texts with different labels", self._contradictions()],
        ]
        for what, occurrences in self.checks.items():
            if what != "repeated_ids" or self.id_column is not None:
                rows.append([CHECK_TITLES[what], _occurrences(occurrences, table.unit)])
        rows.append(["labels", self._label_counts()])
        odd = not_numbers(self.labels)
        if odd:
            rows.append(["labels among numbers that are none", ", ".join(map(repr, odd))])
        lengths = []
        for key, value in self.lengths.items():
            if value is not None:
                lengths.append(f"{key} {value}")
        rows.append(["lengths", ", ".join(lengths)])
        for command in self.commands:
            rows.append(["command", command])
        return Table(title, ["what", "value"], rows, wide=["value"])

    def _empty_cells(self) -> str:
        """Return how many cells are empty, and where first."""
        places = []
        for line, column in self.table.empty[:NAMED_ROWS]:
            places.append(f"{self.table.unit} {line} ({column})")
        return _counted(len(self.table.empty), ", ".join(places))

    def _contradictions(self) -> str:
        """Return how many texts have different labels, and where first."""
        groups = self.table.contradictions()
        places = []
        for lines in self._lines_of(groups[:NAMED_ROWS]):
            numbers = ", ".join(map(str, lines))
            places.append(f"{self.table.unit}s {numbers}")
        return _counted(len(groups), "; ".join(places))

    def _label_counts(self) -> str:
        """Return how many different labels there are, and the number of rows of the most frequent ones."""
        if not self.labels:
            return "none"
        counts = []
        for label, count in islice(self.labels.items(), NAMED_ROWS):
            counts.append(f"{label!s:.40}: {count:,}")
        return f"{len(self.labels):,} different: {', '.join(counts)}"


def check_table(
    file: str, kind: Kind | None, pair_fields: str | None, model: str | None, id_field: str | None
) -> TableCheck:
    """Read a table, and count what may be wrong with it.

    Args:
        file: the table.
        kind: its kind; None tells it from columns and values.
        pair_fields: the columns, as for `labelled.read_table`.
        model: in whose tokens texts are measured; None measures in words.
        id_field: the column of the ids; None takes ``id`` or ``_id``, if there is one.

    Raises:
        InputError: if the table cannot be read at all, with everything that is wrong with its rows.
    """
    source, broken = without_broken_lines(open_source(file))
    wrong: list[InputError] = []
    try:
        table = own_table(source, kind, pair_fields, "skip", problems=wrong)
    except InputError as error:
        raise joined_errors([*broken, *wrong, error]) from error
    id_column = _id_column(source, id_field)
    return TableCheck(
        table=table,
        broken_lines=broken,
        wrong_values=wrong,
        id_column=id_column,
        checks=_checks(source, table, id_column),
        lengths=_lengths(list(chain.from_iterable(table.texts)), model),
        commands=_commands(table, kind, pair_fields, model),
    )


def _commands(table: LabelledTable, kind: Kind | None, pair_fields: str | None, model: str | None) -> list[str]:
    """Return the commands that score and train with a table."""
    options = ""
    if pair_fields:
        options += f" --pair-fields {quote(pair_fields)}"
    if kind:
        options += f" --kind {kind}"
    name = quote(table.name)
    encoder = quote(model or "MODEL")
    commands = []
    if table.kind != NOT_SCORED:
        skip = " --skip-empty" if table.empty else ""
        commands.append(f"sentcli evaluate {name} -m {encoder}{options}{skip}")
    method = _PROPOSED_METHODS.get(table.kind, "simcse")
    commands.append(f"sentcli train --method {method} -m {encoder} --data {name}{options} -o DIR")
    return commands


def _id_column(source: Source, id_field: str | None) -> str | None:
    """Return the column of ids.

    Raises:
        InputError: if the one that the user names is not there.
    """
    names = columns_of(source)
    if id_field is not None and id_field not in names:
        raise InputError(f"no column {id_field!r} for ids{nearest(id_field, names)}; it has {', '.join(names)}")
    for name in (id_field, "id", "_id"):
        if name in names:
            return name
    return None


def _checks(source: Source, table: LabelledTable, id_column: str | None) -> dict[str, Occurrences]:
    """Return what may be wrong with rows, and where first: line and column, or two lines."""
    checks = TextChecks()
    for column, texts in zip(table.columns, table.texts, strict=False):
        for line, text in zip(table.lines, texts, strict=True):
            checks.look(text, [line, column])
    values = table.values or [None] * len(table)
    contents = zip(*table.texts, values, strict=True)
    return {
        "equal_rows": repeated(zip(contents, table.lines, strict=True)),
        "repeated_ids": repeated(_ids(source, id_column)),
        **checks.occurrences,
    }


def _ids(source: Source, id_column: str | None) -> Iterator[tuple[str, int]]:
    """Yield the id of each row that has one, with its line."""
    if id_column is None:
        return
    for line, record in records(source):
        key = record.get(id_column)
        if key is not None:
            yield str(key), line


def _counted(count: int, where: str) -> str:
    return f"{count:,}: {where}" if where else f"{count:,}"


def _occurrences(occurrences: Occurrences, unit: str) -> str:
    """Return how often something was found, and where first."""
    places = []
    for line, other in occurrences.first:
        if isinstance(other, str):
            places.append(f"{unit} {line} ({other})")
        else:
            places.append(f"{unit}s {line} and {other}")
    return _counted(occurrences.count, ", ".join(places))


def _lengths(texts: list[str], model: str | None) -> dict[str, Any]:
    """Return median and greatest length: in tokens, with how many texts a model would cut, or without it in words."""
    unit = "words"
    limit = longer = None
    if model is None:
        lengths = [len(text.split()) for text in texts]
    else:
        unit = "tokens"
        tokenizer = SentenceEncoder.load(model, device="cpu", make_export=False).tokenizer
        tokens = tokenizer(texts)
        lengths = (tokens.lengths + tokens.excess_tokens).tolist()
        limit = tokenizer.max_length
        if limit is not None:
            longer = sum(length > limit for length in lengths)
    return {
        "unit": unit,
        "median": int(median(lengths)),
        "longest": max(lengths),
        "limit": limit,
        "longer": longer,
    }
