"""Export an encoder as one ONNX file: the graph, its precisions, its verification, and the exported folder.

`onnx_export/graph.py` records operators and weights and makes an ONNX model of them; it alone knows how a linear layer
or a table is written in fp32, fp16 or int8. `onnx_export/transformer.py` writes the layers of a BERT-like model on top
of it. A `Family` says under which names an architecture keeps its parts, so a new one of the kind is a table of names.
Each module behind the transformer writes itself. What is no `Family`, or has a module that cannot, goes through
`onnx_export/tracing.py`, which uses torch's exporter.

Two writers of graphs are kept because they differ in what users feel. For 1,500 lines of Wikipedia with MiniLM on two
cores with AVX-512, `python benchmarks/onnx_writers.py` printed:

| graph | precision | seconds | MB | least cosine with torch |
|---|---|---|---|---|
| written | fp32 | 5.15 | 90.3 | 1.00000 |
| written | int8 | 2.16 | 23.5 | 0.97618 |
| traced | fp32 | 6.14 | 91.0 | 1.00000 |
| traced | int8 | 3.10 | 59.2 | 0.98288 |

The embeddings of a traced graph stay in fp32. onnxruntime's optimiser made this one no faster, so it is not `traced and
fused`.

`onnx_export/publish.py` takes either way, in a precision and with some layers kept in fp32. It asks
`onnx_export/verify.py` whether the vectors agree, and `alone.py` whether a program without sentcli gets them, keeps
more layers in fp32 if int8 does not, and renames the finished folder into place. `encoder/loading.py` does the same for
the cache, under a lock. Change `EXPORT_FORMAT` in `model/exported.py` when a graph comes out differently: then new
exports are made.
"""
