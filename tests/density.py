"""How dense the code is, package by package, and that no package becomes denser: ``python -m tests.density``.

What there is to understand is counted in nodes of the syntax tree, and how much of it at once in nodes a line; of
expressions that hide branches and loops, ternaries and comprehensions, so many stand in a thousand lines, and so many
hold another one of their kind or, of comprehensions, have two loops. Lines are those without blanks, comments and
docstrings. density.json holds what each package has reached.

``--write`` takes the figures of now where they are lower, ``--worst N`` lists the densest functions.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
LIMITS = Path(__file__).with_name("density.json")
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
MEASURES = ("nodes a line", "ternaries", "nested ternaries", "comprehensions", "nested comprehensions")
"""What is held; all but the first for a thousand lines."""
ALLOWED = 0.02
"""How much denser a package may become before it is an error, as a share: one line more is no step back."""


def main() -> None:
    """Compare the density of each package with density.json; the exit code is 1 if one is denser."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="keep the figures of now where they are lower")
    parser.add_argument("--worst", type=int, default=0, metavar="N", help="list the densest functions")
    options = parser.parse_args()
    counts = count_packages(ROOT / "sentcli")
    figures = {name: densities(count) for name, count in sorted(counts.items())}
    for line in table(counts, figures):
        print(line)
    for density, name in worst_functions(ROOT / "sentcli", options.worst):
        print(f"{density:6.1f}  {name}")
    limits = json.loads(LIMITS.read_text("utf-8"))
    if options.write:
        LIMITS.write_text(json.dumps(lowered(figures, limits), indent=2) + "\n", "utf-8")
        return
    problems = list(denser(figures, limits))
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


def count_packages(folder: Path) -> dict[str, Counter[str]]:
    """Return the counts of each package below a folder, and of all under ``whole``."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).parts
        package = parts[0] if len(parts) > 1 else "(top)"
        of_file = count_file(path.read_text("utf-8"))
        counts[package] += of_file
        counts["whole"] += of_file
    return counts


def count_file(text: str) -> Counter[str]:
    """Return how many lines, nodes, ternaries and comprehensions the source of a file has."""
    tree = ast.parse(text)
    count = Counter(files=1, lines=len(code_lines(text, tree)))
    for node in ast.walk(tree):
        count["nodes"] += 1
        if isinstance(node, ast.IfExp):
            count["ternaries"] += 1
            count["nested ternaries"] += holds(node, (ast.IfExp,))
        elif isinstance(node, COMPREHENSIONS):
            count["comprehensions"] += 1
            count["nested comprehensions"] += len(node.generators) > 1 or holds(node, COMPREHENSIONS)
    return count


def holds(node: ast.AST, kinds: tuple[type[ast.AST], ...]) -> bool:
    """Tell whether a node of one of some kinds stands below another node."""
    below = ast.walk(node)
    next(below)  # the node itself
    return any(isinstance(child, kinds) for child in below)


def code_lines(text: str, tree: ast.Module) -> set[int]:
    """Return the numbers of the lines that hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    return lines - set(docstring_lines(tree))


def docstring_lines(tree: ast.Module) -> Iterator[int]:
    """Yield the numbers of the lines of all docstrings, those of attributes included."""
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS)):
            continue
        for statement in node.body:
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield from range(value.lineno, (value.end_lineno or value.lineno) + 1)


def densities(count: Counter[str]) -> dict[str, float]:
    """Return the measures of a package, by name."""
    lines = max(1, count["lines"])
    figures = {"nodes a line": round(count["nodes"] / lines, 2)}
    for name in MEASURES[1:]:
        figures[name] = round(1000 * count[name] / lines, 1)
    return figures


def table(counts: dict[str, Counter[str]], figures: dict[str, dict[str, float]]) -> Iterator[str]:
    """Yield the lines of a table with a row for each package."""
    heads = ["files", "lines", "nodes", *MEASURES]
    yield f"{'':12}" + "".join(f"{head:>23}" if " " in head else f"{head:>16}" for head in heads)
    for name, measures in figures.items():
        numbers = [counts[name]["files"], counts[name]["lines"], counts[name]["nodes"], *measures.values()]
        cells = zip(heads, numbers, strict=True)
        yield f"{name:12}" + "".join(f"{number:>23}" if " " in head else f"{number:>16}" for head, number in cells)


def worst_functions(folder: Path, most: int) -> list[tuple[float, str]]:
    """Return nodes a line and place of the densest functions of more than six lines."""
    functions = []
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text("utf-8")
        tree = ast.parse(text)
        code = code_lines(text, tree)
        for node in ast.walk(tree):
            if not isinstance(node, FUNCTIONS):
                continue
            lines = len(code & set(range(node.lineno, (node.end_lineno or node.lineno) + 1)))
            nodes = sum(1 for _ in ast.walk(node))
            if lines > 6:
                functions.append((nodes / lines, f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"))
    return sorted(functions, reverse=True)[:most]


def denser(figures: dict[str, dict[str, float]], limits: dict[str, dict[str, float]]) -> Iterator[str]:
    """Yield a line for each measure of a package that is above what the package had reached."""
    for name, measures in figures.items():
        limit = limits[name] if name in limits else limits["whole"]
        for measure, value in measures.items():
            reached = limit[measure]
            if value > reached * (1 + ALLOWED) + 0.05:  # what rounding hides
                yield f"{name}: {measure} {value:g}, and {reached:g} was reached; python -m tests.density --worst 20"


def lowered(figures: dict[str, dict[str, float]], limits: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Return the lower of what was reached and what is, for each package that there is."""
    reached: dict[str, dict[str, float]] = {}
    for name, measures in figures.items():
        before = limits.get(name, measures)
        reached[name] = {measure: min(value, before[measure]) for measure, value in measures.items()}
    return reached


if __name__ == "__main__":
    main()
