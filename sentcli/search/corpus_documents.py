"""The documents of a corpus whose rows may be passages of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from sentcli.io.table_source import TableSource
from sentcli.model.passages import COLUMNS
from sentcli.search.corpus import has_passages
from sentcli.search.rows import Document


@dataclass(frozen=True)
class CorpusDocuments:
    """The documents of a corpus, in order; one that was cut into passages is whole again."""

    title: str
    """The name of the corpus."""
    rows: TableSource
    in_order: bool = True
    """Whether the passages of a document stand one behind the other; else all are read before the first one."""

    @property
    def columns(self) -> list[str]:
        """The names of their columns, without id and text and those of passages."""
        left_out = {"id", "text"}
        if has_passages(self.rows.schema):
            left_out.update(COLUMNS)
        return [name for name in self.rows.schema if name not in left_out]

    def __iter__(self) -> Iterator[Document]:
        """Yield every document with its columns."""
        if has_passages(self.rows.schema):
            return self._joined()
        return self._rows(self.columns)

    def _rows(self, columns: list[str]) -> Iterator[Document]:
        for table in self.rows.tables(["id", "text", *columns]):
            for record in table.to_pylist():
                yield Document(record.pop("id"), record.pop("text"), record)

    def _joined(self) -> Iterator[Document]:
        """Yield the documents of passages, which stand one behind the other and may overlap."""
        whole: Document | None = None
        passages: Iterable[Document] = self._rows([*self.columns, "document", "start", "end"])
        if not self.in_order:
            passages = sorted(passages, key=lambda row: (row.columns["document"], row.columns["start"]))
        for passage in passages:
            columns = dict(passage.columns)
            document, start, end = (columns.pop(name) for name in ("document", "start", "end"))
            if whole is None or document != whole.id:
                if whole is not None:
                    yield whole
                whole = Document(document, "", columns)
            behind_header = len(passage.text) - (end - start)
            overlap = max(len(whole.text) - start, 0)
            whole = replace(whole, text=whole.text + passage.text[behind_header + overlap :])
        if whole is not None:
            yield whole
