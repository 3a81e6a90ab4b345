"""Encode with light-embed: FOLDER TEXTS VECTORS, and the file of the graph."""

import json
import sys
from pathlib import Path

import numpy as np
from light_embed import TextEmbedding

folder, texts, vectors, file = sys.argv[1:]
model = TextEmbedding(model_name_or_path=folder, model_config={"onnx_file": file})
np.save(vectors, model.encode(json.loads(Path(texts).read_text("utf-8")), batch_size=8))
