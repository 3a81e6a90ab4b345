"""``analyze duplicates``: texts of one corpus that say nearly the same, as pairs and as groups."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, Le

from sentcli import console
from sentcli.analysis.folder import analysis_record, check_folder, write_folder
from sentcli.analysis.models import vectors_of
from sentcli.analysis.options import INPUT, AnalysedTextField, Load, Output, Rerun
from sentcli.analysis.texts import LEAST_ITEMS, short_text
from sentcli.bounds import Holds, Overwrite
from sentcli.command.declaration import Flag, verb
from sentcli.command.result import Clock, Result
from sentcli.errors import InputError
from sentcli.model.options import LoadOptions
from sentcli.pages import style
from sentcli.pages.page import Figure, Section
from sentcli.search.options import search_device
from sentcli.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    from matplotlib.axes import Axes

    from sentcli.evaluation.evaluated import EvaluatedModel
    from sentcli.io.readers import ReadOptions
    from sentcli.search.pairs import SimilarPairs
    from sentcli.search.rows import Document, Rows
    from sentcli.search.searcher import Searcher
    from sentcli.search.stored_vectors import StoredVectors


@verb("duplicates")
def duplicates(
    corpus: Annotated[str, Holds.TEXT_FILE, Flag(metavar="CORPUS", positional=True)],
    output: Output,
    model: Annotated[str | None, Holds.MODEL, Flag("-m")] = None,
    texts: Annotated[str | None, Holds.TEXT_FILE, Flag(metavar="FILE", panel=INPUT)] = None,
    text_field: AnalysedTextField = "text",
    id_field: Annotated[str | None, Holds.WORDS, Flag(panel=INPUT)] = None,
    least: Annotated[float, Ge(-1), Le(1)] = 0.9,
    write: Annotated[str | None, Flag(metavar="FILE")] = None,
    index: Annotated[str | None, Flag(metavar="KIND")] = None,
    top: Annotated[int, Ge(1)] = 20,
    load: Load = LoadOptions(),
    rerun: Rerun = False,
    overwrite: Overwrite = False,
) -> Result:
    """Near duplicates and paraphrases: pairs of rows above a similarity, and their groups.

    Compares every row of a corpus with every other one, exactly or through an
    index, whose recall is measured. Writes pairs.csv with ids, texts and cosine
    of each pair, equal.csv with rows of the same text and groups.csv with the
    group of each row, and shows which similarities the nearest rows have, to
    choose --least by.

    Args:
        corpus: What encode wrote (a directory, Parquet, safetensors, npy), or a file of texts with -m.
        model: Encodes the texts; vectors that it made, or any without it, are taken.
        texts: The texts of vectors alone; default: the file beside them that was encoded.
        id_field: Column of a table that holds the id.
        least: Least cosine of a pair.
        write: Write the rows that are left when each row that is a pair with an earlier one that is left goes (.jsonl,
            .csv, .tsv, .parquet or .txt).
        index: flat (exact), hnsw, ivf, ivfpq, sq8 or a faiss factory string; of a directory, one of its indexes.
        top: Pairs and groups to list on the page.

    \b
    Examples:
      sentcli analyze duplicates documents -o duplicates
      sentcli analyze duplicates documents.parquet --least 0.8 --index hnsw -o paraphrases
      sentcli analyze duplicates notes.txt -m minilm -o duplicates --write kept.txt
    """  # noqa: D301
    from sentcli.evaluation.evaluated import EvaluatedModel
    from sentcli.io.readers import ReadOptions
    from sentcli.search.pairs import pairs_above, recall_of
    from sentcli.search.rows import check_written
    from sentcli.search.vector_file import open_stored

    check_folder(output, overwrite=overwrite)
    if write is not None:
        check_written(write, overwrite=overwrite)
    options = ReadOptions(text_field, id_field)
    stored = open_stored(corpus, texts, options)
    if stored is None and model is None:
        raise InputError(f"{corpus} holds texts: give the model with -m")
    clock = Clock()
    evaluated = None
    if model is not None:
        evaluated = EvaluatedModel(model, load, rerun=rerun, reused=[corpus])
    rows, searcher = _rows_and_searcher(corpus, stored, options, index, evaluated, search_device(load))
    count = len(rows)
    if count < LEAST_ITEMS:
        raise InputError(f"{corpus}: {count} rows; an analysis needs at least {LEAST_ITEMS}")
    _check_number(searcher, least)
    with console.counting("comparing", count) as progress:
        pairs = pairs_above(searcher, least, progress)
    recall = 1.0
    sample = 0
    if searcher.parts:
        recall, sample = recall_of(pairs, searcher, least)
    near_duplicates = Duplicates(rows, pairs, least, top)
    results = near_duplicates.results() | {"recall": recall, "recall_rows": sample}
    index_protocol = searcher.protocol()
    protocol = {"kind": "duplicates", "corpus": corpus, "similarity": "cosine", "least": least, "index": index_protocol}
    how = "exactly"
    if sample:
        how = f"through the index {index_protocol['kind']}, recall {recall:.3f} of {sample:,} rows"
    note = f"{count:,} rows of {corpus}, compared {how}. A pair has a cosine of at least {least:g}."
    if write is not None:
        left = _write_rows_left(rows, pairs, write)
        results["written"] = {"file": write, "rows": left}
        note += f" {left:,} rows are left, in {write}."
    if pairs.crowded:
        note += f" {pairs.crowded:,} rows have more such neighbours than are listed."
    made_by = model
    if made_by is None:
        assert stored is not None
        made_by = stored.origin.model
    record = analysis_record(made_by, protocol, results, clock, evaluated)
    sections = near_duplicates.sections(note, recall if sample else None)
    return write_folder("duplicates", output, sections, [record], make_frame=near_duplicates.listed.copy)


def _write_rows_left(rows: Rows, pairs: SimilarPairs, file: str) -> int:
    """Write the rows that are left when near duplicates of an earlier row go, and return their number."""
    import numpy as np

    from sentcli.search.pairs import rows_left
    from sentcli.search.rows import write_chosen

    left = np.flatnonzero(rows_left(pairs, len(rows))).tolist()
    write_chosen(rows, left, Path(file))
    console.note(f"{len(left):,} of {len(rows):,} rows are left -> {file}")
    return len(left)


def _check_number(searcher: Searcher, least: float) -> None:
    """Refuse a threshold above which there are too many pairs, and propose one; by a sample of the rows."""
    from sentcli.search.pairs import MOST_PAIRS, expected_pairs

    with console.working("counting pairs of a sample"):
        expected = expected_pairs(searcher, least)
    console.detail(f"about {expected.pairs:,} pairs are expected")
    if expected.pairs > MOST_PAIRS:
        raise InputError(
            f"--least {least:g}: about {expected.pairs:,} pairs of {len(searcher.blocks):,} rows are as similar, and "
            f"{MOST_PAIRS:,} are listed at most; --least {expected.proposed:.6g} has about {expected.of_proposed:,}"
        )


def _rows_and_searcher(
    corpus: str,
    stored: StoredVectors | None,
    options: ReadOptions,
    index: str | None,
    model: EvaluatedModel | None,
    device: str,
) -> tuple[Rows, Searcher]:
    """Return the rows, and the search over their vectors; those of a file of texts are made now, by the model."""
    import numpy as np

    from sentcli.search.rows import read_documents_of
    from sentcli.search.searcher import searcher_over
    from sentcli.search.stored_vectors import SearchRequest

    own = model is None or model.has_made(corpus)
    if own and stored is not None:
        searcher, _ = stored.open_index(SearchRequest(index, "cosine", device=device))
        return stored.rows, searcher
    assert model is not None
    rows = read_documents_of([corpus], options) if stored is None else stored.rows
    texts = list(rows.texts())
    vectors = np.asarray(vectors_of(model, texts).vectors_of(texts))
    return rows, searcher_over(index or "flat", vectors, device=device)


def equal_text_table(pairs: pd.DataFrame, documents: Mapping[int, Document]) -> pd.DataFrame:
    """Return a row for each text that several rows have: how many, their ids, and the text."""
    import pandas as pd

    texts = set(pairs.loc[pairs["text1"] == pairs["text2"], "text1"])
    ids: dict[str, list[str]] = {}
    for _, document in sorted(documents.items()):
        if document.text in texts:
            ids.setdefault(document.text, []).append(document.id)
    rows = []
    for text, ids_of_text in sorted(ids.items(), key=lambda entry: -len(entry[1])):
        rows.append((len(ids_of_text), " ".join(ids_of_text), text))
    return pd.DataFrame(rows, columns=["rows", "ids", "text"])


def _pairs_table(title: str, pairs: pd.DataFrame) -> Table:
    """Return the table of some pairs, with the beginnings of their texts."""
    shown = pairs.assign(
        text1=pairs["text1"].map(short_text),
        text2=pairs["text2"].map(short_text),
    )
    return Table.of_frame(title, shown, formats={"cosine": ".4f"}, wide=("text1", "text2"))


class Duplicates:
    """The pairs of a corpus and their groups, as tables.

    Args:
        rows: of the corpus.
        pairs: of rows.
        least: the least similarity of a pair.
        top: pairs and groups that tables list.
    """

    def __init__(self, rows: Rows, pairs: SimilarPairs, least: float, top: int) -> None:
        import numpy as np
        import pandas as pd

        from sentcli.search.pairs import groups_of

        self.pairs = pairs
        self.least = least
        self.top = top
        self.count = len(rows)
        groups = groups_of(pairs, self.count)
        members = np.flatnonzero(groups >= 0).tolist()
        documents = dict(zip(members, rows.take(members), strict=True))
        self.groups = pd.DataFrame(
            {
                "group": groups[members] + 1,
                "id": [document.id for document in documents.values()],
                "text": [document.text for document in documents.values()],
            },
            index=members,
        )
        first = self.groups.loc[pairs.first]
        second = self.groups.loc[pairs.second]
        self.listed = pd.DataFrame(
            {
                "cosine": pairs.similarities.astype(float),
                "id1": first["id"].array,
                "id2": second["id"].array,
                "text1": first["text"].array,
                "text2": second["text"].array,
                "group": first["group"].array,
            }
        )
        self.equal = equal_text_table(self.listed, documents)
        self.groups = self.groups.sort_values("group", kind="stable", ignore_index=True)

    def results(self) -> dict[str, Any]:
        """Return the numbers, and the first pairs, as JSON."""
        sizes = self.groups["group"].value_counts()
        return {
            "rows": self.count,
            "pairs": len(self.listed),
            "pairs_of_equal_text": int((self.listed["text1"] == self.listed["text2"]).sum()),
            "groups": len(sizes),
            "rows_in_groups": len(self.groups),
            "redundant_rows": len(self.groups) - len(sizes),
            "largest_group": int(sizes.max()) if len(sizes) else 0,
            "crowded_rows": self.pairs.crowded,
            "most_similar": self.listed.head(self.top).to_dict("records"),
        }

    def sections(self, note: str, recall: float | None) -> list[Section]:
        """Return the tables and the figure; the files have all pairs and rows, the page the first."""
        are_different = self.listed["text1"] != self.listed["text2"]
        pairs = self.listed.loc[are_different, ["text1", "text2", "cosine", "id1", "id2", "group"]]
        most = _pairs_table("Most similar pairs", pairs.head(self.top))
        least = _pairs_table("Least similar pairs", pairs.tail(self.top).iloc[::-1])
        return [
            Section("Numbers", (note,), self._numbers(recall), file="numbers"),
            Section("Similarity of the nearest row", figure=self._figure()),
            Section.of(self._equal_table(), file="equal", rows=self.equal),
            Section.of(most, file="pairs", rows=self.listed),
            Section.of(least),
            Section.of(self._groups_table(), file="groups", rows=self.groups),
        ]

    def _numbers(self, recall: float | None) -> Table:
        results = self.results()
        del results["most_similar"]
        row = {key.replace("_", " "): value for key, value in results.items()}
        notes = ["Redundant rows: all rows of each group but one. Crowded rows have more neighbours than are listed."]
        if recall is not None:
            row["recall"] = recall
            notes.append("Recall: share of the pairs of random rows by exact search that the index found, too.")
        return Table.of_rows("Near duplicates", [row], formats={"recall": ".3f"}, notes=notes)

    def _equal_table(self) -> Table:
        rows = []
        for row in self.equal.head(self.top).itertuples():
            ids = short_text(row.ids, longest=60)
            rows.append([short_text(row.text), row.rows, ids])
        return Table("Equal texts", ["text", "rows", "ids"], rows, wide=("text", "ids"))

    def _groups_table(self) -> Table:
        rows = []
        largest = self.groups[self.groups["group"] <= self.top]
        for number, members in largest.groupby("group"):
            first_text = short_text(members["text"].iloc[0])
            first_ids = ", ".join(members["id"].head(5))
            rows.append([number, first_text, len(members), first_ids])
        note = "Rows that a chain of pairs connects: two rows of a group may be less alike than a pair is."
        columns = ("group", "first text", "rows", "first ids")
        return Table("Largest groups", columns, rows, notes=(note,), wide=("first text", "first ids"))

    def _figure(self) -> Figure:
        import numpy as np
        import pandas as pd

        nearest = self.pairs.nearest
        lowest = min(float(nearest.min()), self.least)
        counts, edges = np.histogram(nearest, bins=40, range=(lowest, 1.0))
        data = pd.DataFrame({"panel": "nearest", "series": "rows", "x": edges[:-1], "y": counts})
        above = int((nearest >= self.least).sum())

        def draw(axes: Axes) -> None:
            width = edges[1] - edges[0]
            axes.bar(data["x"], data["y"], width=width, align="edge", color=style.colour(0))
            axes.axvline(self.least, color=style.colour(1))
            axes.set(title="Rows by their nearest other row", xlabel="cosine", ylabel="rows")

        about = f"Of {self.count:,} rows, {above:,} have another row with a cosine of at least {self.least:g}"
        note = f"The line stands at --least, {self.least:g}"
        return Figure("nearest", "Similarity of the nearest row", {"nearest": draw}, data, [about], note)
