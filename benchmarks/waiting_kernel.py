"""How threads that wait by spinning slow training down in a Jupyter kernel; see waiting.py for processes of their own.

    pip install jupyter_client ipykernel
    python benchmarks/waiting_kernel.py         # let nothing else run

Each run is a kernel of its own. torch's own way of waiting is that of a kernel that has not imported sentcli first,
whose spin count is given here as GOMP_SPINCOUNT, its default. Prints sentences a second.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time

from common import data_folder, machine
from jupyter_client.manager import start_new_kernel
from waiting import BUSY, NAMES

WAYS = {"torch's own": {"GOMP_SPINCOUNT": "300000"}, "as sentcli sets it": {}}
ROUNDS = 3
CODE = """
import sentcli
result = sentcli.train("{folder}/m", method="simcse", model="sentcli-bert-mini", data="{texts}", batch_size=8,
                       max_steps=20, overwrite=True, quiet=True)
print("speed", result.to_dict()["results"]["sentences_per_second"])
"""


def speed(code: str, ways: dict[str, str]) -> float:
    """Run code in a new kernel, and return the speed that it prints."""
    rest = {name: value for name, value in os.environ.items() if name not in NAMES}
    manager, client = start_new_kernel(env={**rest, **ways})
    printed: list[str] = []

    def keep(message: dict) -> None:
        printed.append(message["content"].get("text", ""))

    try:
        client.execute_interactive(code, timeout=600, output_hook=keep)
    finally:
        manager.shutdown_kernel(now=True)
    return next(float(line.split()[1]) for text in printed for line in text.splitlines() if line.startswith("speed"))


def main() -> None:
    """Print the median speed of each way of waiting, alone and beside a process with two busy threads."""
    print(machine())
    texts = data_folder() / "corpus" / "wiki.txt"
    with tempfile.TemporaryDirectory() as folder:
        code = CODE.format(folder=folder, texts=texts)
        for beside in (False, True):
            other = subprocess.Popen([sys.executable, "-c", BUSY]) if beside else None
            time.sleep(5 * beside)
            try:
                speeds = {name: [speed(code, way) for _ in range(ROUNDS)] for name, way in WAYS.items()}
            finally:
                if other is not None:
                    other.kill()
            where = "beside a busy program" if beside else "alone"
            for name, found in speeds.items():
                print(f"{where:<24}{name:<20}{statistics.median(found):8.1f}  {sorted(found)}", flush=True)


if __name__ == "__main__":
    main()
