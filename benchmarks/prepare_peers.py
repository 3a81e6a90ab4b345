"""Write MiniLM in the forms that the peers of `encode_peers.py` open, with sentence-transformers' own exporters.

    python -m venv peers && peers/bin/pip install 'sentence-transformers[onnx,openvino]<6' fastembed
    peers/bin/python benchmarks/prepare_peers.py MODEL_FOLDER OUT

sentence-transformers' onnx and openvino extras need optimum and with it transformers 4, hence the environment.
"""

import shutil
import sys
from pathlib import Path

from sentence_transformers import SentenceTransformer, export_dynamic_quantized_onnx_model

folder, out = sys.argv[1], Path(sys.argv[2])
for backend in ("onnx", "openvino"):
    model = SentenceTransformer(folder, backend=backend, device="cpu", model_kwargs={"export": True})
    model.save_pretrained(str(out / backend))
    if backend == "onnx":
        for instructions in ("avx2", "avx512_vnni"):
            export_dynamic_quantized_onnx_model(model, instructions, str(out / backend))
plain = out / "fastembed"
plain.mkdir(exist_ok=True)
shutil.copy(next((out / "onnx").rglob("model.onnx")), plain / "model.onnx")
for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
    if (out / "onnx" / name).exists():
        shutil.copy(out / "onnx" / name, plain)
print("written:", *sorted(str(p.relative_to(out)) for p in out.rglob("*.onnx")), *out.rglob("*.xml"))
