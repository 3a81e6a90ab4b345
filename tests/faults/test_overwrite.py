"""Whatever ends a command with --overwrite, and wherever: the old output is whole, or the new one is.

Two calls of each command are tried, with SENTCLI_CALLS=15 some 15, with SENTCLI_CALLS=0 all, which takes an hour. A
file named in SENTCLI_CALLS_TABLE gets two lines for each case: command, error or kill, calls tried, commands that did
not end well.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest

HERE = Path(__file__).parent
WORDS = ("man", "woman", "child", "house", "cat", "dog")
OLD = "".join(f"the {word} sat on the old mat near the {word}\n" for word in ("cat", "dog", "bird", "fish", "tree") * 3)
NEW = "".join(f"a big {word} ran over the new river\n" for word in WORDS[:5] * 4)
PAIRS = "sentence1,sentence2,label\n" + "".join(f"the {a},a {b},{int(a < b)}\n" for a, b in product(WORDS, WORDS))
LABELLED = "sentence1,sentence2,label\n" + "".join(
    f"the {WORDS[n % 6]} {n},a {WORDS[n // 2 % 6]} {n},{n % 2}\n" for n in range(120)
)
FILES = {
    "old.txt": OLD,
    "new.txt": NEW,
    "old.csv": PAIRS,
    "new.csv": PAIRS.replace("the", "old"),
    "old-pairs.csv": LABELLED,
    "new-pairs.csv": LABELLED.replace("the", "old"),
    "old-many.txt": "".join(f"the old {a} saw the {b}\n" for a, b in product(WORDS, WORDS)),
    "new-many.txt": "".join(f"a new {a} saw a {b}\n" for a, b in product(WORDS, WORDS)),
    "beir/corpus.jsonl": "".join(json.dumps({"_id": f"d-{word}", "text": f"the {word} sat"}) + "\n" for word in WORDS),
    "beir/queries.jsonl": "".join(json.dumps({"_id": word, "text": word}) + "\n" for word in WORDS),
    "beir/qrels/test.tsv": "query-id\tcorpus-id\tscore\n" + "".join(f"{word}\td-{word}\t1\n" for word in WORDS),
}


@dataclass(frozen=True)
class Case:
    """A command that makes an output of old files, and then the same with new ones."""

    command: str
    """M is the model; the first name that begins with out is the output."""
    more: str = "--overwrite"
    """What comes to the second command."""
    resume: str = ""
    """What comes to the command that goes on after the end of the second one."""
    before: tuple[str, ...] = ()
    """Commands that make what both read."""
    parts: int = 0
    """How many names of a path make a part that is whole or not for itself; 0: all files belong together."""
    grows: bool = False
    """The old output grows, and is neither the old nor the new one meanwhile."""


TRAIN = "train -m M --data old.txt -o out --overwrite"
STEPS = "--method simcse --max-steps 4 --save-every 2 --batch-size 4 --max-length 16"
ENCODE = "encode old.txt -m M -o out --shard-rows 8"
RUN = f"train -m M --data old.txt -o old.run {STEPS}"
CASES = {
    "encode DIR": Case(ENCODE, resume="--resume"),
    "encode DIR --append": Case(ENCODE, "--append", grows=True),
    "encode DIR --update": Case(ENCODE, "--update", resume="--resume"),
    "encode FILE": Case("encode old.txt -m M -o out.parquet"),
    "encode FILE.safetensors": Case("encode old.txt -m M -o out.safetensors"),
    "train": Case(f"{TRAIN} {STEPS}", "", "--resume"),
    "train, fitted": Case(f"{TRAIN.replace('old', 'old-many')} --method whitening", "", "--resume"),
    "train, two seeds": Case(f"{TRAIN} {STEPS} --seeds 1,2", "", "--resume", parts=3),
    "index FILES": Case("index old.txt -m M -o out --type hnsw"),
    "index FILES --append": Case("index old.txt -m M -o out --type hnsw", "--append", grows=True),
    "index DIR": Case("index out --type hnsw", "--overwrite --similarity dot", before=(ENCODE,)),
    "index DIR, words": Case("index out --type bm25 --language english", "--language german", before=(ENCODE,)),
    "migrate": Case(
        "migrate out -m M --anyway --drop --max-length 20", "--max-length 12", before=(ENCODE, "index out --type hnsw")
    ),
    "index --to": Case("index old.txt -m M --to milvus:out.db --collection rows"),
    "export": Case("export -m M -o out", "--overwrite --precision int8"),
    "analyze": Case("analyze duplicates old.txt -m M -o out --least 0.99"),
    "analyze --write": Case("analyze duplicates old.txt -m M --write out.txt -o other --least 0.99"),
    "evaluate --json --report": Case(
        "evaluate old.csv -m M --rerun --json out/scores.json --report out/page.md", "", parts=2
    ),
    "evaluate --keep-threshold": Case(
        "evaluate old-pairs.csv -m M --rerun --threshold 0.3 --keep-threshold out", before=(ENCODE,)
    ),
    "retrieve --hits": Case("retrieve -m M --corpus old.txt --query cat --hits out.jsonl"),
    "retrieve --run": Case("retrieve --beir beir -m M --search dense,bm25 --run out", "--overwrite --top-k 3", parts=2),
    "data mine": Case(
        "data mine beir -m M -o out.jsonl --ranks 1-6 --negatives 1 --no-apart --below 1",
        "--overwrite --query-prompt the",
    ),
    "report": Case("report old.run -o out/page.md", before=(RUN, RUN.replace("old.", "new.")), parts=2),
}


LONG = ("train, two seeds", "index --to", "analyze", "analyze --write", "report")
DEEP = dict.fromkeys(LONG, pytest.mark.deep)


@pytest.fixture(scope="module")
def nth_call(tmp_path_factory):
    """A process that has imported what takes long, and tries cases."""
    if shutil.which("gcc") is None or sys.platform != "linux":
        pytest.skip("needs gcc on Linux")
    shim = tmp_path_factory.mktemp("shim") / "failing_calls.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", shim, HERE / "failing_calls.c", "-ldl"], check=True)
    variables = {"LD_PRELOAD": str(shim), "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.faults.nth_call"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=HERE.parent.parent,
        env={**os.environ, **variables},
    ) as process:
        yield process
        process.stdin.close()


def by_part(state, names):
    """The files of each part."""
    parts: dict[str, dict] = {}
    for name, digest in state.items():
        parts.setdefault("/".join(Path(name).parts[:names]), {})[name] = digest
    return parts


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=DEEP.get(name, ())) for name in CASES])
def test_the_old_or_the_new_output_is_whole(name, nth_call, tiny_bert, tmp_path):
    case, folder = CASES[name], tmp_path / "work"
    for file, content in FILES.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(content)
    of_new = re.sub(r"\bold", "new", case.command)
    new_command = f"{of_new} {case.more}"

    def words(command):
        return [str(tiny_bert) if word == "M" else word for word in command.split()]

    output = next(word.removeprefix("milvus:") for word in words(case.command) if "out" in word[:10])
    request = {
        "folder": str(folder),
        "first": [words(command) for command in (*case.before, case.command)],
        "command": words(new_command),
        "resume": words(f"{new_command} {case.resume}"),
        "output": output.partition("/")[0],
        "most": int(os.environ.get("SENTCLI_CALLS", "2")),
    }
    nth_call.stdin.write(json.dumps(request) + "\n")
    nth_call.stdin.flush()
    answer = json.loads(nth_call.stdout.readline())
    assert "problem" not in answer, answer["problem"]
    rows, old, new = answer["rows"], by_part(answer["old"], case.parts), by_part(answer["new"], case.parts)
    assert new != old and len(rows) > 6
    if record := os.environ.get("SENTCLI_CALLS_TABLE"):
        with Path(record).open("a") as table:
            for kind, kills in (("errors", False), ("kills", True)):
                codes = [row["code"] for row in rows if row["kills"] == kills]
                table.write(f"{name} | {kind} | {len(codes)} | {sum(code != 0 for code in codes)}\n")
    for row in rows:
        state, told = by_part(row["state"], case.parts), json.dumps(row, indent=1)
        for part in () if case.grows else {*state, *old, *new}:
            assert state.get(part) in (old.get(part), new.get(part)), f"{part}: {told}"
        if row["code"] != 0:
            assert row["code"] == (-signal.SIGKILL if row["kills"] else 1), told
            error = row["said"].rpartition("error: ")[2]
            assert row["kills"] or ("out" in error and "defect" not in error), told
            assert row["resumed"] == 0, told
            state = by_part(row["after"], case.parts)
        assert state == new, told
        assert row["left"] == answer["left"], told
