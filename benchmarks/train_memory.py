"""Does the memory of training stay flat: the peak of the process after few steps and after more.

    python benchmarks/train_memory.py [--methods simcse,micse,infocse] [--steps 20,80] [--precision fp32]

Each number is of a process of its own, from MiniLM, 64 sentences of 32 tokens a step.
"""

import argparse
import os
import subprocess
import tempfile
from pathlib import Path
from shlex import quote, split

from common import data_folder, machine


def main() -> None:
    """Print a line for each method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", default="simcse,micse,infocse")
    parser.add_argument("--steps", default="20,80")
    parser.add_argument("--precision", default="fp32")
    options = parser.parse_args()
    print(machine())
    for method in options.methods.split(","):
        peaks = [f"{steps} steps {peak(method, steps, options.precision):,} MB" for steps in options.steps.split(",")]
        print(f"{method}, {options.precision}: peak after {', after '.join(peaks)}", flush=True)


def peak(method: str, steps: str, precision: str) -> int:
    """Return the peak resident set of a training in MB."""
    with tempfile.TemporaryDirectory() as folder:
        text, out = data_folder() / "corpus/wiki.txt", Path(folder) / "model"
        call = f"sentcli train --method {method} -m minilm --pooling cls --data {quote(str(text))}"
        call += " --batch-size 64 --max-length 32"
        call += f" --save-every 0 --max-steps {steps} --set precision={precision} -o {quote(str(out))}"
        process = subprocess.Popen(split(call), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        if status:
            raise SystemExit(f"{call} has failed")
    return used.ru_maxrss // 1024


if __name__ == "__main__":
    main()
