"""What cheap vectors cost beside their tokens: the processor time of `encode` against the tokenizers alone.

    SENTCLI_DATA=... python benchmarks/pipeline.py [--rows 200000] [--runs 3]

Rows of about 30 tokens, cut from the lines of Wikipedia, as JSON Lines with an id and two further columns. The model is
a table of 64 dimensions (`train --method bag-of-words`), whose vectors cost next to nothing. `tokenizers alone` reads
the texts as lines and calls `encode_batch_fast` on 2,048 at a time. Each figure is the processor time, user and system,
of a process of its own, the median of the runs; `start` is that of `encode` for one row.
"""

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from common import machine

TOKENIZE = """
import sys
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file(sys.argv[1])
tokenizer.no_padding()
lines = open(sys.argv[2], encoding="utf-8").read().split("\\n")
count = 0
for start in range(0, len(lines), 2048):
    count += sum(len(encoding.ids) for encoding in tokenizer.encode_batch_fast(lines[start : start + 2048]))
print(count / len(lines))
"""


def texts(rows: int) -> list[str]:
    """Return texts of 24 words, each made of the beginnings of two lines."""
    source = Path(os.environ["SENTCLI_DATA"]) / "corpus" / "wiki.txt"
    lines = [line.split() for line in source.read_text("utf-8").splitlines() if len(line.split()) >= 12]
    generator = random.Random(0)
    return [" ".join([*generator.choice(lines)[:12], *generator.choice(lines)[:12]]) for _ in range(rows)]


def processor_time(command: list[object]) -> tuple[float, str]:
    """Return the processor time of a command, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "SENTCLI_VECTOR_CACHE_MB": "0"}
    done = subprocess.run([*map(str, command)], check=True, capture_output=True, text=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = texts(options.rows)
        (folder / "t.txt").write_text("\n".join(found), "utf-8")
        (folder / "one.txt").write_text(found[0], "utf-8")
        with (folder / "t.jsonl").open("w", encoding="utf-8") as file:
            for number, text in enumerate(found):
                row = {"id": f"d{number}", "text": text, "title": text[:20], "year": 1900 + number % 100}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        sentcli, model = [sys.executable, "-m", "sentcli"], folder / "model"
        of_model = ["--method", "bag-of-words", "--set", "dimensions=64", "-m", "minilm"]
        processor_time([*sentcli, "train", *of_model, "--data", folder / "t.txt", "-o", model])
        encode = [*sentcli, "encode", "-m", model, "--overwrite", "-q"]
        commands = {
            "tokenizers alone": [sys.executable, "-c", TOKENIZE, model / "tokenizer.json", folder / "t.txt"],
            "start": [*encode, folder / "one.txt", "-o", folder / "one.npy"],
            "jsonl -> directory": [*encode, folder / "t.jsonl", "-o", folder / "directory"],
            "jsonl -> .npy": [*encode, folder / "t.jsonl", "-o", folder / "t.npy"],
            "jsonl -> .parquet": [*encode, folder / "t.jsonl", "-o", folder / "t.parquet"],
            "txt -> .npy": [*encode, folder / "t.txt", "-o", folder / "u.npy"],
        }
        times: dict[str, list[float]] = {title: [] for title in commands}
        for _ in range(options.runs):
            for title, command in commands.items():
                seconds, printed = processor_time(command)
                times[title].append(seconds)
                if title == "tokenizers alone":
                    tokens = float(printed)
    medians = {title: statistics.median(seconds) for title, seconds in times.items()}
    print(f"{options.rows:,} rows of {tokens:.1f} tokens; processor seconds, median of {options.runs}")
    for title, seconds in medians.items():
        whole = seconds / medians["tokenizers alone"]
        without = (seconds - medians["start"]) / medians["tokenizers alone"]
        of_tokenizers = f"; {whole:.2f} of the tokenizers, {without:.2f} without the start" if "->" in title else ""
        print(f"{title}: {seconds:.2f} s{of_tokenizers}")


if __name__ == "__main__":
    main()
