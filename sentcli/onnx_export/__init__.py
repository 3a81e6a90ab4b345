"""An encoder as one ONNX file: the graph, its precisions, its verification, the folder it is published in."""
