"""A method of the user's own: the file of docs/add-a-method.md, and what is refused."""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sentcli
from sentcli import SentenceEncoder
from sentcli.errors import InputError
from sentcli.methods import METHODS, get_method
from sentcli.methods.method_file import load_method_file
from sentcli.objectives import OBJECTIVES
from sentcli.training import sweep_file
from tests.training.test_checkpoints import digests, interrupted, without_times

PAGE = Path(__file__).parents[2] / "docs" / "add-a-method.md"


@pytest.fixture
def barlow(tmp_path):
    """The file on the page."""
    known = set(OBJECTIVES)
    (definition,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), flags=re.DOTALL)
    assert len([line for line in definition.splitlines() if line.strip()]) < 40
    path = tmp_path / "barlow.py"
    path.write_text(definition)
    yield path
    for name in set(OBJECTIVES) - known:
        OBJECTIVES.pop(name)


def call(method, model, text, out, *options):
    return [
        "train", "--method", method, "-m", model, "--data", text, "-o", out, "--batch-size", 16, "--learning-rate",
        "3e-3", "--max-steps", 9, "--save-every", 4, *options,
    ]  # fmt: skip


@pytest.mark.slow
def test_the_file_on_the_page_trains_and_resumes(invoke, tiny_bert, text, tmp_path, barlow, monkeypatch):
    """To the same bytes."""
    out = tmp_path / "whole"
    invoke(*call(barlow, tiny_bert, text, out, "--json", tmp_path / "r.json"), check=0)
    sha = hashlib.sha256(barlow.read_bytes()).hexdigest()
    file = {"name": "barlow.py", "sha256": sha}
    for name in ("run.json", "sentcli.json"):
        method = json.loads((out / name).read_text())["method"]
        assert method["name"] == "barlow-twins" and method["file"] == file
        assert method["barlow"] == {"weight": 0.01, "redundancy": 0.005}
    assert sha in (out / "README.md").read_text()
    assert json.loads((tmp_path / "r.json").read_text())["protocol"]["file"] == file
    losses = [line["barlow"] for line in without_times(out)]
    assert len(losses) == 9 and np.mean(losses[-3:]) < np.mean(losses[:3])

    again = call(barlow, tiny_bert, text, tmp_path / "m")
    interrupted(monkeypatch, invoke, 6, *again)
    result = invoke(*again, "--resume", check=0)
    assert re.search("checkpoint .*4", result.stderr)
    assert digests(tmp_path / "m") == digests(out) and without_times(tmp_path / "m") == without_times(out)


@pytest.mark.slow
def test_resume_wants_the_same_file(invoke, tiny_bert, text, tmp_path, barlow, monkeypatch):
    again = call(barlow, tiny_bert, text, tmp_path / "m")
    interrupted(monkeypatch, invoke, 6, *again)
    barlow.write_text(barlow.read_text() + "# one more comment\n")
    assert "method.file.sha256 " in " ".join(invoke(*again, "--resume", check=2).stderr.split())
    named = call("barlow-twins", tiny_bert, text, tmp_path / "m", "--resume")
    assert "'barlow-twins'" in " ".join(invoke(*named, check=2).stderr.split())


@pytest.mark.slow
def test_the_model_opens_without_the_file(invoke, tiny_bert, text, tmp_path, barlow, sentences):
    short = {"max_steps": 2, "batch_size": 16}
    sentcli.train(method=str(barlow), model=str(tiny_bert), data=text, output=tmp_path / "m", **short)
    barlow.unlink()
    OBJECTIVES.pop("barlow")
    assert SentenceEncoder.load(tmp_path / "m").encode(sentences[:2]).shape == (2, 32)


@pytest.mark.slow
def test_settings_and_seeds(invoke, tiny_bert, text, tmp_path, barlow):
    more = ("--seeds", "1,2", "--max-steps", 2, "--set", "barlow.redundancy=0.01", "--set", "objectives+=contrastive")
    invoke(*call(barlow, tiny_bert, text, tmp_path / "m", *more), check=0)
    lines = [json.loads(line) for line in (tmp_path / "m" / "results.jsonl").read_text().splitlines()]
    assert [line["method"] for line in lines] == ["barlow-twins"] * 2
    assert lines[0]["identity"]["method"]["barlow"]["redundancy"] == 0.01
    again = invoke(*call(barlow, tiny_bert, text, tmp_path / "m", *more, "--resume"), check=0)
    assert again.stderr.count("finished before") == 2
    barlow.write_text(barlow.read_text() + "# one more comment\n")
    more = (*more, "--results", tmp_path / "m" / "results.jsonl")
    changed = invoke(*call(barlow, tiny_bert, text, tmp_path / "n", *more))
    assert "finished before" not in changed.stderr
    wrong = invoke(*call(barlow, tiny_bert, text, tmp_path / "o", "--set", "barlow.redundancy=-1"), check=2)
    assert re.search(r"redundancy .*0.*-1\.0", wrong.stderr)


def test_a_recipe_a_sweep_and_after_never_name_a_file(invoke, tiny_bert, text, tmp_path, barlow):
    words = f"{barlow}.*--method "
    recipe = tmp_path / "r.toml"
    recipe.write_text(f'method = "{barlow}"\nmodel = "{tiny_bert}"\n')
    for options in ((), ("--method", barlow)):
        result = invoke("train", "--recipe", recipe, *options, "--data", text, "-o", tmp_path / "m", check=2)
        assert re.search(rf"r\.toml: .*{words}", " ".join(result.stderr.split()))
    grid = tmp_path / "s.toml"
    for key in ("method", "after"):
        grid.write_text(f'[[grid]]\n{key} = ["simcse", "{barlow}"]\n')
        with pytest.raises(InputError, match=words):
            sweep_file.read_sweep(grid)
        result = invoke("train", "--sweep", grid, "-m", tiny_bert, "--data", text, "-o", tmp_path / "m", check=2)
        assert re.search(words, " ".join(result.stderr.split()))
    result = invoke(
        "train", "--method", "sts-regression", "--after", barlow, "-m", tiny_bert, "--data", text, "-o", tmp_path / "m",
        check=2,
    )  # fmt: skip
    assert re.search(words, " ".join(result.stderr.split()))
    with pytest.raises(InputError, match=words):
        get_method(str(barlow))
    assert "barlow" not in OBJECTIVES and not (tmp_path / "m").exists()


HEAD = "from sentcli.methods import Method\nfrom sentcli.objectives import Contrastive, Objective\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "--method .*/own.py: "),
        ("x = 1\n", "--method .*/own.py: .*METHOD"),
        ("METHOD = 'simcse'\n", "--method .*/own.py: .*METHOD"),
        ("x = 1\ny = x / 0\n", "own.py, line 2: ZeroDivisionError"),
        ("x = 1\n\ny = (\n", "own.py, line 3: "),
        ("import sys\nsys.exit(0)\n", "own.py, line 2: SystemExit: 0"),
        (HEAD + "METHOD = Method(name='simcse', title='')\n", "/own.py: .*simcse"),
        (HEAD + "METHOD = Method(name='Two words', title='')\n", "/own.py: .*'Two words'"),
        (HEAD + "class Own(Objective, name='mlm'):\n    pass\n", "/own.py, line 3: .*mlm"),
        (
            HEAD + "METHOD = Method(name='own', title='', objectives={'head': Contrastive()})\n",
            "/own.py, line 3: own: .*head",
        ),
        (HEAD + "Contrastive(temperature=0)\n", "/own.py, line 3: temperature .*0"),
        (HEAD + "METHOD = Method(name='own', title='', objectives={})\n", "error: own .*objective"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(invoke, tiny_bert, text, tmp_path, content, message):
    path, before = tmp_path / "own.py", (dict(OBJECTIVES), set(sys.modules))
    if content is not None:
        path.write_text(content)
    result = invoke(*call(path, tiny_bert, text, tmp_path / "m"), check=2)
    assert re.search(message, " ".join(result.stderr.split()))
    assert not (tmp_path / "m").exists()
    assert before[0] == OBJECTIVES


def test_an_error_at_a_step_names_the_line(invoke, tiny_bert, text, tmp_path, barlow):
    barlow.write_text(barlow.read_text().replace("len(first)", "len(frist)"))
    line = next(n for n, text in enumerate(barlow.read_text().splitlines(), 1) if "frist" in text)
    result = invoke(*call(barlow, tiny_bert, text, tmp_path / "m"), check=1)
    assert re.search(f"barlow.py, line {line}: NameError: .*'frist'", " ".join(result.stderr.split()))


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("loss.expand(8)", r"a tensor \[8\]"),
        ("loss[None]", r"a tensor \[1\]"),
        ("float(loss)", "float"),
        ("None", "NoneType"),
        ("(loss, loss)", "tuple"),
        ("loss.long()", "int64"),
        ("loss.detach()", "no gradient"),
        ("loss.new_tensor(loss.item())", "no gradient"),
    ],
)
def test_what_an_objective_returns_is_one_number_with_a_gradient(
    invoke, tiny_bert, text, tmp_path, barlow, returned, said
):
    source = barlow.read_text()
    before = "return barlow_twins_loss(views.projected[0], views.projected[1], self.redundancy)"
    assert before in source
    changed = f"loss = {before.removeprefix('return ')}\n        return {returned}"
    barlow.write_text(source.replace(before, changed))
    line = next(n for n, text in enumerate(source.splitlines(), 1) if "def __call__" in text)
    result = invoke(*call(barlow, tiny_bert, text, tmp_path / "m"), check=1)
    assert re.search(f"barlow.py, line {line}.*{said}|{said}.*barlow.py, line {line}", " ".join(result.stderr.split()))


def test_a_changed_file_takes_the_place_of_its_earlier_version(barlow):
    first = load_method_file(barlow)
    barlow.write_text(barlow.read_text().replace("redundancy: Positive = 5e-3", "redundancy: Positive = 4e-3"))
    second = load_method_file(barlow)
    assert OBJECTIVES["barlow"]().redundancy == second.objectives["barlow"].redundancy == 0.004
    assert first.file["sha256"] != second.file["sha256"]


def test_a_stage_of_the_file_knows_the_file_as_well(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(HEAD + "METHOD = Method(name='own', title='', stages={'first': Method(name='own', title='one')})\n")
    stage = get_method(load_method_file(path), "first")
    assert stage.title == "one" and stage.describe()["file"]["name"] == "own.py"


def test_every_method_has_the_name_of_its_file():
    assert {"simcse", "informin-cl", "ct", "first-last-avg"} <= set(METHODS)
    for name, method in METHODS.items():
        assert method.name == name and method.file is None
        assert all(stage.name == name for stage in method.stages.values())


def test_the_names_of_all_methods_cost_no_torch():
    code = (
        "import sys; from sentcli.methods import METHODS; from sentcli.verbs.train import METHODS_HELP; "
        "assert all(name in METHODS_HELP for name in METHODS) and 'micse' in METHODS; "
        "assert not {'torch', 'numpy', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
