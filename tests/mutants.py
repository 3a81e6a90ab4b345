"""Whether the tests notice when the code is wrong: mutants, and the share of them that tests kill.

    pip install 'cosmic-ray>=8.4' pytest-cov
    python -m pytest -m "not slow and not deep and not gpu" -n 2 --junitxml tests.xml --cov sentcli --cov-context test
    python -m tests.mutants draw --coverage .coverage --junit tests.xml -o mutants.json
    python -m tests.mutants run mutants.json --coverage .coverage --junit tests.xml -o results.jsonl

A mutant is a line of `PACKAGES` with one change. `draw` takes lines that some test reaches inside of functions, with a
seed. `run` finds the same lines in any later state of the code by the function around them, and runs the tests that
reach them, the `--most` quickest ones: a mutant is killed if one fails. Tests that reach a line in a process of their
own are not counted.
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue

PACKAGES = ("bulk", "evaluation", "io", "model", "search")
LEFT_OUT = ("ExceptionReplacer", "RemoveDecorator", "VariableInserter", "VariableReplacer")
"""Changes that are not drawn: they make errors of any test, or need arguments."""
LONGEST = 600
"""The seconds after which the tests of a mutant count as hanging, and the mutant as killed."""
ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Mutant:
    """A line of a function, and what stands in its place."""

    path: str
    function: str
    """The name of the function in its module, with those around it."""
    before: str
    number: int
    """Which of the equal lines of the function it is."""
    after: str


def functions(tree):
    """Yield each function with its whole name, the outer ones first."""

    def within(node, names):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                inner = [*names, child.name]
                if not isinstance(child, ast.ClassDef):
                    yield ".".join(inner), child
                yield from within(child, inner)
            else:
                yield from within(child, names)

    yield from within(tree, [])


def places(source):
    """Return the function of each line inside of one, by the number of the line, without heads and annotations."""
    found = {}
    tree = ast.parse(source)
    for name, function in functions(tree):
        for statement in function.body:
            for line in range(statement.lineno, statement.end_lineno + 1):
                found[line] = name, function
    for node in ast.walk(tree):
        if isinstance(node, (ast.AnnAssign, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            last = node.end_lineno if isinstance(node, ast.AnnAssign) else node.body[0].lineno - 1
            for line in range(node.lineno, last + 1):
                found.pop(line, None)
    return found


def numbered(lines, function, line):
    """Return which of the equal lines of a function a line is."""
    return lines[function.lineno - 1 : line - 1].count(lines[line - 1])


def mutants_of(path, reached):
    """Return the mutants of a file at the lines that are reached, by the place of the change."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator, operator_names

    source = (ROOT / path).read_text("utf-8")
    lines = source.splitlines()
    inside = places(source)
    found = defaultdict(list)
    tree = get_ast(source)
    for name in sorted(operator_names()):
        if name.partition("/")[2].startswith(LEFT_OUT):
            continue
        operator = get_operator(name)()
        positions = [place for node in ast_nodes(tree) for place in operator.mutation_positions(node)]
        for occurrence, (start, _) in enumerate(positions):
            if start[0] not in inside or start[0] not in reached:
                continue
            found[start].append((operator, occurrence))

    def mutant(start, choice):
        operator, occurrence = choice
        changed = mutate_code(source, operator, occurrence).splitlines()
        differing = [i for i, (one, two) in enumerate(zip(lines, changed, strict=False)) if one != two]
        if len(changed) != len(lines) or len(differing) != 1:
            return None
        (line,) = differing
        if line + 1 not in inside:
            return None
        name, function = inside[line + 1]
        return Mutant(path, name, lines[line], numbered(lines, function, line + 1), changed[line])

    return found, mutant


def passed(junit):
    """Return the seconds of each test that passed, by its id."""
    seconds = {}
    for case in ET.parse(junit).getroot().iter("testcase"):
        if not any(child.tag in ("failure", "error", "skipped") for child in case):
            path = case.get("classname").replace(".", "/")
            seconds[f"{path}.py::{case.get('name')}"] = float(case.get("time"))
    return seconds


class Reach:
    """Which tests reach a line."""

    def __init__(self, coverage, junit):
        from coverage import CoverageData

        self.data = CoverageData(coverage)
        self.data.read()
        self.seconds = passed(junit)
        self.files = {}
        for name in self.data.measured_files():
            self.files[name[name.rindex("/sentcli/") + 1 :]] = name

    def tests(self, path):
        """Return the tests that reach each line of a file, the quickest first."""
        found = {}
        for line, contexts in self.data.contexts_by_lineno(self.files[path]).items():
            tests = {context.partition("|")[0] for context in contexts} & self.seconds.keys()
            if tests:
                found[line] = sorted(tests, key=lambda test: (self.seconds[test], test))
        return found


def draw(arguments):
    """Write mutants that were drawn with a seed."""
    reach = Reach(arguments.coverage, arguments.junit)
    sites = []
    for path in sorted(reach.files):
        if path.split("/")[1] in PACKAGES:
            found, mutant = mutants_of(path, reach.tests(path))
            sites += [(mutant, start, choices) for start, choices in sorted(found.items())]
    generator = random.Random(arguments.seed)
    generator.shuffle(sites)
    drawn = []
    for mutant, start, choices in sites:
        if len(drawn) == arguments.count:
            break
        made = mutant(start, generator.choice(choices))
        if made is not None:
            drawn.append(asdict(made))
    Path(arguments.output).write_text(json.dumps(drawn, indent=1), "utf-8")
    print(f"{len(drawn)} mutants at {len(sites)} places: {Counter(m['path'].split('/')[1] for m in drawn)}")


def line_of(mutant, root):
    """Return the number of a mutant's line in a checkout; None where the code has changed."""
    path = root / mutant.path
    if not path.exists():
        return None
    source = path.read_text("utf-8")
    lines = source.splitlines()
    for name, function in functions(ast.parse(source)):
        if name == mutant.function:
            equal = [
                line for line in range(function.lineno, function.end_lineno + 1) if lines[line - 1] == mutant.before
            ]
            if mutant.number < len(equal):
                return equal[mutant.number]
    return None


def outcome(mutant, reach, root, most):
    """Run the tests that reach a mutant in a checkout of its own, and return what became of it."""
    line = line_of(mutant, ROOT)
    if line is None:
        return {"outcome": "gone"}
    tests = reach.tests(mutant.path).get(line, [])[:most]
    if not tests:
        return {"outcome": "not reached"}
    path = root / mutant.path
    source = path.read_text("utf-8")
    lines = source.splitlines(keepends=True)
    lines[line - 1] = mutant.after + "\n"
    path.write_text("".join(lines), "utf-8")
    chosen = root / "chosen-tests.txt"
    chosen.write_text("\n".join(tests) + "\n", "utf-8")
    call = [sys.executable, "-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            [*call, "--timeout=120", f"@{chosen}"], cwd=root, env=environment, timeout=LONGEST,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        code, said = done.returncode, done.stdout[-300:]
    except subprocess.TimeoutExpired:
        code, said = 1, "timeout"
    finally:
        path.write_text(source, "utf-8")
    return {"outcome": "survived" if code == 0 else "killed", "tests": len(tests), "code": code, "said": said}


def run(arguments):
    """Run the tests against each mutant, and print the share that is killed."""
    mutants = [Mutant(**facts) for facts in json.loads(Path(arguments.mutants).read_text("utf-8"))]
    output = Path(arguments.output)
    done = [json.loads(line) for line in output.read_text("utf-8").splitlines()] if output.exists() else []
    known = {json.dumps(entry["mutant"]) for entry in done}
    left = [mutant for mutant in mutants if json.dumps(asdict(mutant)) not in known]
    roots = SimpleQueue()
    ignored = shutil.ignore_patterns(
        ".git", ".venv", "__pycache__", ".hypothesis", ".mypy_cache", "site", "demo-output"
    )
    with tempfile.TemporaryDirectory(prefix="sentcli-mutants-") as folder:
        for number in range(arguments.workers):
            shutil.copytree(ROOT, Path(folder, str(number)), ignore=ignored, symlinks=True)
            roots.put(Path(folder, str(number)))

        def one(mutant):
            root = roots.get()
            try:
                reach = Reach(arguments.coverage, arguments.junit)
                found = {"mutant": asdict(mutant), **outcome(mutant, reach, root, arguments.most)}
            finally:
                roots.put(root)
            with output.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")
            return found

        with ThreadPoolExecutor(arguments.workers) as pool:
            done += pool.map(one, left)
    counts = Counter(entry["outcome"] for entry in done)
    share = counts["killed"] / max(counts["killed"] + counts["survived"], 1)
    print(f"{dict(counts)}: {share:.1%} of those that are there are killed")


def main():
    """Draw mutants or run the tests against them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, work in (("draw", draw), ("run", run)):
        command = commands.add_parser(name)
        command.set_defaults(work=work)
        command.add_argument("--coverage", required=True)
        command.add_argument("--junit", required=True)
        command.add_argument("-o", "--output", required=True)
        if work is draw:
            command.add_argument("--count", type=int, default=120)
            command.add_argument("--seed", type=int, default=0)
        else:
            command.add_argument("mutants")
            command.add_argument("--most", type=int, default=150)
            command.add_argument("--workers", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    arguments.work(arguments)


if __name__ == "__main__":
    main()
