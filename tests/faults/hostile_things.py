"""The hostile things that the sample does to a scene or a command line, each drawn by a generator of its own.

What can be drawn grows by itself: flags and their types are taken from the application, spoilings from `spoilings.py`,
values of structured files from `leaves.py`, and the files from what the scenes have written.
"""

import csv
import io
import json
import math
import random
import re
import typing
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.faults.hostile_scenes import Command
from tests.faults.leaves import FORMATS, Unwritable, leaves
from tests.faults.scenes import OPTIONAL, TEXT_PASSES
from tests.faults.spoilings import spoilings

REFUSED, SAID, SAME, ANY = "refused", "said", "same", "any"
"""What has to become of a command: an error; the result of the clean run unless more is said; that result; anything.

An error names what is hostile, whatever is expected.
"""


@dataclass(frozen=True)
class Thing:
    """One hostile thing.

    Attributes:
        name: what is done, for who reads a failure.
        words: of the command line.
        names: an error holds one of them.
        expected: `REFUSED`, `SAID`, `SAME` or `ANY`.
        spoil: does it to the folder of the scene.
        env: variables of the process.
        largest: the bytes that a file may have, as on a full disk.
        killed: after which share of the time of the clean run the command is killed, to be given again.
        makes: what the command may make or change instead of what it says.
    """

    name: str
    words: tuple[str, ...]
    names: tuple[str, ...]
    expected: str = ANY
    spoil: Callable[[Path], object] = lambda folder: None
    env: dict[str, str] = field(default_factory=dict)
    largest: int | None = None
    killed: float | None = None
    makes: tuple[str, ...] = ()


# ---------------------------------------------------------------------- files


def files_below(folder: Path, names: tuple[str, ...]) -> Iterator[str]:
    """Yield the files that a command reads, in an order that stays."""
    for name in names:
        path = folder / name
        if not path.is_dir():
            yield name
            continue
        for file in sorted(path.rglob("*")):
            if file.is_file() and not file.name.endswith(".lock"):
                yield f"{name}/{file.relative_to(path)}"


def called(file: str) -> tuple[str, ...]:
    """Return the names by which an error may call a file: its own, and those of the folders that hold it."""
    return tuple(part for part in Path(file).parts if part != "..")


def spoiled_file(command: Command, folder: Path, draw: random.Random) -> Thing | None:
    """Return a file spoiled as a whole."""
    file = draw.choice(list(files_below(folder, command.reads)))
    spoiling = draw.choice(spoilings(file))
    direct = file in command.reads
    if spoiling.name == "a pipe" and direct:
        return None
    passes = [name for end, names in OPTIONAL.items() if file.endswith(end) for name in names]
    if file.endswith((".txt", ".md")):
        passes += (*TEXT_PASSES, "a huge length", "bytes flipped at 0")
    if file.endswith(".parquet"):
        passes.append("bytes flipped at 0")  # where the first column lies, which need not be read
    expected = SAID
    if direct:
        expected = REFUSED
    if spoiling.may_pass or spoiling.name in passes:
        expected = ANY
    return Thing(
        f"{file}: {spoiling.name}",
        tuple(command.words.split()),
        called(file),
        expected,
        lambda here: spoiling.spoil(here / file),
    )


def spoiled_leaf(command: Command, folder: Path, draw: random.Random) -> Thing | None:
    """Return a value of a structured file set to another."""
    files = [f for f in files_below(folder, command.reads) if Path(f).suffix in FORMATS and f not in command.reads]
    if not files:
        return None
    file = draw.choice(files)
    try:
        leaf = draw.choice(leaves(folder, file))
    except (IndexError, ValueError, KeyError, UnicodeError):
        return None

    def spoil(here: Path) -> None:
        with suppress(Unwritable, OverflowError, ValueError):
            leaf.spoil(here)

    return Thing(str(leaf), tuple(command.words.split()), called(file), ANY, spoil)


# ---------------------------------------------------------------------- tables

VALUES: list[Any] = [
    None, math.nan, math.inf, -math.inf, 10**400, -(10**30), 2**63, -1, 0, 1.5, 1e308, True, "", " ", "\n", "\0",
    "a\u202eb", "\ud800", "x" * 100_000, [], [1, [2]], [None], {}, {"a": {"b": 1}}, "01234", "2024-13-45", "NaN",
    "null", "=1+1", "\U0001f600", "e\u0301", "1e999", "12:30", "a\tb", 'a"b', "a,b", "a\r\nb", [0.5] * 32,
    [0.5] * 31, [math.nan] * 32, ["a"] * 32, [1e300] * 32, [[0.5] * 32], [255] * 32, [True] * 32, [0.0] * 32,
    "0.5 0.5",
]  # fmt: skip
COLUMNS = [
    "", " ", "text ", "Text", "embedding", "document", "passage", "sentcli_hash", "_distance", "a\nb", "0", "é",
    "a" * 500,
]  # fmt: skip
TEXTS = ("text", "sentence1", "sentence2", "anchor", "positive")
NO_TEXT = (type(None), float, list, dict)
Rows = list[dict[str, Any]]


def read_table(path: Path) -> Rows:
    """Return the rows of a table."""
    match path.suffix:
        case ".jsonl":
            return [json.loads(line) for line in path.read_text().splitlines()]
        case ".parquet":
            return pq.read_table(path).to_pylist()
    separator = {".csv": ",", ".tsv": "\t"}[path.suffix]
    return list(csv.DictReader(io.StringIO(path.read_text()), delimiter=separator))


def write_table(path: Path, rows: Rows, ends: str = "\n", first: str = "") -> None:
    """Write rows in the format of a file."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    match path.suffix:
        case ".jsonl":
            path.write_bytes((first + "".join(json.dumps(row) + ends for row in rows)).encode())
        case ".parquet":
            columns = {name: [row.get(name) for row in rows] for name in names}
            pq.write_table(pa.table(columns), path)
        case _:
            target = io.StringIO()
            separator = {".csv": ",", ".tsv": "\t"}[path.suffix]
            writer = csv.DictWriter(target, names, delimiter=separator, lineterminator=ends)
            writer.writeheader()
            writer.writerows(rows)
            path.write_bytes((first + target.getvalue()).encode("utf-8", "surrogatepass"))


def spoiled_row(command: Command, folder: Path, draw: random.Random) -> Thing | None:
    """Return a table with a value in one row that does not belong there."""
    tables = [f for f in files_below(folder, command.reads) if Path(f).suffix in (".jsonl", ".csv", ".tsv", ".parquet")]
    tables = [f for f in tables if f in command.reads or "set/" in f]
    if not tables:
        return None
    file = draw.choice(tables)
    rows = read_table(folder / file)
    if not rows:
        return None
    row, column, value = draw.randrange(len(rows)), draw.choice(list(rows[0])), draw.choice(VALUES)
    is_json = file.endswith(".jsonl")
    expected = ANY
    if is_json and column in TEXTS and isinstance(value, NO_TEXT) and file in command.reads:
        expected = REFUSED

    def spoil(here: Path) -> None:
        if not is_json:
            rows[row][column] = value
        else:
            rows[row] = {**rows[row], column: value}
        with suppress(pa.ArrowException, OverflowError, UnicodeError):  # the format cannot hold it
            write_table(here / file, rows)

    shown = repr(value)
    return Thing(
        f"{file}: {column} of row {row} is {shown[:60]}", tuple(command.words.split()), called(file), expected, spoil
    )


def _without(row: dict[str, Any], column: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != column}


def _renamed(rows: Rows, old: str, new: str) -> Rows:
    return [{new if name == old else name: value for name, value in row.items()} for row in rows]


def reshaped_table(command: Command, folder: Path, draw: random.Random) -> Thing | None:
    """Return a table that has other rows or columns."""
    tables = [f for f in command.reads if Path(f).suffix in (".jsonl", ".csv", ".tsv", ".parquet")]
    if not tables:
        return None
    file = draw.choice(tables)
    rows = read_table(folder / file)
    column = draw.choice(list(rows[0]))
    other = draw.choice(COLUMNS)
    value = draw.choice(VALUES)
    needed = column in TEXTS
    changes: dict[str, tuple[Callable[[Rows], Rows], str]] = {
        "no rows": (lambda rows: [], ANY),
        "one row": (lambda rows: rows[:1], ANY),
        "two rows": (lambda rows: rows[:2], ANY),
        "equal rows": (lambda rows: rows[:1] * len(rows), ANY),
        f"{column} of the first in all": (lambda rows: [{**row, column: rows[0][column]} for row in rows], ANY),
        f"without {column}": (
            lambda rows: [_without(row, column) for row in rows],
            REFUSED if needed else ANY,
        ),
        f"{column} named {other[:20]!r}": (lambda rows: _renamed(rows, column, other), ANY),
        f"a column {other[:20]!r} of {value!r:.40}": (lambda rows: [{**row, other: value} for row in rows], ANY),
        f"a column {other[:20]!r} of mixed values": (
            lambda rows: [{**row, other: VALUES[n % len(VALUES)]} for n, row in enumerate(rows)], ANY,
        ),
        "300 columns": (lambda rows: [{**row, **{f"c{n}": n for n in range(300)}} for row in rows], ANY),
        "columns in another order": (lambda rows: [dict(reversed(row.items())) for row in rows], SAID),
        "rows in another order": (lambda rows: rows[::-1], ANY),
        f"{column} null in all": (lambda rows: [{**row, column: None} for row in rows], ANY),
        f"{column} in every second row": (
            lambda rows: [_without(row, column) if n % 2 else row for n, row in enumerate(rows)],
            REFUSED if needed and file.endswith(".jsonl") else ANY,
        ),
    }  # fmt: skip
    ends = {"CRLF": ("\r\n", ""), "BOM": ("\n", "\ufeff")}
    name = draw.choice([*changes, *ends])

    def spoil(here: Path) -> None:
        try:
            if name in ends and not file.endswith(".parquet"):
                write_table(here / file, rows, *ends[name])
            elif name in changes:
                write_table(here / file, changes[name][0](rows))
        except (pa.ArrowException, OverflowError, UnicodeError):
            pass

    expected = SAME if name in ends else changes[name][1]
    return Thing(f"{file}: {name}", tuple(command.words.split()), (*called(file), column, other), expected, spoil)


# ---------------------------------------------------------------------- options

NUMBERS = [
    "0", "-1", "1", "2", "3", "1.5", "0.5", "1e308", "nan", "inf", "-inf", "9223372036854775808", "4294967296",
    "9" * 401, "", " ", "abc", "1e3", "1_000", "0x10", "\uff11\uff12", "\u0663", " 5", "5 ", "+5", "1,5", "1/2",
    "50%", "-0", "1e-320",
]  # fmt: skip
TEXT_VALUES = [
    "", " ", "\n", "-", "--", "\U0001f600", "é", "x" * 5000, "nan", "%s{}%d", "[red]", ",", ",,", "a,b,c,d,e", "0",
    "1,2", "1-2", "2-1", "a=b", "=", "a=", "=b", "$HOME", "../..", "list", "all", "text", "a'b", "a\tb", "\x1b[31m",
    "None", "true", "0.9p", "1p", "-5p", "nan,nan", "0,1", "year = 1", "text LIKE '%'", "1m", "0s", "-1h", "flat",
    "hnsw", "ivf", "auto", "id", "english", "dense,bm25", "rrf", "rrf,rrf", "simcse", "acme/mini@v1", "acme/mini@v9",
    "acme/none", "acme/mini@",
]  # fmt: skip
PLACES = [
    "", ".", "..", "stranger", "stranger/file.txt", "text.txt", "missing/deep/x", "/dev/null", "-", "a\nb",
    "é \U0001f600", "text.txt/x", "bert", "x" * 300, "loop", "dangling", "folder-link", "~", "~nobody/x", "file://x",
    "s3://", "http://127.0.0.1:1/v1#x", "http://u:SECRET@127.0.0.1:1/v1#x", "lance:", "lance:missing",
    "lance:tables", "milvus:", "milvus:rows.db", "milvus:text.txt", "postgresql://u:SECRET@h/d", "C:\\x", "out.npy",
    "out.zip", "out.html", "vectors", ".hidden", "$(touch pwned)", "*", "*.jsonl", "rows.jsonl", "rows.parquet",
    "set", "onnx", "model", "senteval", "foreign.npy", "foreign.faiss", "foreign.parquet", "scores.json", "run.trec",
    "pages", "empty", "empty.txt",
]  # fmt: skip
LEFT_OUT = {
    "--debug", "--help", "--help-all", "--ray", "--workers", "--cpus-per-worker", "--gpus-per-worker",
    "--install-completion", "--log-to",
}  # fmt: skip
"""Flags that are not the work's own, or start a cluster."""
LONG = {"--max-steps", "--epochs", "--seeds", "--judge"}
"""Flags that say how long the work is: a large number is no fault."""
ENOUGH = 1000


def options_of(words: tuple[str, ...]) -> list[Any]:
    """Return the parameters of the command that the words begin with."""
    from typer.main import get_command

    from sentcli.cli.app import app

    command: Any = get_command(app)
    for word in words:
        if not hasattr(command, "list_commands"):
            break
        command = command.get_command(None, word)
    return [p for p in command.params if p.opts[0].startswith("--") and p.opts[0] not in LEFT_OUT]


def with_option(words: tuple[str, ...], flags: list[str], value: str | None) -> tuple[str, ...]:
    """Return the words with an option set: in place of its value, if it stands there."""
    for flag in flags:
        if flag in words:
            at = words.index(flag)
            if value is None:
                return words
            return (*words[: at + 1], value, *words[at + 2 :])
    return (*words, flags[0], *([] if value is None else [value]))


def number_is_wrong(text: str, option: Any, kind: type) -> bool:
    """Tell whether a text is no number of a kind, or outside of the range that the option says itself."""
    if not re.fullmatch(r"[+-]?\d+" if kind is int else r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", text, re.ASCII):
        return not text.strip().replace("_", "").isalnum() or text in ("abc", "0x10")  # others may pass
    number = float(text)
    return (option.min is not None and number < option.min) or (option.max is not None and number > option.max)


def hostile_value(option: Any, draw: random.Random) -> tuple[str | None, str] | None:
    """Return a value that nobody ought to give to an option, and what is expected then."""
    kind = option.type_descriptor.annotation
    choices = typing.get_args(kind)
    if kind is bool:
        return None, ANY
    if kind in (int, float):
        value = draw.choice(NUMBERS)
        if option.opts[0] in LONG and (len(value) > 4 or "e" in value or "_" in value):
            return None
        return value, REFUSED if number_is_wrong(value, option, kind) else ANY
    if choices and kind not in (list[str], list[Path]):
        value = draw.choice([*choices, *choices, "", choices[0].upper(), f"{choices[0]} ", "unknown"])
        return value, ANY if value in choices else REFUSED
    return draw.choice(draw.choice([TEXT_VALUES, PLACES])), ANY


def takes(words: tuple[str, ...], option: str) -> bool:
    """Tell whether the command that the words begin with has an option."""
    return any(option in each.opts for each in options_of(words))


def names_of(flags: list[str], value: str | None) -> tuple[str, ...]:
    """Return by what an error may name an option: its flag, its words, or a value that is found nowhere else."""
    flag = flags[0].strip("-")
    names = (*flags, flag.replace("-", " "), flag.replace("-", "_"))
    if value and "://" in value:
        names += (value.partition("://")[0] + "://",)  # what follows may be a secret
    elif value and len(value) > 1:
        names += (value,)
    elif value:  # a letter is found everywhere, unless it stands for itself
        names += (repr(value), f"error: {value} ", f"no such file: {value}")
    return names


def hostile_option(command: Command, folder: Path, draw: random.Random) -> Thing | None:
    """Return an option with a value that nobody ought to give, or that does not go with the others."""
    words = tuple(command.words.split())
    option = draw.choice(options_of(words))
    drawn = hostile_value(option, draw)
    if drawn is None:
        return None
    value, expected = drawn
    changed = with_option(words, option.opts, value)
    names = names_of(option.opts, value)
    if value in typing.get_args(option.type_descriptor.annotation):
        names += command.reads  # what the data are not
    other = draw.choice(options_of(words))
    if draw.random() < 0.3 and other.type_descriptor.annotation is bool:
        changed = with_option(changed, other.opts, None)
        names += tuple(other.opts)
    if changed == words:
        return None
    makes: tuple[str, ...] = ()
    is_replaced = "--overwrite" in changed or option.opts[0] == "--json"  # whose file is always replaced
    if value and (not place_exists(folder, value) or (is_replaced and (folder / value).is_file())):
        makes = (value,)
    return Thing(f"{option.opts[0]} {value!r:.60}", changed, names, expected, makes=makes)


def place_exists(folder: Path, value: str) -> bool:
    """Tell whether a value is the name of something that is there; one that can be no name is none."""
    try:
        return (folder / value).exists() or (folder / value).is_symlink()
    except (OSError, ValueError):
        return False


def paired_options(command: Command, folder: Path, draw: random.Random) -> Thing | None:
    """Return two options more, with values that each of them takes."""
    words = changed = tuple(command.words.split())
    names: list[str] = []
    makes: list[str] = []
    for option in draw.sample(options_of(words), 2):
        kind = option.type_descriptor.annotation
        if kind is bool:
            value = None
        elif kind in (int, float):
            value = draw.choice(["1", "2", "5"])
        elif choices := typing.get_args(kind):
            value = draw.choice([c for c in choices if isinstance(c, str)] or ["text"])
            names += command.reads
        else:
            value = draw.choice(["text", "id", "bert", "2", "rows.jsonl", "a,b", "text.txt", "set", "vectors"])
        if option.opts[0] in words:
            continue
        changed = with_option(changed, option.opts, value)
        names += names_of(option.opts, value)
        if value and (not place_exists(folder, value) or option.opts[0] == "--json"):  # whose file is always replaced
            makes.append(value)
    if changed == words:
        return None
    return Thing(" ".join(changed[len(words) :]), changed, tuple(names), ANY, makes=tuple(makes))


def twice(command: Command, folder: Path, draw: random.Random) -> Thing | None:
    """Return a command of which words are given twice, left out or put in another order."""
    words = list(command.words.split())
    at = draw.randrange(1, len(words))
    how = draw.choice(["twice", "left out", "last"])
    word = words[at]
    if how == "twice":
        words.insert(at, word)
    elif how == "left out":
        del words[at]
    else:
        words.append(words.pop(at))
    return Thing(f"{word} {how}", tuple(words), (), ANY)  # what is missing may be anything


# ---------------------------------------------------------------------- names and places

PLAIN = [
    "a b", "é\U0001f600", "e\u0301", "a'b\"c", "100%25", "a&b;c", "a\nb", "a=b", "x" * 180, " lead", "trail ",
    ".hidden", "a\\b", "(a)", "a\tb", "-lead", "a..b", "\u202eb",
]  # fmt: skip
"""Names that mean nothing else."""
SPECIAL = [
    "[x]",
    "*",
    "?",
    "a:b",
    "a@b",
    "a,b",
    "~x",
    "$HOME",
    "milvus:x",
    "a#b",
    "{a}",
    "bytes\udcff",
    "lance:x",
    "a@",
    "1",
]
"""Names with signs that mean something in an address, a pattern or a list."""


def _in_words(words: str, old: str, new: str) -> tuple[str, ...]:
    given = new if not new.startswith("-") else f"./{new}"
    return tuple(given if word == old else word for word in words.split())


def renamed_input(command: Command, folder: Path, draw: random.Random) -> Thing | None:
    """Return a file or folder that is read by another name."""
    names = [name for name in command.reads if name in command.words.split()]
    if not names:
        return None
    old = draw.choice(names)
    beside = f"{old}.before" in command.reads
    plain = draw.random() < 0.6
    new = draw.choice(PLAIN if plain else SPECIAL) + Path(old).suffix
    makes = tuple(new if name == old else name for name in command.makes)
    if beside:
        makes = (*makes, f"{new}.before")

    def spoil(here: Path) -> None:
        (here / old).rename(here / new)
        if beside:
            (here / f"{old}.before").rename(here / f"{new}.before")

    return Thing(
        f"{old} is called {new[:40]!r}",
        _in_words(command.words, old, new),
        (old, new, new.strip(), repr(new)[1:-1], new.replace("\udcff", "\ufffd")),
        SAME if plain else SAID,
        spoil,
        makes=makes,
    )


def renamed_output(command: Command, folder: Path, draw: random.Random) -> Thing | None:
    """Return an output by another name."""
    names = [name for name in command.makes if name in command.words.split() and name not in command.reads]
    if not names:
        return None
    old = draw.choice(names)
    new = draw.choice(PLAIN + SPECIAL) + Path(old).suffix
    return Thing(
        f"{old} is called {new[:40]!r}",
        _in_words(command.words, old, new),
        (new, new.strip(), repr(new)[1:-1]),
        ANY,
        makes=(new, f"{new}.adapting"),
    )


def linked(command: Command, folder: Path, draw: random.Random) -> Thing | None:
    """Return an input that lies elsewhere and is a link here."""
    old = draw.choice(command.reads)

    def spoil(here: Path) -> None:
        (here / old).rename(here.parent / "elsewhere")
        (here / old).symlink_to(here.parent / "elsewhere")

    makes = tuple("../elsewhere" if name == old else name for name in command.makes)
    expected = SAID if old in command.makes else SAME
    return Thing(f"{old} is a link", tuple(command.words.split()), called(old), expected, spoil, makes=makes)


def missing_folder(command: Command, folder: Path, draw: random.Random) -> Thing | None:
    """Return an input that is not what it was: a folder that is gone, empty or a file."""
    folders = [name for name in command.reads if (folder / name).is_dir() and not name.startswith("..")]
    if not folders:
        return None
    name = draw.choice(folders)
    how = draw.choice(["gone", "empty", "a file", "moved into another"])

    def spoil(here: Path) -> None:
        (here / name).rename(here.parent / "gone")
        if how == "empty":
            (here / name).mkdir()
        elif how == "a file":
            (here / name).write_text("a cat\n")
        elif how == "moved into another":
            (here / name).mkdir()
            (here.parent / "gone").rename(here / name / name)

    return Thing(f"{name}: {how}", tuple(command.words.split()), called(name), SAID, spoil)


OCCUPIED = {
    "a stranger's folder": lambda place: (place.mkdir(), (place / "mine.txt").write_text("mine\n")),
    "a stranger's file": lambda place: place.write_text("mine\n"),
    "a dangling link": lambda place: place.symlink_to("nothing-there"),
    "a link to a file": lambda place: place.symlink_to("stranger/file.txt"),
    "a link to a folder": lambda place: place.symlink_to("stranger"),
}
"""What is done where an output is to be."""


def occupied_output(command: Command, folder: Path, draw: random.Random) -> Thing | None:
    """Return an output whose place is taken by what is not of this program."""
    names = [name for name in command.makes if name not in command.reads and "/" not in name]
    if not names:
        return None
    name, how = draw.choice(names), draw.choice(list(OCCUPIED))
    words = tuple(command.words.split())
    if takes(words, "--overwrite") and draw.random() < 0.6:
        words = with_option(words, ["--overwrite"], None)
    makes = command.makes
    if how == "a link to a file" and ("--overwrite" in words or name.endswith((".json", ".html", ".md"))):
        makes = (*makes, "stranger/file.txt")  # which the user has said; pages are replaced
    if how == "a stranger's folder":
        makes = tuple(other for other in command.makes if other != name)
    told = (name, "stranger", "nothing-there")
    return Thing(f"{name}: {how} {words[-1]}", words, told, ANY, lambda here: OCCUPIED[how](here / name), makes=makes)


def impossible_output(command: Command, folder: Path, draw: random.Random) -> Thing | None:
    """Return an output that is the input, or lies below a file."""
    words = tuple(command.words.split())
    names = [name for name in command.makes if name not in command.reads and name in words]
    if not names or "hub" in words:  # whose layout belongs into the folder of the model
        return None
    name = draw.choice(names)
    new = draw.choice([command.reads[0], f"text.txt/{name}"])
    words = tuple(new if word == name else word for word in words)
    if takes(words, "--overwrite") and draw.random() < 0.6:
        words = with_option(words, ["--overwrite"], None)
    return Thing(f"{name} is {new} {words[-1]}", words, called(new), ANY)


def surrounded(command: Command, folder: Path, draw: random.Random) -> Thing:
    """Return a command in odd surroundings."""
    name, value = draw.choice([
        ("COLUMNS", "0"), ("COLUMNS", "1"), ("COLUMNS", "abc"), ("COLUMNS", "-5"), ("COLUMNS", "100000000"),
        ("OMP_NUM_THREADS", "abc"), ("OMP_NUM_THREADS", "-1"), ("SENTCLI_CACHE", "/dev/null"), ("SENTCLI_CACHE", ""),
        ("SENTCLI_CACHE", "text.txt"), ("SENTCLI_CACHE", "a b\U0001f600"), ("TMPDIR", "missing"),
        ("TMPDIR", "text.txt"), ("HOME", "missing"), ("HOME", ""), ("TZ", "nonsense/zone"),
        ("http_proxy", "http://127.0.0.1:9"), ("TERM", "dumb"), ("SENTCLI_CACHE", "stranger"),
        ("XDG_CACHE_HOME", "text.txt"), ("SENTCLI_DATA", "missing"),
    ])  # fmt: skip
    words = tuple(command.words.split())
    return Thing(f"{name}={value}", words, (name, value or name, Path(value).name or name), SAID, env={name: value})


def full_disk(command: Command, folder: Path, draw: random.Random) -> Thing:
    """Return a disk that holds no larger file."""
    size = draw.choice([3000, 20_000, 100_000])
    names = (*(Path(name).name for name in command.makes), "cache", "hf", "tmp", "File too large", "No space")
    return Thing(f"files of at most {size} bytes", tuple(command.words.split()), names, SAID, largest=size)


def interrupted(command: Command, folder: Path, draw: random.Random) -> Thing | None:
    """Return a command that is killed, and given again."""
    if not command.makes or "--back" in command.words:  # given again, it goes forth again where it was done
        return None
    return Thing("killed and given again", tuple(command.words.split()), (), SAME, killed=draw.uniform(0.2, 1))


GENERATORS: dict[Callable[..., Thing | None], int] = {
    spoiled_file: 18,
    spoiled_leaf: 14,
    spoiled_row: 14,
    reshaped_table: 10,
    hostile_option: 20,
    paired_options: 8,
    twice: 3,
    renamed_input: 7,
    renamed_output: 3,
    linked: 3,
    missing_folder: 3,
    occupied_output: 5,
    impossible_output: 2,
    surrounded: 4,
    full_disk: 2,
    interrupted: 4,
}
"""How many of a hundred cases and some each of them makes."""


def draw_thing(command: Command, folder: Path, draw: random.Random) -> Thing:
    """Return one hostile thing for a command."""
    while True:
        (generator,) = draw.choices(list(GENERATORS), list(GENERATORS.values()))
        thing = generator(command, folder, draw)
        if thing is not None:
            return replace(thing, name=f"{generator.__name__}: {thing.name}")
