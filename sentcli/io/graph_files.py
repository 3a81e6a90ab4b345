"""The names of the files that hold graphs, in the folders of sentcli and of other programs.

The precision of a graph is told from its name, and where the name says nothing, from its operators.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

ONNX, OPENVINO = "model.onnx", "openvino.xml"
"""The graphs of the own layout."""
GRAPH_PRECISIONS = ("fp32", "fp16", "bf16", "int8")
RUNTIMES = ("onnx", "openvino")
HUB_GRAPHS = {
    ("onnx", "fp32"): "onnx/model.onnx",
    ("onnx", "fp16"): "onnx/model_fp16.onnx",
    ("onnx", "int8"): "onnx/model_quantized.onnx",
    ("openvino", "fp32"): "openvino/openvino_model.xml",
    ("openvino", "int8"): "openvino/openvino_model.xml",
}
"""The names of graphs in the hub's layout, by runtime and precision; others look for one file of OpenVINO alone."""
HUB_FOLDERS = ("onnx", "openvino")
"""The folders of the hub's layout."""
PLACES = (*HUB_FOLDERS, "")
"""The folders inside a model's own that others put graphs into."""
_GRAPH_NAMES = {
    "fp32": ("model.onnx", "model_optimized.onnx", "model_O1.onnx", "model_O2.onnx", "model_O3.onnx"),
    "fp16": ("model_fp16.onnx", "model_O4.onnx"),
    "int8": (
        "model_quantized.onnx",
        "model_int8.onnx",
        "model_uint8.onnx",
        "model_q?int8_*.onnx",
        "model_quint8_*.onnx",
    ),
}
"""The names of graphs for onnxruntime by precision, the usual one first; `*` and `?` stand for any letters."""
OPENVINO_NAMES = {
    "fp32": ("openvino_model.xml",),
    "int8": ("openvino_model_qint8_quantized.xml", "openvino_model_quantized.xml"),
}
QUANTISED = (b"MatMulInteger", b"DynamicQuantizeMatMul", b"QLinearMatMul", b"DynamicQuantizeLinear")
"""Operators of which a graph in int8 has one."""
DATA_ENDINGS = ("_data", ".data")
"""What follows the name of a graph in that of the file with its weights: in the hub's layout, and in the own one."""
LOCATION = re.compile(rb"\x0a\x08location\x12([\x01-\x7f])")
"""How a graph of ONNX names the file of a tensor: the key, and the length of the name that follows."""


@dataclass(frozen=True)
class NamedGraph:
    """A graph in the folder of a model."""

    file: str
    """Its file inside the folder of the model."""
    precision: str
    runtime: str


def weights_file(graph: Path) -> Path:
    """Return the file that has the weights of a graph, if they are not in it; others know it by its name."""
    if graph.suffix == ".xml":
        return graph.with_suffix(".bin")
    hub_ending, own_ending = DATA_ENDINGS
    if graph.parent.name in HUB_FOLDERS:
        return graph.with_name(graph.name + hub_ending)
    return graph.with_name(graph.name + own_ending)


def data_files(graph: Path) -> list[Path]:
    """Return the files beside a graph in which its weights are; programs name them in many ways, and the graph says it.

    Without them, two graphs of one architecture may be the same to the byte.
    """
    if graph.suffix == ".xml":
        weights = weights_file(graph)
        return [weights] if weights.exists() else []
    names: set[bytes] = set()
    with _content(graph) as content:
        for match in LOCATION.finditer(content):
            start = match.end()
            length = match[1][0]
            names.add(content[start : start + length])
    paths = []
    for name in sorted(names):
        path = graph.parent / name.decode("utf-8", "ignore")
        if path.is_file():
            paths.append(path)
    return paths


def named_graphs(folder: Path) -> list[NamedGraph]:
    """Return the graphs of a folder that have one of the usual names, one for each precision and runtime.

    They come in the order of precision, for onnxruntime first; of several names the first of `_GRAPH_NAMES` is taken.
    """
    graphs: dict[tuple[str, str], NamedGraph] = {}
    for graph in chain(_of_runtime(folder, "onnx", _GRAPH_NAMES), _of_runtime(folder, "openvino", OPENVINO_NAMES)):
        graphs.setdefault((graph.precision, graph.runtime), graph)
    return sorted(graphs.values(), key=lambda graph: graph_rank(graph.precision, graph.runtime))


def graph_rank(precision: str, runtime: str, runtimes: Sequence[str] = RUNTIMES) -> tuple[int, int]:
    """Return the place of a graph among others, by its precision and then by its runtime, the preferred one first."""
    return GRAPH_PRECISIONS.index(precision), runtimes.index(runtime)


def _of_runtime(folder: Path, runtime: str, names: Mapping[str, tuple[str, ...]]) -> Iterator[NamedGraph]:
    """Yield the graphs of a folder for one runtime, whose names are given by precision."""
    for stated_precision, patterns in names.items():
        for path in _named(folder, patterns):
            precision = stated_precision
            if precision == "fp32" and _is_quantised(path):
                precision = "int8"
            yield NamedGraph(str(path.relative_to(folder)), precision, runtime)


def _named(folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    """Return the files of a folder, or of those inside it, that have one of some names."""
    paths: list[Path] = []
    for pattern in patterns:
        for place in PLACES:
            paths += sorted((folder / place).glob(pattern))
    return paths


def _is_quantised(path: Path) -> bool:
    """Tell whether a file names an operator of a graph in int8."""
    if path.suffix != ".onnx":
        return False
    with _content(path) as content:
        return any(content.find(operator) >= 0 for operator in QUANTISED)


@contextmanager
def _content(path: Path) -> Iterator[mmap.mmap | bytes]:
    """Yield the bytes of a file, which are read as far as they are looked at."""
    if not path.stat().st_size:  # which cannot be mapped
        yield b""
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        yield content
