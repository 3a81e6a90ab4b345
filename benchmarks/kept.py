"""What an update keeps against making it anew: graphs and counts of tokens; and training without own kernels.

    SENTCLI_DATA=... python benchmarks/kept.py graph [--rows 100000] [--dimensions 64] [--share 0.01] [--runs 3]
    SENTCLI_DATA=... python benchmarks/kept.py tokens [--rows 100000] [--share 0.01]
    SENTCLI_DATA=... python benchmarks/kept.py training [--steps 8] [--precision bf16] [--triplets] [--dropout 0]

The first two run `sentcli index ROWS -o DIRECTORY --update`, in turn as it is and with one function replaced by the
simple way: the graph is built anew, the tokens of all texts are counted. Each run is a process of its own and begins
with the same directory, the share of whose texts has changed. `command` is the processor time of the process, which
starts Python, loads the model and writes the directory anew; `step` is that of the part of it that keeps something.
Rows are those of `pipeline.py`; the model is a table (`train --method bag-of-words`), whose vectors cost next to
nothing. `results` has what both sides say of recall and counts.

`training` is the loop of `train_speed.py` in one process, with all of `sentcli/model/kernels.py` and without its parts.
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from common import machine
from pipeline import processor_time, texts
from places import write

SENTCLI = [sys.executable, "-m", "sentcli"]
INDEXES = {"graph": "hnsw", "tokens": "flat"}


def main() -> None:
    """Print both sides of a case; with ``--as`` in front, run one of them."""
    if sys.argv[1:2] == ["--as"]:
        side, case, *command = sys.argv[2:]
        update(case, side, command)
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=(*INDEXES, "training"))
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--dimensions", type=int, default=64)
    parser.add_argument("--share", type=float, default=0.01, help="of the texts that change")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--triplets", action="store_true")
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--dropout", type=float, help="of the training; that of the model if left out")
    options = parser.parse_args()
    print(machine())
    if options.case == "training":
        train(options)
        return
    with tempfile.TemporaryDirectory() as name:
        measure(options, Path(name))


def measure(options: argparse.Namespace, folder: Path) -> None:
    """Print the medians of updates of a directory."""
    before = texts(options.rows)
    after = list(before)
    for number in range(0, options.rows, round(1 / options.share)):
        after[number] = f"{before[number]} and {number}"
    rows, directory, model = folder / "rows.jsonl", folder / "directory", folder / "model"
    (folder / "train.txt").write_text("\n".join(before[:10_000]), "utf-8")
    dimensions = ["--set", f"dimensions={options.dimensions}"]
    train = [*SENTCLI, "train", "--method", "bag-of-words", *dimensions, "-m", "minilm", "-q"]
    processor_time([*train, "--data", folder / "train.txt", "-o", model])
    write(rows, before)
    index = ["index", rows, "-o", directory, "-m", model, "--type", INDEXES[options.case], "-q"]
    processor_time([*SENTCLI, *index])
    directory.rename(folder / "before")
    write(rows, after)
    taken: dict[str, list[tuple[float, float, float]]] = {"kept": [], "simple": []}
    speeds: dict[str, list[float]] = {"kept": [], "simple": []}
    results = {}
    for _ in range(options.runs):
        for side, times in taken.items():
            shutil.rmtree(directory, ignore_errors=True)
            shutil.copytree(folder / "before", directory)
            command = [sys.executable, __file__, "--as", side, options.case]
            whole, printed = processor_time([*command, *index, "--update", "--json", folder / "results.json"])
            step, kilobytes = map(float, printed.split()[-2:])
            times.append((whole, step, kilobytes / 1024))
            results[side] = json.loads((folder / "results.json").read_text())["results"]
            if options.case == "graph":
                speeds[side].append(results[side]["recall"]["chosen"]["queries_per_second"])
            results[side]["tokens of the directory"] = json.loads((directory / "manifest.json").read_text())["counts"]
    shape = f"{options.rows:,} rows, {options.dimensions} dimensions, {options.share:.0%} of the texts changed"
    print(f"{options.case}: {shape}; processor seconds, median of {options.runs}")
    for number, (part, unit) in enumerate((("command", "s"), ("step", "s"), ("memory at most", "MB"))):
        kept, simple = (statistics.median(figures[number] for figures in taken[side]) for side in taken)
        print(f"{part}: kept {kept:.2f} {unit}, simple {simple:.2f} {unit}, ratio {simple / kept:.2f}", flush=True)
    if options.case == "graph":
        kept, simple = (statistics.median(speeds[side]) for side in taken)
        print(f"searches: kept {kept:,.0f} queries/s, simple {simple:,.0f} queries/s, ratio {kept / simple:.2f}")
    for side, found in results.items():
        print(f"results, {side}: {json.dumps(said(found))}")


def said(results: dict) -> dict:
    """Return what results say about the equality of both sides."""
    chosen = (results.get("recall") or {}).get("chosen")
    names = ("rows", "rows_added", "dead_nodes", "tokens of the directory")
    return {"chosen": chosen, **{name: results[name] for name in names if name in results}}


def update(case: str, side: str, command: list[str]) -> None:
    """Run a command of sentcli in this process, and print the processor time of the step of the case."""
    from sentcli.cli import main as run
    from sentcli.search import index
    from sentcli.stores.directory import texts as stored

    seconds: list[float] = []
    if side == "simple" and case == "graph":
        index.with_kept_graph = lambda manifest, *_: manifest
    if side == "simple" and case == "tokens":
        init = stored._ShardTokens.__init__
        stored._ShardTokens.__init__ = lambda self, texts, number: init(self, texts, sys.maxsize)
    place, name = {
        "graph": (index._IndexBuild, "begin"),
        "tokens": (stored._ShardTokens, "total"),
    }[case]
    setattr(place, name, timed(getattr(place, name), seconds))
    if case == "tokens":
        stored._ShardTokens.add = timed(stored._ShardTokens.add, seconds)
        stored._ShardTokens.__init__ = timed(stored._ShardTokens.__init__, seconds)
    sys.argv = ["sentcli", *command]
    try:
        run()
    finally:
        print(sum(seconds), kilobytes_at_most())


def kilobytes_at_most() -> int:
    """Return the peak of the memory of this process; that of `resource` is at least its parent's."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    return 0


def timed(work: Callable, seconds: list[float]) -> Callable:
    """Return a function that also adds its processor time to a list."""

    def measured(*arguments, **options):
        began = time.process_time()
        try:
            return work(*arguments, **options)
        finally:
            seconds.append(time.process_time() - began)

    return measured


def train(options: argparse.Namespace) -> None:
    """Print the processor time of a training with own kernels, without some of them, and with torch's alone."""
    from torch.nn import functional
    from train_speed import BATCH, Ours, Setup, quora, wiki

    from sentcli.model import kernels

    own = dict(kernels.REPLACED)
    without = {
        "kept": (),
        "torch's dropout": (functional.dropout,),
        "torch's attention": (functional.scaled_dot_product_attention,),
        "simple": tuple(own),
    }
    count = BATCH * options.steps
    columns = quora(count) if options.triplets else [wiki(count)]
    side = Ours(columns, Setup(options.model, precision=options.precision, dropout=options.dropout))
    taken: dict[str, list[float]] = {name: [] for name in without}
    side()
    for _ in range(options.runs):
        for name, times in taken.items():
            kernels.REPLACED.clear()
            kernels.REPLACED.update({function: ours for function, ours in own.items() if function not in without[name]})
            began = time.process_time()
            side()
            times.append(time.process_time() - began)
    medians = {name: statistics.median(times) for name, times in taken.items()}
    what = "triplets" if options.triplets else "sentences"
    print(f"training: {options.model}, {options.steps} steps of {BATCH} {what}, {options.precision}; processor seconds")
    for name, seconds in medians.items():
        print(f"{name}: {seconds:.2f} s, ratio {seconds / medians['kept']:.2f}", flush=True)


if __name__ == "__main__":
    main()
