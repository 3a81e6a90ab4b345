"""Exact search against the products alone, and what the kernels of faiss's OpenBLAS make of it and of training.

    python benchmarks/exact_search.py [--rows 200000] [--runs 3]

Random unit vectors of 384 dimensions. `product`: NumPy's products of all queries and rows in tiles, without looking for
the best ones; for one query `rows @ query`. `own`: `sentcli.search.exact.search` of the same vectors. `faiss`: its
`knn` with the tiles that fit it best. `numpy` and `torch`: the same products in blocks of 131,072 rows with
`argpartition` and with `topk`, as one writes it; `--ways` prints these alone, the median of the processor times of runs
in turn. Each other figure is the best of the runs, and the share is product / own. Then 1,000
queries and k 100 for rows that are mapped from a file as float32 and float16, and for a mask of half of the rows.
Below, in processes of their own: `knn` and the training of an IVF index with the kernels that faiss takes itself, and
with those that sentcli gives it.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from common import machine, seconds

DIMENSION, TILE, BLOCK = 384, 8192, 131_072
TRAINING = """
import sys, time
import numpy as np
from contextlib import nullcontext
from sentcli.search import blas
with blas.kernels_that_fit() if sys.argv[1] == "fitting" else nullcontext():
    import faiss
rows = np.random.default_rng(0).standard_normal((100_000, 384), dtype=np.float32)
queries = rows[:1000] + 0.1
faiss.cvar.distance_compute_blas_query_bs, faiss.cvar.distance_compute_blas_database_bs = 256, 16_384
def best(work, runs=3):
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)
knn = best(lambda: faiss.knn(queries, rows, 100, metric=faiss.METRIC_INNER_PRODUCT))
def train():
    faiss.index_factory(384, "IVF1024,Flat", faiss.METRIC_INNER_PRODUCT).train(rows)
name = blas.kernels_of("faiss")
print(f"{name}: knn of 1,000 queries in 100,000 rows {knn:.2f} s, training IVF1024 {best(train, 2):.2f} s")
"""


def unit_vectors(rows: int, seed: int) -> np.ndarray:
    """Return random vectors of length 1."""
    found = np.random.default_rng(seed).standard_normal((rows, DIMENSION), dtype=np.float32)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def best(work: Callable[[], object], runs: int) -> float:
    """Return the shortest time of some runs, after one that is not counted."""
    work()
    return min(seconds(work) for _ in range(runs))


def by_numpy(queries: np.ndarray, rows: np.ndarray, k: int) -> np.ndarray:
    """Return the positions of the `k` best rows of each query, by products and `argpartition` of each block."""
    scores, positions = [], []
    for start in range(0, len(rows), BLOCK):
        products = queries @ rows[start : start + BLOCK].T
        found = np.argpartition(-products, k, axis=1)[:, :k]
        scores.append(np.take_along_axis(products, found, 1))
        positions.append(found + start)
    all_scores = np.concatenate(scores, axis=1)
    order = np.argsort(-all_scores, axis=1)[:, :k]
    return np.take_along_axis(np.concatenate(positions, axis=1), order, 1)


def by_torch(queries: np.ndarray, rows: np.ndarray, k: int) -> np.ndarray:
    """Return the positions of the `k` best rows of each query, by products and `topk` of each block."""
    import torch

    lists = []
    for start in range(0, len(rows), BLOCK):
        block = torch.from_numpy(rows[start : start + BLOCK])
        best_of_block = (torch.from_numpy(queries) @ block.T).topk(k, dim=1)
        lists.append((best_of_block.values, best_of_block.indices + start))
    scores, positions = (torch.cat(column, dim=1) for column in zip(*lists, strict=True))
    return positions.gather(1, scores.topk(k, dim=1).indices).numpy()


def ways(rows: np.ndarray, runs: int) -> None:
    """Print the processor times of searches by other ways, in those of our own."""
    import faiss

    from sentcli.search.exact import search

    for count in (1, 16, 100, 1000):
        queries = unit_vectors(count, 1)
        works = {
            "own": lambda q=queries: search(q, [rows], 100, similarity="dot"),
            "faiss": lambda q=queries: faiss.knn(q, rows, 100, metric=faiss.METRIC_INNER_PRODUCT),
            "numpy": lambda q=queries: by_numpy(q, rows, 100),
            "torch": lambda q=queries: by_torch(q, rows, 100),
        }
        times: dict[str, list[float]] = {name: [] for name in works}
        for number in range(runs + 1):
            for name, work in works.items():
                began = time.process_time()
                work()
                if number:  # the first round is not counted
                    times[name].append(time.process_time() - began)
        medians = {name: statistics.median(taken) for name, taken in times.items()}
        shown = [f"{name} {1000 * median:.1f} ms ({median / medians['own']:.2f})" for name, median in medians.items()]
        print(f"{count} queries, k 100: {', '.join(shown)}", flush=True)


def other_rows(rows: np.ndarray, runs: int) -> None:
    """Print the times for rows in files and for some of the rows."""
    from sentcli.search.exact import Blocks, search

    queries = unit_vectors(1000, 1)
    mask = np.random.default_rng(2).random(len(rows)) < 0.5

    def show(name: str, found: Callable[[], Iterator[np.ndarray]]) -> None:
        time = best(lambda: search(queries, found(), 100, similarity="dot"), runs)
        print(f"1000 queries, k 100, {name}: {1000 * time:.1f} ms", flush=True)

    show("float32 in memory", lambda: iter([rows]))
    with TemporaryDirectory() as folder:
        for dtype in (np.float32, np.float16):
            path = Path(folder) / "rows.npy"
            np.save(path, rows.astype(dtype))
            mapped = Blocks([np.load(path, mmap_mode="r")])
            show(f"{np.dtype(dtype).name} from a file", lambda mapped=mapped: mapped.since(0, 131_072))
    show("half of the rows", lambda: Blocks([rows]).chosen(mask, 0, 131_072))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--ways", action="store_true", help="of NumPy, torch and faiss alone")
    options = parser.parse_args()
    from sentcli.search.blas import kernels_of
    from sentcli.search.exact import search
    from sentcli.search.faiss_border import require_faiss

    faiss = require_faiss()
    faiss.cvar.distance_compute_blas_query_bs, faiss.cvar.distance_compute_blas_database_bs = 256, 16_384
    print(machine())
    print(f"kernels: NumPy {kernels_of('numpy.libs')}, faiss {kernels_of('faiss')}; {options.rows:,} rows")
    rows = unit_vectors(options.rows, 0)
    if options.ways:
        ways(rows, options.runs)
        return
    for count in (1, 16, 100, 1000):
        queries = unit_vectors(count, 1)

        def product(queries: np.ndarray = queries) -> None:
            if len(queries) == 1:
                rows @ queries[0]
                return
            out = np.empty((len(queries), TILE), np.float32)
            for start in range(0, len(rows), TILE):
                part = rows[start : start + TILE]
                np.matmul(queries, part.T, out=out[:, : len(part)])

        alone = best(product, options.runs)
        for k in (10, 100, 1000):
            own = best(lambda q=queries, k=k: search(q, [rows], k, similarity="dot"), options.runs)
            peer = best(lambda q=queries, k=k: faiss.knn(q, rows, k, metric=faiss.METRIC_INNER_PRODUCT), options.runs)
            times = f"product {1000 * alone:.1f} ms, own {1000 * own:.1f} ms, faiss {1000 * peer:.1f} ms"
            print(f"{count} queries, k {k}: {times}; share {alone / own:.2f}, faiss {alone / peer:.2f}", flush=True)
    other_rows(rows, options.runs)
    clean = {name: value for name, value in os.environ.items() if name != "OPENBLAS_CORETYPE"}
    for kernels in ("its own", "fitting"):
        call = [sys.executable, "-c", TRAINING, kernels]
        done = subprocess.run(call, env=clean, capture_output=True, text=True, check=True)
        print(f"faiss, {kernels} kernels, {done.stdout.strip()}")


if __name__ == "__main__":
    main()
