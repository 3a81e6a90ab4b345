"""Names of files are bytes: a locale that has no UTF-8 changes none of them, and neither what is in a file."""

import shutil
import subprocess

import pytest

from tests.conftest import save_cross_encoder

POSIX = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
NAME = "é and  e\u0301 😀 漢字"
"""A name with what names have: accents in both forms, two blanks, signs of four bytes."""
COMMANDS = (
    "encode TEXTS -m MODEL -o OUT",
    "index OUT --type hnsw",
    "index OUT --type bm25",
    "retrieve --corpus OUT -m MODEL --query NAME --json OUT.json",
    "encode TEXTS -m MODEL -o OUT --update",
    "encode TEXTS -m MODEL -o OUT.safetensors",
    "encode TEXTS -m MODEL -o OUT.parquet",
    "encode TEXTS -m MODEL -o OUT.npy",
    "index TEXTS -m MODEL --to lance:OUT-lance",
    "index TEXTS -m MODEL --to milvus:OUT.db --collection rows",
    "migrate OUT -m MODEL --anyway --max-length 12",
    "encode OUT -m MODEL -o OUT-again",
    "export -m MODEL -o OUT-export --no-verify",
    "encode TEXTS -m OUT-export -o OUT-of-export.npy",
    "train -m MODEL --data TEXTS --method simcse --max-steps 1 --batch-size 2 --max-length 16 -o OUT-run",
    "data make-set TEXTS -o OUT-set --text-field text --title-field title",
    "retrieve --corpus OUT -m MODEL --max-length 12 --query NAME --rerank JUDGE",
    "analyze duplicates TEXTS -m MODEL -o OUT-analysis --least 0.99",
)


@pytest.fixture(scope="module")
def latin_1(tmp_path_factory):
    """The variables of a locale in ISO-8859-1."""
    if shutil.which("localedef") is None:
        pytest.skip("needs localedef")
    place = tmp_path_factory.mktemp("locales")
    name = "en_US.ISO-8859-1"
    subprocess.run(["localedef", "-i", "en_US", "-f", "ISO-8859-1", place / name], check=False)
    if not (place / name).exists():
        pytest.skip("this machine has no sources of locales")
    return {"LOCPATH": str(place), "LC_ALL": name, "PYTHONUTF8": "0"}


def work_in(folder, model):
    """Return the words for what the commands name; all of it has the name in its path."""
    name = NAME
    place = folder / name
    place.mkdir()
    shutil.copytree(model, place / f"model {name}")
    rows = ["id,title,text"]
    for number in range(12):
        rows.append(f"{number},the cat {name} of house {number},the {name} sat on the mat {number}")
    texts = place / f"texts {name}.csv"
    texts.write_text("\n".join(rows) + "\n", "utf-8")
    words = {"TEXTS": texts, "MODEL": place / f"model {name}", "OUT": place / f"out {name}", "NAME": name}
    return place, {key: str(value) for key, value in words.items()}


def environment_in(place, variables):
    """Return the variables of a home there, whose messages are in UTF-8."""
    places = {"HOME": str(place), "SENTCLI_CACHE": str(place / f"cache {NAME}")}
    return {**variables, **places, "PYTHONIOENCODING": "utf-8", "OMP_NUM_THREADS": "1"}


def filled(command, words):
    """Return the words of a command."""
    found = []
    for word in command.split():
        for key, value in words.items():
            word = word.replace(key, value)
        found.append(word)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("locale", ["posix", pytest.param("latin-1", marks=pytest.mark.deep)])
def test_files_have_their_names(locale, tiny_bert, tmp_path, run, request):
    variables = POSIX if locale == "posix" else request.getfixturevalue("latin_1")
    place, words = work_in(tmp_path, tiny_bert)
    command = "encode TEXTS -m MODEL -o OUT.safetensors --backend torch"
    environment = environment_in(place, variables)
    run(*filled(command, words), env=environment, check=0)
    assert f"out {NAME}.safetensors" in [path.name for path in place.iterdir()]


@pytest.mark.deep
def test_all_verbs_with_names_of_all_signs(latin_1, tiny_bert, tmp_path, run):
    place, words = work_in(tmp_path, tiny_bert)
    words["JUDGE"] = str(save_cross_encoder(place / f"judge {NAME}"))
    environment = environment_in(place, latin_1)
    for command in COMMANDS:
        done = run(*filled(command, words), env=environment, cwd=place)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    assert {path.name for path in tmp_path.iterdir()} == {NAME}
    assert all("?" not in str(path) and "Ã" not in str(path) for path in tmp_path.rglob("*"))
    whole = run("encode", "--check", words["OUT"], env=environment, cwd=place)
    assert whole.returncode == 0, whole.stderr
