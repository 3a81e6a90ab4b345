"""What the hostile sample starts from: small real scenes, made once by the commands themselves."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.adapting.test_adapt import documents
from tests.conftest import save_backbone
from tests.faults.scenes import TRAIN, write_scene_files
from tests.forked import Forked

STEPS = " ".join(TRAIN)
PAGES = {
    "pages/cat.md": "---\ntitle: The cat\nyear: 2021\ntags: [a, b]\n---\n# The cat\n\nThe old cat sat on the mat.\n\n"
    "## Small dog\n\n| dog | bird |\n|---|---|\n| dog | small |\n\n- a bird flew\n- a fish swam\n",
    "pages/house.md": "---\ntitle: A house\nyear: 2022\n---\n# A house\n\nThe house is near the river.\n",
    "pages/notes.txt": "the man and the woman ran over the river\n",
}


@dataclass(frozen=True)
class Command:
    """A command that succeeds.

    Attributes:
        words: of the command line, relative to the folder of the scene.
        reads: files and folders that it reads: each file in them may be spoiled.
        makes: what it may make or change when it succeeds.
        keeps: what it may leave when it fails, since the next command goes on with it.
        again: what comes to the same command after it was killed.
    """

    words: str
    reads: tuple[str, ...]
    makes: tuple[str, ...] = ()
    keeps: tuple[str, ...] = ()
    again: str = ""


@dataclass(frozen=True)
class Kind:
    """Commands that belong together; `new` are those that came after the first sample."""

    name: str
    commands: tuple[Command, ...]
    new: bool = False


def _old() -> list[Kind]:
    encode = (
        Command(
            "encode rows.jsonl -m bert -o out --shard-rows 20", ("rows.jsonl", "bert"), ("out",), ("out",), "--resume"
        ),
        Command("encode rows.csv -m bert -o out.parquet", ("rows.csv", "bert"), ("out.parquet",)),
        Command("encode typed.parquet -m bert -o out.jsonl", ("typed.parquet",), ("out.jsonl",)),
        Command("encode typed.jsonl -m bert -o out.npy", ("typed.jsonl",), ("out.npy",)),
        Command("encode text.txt -m onnx -o out.npy", ("text.txt", "onnx"), ("out.npy",)),
        Command("encode --check vectors", ("vectors",)),
    )
    train = (
        Command(
            f"train --method simcse -m bert --data text.txt -o out {STEPS}",
            ("text.txt", "bert"),
            ("out",),
            ("out",),
            "--resume",
        ),
        Command(
            f"train --method sts-regression -m bert --data pairs.tsv -o out {STEPS}",
            ("pairs.tsv",),
            ("out",),
            ("out",),
            "--resume",
        ),
        Command(
            f"train --recipe recipe.toml -m bert --data text.txt -o out {STEPS}",
            ("recipe.toml",),
            ("out",),
            ("out",),
            "--resume",
        ),
    )
    retrieve = (
        Command("retrieve --corpus rows.jsonl -m bert --query cat --json out.json", ("rows.jsonl",), ("out.json",)),
        Command(
            "retrieve --corpus vectors --query cat --search rrf --json out.json", ("vectors", "bert"), ("out.json",)
        ),
        Command(
            "retrieve --corpus vectors --queries queries.txt --hits out.jsonl --index hnsw",
            ("vectors", "queries.txt"),
            ("out.jsonl",),
        ),
        Command("retrieve --beir set -m bert --json out.json --run out-run", ("set",), ("out.json", "out-run")),
    )
    return [
        Kind("encode", encode),
        Kind("train", train),
        Kind(
            "export",
            (
                Command("export -m bert -o out", ("bert",), ("out",)),
                Command("export -m model -o out --precision int8", ("model",), ("out",)),
            ),
        ),
        Kind(
            "sts-eval",
            (
                Command(
                    "sts-eval -m bert --data senteval --tasks STSBenchmark,SICKRelatedness --json out.json",
                    ("senteval", "bert"),
                    ("out.json",),
                ),
                Command("sts-eval -m bert --pairs pairs.tsv --json out.json", ("pairs.tsv",), ("out.json",)),
            ),
        ),
        Kind(
            "evaluate",
            (
                Command("evaluate pairs.tsv -m bert --json out.json", ("pairs.tsv",), ("out.json",)),
                Command(
                    "evaluate labelled.tsv set -m bert --json out.json --report out.html",
                    ("labelled.tsv", "set"),
                    ("out.json", "out.html"),
                ),
                Command("evaluate set -m bert --by language --json out.json", ("set",), ("out.json",)),
            ),
        ),
        Kind("retrieve", retrieve),
        Kind(
            "index",
            (
                Command("index vectors --type bm25 --overwrite", ("vectors",), ("vectors/indexes",)),
                Command(
                    "index rows.jsonl -m bert -o out --type hnsw",
                    ("rows.jsonl", "bert"),
                    ("out",),
                    ("out",),
                    "--overwrite",
                ),
            ),
        ),
        Kind(
            "analyze",
            (
                Command(
                    "analyze duplicates rows.jsonl -m bert -o out --least 0.9 --json out.json",
                    ("rows.jsonl",),
                    ("out", "out.json"),
                ),
                Command(
                    "analyze geometry model -m bert --data senteval --no-sts -o out", ("model", "senteval"), ("out",)
                ),
                Command("analyze map text.txt -m bert -o out", ("text.txt",), ("out",)),
            ),
        ),
        Kind(
            "report",
            (
                Command("report scores.json found.json -o out.html", ("scores.json", "found.json"), ("out.html",)),
                Command("report model -o out.md", ("model",), ("out.md",)),
            ),
        ),
        Kind(
            "data check",
            (
                Command("data check pairs.tsv --json out.json", ("pairs.tsv",), ("out.json",), ("out.json",)),
                Command("data check asked.csv -m bert --json out.json", ("asked.csv",), ("out.json",), ("out.json",)),
            ),
        ),
    ]


def _new() -> list[Kind]:
    adapted = "adapt articles.jsonl -m bert -o out --limit 60 --budget 20s --device cpu"
    mined = "--ranks 1-20 --negatives 1 --no-apart --below 1"
    mine = f"data mine set -m bert -o out.jsonl {mined}"
    return [
        Kind(
            "update",
            (
                Command("index changed.jsonl -m bert -o own --update", ("changed.jsonl", "own"), ("own",), ("own",)),
                Command(
                    "encode changed.jsonl -m bert -o vectors --update",
                    ("changed.jsonl", "vectors"),
                    ("vectors",),
                    ("vectors",),
                ),
                Command("encode changed.jsonl -m bert -o vectors --update --dry-run", ("vectors",)),
            ),
            True,
        ),
        Kind(
            "lance",
            (
                Command("index typed.jsonl --to lance:out -m bert", ("typed.jsonl",), ("out",), ("out",)),
                Command(
                    "index changed.jsonl --to lance:tables -m bert --update --compact",
                    ("changed.jsonl", "tables"),
                    ("tables",),
                    ("tables",),
                ),
                Command(
                    "retrieve --corpus lance:tables --query cat --json out.json", ("tables", "bert"), ("out.json",)
                ),
            ),
            True,
        ),
        Kind(
            "milvus",
            (
                Command(
                    "index typed.jsonl --to milvus:out.db --collection rows -m bert",
                    ("typed.jsonl",),
                    ("out.db",),
                    ("out.db",),
                ),
                Command(
                    "index changed.jsonl --to milvus:rows.db --collection rows -m bert --update",
                    ("changed.jsonl", "rows.db"),
                    ("rows.db",),
                    ("rows.db",),
                ),
                Command(
                    "retrieve --corpus milvus:rows.db --collection rows --query cat --json out.json",
                    ("rows.db",),
                    ("out.json",),
                ),
            ),
            True,
        ),
        Kind(
            "passages",
            (
                Command(
                    "encode pages -m bert -o out --passages --context headings --passage-tokens 30 --overlap 4",
                    ("pages",),
                    ("out",),
                    ("out",),
                    "--resume",
                ),
                Command(
                    "index articles.jsonl -m bert -o out --passages --context title",
                    ("articles.jsonl",),
                    ("out",),
                    ("out",),
                    "--overwrite",
                ),
                Command(
                    "retrieve --corpus passages --query cat --per-document 1 --search rrf --json out.json",
                    ("passages",),
                    ("out.json",),
                ),
                Command(
                    "index pages -m bert -o passages --passages --update",
                    ("pages", "passages"),
                    ("passages",),
                    ("passages",),
                ),
            ),
            True,
        ),
        Kind(
            "migrate",
            (
                Command("migrate vectors -m other --anyway", ("vectors", "other"), ("vectors",), ("vectors",)),
                Command("migrate moved --back", ("moved", "moved.before"), ("moved", "moved.before")),
                Command("migrate moved --drop", ("moved", "moved.before"), ("moved", "moved.before")),
                Command("migrate lance:tables -m other --anyway", ("tables",), ("tables",), ("tables",)),
                Command("migrate lance:turned --back", ("turned",), ("turned",), ("turned",)),
            ),
            True,
        ),
        Kind(
            "mine",
            (
                Command(mine, ("set",), ("out.jsonl",)),
                Command(
                    f"data mine asked.csv --corpus rows.jsonl -m bert -o out.jsonl {mined} --near 1",
                    ("asked.csv", "rows.jsonl"),
                    ("out.jsonl",),
                ),
            ),
            True,
        ),
        Kind(
            "make-set",
            (
                Command("data make-set articles.jsonl -o out", ("articles.jsonl",), ("out",), (), "--overwrite"),
                Command(
                    "data make-set set -o out --queries queries.txt --judge 2 -m bert --json out.json",
                    ("set", "queries.txt"),
                    ("out", "out.json"),
                ),
            ),
            True,
        ),
        Kind(
            "thresholds",
            (
                Command(
                    "evaluate labelled.tsv -m bert --threshold 0.3 --json out.json", ("labelled.tsv",), ("out.json",)
                ),
                Command(
                    "evaluate labelled.tsv -m bert --threshold 0.3 --keep-threshold vectors",
                    ("labelled.tsv", "vectors"),
                    ("vectors/calibration.json",),
                ),
                Command(
                    "retrieve --corpus likely --query cat --least 0.3p --json out.json", ("likely",), ("out.json",)
                ),
            ),
            True,
        ),
        Kind(
            "baselines",
            (
                Command("evaluate set -m bert --save-baseline out.json", ("set",), ("out.json",)),
                Command("evaluate set -m bert --baseline base.json --allow 0.5", ("set", "base.json")),
                Command(
                    "evaluate pairs.tsv -m bert --baseline pairs.json --allow 90 --format junit",
                    ("pairs.tsv", "pairs.json"),
                ),
            ),
            True,
        ),
        Kind(
            "foreign vectors",
            (
                Command(
                    "retrieve --corpus foreign.npy --texts text.txt -m bert --query cat --json out.json",
                    ("foreign.npy", "text.txt"),
                    ("out.json",),
                ),
                Command(
                    "retrieve --corpus foreign.parquet --vector-field vec -m bert --query cat --json out.json",
                    ("foreign.parquet",),
                    ("out.json",),
                ),
                Command(
                    "index foreign.parquet --vector-field vec -m bert -o out --type hnsw",
                    ("foreign.parquet",),
                    ("out",),
                ),
                Command(
                    "retrieve --corpus foreign.jsonl --vector-field vec -m bert --query cat --json out.json",
                    ("foreign.jsonl",),
                    ("out.json",),
                ),
            ),
            True,
        ),
        Kind(
            "teachers",
            (
                Command(
                    f"train --method distill --teacher bert -m other --data text.txt -o out {STEPS}",
                    ("text.txt", "bert"),
                    ("out",),
                    ("out",),
                    "--resume",
                ),
                Command(
                    f"train --method distill --teacher taught.parquet -m other --data text.txt -o out {STEPS}",
                    ("taught.parquet",),
                    ("out",),
                    ("out",),
                    "--resume",
                ),
                Command(
                    f"train --method static --teacher bert --data text.txt -o out {STEPS}",
                    ("text.txt", "bert"),
                    ("out",),
                    ("out",),
                    "--resume",
                ),
            ),
            True,
        ),
        Kind(
            "revisions",
            (
                Command("encode text.txt -m acme/mini@v1 -o out.npy", ("text.txt", HUB), ("out.npy",)),
                Command(
                    "retrieve --corpus rows.jsonl -m acme/mini@v1 --query cat --json out.json",
                    ("rows.jsonl", HUB),
                    ("out.json",),
                ),
                Command("encode text.txt -m acme/mini -o out.npy", (HUB,), ("out.npy",)),
            ),
            True,
        ),
        Kind(
            "hub layout",
            (
                Command("export -m bert -o out --layout hub", ("bert",), ("out",)),
                Command("encode text.txt -m shelf -o out.npy --backend onnx", ("text.txt", "shelf"), ("out.npy",)),
                Command("encode text.txt -m shelf -o out.npy --backend torch", ("shelf",), ("out.npy",)),
            ),
            True,
        ),
        Kind(
            "adapt",
            (Command(adapted, ("articles.jsonl", "bert"), ("out", "out.adapting"), ("out.adapting",), "--resume"),),
            True,
        ),
    ]


HUB = "../hf"
"""The cache of the hub, beside the folder of a scene."""
KINDS = {kind.name: kind for kind in [*_old(), *_new()]}
MADE_BEFORE = (
    "index vectors --type bm25",
    "encode text.txt -m bert -o one.parquet",
    "evaluate pairs.tsv -m bert --json own.json",
    "evaluate set -m bert --save-baseline base.json",
    "evaluate pairs.tsv -m bert --save-baseline pairs.json",
    "retrieve --beir set -m bert --json found.json",
    "index rows.jsonl -m bert -o own --type hnsw",
    "index rows.jsonl --to lance:tables -m bert",
    "index rows.jsonl --to lance:turned -m bert",
    "migrate lance:turned -m other --anyway",
    "index rows.jsonl --to milvus:rows.db --collection rows -m bert",
    "encode pages -m bert -o passages --passages --passage-tokens 16 --shard-rows 4",
    "encode rows.jsonl -m bert -o moved --shard-rows 40",
    "index moved --type hnsw",
    "migrate moved -m other --anyway",
    "encode text.txt -m bert -o likely --shard-rows 40",
    "evaluate labelled.tsv -m bert --threshold 0.3 --keep-threshold likely",
    "encode text.txt -m bert -o taught.parquet",
    "export -m bert -o shelf --layout hub",
)


def call(words, cwd, **options):
    """Run a command in a forked process, and return its code and what it wrote."""
    process = Forked("sentcli", *words, cwd=cwd, **options)
    out, err = process.communicate(120)
    return process.returncode, out, err


def write_scene(folder: Path, hub) -> None:
    """Write what all commands read."""
    from types import SimpleNamespace

    def invoke(*words, check=None):
        code, out, err = call(words, folder)
        assert check is None or code == check, (words, err)
        return SimpleNamespace(exit_code=code, stdout=out, stderr=err)

    folder.mkdir(parents=True)
    write_scene_files(folder, invoke)
    save_backbone(folder / "other", seed=7)
    write_tables(folder)
    for command in MADE_BEFORE:
        invoke(*command.split(), check=0)
    write_foreign(folder)
    hub.put("acme/mini", folder / "bert", "v1", "main")


def write_tables(folder: Path) -> None:
    """Write tables with columns of several types, pages, and labelled pairs."""
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    types = [
        {**row, "n": n, "share": n / 7, "day": f"2024-01-{1 + n % 28:02}", "yes": n % 2 == 0, "tags": ["a", str(n)]}
        for n, row in enumerate(rows)
    ]
    changed = [row if n % 3 else {**row, "text": f"a new {row['text']}"} for n, row in enumerate(rows[5:])]
    tables = {"typed.jsonl": types, "changed.jsonl": changed, "articles.jsonl": documents(60)}
    for name, table in tables.items():
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in table))
    pq.write_table(pa.Table.from_pylist(types), folder / "typed.parquet")
    for name, text in PAGES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    labelled = "".join(f"a cat {n}\tthe river {n * 7}\t{n % 2}\n" for n in range(120))
    (folder / "labelled.tsv").write_text(f"sentence1\tsentence2\tlabel\n{labelled}")
    asked = "".join(f"{row['text'].split()[0]} {n},{row['text']}\n" for n, row in enumerate(rows[:12]))
    (folder / "asked.csv").write_text(f"anchor,positive\n{asked}")
    documents_of_set = [{"_id": row["id"], "title": "", "text": row["text"]} for row in rows]
    queries = [{"_id": f"q{n}", "text": rows[n]["text"][:9], "language": "en" if n % 2 else "de"} for n in range(12)]
    for name, table in {"corpus": documents_of_set, "queries": queries}.items():
        (folder / "set" / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table))
    judged = "".join(f"q{n}\tr{n}\t1\n" for n in range(12))
    (folder / "set" / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")


def write_foreign(folder: Path) -> None:
    """Write the vectors of the texts as others do, without a word on the model."""
    import faiss

    table = pq.read_table(folder / "one.parquet")
    vectors = np.array(table["embedding"].to_pylist(), np.float32)
    np.save(folder / "foreign.npy", vectors)
    lists = pa.array(vectors.tolist(), pa.list_(pa.float32()))
    columns = {"id": table["id"].to_pylist(), "text": table["text"].to_pylist(), "vec": lists}
    pq.write_table(pa.table(columns), folder / "foreign.parquet")
    rows = pa.table(columns).to_pylist()
    (folder / "foreign.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    faiss.write_index(index, str(folder / "foreign.faiss"))


def surroundings(folder: Path, hub) -> dict[str, str]:
    """Return the variables with which all processes run: every place that is written to is one of the sample's own."""
    return {
        "HF_ENDPOINT": hub.url, "HF_HOME": str(folder / "hf"), "HF_HUB_OFFLINE": "0", "OMP_NUM_THREADS": "1",
        "SENTCLI_CACHE": str(folder / "cache"), "HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp"),
        "COLUMNS": "200", "TOKENIZERS_PARALLELISM": "false", "NO_COLOR": "1",
    }  # fmt: skip
