"""The command `encode` from a file of lines to vectors on disk, in a process of its own, against encoding in memory."""

import os
import subprocess
import sys
from pathlib import Path

from common import seconds

from gpu_parts.material import texts
from gpu_parts.sheet import Setting, Sheet, free_memory, in_turn, rate
from sentcli import SentenceEncoder


def run(setting: Setting, sheet: Sheet) -> None:
    """Add the rows of the command."""
    lines = texts(setting, setting.size(100_000, 40))
    many, one = setting.work / "many.txt", setting.work / "one.txt"
    many.write_text("\n".join(lines), "utf-8")
    one.write_text(lines[0], "utf-8")
    start = command(setting, one, setting.work / "one.npy", "fp32")
    sheet.add("encode one line, the whole command", f"{start:.1f} s")
    for precision, output in ((setting.half, setting.work / "vectors"), ("fp32", setting.work / "vectors.npy")):
        taken = command(setting, many, output, precision)
        of_memory = in_memory(setting, lines[: len(lines) // 2], precision)
        free_memory()
        share = len(lines) / taken / of_memory
        what = f"encode {len(lines):,} lines to {'.npy' if output.suffix else 'a directory'}, {precision}"
        against = f"{share:.2f} x in memory ({of_memory:,.0f} texts/s)"
        if taken > start:
            against += f", {len(lines) / (taken - start) / of_memory:.2f} without the start"
        sheet.add(what, f"{taken:.1f} s, {len(lines) / taken:,.0f} lines/s", against)
        if not output.suffix:
            sheet.cells["file to directory, x in memory"] = f"{share:.2f}"


def in_memory(setting: Setting, lines: list[str], precision: str) -> float:
    """Return the texts a second of an encoder that is there already."""
    encoder = SentenceEncoder.load(setting.model, device=setting.device, backend="torch", precision=precision)
    return rate(in_turn({"memory": (lambda: encoder.encode(lines), len(lines))}, setting.runs)["memory"])


def command(setting: Setting, source: Path, output: Path, precision: str) -> float:
    """Return the seconds of `sentcli encode`, cold: without vectors of an earlier call."""
    options = ["-m", setting.model, "--device", setting.device, "--precision", precision, "--backend", "torch", "-q"]
    words = [sys.executable, "-m", "sentcli", "encode", str(source), "-o", str(output), *options]
    environment = {**os.environ, "SENTCLI_VECTOR_CACHE_MB": "0"}
    return seconds(lambda: subprocess.run(words, check=True, env=environment, stdout=subprocess.DEVNULL))
