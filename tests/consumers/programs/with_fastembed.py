"""Encode with fastembed, which takes the first output as it is: FOLDER TEXTS VECTORS, and the file of the graph."""

import json
import sys
from pathlib import Path

import numpy as np
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType

folder, texts, vectors, file = sys.argv[1:]
TextEmbedding.add_custom_model(
    model="own",
    pooling=PoolingType.DISABLED,
    normalization=False,
    sources=ModelSource(hf="own/own"),
    dim=2,
    model_file=file,
)
model = TextEmbedding("own", specific_model_path=folder, threads=1)
np.save(vectors, np.stack(list(model.embed(json.loads(Path(texts).read_text("utf-8")), batch_size=8))))
