"""Encode with sentence-transformers: FOLDER TEXTS VECTORS, and what `SentenceTransformer` is given, as JSON."""

import json
import sys
from pathlib import Path

import numpy as np
from sentence_transformers import SentenceTransformer

folder, texts, vectors, options = sys.argv[1:]
model = SentenceTransformer(folder, **json.loads(options))
np.save(vectors, model.encode(json.loads(Path(texts).read_text("utf-8")), batch_size=8))
