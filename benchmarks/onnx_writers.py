"""A graph that is written from the weights against one that torch's exporter traces, of the same model.

    SENTCLI_DATA=... python benchmarks/onnx_writers.py [--lines 1500] [--runs 5]

MiniLM on onnxruntime, in fp32 and int8: seconds for lines of wiki.txt (medians of runs in turn), MB of the graph, and
the least cosine with torch's vectors. A traced graph in fp32 is `traced and fused` if onnxruntime's optimiser made it
faster.
"""

import argparse
import statistics
import tempfile
from itertools import islice
from pathlib import Path
from unittest.mock import patch

from common import data_folder, machine, seconds

from sentcli import SentenceEncoder
from sentcli.encoder.loading import load_model, read_model
from sentcli.model.options import LoadOptions
from sentcli.onnx_export import transformer, verify
from sentcli.onnx_export.publish import export_model


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lines", type=int, default=1500)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    print(machine())
    with (data_folder() / "corpus" / "wiki.txt").open(encoding="utf-8") as handle:
        texts = [line.rstrip("\n") for line in islice(handle, arguments.lines)]
    options = LoadOptions(backend="torch", precision="fp32", device="cpu")
    model = load_model("minilm", read_model("minilm", options), options)
    expected = verify.encode_distinct_texts(model, texts)
    sizes, encoders = {}, {}
    with tempfile.TemporaryDirectory() as name:
        for writer in ("written", "traced"):
            for precision in ("fp32", "int8"):
                folder = Path(name) / f"{writer}-{precision}"
                family = (
                    transformer.family_of if writer == "written" else lambda backbone: None
                )  # no known architecture
                with patch.object(transformer, "family_of", family):
                    exported = export_model(model, folder, precision, weights=False)
                label = exported.export.graph, precision
                sizes[label], encoders[label] = exported.size, SentenceEncoder.load(str(folder), backend="onnx")
        agreement = {label: verify.agreement(expected, each.encode(texts))[1] for label, each in encoders.items()}
        times = {label: [] for label in encoders}
        for _ in range(arguments.runs):
            for label, encoder in encoders.items():
                times[label].append(seconds(lambda encoder=encoder: encoder.encode(texts)))
    print("| graph | precision | seconds | MB | least cosine with torch |\n|---|---|---|---|---|")
    for (graph, precision), size in sizes.items():
        label = graph, precision
        median = statistics.median(times[label])
        print(f"| {graph} | {precision} | {median:.2f} | {size / 1e6:.1f} | {agreement[label]:.5f} |")


if __name__ == "__main__":
    main()
