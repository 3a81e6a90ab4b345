"""The fields and the indexes of a collection of Milvus."""

from __future__ import annotations

from typing import Any

from sentcli.model.spec import Similarity
from sentcli.search import ann
from sentcli.search.bm25 import K1, LANGUAGE, NO_LANGUAGE, B
from sentcli.search.collection_record import HASH, ID, TEXTS, VECTORS, WORDS, Record
from sentcli.search.milvus_rows import MOST_TEXT_BYTES

INDEX_TYPES = {"flat": "FLAT", "hnsw": "HNSW", "ivf": "IVF_FLAT", "ivfpq": "IVF_PQ", "sq8": "IVF_SQ8"}
"""The indexes of Milvus for the kinds of `index --type`."""
NOT_IN_A_FILE = ["ivfpq"]
"""The kinds that Milvus Lite does not have."""
METRICS: dict[Similarity, str] = {"cosine": "COSINE", "dot": "IP"}


def schema_of(client: Any, record: Record) -> Any:
    """Return the fields of a collection, as pymilvus takes them."""
    from pymilvus import DataType, Function, FunctionType

    text = DataType.VARCHAR
    schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
    add = schema.add_field
    add(ID, text, max_length=MOST_TEXT_BYTES, is_primary=True)
    add(
        TEXTS,
        text,
        max_length=MOST_TEXT_BYTES,
        enable_analyzer=True,
        analyzer_params=_analyzer(record.language),
    )
    add(VECTORS, DataType.FLOAT_VECTOR, dim=record.dimension)
    add(WORDS, DataType.SPARSE_FLOAT_VECTOR)
    add(HASH, text, max_length=32)
    numbers = {"int": DataType.INT64, "float": DataType.DOUBLE, "bool": DataType.BOOL}
    for name, kind in record.columns.values():
        if kind in numbers:
            add(name, numbers[kind], nullable=True)
        else:
            add(name, text, nullable=True, max_length=MOST_TEXT_BYTES)
    splits_words = Function(WORDS, FunctionType.BM25, [TEXTS], [WORDS])
    schema.add_function(splits_words)
    return schema


def indexes_of(client: Any, record: Record, rows: int) -> Any:
    """Return the indexes of a collection of about so many rows, as pymilvus takes them."""
    indexes = client.prepare_index_params()
    kind = record.kind
    indexes.add_index(
        VECTORS,
        index_type=INDEX_TYPES[kind],
        metric_type=METRICS[record.similarity],
        params=_parameters(kind, rows, record.dimension),
    )
    of_words = {"bm25_k1": K1, "bm25_b": B}
    indexes.add_index(WORDS, index_type="SPARSE_INVERTED_INDEX", metric_type="BM25", params=of_words)
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


def _analyzer(language: str) -> dict[str, Any]:
    """Return how Milvus splits texts into words."""
    filters: list[Any] = ["lowercase"]
    if language == LANGUAGE:
        filters.append({"type": "stop", "stop_words": ["_english_"]})
    if language != NO_LANGUAGE:
        filters.append({"type": "stemmer", "language": language})
    return {"tokenizer": "standard", "filter": filters}
