"""The verbs where a shell, a container or a service gives them poor streams, no home folder or no cache.

A forked process takes over each environment and runs all command lines in it.
"""

import io
import multiprocessing
import os
import subprocess
import sys
import traceback
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import save_backbone

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="forks, and closes descriptors")

TEXTS = ["the cat sat", "ein Mädchen 漢字 €", "the dog ran on the mat", "a bird flew over the river"]
COMMANDS = {
    "encode": "encode texts.txt -m bert -o {out}.npy",
    "index": "index vectors --type flat --overwrite",
    "retrieve": "retrieve --corpus texts.txt -m bert --query Mädchen",
    "evaluate": "evaluate pairs.csv -m bert",
    "sts-eval": "sts-eval --pairs pairs.csv -m bert",
    "report": "report scores.json -o {out}.md",
    "doctor": "doctor",
    "data list": "data list",
    "data check": "data check pairs.csv",
    "data make-set": "data make-set faq.csv -o {out}-set",
    "data mine": "data mine set -m bert -o {out}.jsonl --ranks 1-9 --negatives 1",
    "analyze duplicates": "analyze duplicates many.txt -m bert -o {out}-duplicates",
    "help": "retrieve --help-all",
    "usage": "encode texts.txt --modell bert",
}
"""A command line of each verb whose work is short; those that train, export and draw print through the same console."""
LONG = {
    "train": "train --method simcse --data many.txt -m bert --batch-size 4 --max-steps 1 -o {out}-train",
    "export": "export -m bert -o {out}-export",
    "analyze map": "analyze map many.txt -m bert -o {out}-map",
    "retrieve --beir": "retrieve --beir set -m bert",
}
CODES = {"usage": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with what the commands read."""
    from tests.evaluation.conftest import write_set

    folder = tmp_path_factory.mktemp("environments")
    save_backbone(folder / "bert")
    (folder / "texts.txt").write_text("\n".join(TEXTS) + "\n", "utf-8")
    (folder / "many.txt").write_text("".join(f"{text} {n}\n" for n in range(5) for text in TEXTS), "utf-8")
    pairs = [f"{a} {n},{b},{n % 6}" for n, (a, b) in enumerate(zip(TEXTS * 3, TEXTS[::-1] * 3, strict=True))]
    (folder / "pairs.csv").write_text("text_a,text_b,similarity\n" + "\n".join(pairs) + "\n", "utf-8")
    questions = [f"how does the thing number {n} of Zürich work?,{text} {n}" for n, text in enumerate(TEXTS * 6)]
    (folder / "faq.csv").write_text("question,text\n" + "\n".join(questions) + "\n", "utf-8")
    write_set(folder / "set")
    made = ["encode texts.txt -m bert -o vectors --backend torch", "evaluate pairs.csv -m bert --json scores.json"]
    for place, command in enumerate(made):
        code, _, err = in_fork(folder, lambda: None, {place: command})[place]
        assert code == 0, err
    return folder


def in_fork(folder, enter, commands):
    """Run command lines in a forked process that `enter` has changed; returns code, output and errors of each."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_run_all, args=(folder, enter, commands, theirs))
    process.start()
    theirs.close()
    try:
        return ours.recv()
    finally:
        process.join()


def _run_all(folder, enter, commands, pipe):
    from sentcli.cli import main

    os.chdir(folder)
    results = {}
    with ExitStack() as stack:
        try:
            streams = [stack.enter_context(Path(f"said-{os.getpid()}-{n}").open("w+b", buffering=0)) for n in (1, 2)]
            for name, command in commands.items():
                for number, stream in enumerate(streams, 1):
                    stream.seek(0)
                    stream.truncate()
                    os.dup2(stream.fileno(), number)
                sys.stdin = Path(os.devnull).open()  # noqa: SIM115 - as long as the process
                sys.stdout, sys.stderr = (os.fdopen(n, "w", encoding="utf-8", closefd=False) for n in (1, 2))
                enter()
                sys.argv = ["sentcli", *command.format(out=f"{os.getpid()}-out").split()]
                code = _code_of(main)
                for stream in (sys.stdout, sys.stderr):
                    if stream is not None:
                        stream.flush()
                out, err = (Path(stream.name).read_bytes() for stream in streams)
                results[name] = code, out, err.decode("utf-8", "replace")
        except BaseException:
            results = {name: (None, b"", traceback.format_exc()) for name in commands}
        pipe.send(results)
    os._exit(0)


def _code_of(main):
    try:
        main()
    except SystemExit as error:
        return error.code or 0
    except BaseException:
        traceback.print_exc()
    return 0


def encoded_in(encoding):
    """Give standard output an encoding, as PYTHONIOENCODING does, and standard error the same."""

    def enter():
        sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", closefd=False), encoding)
        sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", closefd=False), encoding, errors="backslashreplace")

    return enter


def closed(*names):
    """Close standard streams, as ``>&-`` does."""

    def enter():
        for name in names:
            os.close(("stdin", "stdout", "stderr").index(name))
            setattr(sys, name, None)

    return enter


def homeless():
    """Take the home folder away, and the name of the user where this process may."""
    import pwd

    def nobody(number):
        raise KeyError(f"getpwuid(): uid not found: {number}")

    pwd.getpwuid = nobody
    for name in ("HOME", "SENTCLI_CACHE", "XDG_CACHE_HOME"):
        os.environ.pop(name, None)


def homeless_with_cache():
    cache = os.environ["SENTCLI_CACHE"]
    homeless()
    os.environ["SENTCLI_CACHE"] = cache


def without_cache():
    """Name a cache that cannot be made, since a file is in its place; a superuser may write to every folder."""
    os.environ["SENTCLI_CACHE"] = str(Path("texts.txt", "cache").resolve())


def narrow():
    os.environ["COLUMNS"] = "20"


def dumb():
    os.environ |= {"TERM": "dumb", "COLUMNS": "1"}


ENVIRONMENTS = {
    "ascii": encoded_in("ascii"),
    "latin-1": encoded_in("latin-1"),
    "cp1252": encoded_in("cp1252"),
    "gbk": encoded_in("gbk"),
    "stdin closed": closed("stdin"),
    "stdout closed": closed("stdout"),
    "stderr closed": closed("stderr"),
    "all closed": closed("stdin", "stdout", "stderr"),
    "no home": homeless,
    "no home, a cache": homeless_with_cache,
    "no cache": without_cache,
    "narrow": narrow,
    "no terminal": dumb,
}


def check(environment, results):
    for name, (code, _, err) in results.items():
        assert code == CODES.get(name, 0), (environment, name, code, err)
        assert "defect" not in err and "Traceback" not in err, (environment, name, err)


@pytest.mark.slow
@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_every_verb_works_in_every_environment(environment, folder):
    all_verbs = environment in ("ascii", "no home")
    few = ("encode", "retrieve", "data check", "help", "usage")
    results = in_fork(folder, ENVIRONMENTS[environment], {k: v for k, v in COMMANDS.items() if all_verbs or k in few})
    check(environment, results)
    if environment in ("ascii", "latin-1", "cp1252", "gbk"):
        out = results["retrieve"][1].decode(environment)
        assert "the dog ran on the mat" in out
        shown = {"ascii": "M?dchen ??", "latin-1": "Mädchen ??", "cp1252": "Mädchen ?? €", "gbk": "漢字"}
        assert shown[environment] in out
    if environment == "stdout closed":
        assert all(out == b"" for _, out, _ in results.values())
    if environment == "no home":
        assert "SENTCLI_CACHE" in results["encode"][2]


LONG_IN_CI = ("ascii", "all closed", "no home", "narrow")
"""One of the encodings, of the closed streams, of the folders that are missing and of the terminals."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "environment",
    [name if name in LONG_IN_CI else pytest.param(name, marks=pytest.mark.deep) for name in ENVIRONMENTS],
)
def test_verbs_that_take_longer_work_in_every_environment(environment, folder):
    check(environment, in_fork(folder, ENVIRONMENTS[environment], COMMANDS | LONG))


@pytest.mark.parametrize(
    ("stream", "command", "said"),
    [
        ("stdout", "encode texts.txt -m bert -o vectors.npy --json -", "--json -"),
        ("stdout", "retrieve --corpus texts.txt -m bert --query a --hits -", "--hits -"),
        ("stdin", "encode - -m bert -o vectors.npy", "standard input"),
    ],
)
def test_data_does_not_go_to_a_closed_stream(stream, command, said, folder):
    code, out, err = in_fork(folder, closed(stream), {0: command})[0]
    assert code == 2 and said in err and "closed" in err and out == b""
    assert not (folder / "vectors.npy").exists()


def test_a_locale_without_utf8_gives_the_same_hits(folder):
    """The words of a command line are bytes in UTF-8, whatever the locale takes them for."""
    command = "retrieve --corpus texts.txt --search bm25 --query Mädchen --json hits.json".split()
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONPATH": str(Path.cwd())}
    env.pop("PYTHONIOENCODING", None)
    done = subprocess.run([sys.executable, "-m", "sentcli", *command], cwd=folder, env=env, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert b"M?dchen ??" in done.stdout
    assert '"Mädchen"' in (folder / "hits.json").read_text("utf-8")


@pytest.mark.parametrize("option", ["--query", "--like", "--where", "--text-field"])
def test_bytes_that_are_no_utf8_are_no_text(option, folder, invoke):
    words = ["--query", "a", option, "a\udcff"] if option in ("--where", "--text-field") else [option, "a\udcff"]
    result = invoke("retrieve", "--corpus", folder / "texts.txt", "-m", folder / "bert", *words, check=2)
    assert option in result.stderr and "character 2" in result.stderr and "UTF-8" in result.stderr


def test_a_result_is_shown_where_signs_are_missing():
    """In Python, whose standard output belongs to another program."""
    from sentcli import console
    from sentcli.table import Table

    stream = io.TextIOWrapper(io.BytesIO(), "ascii")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        console.show(Table("Zürich", ["name"], [["漢字"]]))
        stream.flush()
    assert "Z?rich" in stream.buffer.getvalue().decode("ascii")
    assert stream.errors == "strict"


def test_a_home_that_is_not_there_is_named(monkeypatch, tmp_path):
    from sentcli.errors import InputError
    from sentcli.zoo import resolve

    with pytest.raises(InputError, match="~nobody-of-this-name/model: there is no home folder"):
        resolve("~nobody-of-this-name/model")
