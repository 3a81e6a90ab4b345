"""Export an encoder as one ONNX file: the graph, its precisions, its verification, and the exported folder."""
