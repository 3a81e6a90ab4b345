"""A directory of many rows by a static model with an index ivfpq: seconds, and whether memory stays flat.

    SENTCLI_DATA=... python benchmarks/large_directory.py [--rows 1000000 10000000]
    SENTCLI_DATA=... python benchmarks/large_directory.py --milvus --rows 10000 100000

Rows and model are those of `places.py`: 24 words with an id, a title and a year, and a table of 64 dimensions. Each
command is a process of its own; its memory is what it holds itself at most, without files that it has mapped (the
system drops those when others need the room), asked for twice a second. The first command writes and indexes the rows,
the second brings the directory up to date after 1 % of the texts have changed, the third searches it for 1,000 texts.
With `--milvus` the rows are written into a directory without an index, and into a file of Milvus Lite.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import machine

SENTCLI = [sys.executable, "-m", "sentcli"]


def anonymous_bytes(process: int) -> int:
    """Return the memory of a process that is no mapped file; 0 after it has ended."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    for line in lines:
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) * 1024
    return 0


def measured(command: list[object]) -> tuple[float, float, int]:
    """Return the seconds of a command by the clock and of the processor, and its memory at most."""
    environment = {**os.environ, "SENTCLI_VECTOR_CACHE_MB": "0"}
    began = time.perf_counter()
    most = 0
    before = os.times()
    process = subprocess.Popen([*map(str, command)], env=environment, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        most = max(most, anonymous_bytes(process.pid))
        time.sleep(0.5)
    if process.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {process.returncode}")
    after = os.times()
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - began, processor, most


def write(path: Path, rows: int, *, changed: bool) -> None:
    """Write rows one by one; every hundredth text is another one after a change."""
    source = Path(os.environ["SENTCLI_DATA"]) / "corpus" / "wiki.txt"
    lines = [line.split() for line in source.read_text("utf-8").splitlines() if len(line.split()) >= 12]
    generator = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for number in range(rows):
            text = " ".join([*generator.choice(lines)[:12], *generator.choice(lines)[:12]])
            if changed and number % 100 == 0:
                text = f"{text} and {number}"
            row = {"id": f"d{number}", "text": text, "title": text[:20], "year": 1900 + number % 100}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def model_in(folder: Path) -> Path:
    """Train the static model on some rows, and return its folder."""
    write(folder / "few.jsonl", 10_000, changed=False)
    model = folder / "model"
    of_model = ["--method", "bag-of-words", "--set", "dimensions=64", "-m", "minilm", "-q"]
    measured([*SENTCLI, "train", *of_model, "--data", folder / "few.jsonl", "-o", model])
    return model


def main() -> None:
    """Print a row for each command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--milvus", action="store_true")
    options = parser.parse_args()
    print(machine())
    print("| rows | command | seconds | of the processor | MB |\n|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = model_in(folder)
        queries = folder / "queries.jsonl"
        write(queries, 1000, changed=False)
        for count in options.rows:
            corpus, directory = folder / "rows.jsonl", folder / f"directory-{count}"
            begin = [*SENTCLI, "index", corpus, "-m", model, "-q"]
            index = [*begin, "-o", directory]
            hits = folder / f"hits-{count}.jsonl"
            search = [*SENTCLI, "retrieve", "--corpus", directory, "-m", model, "-q", "--queries", queries]
            commands = {
                "index --type ivfpq": [*index, "--type", "ivfpq"],
                "index --update": [*index, "--update"],
                "retrieve --index ivfpq": [*search, "--index", "ivfpq", "--hits", hits],
            }
            if options.milvus:
                milvus = f"milvus:{folder / f'rows-{count}.db'}"
                commands = {"index": index, "index --to milvus": [*begin, "--to", milvus, "--collection", "rows"]}
            for title, command in commands.items():
                if not title.startswith("retrieve"):
                    write(corpus, count, changed=title.endswith("--update"))
                seconds, processor, most = measured(command)
                cells = (f"{count:,}", title, f"{seconds:,.0f}", f"{processor:,.0f}", f"{most / 1e6:,.0f}")
                print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
