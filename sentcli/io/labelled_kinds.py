"""What a table of labelled text holds: told from the names of its columns, and then from all values of one of them.

Nothing is guessed from a single cell. A table that fits two kinds or none is an error with its values.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any, Literal

from sentcli.errors import DataError, InputError, nearest
from sentcli.io.formats import header, headless, records, say_once
from sentcli.io.labelled_values import FEW_VALUES, label_words, repeating, value_kind
from sentcli.io.sources import Source

Kind = Literal["scored", "binary", "classed-pairs", "pairs", "triplets", "retrieval", "labels"]
COLUMNS: dict[Kind, tuple[str, ...]] = {
    "scored": ("sentence1", "sentence2", "score"),
    "binary": ("sentence1", "sentence2", "label"),
    "classed-pairs": ("premise", "hypothesis", "label"),
    "pairs": ("anchor", "positive"),
    "triplets": ("anchor", "positive", "negative"),
    "labels": ("text", "label"),
}
"""The columns by which each kind of table is known; ``retrieval`` is a folder in BEIR layout and no table."""
IN_WORDS: dict[Kind, str] = {
    "scored": "scored pairs",
    "binary": "0/1 pairs",
    "classed-pairs": "pairs with a class",
    "pairs": "pairs of anchor and positive",
    "triplets": "triplets",
    "labels": "texts with a class",
}
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
UNUSED = ("pos_scores", "neg_scores", "prompt")
"""Columns beside lists of positives that change what FlagEmbedding trains, and are not used here."""
VALUE_COLUMNS: dict[str, tuple[Kind, ...]] = {
    "score": ("scored",), "regression_label": ("scored",), "similarity": ("scored", "binary"),
    "gold": ("scored", "binary"), "label": ("binary", "classed-pairs"), "is_duplicate": ("binary",),
}  # fmt: skip
"""Columns of values beside two texts, and the kinds that they may make; of two, all values decide, and classes are
three words or more that repeat and can be no numbers and no yes and no. The Argument Facet
Similarity corpus (Misra, Ecker and Walker, SIGDIAL 2016) has ``regression_label``."""
OF_VALUES: frozenset[Kind] = frozenset({"scored", "binary", "classed-pairs"})
"""The kinds of two texts and a value."""
TEXT_COLUMNS = ("text", "sentence")
NEGATIVE_COLUMN = re.compile(r"(?:negatives?|hard_neg|neg|negative_passages)(?:_(\d+))?")
"""The name of a column of negatives: ``negative``, ``negative_1``, ``negative_2`` and so on."""
KNOWN_COLUMNS = sorted(
    {*sum((*SENTENCE_COLUMNS, *ANCHOR_COLUMNS, *QUESTION_COLUMNS), ()), *VALUE_COLUMNS, *TEXT_COLUMNS, "negative"}
)


@dataclass(frozen=True)
class Layout:
    """The columns that a table is read from."""

    kinds: tuple[Kind, ...]
    """The kinds that they may make; `told` leaves one."""
    columns: tuple[str, ...]
    """The names of the columns that are read, as they stand in the table."""
    words: dict[str, float] = field(default_factory=dict)
    """0 or 1 for each text in the column of labels of 0/1 pairs."""

    @property
    def kind(self) -> Kind:
        """The kind, if there is one only."""
        return self.kinds[0]


def head(name: str) -> str:
    """Return the name of a column without white space around it, in lower case, with underscores."""
    return re.sub(r"[\s-]+", "_", name.strip("\ufeff \t\r\n").casefold())


def columns_of(source: Source, fields: str | None = None) -> list[str]:
    """Return the names of the columns: of the header line, or of the first 100 rows; an empty list if there is none.

    Raises:
        InputError: for plain text, which has no columns.
    """
    if source.format == "txt":
        raise InputError(
            f"{source.name}: plain text has no columns; a table is a .csv, .tsv, .jsonl, .parquet, .xlsx or .ods file"
        )
    first = (name for _, record in islice(labelled_records(source, fields), 100) for name in record)
    return header(source) or list(dict.fromkeys(first))


def text_columns(kind: Kind, names: Sequence[str]) -> int:
    """Return how many of the columns hold texts; the last of `OF_VALUES` and of classes holds values."""
    return len(names) if kind in ("pairs", "triplets") else len(names) - 1


def labelled_records(source: Source, fields: str | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a table in which no text stands in a list.

    A list of negatives becomes the columns ``negative_1``, ``negative_2`` and so on. A record with a list of positives
    becomes a row for each of them, with the same negatives. Passages with a title have it in front of their text.

    Raises:
        DataError: if a row has another number of negatives than the first one, or no positive.
    """
    negatives = [name.strip() for name in (fields or "").split(",")[2:]]
    positives: str | None = None
    lists: dict[str, int] | None = None
    for line, record in records(source):
        if lists is None:
            of_lists = [name for name, value in record.items() if isinstance(value, list)]
            positives = next((name for name in of_lists if head(name) in POSITIVE_LISTS), None)
            named = (name for name in of_lists if name in negatives or NEGATIVE_COLUMN.fullmatch(head(name)))
            lists = {name: len(record[name]) for name in named if record[name] or positives is not None}
            if positives is not None and (unused := [name for name in UNUSED if record.get(name)]):
                say_once(f"{source.name}: {', '.join(unused)} of each query are not used")
        for name, count in lists.items():
            texts = record.pop(name, None)
            if not isinstance(texts, list) or len(texts) != count:
                has = f"{len(texts)} texts" if isinstance(texts, list) else repr(texts)
                problem = f"{name} is {has:.60}, and the first row has {count}: give all rows the same number"
                raise DataError(source.name, problem, line=line, unit=source.unit)
            record |= {f"{name}_{i}": _passage(text) for i, text in enumerate(texts, 1)}
        if positives is None:
            yield line, record
            continue
        texts = record.get(positives)
        if not isinstance(texts, list) or not texts:
            problem = f"{positives} is {texts!r:.60}, and the first row has a list of texts"
            raise DataError(source.name, problem, line=line, unit=source.unit)
        for text in texts:
            yield line, {**record, positives: _passage(text)}


def _passage(value: Any) -> Any:
    """Return the text of a passage, behind its title if it has one; anything but a passage as it is."""
    if not isinstance(value, dict) or not isinstance(value.get("text"), str):
        return value
    return f"{value.get('title') or ''} {value['text']}".strip()


def _by_head(present: Sequence[str]) -> dict[str, str]:
    """Return the names of columns by their heads; of several with one head, that which is written so, or the first."""
    return {head(name): name for name in reversed(present)} | {name: name for name in present if head(name) == name}


def layouts(present: Sequence[str]) -> list[Layout]:
    """Return the layouts that the names of columns fit; negatives make triplets and no mere pairs."""
    by_head = _by_head(present)
    values = [name for name in VALUE_COLUMNS if name in by_head]
    numbered = [(int(match[1] or 0), name) for name in by_head if (match := NEGATIVE_COLUMN.fullmatch(name))]
    negatives = [name for _, name in sorted(numbered)]
    found: list[Layout] = []

    def add(kinds: tuple[Kind, ...], *names: str) -> None:
        if set(names) <= by_head.keys():
            found.append(Layout(kinds, tuple(by_head[name] for name in names)))

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
    return found


def layouts_of(kind: Kind, present: Sequence[str]) -> list[Layout]:
    """Return the layouts of the kind that the user named: two texts are pairs without a value, any value is a score."""
    found = layouts(present)
    if fitting := [layout for layout in found if kind in layout.kinds]:
        return [Layout((kind,), layout.columns) for layout in fitting]
    if kind in ("scored", "binary"):
        found = [Layout((kind,), layout.columns) for layout in found if OF_VALUES & set(layout.kinds)]
    else:
        by_head = _by_head(present)
        pairs = [
            pair for pair in (*ANCHOR_COLUMNS, *QUESTION_COLUMNS, *SENTENCE_COLUMNS) if set(pair) <= by_head.keys()
        ]
        found = [Layout((kind,), tuple(by_head[name] for name in pair)) for pair in pairs if kind == "pairs"]
    return found or [Layout((kind,), COLUMNS[kind])]  # reading names the columns that are missing


def kinds_of(columns: Sequence[str]) -> list[Kind]:
    """Return the kinds of table that the names of columns fit."""
    return list(dict.fromkeys(kind for layout in layouts(columns) for kind in layout.kinds))


def tell(source: Source, *, kind: Kind | None = None, fields: str | None = None) -> Layout:
    """Return the columns that a table is read from, and what they hold.

    Args:
        source: the table.
        kind: that the user named; None tells it.
        fields: the names of the columns that the user gave, as for `labelled.read_table`.

    Raises:
        InputError: if it has no columns, or `fields` does not fit the kind.
        DataError: if the table fits no kind or several, or its values are not of the kind.
    """
    if kind == "retrieval" and fields is None:
        raise InputError("a retrieval set is a folder in BEIR layout (corpus.jsonl, queries.jsonl, qrels/), no table")
    stat = source.path.stat()
    return _tell(source, kind, fields, (stat.st_mtime_ns, stat.st_size))


@lru_cache(maxsize=16)
def _tell(source: Source, kind: Kind | None, fields: str | None, _: tuple[int, int]) -> Layout:
    present, first = columns_of(source, fields), next(records(source), None)
    if first is None:
        raise DataError(source.name, "the table is empty: there is no row")
    if source.format in ("csv", "tsv") and len(first[1]) < len(present):
        problem = f"{len(first[1])} of {len(present)} columns; the header is {', '.join(present)}"
        raise DataError(source.name, problem, line=first[0])
    if fields is None:
        options = layouts(present) if kind is None else layouts_of(kind, present)
        if len(options) != 1:
            raise _layout_error(source, present, options)
        return _by_values(source, options[0], None, unnamed=False)
    names = _names_given(fields, kind)
    columns = tuple(column for name in names for column in _columns_named(name, present))
    layout = Layout((kind,) if kind else _kinds_of_columns(columns), columns)
    if not set(columns) <= set(present):
        return layout  # reading names the column that is missing
    unnamed = kind is None and len(columns) == len(names) and not NEGATIVE_COLUMN.fullmatch(head(columns[-1]))
    return _by_values(source, layout, fields, unnamed=unnamed)


def _names_given(fields: str, kind: Kind | None) -> list[str]:
    """Return the names in ``--pair-fields``, whose number has to fit the kind."""
    names = [name.strip() for name in fields.split(",")]
    expected = {
        None: ("two names or more", 2, math.inf),
        "pairs": ("the names of two columns, ANCHOR,POSITIVE (with negatives: --kind triplets)", 2, 2),
        "triplets": (
            "the names of at least three columns, ANCHOR,POSITIVE,NEGATIVE[,NEGATIVE2...]",
            3,
            math.inf,
        ),
        "labels": ("the names of two columns, TEXT,LABEL", 2, 2),
        "scored": ("the names of three columns, A,B,SCORE", 3, 3),
        "binary": ("the names of three columns, A,B,LABEL", 3, 3),
        "classed-pairs": ("the names of three columns, A,B,LABEL", 3, 3),
        "retrieval": ("no columns, since a retrieval set is a folder in BEIR layout", 0, 0),
    }
    words, least, most = expected[kind]
    if not least <= len(names) <= most or not all(names) or len(set(names)) < len(names):
        of_kind = f" with --kind {kind}" if kind else ""
        raise InputError(f"--pair-fields {fields}{of_kind}: expected {words}, all different")
    return names


def _columns_named(name: str, present: Sequence[str]) -> list[str]:
    """Return the columns that a given name stands for: of that name, of its numbers if it was a list, or the name."""
    if name in present:
        return [name]
    if f"{name}_1" in present:
        return [column for column in present if re.fullmatch(rf"{re.escape(name)}_\d+", column)]
    return [next((column for column in present if head(column) == head(name)), name)]


def _kinds_of_columns(columns: Sequence[str]) -> tuple[Kind, ...]:
    """Return the kinds that given columns may make, before their values are looked at."""
    if len(columns) != 3:
        return ("pairs",) if len(columns) == 2 else ("triplets",)
    if NEGATIVE_COLUMN.fullmatch(head(columns[2])):
        return ("triplets",)
    return VALUE_COLUMNS.get(head(columns[2]), ("scored", "binary", "triplets"))


def _layout_error(source: Source, present: Sequence[str], options: Sequence[Layout]) -> DataError:
    """Return the error of columns that fit no kind or several; it says what to type."""
    if headless(present):
        line = f"line 1 seems to be a row and no header: {', '.join(map(repr, present))}"
        return DataError(source.name, f"{line:.300}; put the names of the columns above it, such as text,label")
    kinds = list(dict.fromkeys(kind for layout in options for kind in layout.kinds))
    if kinds:
        fit = " and ".join(kinds if len(kinds) > 1 else (f"{kinds[0]} ({', '.join(o.columns)})" for o in options))
        hint = f"--kind {'|'.join(kinds)} chooses" if len(kinds) > 1 else "--pair-fields A,B[,C] chooses"
        return DataError(source.name, f"the columns {', '.join(present)} fit {fit}; {hint}")
    known = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in COLUMNS.items())
    near = [
        f"{name}{hint}"
        for name in present
        if head(name) not in KNOWN_COLUMNS and (hint := nearest(head(name), KNOWN_COLUMNS))
    ]
    misspelt = f"; {', '.join(near)}" if near else ""
    hint = f"--kind {'|'.join(COLUMNS)} chooses, --pair-fields A,B[,C] names columns"
    return DataError(source.name, f"the columns {', '.join(present)} fit no kind ({known}){misspelt}; {hint}")


def _by_values(source: Source, layout: Layout, fields: str | None, *, unnamed: bool) -> Layout:
    """Return the layout with the one kind that all values of its last columns fit.

    Args:
        source: the table.
        layout: told by names.
        fields: ``--pair-fields``.
        unnamed: whether names that say nothing were given for the columns, so that values decide alone.

    Raises:
        DataError: if they fit none.
    """
    kinds, columns = layout.kinds, layout.columns
    if kinds in (("scored",), ("labels",), ("classed-pairs",)):  # a score that is no number is named with its line
        return layout
    if kinds in (("pairs",), ("triplets",)):
        for number, column in enumerate(columns[1:], 2):
            values = _values(source, column, fields)
            looks, alone = value_kind(values), unnamed and len(columns) == 2 and values.total() >= FEW_VALUES
            classes = alone and repeating(values) and 2 * len(values) <= values.total()
            no_texts = unnamed and number > 2 and looks != "triplets"
            if (looks == "binary" and values.total() > 1) or classes or no_texts:
                raise _value_error(source, layout, column, values)
        return layout
    values = _values(source, columns[-1], fields)
    # reading names the first cell of a column without values
    found: Kind | None = value_kind(values) if values else kinds[0]
    if found is None and "classed-pairs" in kinds and len(values) > 2 and repeating(values):
        return Layout(("classed-pairs",), columns)
    if found is None or (found == "triplets" and found not in kinds):
        raise _value_error(source, layout, columns[-1], values)
    kind = found if found in kinds else kinds[0]
    return Layout((kind,), columns, (label_words(values) or {}) if kind == "binary" else {})


def _values(source: Source, column: str, fields: str | None) -> Counter[str]:
    """Return how often each value of a column occurs; empty ones and lists are left out."""
    cells = (record.get(column) for _, record in labelled_records(source, fields))
    texts = (str(cell).strip() for cell in cells if cell is not None and not isinstance(cell, list | dict))
    return Counter(filter(None, texts))


def _value_error(source: Source, layout: Layout, column: str, values: Counter[str]) -> DataError:
    """Return the error of a column whose values are neither labels nor texts for sure, with the command to type."""
    shown = ", ".join(f"{value[:40]!r} ({count:,})" for value, count in values.most_common(5)) or "nothing"
    more = ", ..." if len(values) > 5 else ""
    holds = f"{column!r} holds {len(values):,} different values in {values.total():,} rows: {shown}{more}"
    names, third = ",".join(layout.columns), len(layout.columns) > 2
    if layout.kinds in (("pairs",), ("triplets",)) and value_kind(values) in ("binary", "scored"):
        kind = ("binary" if value_kind(values) == "binary" else "scored") if third else "labels"
        return DataError(source.name, f"{holds}. These are no texts: --kind {kind} --pair-fields {names}")
    if layout.kinds == ("pairs",):
        hint = f"If they are classes: --kind labels --pair-fields {names}; if they are texts: --kind pairs"
        return DataError(source.name, f"{holds}. {hint} --pair-fields {names}")
    classes = f"; if they are classes: --kind classed-pairs --pair-fields {names}" if len(layout.columns) == 3 else ""
    hint = f"These are no sure words for yes and no: write labels as 1 and 0, scores as numbers{classes}"
    other = f"; without them the texts are pairs: --kind pairs --pair-fields {','.join(layout.columns[:2])}"
    texts = f"; if they are texts: --kind triplets --pair-fields {names}" if "triplets" in layout.kinds else other
    return DataError(source.name, f"{holds}. {hint}{texts}")
