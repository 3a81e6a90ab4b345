"""What the one process that reads can do beside many that encode: rows a second, and the cost of a manifest.

    python benchmarks/reading.py [--rows 1000000] [--words 100]

The rows are passages with an id and a number. They are read twice, as `encode` does: checked, then read in blocks,
which `encode --ray` puts into Ray's object store. The manifest is written anew after each shard.
"""

import argparse
import json
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from common import machine, seconds

from sentcli.cluster import joining
from sentcli.io.blocks import Block, blocks
from sentcli.io.dataset import Counts, InputGroup, load_manifest
from sentcli.io.dataset_writer import DatasetWriter
from sentcli.io.folder import open_folder
from sentcli.io.forms import write_json
from sentcli.io.readers import ReadOptions
from sentcli.io.writers import OutputPlan
from sentcli.stores.inputs import read_inputs

VOCABULARY = 20_000


def write_passages(path: Path, rows: int, words: int) -> None:
    """Write passages of random words, as long as English ones."""
    random = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    vocabulary = ["".join(random.choice(letters, 2 + i % 8)) for i in range(VOCABULARY)]
    with path.open("w", encoding="utf-8") as handle:
        for i in range(rows):
            text = " ".join(vocabulary[word] for word in random.integers(VOCABULARY, size=words))
            handle.write(json.dumps({"id": f"d{i}", "text": text, "number": i}) + "\n")


def manifest_costs(folder: Path, shards: int) -> tuple[float, int]:
    """Return the seconds and the bytes of a manifest with many shards."""
    vectors, texts = np.zeros((2, 384), np.float32), ["a", "b"]
    group = InputGroup([{"name": "rows.jsonl"}], 2, 2)
    with DatasetWriter(open_folder(folder), OutputPlan(2, 384), 2, group) as writer:
        writer.write(Block(texts, texts, {}), vectors, Counts(rows=2))
    manifest = load_manifest(folder)
    (shard,) = manifest.shards
    many = manifest.with_shards([replace(shard, number=number) for number in range(shards)])
    path = folder / "many.json"
    return seconds(lambda: write_json(path, asdict(many))), path.stat().st_size


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--words", type=int, default=100)
    options = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "rows.jsonl"
        write_passages(path, options.rows, options.words)
        size = path.stat().st_size / options.rows
        found = []
        checking = seconds(lambda: found.append(read_inputs([str(path)], ReadOptions("text"))))
        (inputs,) = found

        def read(use):
            columns = list(inputs.survey.column_types)
            for block in blocks(inputs.sources, inputs.options, block_rows=8192, shard_rows=100_000, columns=columns):
                use(block)

        reading = seconds(lambda: read(lambda block: None))
        with joining.connected("local"):
            put = joining.require_ray().put
            sending = seconds(lambda: read(put))
        speeds = ", ".join(
            f"{what} {options.rows / taken:,.0f} rows/s"
            for what, taken in (("checked at", checking), ("read at", reading), ("read and sent at", sending))
        )
        print(f"{options.rows:,} rows of {size:.0f} bytes: {speeds}")
        for shards in (1000, 10_000):
            taken, written = manifest_costs(Path(name) / f"{shards}", shards)
            print(f"a manifest of {shards:,} shards: {written / 1e6:.1f} MB, written in {1000 * taken:.0f} ms")


if __name__ == "__main__":
    main()
