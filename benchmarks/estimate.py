"""What ``encode --estimate`` says against what ``encode`` then takes.

    SENTCLI_DATA=... python benchmarks/estimate.py [--rows 12000]

Three corpora with MiniLM in fp32 and int8: short sentences, long abstracts, and questions that repeat. Prints the
seconds of both and their ratio.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

from common import data_folder, machine


def lines(path: Path, count: int) -> list[str]:
    with path.open(encoding="utf-8") as handle:
        return [line.rstrip("\n") for line in islice(handle, count)]


def sentcli(*arguments: object) -> dict:
    command = [sys.executable, "-m", "sentcli", *map(str, arguments), "--json", "-", "-q"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["results"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=12_000)
    rows = parser.parse_args().rows
    data = data_folder()
    documents = map(json.loads, lines(data / "retrieval" / "scifact" / "corpus.jsonl", rows // 6))
    pairs = [line.split("\t") for line in lines(data / "pairs" / "quora_pairs.tsv", rows)[1:]]
    corpora = {
        "wiki.txt": lines(data / "corpus" / "wiki.txt", rows),
        "scifact": [" ".join(f"{row['title']} {row['text']}".split()) for row in documents],
        "quora": [text for row in pairs for text in (row[1], row[1])][:rows],
    }
    print(machine())
    print(f"{'corpus':<10}{'rows':>8}{'precision':>11}{'estimate':>10}{'encode':>9}{'ratio':>7}")
    with tempfile.TemporaryDirectory() as folder:
        for name, texts in corpora.items():
            path = Path(folder) / f"{name}.txt"
            path.write_text("\n".join(texts) + "\n", "utf-8")
            estimates = sentcli("encode", path, "--estimate", "-m", "minilm")["models"]
            for entry in estimates:
                started = time.perf_counter()
                options = ["--precision", entry["precision"], "--overwrite"]
                sentcli("encode", path, "-m", "minilm", "-o", f"{folder}/v.npy", *options)
                took = time.perf_counter() - started
                figures = f"{entry['seconds']:>10.1f}{took:>9.1f}{entry['seconds'] / took:>7.2f}"
                print(f"{name:<10}{len(texts):>8,}{entry['precision']:>11}{figures}", flush=True)


if __name__ == "__main__":
    main()
