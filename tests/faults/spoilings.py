"""Ways to spoil a good file: what a kill, a full disk, an editor, a wrong tool or an attacker leaves behind."""

import os
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

DEPTH = 100_000


@dataclass(frozen=True)
class Spoiling:
    """One way to spoil a file in place."""

    name: str
    spoil: Callable[[Path], object]
    may_pass: bool = False
    """Whether a reader may do without what was spoiled: the command may succeed, or fail with one message."""


def replaced(content: bytes) -> Callable[[Path], object]:
    """Put other bytes in a file's place."""
    return lambda path: path.write_bytes(content)


def edited(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    """Change a file's bytes."""
    return lambda path: path.write_bytes(change(path.read_bytes()))


def linked(target: Callable[[Path], Path]) -> Callable[[Path], object]:
    """Put a link in a file's place."""

    def spoil(path: Path) -> None:
        path.unlink()
        path.symlink_to(target(path))

    return spoil


def a_folder(path: Path) -> None:
    """Put a folder in a file's place."""
    path.unlink()
    path.mkdir()


def a_pipe(path: Path) -> None:
    """Put a pipe that nobody writes to in a file's place."""
    path.unlink()
    os.mkfifo(path)


def noise(content: bytes) -> bytes:
    """Return as many random bytes, which are no UTF-8."""
    return b"\xff\xfe\x80" + random.Random(0).randbytes(max(len(content), 64))


def flipped(content: bytes, at: float) -> bytes:
    """Flip eight bytes at a share of the file."""
    start = min(int(len(content) * at), len(content) - 8)
    return content[:start] + bytes(byte ^ 0xFF for byte in content[start : start + 8]) + content[start + 8 :]


ANY_FILE = [
    Spoiling("gone", Path.unlink),
    Spoiling("a folder", a_folder),
    Spoiling("a pipe", a_pipe),
    Spoiling("a link to itself", linked(lambda path: path)),
    Spoiling("a link to nothing", linked(lambda path: path.with_name("nothing"))),
    Spoiling("empty", replaced(b"")),
    Spoiling("noise", edited(noise)),
    Spoiling("zeros", edited(lambda content: bytes(len(content)))),
    Spoiling("UTF-16", edited(lambda content: content.decode("latin-1").encode("utf-16"))),
]
DEEP = b'{"a":' * DEPTH + b"1" + b"}" * DEPTH
DEEP_LIST = b"[" * DEPTH + b"]" * DEPTH
HALF = Spoiling("half of it", edited(lambda content: content[: len(content) // 2]))
WRONG_JSON = [
    Spoiling(f"JSON {name}", replaced(content))
    for name, content in {
        "deep": DEEP,
        "deep list": DEEP_LIST,
        "null": b"null",
        "number": b"17",
        "text": b'"text"',
        "list": b"[1, 2]",
        "empty list": b"[]",
        "other object": b'{"a": {"b": [1]}}',
        "empty object": b"{}",
    }.items()
]
WRONG_TOML = [
    HALF,
    Spoiling("TOML deep", replaced(b"a = " + b"[" * DEPTH + b"]" * DEPTH)),
    Spoiling("TOML deep keys", replaced(b".".join([b"a"] * 5000) + b" = 1")),
    Spoiling("TOML number", replaced(b"method = 3\nsettings = 4\nseeds = 5\ngrid = 6\n")),
    Spoiling("TOML list", replaced(b"method = []\nsettings = []\nseeds = {}\ngrid = {}\n")),
    Spoiling("TOML unknown", replaced(b"nothing_known = 1\n")),
]
WRONG_LINES = [
    Spoiling(f"a line of {name}", edited(lambda content, line=line: line + b"\n" + content))
    for name, line in {
        "null": b"null",
        "number": b"17",
        "list": b"[1]",
        "half an object": b'{"_id": "a", "te',
        "nothing": b"{}",
        "deep": DEEP,
        "deep list": DEEP_LIST,
        "bad bytes": b'{"_id": "\xff", "text": "\xfe"}',
        "list id": b'{"_id": [1, 2], "id": [1, 2], "text": "a cat", "title": ""}',
        "number text": b'{"_id": "n", "id": "n", "text": 5, "title": ""}',
        "list text": b'{"_id": "n", "id": "n", "text": ["a"], "title": ""}',
        "object text": b'{"_id": "n", "id": "n", "text": {"a": 1}, "title": ""}',
    }.items()
]
CUT_BYTES = [
    HALF,
    *(Spoiling(f"bytes flipped at {at}", edited(lambda c, at=at: flipped(c, at)), may_pass=True) for at in (0.5, 0.9)),
    Spoiling("bytes flipped at 0", edited(lambda content: flipped(content, 0))),
    Spoiling("a huge length", edited(lambda content: struct.pack("<Q", 2**62) + content[8:])),
    Spoiling("bytes added", edited(lambda content: content + b"more" * 9), may_pass=True),
]
WRONG_TABLE = [
    Spoiling("a line of NUL", edited(lambda content: content + b"\0\0\t\0,\0\n"), may_pass=True),
    Spoiling("a line of bad bytes", edited(lambda content: content + b"\xff\t\xff\t\xff,\xff\n")),
    Spoiling("a line with fewer fields", edited(lambda content: content + b"lonely\n"), may_pass=True),
    Spoiling("a line with more fields", edited(lambda content: content + b"\t".join([b"x"] * 30) + b"\n"), True),
    Spoiling("an open quote", edited(lambda content: content + b'"open\tx,"y\n'), may_pass=True),
]


def spoilings(file: str) -> list[Spoiling]:
    """Return the ways to spoil a file, by its suffix."""
    match Path(file).suffix:
        case ".json":
            return [*ANY_FILE, HALF, *WRONG_JSON]  # single values: test_leaves.py
        case ".jsonl":
            return [*ANY_FILE, HALF, *WRONG_LINES]
        case ".toml":
            return [*ANY_FILE, *WRONG_TOML]
        case ".tsv" | ".csv":
            return [*ANY_FILE, *WRONG_TABLE]
        case ".txt" | ".trec" | ".py" | ".pos":
            return [*ANY_FILE, HALF, Spoiling("bad bytes", edited(lambda content: content + b"a \xff\xfe\n"))]
    return [*ANY_FILE, *CUT_BYTES]
