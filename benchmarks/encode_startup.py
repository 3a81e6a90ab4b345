"""From the start of a process to its first vector, with everything in the disk cache.

    python benchmarks/encode_startup.py [--runs 7]

`sentcli encode` of one line with MiniLM (its export made before) against a script with sentence-transformers on the
same weights. Claim: at most 0.8 s.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from common import machine, seconds

from sentcli.zoo import resolve

PEER = """
from sentence_transformers import SentenceTransformer
SentenceTransformer({folder!r}, device="cpu").encode(["A man is playing a guitar."])
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=7)
    runs = parser.parse_args().runs
    print(machine())
    with tempfile.TemporaryDirectory() as name:
        line = Path(name) / "line.txt"
        line.write_text("A man is playing a guitar.\n")
        ours = [sys.executable, "-m", "sentcli", "encode", line, "-o", "-", "-m", "minilm", "-q"]
        peer = [sys.executable, "-c", PEER.format(folder=str(resolve("minilm")[0]))]

        def run(command: list[object]) -> None:
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        run(ours), run(peer)
        pairs = [(seconds(lambda: run(ours)), seconds(lambda: run(peer))) for _ in range(runs)]
    mine, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    print(f"sentcli encode: {mine:.2f} s, sentence-transformers: {theirs:.2f} s (medians of {runs})")


if __name__ == "__main__":
    main()
