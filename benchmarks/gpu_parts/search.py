"""Search in rows that fit into the memory of a card, against faiss and plain products with torch."""

import time
from collections.abc import Callable

import numpy as np
from speed_row import ratio

from gpu_parts.material import unit_vectors
from gpu_parts.sheet import Setting, Sheet, free_memory, in_turn, rate, speed
from sentcli.errors import SentcliError
from sentcli.search import searcher

KS = (10, 100, 1000)
CHUNK, QUERIES = 131_072, 1024
"""How many rows, and how many queries, torch multiplies at a time."""


def run(setting: Setting, sheet: Sheet) -> None:
    """Add the rows of search."""
    rows, asked = setting.size(1_000_000, 3000), setting.size(4096, 40)
    vectors, queries = unit_vectors(setting, rows, asked)
    exact_search(setting, sheet, vectors, queries)
    free_memory()
    scan(setting, sheet, vectors, queries)
    free_memory()
    inverted_file(setting, sheet, vectors[: rows // 5], queries)


def exact_search(setting: Setting, sheet: Sheet, vectors: np.ndarray, queries: np.ndarray) -> None:
    """Add one query, a thousand, and all of them, for several k, beside faiss and torch."""
    began = time.perf_counter()
    ours = searcher.searcher_over("flat", vectors, device=setting.device)
    ours.search(queries[:1], 10)
    opened = time.perf_counter() - began
    sheet.add(f"exact search of {len(vectors):,} rows, opened, with the first query", f"{opened:.2f} s")
    one = in_turn({"one": (lambda: ours.search(queries[:1], 10), 1)}, setting.runs)
    sheet.add("exact search, 1 query, k 10", f"{1000 / rate(one['one']):,.1f} ms")
    torch_search = by_torch(setting, vectors)
    faiss_search = by_faiss(setting, sheet, vectors)
    for count, k in ((len(queries) // 4, 10), *((len(queries), k) for k in KS)):
        some, title = queries[:count], f"exact search, {count:,} queries, k {k:,}"
        sides = {
            "sentcli": (lambda some=some, k=k: ours.search(some, k), count),
            "torch": (lambda some=some, k=k: torch_search(some, k), count),
        }
        if faiss_search is not None:
            sides["faiss"] = (lambda some=some, k=k: faiss_search(some, k), count)
        times = in_turn(sides, min(setting.runs, 2))
        against = [f"{ratio(times, side, 'sentcli')} x {side}" for side in sides if side != "sentcli"]
        expected, found = torch_search(some, k), ours.search(some, k).positions
        against.append(f"hits of torch fp32: {shared(found, expected):.5f}")
        sheet.add(f"{title}, sentcli", speed(times["sentcli"], "queries"), "; ".join(against))
        for side in (side for side in sides if side != "sentcli"):
            sheet.add(f"{title}, {side}", speed(times[side], "queries"))
        if count == len(queries) and k == KS[0] and "faiss" in times:
            sheet.cells["exact search, k 10, x faiss"] = ratio(times, "faiss", "sentcli")


def scan(setting: Setting, sheet: Sheet, vectors: np.ndarray, queries: np.ndarray) -> None:
    """Add exact search whose rows are scanned in bf16 first."""
    try:
        ours = searcher.searcher_over("flat-bf16", vectors, device=setting.device)
    except SentcliError as error:
        sheet.lacks("exact search by a scan in bf16", error)
        return
    expected = searcher.searcher_over("flat", vectors, device=setting.device).search(queries, KS[0]).positions
    free_memory()
    for k in KS:
        times = in_turn({"scan": (lambda k=k: ours.search(queries, k), len(queries))}, setting.runs)
        again = f"searched again {ours.protocol().get('searched_again', 0):.4f} of all so far"
        same = f"hits of fp32: {shared(ours.search(queries, k).positions, expected):.5f}; " if k == KS[0] else ""
        sheet.add(f"exact search by a scan in bf16, k {k:,}", speed(times["scan"], "queries"), same + again)


def shared(found: np.ndarray, expected: np.ndarray) -> float:
    """Return the share of expected hits that were found."""
    both = [len(np.intersect1d(one, other)) for one, other in zip(found, expected, strict=True)]
    return sum(both) / expected.size


def by_torch(setting: Setting, vectors: np.ndarray) -> Callable[[np.ndarray, int], np.ndarray]:
    """Return a search by products in fp32 with rows that lie on the device, which returns the positions."""
    import torch

    rows = torch.from_numpy(vectors).to(setting.device)

    def work(queries: np.ndarray, k: int) -> np.ndarray:
        found = []
        for some in torch.from_numpy(queries).to(setting.device).split(QUERIES):
            lists = []
            for start in range(0, len(rows), CHUNK):
                scores = some @ rows[start : start + CHUNK].T
                best = scores.topk(min(k, scores.shape[1]), dim=1)
                lists.append((best.values, best.indices + start))
            values, positions = (torch.cat(column, dim=1) for column in zip(*lists, strict=True))
            found.append(positions.gather(1, values.topk(k, dim=1).indices))
        return torch.cat(found).cpu().numpy()

    return work


def by_faiss(setting: Setting, sheet: Sheet, vectors: np.ndarray) -> Callable[[np.ndarray, int], object] | None:
    """Return a search by faiss's index on the GPU; None where faiss has none."""
    if not setting.on_gpu:
        sheet.lacks("exact search, faiss", "there is no GPU")
        return None
    try:
        import faiss

        resources = faiss.StandardGpuResources()
        index = faiss.GpuIndexFlatIP(resources, vectors.shape[1])
    except (ImportError, RuntimeError, AttributeError) as error:  # faiss-gpu without CUDA's libraries, or faiss-cpu
        sheet.lacks("exact search, faiss", f"faiss-gpu is not installed ({error})")
        return None
    index.add(vectors)
    return lambda queries, k: (resources, index.search(queries, k))[1]


def inverted_file(setting: Setting, sheet: Sheet, vectors: np.ndarray, queries: np.ndarray) -> None:
    """Add the building and the search of an inverted file."""
    try:
        began = time.perf_counter()
        ours = searcher.searcher_over("ivf", vectors, device=setting.device)
        built = time.perf_counter() - began
    except (ImportError, SentcliError) as error:
        sheet.lacks(f"IVF of {len(vectors):,} rows", error)
        return
    times = in_turn({"ivf": (lambda: ours.search(queries, 10), len(queries))}, setting.runs)
    exact = searcher.searcher_over("flat", vectors, device=setting.device).search(queries, 10).positions
    same = f"recall {shared(ours.search(queries, 10).positions, exact):.4f}"
    sheet.add(f"IVF of {len(vectors):,} rows, built", f"{built:.1f} s")
    sheet.add(f"IVF of {len(vectors):,} rows, k 10", speed(times["ivf"], "queries"), same)
