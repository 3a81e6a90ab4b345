"""Whether the tests notice when the code is wrong: mutants, and the share of them that tests kill.

    pip install 'cosmic-ray>=8.4'
    python -m tests.mutants draw -o mutants.json
    python -m tests.mutants reach mutants.json -o reach.json
    python -m tests.mutants run mutants.json reach.json -o results.jsonl

A mutant is a line of `PACKAGES` with one change. `draw` takes lines inside of functions, with a seed. `reach` runs the
tests of ``make test`` once over a copy of the code that notes which of them come to these lines, also in processes that
they start. `run` finds the same lines in any later state of the code (``--root``) by the function around them, and runs
the tests that reach them, the ``--most`` quickest ones: a mutant is killed if one fails.
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

PACKAGES = ("evaluation", "io", "model", "search", "stores")
LEFT_OUT = ("ExceptionReplacer", "RemoveDecorator", "VariableInserter", "VariableReplacer")
"""Changes that are not drawn: they make errors of any test, or need arguments."""
LONGEST = 600
"""The seconds after which the tests of a mutant count as hanging, and the mutant as killed."""
IGNORED = (".git", ".venv", "__pycache__", ".hypothesis", ".mypy_cache", "site", "demo-output")
PROBE = '''
import os

seen = set()


def reached(number):
    """Note that the test that runs has come to a mutant."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    if test and (test, number) not in seen:
        seen.add((test, number))
        with open(os.path.join({folder!r}, str(os.getpid())), "a", encoding="utf-8") as file:
            file.write(f"{{number}} {{test}}\\n")
'''
"""The module that the copy of `reach` has besides."""


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


def mutants_of(root, path):
    """Return the mutants of a file by the place of the change, and what makes one of them."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator, operator_names

    source = (root / path).read_text("utf-8")
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
            if start[0] in inside:
                found[start].append((operator, occurrence))

    def mutant(choice):
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


def draw(arguments):
    """Write mutants that were drawn with a seed."""
    root = arguments.root
    sites = []
    for package in PACKAGES:
        for path in sorted((root / "sentcli" / package).rglob("*.py")):
            found, mutant = mutants_of(root, path.relative_to(root).as_posix())
            sites += [(mutant, choices) for _, choices in sorted(found.items())]
    generator = random.Random(arguments.seed)
    generator.shuffle(sites)
    drawn = []
    for mutant, choices in sites:
        if len(drawn) == arguments.count:
            break
        made = mutant(generator.choice(choices))
        if made is not None:
            drawn.append(asdict(made))
    arguments.output.write_text(json.dumps(drawn, indent=1), "utf-8")
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


class Probes(ast.NodeTransformer):
    """Puts a call of the probe in front of the innermost statement of each line.

    Args:
        lines: the number of the mutants of each line.
    """

    def __init__(self, lines):
        self.lines = lines
        self.inside = False

    def visit_FunctionDef(self, node):
        """Look into a function."""
        outer, self.inside = self.inside, True
        self.generic_visit(node)
        self.inside = outer
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def generic_visit(self, node):
        """Put the probes into the blocks of a node, those within first."""
        super().generic_visit(node)
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if self.inside and isinstance(block, list):
                setattr(node, field, list(self._probed(block)))
        return node

    def _probed(self, block):
        for statement in block:
            for line in range(statement.lineno, statement.end_lineno + 1):
                for number in self.lines.pop(line, []):  # what is within has taken its own
                    yield ast.parse(f"__import__('sentcli.reached_probe').reached_probe.reached({number})").body[0]
            yield statement


def with_probes(root, mutants, folder):
    """Put probes into the files of a copy of the project, which write into a folder."""
    lines = defaultdict(lambda: defaultdict(list))
    for number, mutant in enumerate(mutants):
        line = line_of(mutant, root)
        if line is not None:
            lines[mutant.path][line].append(number)
    for path, of_file in lines.items():
        tree = ast.parse((root / path).read_text("utf-8"))
        probed = ast.fix_missing_locations(Probes(of_file).visit(tree))
        (root / path).write_text(ast.unparse(probed), "utf-8")
    (root / "sentcli/reached_probe.py").write_text(PROBE.format(folder=str(folder)), "utf-8")


def environment(root):
    """Return the environment in which the tests of a copy import that copy."""
    return {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def seconds_of(junit):
    """Return the seconds of each test that passed, by its id."""
    seconds = {}
    for case in ET.parse(junit).getroot().iter("testcase"):
        if not any(child.tag in ("failure", "error", "skipped") for child in case):
            path = case.get("classname").replace(".", "/")
            seconds[f"{path}.py::{case.get('name')}"] = float(case.get("time"))
    return seconds


def reach(arguments):
    """Write which tests come to each mutant, the quickest first."""
    mutants = read_mutants(arguments.mutants)
    with tempfile.TemporaryDirectory(prefix="sentcli-reach-") as folder:
        copy, noted = Path(folder, "copy"), Path(folder, "noted")
        noted.mkdir()
        shutil.copytree(arguments.root, copy, ignore=shutil.ignore_patterns(*IGNORED), symlinks=True)
        with_probes(copy, mutants, noted)
        junit = Path(folder, "tests.xml")
        call = [sys.executable, "-m", "pytest", "-q", "-m", arguments.marks, "-p", "no:cacheprovider"]
        call += ["-n", str(arguments.workers), "--dist", "worksteal", "--junitxml", str(junit)]
        subprocess.run(call, cwd=copy, env=environment(copy), check=False)
        seconds = seconds_of(junit)
        reached = defaultdict(set)
        for file in noted.iterdir():
            for line in file.read_text("utf-8").splitlines():
                number, _, test = line.partition(" ")
                if test in seconds:
                    reached[number].add(test)
    ordered = {}
    for number, tests in reached.items():
        ordered[number] = sorted(tests, key=lambda test: (seconds[test], test))
    arguments.output.write_text(json.dumps(ordered, indent=1), "utf-8")
    print(f"{len(ordered)} of {len(mutants)} mutants are reached by one of {len(seconds):,} tests that passed")


def read_mutants(path):
    """Return the mutants of a file of `draw`."""
    return [Mutant(**facts) for facts in json.loads(path.read_text("utf-8"))]


def outcome(mutant, tests, root):
    """Run tests that reach a mutant in a checkout of its own, and return what became of it."""
    line = line_of(mutant, root)
    if line is None:
        return {"outcome": "gone"}
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
    try:
        done = subprocess.run(
            [*call, "--timeout=120", f"@{chosen}"], cwd=root, env=environment(root), timeout=LONGEST,
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
    mutants = read_mutants(arguments.mutants)
    reached = json.loads(arguments.reach.read_text("utf-8"))
    output = arguments.output
    done = [json.loads(line) for line in output.read_text("utf-8").splitlines()] if output.exists() else []
    known = {entry["number"] for entry in done}
    roots = SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="sentcli-mutants-") as folder:
        for number in range(arguments.workers):
            ignored = shutil.ignore_patterns(*IGNORED)
            shutil.copytree(arguments.root, Path(folder, str(number)), ignore=ignored, symlinks=True)
            roots.put(Path(folder, str(number)))

        def one(number):
            root = roots.get()
            try:
                tests = reached.get(str(number), [])[: arguments.most]
                found = {"number": number, "mutant": asdict(mutants[number]), **outcome(mutants[number], tests, root)}
            finally:
                roots.put(root)
            with output.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")
            return found

        with ThreadPoolExecutor(arguments.workers) as pool:
            done += pool.map(one, [number for number in range(len(mutants)) if number not in known])
    counts = Counter(entry["outcome"] for entry in done)
    share = counts["killed"] / max(counts["killed"] + counts["survived"], 1)
    print(f"{dict(counts)}: {share:.1%} of those that are reached are killed")


def main():
    """Draw mutants, find the tests that reach them, or run these."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, work in (("draw", draw), ("reach", reach), ("run", run)):
        command = commands.add_parser(name)
        command.set_defaults(work=work)
        command.add_argument("-o", "--output", type=Path, required=True)
        command.add_argument("--root", type=Path, default=Path(__file__).parent.parent, help="a checkout")
        if work is draw:
            command.add_argument("--count", type=int, default=120)
            command.add_argument("--seed", type=int, default=0)
            continue
        command.add_argument("mutants", type=Path)
        command.add_argument("--workers", type=int, default=os.cpu_count())
        if work is reach:
            command.add_argument("--marks", default="not slow and not deep and not gpu", help="those of ``make test``")
        if work is run:
            command.add_argument("reach", type=Path)
            command.add_argument("--most", type=int, default=150)
    arguments = parser.parse_args()
    arguments.work(arguments)


if __name__ == "__main__":
    main()
