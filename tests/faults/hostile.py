"""The hostile sample: what share of commands ends badly when something hostile is done to them.

    python -m tests.faults.hostile --seed 7 --cases 600 [--kind lance] [--only 13]

A case is a small real scene, one hostile thing (`hostile_things.py`) and one command (`hostile_scenes.py`), in a
process of its own. It is drawn by the seed, its kind and its number, so that `--seed`, `--kind` and `--only` make it
again. Failures are counted by kind, and each is printed with what makes it again.
"""

import argparse
import hashlib
import json
import math
import os
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

SECONDS, OF_ADAPT = 40, 120
MEMORY = 14 << 30
"""Bytes of addresses: a process that has loaded torch and its neighbours has six."""
SEVERAL_WORKS = {"adapt": 0.2, "export": 0.5, "milvus": 0.8}
"""The share of cases of a kind whose commands take long, or else 1."""
PARTIAL = re.compile(r"\.partial|\.tmp|\.building|-next|sentcli_next|\.new$")
OURS = re.compile(r"\.lock$|\.lance/|/\.cache|\.db/|\.db\.|__pycache__")
"""Names in places that a library keeps as its own."""
PRELOADED = [
    "sentcli.cli.app", "sentcli.training.run", "sentcli.verbs.train_runs", "transformers.models.bert.modeling_bert",
    "onnxruntime", "tokenizers", "pyarrow.parquet", "pyarrow.dataset", "scipy.stats", "sklearn.linear_model", "pandas",
    "huggingface_hub", "rich.progress", "typer.rich_utils", "bm25s", "safetensors.torch", "matplotlib.figure", "faiss",
    "filelock",
]  # fmt: skip


@dataclass
class Outcome:
    """How a command ended."""

    code: int | None
    said: str
    out: str
    before: dict[str, str]
    after: dict[str, str]
    numbers: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Case:
    """One case of the sample."""

    seed: int
    kind: Any
    number: int

    @cached_property
    def drawn(self) -> random.Random:
        return random.Random(f"{self.seed} {self.kind.name} {self.number}")

    @property
    def again(self) -> str:
        return f"--seed {self.seed} --kind {shlex.quote(self.kind.name)} --only {self.number}"


def tree(folder: Path) -> dict[str, str]:
    """Return what is in a folder: the sum of each file, and what is none."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            found[name] = "other"
    return found


def numbers_below(value: Any) -> Iterator[float]:
    """Yield the numbers of a result, without those of time, and of samples, which are drawn by the name of a set."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if not re.search("second|bytes|time|date|elapsed|interval", str(key)):
                yield from numbers_below(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from numbers_below(inner)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield float(value)


def numbers_of(path: Path) -> list[float]:
    """Return the numbers that a command has written, in one order whatever its files are called."""
    import numpy as np
    import pyarrow.parquet as pq

    if path.is_dir():
        parts = [numbers_of(file) for file in sorted(path.glob("vectors-*.npy"))]
        return [number for part in parts for number in part]
    if not path.is_file():
        return []
    match path.suffix:
        case ".npy":
            return [float(x) for x in np.load(path).astype(float).ravel()]
        case ".parquet":
            return [float(x) for row in pq.read_table(path)["embedding"].to_pylist() for x in row]
        case ".json":
            content = json.loads(path.read_text())
            parts = content if isinstance(content, list) else [content]
            return sorted(n for part in parts for n in numbers_below(part.get("results", {})))
        case ".jsonl":
            lines = path.read_text().splitlines()
            return sorted(n for line in lines for n in numbers_below(json.loads(line)))
    return []


def close(first: list[float], second: list[float]) -> bool:
    """Tell whether two results are equal but for rounding."""
    same_length = len(first) == len(second)
    return same_length and all(
        math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-4) for a, b in zip(first, second, strict=True)
    )


def lines_of(said: str) -> Counter:
    """Return what a command says, without its numbers."""
    return Counter(re.sub(r"[\d.,]+", "N", line.strip()) for line in said.splitlines() if line.strip())


class Sample:
    """The scenes in a folder, and the clean run of each command."""

    def __init__(self, folder: Path) -> None:
        from tests.faults import hostile_scenes
        from tests.forked import CONTEXT
        from tests.hub import serve

        self.folder = folder
        self.hub, self.server = serve()
        os.environ.update(hostile_scenes.surroundings(folder, self.hub))
        for name in ("hf", "cache", "home", "tmp"):
            (folder / name).mkdir()
        CONTEXT.set_forkserver_preload(PRELOADED)
        hostile_scenes.write_scene(folder / "good", self.hub)
        self.write_odd(folder / "good")
        hostile_scenes.call(
            ["encode", "text.txt", "-m", "acme/mini@v1", "-o", folder / "tmp" / "x.npy"], folder / "good"
        )
        hostile_scenes.call(["encode", "text.txt", "-m", "acme/mini", "-o", folder / "tmp" / "y.npy"], folder / "good")
        for name in ("hf", "cache"):
            shutil.copytree(folder / name, folder / f"good-{name}", symlinks=True)
        self.clean: dict[str, tuple[Outcome, float]] = {}

    def write_odd(self, folder: Path) -> None:
        """Write what others have put beside the files of the scene."""
        (folder / "stranger").mkdir()
        (folder / "stranger" / "file.txt").write_text("of somebody else\n")
        (folder / "empty").mkdir()
        (folder / "empty.txt").touch()
        (folder / "loop").symlink_to("loop")
        (folder / "dangling").symlink_to("nothing-there")
        (folder / "folder-link").symlink_to("stranger")

    def enter(self) -> Path:
        """Return a fresh copy of the scene, with the caches as they were."""
        case = self.folder / "case"
        for path in (case, *(self.folder / name for name in ("hf", "cache", "tmp", "home"))):
            shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self.folder / "good", case / "in" / "here", symlinks=True)
        for name in ("hf", "cache"):
            shutil.copytree(self.folder / f"good-{name}", self.folder / name, symlinks=True)
        (case / "in" / "hf").symlink_to(self.folder / "hf")
        (case / "in" / "neighbour.txt").write_text("of somebody else\n")
        (case / "neighbour.txt").write_text("of somebody else\n")
        for name in ("tmp", "home"):
            (self.folder / name).mkdir()
        return case / "in" / "here"

    def call(self, words, here: Path, limit: float, env=None, largest=None, killed_after=None) -> Outcome:
        """Run a command in the folder of the scene."""
        from tests.forked import Forked

        before = tree(here.parent.parent)
        limits = {resource.RLIMIT_AS: MEMORY}
        if largest is not None:
            limits[resource.RLIMIT_FSIZE] = largest
        process = Forked("sentcli", *words, cwd=here, env=env, limits=limits)
        if killed_after is not None:
            process._process.join(killed_after)
            if process.returncode is None:
                process.send_signal(signal.SIGKILL)
        try:
            out, said = process.communicate(limit)
        except subprocess.TimeoutExpired:
            process._process.join()
            return Outcome(None, "", "", before, tree(here.parent.parent))
        except UnicodeDecodeError as error:
            return Outcome(process.returncode, f"not UTF-8: {error}", "", before, tree(here.parent.parent))
        except FileNotFoundError:  # it was killed before it began
            out = said = ""
        return Outcome(process.returncode, said, out, before, tree(here.parent.parent))

    def clean_run(self, command) -> tuple[Outcome, float]:
        """Return how a command ends when nothing is done to it, and its seconds."""
        if command.words not in self.clean:
            here = self.enter()
            began = time.monotonic()
            outcome = self.call(command.words.split(), here, OF_ADAPT)
            seconds = time.monotonic() - began
            assert outcome.code in (0, 3), (command.words, outcome.said)
            outcome.numbers = [n for name in command.makes for n in numbers_of(here / name)]
            self.clean[command.words] = outcome, seconds
        return self.clean[command.words]

    def run(self, case: Case) -> tuple[Any, Any, Outcome, list[str]]:
        """Return the command of a case, what was done, how it ended, and what is wrong with that."""
        from tests.faults.hostile_things import draw_thing, takes

        command = case.drawn.choice(case.kind.commands)
        clean, seconds = self.clean_run(command)
        here = self.enter()
        thing = draw_thing(command, here, case.drawn)
        thing.spoil(here)
        words = thing.words
        limit = OF_ADAPT if case.kind.name == "adapt" else SECONDS
        if thing.killed is not None:
            outcome = self.call(words, here, limit, killed_after=thing.killed * seconds)
            if outcome.code != 0:
                more = command.again.split()
                made = [name for name in command.makes if name not in command.reads and (here / name).exists()]
                if not more and made and takes(words, "--overwrite"):
                    more = ["--overwrite"]  # it was killed when it was done
                more = [word for word in more if word not in words]
                outcome = self.call((*words, *more), here, limit)
        else:
            outcome = self.call(words, here, limit, thing.env, thing.largest)
        makes = thing.makes if thing.makes and not thing.name.startswith("hostile_option") else command.makes
        outcome.numbers = [n for name in makes for n in self.numbers(here / name)]
        return command, thing, outcome, self.verdict(case, command, thing, outcome, clean)

    def numbers(self, path: Path) -> list[float]:
        """Return the numbers of a file, or none if it is no such file."""
        try:
            return numbers_of(path)
        except Exception:
            return []

    def verdict(self, case: Case, command, thing, outcome: Outcome, clean: Outcome) -> list[str]:
        """Return what is wrong with the end of a case."""
        from tests.faults.hostile_things import ANY, REFUSED, SAID, SAME

        if outcome.code is None:
            return ["took too long"]
        said = outcome.said
        wrong = self.of_output(outcome)
        refused = outcome.code in (1, 2)
        if refused:
            wrong += self.of_message(thing, said)
        elif outcome.code in (0, 3):
            more = lines_of(said) - lines_of(clean.said)
            same = close(outcome.numbers, clean.numbers) and outcome.code == clean.code
            if thing.expected == REFUSED:
                wrong.append("it passed")
            elif thing.expected == SAME and not same:
                wrong.append("another result")
            elif thing.expected == SAID and not same and not more:
                wrong.append("another result in silence")
        if refused and thing.expected == SAME:
            wrong.append("it was refused")
        assert thing.expected in (ANY, REFUSED, SAID, SAME)
        return wrong + self.of_files(command, thing, outcome, refused)

    def of_output(self, outcome: Outcome) -> list[str]:
        """Return what is wrong with the exit code and with what is printed, whatever was done."""
        wrong = []
        if "Traceback" in outcome.said or "a defect of sentcli" in outcome.said:
            wrong.append("a traceback or a defect")
        if "SECRET" in outcome.said + outcome.out:
            wrong.append("a secret is printed")
        if re.search(r"\x1b\[3|\u202e", outcome.said + outcome.out):
            wrong.append("what acts on a terminal is printed")
        if outcome.code not in (0, 1, 2, 3):
            wrong.append(f"exit code {outcome.code}")
        return wrong

    def of_message(self, thing, said: str) -> list[str]:
        """Return what is wrong with the message of a refusal."""
        errors = [line for line in said.splitlines() if line.startswith("error: ")]
        usage = re.search(r"[─-]\s*Error\s*[─-]|Usage:", said)
        if not usage and len(errors) != 1:
            return [f"{len(errors)} errors"]
        shown = re.sub(r"\s*[│╭╰─╮╯]\s*", " ", said) if usage else "\n".join(said.splitlines()[-4:])
        flat = re.sub(r"\s+", " ", shown)
        named = not thing.names or any(re.sub(r"\s+", " ", name)[:40] in flat for name in thing.names if name)
        wrong = [] if named else ["the error names nothing of it"]
        if re.search(r"MemoryError|bad_alloc", said):
            wrong.append("memory")
        return wrong

    def of_files(self, command, thing, outcome: Outcome, refused: bool) -> list[str]:
        """Return what is wrong with the files that are there afterwards."""
        before, after = outcome.before, outcome.after
        makes = {os.path.normpath(f"in/here/{name}") for name in (*(thing.makes or ()), *command.makes)}
        keeps = {os.path.normpath(f"in/here/{name}") for name in command.keeps} | makes & before.keys()
        if len(command.makes) > 1 and thing.largest is not None:
            keeps |= makes  # each of several outputs is whole or not there
        keeps |= {str(Path(place).with_name(f".{Path(place).name}-next")) for place in keeps}
        stay = thing.makes and "stranger's folder" in thing.name
        if stay:
            makes = {os.path.normpath(f"in/here/{name}") for name in thing.makes}
            keeps = set()

        def within(name: str, places: set[str]) -> bool:
            return any(name == place or name.startswith(f"{place}/") for place in places)

        wrong = []
        names = {*before, *after}
        lost = [n for n in names if n in before and before[n] != after.get(n) and not within(n, makes)]
        lost = [n for n in lost if not OURS.search(n) and not PARTIAL.search(n)]  # what was killed had left that
        if lost:
            wrong.append(f"changed or deleted: {sorted(lost)[:4]}")
        new = [n for n in after if n not in before and not OURS.search(n)]
        hidden = [n for n in new if PARTIAL.search(n) and not (refused and within(n, keeps))]
        if hidden:
            wrong.append(f"left behind: {sorted(hidden)[:4]}")
        left = [n for n in new if refused and not within(n, keeps) and n not in hidden]
        if left:
            wrong.append(f"made though it was refused: {sorted(left)[:4]}")
        return wrong


def interval(failed: int, count: int) -> tuple[float, float]:
    """Return Wilson's interval of a share at 95 %."""
    z = 1.959964
    share = failed / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return max(middle - half, 0), middle + half


def cases_of(seed: int, count: int, kind: str | None, only: int | None) -> list[Case]:
    """Return the cases of a sample: as many of each kind, but for those that take long."""
    from tests.faults.hostile_scenes import KINDS

    kinds = [KINDS[kind]] if kind in KINDS else [k for k in KINDS.values() if kind in (None, "new" if k.new else "old")]
    if only is not None:
        return [Case(seed, kinds[0], only)]
    weights = [SEVERAL_WORKS.get(k.name, 1) for k in kinds]
    each = count / sum(weights)
    numbered = [
        (n, Case(seed, k, n)) for k, weight in zip(kinds, weights, strict=True) for n in range(round(each * weight))
    ]
    return [case for _, case in sorted(numbered, key=lambda pair: pair[0])]  # stable: a kind after the other


def show(case: Case, command, thing, outcome: Outcome, wrong: list[str]) -> None:
    """Print a failure and what makes it again."""
    print(f"\n{case.kind.name}: {'; '.join(wrong)}  [{case.again}]")
    print(f"  done: {thing.name} (expected: {thing.expected})")
    print(f"  command: {shlex.join(thing.words)[:400]}")
    print(f"  code {outcome.code}: {outcome.said[-900:].strip()}", flush=True)


def main() -> None:
    """Draw a sample, run it, and print what failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--kind", help="a kind, or old or new")
    parser.add_argument("--only", type=int, help="the number of the one case of a kind that is made")
    parser.add_argument("--minutes", type=float, default=math.inf, help="when no further case is begun")
    parser.add_argument("--keep", type=Path, help="a folder in which the last case is left")
    arguments = parser.parse_args()
    counts: Counter = Counter()
    failed: Counter = Counter()
    codes: Counter = Counter()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sentcli-hostile-") as folder:
        sample = Sample(Path(folder))
        for case in cases_of(arguments.seed, arguments.cases, arguments.kind, arguments.only):
            if time.monotonic() - began > 60 * arguments.minutes:
                break
            command, thing, outcome, wrong = sample.run(case)
            counts[case.kind] += 1
            codes[outcome.code] += 1
            failed[case.kind] += bool(wrong)
            if wrong or arguments.only is not None:
                show(case, command, thing, outcome, wrong)
        if arguments.keep:
            shutil.copytree(sample.folder / "case", arguments.keep, symlinks=True)
    print(f"\n{'kind':20} {'cases':>6} {'failed':>6}")
    for kind, count in counts.items():
        print(f"{kind.name:20} {count:6} {failed[kind]:6}")
    for age in (False, True):
        count = sum(number for kind, number in counts.items() if kind.new == age)
        bad = sum(number for kind, number in failed.items() if kind.new == age)
        if count:
            low, high = interval(bad, count)
            print(f"{'new' if age else 'old'}: {bad} of {count}, {bad / count:.2%} ({low:.2%} to {high:.2%})")
    print(f"exit codes {dict(codes)}, {time.monotonic() - began:.0f} s")
    sys.exit(bool(failed.total()))


if __name__ == "__main__":
    main()
