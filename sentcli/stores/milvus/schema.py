"""The fields and the indexes of a collection of Milvus."""

from __future__ import annotations

from typing import Any

from sentcli.model.spec import Similarity
from sentcli.search import ann
from sentcli.stores.milvus.rows import MOST_TEXT_BYTES
from sentcli.stores.record import HASH, ID, ORDER, TEXT_DIGITS, TEXTS, VECTORS, CollectionRecord

INDEX_TYPES = {"flat": "FLAT", "hnsw": "HNSW", "ivf": "IVF_FLAT", "ivfpq": "IVF_PQ", "sq8": "IVF_SQ8"}
"""The indexes of Milvus for the kinds of `index --type`."""
NOT_IN_A_FILE = ["ivfpq"]
"""The kinds that Milvus Lite does not have."""
METRICS: dict[Similarity, str] = {"cosine": "COSINE", "dot": "IP"}


def schema_of(client: Any, record: CollectionRecord) -> Any:
    """Return the fields of a collection, as pymilvus takes them."""
    from pymilvus import DataType

    text = DataType.VARCHAR
    schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
    add = schema.add_field
    add(ID, text, max_length=MOST_TEXT_BYTES, is_primary=True)
    add(TEXTS, text, max_length=MOST_TEXT_BYTES)
    add(VECTORS, DataType.FLOAT_VECTOR, dim=record.dimension)
    add(HASH, text, max_length=2 * TEXT_DIGITS)
    add(ORDER, DataType.INT64)
    for name, kind in record.columns.values():
        add(name, **field_of(kind))
    return schema


def field_of(kind: str) -> dict[str, Any]:
    """Return the field of a column of a type, as pymilvus takes it."""
    from pymilvus import DataType

    numbers = {"int": DataType.INT64, "float": DataType.DOUBLE, "bool": DataType.BOOL}
    if kind in numbers:
        return {"datatype": numbers[kind], "nullable": True}
    return {"datatype": DataType.VARCHAR, "nullable": True, "max_length": MOST_TEXT_BYTES}


def indexes_of(client: Any, record: CollectionRecord, rows: int) -> Any:
    """Return the indexes of a collection of about so many rows, as pymilvus takes them."""
    indexes = client.prepare_index_params()
    kind = record.kind
    indexes.add_index(
        VECTORS,
        index_type=INDEX_TYPES[kind],
        metric_type=METRICS[record.similarity],
        params=_parameters(kind, rows, record.dimension),
    )
    return indexes


def _parameters(kind: str, rows: int, dimension: int) -> dict[str, int]:
    """Return the building parameters of an index, as those of `ann.recipe`."""
    if kind == "hnsw":
        return {"M": 32, "efConstruction": 200}
    if kind == "flat":
        return {}
    if kind != "ivfpq":
        return {"nlist": ann.clusters_of(rows)}
    parts, bits = ann.product_code(rows, dimension)
    return {"nlist": ann.clusters_of(rows), "m": parts, "nbits": bits}
