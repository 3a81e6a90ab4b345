"""How threads that wait by spinning slow training and encoding down, on an idle machine and beside a busy process.

    python benchmarks/waiting.py                # runs each setting in turn, three rounds; let nothing else run

The threads of torch's products (OpenMP) spin for some milliseconds before they sleep. Beside another busy process they
take the core that the last thread of a product needs. Each figure is the median of the rounds, in sentences a second.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from common import data_folder, machine

SETTINGS = {
    "torch's own": {"GOMP_SPINCOUNT": "300000"},
    "as sentcli sets it": {},
    "passive": {"OMP_WAIT_POLICY": "passive"},
    "one thread": {"OMP_NUM_THREADS": "1"},
}
"""The environment of each way of waiting; names of OpenMP and of its GNU library."""
NAMES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS", "KMP_BLOCKTIME")
BUSY = "import torch\na = torch.randn(700, 700)\nwhile True: a @ a"


def work(kind: str, texts: Path) -> None:
    """Do one kind of work in this process, and print its speed as JSON."""
    import time

    if kind == "train":
        import sentcli

        with tempfile.TemporaryDirectory() as folder:
            result = sentcli.train(
                method="simcse",
                model="sentcli-bert-mini",
                data=str(texts),
                output=f"{folder}/m",
                batch_size=8,
                max_steps=40,
                device="cpu",
            )
        speed = result.to_dict()["results"]["sentences_per_second"]
    else:
        from sentcli import SentenceEncoder

        encoder = SentenceEncoder.load("sentcli-bert-mini", backend=kind, device="cpu")
        sentences = texts.read_text("utf-8").splitlines()
        encoder.encode(sentences[:64])
        began = time.perf_counter()
        encoder.encode(sentences)
        speed = len(sentences) / (time.perf_counter() - began)
    print(json.dumps({"speed": speed}))


def measure(kind: str, setting: dict[str, str], texts: Path) -> float:
    """Return the speed of one kind of work in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if name not in NAMES} | setting
    call = [sys.executable, __file__, "--work", kind, "--texts", str(texts)]
    done = subprocess.run(call, env=environment, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1])["speed"])


def table(kinds: list[str], rounds: int, texts: Path) -> None:
    """Print the speed of each kind of work by each way of waiting."""
    for kind in kinds:
        speeds: dict[str, list[float]] = {name: [] for name in SETTINGS}
        for _ in range(rounds):
            for name, setting in SETTINGS.items():
                speeds[name].append(measure(kind, setting, texts))
        cells = ", ".join(f"{name} {statistics.median(found):,.0f}" for name, found in speeds.items())
        print(f"  {kind}: {cells}", flush=True)


def main() -> None:
    """Measure on the machine as it is, and then beside a process with a busy thread for each core."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--texts", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", default="train,torch,onnx,openvino")
    arguments = parser.parse_args()
    if arguments.work:
        work(arguments.work, arguments.texts)
        return
    print(machine())
    lines = (data_folder() / "corpus" / "wiki.txt").read_text("utf-8").splitlines()[:400]
    with tempfile.TemporaryDirectory() as folder:
        texts = Path(folder) / "texts.txt"
        texts.write_text("\n".join(lines) + "\n", "utf-8")
        kinds = arguments.kinds.split(",")
        print("alone, sentences a second:")
        table(kinds, arguments.rounds, texts)
        other = subprocess.Popen([sys.executable, "-c", BUSY])
        try:
            print(f"beside a process with {os.cpu_count()} busy threads:")
            table(kinds, arguments.rounds, texts)
        finally:
            other.kill()


if __name__ == "__main__":
    main()
