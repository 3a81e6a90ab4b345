"""Names of models as pages show them: of long names that differ in one part, this part, and the rest once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sentcli.printable import safe

_LONG_NAME = 20
"""A name with more characters than this is shown by its last part, or by that in which it differs from others."""
_NAME_PARTS = re.compile(r"(?:\d[.\d]*e[-+]?\d+|[^-_/])+[-_/]*|[-_/]+")
"""The parts of a name, each with the separators behind it; the hyphen of 1e-5 separates nothing."""
SECOND = " + "
"""What stands between the names of two models that work together, or of a model and bm25."""


@dataclass(frozen=True)
class ShortNames:
    """Names as a page shows them."""

    shown: dict[str, str] = field(default_factory=dict)
    """The short form of each name."""
    notes: tuple[str, ...] = ()
    """A sentence with what long names have in common, for the top of the page; none if they are shown whole."""


def short_names(names: Iterable[str]) -> ShortNames:
    """Shorten names, so that they stay different from each other.

    A path is shown by its last part, unless another one shares that. Of two and more long names only the part is shown
    in which they differ: ``lr1e-5`` of ``runs/simcse-bert-base-lr1e-5-seed1``.

    Args:
        names: of models, runs or files, of which equal ones are one.
    """
    split_names = {name: name.partition(SECOND) for name in names}
    shown = _last_parts(first for first, _, _ in split_names.values())
    long = {first: part for first, part in shown.items() if len(part) > _LONG_NAME}
    different = _different_parts(list(long.values()))
    pattern = _common(list(long), different)
    notes: tuple[str, ...] = ()
    if pattern:
        shorter = shown | dict(zip(long, different, strict=True))
        if len(set(shorter.values())) == len(shorter):
            shown = shorter
            *others, last = map(safe, different)
            notes = (f"Names: {', '.join(others)} and {last} stand for {pattern}.",)
    short = {}
    for name, (first, joint, second) in split_names.items():
        short[name] = f"{shown[first]}{joint}{second}"
    return ShortNames(short, notes)


def _last_parts(names: Iterable[str]) -> dict[str, str]:
    """Return the last part of each path, or the whole of it where two would be shown alike, or it is short.

    A path from the root is never short: where somebody keeps models is nothing for a page that is passed on.
    """
    parts = {}
    for name in names:
        path = Path(name)
        parts[name] = name
        if path.name and (len(name) > _LONG_NAME or path.is_absolute()):
            parts[name] = path.name
    counts = Counter(parts.values())
    for name, part in parts.items():
        if counts[part] > 1:
            parts[name] = name
    return parts


def _different_parts(names: Sequence[str]) -> list[str]:
    """Return of each name what lies between the parts that all have in common; an empty list if they have none."""
    if len(names) < 2:
        return []
    split = list(map(_NAME_PARTS.findall, names))
    fewest = min(map(len, split))
    start = _in_common(split)
    end = min(_in_common([parts[::-1] for parts in split]), fewest - start)
    middles = _between(split, start, end)
    # a number says nothing without the word before it
    while start and not all(middle[:1].isalpha() for middle in middles):
        start -= 1
        middles = _between(split, start, end)
    if start + end == 0 or "" in middles:
        return []
    return middles


def _in_common(split: Sequence[Sequence[str]]) -> int:
    """Return how many of the first parts are the same in all names."""
    count = 0
    for parts in zip(*split, strict=False):
        if len(set(parts)) > 1:
            break
        count += 1
    return count


def _between(split: Sequence[Sequence[str]], start: int, end: int) -> list[str]:
    return ["".join(parts[start : len(parts) - end]).strip("-_/") for parts in split]


def _common(names: Sequence[str], apart: Sequence[str]) -> str:
    """Return the pattern of the whole names, with an ellipsis for the part in which they differ; empty if none fits."""
    if not apart:
        return ""
    patterns = set()
    for name, part in zip(names, apart, strict=True):
        before, _, after = name.rpartition(part)
        patterns.add(f"{before}\N{HORIZONTAL ELLIPSIS}{after}")
    if len(patterns) > 1:
        return ""
    return safe(patterns.pop())
