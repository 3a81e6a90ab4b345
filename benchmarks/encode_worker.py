"""One side of `encode_peers.py`, in a process and perhaps an environment of its own.

    python encode_worker.py SIDE MODEL_FOLDER TEXTS.json

Loads the model, encodes once, prints "ready", and then answers every line of standard input, a name of a set of texts,
with the seconds that encoding it took. The line "vectors NAME FILE" writes the vectors instead.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np

side, folder, source = sys.argv[1:4]
texts = json.loads(Path(source).read_text("utf-8"))


def load():
    """Return a function from texts to vectors."""
    if side.startswith("sentcli"):
        from sentcli import SentenceEncoder

        _, backend, precision = side.split(" ")
        return SentenceEncoder.load(folder, backend=backend, precision=precision, device="cpu").encode
    if side == "fastembed":
        from fastembed import TextEmbedding

        model = TextEmbedding("sentence-transformers/all-MiniLM-L6-v2", specific_model_path=folder)
        return lambda given: np.array(list(model.embed(given, batch_size=32)))
    from sentence_transformers import SentenceTransformer

    _, backend, precision = side.split(" ")
    options = {
        "quint8-avx2": {"file_name": "onnx/model_quint8_avx2.onnx"},
        "qint8-vnni": {"file_name": "onnx/model_qint8_avx512_vnni.onnx"},
        "f32": {"ov_config": {"INFERENCE_PRECISION_HINT": "f32"}},
    }.get(precision, {})
    model = SentenceTransformer(folder, backend=backend, device="cpu", model_kwargs=options)
    return lambda given: model.encode(given, batch_size=32, show_progress_bar=False)


encode = load()
encode(next(iter(texts.values()))[:64])
print("ready", flush=True)
for line in sys.stdin:
    request = line.split()
    if request[0] == "vectors":
        np.save(request[2], encode(texts[request[1]]))
        print("done", flush=True)
        continue
    began = time.perf_counter()
    encode(texts[request[0]])
    print(time.perf_counter() - began, flush=True)
