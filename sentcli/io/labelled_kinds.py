"""The kinds of tables of labelled text, and which of them the names of columns fit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from sentcli.io.labelled_values import ReadValue, read_class, read_label, read_score

Kind = Literal["scored", "binary", "classed-pairs", "pairs", "triplets", "retrieval", "labels"]
"""The name of a kind; ``retrieval`` is a folder in BEIR layout and no table."""


@dataclass(frozen=True)
class DataKind:
    """A kind of table of labelled text."""

    name: Kind
    words: str
    """The name of its rows in words, for people."""
    columns: tuple[str, ...]
    """The columns by which it is known."""
    fields: str
    """What ``--pair-fields`` has to name, for messages."""
    read_value: ReadValue | None = None
    """Reads a cell of the last column, which holds scores, labels or classes; None if all columns hold texts."""
    more_columns: bool = False
    """Whether it may have more columns than `columns`."""

    def text_columns(self, columns: Sequence[str]) -> int:
        """Return how many of the columns of a table hold texts; they stand in front."""
        return len(columns) - 1 if self.has_values else len(columns)

    @property
    def has_values(self) -> bool:
        """Whether the last column holds scores, labels or classes."""
        return self.read_value is not None

    @property
    def is_pair_with_value(self) -> bool:
        """Whether a row is two texts and a value."""
        return self.has_values and len(self.columns) == 3


DATA_KINDS: dict[Kind, DataKind] = {
    kind.name: kind
    for kind in (
        DataKind(
            "scored",
            words="scored pairs",
            columns=("sentence1", "sentence2", "score"),
            fields="the names of three columns, A,B,SCORE",
            read_value=read_score,
        ),
        DataKind(
            "binary",
            words="0/1 pairs",
            columns=("sentence1", "sentence2", "label"),
            fields="the names of three columns, A,B,LABEL",
            read_value=read_label,
        ),
        DataKind(
            "classed-pairs",
            words="pairs with a class",
            columns=("premise", "hypothesis", "label"),
            fields="the names of three columns, A,B,LABEL",
            read_value=read_class,
        ),
        DataKind(
            "pairs",
            words="pairs of anchor and positive",
            columns=("anchor", "positive"),
            fields="the names of two columns, ANCHOR,POSITIVE (with negatives: --kind triplets)",
        ),
        DataKind(
            "triplets",
            words="triplets",
            columns=("anchor", "positive", "negative"),
            fields="the names of at least three columns, ANCHOR,POSITIVE,NEGATIVE[,NEGATIVE2...]",
            more_columns=True,
        ),
        DataKind(
            "labels",
            words="texts with a class",
            columns=("text", "label"),
            fields="the names of two columns, TEXT,LABEL",
            read_value=read_class,
        ),
    )
}
"""The kinds of tables by their names."""
SENTENCE_COLUMNS = (
    ("sentence1", "sentence2"), ("sentence_1", "sentence_2"), ("question1", "question2"), ("text1", "text2"),
    ("text_a", "text_b"), ("premise", "hypothesis"),
)  # fmt: skip
"""Two texts that need a label or a score beside them."""
ANCHOR_COLUMNS = (("anchor", "positive"), ("sent0", "sent1"))
"""Two texts of which the second is a positive; SimCSE's NLI file has the second names."""
POSITIVE_LISTS = ("pos", "positive_passages")
"""Columns of lists of positives, as FlagEmbedding and tevatron have them; each positive is a row."""
QUESTION_COLUMNS = (
    ("query", "passage"), ("query", "answer"), ("question", "answer"), *(("query", name) for name in POSITIVE_LISTS),
)  # fmt: skip
"""Anchor and positive, unless there is a label or a score beside them."""
VALUE_COLUMNS: dict[str, tuple[Kind, ...]] = {
    "score": ("scored",), "regression_label": ("scored",), "similarity": ("scored", "binary"),
    "gold": ("scored", "binary"), "label": ("binary", "classed-pairs"), "is_duplicate": ("binary",),
}  # fmt: skip
"""Columns of values beside two texts, and the kinds that they may make; of two, all values decide, and classes are
three words or more that repeat and can be no numbers and no yes and no. The Argument Facet
Similarity corpus (Misra, Ecker and Walker, SIGDIAL 2016) has ``regression_label``."""
TEXT_COLUMNS = ("text", "sentence")
NEGATIVE_COLUMN = re.compile(r"(?:negatives?|hard_neg|neg|negative_passages)(?:_(\d+))?")
"""The name of a column of negatives: ``negative``, ``negative_1``, ``negative_2`` and so on."""
PAIR_COLUMNS = (*ANCHOR_COLUMNS, *QUESTION_COLUMNS, *SENTENCE_COLUMNS)
KNOWN_COLUMNS = sorted({*sum(PAIR_COLUMNS, ()), *VALUE_COLUMNS, *TEXT_COLUMNS, "negative"})


@dataclass(frozen=True)
class Layout:
    """The columns that a table is read from."""

    kinds: tuple[Kind, ...]
    """The kinds that they may make; `table_layout.infer_layout` leaves one."""
    columns: tuple[str, ...]
    """The names of the columns that are read, as they stand in the table."""
    words: dict[str, float] = field(default_factory=dict)
    """0 or 1 for each text in the column of labels of 0/1 pairs."""

    @property
    def kind(self) -> Kind:
        """The kind, if there is one only."""
        return self.kinds[0]

    @property
    def holds(self) -> str:
        """What a table of this layout holds, for people: ``0/1 pairs (a, b, label)``."""
        return f"{DATA_KINDS[self.kind].words} ({', '.join(self.columns)})"


def column_name(name: str) -> str:
    """Return the name of a column without white space around it, in lower case, with underscores."""
    return re.sub(r"[\s-]+", "_", name.strip("\ufeff \t\r\n").casefold())


def is_negative(column: str) -> bool:
    """Tell whether the name of a column is one of a column of negatives."""
    return NEGATIVE_COLUMN.fullmatch(column_name(column)) is not None


def _by_head(present: Sequence[str]) -> dict[str, str]:
    """Return the names of columns by their heads; of several with one head, that which is written so, or the first."""
    names = {column_name(name): name for name in reversed(present)}
    for name in present:
        if column_name(name) == name:
            names[name] = name
    return names


def layouts(present: Sequence[str]) -> list[Layout]:
    """Return the layouts that the names of columns fit; negatives make triplets and no mere pairs."""
    by_head = _by_head(present)
    values = [name for name in VALUE_COLUMNS if name in by_head]
    negatives = _negatives(by_head)
    fitting: list[Layout] = []

    def add(kinds: tuple[Kind, ...], *names: str) -> None:
        if set(names) <= by_head.keys():
            fitting.append(Layout(kinds, tuple(by_head[name] for name in names)))

    for pair in (*SENTENCE_COLUMNS, *QUESTION_COLUMNS):
        for value in values:
            add(VALUE_COLUMNS[value], *pair, value)
    for pair in (*ANCHOR_COLUMNS, *QUESTION_COLUMNS):
        if negatives:
            add(("triplets",), *pair, *negatives)
        elif pair in ANCHOR_COLUMNS or not values:
            add(("pairs",), *pair)
    for text in TEXT_COLUMNS:
        add(("labels",), text, "label")
    return fitting


def _negatives(by_head: dict[str, str]) -> list[str]:
    """Return the heads of columns of negatives in the order of their numbers."""
    numbers: dict[str, int] = {}
    for name in sorted(by_head):
        match = NEGATIVE_COLUMN.fullmatch(name)
        if match:
            numbers[name] = int(match[1] or 0)
    return sorted(numbers, key=numbers.__getitem__)


def layouts_of(kind: Kind, present: Sequence[str]) -> list[Layout]:
    """Return the layouts of the kind that the user named: two texts are pairs without a value, any value is a score."""
    columns = []
    with_values = []
    for layout in layouts(present):
        if kind in layout.kinds:
            columns.append(layout.columns)
        if DATA_KINDS[layout.kind].is_pair_with_value:
            with_values.append(layout.columns)
    if not columns and kind in ("scored", "binary"):
        columns = with_values
    if not columns and kind == "pairs":
        columns = _pairs(present)
    if not columns:
        columns = [DATA_KINDS[kind].columns]  # reading names the columns that are missing
    return [Layout((kind,), names) for names in columns]


def _pairs(present: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the names of each two columns that hold two texts."""
    by_head = _by_head(present)
    pairs: list[tuple[str, ...]] = []
    for first, second in PAIR_COLUMNS:
        if first in by_head and second in by_head:
            pairs.append((by_head[first], by_head[second]))
    return pairs


def kinds_of(columns: Sequence[str]) -> list[Kind]:
    """Return the kinds of table that the names of columns fit."""
    return distinct_kinds(layouts(columns))


def distinct_kinds(fitting: Sequence[Layout]) -> list[Kind]:
    """Return the kinds that some layouts may make, each once."""
    kinds: dict[Kind, None] = {}
    for layout in fitting:
        kinds.update(dict.fromkeys(layout.kinds))
    return list(kinds)
