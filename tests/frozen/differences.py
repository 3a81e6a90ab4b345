"""Where two folders of recorded commands differ, apart from times."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

TIMES = re.compile(
    r"seconds|_second|per_second|elapsed|^time|_time$|created|started|finished|^date|hours|^at$|modified|^began|_mtime|^version$|commit|memory|cost"
)
"""Keys of JSON whose values are times, or what a time gives."""
MOVING_TEXT = (
    (re.compile(r"\d+(\.\d+)? ?(ms|s|min|h|GB|MB|kB|texts/s|rows/s|sentences/s|it/s|/s)\b"), "TIME"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(\+00:00|Z)?( UTC)?"), "DATE"),
    (re.compile(r"\d[\d,]* (texts|rows|sentences|queries|documents|steps|tokens)( a|/| per) ?(second|s)"), "SPEED"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "DIGEST"),
    (re.compile(r"\d+:\d\d(:\d\d)?"), "CLOCK"),
)
"""Patterns of what moves from run to run in any text."""
BYTES_MAY_DIFFER = {".db", ".faiss", ".png", ".lock"}


def differences(before: Path, after: Path, again: Path | None = None) -> list[str]:
    """Return a line for each file that only one of two folders has, and for each value or line that differs.

    Args:
        before: what the commands wrote with one tree.
        after: what they wrote with another one.
        again: what they wrote with the first tree a second time; where this differs from before, both may differ.
    """
    moving: set[str] = set()
    if again is not None:
        moving = {where for where, _ in _differing_files(before, again)}
    return [f"{where}: {what}" for where, what in _differing_files(before, after) if where not in moving]


def _differing_files(before: Path, after: Path) -> Iterator[tuple[str, str]]:
    """Yield places and what differs there."""
    first, second = _files(before), _files(after)
    for name in sorted(first ^ second):
        yield name, "only one has it"
    for name in sorted(first & second):
        yield from _differences(before / name, after / name, name)


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def _differences(first: Path, second: Path, name: str) -> Iterator[tuple[str, str]]:
    if first.suffix in BYTES_MAY_DIFFER or ".db/" in name or first.read_bytes() == second.read_bytes():
        return
    if first.suffix == ".json":
        yield from _values(json.loads(first.read_text("utf-8")), json.loads(second.read_text("utf-8")), name)
    elif first.suffix == ".jsonl":
        lines = zip(_json_lines(first), _json_lines(second), strict=False)
        for number, (one, other) in enumerate(lines):
            yield from _values(one, other, f"{name}:{number}")
    elif first.suffix == ".npy":
        one, other = np.load(first), np.load(second)
        same = one.shape == other.shape and np.array_equal(one, other)
        if not same:
            yield name, "vectors differ"
    else:
        yield from _texts(first, second, name)


def _json_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def _texts(first: Path, second: Path, name: str) -> Iterator[tuple[str, str]]:
    try:
        one, other = _settled(first.read_text("utf-8")), _settled(second.read_text("utf-8"))
    except UnicodeDecodeError:
        yield name, "bytes differ"
        return
    if len(one) != len(other):
        yield name, f"{len(one)} lines before, {len(other)} after"
    for number, (line, changed) in enumerate(zip(one, other, strict=False)):
        if line != changed:
            yield f"{name}:{number + 1}", f"{line[:300]!r} -> {changed[:300]!r}"


def _settled(text: str) -> list[str]:
    """Return the lines of a text without times, dates and speeds."""
    for pattern, word in MOVING_TEXT:
        text = pattern.sub(word, text)
    return re.sub(r" +", " ", text).splitlines()


def _values(first: Any, second: Any, where: str) -> Iterator[tuple[str, str]]:
    """Yield the places where two values read from JSON differ, times left out."""
    if isinstance(first, dict) and isinstance(second, dict):
        yield from _entries(first, second, where)
        return
    if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        for number, (one, other) in enumerate(zip(first, second, strict=True)):
            yield from _values(one, other, f"{where}[{number}]")
        return
    if isinstance(first, str) and isinstance(second, str) and _settled(first) == _settled(second):
        return
    if first != second:
        yield where, f"{str(first)[:100]!r} -> {str(second)[:100]!r}"


def _entries(first: dict[str, Any], second: dict[str, Any], where: str) -> Iterator[tuple[str, str]]:
    """Yield the entries in which two objects differ, and whether the same keys stand in another order."""
    for key in sorted(first.keys() | second.keys()):
        if TIMES.search(key):
            continue
        if key not in first:
            yield f"{where}.{key}", "only after"
        elif key not in second:
            yield f"{where}.{key}", "only before"
        else:
            yield from _values(first[key], second[key], f"{where}.{key}")
    if first.keys() == second.keys() and list(first) != list(second):
        yield where, "the keys stand in another order"
