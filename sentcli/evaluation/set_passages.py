"""The documents of a retrieval set in passages, of which the best one stands for its document."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from sentcli.arrays import Int64Array
from sentcli.errors import InputError
from sentcli.evaluation.evaluated import EvaluatedModel
from sentcli.evaluation.retrieval import RetrievalSet, SetRows
from sentcli.model.passages import PassageRows, context_of
from sentcli.search.neighbours import Neighbours
from sentcli.stores.options import PassageOptions
from sentcli.stores.passages import Cutting


@dataclass(frozen=True)
class SetPassages(SetRows):
    """The passages of the documents of a set as the rows of a corpus."""

    cut: PassageRows

    @classmethod
    def of(cls, model: EvaluatedModel, data: RetrievalSet, options: PassageOptions, prompt: str) -> SetPassages:
        """Return the passages that a model reads whole.

        Args:
            model: whose tokenizer cuts the documents.
            data: the set.
            options: how they are cut.
            prompt: the text in front of each.

        Raises:
            InputError: for a model that is served, whose tokenizer is not known, or that does not read so many tokens.
        """
        load = model.options
        length = data.facts.document_length
        if length is not None:
            load = replace(load, max_length=length)
        cut = Cutting(options, model.name, load, lambda spec: prompt).rows()
        assert cut is not None
        return cls(data, cut)

    def owned(self) -> Iterator[tuple[int, str]]:
        """Yield every passage as it is encoded, with the row of its document."""
        cutter, context = self.cut.cutter, self.cut.context
        for row, (title, text) in enumerate(self.data.titled_texts()):
            in_front = context_of(title, "", context)
            try:
                spans = cutter.cut(text, reserved=cutter.length(in_front))
            except InputError as error:
                raise InputError(f"{self.data.corpus}: document {self.data.ids[row]!r}: {error}") from None
            for span in spans:
                yield row, in_front + text[span.start : span.end]

    @cached_property
    def owners(self) -> Int64Array:
        """The row of the document of each passage ``[passages]``."""
        return np.fromiter((row for row, _ in self.owned()), np.int64)

    def of_documents(self, rows: Sequence[int]) -> dict[int, list[str]]:
        """Return the passages of some documents, by their rows."""
        asked = set(rows)
        passages: defaultdict[int, list[str]] = defaultdict(list)
        for row, text in self.owned():
            if row in asked:
                passages[row].append(text)
        return passages

    def __len__(self) -> int:
        return len(self.owners)


def passages_needed(owners: Int64Array, k: int) -> int:
    """Return how many of the best passages hold `k` documents for sure, or all documents if there are fewer.

    Args:
        owners: the row of the document of each passage ``[passages]``.
        k: the number of documents.
    """
    counts = np.sort(np.bincount(owners))[::-1]
    if k > len(counts):
        return len(owners)
    return int(counts[: k - 1].sum()) + 1


def best_documents(passages: Neighbours, owners: Int64Array, k: int) -> Neighbours:
    """Return the documents of the best passages of each query ``[queries, k]``, each once, where its best one stands.

    Args:
        passages: the passages of each query, the best first ``[queries, n]``.
        owners: the row of the document of each passage ``[passages]``.
        k: the most documents of a query.
    """
    shape = (len(passages.positions), k)
    positions = np.full(shape, -1, np.int64)
    scores = np.full(shape, -np.inf, passages.scores.dtype)
    for query, found in enumerate(passages.positions):
        is_there = found >= 0
        documents, first = np.unique(owners[found[is_there]], return_index=True)
        order = np.argsort(first)[:k]
        positions[query, : len(order)] = documents[order]
        scores[query, : len(order)] = passages.scores[query, is_there][first[order]]
    return Neighbours(positions, scores)
