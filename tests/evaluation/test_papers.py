"""The papers' tables: every item has an answer, what it names exists, and report shows it."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

from sentcli.errors import DataError
from sentcli.evaluation import papers
from sentcli.training.request import TrainRequest
from sentcli.training.sweep import request_at
from sentcli.training.sweep_file import read_sweep, sweep_names

ROOT = Path(__file__).parent.parent.parent
NAMES = ["infocse", "informin-cl", "is-bert", "micse", "whitenedcse"]


@pytest.fixture(scope="module")
def make_papers():
    spec = importlib.util.spec_from_file_location("make_papers", ROOT / "docs" / "make_papers.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"commands": ["sentcli train --recipe micse-bert-base --data wiki1m --output-file x -o m"]}, "--output-file"),
        ({"commands": ["sentcli train --recipe micse-bert-base --data wiki1m"]}, "output"),
        ({"commands": ["sentcli train --recipe micse-bert-base --data wiki1m --epochs many -o m"]}, "integer"),
        ({"commands": ["sentcli train --recipe micse-bert-huge --data wiki1m -o m"]}, "micse-bert-huge"),
        ({"commands": ["sentcli train --method micse2 -m bert-base --data wiki1m -o m"]}, "micse2"),
        ({"commands": ["sentcli train --method micse -m bert-base --data wiki1m --set ami.wait=1 -o m"]}, "ami.wait"),
        (
            {"commands": ["sentcli train --method micse -m bert-base --data wiki1m --set ami.slicing=cubes -o m"]},
            "cubes",
        ),
        ({"commands": ["sentcli train --sweep micse-table-22 --data wiki1m -o m"]}, "micse-table-22"),
        ({"commands": ["sentcli analyse map texts.txt -m minilm -o m"]}, "analyse"),
        ({"commands": ["sentcli sts-eval -m minilm --pooling center --data sts"]}, "center"),
        ({"commands": ["sentcli sts-eval -m minilm --data sts --against glove2"]}, "glove2"),
        ({"commands": ["sentcli data get sts2"]}, "sts2"),
        ({"commands": ["python train.py"]}, "python"),
        ({"printed": ["glove2"]}, "glove2"),
        ({"results": ["docs/results/absent.json"]}, "absent"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_does_not_exist_is_found(make_papers, wrong, message):
    right = {"name": "T", "shows": "scores", "answer": "yes", "commands": ["sentcli sts-eval -m minilm --data sts"]}
    make_papers.check(papers.Item(**right))
    with pytest.raises(Exception, match=message):  # of typer, of sentcli, or of the file system
        make_papers.check(papers.Item(**right | wrong))


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ('answer = "perhaps"\ncommands = ["sentcli doctor"]', "answer"),
        ('commands = ["sentcli doctor"]', "answer"),
        ('answer = "yes"', "needs commands"),
        ('answer = "partly"\ncommands = ["sentcli doctor"]', "needs missing"),
        ('answer = "no"', "needs missing"),
        ('answer = "no"\nmissing = "data"\nreason = "none"', "reason"),
    ],
)
def test_an_item_without_an_answer_or_a_reason_is_refused(tmp_path, monkeypatch, item, message):
    (tmp_path / "papers").mkdir()
    head = 'title = "P"\nreference = "R"\n[[item]]\nname = "Table 1"\nshows = "scores"\n'
    (tmp_path / "papers" / "p.toml").write_text(head + item)
    monkeypatch.setattr(papers, "models_folder", lambda: tmp_path)
    with pytest.raises(DataError, match=message):
        papers.load_paper("p")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_report_shows_a_paper(invoke, name):
    done = invoke("report", "--paper", name, "--json", "-", check=0)
    results = json.loads(done.stdout)["results"]
    answers = [item["answer"] for item in results["items"]]
    assert results["counts"] == {answer: answers.count(answer) for answer in ("yes", "partly", "no")}
    assert len(answers) >= 15
    assert len({item["name"] for item in results["items"]}) == len(answers)
    commands = [command for item in results["items"] for command in item["commands"]]
    assert all(command in done.stderr for command in commands), "whole, for the clipboard"


def test_report_writes_a_paper_as_pages(invoke, tmp_path):
    page = tmp_path / "micse.md"
    done = invoke("report", "--paper", "micse", "-o", page, "-o", tmp_path / "micse.html", check=0)
    assert done.stdout == ""
    assert "sentcli train --sweep micse-table-2 " in page.read_text("utf-8")
    assert "Figure 8" in (tmp_path / "micse.html").read_text("utf-8")
    assert "--overwrite" in invoke("report", "--paper", "micse", "-o", page, check=2).stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--paper", "mics"], "'micse'"),
        (["--paper", "micse", "scores.json"], "--paper"),
        (["--paper", "micse", "--data", "x"], "--paper and --data"),
        ([], "--paper"),
    ],
)
def test_wrong_usage_of_report(invoke, options, message):
    assert message in invoke("report", *options, check=2).stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", sweep_names())
def test_the_sweep_of_a_table_configures_its_runs(name, tmp_path):
    sweep = read_sweep(Path(name))
    request = TrainRequest(method="", model="", files=[], output=tmp_path)
    runs = [request_at(request, {**point, "seed": 7}, tmp_path) for point in sweep.points]
    methods = [run.configured() for run in runs]
    assert len({(run.model, repr(method), run.data.limit) for run, method in zip(runs, methods, strict=True)}) == len(
        runs
    )
    for run, method in zip(runs, methods, strict=True):
        method.head.build(1024 if "large" in run.model else 768, method.settings.batch_size)
    paper = name.split("-table-")[0].removesuffix("-models").removesuffix("-search").removesuffix("-lambda")
    assert paper in papers.paper_names()


def test_a_sweep_by_name_is_that_of_the_table():
    points = read_sweep(Path("infocse-table-7")).points
    assert [point["auxiliary-mlm.rate"] for point in points] == [0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45]


def test_an_unknown_sweep_suggests_the_nearest(invoke, tmp_path):
    done = invoke("train", "--sweep", "infocse-table-77", "--data", "x.txt", "-o", tmp_path / "s", check=2)
    assert re.search("'infocse-table-7'", done.stderr)


def test_a_file_of_ones_own_goes_before_the_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("infocse-table-7").write_text('[[grid]]\nmethod = "simcse"\n')
    assert read_sweep(Path("infocse-table-7")).points == [{"method": "simcse"}]
