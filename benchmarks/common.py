"""Timing in pairs: ours and the peer's in turn, the median of several, and their ratio."""

import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def data_folder() -> Path:
    """Return the folder of real data."""
    folder = os.environ.get("SENTCLI_DATA")
    if not folder:
        raise SystemExit("set SENTCLI_DATA to a folder with corpus/ and senteval/")
    return Path(folder)


def machine() -> str:
    """Describe this machine in one line."""
    import torch

    from sentcli.machine import processor

    return (
        f"{processor()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads, "
        f"{torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}, Python {platform.python_version()}"
    )


def matmul_rate(dtype: Any = None) -> float:
    """Return what torch's matrix products of MiniLM's shape reach, in GFLOP/s: the best of several rounds.

    Args:
        dtype: of torch; None is fp32.
    """
    import torch

    a, b = (torch.randn(*shape).to(dtype or torch.float32) for shape in ((1024, 384), (384, 1536)))
    best = min(seconds(lambda: [a @ b for _ in range(50)]) for _ in range(10))
    return 50 * 2 * 1024 * 384 * 1536 / best / 1e9


def seconds(work: Callable[[], object]) -> float:
    """Time one call."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def compare(
    name: str, ours: Callable[[], object], peer: Callable[[], object], units: int, unit: str, runs: int
) -> float:
    """Run both in turn, one warm-up each, and print medians and the ratio (above 1: ours is faster)."""
    ours(), peer()
    return report_pairs(name, [(seconds(ours), seconds(peer)) for _ in range(runs)], units, unit)


def report_pairs(name: str, pairs: list[tuple[float, float]], units: int, unit: str) -> float:
    """Print medians and the ratio of pairs of seconds, ours and the peer's (above 1: ours is faster)."""
    mine, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratios = sorted(b / a for a, b in pairs)
    ratio = statistics.median(ratios)
    print(f"{name}: sentcli {units / mine:.1f} {unit}/s, peer {units / theirs:.1f} {unit}/s")
    print(f"  ratio {ratio:.2f} (median of {len(pairs)} pairs; {ratios[0]:.2f} to {ratios[-1]:.2f})", flush=True)
    return ratio
