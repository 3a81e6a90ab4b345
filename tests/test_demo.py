"""The demo's data and the documentation that it searches: ids, links, and command lines that exist."""

import dataclasses
import importlib.util
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from sentcli.cli.app import app
from sentcli.methods.method import Settings

ROOT = Path(__file__).parent.parent
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "docs" / "make_recipes.py"]  # whose page is not committed
ROOT_COMMAND = get_command(app)
COMMANDS = {name: ROOT_COMMAND.get_command(None, name) for name in ROOT_COMMAND.list_commands(None)}


def load_prepare():
    spec = importlib.util.spec_from_file_location("prepare", ROOT / "demo" / "prepare.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


prepare = load_prepare()


@pytest.fixture(scope="module")
def corpus():
    return [json.loads(line) for line in (ROOT / "demo" / "corpus.jsonl").read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def queries():
    return [json.loads(line) for line in (ROOT / "demo" / "queries.jsonl").read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def qrels():
    header, *rows = (ROOT / "demo" / "qrels" / "test.tsv").read_text("utf-8").splitlines()
    assert header == "query-id\tcorpus-id\tscore"
    return [row.split("\t") for row in rows]


def test_the_corpus_has_sections_with_distinct_ids(corpus):
    ids = [document["_id"] for document in corpus]
    assert len(ids) >= 50
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z0-9-]+#[a-z0-9]+(-[a-z0-9]+)*", key) for key in ids)
    assert not any(key.startswith("cli#") for key in ids)
    assert all(document["title"] and document["text"] for document in corpus)


def test_judgements_name_sections_and_queries_that_exist(corpus, queries, qrels):
    documents, known = {d["_id"] for d in corpus}, [q["_id"] for q in queries]
    assert len(set(known)) == len(known) == 40
    assert len({q["text"] for q in queries}) == 40
    assert {document for _, document, _ in qrels} <= documents
    assert {query for query, _, _ in qrels} == set(known)
    assert {score for _, _, score in qrels} == {"1"}
    pairs = [(query, document) for query, document, _ in qrels]
    assert len(set(pairs)) == len(pairs)
    per_query = [sum(query == key for query, _ in pairs) for key in known]
    assert min(per_query) >= 1
    assert max(per_query) <= 3


def test_queries_are_not_headings(corpus, queries):
    headings = {d["title"].split(": ", 1)[1].casefold() for d in corpus}
    assert not headings & {q["text"].casefold() for q in queries}


@pytest.mark.deep
def test_docstrings_of_the_standard_library():
    found = prepare.stdlib_docstrings()
    assert len(found) >= 5000
    assert found == prepare.stdlib_docstrings()
    assert len({sentence.casefold() for sentence in found}) == len(found)
    assert all(5 <= len(sentence.split()) <= 40 for sentence in found)
    assert not any(">>>" in sentence or "\n" in sentence for sentence in found)


def test_sentences_leave_out_doctests_tables_and_fragments():
    docstring = (
        "Return the sum of two numbers, e.g. of\none and two. It never fails at all, really!\n\n"
        ">>> add(1, 2) gives the sum of them\n3\n\nToo short here.\n\n+---+---+---+ | 1 | 2 | 3 | +---+"
    )
    assert list(prepare.sentences(docstring)) == [
        "Return the sum of two numbers, e.g. of one and two.",
        "It never fails at all, really!",
    ]


def test_prepare_writes_a_set_that_retrieve_reads(tmp_path, capsys, monkeypatch, corpus):
    from sentcli.evaluation.retrieval import load_set

    monkeypatch.setattr(prepare, "stdlib_docstrings", lambda: ["One sentence.", "Another one."])
    assert prepare.main([str(tmp_path / "new" / "out")]) == 0
    loaded = load_set(tmp_path / "new" / "out" / "docs")
    assert (len(loaded.ids), len(loaded.queries)) == (len(corpus), 40)
    assert loaded.unknown_documents == loaded.unknown_queries == 0
    assert (tmp_path / "new" / "out" / "stdlib.txt").read_bytes() == b"One sentence.\nAnother one.\n"
    assert f"{len(corpus)} sections" in capsys.readouterr().out
    assert prepare.main([]) == 2


def links():
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):  # those of docs/ are checked with the site
        text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if not re.match(r"[a-z]+:", target):
                yield page, target


@pytest.mark.parametrize(("page", "target"), links(), ids=lambda value: getattr(value, "name", value))
def test_links_resolve(page, target):
    name, _, anchor = target.partition("#")
    file = (page.parent / name) if name else page
    assert file.exists(), f"{page.name} links to {target}"
    if anchor:
        headings = re.findall(r"^#+ (.*)$", file.read_text("utf-8"), re.MULTILINE)
        assert anchor in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def command_lines():
    """Every line of a bash block that starts with sentcli, lines that end in a backslash joined."""
    for page in PAGES:
        for block in re.findall(r"^```bash\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                if line.strip().startswith("sentcli "):
                    yield pytest.param(line.strip(), id=f"{page.stem}: {line.strip()[:60]}")


def arguments_of(line):
    """The words after `sentcli`, up to a pipe or a redirection."""
    words = shlex.split(line, comments=True)[1:]
    stop = next((i for i, word in enumerate(words) if word in ("|", "<", ">", ">>", "2>", "&&", ";")), len(words))
    return words[:stop]


def check_command_line(line):
    """Check that the command and its options exist, that values parse and that nothing required is missing."""
    words = arguments_of(line)
    if words[0].startswith("-"):
        known = {name for parameter in get_command(app).params for name in parameter.opts}
        assert set(words) <= known | {"--help", "-h"}, line
        return
    assert words[0] in COMMANDS, line
    command = COMMANDS[words[0]]
    if hasattr(command, "list_commands"):
        words = words[1:]
        assert words and words[0] in command.list_commands(None), line
        command = command.get_command(None, words[0])
    known = {"--help", "-h"}
    known |= {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    given = {word.partition("=")[0] for word in words[1:] if re.match(r"--?[a-z]", word)}
    assert given <= known, f"{line}: {given - known}"
    try:
        command.make_context(words[0], words[1:])
    except Exception as error:  # click's own, or those of the copy of click inside newer releases of typer
        if type(error).__name__ != "Exit":  # what --help raises
            pytest.fail(f"{line}: {type(error).__name__} {error}")


@pytest.mark.slow
@pytest.mark.parametrize("line", command_lines())
def test_command_lines_of_the_docs_parse(line):
    check_command_line(line)


def test_the_page_of_settings_has_every_setting_with_its_default():
    page = (ROOT / "docs" / "train-settings.md").read_text("utf-8")
    table = page[page.index("| key | default | meaning |") :].partition("\n\n")[0]
    shown = dict(re.findall(r"^\| `(\w+)` \| (\S+) \|", table, re.MULTILINE))
    values = {"true": True, "false": False, "none": None, "all": ()}
    read = {key: values.get(text, float(text) if text[0].isdigit() else text) for key, text in shown.items()}
    assert read == {field.name: field.default for field in dataclasses.fields(Settings)}


def test_every_command_is_shown_in_the_docs():
    shown = {arguments_of(parameter.values[0])[0] for parameter in command_lines()}
    assert set(COMMANDS) <= shown


@pytest.mark.parametrize("line", ["sentcli export -m minilm", "sentcli encode a.txt -o b.npy -m minilm --index flat"])
def test_the_check_finds_what_does_not_exist(line):
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check_command_line(line)


@pytest.mark.deep
def test_the_question_of_the_first_page_finds_how_to_resume(invoke, minilm, tmp_path):
    subprocess.run([sys.executable, ROOT / "demo" / "prepare.py", tmp_path], check=True, capture_output=True)
    page = (ROOT / "docs" / "start" / "search.md").read_text("utf-8")
    (question,) = set(re.findall(r'--query "([^"]+)"', page))
    corpus = tmp_path / "docs" / "corpus.jsonl"
    found = invoke("retrieve", "-m", "minilm", "--corpus", corpus, "--query", question, "--json", "-", check=0)
    hits = [hit["id"] for hit in json.loads(found.stdout)["results"][0]["hits"]]
    assert {"encode#resume-an-interrupted-run", "train#interrupt-and-resume"} <= set(hits[:3])
