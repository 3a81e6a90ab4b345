"""``python -m tests.wheel``: the wheel in an environment without a checkout, from no extra to those of the README.

The commands that need no extra work; each of the others says in one line which extra it needs; the first commands of
the README do what they say; a program of a user runs, and mypy finds nothing wrong in it. ``--sizes`` prints instead
what each extra adds, for docs/install.md.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.versions.resolving import declared
from tests.wheel.environment import Done, Environment, build
from tests.wheel.inputs import TINY, first_commands, write_inputs

WITHOUT_EXTRAS = (
    "sentcli --version",
    f"sentcli train -q --method simcse -m sentcli-bert-mini --data texts.txt --max-steps 1 --batch-size 2 -o {TINY}",
    f"sentcli encode -q texts.txt -o texts.npy -m {TINY} --backend torch",
    f"sentcli encode -q texts.txt -o vectors -m {TINY}",
    'sentcli retrieve -q --corpus vectors --query "a cat" --json hits.json',
    "sentcli doctor --json doctor.json",
)
BESIDE_CPU = (
    "python -m pip check",
    "sentcli doctor --json doctor.json",
    f"sentcli export -q -m {TINY} -o exported",
)
NEEDS = {
    "sentcli export -q -m tiny -o exported": "cpu",
    "sentcli index -q vectors --type hnsw": "cpu",
    "sentcli encode -q texts.txt -o no.npy -m tiny --backend onnx": "cpu",
    "sentcli retrieve -q --corpus texts.txt --query cat --search bm25": "cpu",
    'sentcli retrieve -q --corpus vectors --query cat --where "id = 1"': "cpu",
    "sentcli encode -q texts.txt -o no.npy -m minilm": "minilm",
    "sentcli encode -q texts.txt -o no.npy -m adapter": "lora",
    "sentcli encode -q texts.txt -o no -m tiny --ray local": "cluster",
    "sentcli index -q texts.txt --to milvus:no.db --collection c -m nowhere": "milvus",
    "sentcli index -q texts.txt --to lance:no --collection c -m nowhere": "lance",
    "sentcli index -q texts.txt --to postgresql://nobody@127.0.0.1/no --collection c -m nowhere": "postgres",
    "sentcli encode -q s3://bucket/texts.csv -o no.npy -m tiny": "remote",
    "sentcli encode -q gs://bucket/texts.csv -o no.npy -m tiny": "remote",
    "sentcli encode -q az://bucket/texts.csv -o no.npy -m tiny": "remote",
    "sentcli encode -q texts.xlsx -o no.npy -m tiny": "sheets",
    "sentcli analyze attention -q --trees texts.conllu -m tiny -o no": "trees",
    "sentcli train -q --method simcse -m tiny --data texts.txt --batch-size 2 -o no --log-to tensorboard": "track",
    "sentcli train -q --method simcse -m tiny --data texts.txt --batch-size 2 -o no --log-to wandb": "track",
}
"""Commands that need an extra, which their error names."""
NEEDS_BESIDE_CPU = {
    "sentcli encode -q texts.txt -o no.npy -m tiny --backend openvino": "openvino",
    "sentcli export -q -m tiny -o no --precision int8 --runtime openvino": "openvino",
}
"""The same with what the extra ``cpu`` brings."""
NO_COMMAND = {"dev", "docs", "gpu"}
"""The extras of contributors, and the one that has what ``cpu`` has."""
NEVER_INSIDE = {"tests", "benchmarks", "docs", "demo", "conftest.py"}
ALWAYS_INSIDE = ("sentcli/py.typed", "sentcli/__init__.pyi", "sentcli/_models/encoders.toml")


def main() -> None:
    """Try the wheel, or measure its extras; the exit code is 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", action="store_true", help="print megabytes and seconds of each extra")
    options = parser.parse_args()
    began = time.perf_counter()
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="sentcli-wheel-") as folder:
        if options.sizes:
            print_sizes(Path(folder))
        else:
            failures = tried(Path(folder))
    for failure in failures:
        print(failure)
    print(f"wheel: {len(failures)} failures, {time.perf_counter() - began:.0f} s")
    sys.exit(1 if failures else 0)


def tried(folder: Path) -> list[str]:
    """Return what is wrong with the wheel, in a folder for everything that is made."""
    work = folder / "work"
    write_inputs(work)
    wheel = build(work / "dist")
    failures = wrong_contents(wheel)
    environment = Environment(folder / "environment", work)
    environment.install("torch")
    environment.install(wheel)
    failures += failed(environment, WITHOUT_EXTRAS)
    failures += wrong_first_hit(work / "hits.json")
    failures += wrongly_complete(work / "doctor.json", set())
    failures += unnamed_extras(environment, NEEDS)
    untried = declared().keys() - NO_COMMAND - {"", *NEEDS.values(), *NEEDS_BESIDE_CPU.values()}
    failures += [f"no command is tried without the extra {extra}" for extra in sorted(untried)]
    environment.install(wheel, "sentcli[minilm]")
    failures += failed(environment, ["sentcli encode -q texts.txt -o minilm.npy -m minilm"])
    installation, *commands = first_commands()
    environment.install_as(installation)
    failures += failed(environment, commands)
    failures += failed(environment, BESIDE_CPU)
    failures += wrongly_complete(work / "doctor.json", {"cpu", "minilm"})
    failures += unnamed_extras(environment, NEEDS_BESIDE_CPU)
    mypy = f"{sys.executable} -m mypy --strict --python-executable {environment.python} project.py"
    failures += failed(environment, ["python project.py", mypy], at_once=2)
    return failures


def wrong_contents(wheel: Path) -> list[str]:
    """Return what a wheel lacks, and what should not be in it."""
    names = zipfile.ZipFile(wheel).namelist()
    failures = [f"{wheel.name} has no {name}" for name in ALWAYS_INSIDE if name not in names]
    for name in names:
        parts = Path(name).parts
        if NEVER_INSIDE.intersection(parts) or parts[-1].startswith("test_"):
            failures.append(f"{wheel.name} has {name}")
    return failures


def failed(environment: Environment, commands: Sequence[str], at_once: int = 1) -> list[str]:
    """Run commands in their order, and return those that failed, with what they said."""
    failures = []
    for command, done in outcomes(environment, commands, at_once):
        if done.returncode != 0:
            failures.append(f"{command} ended with code {done.returncode}:\n{done.stdout}{done.stderr}")
    return failures


def outcomes(environment: Environment, commands: Iterable[str], at_once: int) -> Iterator[tuple[str, Done]]:
    """Yield each command with what it said; so many run at once."""
    with ThreadPoolExecutor(at_once) as pool:
        yield from zip(commands, pool.map(environment.run, commands), strict=True)


def wrong_first_hit(answer: Path) -> list[str]:
    """Return what is wrong with the JSON of an exact search."""
    hits = json.loads(answer.read_text("utf-8"))["results"][0]["hits"]
    if len(hits) == 3:
        return []
    return [f"an exact search of three texts found {len(hits)}"]


def wrongly_complete(answer: Path, expected: set[str]) -> list[str]:
    """Return what is wrong with the extras that ``doctor`` calls complete."""
    extras = json.loads(answer.read_text("utf-8"))["results"]["extras"]
    complete = {name for name, state in extras.items() if not state.startswith("missing ")}
    if complete == expected:
        return []
    return [f"sentcli doctor calls the extras {sorted(complete)} complete instead of {sorted(expected)}"]


def unnamed_extras(environment: Environment, needs: dict[str, str]) -> list[str]:
    """Run commands that lack an extra, two at a time, and return those that do not say so in one line."""
    failures = []
    for command, done in outcomes(environment, needs, at_once=2):
        extra, lines = needs[command], done.stderr.splitlines()
        named = len(lines) == 1 and lines[0].endswith(f": pip install 'sentcli[{extra}]'")
        if done.returncode != 1 or not named:
            said = f"ended with code {done.returncode} and said:\n{done.stderr[-2000:]}"
            failures.append(f"{command} should name the extra {extra} in one line, but {said}")
    return failures


def print_sizes(folder: Path) -> None:
    """Install each extra into an environment of its own over the one without extras, and print what it adds."""
    work = folder / "work"
    work.mkdir()
    wheel = build(work / "dist")
    core = Environment(folder / "core", work)
    with_pip = core.megabytes()
    rows = [("torch", core.install("torch"), core.megabytes() - with_pip)]
    with_torch = core.megabytes()
    rows.append(("no extra", core.install(wheel), core.megabytes() - with_torch))
    for extra in sorted(declared().keys() - {"", "dev", "gpu"}):
        environment = Environment(folder / extra, work, below=core)
        rows.append((extra, environment.install(wheel, f"sentcli[{extra}]"), environment.megabytes()))
        shutil.rmtree(environment.folder)
    print("\n| extra | MB | s |\n|---|---:|---:|")
    for name, seconds, megabytes in rows:
        print(f"| {name} | {megabytes:,.1f} | {seconds:.0f} |")


if __name__ == "__main__":
    main()
