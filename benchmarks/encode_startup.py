"""The start of a process, with everything in the disk cache: to its first vector, and to its help.

    python benchmarks/encode_startup.py [--runs 7]

`sentcli encode` of one line with MiniLM: from a file by its name (whose export was made before), and from a pipe by the
folder of an export. Against them: sentence-transformers on the same weights; and the barest script that there can be,
which imports NumPy, tokenizers and onnxruntime, tokenises one sentence, opens a session over the same export with its
defaults and runs it, and neither reads a configuration nor checks, normalises or prints anything. `sentcli --help`
against a script that imports typer and what rich prints a help with. `floor` is the bare script and these imports
together, less the start of Python, which both have.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from common import machine, seconds

import sentcli
from sentcli.zoo import resolve

PEER = """
from sentence_transformers import SentenceTransformer
SentenceTransformer({folder!r}, device="cpu").encode(["A man is playing a guitar."])
"""
BARE = """
import numpy as np, onnxruntime
from tokenizers import Tokenizer
encoding = Tokenizer.from_file({folder!r} + "/tokenizer.json").encode("A man is playing a guitar.")
session = onnxruntime.InferenceSession({onnx!r})
inputs = {{"input_ids": encoding.ids, "attention_mask": encoding.attention_mask, "token_type_ids": encoding.type_ids}}
session.run(None, {{each.name: np.array([inputs[each.name]]) for each in session.get_inputs()}})
"""
HELP = "import typer, typer.rich_utils, rich.console, rich.table"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=7)
    runs = parser.parse_args().runs
    print(machine())
    folder = str(resolve("minilm")[0])
    with tempfile.TemporaryDirectory() as name:
        line, export = Path(name) / "line.txt", Path(name) / "export"
        line.write_text("A man is playing a guitar.\n")
        sentcli.export("minilm", output=export, quiet=True)
        sentcli_encode = [sys.executable, "-m", "sentcli", "encode"]
        commands = {
            "encode FILE -m minilm": [*sentcli_encode, line, "-o", "-", "-m", "minilm", "-q"],
            "encode - -m EXPORT": [*sentcli_encode, "-", "-o", "-", "-m", export],
            "sentence-transformers": [sys.executable, "-c", PEER.format(folder=folder)],
            "tokenizers and onnxruntime": [
                sys.executable,
                "-c",
                BARE.format(folder=folder, onnx=str(export / "model.onnx")),
            ],
            "sentcli --help": [sys.executable, "-m", "sentcli", "--help"],
            "typer and rich": [sys.executable, "-c", HELP],
            "python": [sys.executable, "-c", "pass"],
        }
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}

        def run(command: list[object]) -> None:
            streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            subprocess.run(command, check=True, env=environment, input=line.read_bytes(), **streams)

        for command in commands.values():
            run(command)
        times = {name: [] for name in commands}
        for _ in range(runs):
            for name, command in commands.items():
                times[name].append(seconds(lambda command=command: run(command)))
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, median in medians.items():
        print(f"{name}: {median:.2f} s (median of {runs})")
    medians["floor"] = medians["tokenizers and onnxruntime"] + medians["typer and rich"] - medians["python"]
    for ours, theirs in (
        ("encode FILE -m minilm", "sentence-transformers"),
        ("encode FILE -m minilm", "floor"),
        ("encode - -m EXPORT", "floor"),
        ("sentcli --help", "typer and rich"),
    ):
        print(f"{ours} takes {medians[ours] / medians[theirs]:.2f} times as long as {theirs}")


if __name__ == "__main__":
    main()
