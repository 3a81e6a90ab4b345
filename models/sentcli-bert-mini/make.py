"""Prepare the pretraining of sentcli-bert-mini: its text, its vocabulary and a configuration without weights.

    python models/sentcli-bert-mini/make.py CORPUS OUT

CORPUS holds wiki.txt and general/*.txt.gz; OUT gets train.txt, held-out.txt and the folder start/. README.md has the
rest of the recipe.
"""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path

from tokenizers import BertWordPieceTokenizer
from transformers import BertConfig, BertTokenizerFast

SOURCES = (
    "wiki", "wiki_science", "books-1", "books-2", "books-3", "common_voice", "ljspeech", "us_presidents", "ud_ewt",
    "masc", "snli",
)  # fmt: skip
"""The freely licensed sources."""
HELD_OUT = 250
"""The first lines of each source are not trained on; the files are shuffled."""
VOCABULARY, LAYERS, WIDTH, HEADS, POSITIONS = 8192, 4, 256, 4, 128


def lines(corpus: Path, source: str) -> list[str]:
    """Return the sentences of a source."""
    if (plain := corpus / f"{source}.txt").exists():
        return plain.read_text(encoding="utf-8").splitlines()
    with gzip.open(corpus / "general" / f"{source}.txt.gz", "rt", encoding="utf-8") as file:
        return file.read().splitlines()


def main() -> None:
    """Write the text, the vocabulary and the configuration."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    start = arguments.out / "start"
    start.mkdir(parents=True)
    found = [lines(arguments.corpus, source) for source in SOURCES]
    trained, held_out = ([s for part in found for s in part[cut]] for cut in (slice(HELD_OUT, None), slice(HELD_OUT)))
    (arguments.out / "train.txt").write_text("\n".join(trained) + "\n", encoding="utf-8")
    (arguments.out / "held-out.txt").write_text("\n".join(held_out) + "\n", encoding="utf-8")

    tokenizer = BertWordPieceTokenizer(lowercase=True)
    tokenizer.train_from_iterator(trained, vocab_size=VOCABULARY, show_progress=False)
    BertTokenizerFast(
        tokenizer_object=tokenizer._tokenizer, model_max_length=POSITIONS, do_lower_case=True
    ).save_pretrained(start)
    tokenizer.save_model(str(start))  # vocab.txt, for readers of the older layout
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


if __name__ == "__main__":
    main()
