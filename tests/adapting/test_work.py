"""The folder of the work is one adaptation's alone, and nothing that was there is lost."""

import json
import shutil

import pytest

from sentcli.adapting import adapt as adapting
from sentcli.adapting import folder as folders
from sentcli.adapting.folder import ADAPT_RESULTS_FILE
from sentcli.io.atomic import locked
from tests.adapting.test_adapt import documents, write


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write(tmp_path_factory.mktemp("corpus") / "articles.jsonl", documents())


@pytest.fixture
def no_training(monkeypatch):
    def trains(*arguments, **options):
        raise AssertionError("it trains")

    monkeypatch.setattr("sentcli.adapting.work.train_run", trains)


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_was_refused_leaves_nothing_behind(invoke, corpus, tiny_bert, tmp_path, no_training):
    words = ("adapt", corpus, "-m", tiny_bert, "-o", tmp_path / "model", "--device", "cpu")
    assert invoke(*words, "--text-field", "body").exit_code == 2
    assert invoke(*words, "--keep", "nowhere.csv").exit_code == 2
    assert not any(tmp_path.iterdir()), "the next command needs no flag"


@pytest.mark.parametrize(
    "case", ["holds the corpus", "is the start", "in the corpus", "is a file", "holds the dev set"]
)
def test_an_output_that_would_cost_or_become_something_that_is_read(
    case, invoke, corpus, tiny_bert, tmp_path, no_training
):
    folder = tmp_path / "folder"
    folder.mkdir()
    shutil.copy(corpus, folder / "articles.jsonl")
    model = shutil.copytree(tiny_bert, tmp_path / "start")
    words = {
        "holds the corpus": (folder / "articles.jsonl", "-o", folder),
        "is the start": (corpus, "-o", model),
        "in the corpus": (folder, "-o", folder / "model"),
        "is a file": (corpus, "-o", folder / "articles.jsonl"),
        "holds the dev set": (corpus, "-o", folder, "--dev", folder / "articles.jsonl"),
    }
    before = files(tmp_path)
    done = invoke("adapt", *words[case], "-m", model, "--overwrite", "--device", "cpu")
    assert done.exit_code == 2, (done.stderr, done.exception)
    assert files(tmp_path) == before


@pytest.mark.parametrize("flag", [None, "--resume", "--overwrite"])
def test_a_folder_of_others_with_the_name_of_the_work_stays(flag, invoke, corpus, tiny_bert, tmp_path, no_training):
    notes = tmp_path / "model.adapting" / "notes.txt"
    notes.parent.mkdir()
    notes.write_text("mine")
    flags = [] if flag is None else [flag]
    done = invoke("adapt", corpus, "-m", tiny_bert, "-o", tmp_path / "model", "--device", "cpu", *flags)
    assert done.exit_code == 2 and notes.read_text() == "mine"


def test_two_adaptations_to_one_output(invoke, corpus, tiny_bert, tmp_path, no_training):
    with locked(tmp_path / ".model.adapting.lock", "another process"):
        for flags in ([], ["--resume"], ["--overwrite"]):
            done = invoke("adapt", corpus, "-m", tiny_bert, "-o", tmp_path / "model", "--device", "cpu", *flags)
            assert done.exit_code == 2 and "another process" in done.stderr


def test_what_was_begun_without_a_plan_is_made_anew(tmp_path):
    """Rows that were mined of another corpus are not trained on."""
    options = {"resume": True, "overwrite": False}
    with pytest.raises(KeyboardInterrupt), folders.work_folder(tmp_path / "model", [], [], **options) as folder:
        (folder / "rows-start.jsonl").write_text("{}")
        raise KeyboardInterrupt
    with folders.work_folder(tmp_path / "model", [], [], **options) as folder:
        assert not any(folder.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), pytest.param(OSError(28, "No space left on device"), marks=pytest.mark.deep)]
)
def test_the_old_model_stays_until_the_new_one_is_whole(error, invoke, corpus, tiny_bert, tmp_path, monkeypatch):
    output = tmp_path / "model"
    output.mkdir()
    (output / "merges.txt").write_text("old")
    (output / ADAPT_RESULTS_FILE).write_text("{}")
    train = adapting.Work.train

    def fails(self, request, label):
        train(self, request, label)
        raise error

    monkeypatch.setattr(adapting.Work, "train", fails)
    words = ("adapt", corpus, "-m", tiny_bert, "-o", output, "--budget", "30m", "--device", "cpu", "-q")
    code = 130 if isinstance(error, KeyboardInterrupt) else 1
    assert invoke(*words, "--overwrite").exit_code == code
    assert invoke(*words, "--resume").exit_code == 2 and (output / "merges.txt").read_text() == "old"
    trained = []

    def trains(self, request, label):
        trained.append(not (request.output / "model.safetensors").is_file())
        return train(self, request, label)

    monkeypatch.setattr(adapting.Work, "train", trains)
    assert invoke(*words, "--resume", "--overwrite").exit_code == 3
    assert trained[0] is False, "what was trained before is not trained again"
    assert json.loads((output / ADAPT_RESULTS_FILE).read_text())["adopted"] is False
    assert not (output / "merges.txt").exists() and [path.name for path in tmp_path.iterdir()] == ["model"]
