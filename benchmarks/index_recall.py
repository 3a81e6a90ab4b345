"""Approximate search over a million clustered vectors: recall and speed of each kind against exact search, and memory.

    python benchmarks/index_recall.py [--rows 1000000] [--dimension 384] [--kinds ivf,ivfpq,hnsw] [--folder DIR]

Writes the vectors as `sentcli encode` would, builds each index as `sentcli index` does, and prints its recall@10 and
its queries a second at every effort, beside exact search with faiss of the same 1,000 queries. At the end a process of
its own opens the IVF-PQ index, mapped, finds ten rows with their texts for each of 100 queries, and prints what it has
in memory. IndexRequest: recall@10 of 0.95 at 10 times the speed of exact search, and less than 300 MB.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from common import machine

CLUSTERS = 4000
SPREAD = 0.9
"""Length of the noise around a centre of length 1: neighbours share a cluster and differ in it."""
MEMORY = """
import sys, time
import numpy as np
from pathlib import Path
from sentcli.search.corpus import search_rows
from sentcli.search.local_corpus import LocalCorpus
from sentcli.search.stored_vectors import SearchRequest
from sentcli.search.vector_directory import VectorDirectory

def resident(key):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(key)) / 1024

folder, kind = Path(sys.argv[1]), sys.argv[2]
before = resident("VmRSS")
stored = VectorDirectory.open(folder)
searcher, _ = stored.open_index(SearchRequest(kind))
queries = np.load(folder / "vectors-00000.npy", mmap_mode="r")[:100]
began = time.perf_counter()
corpus = LocalCorpus(str(folder), stored.rows, stored, searcher=searcher)
hits = search_rows(corpus, "dense", [""] * 100, queries, 10)
seconds = time.perf_counter() - began
itself = sum(row[0].row.id == f"d{i}" for i, row in enumerate(hits))
assert itself >= 90, f"{itself} of 100 rows find themselves"
print(f"  {kind}: {resident('VmHWM'):.0f} MB at most, {resident('RssAnon'):.0f} MB of it not of mapped files; "
      f"{before:.0f} MB before it was opened; 100 queries with their rows in {seconds:.2f} s; "
      f"torch imported: {'torch' in sys.modules}")
"""


def clustered(rows: int, dimension: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(0).standard_normal((CLUSTERS, dimension), np.float32) / np.sqrt(dimension)
    noise = random.standard_normal((rows, dimension), np.float32) * (SPREAD / np.sqrt(dimension))
    return centres[random.integers(0, CLUSTERS, rows)] + noise


def write(folder: Path, rows: int, dimension: int, shard_rows: int = 100_000) -> None:
    """Write vectors as a directory of `sentcli encode`."""
    from sentcli.io.blocks import Block
    from sentcli.io.dataset import Counts, InputGroup
    from sentcli.io.dataset_writer import DatasetWriter
    from sentcli.io.folder import open_folder
    from sentcli.io.writers import OutputPlan

    plan = OutputPlan(rows, dimension, {}, {"model": "clustered", "prompt": ""})
    group = InputGroup([{"name": "clustered"}], rows, rows)
    step = 10_000
    with DatasetWriter(open_folder(folder), plan, shard_rows, group) as writer:
        for start in range(0, rows, step):
            count = min(step, rows - start)
            ids = [f"d{start + i}" for i in range(count)]
            block = Block(ids, [f"the text of document {key}" for key in ids], {}, start // shard_rows, start)
            writer.write(block, clustered(count, dimension, start + 1), Counts(rows=count))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--kinds", default="ivf,ivfpq,hnsw")
    parser.add_argument("--folder", type=Path, help="kept, and used again")
    asked = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.folder or Path(temporary) / "vectors"
        if not (folder / "manifest.json").exists():
            write(folder, asked.rows, asked.dimension)
        kinds = asked.kinds.split(",")
        for kind in kinds:
            measure(folder, kind)
        for kind in [kind for kind in kinds if kind in ("ivfpq", "hnsw")]:
            subprocess.run([sys.executable, "-c", MEMORY, str(folder), kind], check=True)


def measure(folder: Path, kind: str) -> None:
    from sentcli.search.index import IndexRequest, build
    from sentcli.search.vector_directory import VectorDirectory

    began = time.perf_counter()
    manifest, added = build(VectorDirectory.open(folder), IndexRequest(kind), lambda count: None, lambda step: None)
    seconds = time.perf_counter() - began
    found = manifest.recall
    print(f"{kind} ({manifest.factory}): {added} rows in {seconds:.0f} s, {manifest.bytes / 1e6:.0f} MB")
    exact = found["exact_queries_per_second"]
    print(f"  exact search: {exact:.0f} queries/s")
    for point in found["points"]:
        chosen = " <- chosen" if point == found["chosen"] else ""
        print(
            f"  {found['parameter']} {point['effort']}: recall@{found['k']} {point['recall']:.4f}, "
            f"{point['queries_per_second']:.0f} queries/s, {point['queries_per_second'] / exact:.1f} x exact{chosen}",
            flush=True,
        )


if __name__ == "__main__":
    main()
