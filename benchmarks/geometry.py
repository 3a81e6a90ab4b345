"""Geometry of many vectors against scikit-learn and torch, and the time of a map.

    python benchmarks/geometry.py [--rows 50000] [--dimension 384] [--runs 5]

First, 10,000 rows: uniformity and the ten nearest neighbours of each row (`sentcli.evaluation.pair_geometry`), against
`torch.pdist`, with which Wang and Isola's code takes uniformity, and scikit-learn's `NearestNeighbors`, in turn; both
must give the same numbers. Then everything that `analyze geometry` measures, on --rows rows, in a process of its own
with its peak memory, and t-SNE of 2,000 points as `analyze map` draws it. Wanted: 20 s and 1.5 GB; 20 s.
"""

import argparse
import subprocess
import sys

import numpy as np
from common import compare, machine, seconds

CHILD = """
import sys, time
import numpy as np
from sentcli.analysis.geometry.measures import geometry
rows, dimension = map(int, sys.argv[1:])
random = np.random.default_rng(0)
vectors = (random.standard_normal((rows, dimension)) * np.linspace(1, 0.1, dimension) + 0.3).astype(np.float32)
began = time.perf_counter()
found = geometry(vectors)
taken = time.perf_counter() - began
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1024
print(f"geometry of {rows:,} x {dimension}: {taken:.1f} s, {peak:.0f} MB at most "
      f"(uniformity {found.uniformity:.4f}, effective rank {found.effective_rank:.1f})")
"""


def ours(vectors: np.ndarray) -> tuple[float, np.ndarray]:
    from sentcli.evaluation.pair_geometry import all_pairs

    found = all_pairs(vectors, 10)
    return found.uniformity, found.occurrences


def peers(vectors: np.ndarray) -> tuple[float, np.ndarray]:
    import torch
    from sklearn.neighbors import NearestNeighbors

    unit = torch.nn.functional.normalize(torch.from_numpy(vectors), dim=1)
    uniformity = float(torch.pdist(unit).pow(2).mul(-2).exp().mean().log())
    neighbours = NearestNeighbors(n_neighbors=10, metric="cosine").fit(vectors).kneighbors(return_distance=False)
    return uniformity, np.bincount(neighbours.ravel(), minlength=len(vectors))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--runs", type=int, default=5)
    asked = parser.parse_args()
    print(machine())
    vectors = np.random.default_rng(0).standard_normal((10_000, asked.dimension)).astype(np.float32)
    mine, theirs = ours(vectors), peers(vectors)
    assert abs(mine[0] - theirs[0]) < 1e-4, (mine[0], theirs[0])
    assert np.abs(mine[1] - theirs[1]).sum() <= 2e-4 * mine[1].sum(), "neighbours whose cosines are as good as equal"
    compare("all pairs of 10,000", lambda: ours(vectors), lambda: peers(vectors), 10_000, "rows", asked.runs)
    subprocess.run([sys.executable, "-c", CHILD, str(asked.rows), str(asked.dimension)], check=True)
    map_of(np.random.default_rng(1).standard_normal((2000, asked.dimension)).astype(np.float32))


def map_of(vectors: np.ndarray) -> None:
    from sentcli.analysis.map.layout import tsne

    tsne(vectors[:200])  # imports
    print(f"t-SNE of {len(vectors):,} points: {seconds(lambda: tsne(vectors)):.1f} s")


if __name__ == "__main__":
    main()
