"""Make sentcli-bert-mini; README.md beside this file has the command of the training between the two.

    python models/sentcli-bert-mini/make.py prepare CORPUS OUT    text, vocabulary, and a configuration without weights
    python models/sentcli-bert-mini/make.py pack RUN OUT          a checkpoint that transformers and sentcli open

CORPUS holds wiki.txt and general/*.txt.gz. OUT of the first gets train.txt, held-out.txt and the folder start/. RUN is
the folder that `sentcli train --method mlm` made.
"""

from __future__ import annotations

import argparse
import gzip
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file
from tokenizers import BertWordPieceTokenizer
from transformers import BertConfig, BertTokenizerFast

SOURCES = (
    "wiki", "wiki_science", "books-1", "books-2", "books-3", "common_voice", "ljspeech", "us_presidents", "ud_ewt",
    "masc", "snli",
)  # fmt: skip
"""The freely licensed sources."""
HELD_OUT = 250
"""The first lines of each source are not trained on; the files are shuffled."""
WEIGHTS = "model.safetensors"
VOCABULARY, LAYERS, WIDTH, HEADS, POSITIONS = 8192, 4, 256, 4, 128


def lines(corpus: Path, source: str) -> list[str]:
    """Return the sentences of a source."""
    if (plain := corpus / f"{source}.txt").exists():
        return plain.read_text(encoding="utf-8").splitlines()
    with gzip.open(corpus / "general" / f"{source}.txt.gz", "rt", encoding="utf-8") as file:
        return file.read().splitlines()


def prepare(corpus: Path, out: Path) -> None:
    """Write the text, the vocabulary and the configuration."""
    start = out / "start"
    start.mkdir(parents=True)
    found = [lines(corpus, source) for source in SOURCES]
    trained, held_out = ([s for part in found for s in part[cut]] for cut in (slice(HELD_OUT, None), slice(HELD_OUT)))
    (out / "train.txt").write_text("\n".join(trained) + "\n", encoding="utf-8")
    (out / "held-out.txt").write_text("\n".join(held_out) + "\n", encoding="utf-8")

    tokenizer = BertWordPieceTokenizer(lowercase=True)
    tokenizer.train_from_iterator(trained, vocab_size=VOCABULARY, show_progress=False)
    BertTokenizerFast(
        tokenizer_object=tokenizer._tokenizer, model_max_length=POSITIONS, do_lower_case=True
    ).save_pretrained(start)
    BertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=4 * WIDTH,
        max_position_embeddings=POSITIONS,
        architectures=["BertForMaskedLM"],
    ).save_pretrained(start)
    print(f"{len(trained):,} sentences to train on, {len(held_out):,} held out; {start} has no weights yet")


def pack(run: Path, out: Path) -> None:
    """Write encoder and word head as one BERT in half precision, with its vocabulary."""
    out.mkdir(parents=True, exist_ok=True)
    encoder = load_file(run / WEIGHTS)
    weights = {f"bert.{name}": value for name, value in encoder.items() if not name.startswith("pooler.")}  # untrained
    renamed = {"dense": "transform.dense", "norm": "transform.LayerNorm", "bias": "bias"}
    for name, value in load_file(run / "training_head" / "lm_head.safetensors").items():
        first, _, rest = name.partition(".")
        weights["cls.predictions." + ".".join(filter(None, (renamed[first], rest)))] = value
    save_file({name: v.half().contiguous() for name, v in weights.items()}, out / WEIGHTS, metadata={"format": "pt"})
    config = BertConfig.from_pretrained(run)
    config.architectures, config.dtype = ["BertForMaskedLM"], "float32"  # what it is computed in
    config.save_pretrained(out)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(run / name, out / name)
    (out / WEIGHTS).chmod(0o644)
    print(f"{out / WEIGHTS}: {(out / WEIGHTS).stat().st_size / 1e6:.1f} MB")


def main() -> None:
    """Run a step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("prepare", "pack"))
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    {"prepare": prepare, "pack": pack}[arguments.step](arguments.source, arguments.out)


if __name__ == "__main__":
    main()
