"""The model card of an exported folder."""

from __future__ import annotations

from pathlib import Path

from sentcli import zoo
from sentcli.model.encoding import LoadedModel
from sentcli.model.exported import Export

CARD = """---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags: [onnx, sentence-embeddings]{licence}
---

# {name}, ONNX {precision}

`model.onnx` turns token ids into sentence vectors: encoder, {pooling} pooling{normalised} in one graph. Inputs
`input_ids` and `attention_mask`{types} `[batch, tokens]`, int64; output `sentence_embedding` `[batch, {dimension}]`,
float32. Texts are cut at {max_length} tokens; pad with id {pad_id} on the right.

```python
import numpy as np, onnxruntime as ort
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file("tokenizer.json")
tokenizer.enable_truncation({max_length})
tokenizer.enable_padding(pad_id={pad_id})
session = ort.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
found = tokenizer.encode_batch(["A man plays a guitar.", "Someone is making music."])
ids, mask = (np.array([getattr(e, k) for e in found], np.int64) for k in ("ids", "attention_mask"))
vectors = session.run(None, {{"input_ids": ids, "attention_mask": mask}})[0]
```

With sentcli: `sentcli encode texts.txt -o vectors.npy -m FOLDER`, which needs neither torch nor transformers.{torch}

## Verification

{verification}
{prompts}"""


def write_card(folder: Path, model: LoadedModel, export: Export) -> None:
    """Write ``README.md``."""
    entry = zoo.find_entry(model.name)
    name = Path(model.name).name if entry is None else entry.source
    whole = (folder / "model.safetensors").exists()
    prompts = "".join(f"\n* `{key}`: `{text}`" for key, text in model.spec.prompts.items())
    card = CARD.format(
        licence=f"\nlicense: {entry.licence.lower()}" if entry is not None else "",
        name=name,
        precision=export.precision,
        pooling=export.pooling,
        normalised=" and normalisation to length 1" if export.normalize else "",
        types=" (and `token_type_ids`)" if model.tokenizer.has_type_ids else "",
        dimension=export.dimension,
        max_length=export.max_length,
        pad_id=export.pad_id,
        torch="\n`SentenceTransformer(FOLDER)` opens the torch weights beside it." if whole else "",
        verification=_verification(export),
        prompts=f"\n## Prompts\n{prompts}\n" if prompts else "",
    )
    (folder / "README.md").write_text(card, "utf-8")


def _verification(export: Export) -> str:
    checked = export.verification
    if checked is None:
        return "This export was not compared with its model (`--no-verify`)."
    text = (
        f"{checked['texts']} texts of 1 to {checked['longest']} tokens, against torch in fp32: least cosine "
        f"{checked['min_cosine']:.6f}, mean cosine {checked['mean_cosine']:.6f}, largest difference of a component "
        f"{checked['max_difference']:.2g}."
    )
    for split, scores in (checked["sts_b"] or {}).items():
        text += f" STS-B {split}: {scores['torch']:.2f} with torch, {scores['export']:.2f} here."
    kept = (export.quantisation or {}).get("kept_in_fp32")
    return text + (f" Left in fp32: {', '.join(kept)}." if kept else "")
