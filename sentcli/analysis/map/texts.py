"""The texts that ``analyze map`` places, with their labels and stored vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from sentcli import console
from sentcli.analysis.texts import check_sample, every_row, read_distinct_texts
from sentcli.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

    from sentcli.arrays import AnyArray
    from sentcli.io.sampling import TextSample
    from sentcli.search.provenance import Provenance
    from sentcli.search.stored_vectors import StoredVectors

MOST_COLOURS = 12
"""The greatest number of labels that are shown as colours; with more labels, the colours are the clusters."""


@dataclass(frozen=True)
class MapTexts:
    """Distinct texts that are not blank."""

    ids: list[str]
    """The id of the first row of each text ``[n]``."""
    texts: list[str]
    """``[n]``."""
    sample: TextSample
    """How many distinct texts there were to take them from."""
    labels: pd.Series | None = None
    """A label of each text, as a categorical with the most frequent label first ``[n]``."""
    vectors: AnyArray | None = None
    """The stored vectors ``[n, dim]``; None for a file of texts."""
    origin: Provenance | None = None
    """How the stored vectors were made."""
    positives: int = 1
    """How many points each text has, one after the other."""
    read_all: Callable[[], Iterable[tuple[str, str | None]]] = tuple
    """Returns id and text of every row."""

    @property
    def count(self) -> int:
        """The number of distinct texts."""
        return len(self.texts) // self.positives

    @property
    def repeated(self) -> str:
        """The words about positives behind the number of texts; empty for one point a text."""
        return "" if self.positives == 1 else f" {self.positives} positives of each."

    def every_row(self) -> pd.DataFrame:
        """Return id and text of every row, also of blank and repeated ones and of those that are not drawn."""
        import pandas as pd

        return pd.DataFrame(self.read_all(), columns=["id", "text"])

    def with_positives(self, count: int) -> MapTexts:
        """Return each text several times; without labels, a few texts are labels themselves."""
        import pandas as pd

        ids, texts = [], []
        for text_id, text in zip(self.ids, self.texts, strict=True):
            ids += [text_id] * count
            texts += [text] * count
        labels = self.labels
        if labels is not None:
            labels = labels.repeat(count).reset_index(drop=True)
        elif len(self.texts) <= MOST_COLOURS:
            labels = pd.Series(pd.Categorical(texts, self.texts), name="text")
        return MapTexts(ids, texts, self.sample, labels, positives=count, read_all=self.read_all)


def read_map_texts(
    file: str, text_field: str, id_field: str | None, label_field: str | None, limit: int, seed: int
) -> MapTexts:
    """Read the distinct texts of a file of texts, or of a directory or file of vectors.

    Args:
        file: the file or directory.
        text_field: the column of the texts in a table.
        id_field: the column of the ids in a table; None takes ``id``, else ``_id``, else the row number.
        label_field: the column of the labels.
        limit: the greatest number of texts; of more a sample is drawn.
        seed: of the sample.

    Raises:
        DataError: for a row without the column of labels, and for a file that cannot be read.
        InputError: if there are too few texts, or the vectors are bits.
    """
    from sentcli.io.readers import ReadOptions
    from sentcli.search.vector_file import open_stored

    stored = open_stored(file, None, ReadOptions(text_field, id_field), to_search=False)
    if stored is not None:
        return _texts_of_vectors(stored, file, label_field, limit, seed)
    distinct = read_distinct_texts(file, text_field, limit, seed=seed, id_field=id_field)
    rows = list(distinct.first.values())
    labels = _labels(file, label_field, [(row.line, row.columns) for row in rows])
    read_all = partial(_rows_of_texts, file, text_field, id_field)
    return MapTexts([row.id for row in rows], distinct.texts, distinct.sample, labels, read_all=read_all)


def _texts_of_vectors(stored: StoredVectors, file: str, label_field: str | None, limit: int, seed: int) -> MapTexts:
    """Return the distinct texts of stored vectors, or a sample of them."""
    import numpy as np

    from sentcli.io.sampling import DistinctTexts

    distinct = DistinctTexts[int](limit, seed)
    for position, text in enumerate(stored.rows.texts()):
        if text.strip():
            distinct.add(text, position)
    check_sample(distinct.sample, file, len(stored.rows))
    positions = list(distinct.texts.values())
    rows = stored.rows.take(positions)
    numbered = [(position + 1, row.columns) for position, row in zip(positions, rows, strict=True)]
    return MapTexts(
        ids=[row.id for row in rows],
        texts=list(distinct.texts),
        sample=distinct.sample,
        labels=_labels(file, label_field, numbered),
        vectors=stored.blocks.take(np.array(positions)),
        origin=stored.origin,
        read_all=partial(_stored_rows, stored),
    )


def _rows_of_texts(file: str, text_field: str, id_field: str | None) -> Iterator[tuple[str, str | None]]:
    for row_id, row in every_row(file, text_field, id_field):
        yield row_id, None if row is None else row.text


def _stored_rows(stored: StoredVectors) -> Iterator[tuple[str, str]]:
    for table in stored.rows.tables(["id", "text"]):
        yield from zip(*table.to_pydict().values(), strict=True)


def _labels(file: str, label_field: str | None, rows: list[tuple[int, dict[str, Any]]]) -> pd.Series | None:
    """Return the labels of rows, given their numbers and columns, as a categorical; None without a column of labels."""
    import pandas as pd

    if label_field is None:
        return None
    labels = []
    for number, columns in rows:
        if label_field not in columns:
            has = ", ".join(["text", *columns])
            raise DataError(file, f"no column {label_field!r} for labels; it has: {has}", line=number, unit="row")
        label = columns[label_field]
        labels.append("" if label is None else str(label))
    if len(set(labels)) == 1:
        console.warn(f"all texts have the same label {labels[0]!r} in {label_field}")
    counts = pd.Series(sorted(labels)).value_counts(sort=False)
    frequent = counts.sort_values(ascending=False, kind="stable").index
    return pd.Series(pd.Categorical(labels, frequent), name=label_field)
