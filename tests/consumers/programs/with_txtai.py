"""Encode with txtai, which takes the first output as it is: FOLDER TEXTS VECTORS, and the file of the graph."""

import json
import sys
from pathlib import Path

import numpy as np
from txtai.vectors import VectorsFactory

folder, texts, vectors, file = sys.argv[1:]
settings = {"path": f"{folder}/{file}", "tokenizer": folder, "method": "pooling", "gpu": False}
model = VectorsFactory.create(settings, None)
np.save(vectors, model.encode(json.loads(Path(texts).read_text("utf-8"))))
