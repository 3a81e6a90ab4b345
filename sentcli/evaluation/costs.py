"""What a model costs on this machine: its speed without the cache, its size, and the time to the first vector."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.evaluation.evaluated import EvaluatedModel
from sentcli.model.exported import exports_in, foreign_graphs, graph_files
from sentcli.model.identity import stored_weights
from sentcli.model.spec import EncoderSpec

LONG_PASS = 1.0
"""So many seconds are long enough to measure a speed once: what else the machine does in a moment weighs little."""


def sample_texts(texts: Sequence[Sequence[str]], count: int = 128) -> list[str]:
    """Return as many distinct texts of each data set, at even distances, so that every model is measured on the same.

    Args:
        texts: of each data set, with repetitions.
        count: of texts, over all data sets.
    """
    share = max(count // max(len(texts), 1), 1)
    sample: dict[str, None] = {}
    for of_set in texts:
        distinct = list(dict.fromkeys(of_set))
        step = max(len(distinct) // share, 1)
        sample |= dict.fromkeys(distinct[: share * step : step])
    return list(sample)


def measure_costs(model: EvaluatedModel, texts: Sequence[str]) -> dict[str, Any]:
    """Load a model anew, encode a text and then all texts, and return the costs as the JSON has them.

    The model has been loaded once before, so that the import of libraries and the making of an export, which only the
    first model or the first run has to wait for, are not counted. A pass over the texts that takes less than
    `LONG_PASS` is made again, and the faster one counts. A model that is served is not loaded anew, and is sent the
    texts once; its costs have the numbers of what it was sent, also for this measurement.
    """
    if not model.was_loaded:
        model.load()
    model.release()
    if model.is_served:
        encoder = model.load()
        started = time.perf_counter()
    else:
        started = time.perf_counter()
        encoder = SentenceEncoder.load_with(model.name, model.options)
    encoder.encode(texts[:1])
    first = time.perf_counter() - started
    seconds = _seconds_to_encode(encoder, texts)
    if seconds < LONG_PASS and not model.is_served:
        seconds = min(seconds, _seconds_to_encode(encoder, texts))
    costs: dict[str, Any] = {
        "texts_per_second": len(texts) / seconds,
        "texts": len(texts),
        "dimensions": encoder.dimension,
        "bytes_per_vector": 4 * encoder.dimension,
        "weight_bytes": _loaded_bytes(encoder),
        "first_vector_seconds": first,
    }
    if encoder.sent:
        for name, count in vars(encoder.sent).items():
            costs[f"sent_{name}"] = count
    return costs


def _seconds_to_encode(encoder: SentenceEncoder, texts: Sequence[str]) -> float:
    started = time.perf_counter()
    encoder.encode(texts)
    return time.perf_counter() - started


def _loaded_bytes(encoder: SentenceEncoder) -> int | None:
    """Return the size of the files that an encoder computes with: its graph or its weights; None if it is served."""
    if not isinstance(encoder.spec, EncoderSpec):
        return None
    backend: Any = encoder.backend
    if not hasattr(backend, "export"):
        return weight_bytes(encoder.spec)
    return _total_bytes(graph_files(backend.folder, backend.export.graph_file))


def weight_bytes(spec: EncoderSpec) -> int:
    """Return the size of a model's weight files; of a folder that has none, that of the export in most bits."""
    files = stored_weights(spec)
    if files:
        return _total_bytes(files)
    graphs = [export.graph_file for export in exports_in(spec.folder)]
    graphs += [graph.file for graph in foreign_graphs(spec.folder)]
    if not graphs:
        return 0
    return _total_bytes(graph_files(spec.folder, graphs[0]))


def _total_bytes(files: Iterable[Path]) -> int:
    return sum(path.stat().st_size for path in files)
