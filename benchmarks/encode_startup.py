"""The start of a process, with everything in the disk cache: to its first vector, and to its help.

    python benchmarks/encode_startup.py [--runs 11] [--export FOLDER] [--against CHECKOUT]

`sentcli encode` of one line with MiniLM: from a file by its name (whose export was made before), and from a pipe by the
folder of an export. Against them: sentence-transformers on the same weights; and the barest script that there can be,
which imports NumPy, tokenizers and onnxruntime, tokenises one sentence, opens a session over the same export with its
defaults and runs it, and neither reads a configuration nor checks, normalises or prints anything. `sentcli --help`
against a script that imports typer and what rich prints a help with.

The last lines set `encode -` from an export against the bare script and ``import typer, rich`` together: the sum of
both, and `floor`, which is the sum less the start of Python, that both have. Then how many modules of sentcli the
command imports, and the time that they take by themselves, without what they import (``-X importtime``, which does not
see the few that `import_module` asks for).

Args:
    --runs: how often each command runs, in turn with the others.
    --export: of another model; then only the commands that it needs run, and MiniLM is not loaded.
    --against: an older checkout, whose `encode -` runs in turn with this one's.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from common import seconds

ROOT = Path(__file__).parents[1]
TEXT = "A man is playing a guitar."
PEER = """
from sentence_transformers import SentenceTransformer
SentenceTransformer({folder!r}, device="cpu").encode(["A man is playing a guitar."])
"""
BARE = """
import numpy as np, onnxruntime
from tokenizers import Tokenizer
encoding = Tokenizer.from_file({folder!r} + "/tokenizer.json").encode("A man is playing a guitar.")
session = onnxruntime.InferenceSession({folder!r} + "/model.onnx")
inputs = {{"input_ids": encoding.ids, "attention_mask": encoding.attention_mask, "token_type_ids": encoding.type_ids}}
session.run(None, {{each.name: np.array([inputs[each.name]]) for each in session.get_inputs()}})
"""
HELP = "import typer, typer.rich_utils, rich.console, rich.table"
ENCODE = "encode - -m EXPORT"
BEFORE = "the same, older"
BARE_NAME = "tokenizers and onnxruntime"
TYPER = "import typer, rich"
PYTHON = "python"
COUNT = """
import atexit, sys
atexit.register(lambda: print("OWN", sum(name.startswith("sentcli") for name in sys.modules), file=sys.stderr))
from sentcli.cli import main
main()
"""
IMPORT = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)")


@dataclass(frozen=True)
class Command:
    """What is run, with a checkout's package."""

    words: list[object]
    checkout: Path = ROOT

    def run(self, *options: str) -> str:
        """Run it on one line from standard input, with options for Python, and return its standard error."""
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPATH"] = str(self.checkout)
        done = subprocess.run(
            [sys.executable, *options, *map(str, self.words)],
            input=f"{TEXT}\n",
            text=True,
            check=True,
            env=environment,
            cwd=tempfile.gettempdir(),  # where no package of sentcli lies
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        return done.stderr

    def own_modules(self, runs: int) -> tuple[int, float]:
        """Return how many modules of sentcli are imported, and the milliseconds that they take, the median of runs."""
        counting = Command(["-c", COUNT, *self.words[2:]], self.checkout).run()
        times = []
        for _ in range(runs):
            found = IMPORT.findall(self.run("-X", "importtime"))
            times.append(sum(int(micros) / 1000 for micros, name in found if name.split(".")[0] == "sentcli"))
        return int(counting.rpartition("OWN ")[2]), statistics.median(times)


def from_export(export: Path, older: Path | None) -> dict[str, Command]:
    """Return the commands that `encode -` from an export is compared with, and itself."""
    encode = ["-m", "sentcli", "encode", "-", "-o", "-", "-m", export]
    commands = {ENCODE: Command(encode)}
    if older is not None:
        commands[BEFORE] = Command(encode, older)
    commands[BARE_NAME] = Command(["-c", BARE.format(folder=str(export))])
    commands[TYPER] = Command(["-c", "import typer, rich"])
    commands[PYTHON] = Command(["-c", "pass"])
    return commands


def of_minilm(line: Path, folder: str) -> dict[str, Command]:
    """Return the commands that load MiniLM by its name, and those of the help."""
    return {
        "encode FILE -m minilm": Command(["-m", "sentcli", "encode", line, "-o", "-", "-m", "minilm", "-q"]),
        "sentence-transformers": Command(["-c", PEER.format(folder=folder)]),
        "sentcli --help": Command(["-m", "sentcli", "--help"]),
        "typer and rich": Command(["-c", HELP]),
    }


def measured(commands: dict[str, Command], runs: int) -> dict[str, float]:
    """Run all commands in turn after one run each, print the median seconds of each, and return them."""
    for command in commands.values():
        command.run()
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            times[name].append(seconds(command.run))
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, median in medians.items():
        print(f"{name}: {median:.3f} s (median of {runs})")
    return medians


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=11)
    parser.add_argument("--export", type=Path)
    parser.add_argument("--against", type=Path)
    options = parser.parse_args()
    pairs = []
    with tempfile.TemporaryDirectory() as name:
        export = options.export
        commands = {}
        if export is None:
            from common import machine

            import sentcli
            from sentcli.zoo import resolve

            print(machine())
            line, export = Path(name) / "line.txt", Path(name) / "export"
            line.write_text(f"{TEXT}\n")
            sentcli.export("minilm", output=export, quiet=True)
            commands = of_minilm(line, str(resolve("minilm")[0]))
            pairs += [("encode FILE -m minilm", "sentence-transformers"), ("encode FILE -m minilm", "floor")]
            pairs.append(("sentcli --help", "typer and rich"))
        commands |= from_export(export.resolve(), options.against)
        medians = measured(commands, options.runs)
        encoding = [name for name in (ENCODE, BEFORE) if name in commands]
        imported = {name: commands[name].own_modules(options.runs) for name in encoding}
    medians["sum"] = medians[BARE_NAME] + medians[TYPER]
    medians["floor"] = medians["sum"] - medians[PYTHON]
    for name in encoding:
        pairs += [(name, "sum"), (name, "floor")]
    for ours, theirs in pairs:
        print(f"{ours} takes {medians[ours] / medians[theirs]:.2f} times as long as {theirs}")
    for name, (count, milliseconds) in imported.items():
        print(f"{name} imports {count} modules of sentcli, which take {milliseconds:.0f} ms by themselves")


if __name__ == "__main__":
    main()
