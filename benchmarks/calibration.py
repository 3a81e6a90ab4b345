"""int8 with ranges learned from fixed texts and from one's own: how close its vectors are to those in fp32.

``python benchmarks/calibration.py [-m MODEL] SET...``, each set a folder with ``corpus.jsonl`` as BEIR has them. 400
texts of each are set aside; the rest are what ``sentcli export --texts`` learns from. Prints Markdown.
"""

import argparse
import json
import random
import tempfile
from pathlib import Path

import numpy as np

import sentcli

HELD_OUT, NEIGHBOURS = 400, 10


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default="minilm")
    parser.add_argument("sets", type=Path, nargs="+")
    options = parser.parse_args()
    print("| collection | int8 | ranges learned from | mean cosine with fp32 | of the 10 nearest, the same |")
    print("| --- | --- | --- | ---: | ---: |")
    for folder in options.sets:
        lines = (folder / "corpus.jsonl").read_text("utf-8").splitlines()
        texts = list(dict.fromkeys(f"{(d := json.loads(line)).get('title', '')} {d['text']}".strip() for line in lines))
        random.Random(0).shuffle(texts)
        tested, own = texts[:HELD_OUT], texts[HELD_OUT:]
        expected = sentcli.SentenceEncoder.load(options.model, precision="fp32", device="cpu").encode(tested)
        for runtime, learned in (("onnx", "each batch"), ("openvino", "fixed texts"), ("openvino", "own texts")):
            with tempfile.TemporaryDirectory() as place:
                file, out = Path(place) / "own.jsonl", Path(place) / "export"
                file.write_text("".join(json.dumps({"text": text}) + "\n" for text in own), "utf-8")
                more = {"texts": str(file)} if learned == "own texts" else {}
                sentcli.export(
                    options.model, output=out, precision="int8", runtime=runtime, torch_weights=False, **more
                )
                vectors = sentcli.SentenceEncoder.load(str(out)).encode(tested)
            cosine = float(np.einsum("nd,nd->n", expected, vectors).mean())
            same = np.mean([len({*a} & {*b}) for a, b in zip(nearest(expected), nearest(vectors), strict=True)])
            print(f"| {folder.name} | {runtime} | {learned} | {cosine:.4f} | {same:.2f} |", flush=True)


def nearest(vectors: np.ndarray) -> np.ndarray:
    """Return the places of the nearest others of each unit vector ``[n, NEIGHBOURS]``."""
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -1)
    return np.argpartition(-cosines, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]


if __name__ == "__main__":
    main()
