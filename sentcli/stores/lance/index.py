"""The indexes of LanceDB for the kinds of ``--type``."""

from __future__ import annotations

from typing import Any

from sentcli.search import ann
from sentcli.stores.lance.client import library
from sentcli.stores.record import CollectionRecord

INDEX_TYPES = {"flat": None, "hnsw": "HnswFlat", "ivf": "IvfFlat", "ivfpq": "IvfPq", "sq8": "IvfSq"}
"""The names that LanceDB gives the settings of its indexes."""


def index_of(record: CollectionRecord, rows: int) -> Any:
    """Return what LanceDB builds over the vectors of about so many rows, as `ann.recipe` does; None for exact search.

    Raises:
        InputError: if there are too few rows for the kind.
        MissingExtraError: if lancedb is not installed.
    """
    kind = record.kind
    name = INDEX_TYPES[kind]
    if name is None:
        return None
    settings: dict[str, Any] = {"distance_type": record.similarity, "num_partitions": ann.clusters_of(rows)}
    if kind == "hnsw":
        settings |= {"num_partitions": 1, "m": 32, "ef_construction": 200}
    if kind == "ivfpq":
        parts, _ = ann.product_code(rows, record.dimension)
        settings |= {"num_sub_vectors": parts, "num_bits": 8}
    config = getattr(library().index, name)
    return config(**settings)
