"""What the parts of `benchmarks/gpu.py` share: their settings, timing in turn, and the table."""

import gc
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common import seconds
from train_speed import wait_for_gpu

CARD_COLUMNS = (
    "card", "fp32 products, TFLOP/s", "bf16 products, TFLOP/s", "encode fp32, x sentence-transformers",
    "encode bf16, x sentence-transformers", "encode bf16, x the card alone",
    "file to directory, x in memory", "exact search, k 10, x faiss", "train bf16, 64, x sentence-transformers",
    "train bf16, 512, x sentence-transformers",
)  # fmt: skip
"""The columns of the one row of a card in docs/studies/speed-by-processor.md."""
Times = dict[str, list[float]]
"""Seconds a unit of work, by side, one for each round."""


@dataclass(frozen=True)
class Setting:
    """What a part runs on."""

    device: str
    model: str
    """The folder or the name of MiniLM."""
    work: Path
    """A folder for files that are made."""
    small: bool
    """Whether the part only tries itself."""
    runs: int

    def size(self, full: int, small: int) -> int:
        """Return a number that depends on whether the part only tries itself."""
        return small if self.small else full

    @property
    def on_gpu(self) -> bool:
        """Whether the device is an NVIDIA GPU."""
        return self.device.startswith("cuda")

    def computes_in(self, precision: str) -> bool:
        """Tell whether the device computes in a precision."""
        import torch

        from sentcli.precision import half_precision_supported

        return precision == "fp32" or half_precision_supported(torch.device(self.device), precision)

    @property
    def half(self) -> str:
        """The half precision of the part, bf16 where the device computes in it."""
        return "bf16" if self.computes_in("bf16") else "fp32"


@dataclass
class Sheet:
    """The table that a run prints, and the row of its card."""

    rows: list[str] = field(default_factory=list)
    cells: dict[str, str] = field(default_factory=dict)
    """The values of the card's row by column."""

    def add(self, what: str, speed: str, against: str = "", cosine: str = "", memory: str = "") -> None:
        """Add a line, and show it at once."""
        self.rows.append(f"| {what} | {speed} | {against} | {cosine} | {memory} |")
        print(self.rows[-1], file=sys.stderr, flush=True)

    def lacks(self, what: str, reason: object) -> None:
        """Add a line about what could not be measured."""
        self.add(what, "not run: " + " ".join(str(reason).split())[:200])

    def print(self, title: str) -> None:
        """Print the table and the row of the card."""
        print(f"{title}\n\n| what | speed | against | cosine to fp32 | memory of the GPU |")
        print("|---|---|---|---|---|")
        print("\n".join(self.rows), end="\n\n")
        cells = [self.cells.get(column, "-") for column in CARD_COLUMNS]
        for row in (CARD_COLUMNS, ["---"] * len(CARD_COLUMNS), cells):
            print(f"| {' | '.join(row)} |")


def waited(work: Callable[[], object]) -> float:
    """Return the seconds of one call, until the GPU has done its part."""
    wait_for_gpu()
    return seconds(lambda: (work(), wait_for_gpu()))


def in_turn(
    sides: dict[str, tuple[Callable[[], Any], int]], runs: int, clock: Callable[[Callable[[], Any]], float] = waited
) -> Times:
    """Call every side once, then all in turn, and return their seconds a unit.

    Args:
        sides: for each a function, and how many units of work a call of it does.
        runs: the number of rounds that count.
        clock: calls a function and returns its seconds.
    """
    for work, _ in sides.values():
        work()
    found: Times = {name: [] for name in sides}
    for _ in range(runs):
        for name, (work, units) in sides.items():
            found[name].append(clock(work) / units)
    return found


def rate(times: list[float]) -> float:
    """Return the units a second, by the median."""
    return 1 / statistics.median(times)


def speed(times: list[float], unit: str) -> str:
    """Return the units a second as text."""
    return f"{rate(times):,.0f} {unit}/s"


def peak(setting: Setting, work: Callable[[], object]) -> str:
    """Return the gigabytes that torch held at most on the GPU while it worked, as text; empty without a GPU."""
    import torch

    if not setting.on_gpu:
        return ""
    torch.cuda.reset_peak_memory_stats(setting.device)
    work()
    return f"{torch.cuda.max_memory_allocated(setting.device) / 1e9:.1f} GB"


def free_memory() -> None:
    """Give back what torch keeps of a GPU for later."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
